"""Which library goes before others of higher priority, where its invoker says that it is faster."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from libdesc.invokers import InvokerInfo
from libdesc.registry import ready
from ptensor.evaluation import Decline
from vtensor.errors import InvokerError, describe
from vtensor.language.failures import place_of, raised
from vtensor.language.interrupts import pass_signals
from vtensor.language.operators import info_of, label_of
from vtensor.language.tensor import VTensor


def precedes(row: InvokerInfo, name: str, op: object, inputs: Sequence[VTensor]) -> bool:
    """Whether a library goes before those that its invoker names, for a call.

    Args:
        row: its invoker.
        name, op, inputs: of the node, without what is fused behind it.

    Raises:
        InvokerError: the condition fails, or forgets to answer.
    """
    if row.first is None:
        return False
    try:
        answer: object = row.first(op, *inputs)
    except Decline:
        return False
    except MemoryError:
        raise
    except Exception as error:  # an author's own
        pass_signals(error)
        raise _fault(row, name, op, inputs, raised(error, place_of(row.first))) from error
    if answer is None or isinstance(answer, str):
        raise _fault(row, name, op, inputs, f"answers {answer!r}: it must return True or False")
    return bool(answer)


def _fault(
    row: InvokerInfo, name: str, op: object, inputs: Sequence[VTensor], fault: str
) -> InvokerError:
    assert row.first is not None, "it has failed"
    who = f"the condition ({place_of(row.first)}) under which {row.library} goes first"
    roles = info_of(op).roles(len(inputs), 0)
    rows = {role: (one.dtype, one.dims) for role, one in zip(roles, inputs, strict=True)}
    return InvokerError(describe(f"{label_of(op)} {name!r}, {who}: {fault}", rows))


def present(libraries: Iterable[str]) -> set[str]:
    """Those that can be used in this process."""
    return {one for one in libraries if not ready().libraries[one].absent}
