"""The LSTM of ONNX Runtime's dynamic quantization: products of 8-bit integers, all else in f32."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from libdesc import invoker, narrow
from libdesc.numpy import definition
from libdesc.numpy.arrays import Array, wide
from libdesc.routine import Routine
from ops._codes import MICROSOFT, check_bytes, check_code, wrong
from ops.quantizelinear import dynamic_codes
from ops.recurrent import (
    LSTM,
    NATIVE,
    OPTIONAL,
    TYPES,
    Cell,
    Recurrent,
    by_gate,
    cells,
    declare_network,
    network_names,
    read_network,
    typed,
)
from ptensor import PTensor
from vtensor.language.records import dataclass
from vtensor.operators import Context, Naming, NodeReader, Spelling, named, param
from vtensor.tensor import VTensor

#: The roles of the scales and zero points of the weights, and ONNX Runtime's inputs.
PARAMETERS = {"w_scale": 8, "r_scale": 10, "w_zero": 9, "r_zero": 11}


def _names(node: Naming) -> None:
    network_names(node)
    node.name("x1", "dir F gate")
    node.name("x2", "dir state gate")


def _read(node: NodeReader) -> Sequence[VTensor]:
    return read_network(node, DynamicQuantizeLSTM, 2, lambda: _weights(node))


def _weights(node: NodeReader) -> list[VTensor]:
    cls = DynamicQuantizeLSTM
    w = by_gate(node, node.input(1, "dir F gate"), cls.gates, cls.places)
    r = by_gate(node, node.input(2, "dir state gate"), cls.gates, cls.places)
    check_bytes(node, 1, 2)
    for role, place in PARAMETERS.items():
        check_code(node, place, (w if role == "w_zero" else r).dtype if "zero" in role else "")
    parameters = [_parameter(node, place, w) for place in PARAMETERS.values()]
    return [_signed(node, t) for t in (w, r, *parameters)]


def _signed(node: NodeReader, t: VTensor) -> VTensor:
    """Return bytes as s8: u8 minus 128, which weights and their zero points may have in common."""
    if t.dtype != "u8":
        return t
    wide, middle = node.ahead(named("Cast")("s16"), t), node.made(np.array(128, np.int16), ())
    return node.ahead(named("Cast")("s8"), node.ahead(named("Sub")(), wide, middle))


def _parameter(node: NodeReader, place: int, w: VTensor) -> VTensor:
    """Return a scale or a zero point with an element for each row of the weights ``w``.

    ONNX Runtime's has one for each direction, or for each unit of each gate.
    """
    t, sizes = node.input(place), {dim: w.size(dim) for dim in ("dir", "gate", "unit")}
    if list(t.dims.values()) == [sizes["dir"]]:
        alone = node.reshape(t, {"dir": sizes["dir"], "gate": 1, "unit": 1})
        return node.ahead(
            named("Expand")((("gate", sizes["gate"]), ("unit", sizes["unit"]))), alone
        )
    if list(t.dims.values()) == [sizes["dir"], sizes["gate"] * sizes["unit"]]:
        return by_gate(node, node.input(place, "dir gate"), sizes["gate"], LSTM.places)
    remedy = "give it one element for each direction, or one for each unit of each gate as well"
    raise wrong(node, place, f"does not fit weights of {w.summary()}", remedy)


@dataclass(frozen=True)
class DynamicQuantizeLSTM(Recurrent):
    """Carry a hidden state h and a cell c along a sequence, with products of 8-bit integers.

    It is LSTM, with W = (w - w_zero) * w_scale and R = (r - r_zero) * r_scale as weights of x and
    h. Both are quantized to u8 as by DynamicQuantizeLinear: all elements of x by one scale, up to
    the last time of the longest sequence; at each step the h of all sequences by one scale, where
    the h of a sequence that ended before the last step is 0. The products of the integers are
    summed exactly, and scaled in f32. Sequences that run backward begin together, each at its last
    element.

    Dims:
        x: T N F    w: dir gate unit F    r: dir gate unit state    w_scale, r_scale, w_zero,
            r_zero: dir gate unit; gates as of LSTM
        more: the operands in ``given``, as of LSTM
        y: T dir N unit, the hidden state at each time    hidden, cell: dir N unit, the last
    Args:
        activations, direction, clip, given, input_forget: as for LSTM.
    Raises:
        DimError: sizes do not fit together, or the number of activations is wrong.

    >>> from vtensor.operators import Context
    >>> x, scale = VTensor("f32", {"T": 9, "N": 2, "F": 3}), {"dir": 1, "gate": 4, "unit": 5}
    >>> w, r = (VTensor("s8", {**scale, **d}) for d in ({"F": 3}, {"state": 5}))
    >>> by = [VTensor(dtype, scale) for dtype in ("f32", "f32", "s8", "s8")]
    >>> op = DynamicQuantizeLSTM((("sigmoid", 0.0, 0.0), ("tanh", 0.0, 0.0), ("tanh", 0.0, 0.0)))
    >>> [t.summary() for t in op.compute(Context(), x, w, r, *by)][1:]
    ['f32 dir=1 N=2 unit=5', 'f32 dir=1 N=2 unit=5']

    Source: ONNX Runtime operator com.microsoft.DynamicQuantizeLSTM, version 1.
    """

    gates, places, states = LSTM.gates, LSTM.places, LSTM.states
    functions, step = LSTM.functions, LSTM.step
    others: ClassVar[tuple[str, ...]] = tuple(PARAMETERS)
    input_forget: bool = param(default=False)

    def compute(
        self,
        ctx: Context,
        x: VTensor,
        w: VTensor,
        r: VTensor,
        w_scale: VTensor,
        r_scale: VTensor,
        w_zero: VTensor,
        r_zero: VTensor,
        *more: VTensor,
    ) -> tuple[VTensor, ...]:
        return self.dispatched(ctx, x, w, r, w_scale, r_scale, w_zero, r_zero, *more)


declare_network(DynamicQuantizeLSTM, Spelling(f"{MICROSOFT}DynamicQuantizeLSTM", 1, _read, _names))


def _codes(values: Array) -> tuple[Array, Array, Array]:
    """Return numbers quantized in f32, the scale and the zero point."""
    return dynamic_codes(values.astype(np.float32))


@dataclass(frozen=True)
class _QuantizedCell(Cell):
    """One direction of the network. ``weights`` are integers minus their zero points.

    Attributes:
        scales: the scales of both weights (gate, unit).
        x_scale: the scale of x, of which ``step`` gets integers minus the zero point.
    """

    scales: Sequence[Array]
    x_scale: Array

    def part(self, which: int, side: int, values: Array) -> Array:
        """Return ``values``, quantized, times the weights of gate number ``which``."""
        scale = self.x_scale
        if side == 1:
            codes, scale, zero = _codes(values)
            values = codes - zero
        exact = values.astype(np.int64) @ self.weights[side][which].T
        return np.asarray(exact.astype(np.float32) * (scale * self.scales[side][which]))


def _run_quantized(
    op: Any, x: Array, weights: Sequence[Array], scales: Sequence[Array], more: dict[str, Array]
) -> list[Array]:
    """Run the network ``op`` on the sequences ``x`` (T N F) and return its outputs.

    Args:
        op: the network.
        x: the sequences.
        weights: w and r minus their zero points, as integers.
        scales: their scales (dir gate unit).
        more: the optional operands by name.
    """
    times, batch, shape = len(x), np.arange(x.shape[1]), (len(weights[0]), x.shape[1])
    lengths = np.clip(more.get("lengths", np.full(len(batch), times)), 0, times)
    codes, x_scale, zero = _codes(x[: lengths.max(initial=0)])
    y = np.zeros((times, *shape, weights[1].shape[-1]), x.dtype)
    last = [more.get(name, np.zeros(y.shape[1:], x.dtype)).copy() for name in op.states]
    for d, plain in enumerate(cells(op, weights[0], weights[1], more)):
        parts = plain.weights, plain.biases, plain.peepholes, plain.activations, plain.clip
        cell = _QuantizedCell(*parts, [scale[d] for scale in scales], x_scale)
        backwards = op.direction == "reverse" or d == 1
        for count in range(len(codes)):
            runs = count < lengths
            at = np.where(runs, lengths - 1 - count if backwards else count, 0)
            h, c = (state[d] for state in last)
            counted = np.where((count <= lengths)[:, np.newaxis], h, 0)
            new = op.step(cell, codes[at, batch] - zero, counted, c)
            for state, values in zip(last, new, strict=True):
                state[d, runs] = values[runs]
            y[at[runs], d, runs] = new[0][runs]
    return [y, *last]


_NAME = DynamicQuantizeLSTM.__name__
_BYTES = dict.fromkeys(("w", "r", "w_zero", "r_zero"), ("s8",))


def _typed(op: DynamicQuantizeLSTM, *operands: VTensor) -> bool | str:
    """Return True if the optional operands have the types of the native kernel, else the reason."""
    return typed(op, *operands[:3], *operands[3 + len(op.others) :])


@invoker(_NAME, library="narrow", dtypes={**NATIVE, **_BYTES}, when=_typed)
def narrow_quantized_lstm(ctx: Context, op: DynamicQuantizeLSTM, *operands: VTensor) -> Routine:
    how = (op.direction, op.activations, op.given, op.clip, op.input_forget)
    return narrow.dynamic_lstm(operands, *how)


def _orders(op: DynamicQuantizeLSTM, *_: VTensor) -> list[str]:
    given = [OPTIONAL[name][1] for name in op.given]
    weights = ["dir gate unit F", "dir gate unit state", *["dir gate unit"] * len(op.others)]
    return ["T N F", *weights, *given, "T dir N unit", *["dir N unit"] * len(op.states)]


@definition(_NAME, dtypes={**TYPES, **_BYTES}, orders=_orders)
def quantized_lstm(ctx: Context, op: DynamicQuantizeLSTM, *operands: PTensor) -> None:
    inputs = 3 + len(op.others) + len(op.given)
    x, w, r, w_scale, r_scale, w_zero, r_zero, *more = (wide(t.data()) for t in operands[:inputs])
    weights = [
        codes.astype(np.int64) - zero[..., np.newaxis] for codes, zero in ((w, w_zero), (r, r_zero))
    ]
    named_inputs = dict(zip(op.given, more, strict=True))
    results = _run_quantized(op, x, weights, [w_scale, r_scale], named_inputs)
    for target, values in zip(operands[inputs:], results, strict=True):
        target.data()[...] = values
