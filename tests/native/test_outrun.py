"""Kernels that outrun oneDNN's first come before it, in the layouts that it chose."""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.libraries.processes import printed

CODE = """
import json, sys
import numpy as np
from libdesc.onednn import native
dnn = native.load()
dnn.limit_isa(sys.argv[1])
from tests.native.packing import random, run
from tests.native.test_window import convolve

Desc, rng = dnn.Desc, np.random.default_rng(0)
for groups, channels, size, taps, pad in ((1, 24, 6, 1, 0), (1, 21, 5, 1, 0), (24, 24, 7, 3, 1)):
    for form in ("any", "acdb"):
        x = random(rng, 1, channels, size, size)
        w = random(rng, groups, channels // groups, channels // groups, taps, taps)
        window = ((1, 1), (1, 1), (pad, pad), (pad, pad))
        expected = convolve(x, w, groups, ((taps, taps), *window))
        own = w if groups > 1 else w[0]
        image = Desc.any(x.shape, "f32") if form == "any" else Desc.tag(x.shape, "f32", form)
        kernel = dnn.convolution(
            image, Desc.any(own.shape, "f32"), None, Desc.any(x.shape, "f32"), *window
        )
        while kernel is not None and "ref" not in kernel.kernel:
            right = np.allclose(run(kernel, src=x, weights=own), expected, rtol=1e-4, atol=1e-4)
            last = {d.strides[1] == 1 for n, d in kernel.descs.items() if n in ("src", "dst")}
            print(json.dumps([groups, form, kernel.kernel, right, last == {True}]))
            kernel = kernel.next_kernel()
"""
ROOT = Path(__file__).parents[2]
FASTER = {1: ["jit_1x1:avx2", "brgconv_1x1:avx2"], 24: ["jit_dw:avx2", "brdgmm_dw:avx2"]}


class Row(NamedTuple):
    """A kernel of a request."""

    groups: int
    form: str
    kernel: str
    right: bool
    channels_last: bool


def kernels(isa: str) -> list[Row]:
    """Those of all requests, in a process of its own."""
    output = printed("-c", CODE, isa, environment={"PYTHONPATH": str(ROOT)})
    return [Row(*json.loads(line)) for line in output.splitlines()]


@pytest.mark.parametrize("isa", ["sse41", "avx2", "max"])
def test_all_kernels_agree(isa: str) -> None:
    found = kernels(isa)
    assert found
    assert [row for row in found if not row.right] == []


def test_without_avx512_the_faster_kernel_is_first_in_the_same_layout() -> None:
    lists: dict[tuple[int, str], list[Row]] = {}
    for row in kernels("avx2"):
        lists.setdefault((row.groups, row.form), []).append(row)
    assert len(lists) == 4
    for (groups, _), rows in lists.items():
        assert [row.kernel for row in rows[:2]] == FASTER[groups]
        assert [row.channels_last for row in rows[:2]] == [True, True]
