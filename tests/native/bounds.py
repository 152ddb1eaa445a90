"""A program: bounds behind products, under a cap on instruction sets.

``python -m tests.native.bounds CAP`` prints a line for each fault and, last, how many primitives it
ran: each against the same one without bounds, whose result NumPy bounds. It is a process of its own
because oneDNN fixes its cap at its first use.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Iterator, Mapping
from itertools import product
from math import inf, nan

import numpy as np

from libdesc.onednn import _onednn as dnn
from tests.native.packing import FORMS, Array, buffers, offsets, pads, plain, random, unpack
from vtensor.language.dtype import numpy_dtype
from vtensor.runtime import _replay

Form = Callable[..., dnn.Desc]
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


def window(what: str, src: tuple[int, ...], weights: tuple[int, ...], dst: tuple[int, ...]) -> Make:
    """A convolution or a deconvolution of 3 x 3 with pads of 1."""

    def make(form: Form, dtype: str, attr: dnn.Attr) -> dnn.Primitive:
        descs = form(src, dtype), dnn.Desc.any(weights, dtype), None, form(dst, dtype)
        primitive: dnn.Primitive = getattr(dnn, what)(*descs, *WINDOW, attr)
        return primitive

    return make


def inner_product(form: Form, dtype: str, attr: dnn.Attr) -> dnn.Primitive:
    """Of matrices, whatever the form."""
    src, weights = plain((70, 40), dtype), dnn.Desc.any((70, 40), dtype)
    return dnn.inner_product(src, weights, None, plain((70, 70), dtype), attr)


def matmul(form: Form, dtype: str, attr: dnn.Attr) -> dnn.Primitive:
    """Of stacks of matrices, whatever the form."""
    dims = (3, 40, 40)
    return dnn.matmul(plain(dims, dtype), plain(dims, dtype), None, plain(dims, dtype), attr)


#: Those that take no form.
SAME = ("inner product", "matmul")
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
    """The values of dst, and its pads."""
    memory = buffers(primitive, inputs)
    _replay.execute(primitive, memory)
    dst, desc = memory[primitive.slots.index("dst")], primitive.descs["dst"]
    return unpack(dst, desc).astype(np.float64), pads(dst, desc).astype(np.float64)


def bounded(values: Array, high: float, dtype: str) -> Array:
    """The definition; the bound as the type has it."""
    kept = np.isnan(values)
    return np.where(kept, values, np.clip(values, 0, np.float64(numpy_dtype(dtype).type(high))))


def given(primitive: dnn.Primitive, special: str) -> dict[str, Array]:
    """Inputs of either sign; what is special is in src."""
    rng = np.random.default_rng(0)
    src, weights = (random(rng, *primitive.descs[name].dims) for name in ("src", "weights"))
    src.flat[0], src.flat[-1] = SPECIAL[special]
    weights += np.where(weights < 0, -1.5, 1.5).astype(np.float32)
    return {"src": src, "weights": weights}


def wrong(make: Make, form: Form, dtype: str, high: float, attr: dnn.Attr) -> Iterator[str]:
    """Faults of one primitive on everything special, each run three times."""
    primitive, plainly = make(form, dtype, attr), make(form, dtype, dnn.Attr())
    for special in SPECIAL:
        inputs = given(primitive, special)
        with np.errstate(all="ignore"):
            values, left = execute(plainly, inputs)
            expected = bounded(values, high, dtype)
        if special == "overflow" and not (values == -inf).any():
            yield f"{special}: nothing overflows"
        for _ in range(3):
            found, rest = execute(primitive, inputs)
            if not np.array_equal(found, expected, equal_nan=True):
                at = np.flatnonzero((found != expected) & ~(np.isnan(found) & np.isnan(expected)))
                yield f"{special}: {found.flat[at[0]]}, not {expected.flat[at[0]]}"
            if not np.array_equal(rest, left, equal_nan=True):
                yield f"{special}: the pads are others"


def searched(make: Make, form: Form, dtype: str, attr: dnn.Attr) -> Iterator[str]:
    """Faults of the bookkeeping: ordinary numbers cost nothing, an earlier flag one search."""
    primitive, root = make(form, dtype, attr), dnn.eltwise("sqrt", plain((64,)), plain((64,)))
    inputs = given(primitive, "ordinary")
    expected, _ = execute(primitive, inputs)  # takes all flags there are
    before = dnn.bounds_info()
    execute(primitive, inputs)
    if dnn.bounds_info() != before:
        yield f"ordinary numbers cost {dnn.bounds_info()}, before {before}"
    # NumPy lowers flags itself, so that it must do nothing between the two
    roots, memory = buffers(root, {"src": -np.ones(64)}), buffers(primitive, inputs)
    _replay.execute(root, roots)
    _replay.execute(primitive, memory)
    found = unpack(memory[primitive.slots.index("dst")], primitive.descs["dst"])
    after = dnn.bounds_info()
    if (
        not np.array_equal(found.astype(np.float64), expected)
        or after["repeats"] != before["repeats"]
    ):
        yield "a flag of an earlier step makes a difference"
    many = len(offsets(primitive.descs["dst"]).reshape(-1)) > 4096
    if after["searches"] != before["searches"] + many:
        yield f"a flag of an earlier step costs {after}, before {before}"


def faults() -> Iterator[str]:
    """What is wrong, a line each; the last line counts the primitives."""
    team, count = ctypes.CDLL("libgomp.so.1"), 0
    cases = product(TEAMS, LEADS, FORMS, ("f32", "bf16"))
    for (threads, high), lead, form, dtype in cases:
        if lead in SAME and form is not plain:
            continue
        team.omp_set_num_threads(threads)
        what = f"{lead}, {form.__name__}, {dtype}, at most {high}, {threads} threads"
        attr = dnn.Attr().bounds(high)
        try:
            for check in (
                wrong(LEADS[lead], form, dtype, high, attr),
                searched(LEADS[lead], form, dtype, attr),
            ):
                yield from (f"{what}: {fault}" for fault in check)
            count += 1
        except dnn.Unimplemented:
            continue
    yield f"{count} run"


if __name__ == "__main__":
    dnn.limit_isa(sys.argv[1])
    print(*faults(), sep="\n")
