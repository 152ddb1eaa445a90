"""Convolutions whose code oneDNN keeps until the process ends: what follows them runs apart.

What other tests leave behind would count.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from itertools import product
from math import inf

import numpy as np

from libdesc.onednn import _onednn as dnn
from tests.libraries.slow import ALL
from tests.native.packing import FORMS, Array, Form, blocked, buffers, channels_last, random, unpack
from tests.runtime.resident import resident
from vtensor.runtime import _replay

#: What follows a convolution, given dst's descriptor.
CHAINS: dict[str, Callable[[dnn.Attr, dnn.Desc], dnn.Attr]] = {
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
    """Return the primitive of one of LEADS and one of CHAINS, with images of another width."""
    kind, src, weights, stride, pad = LEADS[lead]
    source = form((*src[:3], width))
    dst = form((src[0], weights[0], stride * src[2], stride * width))
    pads = ((pad, pad), (pad, pad))
    make: Callable[..., dnn.Primitive] = getattr(dnn, kind)
    attr = CHAINS[chain](dnn.Attr(), dst)
    return make(source, dnn.Desc.any(weights, "f32"), None, dst, (stride,) * 2, (1, 1), *pads, attr)


def result(kernel: dnn.Primitive) -> Array:
    """Return the values of dst on random inputs, NaN, infinities and large numbers among them."""
    rng = np.random.default_rng(0)
    inputs = {name: random(rng, *desc.dims) for name, desc in kernel.descs.items() if name != "dst"}
    inputs["src"].flat[:4] = np.nan, np.inf, -np.inf, 3e38
    memory, at = buffers(kernel, inputs), kernel.slots.index("dst")
    memory[at][:] = 0  # which a sum reads
    with np.errstate(all="ignore"):
        _replay.execute(kernel, memory)
        return unpack(memory[at], kernel.descs["dst"])


def different(lead: str, chain: str, form: Form) -> tuple[str, list[str]]:
    """Return whether a primitive beyond the limit applies functions apart, and the faults."""
    runs: list[tuple[str, Array]] = []
    for limit in (1_000_000, 0):
        dnn.cache_clear()
        dnn.set_kept_code_limit(limit)
        kernel = primitive(lead, chain, form)
        runs.append((str(_replay.describe(kernel)["kernel"]), result(kernel)))
    (fused, expected), (split, values) = runs
    faults = []
    if np.isfinite(expected).mean() <= 0.5 or not np.array_equal(expected, values, equal_nan=True):
        faults.append(f"{split} gives other numbers than {fused}")
    functions = chain not in ("bounds", "high bounds", "add, bounds")
    if fused.startswith("brgconv") and functions != (split != fused):
        faults.append(f"{split} in place of {fused}")
    return "apart" if split != fused else "fused", faults


def growth(lead: str, chain: str, form: Form) -> tuple[str, list[str]]:
    """Return a fault if destroyed primitives leave code behind, each time that it is looked for."""
    dnn.cache_clear()
    dnn.set_kept_code_limit(0)
    dnn.set_cache_capacity(0)
    left = LEFT + 1
    for _ in range(3):  # the heap may grow by itself
        if left > LEFT:
            left = left_behind(lead, chain, form)
    dnn.set_cache_capacity(256)
    return "growth", [f"each primitive leaves {left} bytes"] if left > LEFT else []


def left_behind(lead: str, chain: str, form: Form) -> int:
    """Return the resident bytes that each of many destroyed primitives leaves."""
    before = 0
    for turn in range(80):
        if turn == 20:
            before = resident()
        _replay.describe(primitive(lead, chain, form, 8 + turn % 5))
    return (resident() - before) // 60


def cases(_: str, cap: str, *__: int) -> Iterator[tuple[str, list[str]]]:
    """Compare every chain with itself beyond the limit, and look for what is left behind.

    On two threads and in blocks; with one thread, and with channels last, where all tests run.
    """
    dnn.limit_isa(cap)
    team = ctypes.CDLL("libgomp.so.1")
    calls = [(different, *call) for call in product(LEADS, CHAINS, FORMS, (1, 2) if ALL else (2,))]
    forms = [blocked, channels_last] if ALL else [blocked]
    calls += [(growth, *call) for call in product(LEADS, CHAINS, forms, (2,))]
    for check, lead, chain, form, threads in calls:
        team.omp_set_num_threads(threads)
        try:
            name, faults = check(lead, chain, form)
        except dnn.Unimplemented:
            continue
        what = f"{lead}, {chain}, {form.__name__}, {threads} threads"
        yield name, [f"{what}: {fault}" for fault in faults]
