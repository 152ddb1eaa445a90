"""Calls of the sixteen operators, for layout-aware ones beside VTensor's definitions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ops.batchnorm import BatchNorm
from ops.binary import Add, BiasAdd, Mul
from ops.concat import Concat, Pad
from ops.convolution import Conv2D, DepthwiseConv2D
from ops.lrn import LRN
from ops.matmul import MatMul
from ops.pooling import AvgPool, MaxPool
from ops.reduce import Mean
from ops.relu import Relu, Relu6
from ops.softmax import Softmax

Dims = dict[str, int]


class Case(NamedTuple):
    """An operator, what it is given, and how many of these are no constants.

    ``declined`` names the libraries that do not do it.
    """

    op: object
    inputs: Sequence[Dims]
    moving: int = 1
    declined: Sequence[str] = ()


IMAGE = {"N": 2, "C": 12, "H": 6, "W": 7}
WIDE = {"N": 1, "C": 32, "H": 5, "W": 5}
ROWS = {"N": 3, "C": 10}
PER_CHANNEL = {"C": 12}
KERNEL = {"O": 9, "I": 12, "h": 3, "w": 3}
HALVES = {"G": 2, "O": 8, "I": 16, "h": 3, "w": 3}
OWN = {"G": 12, "O": 2, "I": 1, "h": 3, "w": 3}
STACK = {"B": 2, "M": 4, "K": 5}

CASES = {
    "conv": Case(Conv2D(), [IMAGE, KERNEL]),
    "conv-window": Case(Conv2D((2, 1), (1, 0, 2, 1), (1, 2)), [IMAGE, KERNEL]),
    "conv-groups": Case(Conv2D(pads=(1, 1, 1, 1), group=2), [WIDE, HALVES]),
    "depthwise": Case(DepthwiseConv2D((2, 2), (0, 1, 1, 1)), [IMAGE, OWN]),
    "matmul": Case(MatMul("C"), [ROWS, {"K": 6, "C": 10}]),
    "matmul-columns": Case(MatMul("C"), [ROWS, {"C": 10, "K": 6}]),
    "matmul-stack": Case(MatMul("K"), [STACK, {"B": 2, "K": 5, "N": 3}], 2),
    "biasadd": Case(BiasAdd(), [IMAGE, PER_CHANNEL]),
    "biasadd-rows": Case(BiasAdd(), [ROWS, {"C": 10}]),
    "batchnorm": Case(BatchNorm(1e-3), [IMAGE, *[PER_CHANNEL] * 4]),
    "relu": Case(Relu(), [IMAGE]),
    "relu6": Case(Relu6(), [IMAGE]),
    "maxpool": Case(MaxPool((3, 2), (2, 1), (1, 0, 1, 1)), [IMAGE]),
    "maxpool-ceil": Case(MaxPool((3, 3), (2, 2), ceil_mode=True), [WIDE | {"H": 6}]),
    "avgpool": Case(AvgPool((3, 3), (2, 2), (1, 1, 1, 1)), [IMAGE]),
    "avgpool-pads": Case(AvgPool((2, 3), (), (0, 1, 1, 1), count_include_pad=True), [IMAGE]),
    "avgpool-beyond": Case(
        AvgPool((3, 3), (2, 2), (1, 1, 1, 1), ceil_mode=True, count_include_pad=True),
        [IMAGE],
        declined=["onednn", "eigen"],
    ),
    "concat": Case(Concat("C"), [WIDE, WIDE | {"C": 16}, WIDE | {"C": 3}], 3),
    "concat-rows": Case(Concat("H"), [IMAGE, IMAGE | {"H": 2}], 2),
    "add": Case(Add(), [IMAGE, IMAGE], 2),
    "add-repeated": Case(Add(), [{"N": 1, "C": 12, "H": 1, "W": 1}, IMAGE], 2),
    "mul": Case(Mul(), [IMAGE, IMAGE], 2),
    "mul-number": Case(Mul(), [IMAGE, {}]),
    "mul-both": Case(Mul(), [IMAGE | {"H": 1}, IMAGE | {"W": 1}], 2, declined=["onednn"]),
    "softmax": Case(Softmax(("C",)), [ROWS]),
    "softmax-image": Case(Softmax(("C",)), [IMAGE]),
    "softmax-places": Case(Softmax(("H", "W")), [IMAGE], declined=["onednn"]),
    "lrn": Case(LRN(5, 0.1), [IMAGE]),
    "lrn-even": Case(LRN(4, 0.1), [IMAGE], declined=["onednn"]),
    "pad": Case(Pad(("H", "W"), (1, 0, 2, 3)), [IMAGE]),
    "pad-cut": Case(Pad(("H", "W"), (-1, -1, 1, 1), value=2.0), [IMAGE], declined=["onednn"]),
    "pad-mirror": Case(Pad(("W",), (2, 3), "reflect"), [IMAGE], declined=["onednn", "eigen"]),
    "mean": Case(Mean(("H", "W"), keepdims=False), [IMAGE]),
    "mean-kept": Case(Mean(("H", "W")), [WIDE]),
    "mean-channels": Case(Mean(("C",)), [IMAGE]),
}

#: What does not fit, with what the message says.
WRONG: dict[str, tuple[object, list[Dims], str]] = {
    "conv": (Conv2D(), [IMAGE, KERNEL | {"I": 11}], "no kernel"),
    "conv-groups": (Conv2D(group=3), [IMAGE, HALVES], "not 3 groups"),
    "conv-window": (Conv2D(dilations=(4, 4)), [IMAGE, KERNEL], "does not fit"),
    "depthwise": (DepthwiseConv2D(), [IMAGE, OWN | {"G": 6, "O": 4}], "one group a channel"),
    "matmul": (MatMul("C"), [ROWS, {"K": 6, "C": 9}], "do not meet"),
    "biasadd": (BiasAdd(), [IMAGE, {"C": 11}], "a number a channel"),
    "batchnorm": (BatchNorm(), [IMAGE, *[{"C": 11}] * 4], "a number a channel"),
    "maxpool": (MaxPool((9, 9)), [IMAGE], "does not fit"),
    "avgpool": (AvgPool((2, 2), (1, 1), (2, 2, 2, 2)), [IMAGE], "nothing but pads"),
    "concat": (Concat("C"), [IMAGE, IMAGE | {"H": 2}], "do not meet"),
    "add": (Add(), [IMAGE, IMAGE | {"W": 2}], "do not meet"),
    "mul": (Mul(), [IMAGE, IMAGE | {"C": 2}], "do not meet"),
    "lrn": (LRN(5), [ROWS], "no image"),
    "pad": (Pad(("W",), (-4, -4)), [IMAGE], "finds no elements"),
    "softmax": (Softmax(()), [IMAGE], "no axes"),
    "mean": (Mean(("H", "H")), [IMAGE], "no such axes"),
}
