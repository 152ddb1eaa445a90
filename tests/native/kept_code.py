"""A program: convolutions whose code oneDNN keeps until the process ends, under a cap.

``python -m tests.native.kept_code CAP`` prints a line for each fault and, last, how many primitives
applied functions apart. It is a process of its own because oneDNN fixes its cap at its first use,
and because what other tests leave behind would count.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Iterator
from itertools import product
from math import inf

import numpy as np

from libdesc.onednn import _onednn as dnn
from tests.native.bounds import Form
from tests.native.packing import FORMS, Array, blocked, buffers, channels_last, random, unpack
from tests.runtime.resident import resident
from vtensor.runtime import _replay

Chain = Callable[[dnn.Attr, dnn.Desc], dnn.Attr]

#: What follows a convolution, given dst's descriptor.
CHAINS: dict[str, Chain] = {
    "bounds": lambda attr, _: attr.bounds(inf),
    "high bounds": lambda attr, _: attr.bounds(2.7),
    "add, bounds": lambda attr, dst: attr.binary("add", dst).bounds(6.0),
    "swish": lambda attr, _: attr.eltwise("swish", 1.0),
    "hardswish": lambda attr, _: attr.eltwise("hardswish", 1 / 6, 0.5),
    "logistic": lambda attr, _: attr.eltwise("logistic"),
    "gelu": lambda attr, _: attr.gelu(),
    "linear, bounds": lambda attr, _: attr.eltwise("linear", 0.2, 0.5).bounds(1.0),
    "add, tanh, mul": lambda attr, dst: attr.binary("add", dst).eltwise("tanh").binary("mul", dst),
    "sum, elu": lambda attr, _: attr.sum(1.0).eltwise("elu", 1.0),
}
#: The kind, the dims of src and of the weights, the strides, and the pads.
LEADS: dict[str, tuple[str, tuple[int, ...], tuple[int, ...], int, int]] = {
    "convolution": ("convolution", (2, 20, 12, 12), (18, 20, 3, 3), 1, 1),
    "whole blocks": ("convolution", (2, 20, 12, 12), (16, 20, 3, 3), 1, 1),
    "one tap": ("convolution", (2, 20, 12, 12), (18, 20, 1, 1), 1, 0),
    "depthwise": ("convolution", (2, 20, 12, 12), (20, 1, 1, 3, 3), 1, 1),
    "deconvolution": ("deconvolution", (2, 20, 12, 12), (16, 20, 2, 2), 2, 0),
}
#: Bytes that a primitive may leave behind; kept code is more than 17 KB.
LEFT = 6_000


def primitive(lead: str, chain: str, form: Form, width: int = 12) -> dnn.Primitive:
    """The primitive of one of LEADS and one of CHAINS, with images of another width."""
    kind, src, weights, stride, pad = LEADS[lead]
    source = form((*src[:3], width))
    dst = form((src[0], weights[0], stride * src[2], stride * width))
    pads = ((pad, pad), (pad, pad))
    make: Callable[..., dnn.Primitive] = getattr(dnn, kind)
    attr = CHAINS[chain](dnn.Attr(), dst)
    return make(source, dnn.Desc.any(weights, "f32"), None, dst, (stride,) * 2, (1, 1), *pads, attr)


def result(made: dnn.Primitive) -> Array:
    """The values of dst on random inputs, NaN, infinities and large numbers among them."""
    rng = np.random.default_rng(0)
    inputs = {name: random(rng, *desc.dims) for name, desc in made.descs.items() if name != "dst"}
    inputs["src"].flat[:4] = np.nan, np.inf, -np.inf, 3e38
    memory = buffers(made, inputs)
    memory[made.slots.index("dst")][:] = 0  # which a sum reads
    _replay.execute(made, memory)
    return unpack(memory[made.slots.index("dst")], made.descs["dst"])


def different(lead: str, chain: str, form: Form) -> Iterator[str]:
    """Faults of a primitive that applies its functions apart; it yields "apart" if one did."""
    found: list[tuple[str, Array]] = []
    for limit in (1_000_000, 0):
        dnn.cache_clear()
        dnn.set_kept_code_limit(limit)
        made = primitive(lead, chain, form)
        with np.errstate(all="ignore"):
            values = result(made)
        found.append((str(_replay.describe(made)["kernel"]), values))
    (fused, expected), (split, values) = found
    finite = np.isfinite(expected)
    if finite.mean() <= 0.5 or not np.array_equal(expected, values, equal_nan=True):
        yield f"{split} gives other numbers than {fused}"
    if fused.startswith("brgconv"):
        functions = chain not in ("bounds", "high bounds", "add, bounds")
        if functions != (split != fused):
            yield f"{split} in place of {fused}"
    if split != fused:
        yield "apart"


def growth(lead: str, chain: str, form: Form) -> Iterator[str]:
    """A fault if destroyed primitives leave code behind, each time that it is looked for."""
    dnn.cache_clear()
    dnn.set_kept_code_limit(0)
    dnn.set_cache_capacity(0)
    left = LEFT + 1
    for _ in range(3):  # the heap may grow by itself
        if left > LEFT:
            left = left_behind(lead, chain, form)
    dnn.set_cache_capacity(256)
    if left > LEFT:
        yield f"each primitive leaves {left} bytes"


def left_behind(lead: str, chain: str, form: Form) -> int:
    """Return the resident bytes that each of many destroyed primitives leaves."""
    before = 0
    for turn in range(80):
        if turn == 20:
            before = resident()
        _replay.describe(primitive(lead, chain, form, 8 + turn % 5))
    return (resident() - before) // 60


def faults() -> Iterator[str]:
    """What is wrong, a line each; the last line counts what was applied apart."""
    team, count = ctypes.CDLL("libgomp.so.1"), 0
    for threads, lead, chain, form in product((1, 2), LEADS, CHAINS, FORMS):
        team.omp_set_num_threads(threads)
        what = f"{lead}, {chain}, {form.__name__}, {threads} threads"
        try:
            for fault in different(lead, chain, form):
                if fault == "apart":
                    count += 1
                else:
                    yield f"{what}: {fault}"
        except dnn.Unimplemented:
            continue
    for lead, chain, form in product(LEADS, CHAINS, (blocked, channels_last)):
        try:
            yield from (f"{lead}, {chain}, {form.__name__}: {f}" for f in growth(lead, chain, form))
        except dnn.Unimplemented:
            continue
    yield f"{count} apart"


if __name__ == "__main__":
    dnn.limit_isa(sys.argv[1])
    print(*faults(), sep="\n")
