"""Exact products and convolutions of bytes: narrow's kernels give the definition's bits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import ops
from libdesc.narrow import native
from libdesc.narrow.native import CAPS
from ptensor.encoding import integer_range
from tests.libraries.processes import printed
from tests.operators.harness import Array, Given, Outcome, check_pads, plain, run
from vtensor.errors import NoInvokerError
from vtensor.language.dtype import numpy_dtype
from vtensor.language.graph import Graph
from vtensor.runtime.session import Session

BYTES = ("u8", "s8")
Calls = list[tuple[Any, list[Given]]]


class Draw:
    """Random operands and operators."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)

    def of(self, *values: Any) -> Any:
        """Return one of the values."""
        return values[int(self.random.integers(len(values)))]

    def maybe(self) -> bool:
        """Return True or False."""
        return bool(self.random.random() < 0.5)

    def integers(self, dtype: str, *shape: int) -> Array:
        """Return integers of the whole range of a type, or its ends alone."""
        low, high = integer_range(dtype)
        if self.random.random() < 0.25:
            return self.random.choice([low, high], size=shape).astype(numpy_dtype(dtype))
        return self.random.integers(low, high + 1, size=shape).astype(numpy_dtype(dtype))

    def scale(self, *shape: int) -> Array:
        """Return positive floats."""
        return np.exp(self.random.normal(size=shape) - 7).astype(np.float32)

    def zero(self, dtype: str, shape: Sequence[int], dims: str) -> Given:
        """Return a zero point: one, or one for each index of the dims."""
        if self.maybe():
            return plain(self.integers(dtype), "", constant=self.maybe())
        return plain(self.integers(dtype, *shape), dims, constant=self.maybe())

    def product(self) -> tuple[Any, list[Given]]:
        """Return a product of matrices with zero points or none."""
        m, n, k = (int(self.random.integers(1, most)) for most in (70, 70, 200))
        batch, right_batch = self.of(("", ""), ("B=3", "B=3"), ("B=3", ""), ("B=3 H=2", "B=3 H=2"))
        left_type, right_type = self.of(*BYTES), self.of(*BYTES)

        def dims(text: str, **own: int) -> dict[str, int]:
            words = (word.split("=") for word in text.split())
            return {**{name: int(size) for name, size in words}, **own}

        left, right = dims(batch, M=m, K=k), dims(right_batch, K=k, N=n)
        if self.maybe():
            right = dims(right_batch, N=n, K=k)
        inputs = [
            plain(self.integers(left_type, *left.values()), " ".join(left)),
            plain(self.integers(right_type, *right.values()), " ".join(right), self.maybe()),
        ]
        if self.maybe():
            for dtype, sizes in ((left_type, left), (right_type, right)):
                own = {dim: size for dim, size in sizes.items() if dim != "K"}
                inputs.append(self.zero(dtype, [*own.values()], " ".join(own)))
        return ops.MatMulInteger("K"), inputs

    def convolution(self) -> tuple[Any, list[Given]]:
        """Return a convolution over one to three spatial dims, with zero points or none."""
        spatial = self.of("W", "H W", "H W", "D H W").split()
        groups = self.of(1, 1, 2, 40)
        inner, outer = (1, self.of(1, 1, 2)) if groups == 40 else self.random.integers(1, 21, 2)
        taps = [self.of(1, 2, 3) for _ in spatial]
        strides, dilations = ([self.of(1, 1, 2) for _ in spatial] for _ in range(2))
        pads = [self.of(0, 1, 2) for _ in spatial * 2]
        sizes = [int(self.random.integers(5, 12)) for _ in spatial]
        src_type, weights_type = self.of(*BYTES), self.of(*BYTES)
        grouped = groups > 1 or self.random.random() < 0.1
        channels = {"G": groups, "O": int(outer)} if grouped else {"O": int(outer)}
        kernel = " ".join([*channels, "I", *map(str.lower, spatial)])
        inputs = [
            plain(
                self.integers(src_type, 2, groups * int(inner), *sizes), f"N C {' '.join(spatial)}"
            ),
            plain(
                self.integers(weights_type, *channels.values(), int(inner), *taps),
                kernel,
                self.maybe(),
            ),
        ]
        if self.maybe():
            inputs.append(plain(self.integers(src_type), ""))
            inputs.append(self.zero(weights_type, [*channels.values()], " ".join(channels)))
        window = tuple(strides), tuple(pads), tuple(dilations)
        return ops.ConvInteger(*window, group=groups), inputs

    def behind(self, dims: dict[str, int], column: str) -> Calls:
        """Return what follows sums of the given dims: any prefix of all that may."""
        one = {column: dims[column]}

        def by(make: Any) -> Given:
            if self.maybe():
                return plain(make(), "", constant=True)
            return plain(make(*one.values()), column, constant=True)

        def zero(dtype: str) -> list[Given]:
            return [plain(self.integers(dtype), "", True)] if self.maybe() else []

        calls: Calls = []
        if self.maybe():
            bias = self.random.integers(-(2**16), 2**16, one[column], np.int32)
            calls.append((ops.BiasAdd(), [plain(bias, column, constant=True)]))
        kind = self.of("sums", "requantized", "scaled", "cast")
        to = self.of(*BYTES)
        if kind == "requantized":
            calls.append((ops.Requantize(to), [by(self.scale), *zero(to)]))
        elif kind == "scaled":
            calls.append((ops.DequantizeLinear(), [by(self.scale)]))
        elif kind == "cast":
            calls += [(ops.Cast("f32"), []), (ops.Mul(), [by(self.scale)])]
        if kind == "requantized" and len(calls[-1][1]) == 2 and self.maybe():
            residual = plain(self.integers(to, *dims.values()), " ".join(dims))
            codes = [
                [plain(self.scale(), "", True), plain(self.integers(to), "", True)]
                for _ in range(2)
            ]
            add = [*codes[0], residual, *codes[1]]
            calls.append((ops.DequantizedAdd(), add))
        elif kind in ("sums", "requantized"):
            return calls
        if kind != "requantized" and self.maybe():
            bias = self.random.normal(size=one[column]).astype(np.float32)
            calls.append((ops.BiasAdd(), [plain(bias, column, constant=True)]))
        if kind != "requantized" and self.maybe():
            other = self.random.normal(size=tuple(dims.values())).astype(np.float32)
            calls.append((ops.Add(), [plain(other, " ".join(dims))]))
        if self.maybe():
            calls.append((self.of(ops.Relu(), ops.Relu6(), ops.Clip(-0.5, 1.5)), []))
        if self.maybe():
            step = plain(np.array(self.random.random() / 8 + 0.01, np.float32), "", constant=True)
            calls.append((ops.QuantizeLinear(to), [step, *zero(to)]))
        return calls


def fused(op: Any, inputs: list[Given], behind: Sequence[tuple[Any, list[Given]]] = ()) -> Outcome:
    """Run an operator and its followers in one call of narrow."""
    operands = [given for _, others in behind for given in others]
    counts = [(follower, len(others)) for follower, others in behind]
    return run("narrow", op, [*inputs, *operands], counts)


def defined(op: Any, inputs: list[Given], behind: Calls) -> Array:
    """Return the definition's result of an operator and its followers, each in its own types."""
    made = run("numpy", op, inputs)
    for follower, operands in behind:
        before = plain(made.values[0], " ".join(made.dims[0]))
        made = run("numpy", follower, [before, *operands])
    return made.values[0]


@pytest.mark.parametrize("seed", range(60))
@pytest.mark.parametrize("kind", ["product", "convolution"])
def test_a_call_with_all_that_follows_gives_the_definitions_bits(kind: str, seed: int) -> None:
    draw = Draw(seed)
    op, inputs = getattr(draw, kind)()
    sums = run("numpy", op, inputs)
    dims = dict(zip(sums.dims[0], sums.values[0].shape, strict=True))
    behind = draw.behind(dims, "N" if kind == "product" else "C")
    found = fused(op, inputs, behind)
    assert all(kernel.startswith("narrow:") for kernel in found.kernels)
    assert len(found.kernels) == 1
    np.testing.assert_array_equal(found.values[0], defined(op, inputs, behind), strict=True)
    check_pads(found.physical[0])


@pytest.mark.parametrize("left", BYTES)
@pytest.mark.parametrize("right", BYTES)
def test_the_largest_products_do_not_saturate(left: str, right: str) -> None:
    rows, depth = 33, 9000
    a = np.full((rows, depth), integer_range(left)[left == "u8"], numpy_dtype(left))
    b = np.full((depth, 40), integer_range(right)[right == "u8"], numpy_dtype(right))
    inputs = [plain(a, "M K"), plain(b, "K N", constant=True)]
    [found] = fused(ops.MatMulInteger("K"), inputs).values
    expected = int(a[0, 0]) * int(b[0, 0]) * depth
    np.testing.assert_array_equal(found, np.full((rows, 40), expected, np.int32))


def test_sums_wrap_around() -> None:
    depth = 2**31 // (255 * 255) + 5
    a, b = np.full((1, depth), 255, np.uint8), np.full((depth, 1), 255, np.uint8)
    [found] = fused(ops.MatMulInteger("K"), [plain(a, "M K"), plain(b, "K N")]).values
    assert found[0, 0] == 255 * 255 * depth - 2**32


def test_what_is_not_a_number_becomes_0_and_what_is_too_large_saturates() -> None:
    a, b = np.ones((4, 2), np.uint8), np.ones((2, 1), np.int8)
    other = np.array([[np.nan], [np.inf], [-np.inf], [0.0]], np.float32)
    quarter = plain(np.array(0.25, np.float32), "", constant=True)
    behind: Calls = [
        (ops.DequantizeLinear(), [quarter]),
        (ops.Add(), [plain(other, "M N")]),
        (ops.QuantizeLinear("s8"), [quarter, plain(np.array(3, np.int8), "", constant=True)]),
    ]
    inputs = [plain(a, "M K"), plain(b, "K N", constant=True)]
    [found] = fused(ops.MatMulInteger("K"), inputs, behind).values
    np.testing.assert_array_equal(found.ravel(), [0, 127, -128, 5])
    np.testing.assert_array_equal(found, defined(ops.MatMulInteger("K"), inputs, behind))


@pytest.mark.parametrize("first", [True, False])
def test_a_residual_block_is_one_step(first: bool) -> None:
    """Whether the residual is the first or the second operand of the sum."""
    random = np.random.default_rng(3)

    def scalar(value: float, dtype: type[np.generic]) -> tuple[Array, str]:
        return np.array(value, dtype), ""

    weights = random.integers(-128, 128, (32, 32, 3, 3)).astype(np.int8)
    g = Graph("block")
    x = g.input("x", {"N": 1, "C": 32, "H": 6, "W": 7}, "u8")
    more = [(weights, "O I h w"), scalar(9, np.uint8), scalar(0, np.int8)]
    y = g.add(ops.ConvInteger(pads=(1, 1, 1, 1)), x, *(g.constant(*one) for one in more))
    scale, zero = g.constant(*scalar(1e-3, np.float32)), g.constant(*scalar(90, np.uint8))
    made = g.add(ops.Requantize("u8"), y, scale, zero), scale, zero
    other = x, g.constant(*scalar(2e-3, np.float32)), g.constant(*scalar(9, np.uint8))
    y = g.add(ops.DequantizedAdd(), *((*other, *made) if first else (*made, *other)))
    y = g.add(ops.QuantizeLinear("u8"), g.add(ops.Relu(), y), scale, zero)
    g.output(y, "y")
    feed = {"x": random.integers(0, 256, (1, 32, 6, 7)).astype(np.uint8)}
    with Session(g, cache_dir=None) as session, Session(g, libraries=["numpy"]) as slow:
        [found], [expected] = session.run(None, feed), slow.run(None, feed)
        np.testing.assert_array_equal(found, expected)
        assert [step.library for step in session.plan.steps].count("narrow") == 1
        assert not [step for step in session.plan.steps if "pointwise" in step.kernels[0]]


SCALAR = plain(np.array(0.5, np.float32), "", constant=True)
MATRICES = [plain(np.ones((4, 3), np.uint8), "M K"), plain(np.ones((3, 5), np.int8), "K N", True)]
DECLINED: list[tuple[str, Calls]] = [
    ("Sigmoid", [(ops.DequantizeLinear(), [SCALAR]), (ops.Sigmoid(), [])]),
    ("so late", [
        (ops.DequantizeLinear(), [SCALAR]),
        (ops.Relu(), []),
        (ops.BiasAdd(), [plain(np.ones(5, np.float32), "N", constant=True)]),
    ]),
    ("without scaling", [(ops.Cast("f32"), [])]),
    ("Requantize", [
        (ops.Requantize(), [plain(np.ones(4, np.float32), "M", constant=True)]),
    ]),
]  # fmt: skip


@pytest.mark.parametrize(("why", "behind"), DECLINED)
def test_other_followers_are_declined(why: str, behind: Calls) -> None:
    with pytest.raises(NoInvokerError, match=why):
        fused(ops.MatMulInteger("K"), MATRICES, behind)


def test_zero_points_along_some_dims_of_a_factor_are_declined() -> None:
    a = plain(np.ones((2, 4, 3), np.uint8), "B M K")
    zeros = [plain(np.ones(2, np.uint8), "B"), plain(np.array(0, np.int8), "")]
    with pytest.raises(NoInvokerError, match="all dims of a factor"):
        fused(ops.MatMulInteger("K"), [a, MATRICES[1], *zeros])


def test_a_convolution_of_open_sizes_is_one_step_and_onnx_runtimes_bits() -> None:
    """Unsigned weights are stored as signed bytes, by a Transform of the constant."""
    random = np.random.default_rng(0)
    more: dict[str, Any] = {
        "sx": np.float32(0.02), "zx": np.uint8(7),
        "w": random.integers(0, 256, (30, 20, 3, 3)).astype(np.uint8),
        "sw": np.float32(0.03), "zw": np.uint8(120), "sy": np.float32(1.5), "zy": np.uint8(99),
        "b": random.integers(-999, 999, 30).astype(np.int32),
    }  # fmt: skip
    names = ("x", "sx", "zx", "w", "sw", "zw", "sy", "zy", "b")
    node = helper.make_node("QLinearConv", names, ["y"], pads=[1, 1, 1, 1])
    ports = [
        helper.make_tensor_value_info(name, TensorProto.UINT8, ["batch", channels, "size", 9])
        for name, channels in (("x", 20), ("y", 30))
    ]
    constants = [numpy_helper.from_array(np.asarray(value), name) for name, value in more.items()]
    graph = helper.make_graph([node], "one", ports[:1], ports[1:], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    peer = onnxruntime.InferenceSession(model.SerializeToString())
    with Session(model, cache_dir=None) as session:
        for batch, size in ((1, 5), (3, 8), (2, 1), (3, 8)):
            feed = {"x": random.integers(0, 256, (batch, 20, size, 9)).astype(np.uint8)}
            [found], [expected] = session.run(None, feed), peer.run(None, feed)
            np.testing.assert_array_equal(found, expected)
            kernels = [kernel for step in session.plan.steps for kernel in step.kernels]
            assert sum(kernel.startswith("narrow:") for kernel in kernels) == 1
            assert not any("numpy" in kernel or "pointwise" in kernel for kernel in kernels)


CAPPED = """
import sys, hashlib
import numpy as np
import vtensor
vtensor.limit_isa(sys.argv[1])
from tests.operators.test_integers import Draw, fused, run
from libdesc.narrow import native

digest = hashlib.sha256()
for seed in range(40):
    for kind, column in (("product", "N"), ("convolution", "C")):
        draw = Draw(seed)
        op, inputs = getattr(draw, kind)()
        sums = fused(op, inputs)
        dims = dict(zip(sums.dims[0], sums.values[0].shape, strict=True))
        digest.update(fused(op, inputs, draw.behind(dims, column)).values[0].tobytes())
print(native.instructions(), digest.hexdigest())
"""


def test_every_cap_gives_equal_bits() -> None:
    """The instructions differ as far as the machine has them."""
    rows = [printed("-c", CAPPED, cap).split() for cap in CAPS]
    assert len({digest for _, digest in rows}) == 1
    level = native.load_baseline().machine_level()
    assert len({kind for kind, _ in rows}) >= {"baseline": 1, "avx2": 2, "avx512": 3}[level]
    assert dict(zip(CAPS, rows, strict=True))["avx512"][0] != "amx"
