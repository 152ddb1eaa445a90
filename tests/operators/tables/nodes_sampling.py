"""Nodes of ONNX's operators that sample, transform, go along sequences, train or quantise."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import numpy as np
from onnx import TensorProto, helper

from tests.operators.tables.nodes import (
    IMAGE,
    SERIES,
    VOLUME,
    Array,
    Node,
    fed,
    floats,
    integers,
    node,
    numbers,
    positive,
    steps,
)
from tests.operators.tables.nodes_elementwise import X
from tests.operators.tables.nodes_shape import MODE, SQUARE
from vtensor.language.dtype import ITEMSIZE, bits, numpy_dtype

STEPS = (5, 3, 4)
BOXES = numbers(0.5, 1, 6, 5.5, 2, 0, 12, 3).reshape(2, 4)
BINS = {"output_height": 3, "output_width": 2, "spatial_scale": 0.8}
COLUMNS = {"strides": [3, 2], "pads": [1, 0, 1, 1], "dilations": [2, 1]}
OFFSETS = (2, 24, 3, 4), None, (2, 12, 3, 4)
BENT = {"offset_group": 2, "strides": [2, 1], "pads": [1, 0, 1, 2], "dilations": [1, 2]}
REVERSE = {"direction": "reverse", "hidden_size": 6}
BOTH = {"direction": "bidirectional", "hidden_size": 6}
TRAINING = "ai.onnx.preview.training"
MOMENTUM = {"alpha": 0.9, "beta": 0.4, "norm_coefficient": 0.1}
HIGH = steps(2, 3, 6, 5).astype(np.int32) << 10
#: No lengths, and a first state.
STATES = (None, (1, 3, 6))

SCALE = np.array(3, np.float32)
NOUGHT, NINETY, ZERO = (np.array(value, np.uint8) for value in (0, 90, 100))
#: Powers of two, by which each float type divides alike.
EIGHTH, HALF = np.array(0.125, np.float32), np.array(0.5, np.float32)
POWER = EIGHTH.astype(numpy_dtype("f8e8m0"))
WINDOW = {"kernel_shape": [2, 3], "dilations": [2, 1], "group": 2}
PADDED = {"pads": [1, 0, 1, 2], "strides": [2, 1]}
BIAS = integers(400, -300, 200, 5, 60, -7).astype(np.int32)
FACTORS = steps(3, 5), steps(5, 4).view(np.int8)
PIXELS, KERNELS = steps(1, 4, 7, 6), steps(6, 2, 2, 3)
SCALED = (PIXELS, EIGHTH, ZERO, KERNELS, positive(6), steps(6), np.array(150, np.float32), ZERO)
SMALL = (steps(1, 2, 5, 6), (), ZERO, steps(3, 2, 2, 3), positive(3), steps(3), SCALE, ZERO)
LARGE, BLOCKS = floats(3, 4) * 1000, np.abs(floats(3, 2)) * 9
COLUMN_SCALES = positive(3)[:, None] * positive(4)
F32, F16, S8 = TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.INT8


def weights(gates: int, directions: int) -> tuple[Array, Array]:
    """Return the weights of a recurrent network with 4 features and 6 units."""
    return floats(directions, 6 * gates, 4), floats(directions, 6 * gates, 6)


def bit_casts() -> Iterator[Node]:
    """Yield nodes from each element type to the next of as many bits."""
    alike: dict[int, list[np.dtype[Any]]] = defaultdict(list)
    for name in ITEMSIZE:
        if name not in ("c64", "c128"):
            alike[bits(name)].append(numpy_dtype(name))
    for row in alike.values():
        for source, target in zip(row, [*row[1:], row[0]], strict=True):
            to = helper.np_dtype_to_tensor_dtype(target)
            yield fed("BitCast", 26, np.abs(X).astype(source), to=to)


SAMPLING = [
    *(
        node(
            f"{TRAINING}::{op_type}",
            1,
            *((), np.array(3), (2,), (3,), (2,), (3,)),
            *map(positive, states),
            outputs=2 + len(states),
            **attributes,
        )
        for op_type, states, attributes in (
            ("Adagrad", (2, 3), {"norm_coefficient": 0.1, "decay_factor": 0.2}),
            ("Adam", (2, 3, 2, 3), {"norm_coefficient": 0.1, "alpha": 0.8}),
            ("Momentum", (2, 3), {**MOMENTUM, "mode": "standard"}),
            ("Momentum", (2, 3), {**MOMENTUM, "mode": "nesterov"}),
        )
    ),
    node("CumProd", 26, (4, 5), np.array(-1), exclusive=1, reverse=1),
    node("Col2Im", 18, (2, 12, 6), integers(6, 5), integers(2, 2), **COLUMNS),
    node("Det", 11, (2, 3, 3)),
    node("DFT", 17, (2, 7, 1), onesided=1),
    node("DFT", 20, (2, 7, 3, 2), np.array(9), np.array(1), inverse=1),
    node("STFT", 17, (2, 20, 1), np.array(3), floats(6), np.array(6)),
    node("STFT", 17, (2, 20, 2), np.array(3), None, np.array(5), onesided=0),
    node("STFT", 17, (2, 20), np.array(3), floats(6)),
    *(
        node("GridSample", 16, SQUARE, (1, 3, 4, 2), mode=mode, padding_mode=padding)
        for mode in ("nearest", "bilinear", "bicubic")
        for padding in ("zeros", "border", "reflection")
    ),
    *(
        node("AffineGrid", 20, (count, 2, 3), integers(count, 3, *size), align_corners=ends)
        for count in (1, 2)
        for size in ((4, 5), (2, 1))
        for ends in (0, 1)
        if (size, ends) != ((2, 1), 1)  # ONNX Runtime divides 0 by 0 there
    ),
    *(
        node("AffineGrid", 20, (count, 3, 4), integers(count, 1, 2, 3, 4), align_corners=1)
        for count in (1, 3)
    ),
    node("GridSample", 20, VOLUME, (2, 2, 3, 4, 3), align_corners=1),
    node("GridSample", 20, IMAGE, (2, 3, 4, 2), mode="cubic", align_corners=1),
    *(
        node("RoiAlign", opset, IMAGE, BOXES, integers(1, 0), mode=mode, **BINS)
        for opset, mode in ((10, "avg"), (16, "avg"), (16, "max"))
    ),
    node("RoiAlign", 16, IMAGE, BOXES, integers(1, 0), **BINS, **{MODE: "output_half_pixel"}),
    node("RoiAlign", 10, IMAGE, BOXES, integers(1, 0), sampling_ratio=2),
    node("DeformConv", 19, (1, 4, 5, 6), floats(3, 4, 2, 3), (1, 12, 4, 4), floats(3)),
    node("DeformConv", 19, (2, 4, 5, 6), floats(6, 2, 2, 3), *OFFSETS, group=2, **BENT),
    node("ReverseSequence", 10, (4, 3, 2), integers(4, 0, 2)),
    node("ReverseSequence", 10, (3, 4), integers(4, 1, 2), time_axis=1, batch_axis=0),
    node("TensorScatter", 24, (2, 3, 9, 4), (2, 3, 2, 4), integers(1, 7)),
    node("TensorScatter", 24, (2, 9), (2, 3), integers(1, 7), mode="circular", axis=1),
    *(
        node(op_type, 14, STEPS, *weights(gates, 2), None, lengths, **BOTH, **more)
        for op_type, gates, more in (
            ("RNN", 1, {"activations": ["Relu", "Affine"], "activation_alpha": [0.5]}),
            ("GRU", 3, {"linear_before_reset": 1}),
            ("GRU", 3, {"clip": 0.3}),
            ("LSTM", 4, {"input_forget": 1}),
        )
        for lengths in (None, np.array([5, 2, 4], np.int32))
    ),
    *(
        node(op, 7, STEPS, *weights(n, 1), floats(1, 12 * n), *STATES, *last, **REVERSE)
        for op, n, last in (
            ("RNN", 1, ()),
            ("GRU", 3, ()),
            ("LSTM", 4, ((1, 3, 6), floats(1, 18))),
        )
    ),
    node("QuantizeLinear", 10, IMAGE, np.array(0.03, "f4"), ZERO),
    node("QuantizeLinear", 13, IMAGE, positive(6)),
    node("DequantizeLinear", 13, steps(2, 6, 4), (6,), steps(6)),
    node("DequantizeLinear", 10, steps(5), (), ZERO),
    node("DynamicQuantizeLinear", 11, IMAGE, outputs=3),
    node("MatMulInteger", 10, (3, 5), (5, 4), np.array(3, "i1"), fed_as="int8"),
    node("ConvInteger", 10, steps(1, 2, 5, 6), (3, 2, 2, 3), fed_as="int8"),
    node("QLinearMatMul", 10, steps(3, 5), (), ZERO, steps(5, 4), *(SCALE, ZERO) * 2),
    node("QLinearConv", 10, *SMALL, pads=[0, 1, 1, 0], strides=[2, 1]),
    node("BitCast", 26, IMAGE, to=TensorProto.INT32),
]

#: Nodes that the tests of versions add.
MORE_SAMPLING = [
    node("Compress", 9, (3, 4), np.array([True, False, True, True]), axis=1),
    node("DFT", 17, (2, 7, 3, 2), np.array(9), axis=2),
    node("DFT", 17, (2, 7, 3, 2), np.array(5), inverse=1),
    node("DeformConv", 19, (1, 4, 5, 6), floats(3, 4, 2, 3), (1, 12, 4, 4), kernel_shape=[2, 3]),
    node("GridSample", 16, IMAGE, (2, 3, 4, 2), mode="nearest"),
    node("AffineGrid", 20, (2, 2, 3), integers(2, 3, 4, 5), align_corners=1),
    fed("GridSample", 16, HIGH, floats(2, 3, 4, 2), padding_mode="border"),
    node("STFT", 17, (2, 20, 1), np.array(3), floats(6)),
    node("TensorScatter", 24, (2, 3, 9, 4), (2, 3, 2, 4)),
    *bit_casts(),
    fed("MatMulInteger", 10, *FACTORS),
    fed("MatMulInteger", 10, *FACTORS, ZERO, np.array(-3, np.int8), constants=2),
    fed("ConvInteger", 10, PIXELS, KERNELS, ZERO, NINETY, constants=2, **WINDOW, **PADDED),
    fed("ConvInteger", 10, PIXELS, steps(6, 4, 2, 3), auto_pad="SAME_LOWER"),
    *(
        fed("QLinearConv", 10, *SCALED, *bias, constants=7, **WINDOW, **places)
        for bias in ((), (BIAS,))
        for places in (PADDED, {"auto_pad": "SAME_UPPER"})
    ),
    fed("QuantizeLinear", 10, X, EIGHTH, NOUGHT, constants=1),
    fed("QuantizeLinear", 13, X, positive(X.shape[1]), steps(X.shape[1]), axis=1),
    fed("QuantizeLinear", 13, X, EIGHTH, axis=-1),
    *(
        fed("QuantizeLinear", 19, LARGE, HALF, zero, saturate=saturate, constants=1)
        for zero in (np.zeros((), numpy_dtype(to)) for to in ("f8e4m3fn", "f8e5m2"))
        for saturate in (0, 1)
    ),
    *(
        fed("QuantizeLinear", 21, LARGE, BLOCKS, block_size=2, output_dtype=to, axis=1)
        for to in (S8, TensorProto.UINT16, TensorProto.INT4)
    ),
    fed("QuantizeLinear", 23, X, EIGHTH.astype("f2"), precision=F32, output_dtype=S8),
    fed("QuantizeLinear", 24, X, POWER, ZERO, constants=1),
    fed("DequantizeLinear", 10, steps(5), EIGHTH, NOUGHT, constants=1),
    fed("DequantizeLinear", 10, steps(5), EIGHTH),
    fed("DequantizeLinear", 13, steps(*SERIES), positive(6), steps(6), axis=1),
    fed("DequantizeLinear", 21, steps(5, 4), COLUMN_SCALES, axis=0, block_size=2),
    fed("DequantizeLinear", 23, steps(5), EIGHTH, output_dtype=F16),
    fed("DequantizeLinear", 24, steps(5), POWER, output_dtype=F16),
    *(
        node(
            op_type,
            7,
            *(STEPS, *weights(gates, 1)),
            activations=names,
            activation_alpha=[0.3, 0.5, 0.7][: len(names)],
            activation_beta=[0.4, 0.1, 0.2][: len(names)],
            clip=0.6,
            hidden_size=6,
        )
        for op_type, gates, names in (
            ("RNN", 1, ["Affine"]),
            ("GRU", 3, ["HardSigmoid", "ScaledTanh"]),
            ("LSTM", 4, ["HardSigmoid", "Affine", "ScaledTanh"]),
        )
    ),
    *(
        node(op_type, 14, (3, 5, 4), *weights(gates, 1), layout=1, outputs=2, hidden_size=6)
        for op_type, gates in (("RNN", 1), ("GRU", 3), ("LSTM", 4))
    ),
]
