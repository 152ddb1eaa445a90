"""Nodes of operators that sample, transform, go along sequences, or count in steps.

With those of the tests of spellings they show every attribute and optional input.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import numpy as np
from onnx import TensorProto, helper

from tests.operators.test_elementwise_spellings import Node as Fed
from tests.operators.test_elementwise_spellings import X
from tests.operators.test_spellings import (
    BOXES,
    IMAGE,
    SERIES,
    STEPS,
    Node,
    floats,
    integers,
    positive,
    steps,
    weights,
)
from vtensor.language.dtype import ITEMSIZE, bits, numpy_dtype

PLAIN = {"hidden_size": 6}
WINDOW = {"kernel_shape": [2, 3], "dilations": [2, 1], "group": 2}
PADDED = {"pads": [1, 0, 1, 2], "strides": [2, 1]}
#: Powers of two, by which each float type divides alike.
EIGHTH, HALF = np.array(0.125, np.float32), np.array(0.5, np.float32)
NOUGHT, ZERO = np.array(0, np.uint8), np.array(100, np.uint8)
BIAS = integers(400, -300, 200, 5, 60, -7).astype(np.int32)
FACTORS = steps(3, 5), steps(5, 4).view(np.int8)
LARGE = floats(3, 4) * 1000


def bit_casts() -> Iterator[Fed]:
    """From each element type to the next of as many bits."""
    alike: dict[int, list[np.dtype[Any]]] = defaultdict(list)
    for name in ITEMSIZE:
        if name not in ("c64", "c128"):
            alike[bits(name)].append(numpy_dtype(name))
    for row in alike.values():
        for one, other in zip(row, [*row[1:], row[0]], strict=True):
            to = helper.np_dtype_to_tensor_dtype(other)
            yield Fed("BitCast", 26, (np.abs(X).astype(one),), {"to": to})


SAMPLED: list[Node | Fed] = [
    Node("Compress", 9, ((3, 4), np.array([True, False, True, True])), {"axis": 1}),
    Node("DFT", 17, ((2, 7, 3, 2), np.array(9)), {"axis": 2}),
    Node("DFT", 17, ((2, 7, 3, 2), np.array(5)), {"inverse": 1}),
    Node(
        "DeformConv",
        19,
        ((1, 4, 5, 6), floats(3, 4, 2, 3), (1, 12, 4, 4)),
        {"kernel_shape": [2, 3]},
    ),
    Node("GridSample", 16, (IMAGE, (2, 3, 4, 2)), {"mode": "nearest"}),
    Node("AffineGrid", 20, ((2, 2, 3), integers(2, 3, 4, 5)), {"align_corners": 1}),
    Fed(
        "GridSample",
        16,
        (steps(2, 3, 6, 5).astype(np.int32) << 10, floats(2, 3, 4, 2)),
        {"padding_mode": "border"},
    ),
    Node("RoiAlign", 10, (IMAGE, BOXES, integers(1, 0)), {"sampling_ratio": 2}),
    Node("STFT", 17, ((2, 20, 1), np.array(3), floats(6))),
    Node("TensorScatter", 24, ((2, 3, 9, 4), (2, 3, 2, 4))),
]

RECURRENT: list[Node | Fed] = [
    *(
        Node(
            op_type,
            7,
            (STEPS, *weights(gates, 1)),
            {
                "activations": names,
                "activation_alpha": [0.3, 0.5, 0.7][: len(names)],
                "activation_beta": [0.4, 0.1, 0.2][: len(names)],
                "clip": 0.6,
                **PLAIN,
            },
        )
        for op_type, gates, names in (
            ("RNN", 1, ["Affine"]),
            ("GRU", 3, ["HardSigmoid", "ScaledTanh"]),
            ("LSTM", 4, ["HardSigmoid", "Affine", "ScaledTanh"]),
        )
    ),
    *(
        Node(op_type, 14, ((3, 5, 4), *weights(gates, 1)), {"layout": 1, **PLAIN}, outputs=2)
        for op_type, gates in (("RNN", 1), ("GRU", 3), ("LSTM", 4))
    ),
]

QUANTIZED: list[Node | Fed] = [
    *bit_casts(),
    Fed("MatMulInteger", 10, FACTORS),
    Fed("MatMulInteger", 10, (*FACTORS, ZERO, np.array(-3, np.int8)), constants=2),
    Fed(
        "ConvInteger",
        10,
        (steps(1, 4, 7, 6), steps(6, 2, 2, 3), ZERO, np.array(90, np.uint8)),
        {**WINDOW, **PADDED},
        constants=2,
    ),
    Fed("ConvInteger", 10, (steps(1, 4, 7, 6), steps(6, 4, 2, 3)), {"auto_pad": "SAME_LOWER"}),
    *(
        Fed(
            "QLinearConv",
            10,
            (
                *(steps(1, 4, 7, 6), EIGHTH, ZERO),
                *(steps(6, 2, 2, 3), positive(6), steps(6)),
                *(np.array(150, np.float32), ZERO, *bias),
            ),
            {**WINDOW, **places},
            constants=7,
        )
        for bias in ((), (BIAS,))
        for places in (PADDED, {"auto_pad": "SAME_UPPER"})
    ),
    Fed("QuantizeLinear", 10, (X, EIGHTH, NOUGHT), constants=1),
    Fed("QuantizeLinear", 13, (X, positive(X.shape[1]), steps(X.shape[1])), {"axis": 1}),
    Fed("QuantizeLinear", 13, (X, EIGHTH), {"axis": -1}),
    *(
        Fed(
            "QuantizeLinear",
            19,
            (LARGE, HALF, np.zeros((), numpy_dtype(to))),
            {"saturate": saturate},
            constants=1,
        )
        for to in ("f8e4m3fn", "f8e5m2")
        for saturate in (0, 1)
    ),
    *(
        Fed(
            "QuantizeLinear",
            21,
            (LARGE, np.abs(floats(3, 2)) * 9),
            {"block_size": 2, "output_dtype": to, "axis": 1},
        )
        for to in (TensorProto.INT8, TensorProto.UINT16, TensorProto.INT4)
    ),
    Fed(
        "QuantizeLinear",
        23,
        (X, EIGHTH.astype(np.float16)),
        {"precision": TensorProto.FLOAT, "output_dtype": TensorProto.INT8},
    ),
    Fed("QuantizeLinear", 24, (X, EIGHTH.astype(numpy_dtype("f8e8m0")), ZERO), constants=1),
    Fed("DequantizeLinear", 10, (steps(5), EIGHTH, NOUGHT), constants=1),
    Fed("DequantizeLinear", 10, (steps(5), EIGHTH)),
    Fed("DequantizeLinear", 13, (steps(*SERIES), positive(6), steps(6)), {"axis": 1}),
    Fed(
        "DequantizeLinear",
        21,
        (steps(5, 4), positive(3)[:, None] * positive(4)),
        {"axis": 0, "block_size": 2},
    ),
    Fed("DequantizeLinear", 23, (steps(5), EIGHTH), {"output_dtype": TensorProto.FLOAT16}),
    Fed(
        "DequantizeLinear",
        24,
        (steps(5), EIGHTH.astype(numpy_dtype("f8e8m0"))),
        {"output_dtype": TensorProto.FLOAT16},
    ),
]
