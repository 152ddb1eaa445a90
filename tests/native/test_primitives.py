"""Primitives of oneDNN, and what follows them, against NumPy.

Here is what the cases of operators (``tests/operators/tables/cases.py``) do not ask for: every
algorithm, flag and form of the bindings, all kernels of a convolution and which of them come first,
and what max pooling keeps.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import ml_dtypes
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
    buffers,
    close,
    convolve,
    pack,
    plain,
    random,
    run,
    unpack,
    windows,
)
from vtensor.runtime import _replay

erf = np.vectorize(math.erf, otypes=[np.float64])
every_form = pytest.mark.parametrize("form", FORMS)


def sigmoid(x: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-x)))


# alpha = 0.5, beta = 0.75 throughout, on positive and negative elements
ELTWISE: dict[str, Callable[[Array], Array]] = {
    "relu": lambda x: np.where(x > 0, x, 0.5 * x),
    "tanh": np.tanh,
    "elu": lambda x: np.where(x > 0, x, 0.5 * np.expm1(x)),
    "square": np.square,
    "abs": np.abs,
    "sqrt": np.sqrt,
    "linear": lambda x: 0.5 * x + 0.75,
    "soft_relu": lambda x: np.log1p(np.exp(0.5 * x)) / 0.5,
    "hardsigmoid": lambda x: np.clip(0.5 * x + 0.75, 0, 1),
    "logistic": sigmoid,
    "exp": np.exp,
    "gelu_tanh": lambda x: 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
    "swish": lambda x: x * sigmoid(0.5 * x),
    "log": np.log,
    "clip": lambda x: np.clip(x, 0.5, 0.75),
    "clip_v2": lambda x: np.clip(x, 0.5, 0.75),
    "pow": lambda x: 0.5 * x**0.75,
    "gelu_erf": lambda x: 0.5 * x * (1 + erf(x / math.sqrt(2))),
    "round": np.rint,
    "mish": lambda x: x * np.tanh(np.log1p(np.exp(x))),
    "hardswish": lambda x: x * np.clip(0.5 * x + 0.75, 0, 1),
}
POSITIVE = {"sqrt", "log", "pow"}
BINARY: dict[str, Callable[[Array, Array], Array]] = {
    "add": np.add, "mul": np.multiply, "div": np.divide, "sub": np.subtract, "max": np.maximum,
    "min": np.minimum, "eq": np.equal, "ne": np.not_equal, "ge": np.greater_equal,
    "gt": np.greater, "le": np.less_equal, "lt": np.less,
}  # fmt: skip


def squares(x: Array, axes: tuple[int, ...]) -> Array:
    return np.asarray(np.sum(x * x, axes, keepdims=True))


#: p = 2 and eps = 0.25 throughout.
REDUCTIONS: dict[str, Callable[[Array, tuple[int, ...]], Array]] = {
    "max": lambda x, axes: np.max(x, axes, keepdims=True),
    "min": lambda x, axes: np.min(x, axes, keepdims=True),
    "sum": lambda x, axes: np.sum(x, axes, keepdims=True),
    "mul": lambda x, axes: np.prod(x, axes, keepdims=True),
    "mean": lambda x, axes: np.mean(x, axes, keepdims=True),
    "norm_lp_sum": lambda x, axes: np.sqrt(squares(x, axes) + 0.25),
    "norm_lp_max": lambda x, axes: np.sqrt(np.maximum(squares(x, axes), 0.25)),
    "norm_lp_power_p_sum": lambda x, axes: squares(x, axes) + 0.25,
    "norm_lp_power_p_max": lambda x, axes: np.maximum(squares(x, axes), 0.25),
}


def test_every_algorithm_has_a_definition_here() -> None:
    forward = {name for name in dnn.eltwise_algs() if not name.endswith("_use_dst_for_bwd")}
    assert forward == set(ELTWISE)
    assert set(dnn.binary_algs()) == set(BINARY)
    assert set(dnn.reduction_algs()) == set(REDUCTIONS)


@every_form
@pytest.mark.parametrize("alg", ELTWISE)
def test_eltwise_is_the_definition(alg: str, form: Form) -> None:
    x = random(np.random.default_rng(1), 2, 20, 3, 3)
    if alg in POSITIVE:
        x = np.abs(x)
    primitive = dnn.eltwise(alg, form(x.shape), form(x.shape), 0.5, 0.75)
    close(primitive, ELTWISE[alg](x.astype(np.float64)), src=x)


def test_eltwise_runs_in_place() -> None:
    x = random(np.random.default_rng(3), 4, 5)
    desc = plain(x.shape)
    memory = pack(x, desc)
    _replay.execute(dnn.eltwise("relu", desc, desc), [memory, memory])
    np.testing.assert_array_equal(unpack(memory, desc), np.maximum(x, 0))


@every_form
@pytest.mark.parametrize("alg", BINARY)
@pytest.mark.parametrize("other", [(2, 16, 3, 3), (1, 16, 1, 1), (1, 1, 1, 1), (2, 1, 3, 3)])
def test_binary_is_the_definition(alg: str, form: Form, other: tuple[int, ...]) -> None:
    rng = np.random.default_rng(2)
    a, b = random(rng, 2, 16, 3, 3).round(), np.abs(random(rng, *other).round()) + 1
    primitive = dnn.binary(alg, form(a.shape), form(b.shape), form(a.shape))
    expected = BINARY[alg](a, b).astype(np.float32)
    np.testing.assert_allclose(run(primitive, src0=a, src1=b), expected, rtol=1e-6)


@pytest.mark.parametrize("alg", REDUCTIONS)
@pytest.mark.parametrize("axes", [(1,), (2, 3), (0, 1, 2, 3)])
def test_reduction_is_the_definition(alg: str, axes: tuple[int, ...]) -> None:
    x = random(np.random.default_rng(5), 2, 5, 3, 4)
    expected = REDUCTIONS[alg](x, axes)
    primitive = dnn.reduction(alg, plain(x.shape), plain(expected.shape), p=2.0, eps=0.25)
    close(primitive, expected, src=x)


def test_products_in_bf16_add_in_f32_and_round_once() -> None:
    if not dnn.isa().startswith(("avx512_bf16", "avx512_fp16", "amx")):
        pytest.skip(f"oneDNN has no bf16 on {dnn.isa()}")
    rng = np.random.default_rng(3)
    a, b = random(rng, 8, 64), random(rng, 64, 8)
    product = dnn.matmul(plain(a.shape, "bf16"), plain(b.shape, "bf16"), None, plain((8, 8)))
    a, b = (x.astype(ml_dtypes.bfloat16).astype(np.float32) for x in (a, b))
    close(product, a @ b, rtol=1e-5, atol=1e-4, src=a, weights=b)


@every_form
@pytest.mark.parametrize("scale", [False, True])
@pytest.mark.parametrize("shift", [False, True])
@pytest.mark.parametrize("relu", [False, True])
def test_batch_normalization_is_the_definition(
    form: Form, scale: bool, shift: bool, relu: bool
) -> None:
    rng = np.random.default_rng(1)
    x = random(rng, 2, 20, 3, 3)
    given = {"mean": random(rng, 20), "variance": np.abs(random(rng, 20)) + 0.5}
    given |= {"scale": random(rng, 20)} if scale else {}
    given |= {"shift": random(rng, 20)} if shift else {}
    primitive = dnn.batch_normalization(form(x.shape), form(x.shape), 1e-3, scale, shift, relu)
    assert primitive.slots[: len(given) + 2] == ("src", *given, "dst")
    mean, variance, factor, summand = (
        given.get(name, np.full(20, default)).reshape(20, 1, 1)
        for name, default in (("mean", 0), ("variance", 1), ("scale", 1), ("shift", 0))
    )
    expected = (x - mean) / np.sqrt(variance + 1e-3) * factor + summand
    result = run(primitive, src=x, **given)
    expected = np.maximum(expected, 0) if relu else expected
    np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-5)


def test_lrn_within_a_channel_is_the_definition() -> None:
    x = random(np.random.default_rng(4), 2, 3, 5, 6)
    primitive = dnn.lrn("within_channel", plain(x.shape), plain(x.shape), 3, 0.1, 0.75, 1.0)
    padded = np.pad(x * x, [(0, 0), (0, 0), (1, 1), (1, 1)])
    total = sum(padded[:, :, i : i + 5, j : j + 6] for i in range(3) for j in range(3))
    close(primitive, x * (1.0 + 0.1 / 9 * total) ** -0.75, src=x)


def test_reorder_takes_a_pitched_slice() -> None:
    x = random(np.random.default_rng(6), 6, 10)
    part = plain(x.shape).submemory((3, 4), (2, 5))
    memory, dst = pack(x, plain(x.shape)), np.zeros(12, np.float32)
    _replay.execute(dnn.reorder(part, plain((3, 4))), [memory, dst])
    np.testing.assert_array_equal(dst.reshape(3, 4), x[2:5, 5:9])


@pytest.mark.parametrize("dtype", ["bf16", "f16", "s32", "s8", "u8"])
def test_reorder_to_another_type_and_back_is_the_identity(dtype: str) -> None:
    x = np.arange(24, dtype=np.float32).reshape(2, 12)
    narrow = run(dnn.reorder(plain(x.shape), plain(x.shape, dtype)), src=x)
    np.testing.assert_array_equal(narrow.astype(np.float32), x)
    wide = run(dnn.reorder(plain(x.shape, dtype), plain(x.shape)), src=x)
    np.testing.assert_array_equal(wide, x)


@every_form
def test_followers_run_in_order(form: Form) -> None:
    rng, image = np.random.default_rng(7), (1, 16, 4, 4)
    x, before, residual = (random(rng, *image) for _ in range(3))
    w, scale = random(rng, 16, 16, 1, 1), random(rng, 1, 16, 1, 1)
    attr = dnn.Attr().sum(0.5).eltwise("relu").binary("add", form(image))
    attr = attr.binary("mul", form(scale.shape))
    weights, window = dnn.Desc.any(w.shape, "f32"), ((1, 1), (1, 1), (0, 0), (0, 0))
    primitive = dnn.convolution(form(image), weights, None, form(image), *window, attr)
    assert primitive.slots[:4] == ("src", "weights", "post2_src1", "post3_src1")
    operands = {"src": x, "weights": w, "post2_src1": residual, "post3_src1": scale}
    memory, at = buffers(primitive, operands), primitive.slots.index("dst")
    assert _replay.describe(primitive)["slots"][at][2] == "read write"
    memory[at] = pack(before, primitive.descs["dst"])
    _replay.execute(primitive, memory)
    product = np.einsum("nihw,oi->nohw", x, w[:, :, 0, 0])
    expected = (np.maximum(product + 0.5 * before, 0) + residual) * scale
    result = unpack(memory[at], primitive.descs["dst"])
    np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-5)


def test_attr_is_a_value() -> None:
    add = dnn.Attr().binary("add", plain((2, 3)))
    assert add == dnn.Attr().binary("add", plain((2, 3)))
    assert hash(add) == hash(dnn.Attr().binary("add", plain((2, 3))))
    relu = dnn.Attr().eltwise("relu")
    different = [dnn.Attr(), dnn.Attr("bf16"), add, relu, relu.sum(), dnn.Attr().sum(2.0)]
    different += [dnn.Attr().binary("add", plain((3, 2))), dnn.Attr().binary("mul", plain((2, 3)))]
    different += [dnn.Attr().bounds(high) for high in (3.0, 6.0)]
    assert len(set(different)) == len(different)
    assert len(relu) == 1  # sum() made another one
    assert dnn.Attr("bf16").fpmath == "bf16"
    assert repr(relu.sum(0.5)) == "Attr(strict, relu 0 0, sum 0.5)"
    for attr, text in ((dnn.Attr().gelu(), "gelu"), (dnn.Attr().bounds(6.0), "bounds 6")):
        assert (len(attr), repr(attr)) == (1, f"Attr(strict, {text})")
    assert dnn.Attr().bounds(6.0) == dnn.Attr().bounds(6.0)


FOLLOWED: list[tuple[Callable[[], Any], str]] = [
    (lambda: dnn.Attr("f64"), r"\w"),
    (lambda: dnn.Attr().sum(math.inf), r"\w"),
    (lambda: dnn.Attr().sum(1e300), r"\w"),
    (lambda: dnn.Attr().eltwise("nothing"), r"\w"),
    (lambda: dnn.Attr().eltwise("clip", math.nan, 1), r"\w"),
    (lambda: dnn.Attr().binary("nothing", plain((1,))), r"\w"),
    (lambda: dnn.Attr().binary("ge", plain((1,))), r"\w"),
    (lambda: dnn.Attr().gelu().eltwise("abs"), "nothing can follow gelu"),
    (lambda: dnn.Attr().sum().gelu(), "cannot follow a sum"),
    (lambda: dnn.Attr().bounds(6.0).eltwise("abs"), "nothing can follow bounds"),
    (lambda: dnn.Attr().bounds(6.0).bounds(6.0), "nothing can follow bounds"),
    (lambda: dnn.Attr().sum().bounds(6.0), "cannot follow a sum"),
    (lambda: dnn.Attr().bounds(-1.0), "high"),
    (lambda: dnn.Attr().bounds(math.nan), "high"),
]


@pytest.mark.parametrize(("make", "reason"), FOLLOWED)
def test_an_attr_refuses_what_cannot_follow(make: Callable[[], Any], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        make()


def test_an_attr_is_at_most_32_long() -> None:
    attr = dnn.Attr()
    for _ in range(32):
        attr = attr.sum()
    with pytest.raises(ValueError, match="32"):
        attr.sum()


ONES = ((1, 1), (1, 1), (1, 1), (1, 1))
UNEVEN: Window = ((3, 2), (2, 1), (1, 2), (1, 0), (1, 1))


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
    requests: dict[tuple[int, str], list[Row]] = {}
    for row in kernels("avx2"):
        requests.setdefault((row.groups, row.form), []).append(row)
    assert len(requests) == 4
    for (groups, _), rows in requests.items():
        assert [row.kernel for row in rows[:2]] == FASTER[groups]
        assert [row.channels_last for row in rows[:2]] == [True, True]
