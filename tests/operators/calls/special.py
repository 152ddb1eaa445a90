"""Faults at the ends of each float type: element-wise operators alone and fused, and softmaxes.

Each call is compared with the definition in a wider type; ``capped.py`` does it under caps.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any

import ml_dtypes
import numpy as np

from libdesc.registry import registry
from ops import Conv2D, LogSoftmax, MatMul, Softmax, Times
from ops._elementwise import ROWS
from ptensor.layout import Layout
from tests.operators.calls.levels import check_same
from tests.operators.harness import Array, Given, definition, plain, run
from tests.operators.tables.cases import BOUNDS, CASES, IMAGES, dims_of
from vtensor.errors import NoInvokerError, VTensorError
from vtensor.language.dtype import numpy_dtype
from vtensor.language.operators import OPERATORS

#: NumPy's knows no bf16.
finfo: Any = ml_dtypes.finfo

LIBRARIES = ("onednn", "eigen", "numpy")
TYPES = ("f32", "bf16", "f16", "f64")
NUMBERS = (np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0, 0.5, -7.25, 20.0, -88.5, 105.0, -3e4)

#: Of integers made of floats beyond them; a mean whose sum is infinite; parameters of other dims;
#: slopes that oneDNN multiplies by 0 (see ``levels.KNOWN``); sums and products of integers, each
#: with its scale and zero point, whose combinations of numbers would fill gigabytes.
LEFT_OUT = (
    *("Cast", "BitCast", "QuantizeLinear", "MeanOf", "BatchNorm", "PRelu"),
    *("DequantizedAdd", "DequantizedMul"),
)
#: How far a result may be from 0 where an approximation cuts off a tail.
TAILS = {"Gelu": 1e-11, "Mish": 1e-6, "Swish": 1e-36}

#: Operators that others are fused behind, and where their outputs are the numbers given.
LEADS: dict[str, Any] = {"times": ..., "matmul": np.s_[:, -1], "convolution": np.s_[0, -1, 0]}
ROWS_OF = (
    ("A=70", "A"),
    ("A=5 B=1", "B"),
    ("A=5 B=1000", "A"),
    ("A=5 B=1000", "B"),
    ("A=2 B=3 C=70 D=80", "C"),
    *(("N=2 C=17 H=5 W=4", dim) for dim in "NCHW"),
    *(("N=2 C=32 H=5 W=4", dim) for dim in "NCHW"),
)


def operators() -> Iterator[tuple[str, Any]]:
    """Yield element-wise operators, an instance for each set of parameters that is tested."""
    registry()
    for name, info in sorted(OPERATORS.items()):
        if info.elementwise and name in CASES and name not in LEFT_OUT:
            yield from ((name, op) for op in dict.fromkeys(case.op for case in CASES[name]))


def numbers(dtype: str) -> Array:
    """Return a type's ends, and numbers near enough to them that squares or sums overflow."""
    info = finfo(numpy_dtype(dtype))
    largest = float(info.max)
    ends = [largest, largest / 2, largest**0.5, float(info.tiny), float(info.smallest_subnormal)]
    return np.array([*NUMBERS, *ends, *(-end for end in ends)]).astype(numpy_dtype(dtype))


def wide(op: Any, inputs: Sequence[Given]) -> Array:
    """Return what an operator's definition says in a type that has no such ends."""
    row = ROWS.get(type(op).__name__)
    with np.errstate(all="ignore"):
        if row is not None and inputs[0].array.dtype == np.float64:
            try:
                return np.asarray(row[0](op, *(x.array.astype(np.longdouble) for x in inputs)))
            except VTensorError:
                pass
        return definition(op, inputs)[0]


def difference(found: Array, wide_result: Array, name: str) -> str:
    """Say which elements differ; empty if none does."""
    with np.errstate(all="ignore"):
        wanted = wide_result.astype(found.dtype)
        if found.dtype.kind in "biu":
            differs = found != wanted
        else:
            info = finfo(found.dtype)
            bound = max(BOUNDS.get(name, 1e-6), 4 * float(info.eps))
            a, b = found.astype(np.float64), wanted.astype(np.float64)
            near = np.abs(a - b) <= bound * np.abs(b) + max(TAILS.get(name, 0), float(info.tiny))
            differs = ~(near & np.isfinite(b)) & (a != b) & ~(np.isnan(a) & np.isnan(b))
    places = np.flatnonzero(differs)[:3]
    return "".join(f" [{i}] {found[i]}, not {wanted[i]}" for i in places)


def faults_alone(library: str) -> Iterator[str]:
    """Yield, for each call of an operator alone, what is wrong with it; empty if nothing is."""
    for name, op in operators():
        info = OPERATORS[name]
        count = 2 if info.many else len(info.inputs)
        for dtype in TYPES if (name, library, "cpu") in registry().invokers else ():
            grid = np.meshgrid(*[numbers(dtype)] * count, indexing="ij")
            inputs = [plain(operand.reshape(-1), "N") for operand in grid]
            try:
                [result] = run(library, op, inputs).values
            except NoInvokerError:
                continue
            fault = difference(result, wide(op, inputs), name)
            yield f"{op} of {dtype}:{fault}" if fault else ""


def lead(kind: str, values: Array) -> tuple[object, list[Given]]:
    """Return an operator and inputs whose result is the values, in each column or channel."""
    count = len(values)
    if kind == "times":
        return Times(1.0), [plain(values, "N")]
    ones = np.ones((32, 64) if kind == "matmul" else (64, 32, 1, 1), values.dtype)
    spread = np.zeros((count, 32), values.dtype)
    spread[:, 0] = values
    if kind == "matmul":
        return MatMul("K"), [plain(spread, "M K"), plain(ones, "K N", constant=True)]
    image = plain(spread.T.reshape(1, 32, 1, count).copy(), "N C H W")
    return Conv2D(), [image, plain(ones, "O I h w", constant=True)]


def faults_behind(library: str) -> Iterator[str]:
    """Yield, for each operator fused behind another, what is wrong with it; empty if nothing is."""
    on_one = [(name, op) for name, op in operators() if len(OPERATORS[name].inputs) == 1]
    on_one = [row for row in on_one if not OPERATORS[row[0]].many and not hasattr(row[1], "to")]
    for kind in LEADS if library == "onednn" else ("times",):
        for dtype, (name, op) in product(TYPES, on_one):
            known = registry().invokers[name, "numpy", "cpu"].dtypes
            if dtype not in known.get("x", known.get("", (dtype,))):
                continue
            values = numbers(dtype)
            if kind != "times" and dtype == "bf16":  # processors take subnormal factors for zeros
                tiny = float(finfo(values.dtype).tiny)
                values = values[(values == 0) | ~(np.abs(values.astype(np.float64)) < tiny)]
            first, inputs = lead(kind, values)
            try:
                [result] = run(library, first, inputs, [(op, 0)]).values
            except NoInvokerError:
                continue
            fault = difference(result[LEADS[kind]], wide(op, [plain(values, "N")]), name)
            yield f"{op} of {dtype} behind {kind}:{fault}" if fault else ""


def spoilt_rows(text: str, axis: str, dtype: str, layout: str) -> Given:
    """Return rows of numbers along an axis; some hold a NaN or an infinity, each at its place."""
    sizes = dims_of(text)
    values = np.random.default_rng(3).normal(size=[*sizes.values()]) * 5
    rows = np.moveaxis(values, list(sizes).index(axis), -1)
    length = rows.shape[-1]
    for i, index in enumerate(np.ndindex(rows.shape[:-1])):
        row, place = rows[index], i * 7 % length
        kind = i % 6 if rows.ndim > 1 else 0
        if kind in (0, 1):
            row[[0, length // 2, length - 1, place][i // 6 % 4]] = np.nan
            row[place] = np.nan if kind else row[place]
        elif kind == 2:
            row[place] = np.inf
        elif kind == 3:
            row[: length - 1] = -np.inf
        elif kind == 4:
            row[...] = -np.inf if i % 12 == 4 else row
    dims = tuple(sizes)
    return Given(values.astype(numpy_dtype(dtype)), dims, Layout(layout or " ".join(dims)))


def faults_in_rows(library: str) -> Iterator[str]:
    """Yield, for each call of a softmax, what is wrong with it; empty if nothing is."""
    for (text, axis), dtype in product(ROWS_OF, TYPES):
        for layout, cls in product(IMAGES if "W" in text else ("",), (Softmax, LogSoftmax)):
            op, given = cls((axis,)), spoilt_rows(text, axis, dtype, layout)
            try:
                [result] = run(library, op, [given]).values
            except NoInvokerError:
                continue
            with np.errstate(all="ignore"):
                [wanted] = definition(op, [given])
            try:
                check_same(result, wanted, max(1e-6, 4 * float(finfo(result.dtype).eps)))
            except AssertionError as fault:
                yield f"{op} of {dtype} {text} from {layout}: {fault}"
            else:
                yield ""
