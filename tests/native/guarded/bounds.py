"""Bounds behind products: each against the same product without, whose result NumPy bounds."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Mapping
from itertools import product
from math import inf, nan

import numpy as np

from libdesc.onednn import _onednn as dnn
from tests.native.packing import FORMS, Array, Form, buffers, offsets, pads, plain, random, unpack
from vtensor.language.dtype import numpy_dtype
from vtensor.runtime import _replay

#: From a form, a type and an attribute.
Make = Callable[[Form, str, dnn.Attr], dnn.Primitive]

WINDOW = ((1, 1), (1, 1), (1, 1), (1, 1))
#: Threads, and the upper bound.
TEAMS = ((1, inf), (2, 2.7))
#: What the first and the last element of src are; oneDNN's sums overflow from the second on.
SPECIAL: Mapping[str, tuple[float, float]] = {
    "ordinary": (1, 1),
    "overflow": (3e38, 1),
    "NaN": (1, nan),
    "both": (3e38, nan),
    "infinity": (inf, 1),
    "negative infinity": (-inf, -inf),
}


def window(kind: str, src: tuple[int, ...], weights: tuple[int, ...], dst: tuple[int, ...]) -> Make:
    """Make convolutions or deconvolutions of 3 x 3 with pads of 1."""

    def make(form: Form, dtype: str, attr: dnn.Attr) -> dnn.Primitive:
        descs = form(src, dtype), dnn.Desc.any(weights, dtype), None, form(dst, dtype)
        primitive: dnn.Primitive = getattr(dnn, kind)(*descs, *WINDOW, attr)
        return primitive

    return make


def inner_product(form: Form, dtype: str, attr: dnn.Attr) -> dnn.Primitive:
    """Make one of matrices, whatever the form."""
    src, weights = plain((70, 40), dtype), dnn.Desc.any((70, 40), dtype)
    return dnn.inner_product(src, weights, None, plain((70, 70), dtype), attr)


def matmul(form: Form, dtype: str, attr: dnn.Attr) -> dnn.Primitive:
    """Make one of stacks of matrices, whatever the form."""
    matrix = plain((3, 40, 40), dtype)
    return dnn.matmul(matrix, matrix, None, matrix, attr)


#: Results of more than one block, which are searched where a flag says so, and smaller ones.
LEADS: dict[str, Make] = {
    "convolution": window("convolution", (2, 20, 12, 12), (18, 20, 3, 3), (2, 18, 12, 12)),
    "small convolution": window("convolution", (1, 20, 5, 5), (18, 20, 3, 3), (1, 18, 5, 5)),
    "depthwise": window("convolution", (2, 20, 12, 12), (20, 1, 1, 3, 3), (2, 20, 12, 12)),
    "deconvolution": window("deconvolution", (2, 20, 12, 12), (18, 20, 3, 3), (2, 18, 12, 12)),
    "inner product": inner_product,
    "matmul": matmul,
}


def execute(primitive: dnn.Primitive, inputs: Mapping[str, Array]) -> tuple[Array, Array]:
    """Return the values of dst, and its pads."""
    memory = buffers(primitive, inputs)
    _replay.execute(primitive, memory)
    dst, desc = memory[primitive.slots.index("dst")], primitive.descs["dst"]
    return unpack(dst, desc).astype(np.float64), pads(dst, desc).astype(np.float64)


def bounded(values: Array, high: float, dtype: str) -> Array:
    """Bound values as the definition does; the bound as the type has it."""
    most = np.float64(numpy_dtype(dtype).type(high))
    return np.where(np.isnan(values), values, np.clip(values, 0, most))


def operands(primitive: dnn.Primitive, special: str) -> dict[str, Array]:
    """Return inputs of either sign; what is special is in src."""
    rng = np.random.default_rng(0)
    src, weights = (random(rng, *primitive.descs[name].dims) for name in ("src", "weights"))
    src.flat[0], src.flat[-1] = SPECIAL[special]
    weights += np.where(weights < 0, -1.5, 1.5).astype(np.float32)
    return {"src": src, "weights": weights}


def wrong(make: Make, form: Form, dtype: str, high: float, attr: dnn.Attr) -> Iterator[str]:
    """Yield the faults of one primitive on everything special, each run three times."""
    primitive, plainly = make(form, dtype, attr), make(form, dtype, dnn.Attr())
    for special in SPECIAL:
        inputs = operands(primitive, special)
        with np.errstate(all="ignore"):
            values, left = execute(plainly, inputs)
            expected = bounded(values, high, dtype)
        if special == "overflow" and not (values == -inf).any():
            yield f"{special}: nothing overflows"
        for _ in range(3):
            result, rest = execute(primitive, inputs)
            if not np.array_equal(result, expected, equal_nan=True):
                at = (result != expected) & ~(np.isnan(result) & np.isnan(expected))
                yield f"{special}: {result[at][0]}, not {expected[at][0]}"
            if not np.array_equal(rest, left, equal_nan=True):
                yield f"{special}: the pads are others"


def searched(make: Make, form: Form, dtype: str, attr: dnn.Attr) -> Iterator[str]:
    """Yield faults of what is searched: nothing for ordinary numbers, once for an earlier flag."""
    primitive, root = make(form, dtype, attr), dnn.eltwise("sqrt", plain((64,)), plain((64,)))
    inputs = operands(primitive, "ordinary")
    expected, _ = execute(primitive, inputs)  # takes all flags there are
    before = dnn.bounds_info()
    execute(primitive, inputs)
    if dnn.bounds_info() != before:
        yield f"ordinary numbers cost {dnn.bounds_info()}, before {before}"
    # NumPy lowers flags itself, so that it must do nothing between the two
    roots, memory = buffers(root, {"src": -np.ones(64)}), buffers(primitive, inputs)
    _replay.execute(root, roots)
    _replay.execute(primitive, memory)
    desc = primitive.descs["dst"]
    result = unpack(memory[primitive.slots.index("dst")], desc).astype(np.float64)
    after = dnn.bounds_info()
    if not np.array_equal(result, expected) or after["repeats"] != before["repeats"]:
        yield "a flag of an earlier step makes a difference"
    if after["searches"] != before["searches"] + (offsets(desc).size > 4096):
        yield f"a flag of an earlier step costs {after}, before {before}"


def cases(_: str, cap: str, *__: int) -> Iterator[tuple[str, list[str]]]:
    """Run every product with bounds that oneDNN has."""
    dnn.limit_isa(cap)
    team = ctypes.CDLL("libgomp.so.1")
    for (threads, high), lead, form, dtype in product(TEAMS, LEADS, FORMS, ("f32", "bf16")):
        if LEADS[lead] in (inner_product, matmul) and form is not plain:
            continue
        team.omp_set_num_threads(threads)
        call = LEADS[lead], form, dtype
        attr = dnn.Attr().bounds(high)
        try:
            faults = [*wrong(*call, high, attr), *searched(*call, attr)]
        except dnn.Unimplemented:
            continue
        what = f"{lead}, {form.__name__}, {dtype}, at most {high}, {threads} threads"
        yield lead, [f"{what}: {fault}" for fault in faults]
