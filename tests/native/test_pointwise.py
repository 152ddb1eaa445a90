"""Element-wise operations, concatenation, reorders and followers against NumPy."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from libdesc.onednn import _onednn as dnn
from tests.native.packing import (
    FORMS,
    Array,
    blocked,
    buffers,
    channels_last,
    pack,
    plain,
    random,
    run,
    unpack,
)
from vtensor.runtime import _replay

Form = Callable[..., dnn.Desc]

erf = np.vectorize(math.erf, otypes=[np.float64])


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


def test_every_algorithm_has_a_definition_here() -> None:
    forward = {name for name in dnn.eltwise_algs() if not name.endswith("_use_dst_for_bwd")}
    assert forward == set(ELTWISE)
    assert set(dnn.binary_algs()) == set(BINARY)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("alg", ELTWISE)
def test_eltwise(alg: str, form: Form) -> None:
    x = random(np.random.default_rng(1), 2, 20, 3, 3)
    if alg in POSITIVE:
        x = np.abs(x)
    primitive = dnn.eltwise(alg, form(x.shape), form(x.shape), 0.5, 0.75)
    expected = ELTWISE[alg](x.astype(np.float64))
    np.testing.assert_allclose(run(primitive, src=x), expected, rtol=1e-4, atol=1e-5)


BINARY: dict[str, Callable[[Array, Array], Array]] = {
    "add": np.add,
    "mul": np.multiply,
    "max": np.maximum,
    "min": np.minimum,
    "div": np.divide,
    "sub": np.subtract,
    "ge": np.greater_equal,
    "gt": np.greater,
    "le": np.less_equal,
    "lt": np.less,
    "eq": np.equal,
    "ne": np.not_equal,
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("alg", BINARY)
@pytest.mark.parametrize("other", [(2, 16, 3, 3), (1, 16, 1, 1), (1, 1, 1, 1), (2, 1, 3, 3)])
def test_binary(alg: str, form: Form, other: tuple[int, ...]) -> None:
    rng = np.random.default_rng(2)
    a, b = random(rng, 2, 16, 3, 3).round(), np.abs(random(rng, *other).round()) + 1
    primitive = dnn.binary(alg, form(a.shape), form(b.shape), form(a.shape))
    expected = BINARY[alg](a, b).astype(np.float32)
    np.testing.assert_allclose(run(primitive, src0=a, src1=b), expected, rtol=1e-6)


def test_eltwise_in_place() -> None:
    x = random(np.random.default_rng(3), 4, 5)
    desc = plain(x.shape)
    memory = pack(x, desc)
    _replay.execute(dnn.eltwise("relu", desc, desc), [memory, memory])
    np.testing.assert_array_equal(unpack(memory, desc), np.maximum(x, 0))


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("form", FORMS)
def test_concat(axis: int, form: Form) -> None:
    rng = np.random.default_rng(4)
    shapes = [[2, 16, 3, 3] for _ in range(3)]
    for i, shape in enumerate(shapes):
        shape[axis] *= i + 1
    parts = [random(rng, *shape) for shape in shapes]
    primitive = dnn.concat(axis, [form(part.shape) for part in parts])
    assert primitive.slots[:4] == ("src0", "src1", "src2", "dst")
    values = {f"src{i}": part for i, part in enumerate(parts)}
    np.testing.assert_array_equal(run(primitive, **values), np.concatenate(parts, axis))


@pytest.mark.parametrize("source", FORMS)
@pytest.mark.parametrize("target", [*FORMS, lambda dims: plain(dims).permute((0, 1, 2, 3))])
def test_reorder(source: Form, target: Form) -> None:
    x = random(np.random.default_rng(5), 2, 20, 3, 5)
    primitive = dnn.reorder(source(x.shape), target(x.shape))
    np.testing.assert_array_equal(run(primitive, src=x), x)


def test_reorder_of_a_pitched_slice() -> None:
    x = random(np.random.default_rng(6), 6, 10)
    part = plain(x.shape).submemory((3, 4), (2, 5))
    primitive = dnn.reorder(part, plain((3, 4)))
    memory, dst = pack(x, plain(x.shape)), np.zeros(12, np.float32)
    _replay.execute(primitive, [memory, dst])
    np.testing.assert_array_equal(dst.reshape(3, 4), x[2:5, 5:9])


@pytest.mark.parametrize("dtype", ["bf16", "f16", "s32", "s8", "u8"])
def test_reorder_to_another_type_and_back(dtype: str) -> None:
    x = np.arange(24, dtype=np.float32).reshape(2, 12)
    narrow = run(dnn.reorder(plain(x.shape), plain(x.shape, dtype)), src=x)
    np.testing.assert_array_equal(narrow.astype(np.float32), x)
    wide = run(dnn.reorder(plain(x.shape, dtype), plain(x.shape)), src=x)
    np.testing.assert_array_equal(wide, x)


@pytest.mark.parametrize("form", [plain, blocked, channels_last])
def test_followers_run_in_order(form: Form) -> None:
    rng = np.random.default_rng(7)
    x, w, before, residual = (
        random(rng, 1, 16, 4, 4),
        random(rng, 16, 16, 1, 1),
        random(rng, 1, 16, 4, 4),
        random(rng, 1, 16, 4, 4),
    )
    scale = random(rng, 1, 16, 1, 1)
    attr = dnn.Attr().sum(0.5).eltwise("relu").binary("add", form(x.shape))
    attr = attr.binary("mul", form(scale.shape))
    primitive = dnn.convolution(
        form(x.shape),
        dnn.Desc.any(w.shape, "f32"),
        None,
        form(x.shape),
        *((1, 1), (1, 1), (0, 0), (0, 0)),
        attr,
    )
    assert primitive.slots[:4] == ("src", "weights", "post2_src1", "post3_src1")
    memory = buffers(
        primitive, {"src": x, "weights": w, "post2_src1": residual, "post3_src1": scale}
    )
    at = primitive.slots.index("dst")
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
    assert len(set(different)) == len(different)
    assert len(relu) == 1  # sum() made another one
    assert dnn.Attr("bf16").fpmath == "bf16"
    assert repr(relu.sum(0.5)) == "Attr(strict, relu 0 0, sum 0.5)"


@pytest.mark.parametrize(
    "make",
    [
        lambda: dnn.Attr("f64"),
        lambda: dnn.Attr().sum(math.inf),
        lambda: dnn.Attr().sum(1e300),
        lambda: dnn.Attr().eltwise("nothing"),
        lambda: dnn.Attr().eltwise("clip", math.nan, 1),
        lambda: dnn.Attr().binary("nothing", plain((1,))),
        lambda: dnn.Attr().binary("ge", plain((1,))),
    ],
)
def test_attr_refuses(make: Callable[[], dnn.Attr]) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        make()


def test_attr_is_at_most_32_long() -> None:
    attr = dnn.Attr()
    for _ in range(32):
        attr = attr.sum()
    with pytest.raises(ValueError, match="32"):
        attr.sum()
