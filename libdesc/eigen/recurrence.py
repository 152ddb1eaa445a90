"""Recurrent networks: a cell is applied to one element of a sequence after another."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from libdesc.eigen import native
from libdesc.eigen.kernels import emit_kernel
from libdesc.routine import Routine
from ptensor.evaluation import Decline
from ptensor.tensor import PTensor
from vtensor.language.dtype import ITEMSIZE
from vtensor.language.tensor import VTensor

if TYPE_CHECKING:
    from libdesc.eigen._eigen import Network

#: The layouts of the optional inputs.
ORDERS = {
    "bias": "dir row unit",
    "lengths": "N",
    "hidden": "dir N unit",
    "cell": "dir N unit",
    "peepholes": "dir peephole unit",
}


def recurrent(
    tensors: Sequence[VTensor],
    cell: str,
    direction: str,
    functions: Sequence[tuple[str, float, float]],
    given: Sequence[str] = (),
    clip: float = 0,
    coupled: bool = False,
) -> Routine:
    """Return the routine of a recurrent network over sequences of different lengths.

    Args:
        tensors: x, the weights of x and of the state, the inputs in ``given``, y, and one or two
            last states.
        cell: ``rnn``, ``gru``, ``lbr_gru`` or ``lstm``.
        direction: ``forward``, ``reverse`` or ``bidirectional``.
        functions: the activation functions of the gates, for one direction after the other: (ONNX's
            name in lower case, alpha, beta).
        given: names of the optional inputs, in order: ``bias``, ``lengths``, ``hidden``, ``cell``,
            ``peepholes``.
        clip: bound on the magnitude of the activations' inputs; 0 means no bound.
        coupled: True if an LSTM's input and forget gates are coupled.

    Raises:
        Decline: the length, the batch, or the number of features or units is 0.
    """
    x, _, r, *more = tensors
    network = network_of(x, r, cell, direction, functions, clip, coupled)
    length_bytes, orders = optional_inputs(given, more)

    def run(*operands: PTensor) -> None:
        emit_kernel(native.load().recurrent(network, given, length_bytes), operands)

    states = ["dir N unit"] * (len(more) - len(given) - 1)
    before = ["T N F", "dir gate unit F", "dir gate unit state", *orders]
    return Routine(tensors, [*before, "T dir N unit", *states], run=run)


def network_of(
    x: VTensor,
    r: VTensor,
    cell: str,
    direction: str,
    functions: Sequence[tuple[str, float, float]],
    clip: float,
    coupled: bool,
) -> Network:
    """Return the description of a recurrent network for native code.

    Args:
        x, r: the sequences, and the weights of the state.
        cell, direction, functions, clip, coupled: as for ``recurrent``.

    Raises:
        Decline: the length, the batch, or the number of features or units is 0.
    """
    sizes = (x.size("T"), x.size("N"), x.size("F"), r.size("unit"))
    if 0 in sizes:
        raise Decline("is for sequences with elements")
    return (cell, direction, *sizes, functions, clip, clip > 0, coupled)


def optional_inputs(given: Sequence[str], operands: Sequence[VTensor]) -> tuple[int, list[str]]:
    """Return the bytes of an element of ``lengths``, 0 without it; and the inputs' layouts.

    Args:
        given: the names of the optional inputs.
        operands: operands of which the first ones are these inputs.
    """
    named = dict(zip(given, operands, strict=False))
    length_bytes = ITEMSIZE[named["lengths"].dtype] if "lengths" in named else 0
    return length_bytes, [ORDERS[name] for name in given]
