"""Products of f32 as products of bf16 planes, three or two, which a small tolerance may choose."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from libdesc.onednn import _onednn as dnn
from libdesc.onednn import routines_fused
from libdesc.onednn.layouts import PLANES
from libdesc.onednn.native import speeds
from libdesc.schema import Speed
from libdesc.transforms import LayoutChange
from ops import Add, Conv2D, Gelu, MatMul, Relu
from optimizer.choice.errors import Allowed
from optimizer.choice.problem import Clock
from optimizer.joint import timed_variants
from resolver.errors import planes_form
from resolver.lowered import OpNode
from tests.optimizer.graphs import extended_of
from tests.optimizer.test_narrow import NETWORKS, Array, Keen, Said, large_net, off, run
from tests.optimizer.test_widen import input_of
from vtensor import Session
from vtensor.errors import InvokerError
from vtensor.language.graph import Graph
from vtensor.language.tensor import VTensor
from vtensor.runtime.planning import tuned
from vtensor.runtime.tuning import tuner as tuning

#: Three products in bf16 are faster than one in f32 with AMX only.
needs_amx = pytest.mark.skipif(
    speeds().get("bf16", Speed()).products <= routines_fused.products_of(PLANES),
    reason="bf16 is less than three times as fast as f32",
)

#: The largest error of a product of planes, relative to the largest result; that of bf16 is 2**-9.
LARGEST_ERROR = 2e-5


class KeenOnPlanes(Keen):
    """Times by which products of planes are faster than others."""

    form = "bf16+bf16"

    def transform(self, value: VTensor, change: LayoutChange) -> int:
        """Return the time of a Transform: none."""
        return 0


class KeenOnTwo(KeenOnPlanes):
    """Times by which two products of planes are faster than others."""

    def node(self, node: OpNode, values: Mapping[str, VTensor]) -> int:
        """Return the time of a node."""
        return 1 if planes_form(node.variant) == "bf16x2" else 1000


@pytest.fixture
def keen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the tuner find that products of planes are the fastest."""
    monkeypatch.setattr(tuning, "Tuner", lambda *_: KeenOnPlanes(1))
    monkeypatch.setattr(tuned, "fastest", lambda plans, _: (plans[0], [1] * len(plans)))


def kernels(session: Session, form: str = "bf16x3") -> list[str]:
    """Return the names of the plan's kernels on planes."""
    names = (name for step in session.plan.steps for name in step.kernels)
    return [name for name in names if name.startswith(f"{form}:")]


@needs_amx
@pytest.mark.usefixtures("keen")
@pytest.mark.parametrize("name", NETWORKS)
def test_a_small_tolerance_admits_planes(name: str, tmp_path: Path) -> None:
    model, lock = NETWORKS[name]("f32"), tmp_path / "plan.toml"
    feeds = input_of(model, "f32", seed=11)
    options: Any = {"threads": 1, "cache_dir": False, "tolerance": LARGEST_ERROR}
    with Session(model, tune=True, **options) as session:
        [y] = session.run(None, feeds)
        names = kernels(session)
        session.lock().write(lock)
    assert names
    assert 0 < off(run(model, feeds), y) <= LARGEST_ERROR
    with Session(model, plan=lock, **options) as session:
        assert np.array_equal(session.run(None, feeds)[0], y)
        assert kernels(session) == names


def matrices(g: Graph, random: Callable[..., Array]) -> VTensor:
    """Return the product of a matrix of 37 rows and a constant, with what can be fused to it."""
    x = g.input("x", {"M": 37, "K": 50})
    y = g.add(MatMul("K"), x, g.constant(random(50, 41), "K N"))
    return g.add(Gelu(), g.add(Add(), y, g.constant(random(41), "N")))


def rows(g: Graph, random: Callable[..., Array]) -> VTensor:
    """Return the products of several matrices and one constant."""
    x = g.input("x", {"B": 3, "M": 17, "K": 64})
    return g.add(MatMul("K"), x, g.constant(random(64, 48), "K N"))


def residual(g: Graph, random: Callable[..., Array]) -> VTensor:
    """Return a convolution of few channels to which its input is added, then bounded."""
    x = g.input("x", {"N": 2, "C": 19, "H": 9, "W": 7})
    y = g.add(Conv2D(pads=(1, 1, 1, 1)), x, g.constant(random(19, 19, 3, 3), "O I h w"))
    y = g.add(Add(), y, g.constant(random(19), "C"))
    return g.add(Relu(), g.add(Add(), y, x))


def strided(g: Graph, random: Callable[..., Array]) -> VTensor:
    """Return a convolution with strides and pads."""
    x = g.input("x", {"N": 1, "C": 32, "H": 14, "W": 14})
    op = Conv2D(strides=(2, 2), pads=(1, 0, 1, 1))
    return g.add(op, x, g.constant(random(64, 32, 3, 3), "O I h w"))


@needs_amx
@pytest.mark.usefixtures("keen")
@pytest.mark.parametrize("network", [matrices, rows, residual, strided])
def test_planes_keep_most_digits(network: Callable[..., VTensor]) -> None:
    """The error is far below that of bf16, and above that of f32."""
    rng = np.random.default_rng(3)
    g = Graph("product")
    y = network(g, lambda *shape: rng.standard_normal(shape, np.float32))
    g.output(y, "y")
    [value] = [g.values[name] for name in g.inputs]
    feeds = {value.name: rng.standard_normal([*value.dims.values()], np.float32)}
    options: Any = {"threads": 1, "cache_dir": False}
    with Session(g, tune=True, tolerance=1e-3, **options) as session:
        [answer] = session.run(None, feeds)
        assert kernels(session)
    assert 1e-7 < off(run(g, feeds), answer) < LARGEST_ERROR


@needs_amx
@pytest.mark.parametrize("network", [matrices, rows, residual, strided])
def test_two_products_suffice_if_weights_are_in_bf16(
    network: Callable[..., VTensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Weights of f32 that bf16 holds lose nothing; others err as much as in bf16."""
    monkeypatch.setattr(tuning, "Tuner", lambda *_: KeenOnTwo(1))
    monkeypatch.setattr(tuned, "fastest", lambda plans, _: (plans[0], [1] * len(plans)))
    options: Any = {"threads": 1, "cache_dir": False}
    for type_, tolerance, least, most in [
        (ml_dtypes.bfloat16, LARGEST_ERROR, 1e-7, LARGEST_ERROR),
        (np.float32, 1e-2, 2e-4, 2.0**-8),
        (np.float32, LARGEST_ERROR, 0.0, 0.0),
    ]:
        rng = np.random.default_rng(3)

        def random(*shape: int, type_: Any = type_, rng: Any = rng) -> Array:
            array: Array = rng.standard_normal(shape).astype(type_).astype(np.float32)
            return array

        g = Graph("product")
        g.output(network(g, random), "y")
        [value] = [g.values[name] for name in g.inputs]
        feeds = {value.name: rng.standard_normal([*value.dims.values()], np.float32)}
        with Session(g, tune=True, tolerance=tolerance, **options) as session:
            [answer] = session.run(None, feeds)
            assert bool(kernels(session, "bf16x2")) == bool(most)
        assert least <= off(run(g, feeds), answer) <= most or not most


@needs_amx
@pytest.mark.usefixtures("keen")
def test_open_sizes_and_another_session(tmp_path: Path) -> None:
    """Approximate plans are not saved: another session makes the same one, with equal bits."""
    file, rng = large_net(tmp_path / "net.onnx"), np.random.default_rng(0)
    feeds = [{"x": rng.standard_normal((rows, 512), np.float32)} for rows in (3, 70)]
    options: Any = {"threads": 1, "cache_dir": tmp_path / "cache", "tolerance": LARGEST_ERROR}
    answers = list[Array]()
    for _ in range(2):
        with Session(file, tune=True, **options) as session:
            for feed in feeds:
                answers.append(np.array(session.run(None, feed)[0]))
                assert len(kernels(session)) == 2
    for i, feed in enumerate(feeds):
        assert np.array_equal(answers[i], answers[i + 2])
        assert 0 < off(run(file, feed), answers[i]) < LARGEST_ERROR


def flat(*dims: int, dtype: str = "bf16") -> dnn.Desc:
    """Return the descriptor of a matrix in rows."""
    return dnn.Desc.tag(dims, dtype, "ab")


def product(*attrs: dnn.Attr, sizes: tuple[int, int, int] = (4, 8, 16)) -> dnn.Primitive:
    """Return a product of matrices, f32 from bf16."""
    m, k, n = sizes
    return dnn.matmul(flat(m, k), flat(k, n), None, flat(m, n, dtype="f32"), *attrs)


@needs_amx
def test_only_products_that_add_up_are_taken() -> None:
    added = dnn.Attr().binary("add", flat(4, 16, dtype="f32"))
    first, second, last = product(), product(dnn.Attr().sum()), product(added)
    slots = ("src", "weights", "dst", "scratch")
    three, two = (dnn.product_in_planes(row) for row in ([first, second, last], [first, last]))
    assert (three.slots, three.kernel.split(":")[0]) == (slots, "bf16x3")
    assert (two.slots, two.kernel.split(":")[0]) == (slots, "bf16x2")
    other = product(sizes=(4, 8, 32))
    f32 = [flat(*dims, dtype="f32") for dims in ((4, 8), (8, 16), (4, 16))]
    wide = dnn.matmul(f32[0], f32[1], None, f32[2])
    copy = dnn.reorder(flat(4, 8), flat(4, 8))
    for primitives, reason in [
        ((second, second, last), "followers of the first"),
        ((first, first, last), "adds to its dst"),
        ((first, product(dnn.Attr().sum(2.0)), last), "adds to its dst"),
        ((first, second, first), "first adds an operand like dst"),
        ((first, second, second), "first adds an operand like dst"),
        ((first, second, other), "several layouts"),
        ((wide, wide, wide), "f32 from bf16"),
        ((copy, copy, copy), "lacks an operand"),
        ((first, second), "first adds an operand like dst"),
        ((last, last), "followers of the first"),
        ((first,), "two primitives or three"),
        ((first, second, second, last), "two primitives or three"),
    ]:
        with pytest.raises(ValueError, match=reason):
            dnn.product_in_planes(primitives)
    for primitive, planes, reason in [
        (first, 2, "not of a reorder"),
        (copy, 2, "from f32 to f32"),
        (dnn.reorder(flat(4, 8, dtype="f32"), flat(4, 8, dtype="f32")), 3, "one plane or two"),
    ]:
        with pytest.raises(ValueError, match=reason):
            dnn.reorder_to_planes(primitive, planes)


@needs_amx
def test_slower_bf16_has_no_planes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three products that are each 2.5 times as fast as one in f32 cannot win, two can."""
    g = Graph("product")
    g.output(rows(g, lambda *shape: np.ones(shape, np.float32)), "y")
    graph = extended_of(g)

    def found(clock: Clock) -> set[str]:
        allowed = Allowed(1.0, 1.0, Said(1))
        variants = timed_variants(graph, clock, allowed=allowed)
        return {planes_form(v) for listed in variants.values() for v in listed} - {""}

    for factor, forms in [(3.5, {"bf16x2", "bf16x3"}), (2.5, {"bf16x2"}), (1.8, set[str]())]:
        speed = {"bf16": Speed("AVX512_BF16", factor)}
        monkeypatch.setattr(routines_fused, "speeds", lambda speed=speed: speed)
        assert found(KeenOnPlanes(1)) | found(KeenOnTwo(1)) == forms


@needs_amx
def test_a_broken_library_is_no_reason_to_stay_strict(monkeypatch: pytest.MonkeyPatch) -> None:
    """Extension modules that are older than the code."""
    g = Graph("product")
    g.output(rows(g, lambda *shape: np.ones(shape, np.float32)), "y")
    monkeypatch.delattr(dnn, "product_in_planes")
    with pytest.raises(InvokerError, match="product_in_planes"):
        timed_variants(extended_of(g), KeenOnPlanes(1), allowed=Allowed(1.0, 1.0, Said(1)))
