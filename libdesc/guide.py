"""``guideline``: what a library would like for one operand of the call that is under way."""

from __future__ import annotations

from collections.abc import Sequence

from ptensor.evaluation import Decline as Decline
from ptensor.evaluation import caller, current_call, guideline_of
from ptensor.layout import Layout
from ptensor.tensor import PTensor
from ptensor.views import from_base
from vtensor.errors import ContractError


def guideline(library: str, tensor: PTensor) -> Layout | Sequence[Layout]:
    """The layout that a library would like for an operand; several come in order of preference.

    ANY means that it takes whatever comes. The library's handler sees the whole call, since a
    convolution's answer needs all operands, and is asked once a call. Once layouts are decided,
    the answer is the layout decided.

    Args:
        library: the library's name; the invoker's own.
        tensor: a PTensor of the call that is under way.

    Raises:
        ContractError: no call is under way, or it is another library's.
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
    return [from_base(one, tensor.tensor) for one in answer]
