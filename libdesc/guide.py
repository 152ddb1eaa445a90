"""``guideline``: the layout that a library prefers for an operand of the current call."""

from __future__ import annotations

from collections.abc import Sequence

from ptensor.evaluation import Decline as Decline
from ptensor.evaluation import caller, current_call, guideline_of
from ptensor.layout import Layout
from ptensor.tensor import PTensor
from ptensor.views import from_base
from vtensor.errors import ContractError


def guideline(library: str, tensor: PTensor) -> Layout | Sequence[Layout]:
    """Return the layout that a library prefers for an operand, or several in order of preference.

    ANY means that the library takes every layout. The library's handler is called once per call. It
    sees the whole call, since the layouts of a convolution, for instance, depend on all operands.
    If the node's layouts have been decided already, the decided layout is returned.

    Args:
        library: the name of the invoker's own library.
        tensor: a PTensor of the current call.

    Raises:
        ContractError: there is no current call, or it is another library's.
        Decline: the library does not take this call.

    Source: the paper, section 4.2, ``LayoutGuideLine``.
    """
    call = tensor.call
    if call.library != library:
        raise ContractError(
            f"guideline({library!r}) inside the invoker of {call.library!r} ({caller()})"
        )
    if current_call() is not call:
        raise call.misuse(f"guideline of {tensor.role}, which is of another call")
    if call.variant is not None:
        return from_base(call.variant.layouts[tensor.index], tensor.tensor)
    answer = guideline_of(call, library).get(tensor.index, Layout.ANY)
    if isinstance(answer, Layout):
        return from_base(answer, tensor.tensor)
    return [from_base(layout, tensor.tensor) for layout in answer]
