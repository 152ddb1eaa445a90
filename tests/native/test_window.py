"""Convolution and pooling against NumPy."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest
from numpy.lib.stride_tricks import as_strided

from libdesc.onednn import _onednn as dnn
from tests.native.packing import FORMS, Array, plain, random, run, windows
from vtensor.runtime import _replay

Form = Callable[..., dnn.Desc]

# spatial extents, kernel, strides, dilations, pads at the beginning and the end
WINDOWS = [
    ((9,), (3,), (1,), (2,), (1,), (0,)),
    ((7, 6), (3, 3), (1, 1), (1, 1), (1, 1), (1, 1)),
    ((8, 9), (3, 2), (2, 3), (2, 1), (2, 0), (1, 1)),
    ((4, 5, 6), (2, 1, 3), (1, 2, 2), (1, 1, 1), (0, 0, 1), (1, 0, 1)),
]


Window = tuple[Sequence[int], Sequence[int], Sequence[int], Sequence[int], Sequence[int]]


def convolve(x: Array, w: Array, groups: int, window: Window) -> Array:
    """``w``: groups, O, I, kernel; ``window``: kernel, strides, dilations, pads."""
    parts = []
    for xs, ws in zip(np.split(x, groups, axis=1), w, strict=True):
        seen = windows(xs, *window)
        spatial = len(window[0])
        axes = [1, *range(2 + spatial, 2 + 2 * spatial)]
        part = np.tensordot(seen, ws, (axes, list(range(1, ws.ndim))))
        parts.append(np.moveaxis(part, -1, 1))
    return np.concatenate(parts, axis=1)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("extents", "kernel", "strides", "dilations", "begin", "end"), WINDOWS)
@pytest.mark.parametrize(("groups", "inputs", "outputs"), [(1, 20, 18), (3, 4, 2), (16, 1, 1)])
@pytest.mark.parametrize("bias", [False, True])
def test_convolution(
    form: Form,
    extents: tuple[int, ...],
    kernel: tuple[int, ...],
    strides: tuple[int, ...],
    dilations: tuple[int, ...],
    begin: tuple[int, ...],
    end: tuple[int, ...],
    groups: int,
    inputs: int,
    outputs: int,
    bias: bool,
) -> None:
    rng = np.random.default_rng(1)
    x = random(rng, 2, groups * inputs, *extents)
    w = random(rng, groups, outputs, inputs, *kernel)
    b = random(rng, groups * outputs)
    expected = convolve(x, w, groups, (kernel, strides, dilations, begin, end))
    if groups == 1:
        w = w[0]
    primitive = dnn.convolution(
        form(x.shape),
        dnn.Desc.any(w.shape, "f32"),
        plain(b.shape) if bias else None,
        form(expected.shape),
        strides,
        dilations,
        begin,
        end,
    )
    assert primitive.kind == "convolution"
    assert ("bias" in primitive.slots) == bias
    values = {"src": x, "weights": w} | ({"bias": b} if bias else {})
    if bias:
        expected = expected + b.reshape(-1, *[1] * len(extents))
    np.testing.assert_allclose(run(primitive, **values), expected, rtol=1e-4, atol=1e-4)


def test_every_kernel_of_a_convolution_gives_the_same() -> None:
    rng = np.random.default_rng(2)
    x, w = random(rng, 1, 16, 6, 6), random(rng, 16, 16, 3, 3)
    kernel: dnn.Primitive | None = dnn.convolution(
        dnn.Desc.any(x.shape, "f32"),
        dnn.Desc.any(w.shape, "f32"),
        None,
        dnn.Desc.any((1, 16, 6, 6), "f32"),
        *((1, 1), (1, 1), (1, 1), (1, 1)),
    )
    expected = convolve(x, w[None], 1, ((3, 3), (1, 1), (1, 1), (1, 1), (1, 1)))
    names = []
    while kernel is not None:
        names.append(kernel.kernel)
        assert {desc.kind for desc in kernel.descs.values()} == {"blocked"}
        np.testing.assert_allclose(run(kernel, src=x, weights=w), expected, rtol=1e-4, atol=1e-4)
        kernel = kernel.next_kernel()
    assert len(names) > 1
    assert names[-1] == "ref:any"


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("extents", "kernel", "strides", "dilations", "begin", "end"), WINDOWS)
@pytest.mark.parametrize("kind", ["max", "avg_include_padding", "avg_exclude_padding"])
def test_pooling(
    form: Form,
    extents: tuple[int, ...],
    kernel: tuple[int, ...],
    strides: tuple[int, ...],
    dilations: tuple[int, ...],
    begin: tuple[int, ...],
    end: tuple[int, ...],
    kind: str,
) -> None:
    x = random(np.random.default_rng(3), 2, 20, *extents)
    begin = tuple(min(b, (k - 1) * d) for b, k, d in zip(begin, kernel, dilations, strict=True))
    end = tuple(min(e, (k - 1) * d) for e, k, d in zip(end, kernel, dilations, strict=True))
    fill = 0.0 if kind == "avg_include_padding" else np.nan
    seen = windows(x, kernel, strides, dilations, begin, end, fill)
    axes = tuple(range(2 + len(kernel), 2 + 2 * len(kernel)))
    expected = np.nanmax(seen, axes) if kind == "max" else np.nanmean(seen, axes)
    primitive = dnn.pooling(
        kind, form(x.shape), form(expected.shape), kernel, strides, dilations, begin, end
    )
    np.testing.assert_allclose(run(primitive, src=x), expected, rtol=1e-5, atol=1e-6)


def test_integer_convolution_has_opaque_weights_that_a_reorder_makes() -> None:
    rng = np.random.default_rng(4)
    x = rng.integers(-9, 9, (1, 32, 5, 5)).astype(np.int8)
    w = rng.integers(-9, 9, (16, 32, 3, 3)).astype(np.int8)
    descs = [dnn.Desc.tag(x.shape, "s8", "acdb"), dnn.Desc.any(w.shape, "s8")]
    dst = dnn.Desc.tag((1, 16, 3, 3), "s32", "acdb")
    window = ((1, 1), (1, 1), (0, 0), (0, 0))
    primitive = dnn.convolution(descs[0], descs[1], None, dst, *window)
    form = primitive.descs["weights"]
    expected = convolve(x.astype(np.int64), w[None].astype(np.int64), 1, ((3, 3), *window))
    if form.kind != "opaque":  # an instruction set that multiplies signed bytes
        np.testing.assert_array_equal(run(primitive, src=x, weights=w), expected)
        return
    assert form.strides == ()
    assert form.nbytes > w.size
    assert form == dnn.convolution(descs[0], form, None, dst, *window).descs["weights"]
    with pytest.raises(ValueError, match="opaque"):
        dnn.eltwise("relu", form, form)
    with pytest.raises(ValueError, match="no parts"):
        form.submemory(form.dims, (0, 0, 0, 0))


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
@pytest.mark.parametrize("form", FORMS)
def test_max_pooling_keeps_nan_and_windows_of_negative_infinity(form: Form, dtype: str) -> None:
    x = np.full((2, 20, 4, 6), -np.inf)
    x[0, 3, 1, 1], x[1, 19, 2, 2], x[1, 0, 3, 5] = np.nan, 3.0, np.inf
    window = ((3, 2), (2, 1), (1, 2), (1, 0), (1, 1))
    expected = windows(x, *window, -np.inf).max((-2, -1))
    try:
        primitive = dnn.pooling("max", form(x.shape, dtype), form(expected.shape, dtype), *window)
    except dnn.Unimplemented:
        pytest.skip(f"no pooling in {dtype} on {dnn.isa()}")
    np.testing.assert_array_equal(run(primitive, src=x).astype(np.float64), expected)


@pytest.mark.parametrize("value", [np.nan, -np.inf])
@pytest.mark.parametrize("dtype", ["f32", "bf16"])
@pytest.mark.parametrize("form", FORMS)
def test_max_pooling_mends_the_windows_of_each_element(
    form: Form, dtype: str, value: float
) -> None:
    """Elements by themselves, in an image of several blocks; steps, pads and dilations."""
    rng = np.random.default_rng(0)
    x = rng.integers(-9, 9, (2, 20, 23, 25)).astype(np.float64)
    flat = x.reshape(-1)
    flat[rng.integers(0, flat.size, 40)] = value
    flat[[0, -1]] = value
    window = ((3, 2), (2, 1), (1, 2), (1, 0), (1, 1))
    expected = windows(x, *window, -np.inf).max((-2, -1))
    try:
        primitive = dnn.pooling("max", form(x.shape, dtype), form(expected.shape, dtype), *window)
    except dnn.Unimplemented:
        pytest.skip(f"no pooling in {dtype} on {dnn.isa()}")
    np.testing.assert_array_equal(run(primitive, src=x).astype(np.float64), expected)


def test_max_pooling_of_a_part_of_an_image() -> None:
    """NaN beside the part, between its rows, is nobody's; what is in it is found."""
    whole = np.full((1, 3, 6, 7), np.nan, np.float32)
    whole[:, :, 1:5, 2:6] = np.arange(48, dtype=np.float32).reshape(1, 3, 4, 4)
    whole[0, 1, 2, 3] = np.nan
    part = plain(whole.shape).submemory((1, 3, 4, 4), (0, 0, 1, 2))
    window = ((2, 2), (1, 1), (1, 1), (0, 0), (0, 0))
    expected = windows(whole[:, :, 1:5, 2:6], *window, -np.inf).max((-2, -1))
    primitive = dnn.pooling("max", part, plain(expected.shape), *window)
    dst = np.zeros(expected.shape, np.float32)
    _replay.execute(primitive, [whole.reshape(-1), dst.reshape(-1)])
    np.testing.assert_array_equal(dst, expected)


@pytest.mark.parametrize("spatial", [1, 3])
def test_max_pooling_keeps_nan_along_any_number_of_dims(spatial: int) -> None:
    x = np.random.default_rng(1).standard_normal((2, 5, *(6,) * spatial)).astype(np.float32)
    x.reshape(-1)[7::50] = np.nan
    window = ((3,) * spatial, (2,) * spatial, (1,) * spatial, (1,) * spatial, (0,) * spatial)
    expected = windows(x, *window, -np.inf).max(tuple(range(-spatial, 0)))
    primitive = dnn.pooling("max", plain(x.shape), plain(expected.shape), *window)
    np.testing.assert_array_equal(run(primitive, src=x), expected)


@pytest.mark.parametrize("strides", [(0, 0, 4, 1), (48, 16, 0, 1)])
def test_max_pooling_of_elements_that_are_repeated(strides: tuple[int, ...]) -> None:
    """A NaN that lies once and is seen at several indices."""
    shape, window = (2, 3, 4, 4), ((2, 2), (1, 1), (1, 1), (0, 0), (0, 0))
    memory = np.arange(100, dtype=np.float32)
    memory[[2, 9]] = np.nan, -np.inf
    x = as_strided(memory, shape, [4 * stride for stride in strides])
    expected = windows(x, *window, -np.inf).max((-2, -1))
    src = dnn.Desc.strided(shape, "f32", strides)
    try:
        primitive = dnn.pooling("max", src, plain(expected.shape), *window)
    except dnn.Unimplemented:
        pytest.skip("no kernel for it")
    dst = np.zeros(expected.shape, np.float32)
    _replay.execute(primitive, [memory[: src.nbytes // 4], dst.reshape(-1)])
    np.testing.assert_array_equal(dst, expected)
