"""ONNX Runtime's fused products, convolutions, activations and normalizations."""

from __future__ import annotations

from functools import partial
from itertools import product
from math import erf
from typing import Any

import numpy as np
import pytest

from tests.operators.harness import Array
from tests.operators.microsoft.nodes import (
    Node,
    assert_as_onnx_runtime,
    assert_equal,
    found,
    node,
    refusal,
    steps,
)

ALL = ("y", "mean", "inverse", "sum")
SUM = ("y", "", "", "sum")
fused = partial(node, off=1e-5)


def some(*shape: int, seed: int = 0) -> Array:
    """Return numbers of this shape."""
    return np.random.default_rng((seed, *shape)).normal(size=shape).astype("f4")


IMAGE, KERNEL, LINE = some(2, 4, 6, 7), some(4, 4, 3, 3), some(4)
A, B = some(3, 4), some(4, 5)
TEXT, LAST = some(2, 3, 8), some(8)

#: The activations of each operator, with their numbers.
OF_CONV: dict[str, dict[str, Any]] = {
    **{name: {} for name in ("Relu", "Tanh", "Sigmoid", "HardSwish")},
    "LeakyRelu": {"activation_params": [0.1]},
    "Clip": {"activation_params": [-0.5, 0.5]},
    "HardSigmoid": {"activation_params": [0.2, 0.4]},
}
ALPHA, BETA, GAMMA = (f"activation_{name}" for name in ("alpha", "beta", "gamma"))
OF_GEMM: dict[str, dict[str, Any]] = {
    **{name: {} for name in ("Relu", "Tanh", "Sigmoid", "Softplus", "Softsign")},
    **{name: {ALPHA: 0.7} for name in ("LeakyRelu", "Elu", "Celu", "ThresholdedRelu")},
    **{name: {ALPHA: 0.3, BETA: 0.4} for name in ("HardSigmoid", "ParametricSoftplus")},
    "ScaledTanh": {ALPHA: 0.9, BETA: 0.8},
    "Selu": {ALPHA: 1.5, GAMMA: 1.1},
}
#: Shapes of two factors, and the attributes that change the order of their axes.
TURNED: list[tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = [
    ((3, 4), (4, 5), {}),
    ((4, 3), (5, 4), {"transA": 1, "transB": 1}),
    ((4,), (5, 4), {"transA": 1, "transB": 1}),
    ((3, 4), (4,), {"transB": 1}),
    ((2, 4, 3), (5, 4), {"transA": 1, "transB": 1}),
    ((2, 3, 3, 4), (2, 3, 5, 4), {"transB": 1}),
    ((3, 2, 4), (2, 4, 5), {"transBatchA": 1}),
    ((6, 2, 3, 4), (5, 2, 3, 4), {"transBatchA": 1, "transBatchB": 1, "transB": 1}),
    ((4, 2, 3), (4, 2, 5), {"transBatchA": 1, "transA": 1, "transBatchB": 1}),
]
WORDS = np.array([[1, 2, 0], [3, 1, 1]], "i4")
PARTS = np.array([[0, 0, 1], [1, 1, 0]], "i4")
TABLES = some(5, 8), some(6, 8), some(2, 8), some(8), some(8, seed=1)
QUANTIZED = tuple(steps("u1", *table.shape) for table in TABLES)
SCALES = tuple(np.array(scale, "f4") for scale in (0.1, 0.2, 0.3, 0.04, 0.05))
ZEROS = tuple(np.array(zero, "u1") for zero in (100, 120, 110, 3, 128))
embed = partial(fused, "EmbedLayerNormalization", WORDS, fed=2, outputs=("y", "count"))
embed_integers = partial(fused, "QEmbedLayerNormalization", WORDS, fed=2, outputs=("y", "count"))


def without(index: int, arrays: tuple[Array, ...]) -> list[Array | None]:
    """Return the arrays, but None at one index."""
    return [None if at == index else array for at, array in enumerate(arrays)]


NODES = [
    *(
        fused(
            "FusedConv",
            IMAGE,
            KERNEL,
            LINE,
            activation=name,
            pads=[1, 1, 0, 1],
            strides=[2, 1],
            **by,
        )
        for name, by in OF_CONV.items()
    ),
    fused("FusedConv", IMAGE, KERNEL, LINE, some(2, 4, 4, 5), fed=4, activation="Relu"),
    fused("FusedConv", IMAGE, some(4, 2, 3, 3), group=2, auto_pad="SAME_UPPER"),
    fused("FusedConv", some(1, 4, 9), some(4, 4, 3), dilations=[2], activation="Tanh"),
    *(
        fused(
            "FusedGemm",
            A,
            B,
            some(5),
            alpha=0.5,
            beta=2.0,
            activation=name,
            **by,
        )
        for name, by in OF_GEMM.items()
    ),
    fused("FusedGemm", some(4, 3), some(5, 4), transA=1, transB=1, activation="Relu"),
    *(fused("FusedMatMul", some(*a), some(*b), fed=2, alpha=0.3, **by) for a, b, by in TURNED),
    fused("TransposeMatMul", some(4, 3), B, transA=1, alpha=2.0),
    fused("Gelu", A),
    fused("BiasGelu", TEXT, LAST),
    fused("FastGelu", A),
    fused("FastGelu", TEXT, LAST),
    fused("QuickGelu", A),
    fused("QuickGelu", A, alpha=0.7),
    node("NhwcMaxPool", steps("u1", *IMAGE.shape), kernel_shape=[3, 2], pads=[1, 0, 1, 1], off=0),
    node(
        "NhwcMaxPool",
        steps("i1", *IMAGE.shape),
        kernel_shape=[3, 2],
        strides=[2, 2],
        dilations=[1, 2],
        ceil_mode=1,
        off=0,
    ),
    *(
        fused(
            "SkipLayerNormalization",
            TEXT,
            some(*skip, seed=1),
            LAST,
            LAST + 1,
            LAST - 1,
            fed=2,
            outputs=SUM,
            epsilon=0.01,
        )
        for skip in ((2, 3, 8), (1, 3, 8), (3, 8))
    ),
    fused("SkipLayerNormalization", TEXT, TEXT + 1, LAST, outputs=ALL),
    fused("SkipLayerNormalization", some(6, 8), some(6, 8, seed=1), LAST),
    fused("SkipSimplifiedLayerNormalization", TEXT, TEXT + 1, LAST, outputs=("y", "", "inverse")),
    *(
        fused(
            "SkipSimplifiedLayerNormalization",
            TEXT,
            some(*skip, seed=1),
            LAST,
            LAST + 1,
            fed=2,
            outputs=SUM,
            epsilon=0.01,
        )
        for skip in ((2, 3, 8), (3, 8))
    ),
    *(
        fused(
            name, TEXT, *by, outputs=outputs, domain="", onnx=opset, epsilon=0.1, stash_type=1, **at
        )
        for opset, (name, by, outputs, at) in product(
            (12, 17),
            [
                ("LayerNormalization", (LAST, LAST + 1), ("y",), {}),
                ("LayerNormalization", (some(3, 8),), ALL[:3], {"axis": 1}),
                ("SimplifiedLayerNormalization", (LAST,), ("y",), {}),
                ("SimplifiedLayerNormalization", (some(3, 8),), ("y", "inverse"), {"axis": 1}),
            ],
        )
    ),
    embed(PARTS, *TABLES),
    embed(None, *without(2, TABLES)),
    embed(PARTS, *TABLES, np.array([[2, 1, 1], [0, 1, 0]], "i4"), epsilon=0.1),
    embed(PARTS, *TABLES, None, np.array([[2, 1, 0]], "i4")),
    embed(PARTS, *TABLES, outputs=("y", "", "sum"), mask_index_type=0),
    embed_integers(PARTS, *QUANTIZED, np.array([[1, 1, 0], [0, 0, 0]], "i4"), *SCALES, *ZEROS),
    embed_integers(
        None, *without(2, QUANTIZED), None, *without(2, SCALES), *without(2, ZEROS), epsilon=0.1
    ),
]


@pytest.mark.parametrize("row", NODES, ids=str)
def test_values_are_those_of_onnx_runtime(row: Node) -> None:
    assert_as_onnx_runtime(row)


def image_last(x: Array) -> Array:
    """Return an image with its channels last."""
    return np.ascontiguousarray(np.moveaxis(x, 1, -1))


def test_operators_without_a_kernel_are_what_their_description_says() -> None:
    """ONNX Runtime has these operators for other devices; NumPy computes them here."""
    x = some(2, 3, 8) + LAST
    gelu = np.vectorize(lambda number: number * (1 + erf(number / np.sqrt(2))) / 2)
    halves = x[..., :4] * gelu(x[..., 4:])
    split = fused("BiasSplitGelu", some(2, 3, 8), LAST)
    assert_equal(split, [halves.astype("f4")], found(split))
    more = fused("FusedMatMulActivation", A, B, activation="Relu", alpha=2.0)
    assert_equal(more, [np.maximum(2 * (A @ B), 0)], found(more))


@pytest.mark.parametrize("name", ["NhwcConv", "NhwcFusedConv"])
def test_a_convolution_of_channels_last_is_the_same(name: str) -> None:
    by: dict[str, Any] = {"pads": [1, 1, 0, 1], "strides": [2, 1], "group": 2}
    kernel, added = some(4, 2, 3, 3), some(2, 3, 7, 4)
    plain = found(fused("FusedConv", IMAGE, kernel, LINE, **by))[0]
    if name == "NhwcConv":
        row, expected = fused(name, image_last(IMAGE), kernel, LINE, **by), image_last(plain)
    else:
        row = fused(name, image_last(IMAGE), kernel, LINE, added, activation="Relu", **by)
        expected = np.maximum(image_last(plain) + added, 0)
    assert_equal(row, [expected], found(row))


REFUSED = [
    (fused("FusedConv", IMAGE, KERNEL, activation="relu"), "activation 'relu'"),
    (fused("FusedConv", IMAGE, KERNEL, activation="LeakyRelu"), "expected alpha"),
    (fused("FusedGemm", A, B, activation="Elu"), "expected alpha"),
    (fused("Gelu", A, approximate="tanh"), "attribute 'approximate' is unknown"),
    (fused("BiasSplitGelu", some(2, 7), some(7)), "no two halves"),
    (fused("SkipSimplifiedLayerNormalization", TEXT, TEXT, LAST, outputs=ALL), "the mean"),
    (
        fused("Conv", IMAGE, KERNEL, domain="com.microsoft.nchwc"),
        "optimise the model at ORT_ENABLE_EXTENDED",
    ),
]


@pytest.mark.parametrize(("row", "text"), REFUSED, ids=str)
def test_what_is_not_taken_is_an_error_that_names_the_node(row: Node, text: str) -> None:
    message = refusal(row)
    assert text in message
    assert row.op_type in message
