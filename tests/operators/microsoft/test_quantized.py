"""ONNX Runtime's own operators on quantized integers, against ONNX Runtime."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from libdesc.registry import registry
from tests.operators.harness import Array
from tests.operators.microsoft.nodes import (
    DOMAIN,
    Node,
    assert_as_onnx_runtime,
    code,
    node,
    number,
    steps,
)
from vtensor import Session
from vtensor.errors import VTensorError
from vtensor.language.operators import OPERATORS

registry()

X, Y, IMAGE = code(0.03, 120), code(0.04, 100), (2, 6, 7, 5)
FLOATS = np.random.default_rng(5).normal(size=(3, 40)).astype("f4")
POOL: dict[str, Any] = {"kernel_shape": [3, 2], "strides": [2, 1], "pads": [1, 0, 1, 1]}
ROWS, COLUMNS = steps("u1", 3, 40), steps("i1", 40, 7)
SEVERAL = np.linspace(0.01, 0.02, 7, dtype="f4")

NODES = [
    node("QLinearAdd", steps("u1", *IMAGE), *X, steps("u1", 6, 1, 1), *Y, *code(0.06, 90)),
    node(
        "QLinearAdd",
        steps("i1", 4, 5),
        *code(0.1, -3, "i1"),
        steps("i1", 5),
        *code(0.2, 5, "i1"),
        *code(0.25, 1, "i1"),
    ),
    node("QLinearMul", steps("u1", *IMAGE), *X, steps("u1", *IMAGE), *Y, *code(0.15, 110)),
    node("QLinearSigmoid", steps("u1", *IMAGE), *X, *code(1 / 256, 0)),
    node("QLinearSigmoid", steps("i1", 4, 5), *code(0.05, 3, "i1"), *code(1 / 256, -128, "i1")),
    node("QLinearLeakyRelu", steps("u1", *IMAGE), *X, *Y, alpha=0.1),
    node("QLinearSoftmax", steps("u1", 3, 11), *X, *code(1 / 256, 0), axis=-1, opset=13),
    node(
        "QLinearSoftmax",
        steps("i1", 2, 3, 5),
        *code(0.1, 3, "i1"),
        *code(1 / 256, -128, "i1"),
        axis=1,
        opset=11,
    ),
    node("QLinearAveragePool", steps("u1", *IMAGE), *X, *Y, **POOL),
    node("QLinearAveragePool", steps("u1", *IMAGE), *X, *Y, count_include_pad=1, **POOL),
    node("QLinearGlobalAveragePool", steps("u1", *IMAGE), *X, *Y),
    node("QLinearGlobalAveragePool", steps("u1", *IMAGE), *X, *X),
    node("QLinearGlobalAveragePool", steps("u1", *IMAGE), *X, *Y, channels_last=1),
    node("QLinearAveragePool", steps("u1", *IMAGE), *X, *Y, channels_last=1, **POOL),
    node(
        "QLinearConv",
        steps("u1", *IMAGE),
        *X,
        steps("i1", 4, 5, 3, 3),
        *code(0.01, 0, "i1"),
        *code(1.0, 120),
        channels_last=1,
        pads=[1, 0, 1, 1],
    ),
    node(
        "QLinearConcat",
        number(0.05),
        number(90, "u1"),
        steps("u1", 2, 3),
        *X,
        steps("u1", 2, 5),
        *Y,
        fed=0,
        axis=1,
    ),
    node(
        "QLinearWhere",
        np.arange(12).reshape(3, 4) % 3 == 0,
        steps("u1", 3, 4),
        *X,
        steps("u1", 4),
        *Y,
        *code(0.05, 99),
    ),
    node("QGemm", steps("u1", 3, 40), *X, steps("u1", 40, 7), *Y, None, *code(1.1, 120), alpha=0.5),
    node(
        "QGemm",
        steps("u1", 3, 40),
        *X,
        steps("i1", 7, 40),
        *code(0.02, 0, "i1"),
        np.arange(-300, 400, 100, dtype="i4"),
        *code(1.1, 120),
        transB=1,
        off=0,
    ),
    node(
        "QGemm",
        steps("i1", 40, 3),
        *code(0.1, 3, "i1"),
        COLUMNS,
        SEVERAL,
        np.zeros(7, "i1"),
        np.arange(7, dtype="i4"),
        transA=1,
        off=1e-6,
    ),
    node(
        "MatMulIntegerToFloat",
        ROWS,
        COLUMNS,
        number(0.02),
        SEVERAL,
        number(120, "u1"),
        np.zeros(7, "i1"),
        SEVERAL,
        fed=2,
        off=1e-6,
    ),
    node("MatMulIntegerToFloat", ROWS, COLUMNS, number(0.02), number(0.01), off=1e-6),
    node("DynamicQuantizeMatMul", FLOATS, COLUMNS, number(0.01), off=1e-6),
    node("DynamicQuantizeMatMul", FLOATS, COLUMNS, SEVERAL, np.zeros(7, "i1"), SEVERAL, off=1e-6),
    node("QuantizeLinear", FLOATS, *Y, off=0),
    node(
        "QuantizeLinear",
        FLOATS,
        np.linspace(0.01, 0.02, 40, dtype="f4"),
        steps("u1", 40),
        axis=1,
        off=0,
    ),
    node("DequantizeLinear", ROWS, *Y, off=0),
    node("DequantizeLinear", ROWS, np.linspace(1, 2, 3, dtype="f4"), steps("u1", 3), axis=0, off=0),
]


@pytest.mark.parametrize("row", NODES, ids=str)
def test_values_are_those_of_onnx_runtime(row: Node) -> None:
    assert_as_onnx_runtime(row)


def test_every_operator_is_visited() -> None:
    spelled = {
        spelling.op_type
        for info in OPERATORS.values()
        for spelling in info.onnx
        if spelling.op_type.startswith(DOMAIN)
        and Path(info.file).stem in ("quantized", "integers", "quantizelinear")
    }
    visited = {f"{DOMAIN}::{row.op_type}" for row in NODES}
    assert spelled - visited == {f"{DOMAIN}::QLinearReduceMean"}  # no kernel


def changed(row: Node, index: int, array: Array) -> Node:
    """Return a node with another constant; ``index`` counts all inputs."""
    constants = list(row.constants)
    constants[index - len(row.feeds)] = array
    return replace(row, constants=tuple(constants))


SCALES = {"a scale of 0": 0.0, "negative": -0.1, "not a number": np.nan, "infinite": np.inf}
ADD, GEMM, QUANTIZE, DEQUANTIZE = (
    next(row for row in NODES if row.op_type == name)
    for name in ("QLinearAdd", "QGemm", "QuantizeLinear", "DequantizeLinear")
)
BAD = [
    *(
        (row, index, number(scale), "has the scale")
        for scale in SCALES.values()
        for row, index in ((ADD, 1), (ADD, 6), (GEMM, 4), (GEMM, 7), (QUANTIZE, 1), (DEQUANTIZE, 1))
    ),
    (ADD, 2, number(3, "i1"), "is a zero point of integers of type u8"),
    (GEMM, 2, number(3, "i1"), "is a zero point of integers of type u8"),
    (DEQUANTIZE, 2, number(3, "i1"), "is a zero point of integers of type u8"),
    (ADD, 1, np.ones(3, "f4"), "is for a whole tensor"),
    (ADD, 3, np.ones(3, "f4"), "is not of integers of 8 bits"),
    (GEMM, 3, np.ones((40, 7), "i2"), "is not of integers of 8 bits"),
    (GEMM, 4, np.ones(5, "f4"), "5|DimError"),
    (DEQUANTIZE, 1, np.ones(7, "f4"), "7"),
]


@pytest.mark.parametrize(
    ("row", "index", "array", "text"),
    BAD,
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_wrong_code_is_an_error_that_names_the_node(
    row: Node, index: int, array: Array, text: str
) -> None:
    with pytest.raises(VTensorError, match=text) as refused:
        Session(changed(row, index, array).model(), threads=1)
    assert row.op_type in str(refused.value)


@pytest.mark.parametrize("scale", SCALES.values(), ids=list(SCALES))
def test_a_wrong_scale_at_run_time_gives_a_result(scale: float) -> None:
    """Whatever the numbers are: native code reads and writes nothing else."""
    x = np.array([-3, 0, 1, np.nan, np.inf], "f4")
    row = node("QuantizeLinear", x, number(scale), number(3, "u1"), fed=2)
    with Session(row.model(), threads=1) as session:
        [found] = session.run(None, row.fed())
    assert (found.dtype, found.shape) == (np.uint8, (5,))
