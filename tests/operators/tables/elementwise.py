"""Rows of the table of cases for operators that work element by element.

A row is an operator, its inputs, and the libraries that must decline it. An operator on one operand
needs none if its parameters have defaults.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

import numpy as np

import ops
from libdesc.registry import registry
from vtensor.language.operators import OPERATORS

Row = tuple[Any, tuple[str, ...], str]

IMAGES = tuple(f"N=2 C={channels} H=5 W=6" for channels in (3, 17, 32))


def flagged(flags: str, values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return values of the kind that the flags ask for."""
    kinds: dict[str, np.ndarray[Any, Any]] = {
        "~": np.sin(values) * 0.9,
        ">": np.abs(values) + 1,
        "%": (np.abs(values) + 1) / 256,
        "#": np.floor(np.abs(values)) % 4 + 1,
        "@": np.floor(values),
        "?": np.greater(values, 0),
    }
    return kinds.get(flags[-1:], values)


def unary(op: Any, flag: str = "", refused: str = "") -> list[Row]:
    """Return rows of images with and without pads, a row and a scalar; the flag marks values."""
    return [(op, (flag + text,), refused) for text in (*IMAGES, "batch=2 seq=7 feat=33", "")]


def binary(
    op: Any, refused: str = "", flags: tuple[str, str] = ("", ""), grows: bool = True
) -> list[Row]:
    """Return rows of operands alike, one repeated, both repeated.

    Libraries ``refused`` decline a repeated first operand. ``grows=False`` is for operators whose
    first operand has all the dims already.
    """
    pairs = [(image, image) for image in IMAGES]
    pairs += [(IMAGES[1], "C=17"), ("A=3 B=4", "A=3 B=4"), ("A=7", "")]
    repeated = [("C=17 H=1", IMAGES[1]), ("N=2 C=3 H=1 W=1", "N=1 C=3 H=4 W=5")]
    repeated += [("A=3 B=4", "B=4 C=5")]
    rows = [(pair, "") for pair in pairs] + [(pair, refused) for pair in repeated if grows]
    return [(op, (flags[0] + a, flags[1] + b), declined) for (a, b), declined in rows]


def _several(image: str) -> Iterator[Row]:
    """Yield rows of an image for operators with several operands, or along a dim."""
    yield ops.Where(), (f"?{image}", image, image), ""
    yield ops.Where(), ("?H=5 W=6", image, ""), ""
    yield ops.MeanOf(), (image, image, "H=5 W=6"), ""
    yield ops.BitCast("u64"), (f"{image} <5",), ""
    yield ops.QuantizeLinear("s8"), (image, "+"), ""
    yield ops.QuantizeLinear(), (image, "+H=1 W=6", "#H=1 W=6"), ""
    yield ops.DequantizeLinear(), (f"#{image}", "+", "#"), ""
    yield ops.DequantizeLinear("f64"), (f"#{image}", "+H=5 W=1"), "eigen"
    for op in (ops.DequantizedAdd(), ops.DequantizedMul()):
        yield op, (f"#{image}", "+", "#", f"#{image}", "+", "#"), ""
        yield op, (f"#{image}", "+", "#", "#C=1 W=6", "+W=6", "#"), ""
    yield ops.LogSoftmax(("C",)), (image,), ""
    yield ops.Hardmax(("C",)), (image,), ""


def _along(cls: Any, refused: str = "") -> list[Row]:
    sizes = "N=2 C=3 H=2 W=2"
    return [
        (cls(("C",)), ("N=1 C=1000",), ""),
        (cls(("seq",)), ("batch=2 head=3 seq=7 feat=5",), ""),
        (cls(("C", "H", "W")), (sizes,), refused),
    ]


def standard() -> Iterator[Any]:
    """Yield our element-wise operators on one operand of f32, made without parameters."""
    invokers = registry().invokers
    for name in ours():
        info, types = OPERATORS[name], invokers[name, "numpy", "cpu"].dtypes
        alone = info.elementwise and len(info.inputs) == 1 and not info.many
        optional = all(part.default is not MISSING for part in fields(info.cls))
        if alone and optional and "f32" in types.get("x", types.get("", {"f32"})):
            yield info.cls()


def ours() -> list[str]:
    """Return the names of VTensor's own operators."""
    return [name for name in dir(ops) if Path(OPERATORS[name].file).parent.name == "ops"]


_NARROW = ("s4", "u2", "f8e4m3fn", "f8e5m2fnuz", "f6e3m2", "f4e2m1")
_SMALL = ("#", "#")
_TRUTH = ("?", "?")

#: For operators that ``standard`` does not make, or that not every value suits.
ROWS: list[Row] = [
    *(row for op in (ops.Sqrt(), ops.Log(), ops.Reciprocal()) for row in unary(op, "+")),
    *(row for op in (ops.Asin(), ops.Acos(), ops.Atanh()) for row in unary(op, "~")),
    *unary(ops.Acosh(), ">"),
    *unary(ops.Not(), "?"),
    *unary(ops.BitwiseNot(), "#"),
    *(
        row
        for op in (
            *(ops.IsInf(), ops.IsInf(detect_negative=False)),
            *(ops.LeakyRelu(), ops.LeakyRelu(0.3), ops.Elu(), ops.Elu(0.3), ops.Celu()),
            *(ops.Shrink(0.7, 0.2), ops.Gelu(), ops.Gelu("tanh"), ops.Swish(), ops.Swish(1.7)),
            *(ops.Clip(-1.5, 2.0), ops.Clip(1.0), ops.Clip(high=-1.0)),
            *(ops.Cast(to) for to in ("f16", "bf16", "s32", "bool", *_NARROW)),
        )
        for row in unary(op)
    ),
    (ops.Celu(2.0), IMAGES[1:2], "onednn"),
    *unary(ops.Cast("f64"), refused="eigen"),
    *(
        row
        for way in ("up", "down", "nearest")
        for row in unary(ops.Cast("f8e8m0", True, way), "+", "eigen")
    ),
    *(row for image in IMAGES for row in _several(image)),
    (ops.Where(), ("?A=3 B=4", "B=4 C=5", "A=1"), ""),
    (ops.MeanOf(), ("A=3 B=4", "B=4 C=5"), ""),
    (ops.MeanOf(), ("A=3",), ""),
    (ops.QuantizeLinear("u16"), (IMAGES[1], "+C=17"), ""),
    *((ops.QuantizeLinear(to), (IMAGES[1], "+C=17"), "") for to in _NARROW),
    (ops.QuantizeLinear("u4", "f16"), ("", "+"), ""),
    *((ops.QuantizeLinear("u8", p), (IMAGES[1], "+C=17"), "") for p in ("f16", "bf16")),
    (ops.DequantizeLinear("bf16"), ("#A=3 B=4", "+B=4"), ""),
    *_along(ops.LogSoftmax, "onednn"),
    *_along(ops.Hardmax),
    *binary(ops.PRelu(), "onednn"),
    (ops.PRelu(), ("N=7 C=5 H=3 W=3",) * 2, ""),  # two threads part it inside a block
    *binary(ops.Sub(), "onednn"),
    *binary(ops.Div(), "onednn", flags=("", "+")),
    *binary(ops.Pow(), flags=("+", "")),
    *(row for op in (ops.Max(), ops.Min(), ops.Greater(), ops.Less()) for row in binary(op)),
    *(row for op in (ops.GreaterOrEqual(), ops.LessOrEqual()) for row in binary(op)),
    *(
        row
        for op in (
            *(ops.Mod(), ops.Equal(), ops.BitwiseAnd(), ops.BitwiseOr(), ops.BitwiseXor()),
            *(ops.BitShift("LEFT"), ops.BitShift("RIGHT")),
        )
        for row in binary(op, flags=_SMALL)
    ),
    *binary(ops.Mod(True), flags=("+", "+")),
    *(row for op in (ops.And(), ops.Or(), ops.Xor()) for row in binary(op, flags=_TRUTH)),
]

#: What needs no row: any image does.
EVERYWHERE = [op for op in standard() if type(op) not in {type(row[0]) for row in ROWS}]

ELEMENTWISE = [*ROWS, *(row for op in EVERYWHERE for row in unary(op))]

#: By how much an f32 result may be off, where not by 1e-6.
#: Shrink takes away a parameter, which may leave little of an element.
ELEMENTWISE_BOUNDS = {"LogSoftmax": 5e-6, "Cast": 5e-3, "Pow": 5e-6, "Shrink": 5e-6}
#: They subtract 1 from an exponential that is near it.
ELEMENTWISE_BOUNDS |= {"Celu": 1e-5, "Elu": 1e-5}
