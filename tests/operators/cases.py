"""What each operator is tested on. One that has no row, and needs one, fails its test.

A case is an operator and its inputs as text, ``"N=2 C=17 H=6 W=5"``; ``!`` in front makes a
constant, ``+`` one whose values are positive; ``<5`` among its words makes integers from 0 on.
``~`` is values between -1 and 1, ``>`` above 1, ``#`` small integers that are not 0, ``?`` truth
values.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from typing import Any

import numpy as np

from ops import (
    LRN,
    Add,
    Attention,
    AvgPool,
    BatchNorm,
    BiasAdd,
    Concat,
    Conv1D,
    Conv2D,
    Conv3D,
    ConvTranspose,
    DepthwiseConv2D,
    DynamicQuantizeLinear,
    LayerNormalization,
    LpNormalization,
    LpPool,
    MatMul,
    MaxPool,
    MaxPoolIndices,
    MaxUnpool,
    Mean,
    MeanVarianceNormalization,
    Mul,
    Rename,
    Reshape,
    RMSNormalization,
    Softmax,
    Times,
)
from ptensor.layout import Layout
from tests.operators.elementwise import ELEMENTWISE, ELEMENTWISE_BOUNDS, flagged
from tests.operators.harness import Array, Given, definition
from vtensor.language.dtype import numpy_dtype

#: What may stand in front of an input.
FLAGS = "!+~>#?"

#: The orders in which an image may have been left.
IMAGES = ("NCHW", "NHWC", "NCHW8c", "NCHW16c")
SERIES = ("NCW", "NWC", "NCW16c")
VOLUMES = ("NCDHW", "NDHWC", "NCDHW16c")


@dataclass(frozen=True)
class Case:
    """An operator on inputs.

    ``refused`` names libraries that must decline it; ``reference`` says why a library has no better
    kernel for it.
    """

    op: Any
    inputs: tuple[str, ...]
    refused: tuple[str, ...] = ()
    reference: str = ""

    def __str__(self) -> str:
        return f"{self.op} {' | '.join(self.inputs)}"

    def given(self, layout: str = "", dtype: str = "f32") -> list[Given]:
        """The inputs, the images among them in a layout."""
        random = np.random.default_rng(7)
        types = ("f32" if "+" in text else dtype for text in self.inputs)
        rows = zip(self.inputs, types, strict=True)
        return [input_of(text, layout, own, random) for text, own in rows]

    def layouts(self) -> tuple[str, ...]:
        """Layouts in which the images may lie; none where there is no image."""
        for orders in (IMAGES, SERIES, VOLUMES):
            if any(dims_of(text).keys() == set(Layout(orders[0]).dims) for text in self.inputs):
                return orders
        return ("",)


@lru_cache(maxsize=512)
def expected(case: Case, dtype: str = "f32") -> list[Array]:
    """Return a case's values by its definition; they are the same from every layout."""
    return definition(case.op, case.given(dtype=dtype))


def dims_of(text: str) -> dict[str, int]:
    """The extents in the text of an input.

    >>> dims_of("!+N=2 C=17 <5")
    {'N': 2, 'C': 17}
    """
    words = (word.split("=") for word in text.strip(FLAGS).split() if "<" not in word)
    return {dim: int(size) for dim, size in words}


def input_of(text: str, layout: str, dtype: str, random: np.random.Generator) -> Given:
    """The input that a text says, in a layout where it is an image."""
    dims, flags = dims_of(text), text[: len(text) - len(text.lstrip(FLAGS))]
    if "<" in text:
        places = random.integers(0, int(text.split("<")[1]), tuple(dims.values()))
        return Given(places, tuple(dims), Layout.plain(dims), "!" in flags)
    values = random.uniform(0.5, 1.5, tuple(dims.values()))
    if "+" not in flags:
        values = random.normal(size=tuple(dims.values())) * 3
    values = flagged(flags, values)
    image = bool(layout) and dims.keys() == set(Layout(layout).dims) and "!" not in flags
    where = Layout(layout) if image else Layout.plain(dims)
    own = {"#": "u8", "?": "bool"}.get(flags[-1:], dtype)
    values = np.abs(values) if own[0] == "u" else values
    return Given(values.astype(numpy_dtype(own)), tuple(dims), where, "!" in flags)


def _convolutions() -> Iterator[Case]:
    small, no = "N=2 C=16 H=9 W=8", ("winograd",)
    yield Case(Conv2D(), (small, "!O=32 I=16 h=1 w=1"))
    yield Case(Conv2D(), ("N=2 C=19 H=5 W=7", "!O=37 I=19 h=1 w=1"))
    yield Case(Conv2D(), ("N=1 C=0 H=5 W=7", "!O=32 I=0 h=1 w=1"), ("onednn", *no))
    yield Case(Conv2D(pads=(1, 0, 0, 0)), (small, "!O=32 I=16 h=1 w=1"), no)
    yield Case(Conv2D(pads=(1, 1, 1, 1)), (small, "!O=16 I=16 h=3 w=3"))
    yield Case(Conv2D((2, 2), (3, 3, 3, 3)), ("N=1 C=3 H=20 W=22", "!O=64 I=3 h=7 w=7"))
    yield Case(Conv2D((2, 2), (1, 1, 1, 1)), (small, "!O=16 I=16 h=3 w=3"), no)
    odd = ("N=1 C=17 H=11 W=9", "!O=5 I=17 h=3 w=2")
    yield Case(Conv2D((1, 2), (0, 1, 2, 0), (2, 1)), odd, no)
    yield Case(Conv2D(group=2), ("N=1 C=32 H=6 W=7", "!G=2 O=16 I=16 h=3 w=3"))
    yield Case(Conv2D((1, 1), (1, 1, 1, 1), group=8), (small, "!G=8 O=2 I=2 h=3 w=3"))
    yield Case(Conv2D(group=2), (small, "!G=2 O=16 I=8 h=3 w=3"), no)
    yield Case(Conv2D(group=3), ("N=1 C=15 H=6 W=7", "!G=3 O=7 I=5 h=3 w=3"), no)
    yield Case(Conv2D(), ("N=1 C=64 H=1 W=1", "!O=10 I=64 h=1 w=1"))
    yield Case(Conv2D(), (small, "O=16 I=16 h=3 w=3"), no)
    tall = "N=1 C=16 H=12 W=1"
    yield Case(Conv2D(), (tall, "!O=32 I=16 h=5 w=1"), no)
    yield Case(Conv2D((2, 1), (2, 1, 0, 1), (1, 2)), (tall, "!O=16 I=16 h=3 w=2"), no)
    yield Case(Conv2D(), ("N=0 C=16 H=4 W=4", "!O=8 I=16 h=1 w=1"), refused=("onednn", *no))
    yield Case(Conv2D(pads=(2, 0, 1, 1)), ("N=2 C=19 H=13 W=9", "!O=37 I=19 h=3 w=3"))
    yield Case(Conv2D(pads=(1, 0, 1, 2)), ("N=1 C=5 H=12 W=1", "!O=3 I=5 h=3 w=1"))
    yield Case(Conv2D(pads=(0, 3, 0, 3)), ("N=1 C=16 H=3 W=21", "!O=33 I=16 h=1 w=7"))


def _series() -> Iterator[Case]:
    yield Case(Conv1D(), ("N=2 C=16 W=20", "!O=32 I=16 w=3"))
    yield Case(Conv1D((2,), (3, 3), (2,)), ("N=1 C=17 W=21", "!O=5 I=17 w=3"))
    yield Case(Conv1D(pads=(1, 0), group=2), ("N=1 C=32 W=9", "!G=2 O=16 I=16 w=3"))
    yield Case(Conv1D(group=32), ("N=1 C=32 W=9", "!G=32 O=1 I=1 w=3"))
    yield Case(Conv1D(), ("N=2 C=16 W=20", "O=16 I=16 w=1"))


def _volumes() -> Iterator[Case]:
    small = "N=1 C=16 D=5 H=6 W=7"
    yield Case(Conv3D(), (small, "!O=32 I=16 d=1 h=1 w=1"))
    yield Case(Conv3D(pads=(1,) * 6), (small, "!O=16 I=16 d=3 h=3 w=3"))
    yield Case(
        Conv3D((1, 2, 2), (1, 3, 3, 1, 3, 3)), ("N=1 C=3 D=4 H=9 W=10", "!O=16 I=3 d=3 h=7 w=7")
    )
    yield Case(
        Conv3D((1, 1, 2), (0, 1, 0, 2, 0, 1), (2, 1, 1), 2),
        ("N=2 C=10 D=5 H=6 W=7", "!G=2 O=3 I=5 d=3 h=2 w=2"),
    )


def _transposed() -> Iterator[Case]:
    yield Case(ConvTranspose((2, 2)), ("N=1 C=16 H=5 W=6", "!I=16 O=8 h=2 w=2"))
    yield Case(
        ConvTranspose((2, 1), (1, 0, 0, 1), (1, 2), (1, 0), 2),
        ("N=2 C=6 H=5 W=6", "!G=2 I=3 O=4 h=3 w=2"),
    )
    yield Case(ConvTranspose(), ("N=2 C=3 W=7", "!I=3 O=4 w=3"))
    yield Case(ConvTranspose((2, 2, 2)), ("N=1 C=3 D=3 H=4 W=5", "!I=3 O=4 d=2 h=2 w=2"))


def _depthwise() -> Iterator[Case]:
    same, no = (1, 1, 1, 1), ("winograd",)
    yield Case(DepthwiseConv2D(pads=same), ("N=1 C=32 H=9 W=8", "!G=32 O=1 I=1 h=3 w=3"))
    yield Case(DepthwiseConv2D((2, 1)), ("N=1 C=16 H=9 W=1", "!G=16 O=1 I=1 h=3 w=1"), no)
    yield Case(DepthwiseConv2D((2, 2), same), ("N=2 C=17 H=9 W=8", "!G=17 O=1 I=1 h=3 w=3"))
    yield Case(DepthwiseConv2D(), ("N=1 C=3 H=9 W=8", "!G=3 O=2 I=1 h=5 w=3"), no)
    yield Case(DepthwiseConv2D(), ("N=1 C=0 H=9 W=8", "!G=0 O=2 I=1 h=5 w=3"), ("onednn", *no))


def _pools(cls: Any) -> Iterator[Case]:
    for channels in (3, 17, 32):
        image = f"N=2 C={channels} H=9 W=8"
        yield Case(cls((3, 3), (2, 2), (1, 1, 1, 1)), (image,))
        yield Case(cls((2, 3), (2, 1), (0, 1, 1, 0)), (image,))
        yield Case(cls((9, 8)), (image,))
    yield Case(cls((3, 3), (2, 2), ceil_mode=True), ("N=1 C=16 H=8 W=8",))
    yield Case(cls((3,), (2,), (1, 1)), ("N=2 C=17 W=9",))
    yield Case(cls((2, 3, 2), (1, 2, 2), (0, 1, 0, 1, 1, 0)), ("N=2 C=17 D=5 H=6 W=7",))
    yield Case(cls((5, 6, 7)), ("N=1 C=16 D=5 H=6 W=7",))
    far = "oneDNN's pooling kernels take no dilations"
    yield Case(cls((3, 2), dilations=(2, 3)), ("N=1 C=16 H=9 W=8",), reference=far)


def _binaries(cls: Any) -> Iterator[Case]:
    for channels in (3, 17, 32):
        image = f"N=2 C={channels} H=5 W=6"
        yield Case(cls(), (image, image))
        yield Case(cls(), (image, f"!C={channels}"))
        yield Case(cls(), (f"C={channels} H=1", image))
        yield Case(cls(), (image, "H=5 W=6"))
    yield Case(cls(), ("N=2 C=3 H=1 W=1", "N=1 C=3 H=4 W=5"), refused=("onednn",))
    yield Case(cls(), ("A=3 B=4", "B=4 C=5"), refused=("onednn",))
    yield Case(cls(), ("A=3 B=4", "A=3 B=4"))
    yield Case(cls(), ("A=7", "!"))
    # One element along a dim that lies elsewhere than oneDNN numbers it.
    yield Case(cls(), ("H=1 N=33 W=3", "W=1"))
    yield Case(cls(), ("N=3 H=1 C=7 W=8", "!C=7"))


def _concats() -> Iterator[Case]:
    for one, other in ((3, 17), (16, 32), (64, 64)):
        images = (f"N=2 C={one} H=5 W=6", f"N=2 C={other} H=5 W=6")
        yield Case(Concat("C"), images)
    yield Case(Concat("H"), ("N=2 C=17 H=5 W=6", "N=2 C=17 H=1 W=6", "N=2 C=17 H=2 W=6"))
    yield Case(Concat("seq"), ("batch=2 seq=7 feat=33", "batch=2 seq=1 feat=33"))
    yield Case(Concat("C"), ("N=2 C=8 H=5 W=6",))


def _products() -> Iterator[Case]:
    yield Case(MatMul("K"), ("M=8 K=96", "!K=96 N=40"))
    yield Case(MatMul("K"), ("M=8 K=96", "!N=40 K=96"))
    yield Case(MatMul("K"), ("K=96 M=1", "!N=1000 K=96"))
    yield Case(MatMul("K"), ("M=9 K=31", "K=31 N=17"))
    yield Case(MatMul("K"), ("!M=9 K=31", "K=31 N=17"))
    yield Case(MatMul("K"), ("B=3 M=9 K=31", "B=3 K=31 N=17"))
    yield Case(MatMul("K"), ("B=3 M=9 K=31", "!K=31 N=17"))
    yield Case(MatMul("K"), ("B=3 M=9 K=31", "B=1 K=31 N=17"))
    yield Case(MatMul("K"), ("B=3 A=2 M=9 K=16", "B=3 C=5 K=16 N=17"))
    yield Case(MatMul("K"), ("K=96", "!K=96 N=40"))
    yield Case(MatMul("K"), ("K=96", "K=96"))


def _attentions() -> Iterator[Case]:
    """Panels of queries and columns that are full or not, masks, and heads that share keys."""
    op = Attention("F", "K", 0.1, masked=-1e4)
    few = ("B=2 H=3 Q=9 F=16", "B=2 H=3 K=11 F=16", "B=2 H=3 K=11 V=8")
    many = ("B=2 H=2 Q=70 F=20", "B=2 H=2 K=37 F=20", "B=2 H=2 K=37 V=72")
    for operands in (few, many, ("Q=1 F=4", "K=1 F=4", "K=1 V=4")):
        yield Case(op, operands)
    for masks in (["B=2 K=37"], ["Q=70 K=37"], ["?Q=70 K=37"], ["?B=2 K=37", "H=2 Q=1"]):
        yield Case(op, (*many, *masks))
    yield Case(op, ("B=2 H=4 Q=9 F=16", "B=2 H=1 K=11 F=16", "H=4 K=11 V=8"))
    # The last panel of queries, and of values, is half one.
    long = ("H=2 Q=49 F=5", "H=2 K=19 F=5", "H=2 K=19 V=36", "H=2 Q=49 K=19", "Q=49 K=19")
    yield Case(Attention("F", "K", 0.3), long)
    yield Case(Attention("F", "K", zero=True), ("Q=3 P=2 F=4", "K=5 F=4", "K=5 V=4"), ("eigen",))


def _normalizations() -> Iterator[Case]:
    for channels in (3, 17, 32):
        vectors = (f"!+C={channels}",) * 4
        yield Case(BatchNorm(1e-3), (f"N=2 C={channels} H=5 W=6", *vectors))
    yield Case(BatchNorm(), ("N=2 C=17", *("!+C=17",) * 4))
    yield Case(BatchNorm(), ("N=2 C=17 W=9", *("!+C=17",) * 4))
    yield Case(BatchNorm(), ("N=2 C=17 D=3 H=4 W=5", *("!+C=17",) * 4))


def _softmaxes() -> Iterator[Case]:
    for channels in (3, 17, 32):
        yield Case(Softmax(("C",)), (f"N=2 C={channels} H=5 W=6",))
    yield Case(Softmax(("C",)), ("N=1 C=1000",))
    yield Case(Softmax(("C", "H", "W")), ("N=2 C=1000 H=1 W=1",))
    yield Case(Softmax(("seq",)), ("batch=2 head=3 seq=7 feat=5",))
    yield Case(Softmax(("C", "H", "W")), ("N=2 C=3 H=2 W=2",), refused=("onednn",))


def _means() -> Iterator[Case]:
    for channels, keep in product((3, 17, 32), (True, False)):
        yield Case(Mean(("H", "W"), keep), (f"N=2 C={channels} H=7 W=7",))
    yield Case(Mean(("C",)), ("N=2 C=17 H=5 W=6",))
    yield Case(Mean(("feat",), keepdims=False), ("batch=2 seq=7 feat=33",))
    yield Case(Mean(("A", "B"), keepdims=False), ("A=3 B=4",))


CASES: dict[str, list[Case]] = {
    "Add": list(_binaries(Add)),
    "AvgPool": [
        *_pools(AvgPool),
        Case(AvgPool((3, 3), (2, 2), (1, 1, 1, 1), count_include_pad=True), ("N=2 C=17 H=9 W=8",)),
        Case(
            AvgPool((3, 3), (2, 2), (1, 1, 1, 1), ceil_mode=True, count_include_pad=True),
            ("N=2 C=17 H=8 W=8",),
            refused=("onednn", "eigen"),
        ),
    ],
    "BatchNorm": list(_normalizations()),
    "BiasAdd": [
        *(Case(BiasAdd(), (f"N=2 C={c} H=5 W=6", f"!C={c}")) for c in (3, 17, 32)),
        Case(BiasAdd(), ("N=2 C=1000", "!C=1000")),
        Case(BiasAdd(), ("N=2 C=5 H=3", "!H=3")),
    ],
    "Concat": list(_concats()),
    "Conv1D": list(_series()),
    "Conv2D": list(_convolutions()),
    "Conv3D": list(_volumes()),
    "ConvTranspose": list(_transposed()),
    "DepthwiseConv2D": list(_depthwise()),
    "DynamicQuantizeLinear": [
        Case(DynamicQuantizeLinear(), (text,))
        for text in ("N=2 C=17 H=5 W=6", "+A=3 B=4", "", "A=3 B=0")
    ],
    "LRN": [
        *(Case(LRN(5, 1e-2, 0.75, 2.0), (f"N=2 C={c} H=5 W=6",)) for c in (3, 17, 32)),
        *(Case(LRN(3), (f"N=2 C={c} W=6",)) for c in (3, 17, 32)),
        *(Case(LRN(s), ("N=2 C=16 H=5 W=6",), refused=("onednn",)) for s in (4, 2**40 + 1)),
    ],
    "LayerNormalization": [
        Case(LayerNormalization(("feat",)), ("batch=2 seq=7 feat=33", "!+feat=33")),
        Case(LayerNormalization(("C",), 1e-3), ("N=2 C=17 H=5 W=6", "!+C=17")),
        Case(LayerNormalization(("A",)), ("A=64", "+A=64")),
        Case(
            LayerNormalization(("H", "W"), 1e-3), ("N=2 C=17 H=5 W=6", "!C=17"), refused=("onednn",)
        ),
        Case(LayerNormalization(("A", "B")), ("A=3 B=4", "B=4 A=3"), refused=("onednn",)),
    ],
    "LpNormalization": [
        Case(LpNormalization("C", 1), ("N=2 C=17 H=5 W=6",)),
        Case(LpNormalization("feat"), ("batch=2 seq=7 feat=33",)),
    ],
    "LpPool": [*_pools(LpPool), Case(LpPool((2,), p=3), ("N=2 C=17 W=6",))],
    "MatMul": list(_products()),
    "MaxPool": list(_pools(MaxPool)),
    "MaxPoolIndices": list(_pools(MaxPoolIndices)),
    "MaxUnpool": [
        Case(MaxUnpool((2, 2), (2, 2)), ("N=2 C=3 H=4 W=5", "N=2 C=3 H=4 W=5 <480")),
        Case(MaxUnpool((3,), (2,), (1, 0), (12,)), ("N=1 C=4 W=5", "N=1 C=4 W=5 <40")),
        Case(MaxUnpool((2, 2), (2, 2)), ("N=1 C=1 H=9 W=9", "N=1 C=1 H=9 W=9 <400")),
        Case(MaxUnpool((2, 2), (2, 2)), ("N=2 C=16 H=24 W=25", "N=2 C=16 H=24 W=25 <76800")),
    ],
    "Mean": list(_means()),
    "MeanVarianceNormalization": [
        Case(MeanVarianceNormalization(("N", "H", "W")), ("N=2 C=17 H=5 W=6",)),
        Case(MeanVarianceNormalization(("feat",)), ("batch=2 seq=7 feat=33",)),
        Case(MeanVarianceNormalization(("feat",)), ("batch=64 seq=16 feat=3",)),
        Case(MeanVarianceNormalization(("seq",)), ("batch=32 seq=3 feat=16",)),
    ],
    "Attention": list(_attentions()),
    "Mul": list(_binaries(Mul)),
    "RMSNormalization": [
        Case(RMSNormalization(("feat",)), ("batch=2 seq=7 feat=33", "!+feat=33")),
        Case(RMSNormalization(("H", "W"), 1e-3), ("N=2 C=17 H=5 W=6", "!C=17")),
    ],
    "Rename": [
        Case(Rename((("C", "K"),)), ("N=2 C=17 H=5 W=6",)),
        Case(Rename((("A", "B"), ("B", "A"))), ("A=3 B=4",)),
    ],
    "Reshape": [
        Case(Reshape((("N", 2), ("F", 255))), ("N=2 C=17 H=5 W=3",)),
        Case(Reshape((("N", 0), ("F", 51))), ("N=0 C=17 H=1 W=3",)),
        Case(Reshape((("A", 1), ("B", 6), ("C", 2))), ("A=4 B=3",)),
    ],
    "Times": [
        *(Case(Times(-0.5), (f"N=2 C={c} H=5 W=6",)) for c in (3, 17, 32)),
        Case(Times(2), ("batch=2 seq=7 feat=33",)),
        Case(Times(3.0), ("",)),
    ],
    "Softmax": list(_softmaxes()),
}

#: By how much an f32 result may be off, as a part of the largest value; what is absent is 1e-6.
BOUNDS = {"Conv2D": 1e-5, "DepthwiseConv2D": 1e-5, "MatMul": 1e-5, "LRN": 1e-5, "Softmax": 5e-6}
BOUNDS |= {"Conv1D": 1e-5, "Conv3D": 1e-5, "ConvTranspose": 1e-5, "LayerNormalization": 1e-5}
BOUNDS["Attention"] = 1e-5

for _name, _rows in ELEMENTWISE.items():
    CASES[_name] = [Case(op, inputs, refused) for op, inputs, refused in _rows]
BOUNDS |= ELEMENTWISE_BOUNDS

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


import tests.operators.cases_sampling  # noqa: E402
import tests.operators.cases_shape  # noqa: E402, F401  # more rows of CASES
