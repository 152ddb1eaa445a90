"""Rows of the table of cases for operators that work element by element.

A row is an operator, its inputs, and the libraries that must decline it. An operator on one operand
whose parameters have defaults needs none.
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

Row = tuple[Any, tuple[str, ...], tuple[str, ...]]

IMAGES = tuple(f"N=2 C={channels} H=5 W=6" for channels in (3, 17, 32))


def flagged(flags: str, values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Values of the kind that the flags ask for."""
    kinds: dict[str, np.ndarray[Any, Any]] = {
        "~": np.sin(values) * 0.9,
        ">": np.abs(values) + 1,
        "#": np.floor(np.abs(values)) % 4 + 1,
        "?": np.greater(values, 0),
    }
    return kinds.get(flags[-1:], values)


def unary(*instances: Any, flag: str = "", refused: tuple[str, ...] = ()) -> list[Row]:
    """Images with and without pads, a row and a scalar; the flag says where values lie."""
    texts = (*IMAGES, "batch=2 seq=7 feat=33", "")
    return [(op, (f"{flag}{text}",), refused) for op in instances for text in texts]


def binary(
    op: Any, *refused: str, flags: tuple[str, str] = ("", ""), grows: bool = True
) -> list[Row]:
    """Operands alike, one repeated, both repeated; ``refused`` decline a repeated first one.

    ``grows=False`` is for operators whose first operand has all the dims already.
    """
    pairs = [(image, image) for image in IMAGES]
    pairs += [(image, "C=17") for image in IMAGES[1:2]]
    pairs += [("A=3 B=4", "A=3 B=4"), ("A=7", "")]
    odd = (
        []
        if not grows
        else [
            ("C=17 H=1", IMAGES[1]),
            ("N=2 C=3 H=1 W=1", "N=1 C=3 H=4 W=5"),
            ("A=3 B=4", "B=4 C=5"),
        ]
    )
    rows = [(pair, ()) for pair in pairs] + [(pair, refused) for pair in odd]
    return [(op, (flags[0] + a, flags[1] + b), declined) for (a, b), declined in rows]


#: Element types that only NumPy computes in.
_RARE = ("f64", "s4", "f8e4m3fn", "f8e5m2fnuz", "f6e3m2", "f4e2m1")


def _where() -> Iterator[Row]:
    for image in IMAGES:
        yield ops.Where(), (f"?{image}", image, image), ()
        yield ops.Where(), ("?H=5 W=6", image, ""), ()
    yield ops.Where(), ("?A=3 B=4", "B=4 C=5", "A=1"), ()


def _means() -> Iterator[Row]:
    for image in IMAGES:
        yield ops.MeanOf(), (image, image, "H=5 W=6"), ()
    yield ops.MeanOf(), ("A=3 B=4", "B=4 C=5"), ()
    yield ops.MeanOf(), ("A=3",), ()


def _quantised() -> Iterator[Row]:
    for image in IMAGES:
        yield ops.QuantizeLinear("s8"), (image, "+"), ()
        yield ops.QuantizeLinear(), (image, "+H=1 W=6", "#H=1 W=6"), ()
    for to in ("s4", "u2", "u16", "f8e4m3fn", "f4e2m1"):
        refused = () if to == "u16" else ("eigen",)
        yield ops.QuantizeLinear(to), (IMAGES[1], "+C=17"), refused
    yield ops.QuantizeLinear("u4", "f16"), ("", "+"), ("eigen",)
    for precision in ("f16", "bf16"):
        yield ops.QuantizeLinear("u8", precision), (IMAGES[1], "+C=17"), ()


def _dequantised() -> Iterator[Row]:
    for image in IMAGES:
        yield ops.DequantizeLinear(), (f"#{image}", "+", "#"), ()
        yield ops.DequantizeLinear("f64"), (f"#{image}", "+H=5 W=1"), ("eigen",)
    yield ops.DequantizeLinear("bf16"), ("#A=3 B=4", "+B=4"), ()


def _along(cls: Any, *refused: str) -> Iterator[Row]:
    for image in IMAGES:
        yield cls(("C",)), (image,), ()
    yield cls(("C",)), ("N=1 C=1000",), ()
    yield cls(("seq",)), ("batch=2 head=3 seq=7 feat=5",), ()
    yield cls(("C", "H", "W")), ("N=2 C=3 H=2 W=2",), refused


def standard() -> Iterator[Any]:
    """Our operators that are element-wise on one operand of f32, made without parameters."""
    found = registry()
    for name in ours():
        info, types = OPERATORS[name], found.invokers[name, "numpy", "cpu"].dtypes
        alone = info.elementwise and len(info.inputs) == 1 and not info.many
        optional = all(part.default is not MISSING for part in fields(info.cls))
        if alone and optional and "f32" in types.get("x", types.get("", {"f32"})):
            yield info.cls()


def ours() -> list[str]:
    """The names of VTensor's own operators."""
    return [name for name in dir(ops) if Path(OPERATORS[name].file).parent.name == "ops"]


#: For operators that ``standard`` does not make, or that not every value suits.
ROWS: dict[str, list[Row]] = {
    "Sqrt": unary(ops.Sqrt(), flag="+"),
    "Log": unary(ops.Log(), flag="+"),
    "Reciprocal": unary(ops.Reciprocal(), flag="+"),
    "Asin": unary(ops.Asin(), flag="~"),
    "Acos": unary(ops.Acos(), flag="~"),
    "Atanh": unary(ops.Atanh(), flag="~"),
    "Acosh": unary(ops.Acosh(), flag=">"),
    "Not": unary(ops.Not(), flag="?"),
    "BitwiseNot": unary(ops.BitwiseNot(), flag="#"),
    "IsInf": unary(ops.IsInf(), ops.IsInf(detect_negative=False)),
    "LeakyRelu": unary(ops.LeakyRelu(), ops.LeakyRelu(0.3)),
    "Elu": unary(ops.Elu(), ops.Elu(0.3)),
    "Celu": [
        *unary(ops.Celu()),
        (ops.Celu(2.0), IMAGES[1:2], ("onednn",)),
    ],
    "Shrink": unary(ops.Shrink(0.7, 0.2)),
    "Gelu": unary(ops.Gelu(), ops.Gelu("tanh")),
    "Swish": unary(ops.Swish(), ops.Swish(1.7)),
    "Clip": unary(ops.Clip(-1.5, 2.0), ops.Clip(1.0), ops.Clip(high=-1.0)),
    "Cast": [
        *unary(*(ops.Cast(to) for to in ("f16", "bf16", "s32", "bool"))),
        *unary(*(ops.Cast(to) for to in _RARE), refused=("eigen",)),
        *unary(
            *(ops.Cast("f8e8m0", True, way) for way in ("up", "down", "nearest")),
            flag="+",
            refused=("eigen",),
        ),
    ],
    "BitCast": [(ops.BitCast("u64"), (f"{image} <5",), ()) for image in IMAGES],
    "Centered": binary(ops.Centered(), flags=("#", "#"), grows=False),
    "QuantizeLinear": list(_quantised()),
    "DequantizeLinear": list(_dequantised()),
    "PRelu": [
        *binary(ops.PRelu(), "onednn"),
        (ops.PRelu(), ("N=7 C=5 H=3 W=3",) * 2, ()),  # two threads part it inside a block
    ],
    "Sub": binary(ops.Sub(), "onednn"),
    "Div": binary(ops.Div(), "onednn", flags=("", "+")),
    "Pow": binary(ops.Pow(), flags=("+", "")),
    "Mod": [
        *binary(ops.Mod(), flags=("#", "#")),
        *binary(ops.Mod(True), flags=("+", "+")),
    ],
    "Max": binary(ops.Max()),
    "Min": binary(ops.Min()),
    "Equal": binary(ops.Equal(), flags=("#", "#")),
    "Greater": binary(ops.Greater()),
    "Less": binary(ops.Less()),
    "GreaterOrEqual": binary(ops.GreaterOrEqual()),
    "LessOrEqual": binary(ops.LessOrEqual()),
    "And": binary(ops.And(), flags=("?", "?")),
    "Or": binary(ops.Or(), flags=("?", "?")),
    "Xor": binary(ops.Xor(), flags=("?", "?")),
    "BitwiseAnd": binary(ops.BitwiseAnd(), flags=("#", "#")),
    "BitwiseOr": binary(ops.BitwiseOr(), flags=("#", "#")),
    "BitwiseXor": binary(ops.BitwiseXor(), flags=("#", "#")),
    "BitShift": [
        *binary(ops.BitShift("LEFT"), flags=("#", "#")),
        *binary(ops.BitShift("RIGHT"), flags=("#", "#")),
    ],
    "Where": list(_where()),
    "MeanOf": list(_means()),
    "LogSoftmax": list(_along(ops.LogSoftmax, "onednn")),
    "Hardmax": list(_along(ops.Hardmax)),
}

#: What needs no row: any image does.
EVERYWHERE = [op for op in standard() if type(op).__name__ not in ROWS]

ELEMENTWISE = ROWS | {type(op).__name__: unary(op) for op in EVERYWHERE}

#: By how much an f32 result may be off, where not by 1e-6.
#: Shrink takes away a parameter, which may leave little of an element.
ELEMENTWISE_BOUNDS = {"LogSoftmax": 5e-6, "Cast": 5e-3, "Pow": 5e-6, "Shrink": 5e-6}
#: They subtract 1 from an exponential that is near it.
ELEMENTWISE_BOUNDS |= {"Celu": 1e-5, "Elu": 1e-5}
