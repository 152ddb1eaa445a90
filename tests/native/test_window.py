"""All kernels of a convolution, which of them come first, and what max pooling keeps."""

from __future__ import annotations

import json
from functools import cache
from typing import NamedTuple

import numpy as np
import pytest
from numpy.lib.stride_tricks import as_strided

from libdesc.onednn import _onednn as dnn
from tests.libraries.processes import printed
from tests.native.packing import (
    FORMS,
    Array,
    Form,
    Window,
    close,
    convolve,
    plain,
    random,
    run,
    windows,
)
from vtensor.runtime import _replay

ONES = ((1, 1), (1, 1), (1, 1), (1, 1))
UNEVEN: Window = ((3, 2), (2, 1), (1, 2), (1, 0), (1, 1))

every_form = pytest.mark.parametrize("form", FORMS)


def free(*dims: int, dtype: str = "f32") -> dnn.Desc:
    return dnn.Desc.any(dims, dtype)


def test_every_kernel_of_a_convolution_gives_the_same() -> None:
    rng = np.random.default_rng(2)
    x, w = random(rng, 1, 16, 6, 6), random(rng, 16, 16, 3, 3)
    image = free(*x.shape)
    kernel: dnn.Primitive | None = dnn.convolution(image, free(*w.shape), None, image, *ONES)
    expected, names = convolve(x, w[None], ((3, 3), *ONES)), []
    while kernel is not None:
        names.append(kernel.kernel)
        assert {desc.kind for desc in kernel.descs.values()} == {"blocked"}
        close(kernel, expected, atol=1e-4, src=x, weights=w)
        kernel = kernel.next_kernel()
    assert len(names) > 1
    assert names[-1] == "ref:any"


def test_integer_convolution_has_opaque_weights_that_a_reorder_makes() -> None:
    rng = np.random.default_rng(4)
    x = rng.integers(-9, 9, (1, 32, 5, 5)).astype(np.int8)
    w = rng.integers(-9, 9, (16, 32, 3, 3)).astype(np.int8)
    src, dst = dnn.Desc.tag(x.shape, "s8", "acdb"), dnn.Desc.tag((1, 16, 3, 3), "s32", "acdb")
    window = ((1, 1), (1, 1), (0, 0), (0, 0))
    primitive = dnn.convolution(src, free(*w.shape, dtype="s8"), None, dst, *window)
    form = primitive.descs["weights"]
    if form.kind != "opaque":  # an instruction set that multiplies signed bytes
        expected = convolve(x.astype(np.int64), w[None].astype(np.int64), ((3, 3), *window))
        np.testing.assert_array_equal(run(primitive, src=x, weights=w), expected)
        return
    assert form.strides == ()
    assert form.nbytes > w.size
    assert form == dnn.convolution(src, form, None, dst, *window).descs["weights"]
    with pytest.raises(ValueError, match="opaque"):
        dnn.eltwise("relu", form, form)
    with pytest.raises(ValueError, match="no parts"):
        form.submemory(form.dims, (0, 0, 0, 0))


def special(shape: tuple[int, ...], value: float) -> Array:
    """Return numbers of which some are this one, in several blocks, the first and the last too."""
    rng = np.random.default_rng(0)
    x = rng.integers(-9, 9, shape).astype(np.float64)
    flat = x.reshape(-1)
    flat[rng.integers(0, flat.size, 40)] = value
    flat[[0, -1]] = value
    return x


def mixed() -> Array:
    """Return negative infinities but for a few elements."""
    x = np.full((2, 20, 4, 6), -np.inf)
    x[0, 3, 1, 1], x[1, 19, 2, 2], x[1, 0, 3, 5] = np.nan, 3.0, np.inf
    return x


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
@every_form
@pytest.mark.parametrize(
    "x",
    [mixed(), *(special((2, 20, 23, 25), value) for value in (np.nan, -np.inf))],
    ids=["windows of negative infinity", "NaN", "negative infinity"],
)
def test_max_pooling_keeps_what_is_special(form: Form, dtype: str, x: Array) -> None:
    expected = windows(x, UNEVEN, -np.inf).max((-2, -1))
    try:
        primitive = dnn.pooling("max", form(x.shape, dtype), form(expected.shape, dtype), *UNEVEN)
    except dnn.Unimplemented:
        pytest.skip(f"no pooling in {dtype} on {dnn.isa()}")
    np.testing.assert_array_equal(run(primitive, src=x).astype(np.float64), expected)


@pytest.mark.parametrize("spatial", [1, 3])
def test_max_pooling_keeps_nan_along_any_number_of_dims(spatial: int) -> None:
    x = np.random.default_rng(1).standard_normal((2, 5, *(6,) * spatial)).astype(np.float32)
    x.reshape(-1)[7::50] = np.nan
    window = ((3,) * spatial, (2,) * spatial, (1,) * spatial, (1,) * spatial, (0,) * spatial)
    expected = windows(x, window, -np.inf).max(tuple(range(-spatial, 0)))
    primitive = dnn.pooling("max", plain(x.shape), plain(expected.shape), *window)
    np.testing.assert_array_equal(run(primitive, src=x), expected)


SMALL: Window = ((2, 2), (1, 1), (1, 1), (0, 0), (0, 0))


def test_max_pooling_of_a_part_of_an_image_leaves_nan_beside_it() -> None:
    whole = np.full((1, 3, 6, 7), np.nan, np.float32)
    whole[:, :, 1:5, 2:6] = np.arange(48, dtype=np.float32).reshape(1, 3, 4, 4)
    whole[0, 1, 2, 3] = np.nan
    part = plain(whole.shape).submemory((1, 3, 4, 4), (0, 0, 1, 2))
    expected = windows(whole[:, :, 1:5, 2:6], SMALL, -np.inf).max((-2, -1))
    primitive = dnn.pooling("max", part, plain(expected.shape), *SMALL)
    dst = np.zeros(expected.shape, np.float32)
    _replay.execute(primitive, [whole.reshape(-1), dst.reshape(-1)])
    np.testing.assert_array_equal(dst, expected)


@pytest.mark.parametrize("strides", [(0, 0, 4, 1), (48, 16, 0, 1)])
def test_max_pooling_keeps_nan_that_is_seen_at_several_indices(strides: tuple[int, ...]) -> None:
    shape, memory = (2, 3, 4, 4), np.arange(100, dtype=np.float32)
    memory[[2, 9]] = np.nan, -np.inf
    x = as_strided(memory, shape, [4 * stride for stride in strides])
    expected = windows(x, SMALL, -np.inf).max((-2, -1))
    src = dnn.Desc.strided(shape, "f32", strides)
    try:
        primitive = dnn.pooling("max", src, plain(expected.shape), *SMALL)
    except dnn.Unimplemented:
        pytest.skip("no kernel for it")
    dst = np.zeros(expected.shape, np.float32)
    _replay.execute(primitive, [memory[: src.nbytes // 4], dst.reshape(-1)])
    np.testing.assert_array_equal(dst, expected)


CODE = """
import json, sys
import numpy as np
from libdesc.onednn import native
dnn = native.load()
dnn.limit_isa(sys.argv[1])
from tests.native.packing import convolve, random, run

Desc, rng = dnn.Desc, np.random.default_rng(0)
for groups, channels, size, taps, pad in ((1, 24, 6, 1, 0), (1, 21, 5, 1, 0), (24, 24, 7, 3, 1)):
    for form in ("any", "acdb"):
        x = random(rng, 1, channels, size, size)
        w = random(rng, groups, channels // groups, channels // groups, taps, taps)
        window = ((1, 1), (1, 1), (pad, pad), (pad, pad))
        expected = convolve(x, w, ((taps, taps), *window))
        weights = w if groups > 1 else w[0]
        image = Desc.any(x.shape, "f32") if form == "any" else Desc.tag(x.shape, "f32", form)
        free = Desc.any(weights.shape, "f32"), None, Desc.any(x.shape, "f32")
        kernel = dnn.convolution(image, *free, *window)
        while kernel is not None and "ref" not in kernel.kernel:
            found = run(kernel, src=x, weights=weights)
            right = np.allclose(found, expected, rtol=1e-4, atol=1e-4)
            last = {d.strides[1] == 1 for n, d in kernel.descs.items() if n in ("src", "dst")}
            print(json.dumps([groups, form, kernel.kernel, right, last == {True}]))
            kernel = kernel.next_kernel()
"""
FASTER = {1: ["jit_1x1:avx2", "brgconv_1x1:avx2"], 24: ["jit_dw:avx2", "brdgmm_dw:avx2"]}


class Row(NamedTuple):
    """A kernel of a request."""

    groups: int
    form: str
    kernel: str
    right: bool
    channels_last: bool


@cache
def kernels(isa: str) -> list[Row]:
    """Return those of all requests, in a process of its own."""
    return [Row(*json.loads(line)) for line in printed("-c", CODE, isa).splitlines()]


@pytest.mark.parametrize("isa", ["sse41", "avx2", "max"])
def test_all_kernels_agree_under_a_cap(isa: str) -> None:
    assert kernels(isa)
    assert [row for row in kernels(isa) if not row.right] == []


def test_without_avx512_the_faster_kernel_is_first_in_the_same_layout() -> None:
    requests = {}
    for row in kernels("avx2"):
        requests.setdefault((row.groups, row.form), []).append(row)
    assert len(requests) == 4
    for (groups, _), rows in requests.items():
        assert [row.kernel for row in rows[:2]] == FASTER[groups]
        assert [row.channels_last for row in rows[:2]] == [True, True]
