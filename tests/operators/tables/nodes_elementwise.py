"""Nodes of ONNX's element-wise operators, at every opset that changed them, from 7 on."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np
from onnx import TensorProto

from tests.operators.tables.elementwise import EVERYWHERE
from tests.operators.tables.nodes import Array, Node, fed, opsets
from vtensor.language.operators import info_of

RANDOM = np.random.default_rng(11)
X = (RANDOM.normal(size=(2, 3, 4, 5)) * 3).astype(np.float32)
ROW = (RANDOM.normal(size=(4, 1)) * 3).astype(np.float32)
WITHIN = np.sin(X) * np.float32(0.9)
ABOVE = np.abs(X) + np.float32(0.1)
COUNTS = RANDOM.integers(1, 9, (2, 3, 4), np.int32)
TRUE, FALSE = X > 0, ROW > 0
SPECIAL = np.array([np.nan, np.inf, -np.inf, 0, -0.0, 1], np.float32)
BYTES = COUNTS.astype(np.uint8)

#: What needs no row, and what has one here on any reals.
REALS = {
    *(spelling.op_type for op in EVERYWHERE for spelling in info_of(op).onnx),
    *("LeakyRelu", "Elu", "Celu", "Shrink", "Gelu", "Swish", "LogSoftmax", "Hardmax"),
}
UNARY: dict[str, tuple[Array, ...]] = {
    **dict.fromkeys(sorted(REALS), (X,)),
    **dict.fromkeys(("Abs", "Neg", "Sign"), (X, COUNTS)),
    **dict.fromkeys(("Asin", "Acos", "Atanh"), (WITHIN,)),
    **dict.fromkeys(("Log", "Sqrt", "Reciprocal"), (ABOVE,)),
    "Acosh": (ABOVE + 1,),
    "Not": (TRUE,),
    "BitwiseNot": (COUNTS,),
    "IsNaN": (SPECIAL,),
    "IsInf": (SPECIAL,),
}
ATTRIBUTES: dict[str, list[dict[str, Any]]] = {
    "LeakyRelu": [{"alpha": 0.3}],
    "Elu": [{"alpha": 0.3}],
    "Selu": [{"alpha": 1.3, "gamma": 1.1}],
    "Celu": [{"alpha": 2.0}],
    "HardSigmoid": [{"alpha": 0.3, "beta": 0.4}],
    "ThresholdedRelu": [{"alpha": 2.0}],
    "Gelu": [{"approximate": "tanh"}],
    "Swish": [{"alpha": 1.7}],
    "Shrink": [{"lambd": 1.5, "bias": 0.5}],
    "IsInf": [{"detect_negative": 0}, {"detect_positive": 0}],
    "LogSoftmax": [{"axis": 1}, {"axis": 2}],
    "Hardmax": [{"axis": 1}, {"axis": 2}],
}
FLOATS = ((X, ROW), (ROW[:, 0], X[..., :4]), (X[:, :1], X[0]), (X, X))
WHOLE = ((COUNTS, COUNTS[0]), (-COUNTS, COUNTS + 1))
LOGICAL = ((TRUE, FALSE), (TRUE, TRUE))
BINARY: dict[str, tuple[tuple[Array, ...], ...]] = {
    **dict.fromkeys(("Sub", "Div"), (*FLOATS, *WHOLE)),
    **dict.fromkeys(("Greater", "Less"), FLOATS),
    **dict.fromkeys(("GreaterOrEqual", "LessOrEqual"), (*FLOATS, *WHOLE)),
    "Equal": (*WHOLE, (COUNTS, COUNTS), LOGICAL[0]),
    **dict.fromkeys(("And", "Or", "Xor"), LOGICAL),
    **dict.fromkeys(("BitwiseAnd", "BitwiseOr", "BitwiseXor"), WHOLE),
    "Pow": ((ABOVE, ROW), (X, np.array(2, np.float32))),
    "Mod": WHOLE,
    "PRelu": ((X, ROW), (X, X), (X, np.array([0.2], np.float32))),
    **dict.fromkeys(("Max", "Min", "Mean"), (*FLOATS, (X,), (X, ROW, X[:1]))),
}


def nodes() -> Iterator[Node]:
    """Yield nodes of every operator at every opset that changed it."""
    for op_type, arrays in UNARY.items():
        for opset, array in product(opsets(op_type), arrays):
            for attributes in ({}, *ATTRIBUTES.get(op_type, ())):
                yield fed(op_type, opset, array, **attributes)
    for op_type, pairs in BINARY.items():
        for opset, pair in product(opsets(op_type), pairs):
            alike = len({*map(np.shape, pair)}) == 1
            if opset >= 8 or alike or op_type not in ("Max", "Min", "Mean"):
                yield fed(op_type, opset, *pair)
    yield from _others()


def _others() -> Iterator[Node]:
    low, high = np.array(-1.5, np.float32), np.array(2, np.float32)
    for opset in opsets("Clip"):
        if opset < 11:
            yield fed("Clip", opset, X, min=-1.5, max=2.0)
            yield fed("Clip", opset, X, max=2.0)
            continue
        for constants in (0, 1, 2):
            yield fed("Clip", opset, X, low, high, constants=constants)
        yield fed("Clip", opset, X, None, high, constants=1)
        yield fed("Clip", opset, X, low)
        yield fed("Clip", opset, X)
    yield fed("Clip", 13, COUNTS, np.array(2, np.int32), np.array(5, np.int32), constants=2)
    yield fed("Mod", 13, X, ROW, fmod=1)
    yield fed("Mod", 13, COUNTS, -COUNTS, fmod=1)
    yield fed("Pow", 13, COUNTS, np.array(2, np.int32))
    yield fed("Pow", 13, X, np.array(3, np.int64), constants=1)
    yield fed("PRelu", 9, X, np.array([0.2], np.float32), constants=1)
    for direction in ("LEFT", "RIGHT"):
        yield fed("BitShift", 11, BYTES, BYTES[0], direction=direction)
    for opset in opsets("Where"):
        yield fed("Where", opset, TRUE, X, ROW)
        yield fed("Where", opset, FALSE, COUNTS[:, :1, :, None], COUNTS[:, :, :1, None])
    for opset in opsets("Cast"):
        for to in (TensorProto.INT32, TensorProto.BOOL, TensorProto.DOUBLE, TensorProto.FLOAT):
            yield fed("Cast", opset, X, to=to)
        yield fed("Cast", opset, TRUE, to=TensorProto.FLOAT)
    for opset in opsets("CastLike"):
        yield fed("CastLike", opset, X, COUNTS)
        yield fed("CastLike", opset, COUNTS, X[0])


#: What lay along some dims of the first operand, up to opset 6, and how it is repeated since.
OLD_TYPES = ("Add", "Mul", "Sub", "Div", "Pow", "Equal", "Greater", "Less", "And", "Or", "Xor")
OLD_ATTRIBUTES: tuple[tuple[dict[str, int], tuple[int, ...]], ...] = (
    ({"axis": 1}, (3, 4)),
    ({"axis": -3}, (3,)),
    ({}, (4, 5)),
    ({"axis": 0}, (2,)),
)


def old_nodes(opset: int) -> Iterator[tuple[Node, Node]]:
    """Yield a node of an old opset, and the node that says the same since opset 7."""
    for op_type, (attributes, shape) in product(OLD_TYPES, OLD_ATTRIBUTES):
        left: Array = ABOVE
        right: Array = ABOVE[:1].reshape(-1)[: np.prod(shape)].reshape(shape)
        if op_type in ("And", "Or", "Xor"):
            left, right = TRUE, right > 2
        if op_type == "Equal":
            left, right = left > 2, right > 2
        rest = X.ndim - len(shape) - attributes.get("axis", X.ndim - len(shape)) % X.ndim
        since = right.reshape(*shape, *[1] * rest)
        node = fed(op_type, opset, left, right, broadcast=1, **attributes)
        yield node, fed(op_type, 7, left, since)
    slopes = ROW[:3, 0]
    yield fed("PRelu", opset, X, slopes), fed("PRelu", 9, X, slopes.reshape(3, 1, 1))
    yield fed("PRelu", opset, X, slopes[:1]), fed("PRelu", 9, X, slopes[:1])


OLD = list(old_nodes(6))
ELEMENTWISE = list(nodes())
