"""The routine of an LSTM whose products are of 8-bit integers."""

from __future__ import annotations

from collections.abc import Sequence

from libdesc.eigen.recurrence import network_of, optional_inputs
from libdesc.narrow import native
from libdesc.routine import Routine
from ptensor.evaluation import emit
from ptensor.tensor import PTensor
from vtensor.language.tensor import VTensor


def dynamic_lstm(
    tensors: Sequence[VTensor],
    direction: str,
    functions: Sequence[tuple[str, float, float]],
    given: Sequence[str] = (),
    clip: float = 0,
    coupled: bool = False,
) -> Routine:
    """Return the routine of an LSTM that quantizes its sequences and its states.

    Args:
        tensors: x; the weights of x and of the state, s8; their scales; their zero points; the
            inputs in ``given``; y and the last hidden and cell state.
        direction, functions, given, clip, coupled: as for eigen's ``recurrent``.

    Raises:
        Decline: the length, the batch, or the number of features or units is 0.
    """
    x, _, r, *parameters = tensors[:7]
    network = network_of(x, r, "lstm", direction, functions, clip, coupled)
    length_bytes, orders = optional_inputs(given, tensors[7:])

    def run(*operands: PTensor) -> None:
        kernel = native.load().dynamic_lstm(native.instructions(), network, given, length_bytes)
        emit(kernel, [*operands, *([kernel.scratch_bytes] if kernel.scratch_bytes else [])])

    weights = [f"dir gate unit/16 {dim}/4 unit%16 {dim}%4" for dim in ("F", "state")]
    rows = ["dir gate unit"] * len(parameters)
    results = ["T dir N unit", "dir N unit", "dir N unit"]
    return Routine(tensors, ["T N F", *weights, *rows, *orders, *results], run=run)
