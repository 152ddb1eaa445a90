"""What each operator is tested on. One that has no row, and needs one, fails its test.

A case is an operator and its inputs as text, ``"N=2 C=17 H=6 W=5"``; ``!`` in front makes a
constant, ``+`` one whose values are positive; ``<5`` among its words makes integers from 0 on.
``~`` is values between -1 and 1, ``>`` above 1, ``%`` small positive ones, ``#`` small integers
that are not 0, ``@`` bytes with a sign, ``$`` integers of 32 bits, ``?`` truth values, ``^``
ascending values, ``&`` the nodes of a tree whose leaves have the first vote.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from typing import Any

import numpy as np

import ops
from ptensor.layout import Layout
from tests.operators.harness import Array, Given, definition
from tests.operators.tables.elementwise import ELEMENTWISE, ELEMENTWISE_BOUNDS, flagged
from vtensor.language.dtype import numpy_dtype

#: What may stand in front of an input.
FLAGS = "!+~>%#@$?^&"

#: The orders in which an image may have been left.
IMAGES = ("NCHW", "NHWC", "NCHW8c", "NCHW16c")
SERIES = ("NCW", "NWC", "NCW16c")
VOLUMES = ("NCDHW", "NDHWC", "NCDHW16c")


@dataclass(frozen=True)
class Case:
    """An operator on inputs; ``refused`` names the libraries that must decline it."""

    op: Any
    inputs: tuple[str, ...]
    refused: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.op} {' | '.join(self.inputs)}"

    def given(self, layout: str = "", dtype: str = "f32") -> list[Given]:
        """Return the inputs, the images among them in a layout."""
        random = np.random.default_rng(7)
        types = ("f32" if "+" in text else dtype for text in self.inputs)
        rows = zip(self.inputs, types, strict=True)
        return [input_of(text, layout, own, random) for text, own in rows]

    def layouts(self) -> tuple[str, ...]:
        """Return the layouts in which the images may be; "" where there is no image."""
        for orders in (IMAGES, SERIES, VOLUMES):
            if any(dims_of(text).keys() == set(Layout(orders[0]).dims) for text in self.inputs):
                return orders
        return ("",)


def case(op: Any, *inputs: str, refused: str = "") -> Case:
    """Return a case; the names of ``refused`` stand between spaces."""
    return Case(op, inputs, tuple(refused.split()))


@lru_cache(maxsize=512)
def expected(case: Case, dtype: str = "f32") -> list[Array]:
    """Return a case's values by its definition; they are the same from every layout."""
    return definition(case.op, case.given(dtype=dtype))


def dims_of(text: str) -> dict[str, int]:
    """Return the extents in the text of an input.

    >>> dims_of("!+N=2 C=17 <5")
    {'N': 2, 'C': 17}
    """
    words = (word.split("=") for word in text.strip(FLAGS).split() if "<" not in word)
    return {dim: int(size) for dim, size in words}


def input_of(text: str, layout: str, dtype: str, random: np.random.Generator) -> Given:
    """Return the input that a text says, in a layout where it is an image."""
    dims, flags = dims_of(text), text[: len(text) - len(text.lstrip(FLAGS))]
    if "<" in text:
        places = random.integers(0, int(text.split("<")[1]), tuple(dims.values()))
        places = places.astype(np.int32) if "$" in flags else places
        return Given(places, tuple(dims), Layout.plain(dims), "!" in flags)
    values = random.uniform(0.5, 1.5, tuple(dims.values()))
    if "+" not in flags:
        values = random.normal(size=tuple(dims.values())) * 3
    values = np.sort(flagged(flags, values)) if "^" in flags else flagged(flags, values)
    if "&" in flags:
        values = _tree(dims, random)
    image = bool(layout) and dims.keys() == set(Layout(layout).dims) and "!" not in flags
    where = Layout(layout) if image else Layout.plain(dims)
    own = {"#": "u8", "@": "s8", "$": "s32", "&": "s32", "?": "bool"}.get(flags[-1:], dtype)
    values = np.abs(values) if own[0] == "u" else values
    return Given(values.astype(numpy_dtype(own)), tuple(dims), where, "!" in flags)


def _tree(dims: dict[str, int], random: np.random.Generator) -> Array:
    """Return the nodes of a tree that compares feature 0 only, as a TreeEnsemble has them."""
    count, wide = dims["node"], dims["word"] == 5
    first = 2 * np.arange(count) + 1  # the children of a node in a complete tree
    bounds = random.normal(size=count).astype("f8" if wide else "f4").view("i4")
    inner = np.column_stack([0 * first, first, first + 1, bounds.reshape(count, 1 + wide)])
    nodes = np.where(first[:, None] + 1 < count, inner, [-1, 0, 1, 0, 0][: 4 + wide])
    nodes = nodes[:, : dims["word"]]
    return nodes if next(iter(dims)) == "node" else nodes.T


def _pools(cls: Any) -> Iterator[Case]:
    for channels in (3, 17, 32):
        image = f"N=2 C={channels} H=9 W=8"
        yield case(cls((3, 3), (2, 2), (1, 1, 1, 1)), image)
        yield case(cls((2, 3), (2, 1), (0, 1, 1, 0)), image)
        yield case(cls((9, 8)), image)
    yield case(cls((3, 3), (2, 2), ceil_mode=True), "N=1 C=16 H=8 W=8")
    yield case(cls((3,), (2,), (1, 1)), "N=2 C=17 W=9")
    yield case(cls((2, 3, 2), (1, 2, 2), (0, 1, 0, 1, 1, 0)), "N=2 C=17 D=5 H=6 W=7")
    yield case(cls((5, 6, 7)), "N=1 C=16 D=5 H=6 W=7")
    yield case(cls((3, 2), dilations=(2, 3)), "N=1 C=16 H=9 W=8")


def _binaries(cls: Any) -> Iterator[Case]:
    for channels in (3, 17, 32):
        image = f"N=2 C={channels} H=5 W=6"
        yield case(cls(), image, image)
        yield case(cls(), image, f"!C={channels}")
        yield case(cls(), f"C={channels} H=1", image)
        yield case(cls(), image, "H=5 W=6")
    yield case(cls(), "N=2 C=3 H=1 W=1", "N=1 C=3 H=4 W=5", refused="onednn")
    yield case(cls(), "A=3 B=4", "B=4 C=5", refused="onednn")
    yield case(cls(), "A=3 B=4", "A=3 B=4")
    yield case(cls(), "A=7", "!")
    # One element along a dim that lies elsewhere than oneDNN numbers it.
    yield case(cls(), "H=1 N=33 W=3", "W=1")
    yield case(cls(), "N=3 H=1 C=7 W=8", "!C=7")


IMAGE, SMALL, TALL = "N=2 C=17 H=5 W=6", "N=2 C=16 H=9 W=8", "N=1 C=16 H=12 W=1"
VOLUME = "N=1 C=16 D=5 H=6 W=7"
SAME = (1, 1, 1, 1)
MASKED = ops.Attention("F", "K", 0.1, masked=-1e4)
FEW = ("B=2 H=3 Q=9 F=16", "B=2 H=3 K=11 F=16", "B=2 H=3 K=11 V=8")
MANY = ("B=2 H=2 Q=70 F=20", "B=2 H=2 K=37 F=20", "B=2 H=2 K=37 V=72")
#: The last panel of queries, and of values, is half one.
LONG = ("H=2 Q=49 F=5", "H=2 K=19 F=5", "H=2 K=19 V=36", "H=2 Q=49 K=19", "Q=49 K=19")
SEQUENCES = "batch=2 seq=7 feat=33"


def images(op: Any) -> list[Case]:
    """Return cases of images whose channels fill blocks, or do not."""
    return [case(op, f"N=2 C={channels} H=5 W=6") for channels in (3, 17, 32)]


ROWS = [
    *_binaries(ops.Add),
    *_pools(ops.AvgPool),
    case(ops.AvgPool((3, 3), (2, 2), SAME, count_include_pad=True), "N=2 C=17 H=9 W=8"),
    case(
        ops.AvgPool((3, 3), (2, 2), SAME, ceil_mode=True, count_include_pad=True),
        "N=2 C=17 H=8 W=8",
        refused="onednn eigen",
    ),
    *(
        case(ops.BatchNorm(1e-3), f"N=2 C={channels} H=5 W=6", *(f"!+C={channels}",) * 4)
        for channels in (3, 17, 32)
    ),
    case(ops.BatchNorm(), "N=2 C=17", *("!+C=17",) * 4),
    case(ops.BatchNorm(), "N=2 C=17 W=9", *("!+C=17",) * 4),
    case(ops.BatchNorm(), "N=2 C=17 D=3 H=4 W=5", *("!+C=17",) * 4),
    *(case(ops.BiasAdd(), f"N=2 C={c} H=5 W=6", f"!C={c}") for c in (3, 17, 32)),
    case(ops.BiasAdd(), "N=2 C=1000", "!C=1000"),
    case(ops.BiasAdd(), "N=2 C=5 H=3", "!H=3"),
    *(
        case(ops.Concat("C"), f"N=2 C={first} H=5 W=6", f"N=2 C={second} H=5 W=6")
        for first, second in ((3, 17), (16, 32), (64, 64))
    ),
    case(ops.Concat("H"), IMAGE, "N=2 C=17 H=1 W=6", "N=2 C=17 H=2 W=6"),
    case(ops.Concat("seq"), SEQUENCES, "batch=2 seq=1 feat=33"),
    case(ops.Concat("C"), "N=2 C=8 H=5 W=6"),
    case(ops.Conv1D(), "N=2 C=16 W=20", "!O=32 I=16 w=3"),
    case(ops.Conv1D((2,), (3, 3), (2,)), "N=1 C=17 W=21", "!O=5 I=17 w=3"),
    case(ops.Conv1D(pads=(1, 0), group=2), "N=1 C=32 W=9", "!G=2 O=16 I=16 w=3"),
    case(ops.Conv1D(group=32), "N=1 C=32 W=9", "!G=32 O=1 I=1 w=3"),
    case(ops.Conv1D(), "N=2 C=16 W=20", "O=16 I=16 w=1"),
    case(ops.Conv2D(), SMALL, "!O=32 I=16 h=1 w=1"),
    case(ops.Conv2D(), "N=2 C=19 H=5 W=7", "!O=37 I=19 h=1 w=1"),
    case(ops.Conv2D(), "N=1 C=0 H=5 W=7", "!O=32 I=0 h=1 w=1", refused="onednn winograd"),
    case(ops.Conv2D(pads=(1, 0, 0, 0)), SMALL, "!O=32 I=16 h=1 w=1", refused="winograd"),
    case(ops.Conv2D(pads=SAME), SMALL, "!O=16 I=16 h=3 w=3"),
    case(ops.Conv2D((2, 2), (3, 3, 3, 3)), "N=1 C=3 H=20 W=22", "!O=64 I=3 h=7 w=7"),
    case(ops.Conv2D((2, 2), SAME), SMALL, "!O=16 I=16 h=3 w=3", refused="winograd"),
    case(
        ops.Conv2D((1, 2), (0, 1, 2, 0), (2, 1)),
        "N=1 C=17 H=11 W=9",
        "!O=5 I=17 h=3 w=2",
        refused="winograd",
    ),
    case(ops.Conv2D(group=2), "N=1 C=32 H=6 W=7", "!G=2 O=16 I=16 h=3 w=3"),
    case(ops.Conv2D((1, 1), SAME, group=8), SMALL, "!G=8 O=2 I=2 h=3 w=3"),
    case(ops.Conv2D(group=2), SMALL, "!G=2 O=16 I=8 h=3 w=3", refused="winograd"),
    case(ops.Conv2D(group=3), "N=1 C=15 H=6 W=7", "!G=3 O=7 I=5 h=3 w=3", refused="winograd"),
    case(ops.Conv2D(), "N=1 C=64 H=1 W=1", "!O=10 I=64 h=1 w=1"),
    case(ops.Conv2D(), SMALL, "O=16 I=16 h=3 w=3", refused="winograd"),
    case(ops.Conv2D(), TALL, "!O=32 I=16 h=5 w=1", refused="winograd"),
    case(ops.Conv2D((2, 1), (2, 1, 0, 1), (1, 2)), TALL, "!O=16 I=16 h=3 w=2", refused="winograd"),
    case(ops.Conv2D(), "N=0 C=16 H=4 W=4", "!O=8 I=16 h=1 w=1", refused="onednn winograd"),
    case(ops.Conv2D(pads=(2, 0, 1, 1)), "N=2 C=19 H=13 W=9", "!O=37 I=19 h=3 w=3"),
    case(ops.Conv2D(pads=(1, 0, 1, 2)), "N=1 C=5 H=12 W=1", "!O=3 I=5 h=3 w=1"),
    case(ops.Conv2D(pads=(0, 3, 0, 3)), "N=1 C=16 H=3 W=21", "!O=33 I=16 h=1 w=7"),
    case(ops.Conv3D(), VOLUME, "!O=32 I=16 d=1 h=1 w=1"),
    case(ops.Conv3D(pads=(1,) * 6), VOLUME, "!O=16 I=16 d=3 h=3 w=3"),
    case(ops.Conv3D((1, 2, 2), (1, 3, 3) * 2), "N=1 C=3 D=4 H=9 W=10", "!O=16 I=3 d=3 h=7 w=7"),
    case(
        ops.Conv3D((1, 1, 2), (0, 1, 0, 2, 0, 1), (2, 1, 1), 2),
        *("N=2 C=10 D=5 H=6 W=7", "!G=2 O=3 I=5 d=3 h=2 w=2"),
    ),
    case(ops.ConvInteger(), "#N=2 C=16 W=20", "!#O=32 I=16 w=3"),
    case(ops.ConvInteger(pads=SAME), f"#{SMALL}", "!#O=16 I=16 h=3 w=3", "#", "!#"),
    case(ops.ConvInteger((2, 1), SAME, group=3), "#N=1 C=15 H=6 W=7", "!#G=3 O=7 I=5 h=3 w=3"),
    case(ops.ConvInteger(group=16), f"#{SMALL}", "!#G=16 O=1 I=1 h=3 w=3", "#", "!#"),
    case(ops.ConvInteger(), "#N=1 C=19 D=4 H=5 W=7", "#O=37 I=19 d=2 h=1 w=1"),
    case(ops.ConvTranspose((2, 2)), "N=1 C=16 H=5 W=6", "!I=16 O=8 h=2 w=2"),
    case(
        ops.ConvTranspose((2, 1), (1, 0, 0, 1), (1, 2), (1, 0), 2),
        *("N=2 C=6 H=5 W=6", "!G=2 I=3 O=4 h=3 w=2"),
    ),
    case(ops.ConvTranspose(), "N=2 C=3 W=7", "!I=3 O=4 w=3"),
    case(ops.ConvTranspose((2, 2, 2)), "N=1 C=3 D=3 H=4 W=5", "!I=3 O=4 d=2 h=2 w=2"),
    case(ops.DepthwiseConv2D(pads=SAME), "N=1 C=32 H=9 W=8", "!G=32 O=1 I=1 h=3 w=3"),
    case(
        ops.DepthwiseConv2D((2, 1)), "N=1 C=16 H=9 W=1", "!G=16 O=1 I=1 h=3 w=1", refused="winograd"
    ),
    case(ops.DepthwiseConv2D((2, 2), SAME), "N=2 C=17 H=9 W=8", "!G=17 O=1 I=1 h=3 w=3"),
    case(ops.DepthwiseConv2D(), "N=1 C=3 H=9 W=8", "!G=3 O=2 I=1 h=5 w=3", refused="winograd"),
    case(
        ops.DepthwiseConv2D(), "N=1 C=0 H=9 W=8", "!G=0 O=2 I=1 h=5 w=3", refused="onednn winograd"
    ),
    *(case(ops.DynamicQuantizeLinear(), text) for text in (IMAGE, "+A=3 B=4", "", "A=3 B=0")),
    *images(ops.LRN(5, 1e-2, 0.75, 2.0)),
    *(case(ops.LRN(3), f"N=2 C={c} W=6") for c in (3, 17, 32)),
    *(case(ops.LRN(s), "N=2 C=16 H=5 W=6", refused="onednn") for s in (4, 2**40 + 1)),
    case(ops.LayerNormalization(("feat",)), SEQUENCES, "!+feat=33"),
    case(ops.LayerNormalization(("C",), 1e-3), IMAGE, "!+C=17"),
    case(ops.LayerNormalization(("A",)), "A=64", "+A=64"),
    case(ops.LayerNormalization(("H", "W"), 1e-3), IMAGE, "!C=17", refused="onednn"),
    case(ops.LayerNormalization(("A", "B")), "A=3 B=4", "B=4 A=3", refused="onednn"),
    case(ops.LpNormalization("C", 1), IMAGE),
    case(ops.LpNormalization("feat"), SEQUENCES),
    *_pools(ops.LpPool),
    case(ops.LpPool((2,), p=3), "N=2 C=17 W=6"),
    case(ops.MatMul("K"), "M=8 K=96", "!K=96 N=40"),
    case(ops.MatMul("K"), "M=8 K=96", "!N=40 K=96"),
    case(ops.MatMul("K"), "K=96 M=1", "!N=1000 K=96"),
    case(ops.MatMul("K"), "M=9 K=31", "K=31 N=17"),
    case(ops.MatMul("K"), "!M=9 K=31", "K=31 N=17"),
    case(ops.MatMul("K"), "B=3 M=9 K=31", "B=3 K=31 N=17"),
    case(ops.MatMul("K"), "B=3 M=9 K=31", "!K=31 N=17"),
    case(ops.MatMul("K"), "B=3 M=9 K=31", "B=1 K=31 N=17"),
    case(ops.MatMul("K"), "B=3 A=2 M=9 K=16", "B=3 C=5 K=16 N=17"),
    case(ops.MatMul("K"), "K=96", "!K=96 N=40"),
    case(ops.MatMul("K"), "K=96", "K=96"),
    case(ops.MatMulInteger("K"), "#M=8 K=96", "!#K=96 N=40"),
    case(ops.MatMulInteger("K"), "#K=96 M=1", "#N=33 K=96"),
    case(ops.MatMulInteger("K"), "#B=3 M=9 K=31", "!#K=31 N=17", "#B=3 M=9", "!#N=17"),
    case(ops.MatMulInteger("K"), "#B=3 M=9 K=31", "#B=3 K=31 N=17", "#", "!#"),
    *_pools(ops.MaxPool),
    *_pools(ops.MaxPoolIndices),
    case(ops.MaxUnpool((2, 2), (2, 2)), "N=2 C=3 H=4 W=5", "N=2 C=3 H=4 W=5 <480"),
    case(ops.MaxUnpool((3,), (2,), (1, 0), (12,)), "N=1 C=4 W=5", "N=1 C=4 W=5 <40"),
    case(ops.MaxUnpool((2, 2), (2, 2)), "N=1 C=1 H=9 W=9", "N=1 C=1 H=9 W=9 <400"),
    case(ops.MaxUnpool((2, 2), (2, 2)), "N=2 C=16 H=24 W=25", "N=2 C=16 H=24 W=25 <76800"),
    *(
        case(ops.Mean(("H", "W"), keep), f"N=2 C={channels} H=7 W=7")
        for channels, keep in product((3, 17, 32), (True, False))
    ),
    case(ops.Mean(("C",)), IMAGE),
    case(ops.Mean(("feat",), keepdims=False), SEQUENCES),
    case(ops.Mean(("A", "B"), keepdims=False), "A=3 B=4"),
    case(ops.MeanVarianceNormalization(("N", "H", "W")), IMAGE),
    case(ops.MeanVarianceNormalization(("feat",)), SEQUENCES),
    case(ops.MeanVarianceNormalization(("feat",)), "batch=64 seq=16 feat=3"),
    case(ops.MeanVarianceNormalization(("seq",)), "batch=32 seq=3 feat=16"),
    # panels of queries and columns that are full or not, masks, and heads that share keys
    case(MASKED, *FEW),
    case(MASKED, *MANY),
    case(MASKED, "Q=1 F=4", "K=1 F=4", "K=1 V=4"),
    *(case(MASKED, *MANY, mask) for mask in ("B=2 K=37", "Q=70 K=37", "?Q=70 K=37")),
    case(MASKED, *MANY, "?B=2 K=37", "H=2 Q=1"),
    case(MASKED, "B=2 H=4 Q=9 F=16", "B=2 H=1 K=11 F=16", "H=4 K=11 V=8"),
    case(ops.Attention("F", "K", 0.3), *LONG),
    case(ops.Attention("F", "K", zero=True), "Q=3 P=2 F=4", "K=5 F=4", "K=5 V=4", refused="eigen"),
    *_binaries(ops.Mul),
    case(ops.RMSNormalization(("feat",)), SEQUENCES, "!+feat=33"),
    case(ops.RMSNormalization(("H", "W"), 1e-3), IMAGE, "!C=17"),
    case(ops.Requantize(), f"${IMAGE}", "!+C=17", "!#"),
    case(ops.Requantize("s8"), f"${IMAGE}", "+"),
    case(ops.Rename((("C", "K"),)), IMAGE),
    case(ops.Rename((("A", "B"), ("B", "A"))), "A=3 B=4"),
    case(ops.Reshape((("N", 2), ("F", 255))), "N=2 C=17 H=5 W=3"),
    case(ops.Reshape((("N", 0), ("F", 51))), "N=0 C=17 H=1 W=3"),
    case(ops.Reshape((("A", 1), ("B", 6), ("C", 2))), "A=4 B=3"),
    *images(ops.Softmax(("C",))),
    case(ops.Softmax(("C",)), "N=1 C=1000"),
    case(ops.Softmax(("C", "H", "W")), "N=2 C=1000 H=1 W=1"),
    case(ops.Softmax(("seq",)), "batch=2 head=3 seq=7 feat=5"),
    case(ops.Softmax(("C", "H", "W")), "N=2 C=3 H=2 W=2", refused="onednn"),
    *images(ops.Times(-0.5)),
    case(ops.Times(2), SEQUENCES),
    case(ops.Times(3.0), ""),
]


def by_operator(rows: Iterable[Case]) -> dict[str, list[Case]]:
    """Return cases by the names of their operators."""
    cases = defaultdict[str, list[Case]](list)
    for row in rows:
        cases[type(row.op).__name__].append(row)
    return dict(cases)


CASES = by_operator([*ROWS, *(case(op, *inputs, refused=no) for op, inputs, no in ELEMENTWISE)])

#: By how much an f32 result may be off, as a part of the largest value; what is absent is 1e-6.
BOUNDS = dict.fromkeys(("Conv1D", "Conv2D", "Conv3D", "ConvTranspose", "DepthwiseConv2D"), 1e-5)
BOUNDS |= dict.fromkeys(("Attention", "LayerNormalization", "LRN", "MatMul"), 1e-5)
BOUNDS |= {"Softmax": 5e-6, **ELEMENTWISE_BOUNDS}

#: Half a unit in the last place of narrow types.
ROUNDING = {"bf16": 2.0**-8, "f16": 2.0**-11}
#: How often they are rounded to on the way to a result, itself included; what is absent is twice.
#: The definition of Softmax rounds exponents too, whose size multiplies the error. A number between
#: two of the 255 steps of a quantisation falls to either.
ROUNDINGS = {"Softmax": 8, "DynamicQuantizeLinear": 9}


#: Of libraries whose arithmetic is not that of sums: the worst form that they have.
INEXACT = {"winograd": 2e-5}


def bound(op: str, dtype: str, library: str = "") -> float:
    """By how much a result of an operator may be off, as a part of the largest value."""
    return max(
        INEXACT.get(library, 0.0),
        BOUNDS.get(op, 1e-6),
        ROUNDINGS.get(op, 2) * ROUNDING.get(dtype, 0.0),
    )


import tests.operators.tables.cases_sampling  # noqa: E402
import tests.operators.tables.cases_shape  # noqa: E402, F401  # more rows of CASES
