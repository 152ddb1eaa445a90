"""Precedence of a library over libraries of higher priority, where the condition ``first`` of its
invoker holds.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from libdesc.invokers import InvokerInfo
from libdesc.registry import ready
from ptensor.evaluation import Decline
from vtensor.errors import InvokerError, describe
from vtensor.language.failures import place_of, raised
from vtensor.language.operators import info_of, label_of
from vtensor.language.process.interrupts import pass_signals
from vtensor.language.tensor import VTensor


def precedes(row: InvokerInfo, name: str, op: object, inputs: Sequence[VTensor]) -> bool:
    """Return whether the condition ``first`` of an invoker holds for a node.

    If it holds, the invoker's library is asked before those in ``before``. The result is False if
    the invoker has no such condition, or if the condition raises Decline.

    Args:
        row: the invoker of the node's operator.
        name, op, inputs: the node's name, operator and inputs, without those of fused followers.

    Raises:
        InvokerError: the condition failed, or returned None or a text.
    """
    if row.first is None:
        return False
    try:
        answer: object = row.first(op, *inputs)
    except Decline:
        return False
    except MemoryError:
        raise
    except Exception as error:  # any error of the author's code
        pass_signals(error)
        raise _fault(row, name, op, inputs, raised(error, place_of(row.first))) from error
    if answer is None or isinstance(answer, str):
        raise _fault(row, name, op, inputs, f"answers {answer!r}: it must return True or False")
    return bool(answer)


def _fault(
    row: InvokerInfo, name: str, op: object, inputs: Sequence[VTensor], fault: str
) -> InvokerError:
    assert row.first is not None, "it has failed"
    subject = f"the condition ({place_of(row.first)}) under which {row.library} goes first"
    roles = info_of(op).roles(len(inputs), 0)
    rows = {
        role: (operand.dtype, operand.dims) for role, operand in zip(roles, inputs, strict=True)
    }
    return InvokerError(describe(f"{label_of(op)} {name!r}, {subject}: {fault}", rows))


def present(libraries: Iterable[str]) -> set[str]:
    """Return those of the given names whose libraries can be used in this process."""
    return {name for name in libraries if not ready().libraries[name].absent}
