"""What is offered behind a node, what libraries take of it, and that it is the same network."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from libdesc.preferences import Preferences
from ops import (
    Add,
    BatchNorm,
    BiasAdd,
    Cast,
    Clip,
    Concat,
    Conv2D,
    Div,
    Erf,
    Greater,
    LayerNormalization,
    MatMul,
    Mul,
    Relu,
    Relu6,
    RMSNormalization,
    Sigmoid,
    Slice,
    Softmax,
    Sub,
    Where,
)
from optimizer.fuse import fuse
from ptensor import Layout, PTensor, lib_tagger
from resolver.check import check
from resolver.evaluate import resolve
from resolver.extend import extend
from resolver.lowered import LoweredGraph, OpNode
from tests.libraries.bench import Bench
from vtensor import Session
from vtensor.errors import UnsoundPlanError
from vtensor.language.graph import Graph
from vtensor.language.tensor import VTensor
from vtensor.runtime.planning.library_options import preferences_of

Array = np.ndarray[Any, Any]
IMAGE = {"N": 1, "C": 16, "H": 6, "W": 6}


def weights(g: Graph, seed: int = 0) -> VTensor:
    array = np.random.default_rng(seed).standard_normal((16, 16, 3, 3)) / 12
    return g.constant(array.astype(np.float32), "O I h w")


def convolution(g: Graph, x: VTensor, name: str) -> VTensor:
    """A convolution and its bias."""
    y = g.add(Conv2D(pads=(1, 1, 1, 1)), x, weights(g), name=name)
    made: VTensor = g.add(
        BiasAdd(), y, g.constant(np.linspace(-1, 1, 16, dtype=np.float32), "C"), name=f"{name}_bias"
    )
    return made


def residual(asked: bool = False) -> Graph:
    """relu(conv(relu(conv(x))) + x), the inner sum an output where it is asked for."""
    g = Graph("residual")
    x = g.input("x", IMAGE)
    inner = g.add(Relu(), convolution(g, x, "a"), name="a_relu")
    total = g.add(Add(), x, convolution(g, inner, "b"), name="sum")
    g.output(g.add(Relu(), total, name="end"), "y")
    if asked:
        g.output(total, "sum")
    return g.seal()


def offered(graph: Graph, preferences: Preferences | None = None) -> dict[str, list[str]]:
    offers = fuse(graph, preferences or Preferences()).offers
    return {lead: [node.name for node in behind] for lead, behind in offers.items()}


def labels(session: Session) -> list[str]:
    return [step.op for step in session.plan.steps if not step.is_transform]


def test_a_chain_is_offered() -> None:
    assert offered(residual()) == {
        "a": ["a_bias", "a_relu"],
        "a_bias": ["a_relu"],
        "b": ["b_bias", "sum", "end"],
        "b_bias": ["sum", "end"],
        "sum": ["end"],
    }


def test_an_output_ends_a_chain() -> None:
    assert offered(residual(asked=True))["b"] == ["b_bias", "sum"]


@pytest.mark.parametrize("pin", [{"sum": "onednn"}, {"Add": "onednn"}])
def test_a_pinned_node_ends_a_chain(pin: dict[str, str]) -> None:
    assert offered(residual(), preferences_of(pin=pin))["b"] == ["b_bias"]


def test_of_two_leads_the_later_one_is_offered_their_sum() -> None:
    g = Graph("two")
    x = g.input("x", IMAGE)
    g.output(g.add(Add(), convolution(g, x, "a"), convolution(g, x, "b"), name="sum"))
    assert offered(g.seal()) == {"a": ["a_bias"], "b": ["b_bias", "sum"], "b_bias": ["sum"]}


def test_what_says_nothing_of_itself_ends_a_chain() -> None:
    g = Graph("softmax")
    g.output(g.add(Softmax(("C",)), convolution(g, g.input("x", IMAGE), "a")))
    assert offered(g.seal()) == {"a": ["a_bias"]}


def check_same_values(graph: Graph, **options: Any) -> list[str]:
    """A session gives what NumPy alone gives; what its plan runs."""
    feeds = {"x": np.random.default_rng(1).standard_normal((1, 16, 6, 6)).astype(np.float32)}
    with (
        Session(graph, **options) as session,
        Session(graph, optimize="none", libraries=["numpy"]) as plain,
    ):
        for _ in range(2):
            found, expected = (one.run(None, feeds) for one in (session, plain))
            for value, wanted in zip(found, expected, strict=True):
                np.testing.assert_allclose(value, wanted, rtol=1e-4, atol=1e-5)
        return labels(session)


def test_onednn_takes_it_all() -> None:
    whole = ["Conv2D + BiasAdd + Relu", "Conv2D + BiasAdd + Add + Relu"]
    assert check_same_values(residual()) == whole
    assert check_same_values(residual(), optimize=["fuse"]) == whole
    assert check_same_values(residual(asked=True))[1:] == ["Conv2D + BiasAdd + Add", "Relu"]


def test_level_ewo_fuses_nothing() -> None:
    alone = ["Conv2D", "BiasAdd", "Relu", "Conv2D", "BiasAdd", "Add", "Relu"]
    assert check_same_values(residual(), optimize="ewo") == alone


def test_who_takes_no_follower_leaves_a_node() -> None:
    g = residual()
    with Session(g, libraries=["numpy"]) as session:
        assert labels(session) == [node.op_name for node in g.nodes.values()]
        assert not session.plan.graph.merged


def test_eigen_takes_runs_of_what_is_point_wise() -> None:
    runs = ["Conv2D", "BiasAdd + Relu", "Conv2D", "BiasAdd + Add + Relu"]
    assert check_same_values(residual(), libraries=["eigen"]) == runs


def gelu(g: Graph, x: VTensor) -> VTensor:
    """x * (1 + erf(x / sqrt(2))) / 2, as exporters spell it; a number is the first operand once."""
    root, one, two = (g.constant(np.float32(number), "") for number in (2**0.5, 1, 2))
    inner = g.add(Add(), one, g.add(Erf(), g.add(Div(), x, root)))
    return g.add(Div(), g.add(Mul(), x, inner), two)


def test_a_run_is_one_step_whatever_its_operands_are() -> None:
    """The lead's own input again, numbers, a channel's operand, and the value twice."""
    g = Graph("run")
    y = gelu(g, g.input("x", {"N": 1, "C": 16, "H": 6, "W": 6}))
    y = g.add(Mul(), y, y)
    y = g.add(Sub(), g.constant(np.arange(16, dtype=np.float32), "C"), y)
    y = g.add(Where(), g.constant(np.arange(6) > 2, "W"), y, g.constant(np.float32(7), ""))
    g.output(y)
    [step] = check_same_values(g.seal(), optimize=["all", "-rewrite"])
    assert step == "Div + Erf + Add + Mul + Div + Mul + Sub + Where"


@pytest.mark.parametrize("sizes", [(16, 16, 16), (16, 3)])
@pytest.mark.parametrize("layout", ["NCHW", "NHWC", "NCHW8c"])
def test_what_is_put_together_is_normalized_in_the_same_pass(
    layout: str, sizes: tuple[int, ...]
) -> None:
    g = Graph("dense")
    x = g.input("x", IMAGE)
    parts = [g.add(Sigmoid(), g.add(Slice(("C",), (0,), (n,), (1,)), x)) for n in sizes]
    y = g.add(Concat("C"), *parts)
    rows = np.random.default_rng(0).random((4, sum(sizes)), np.float32) + 1
    y = g.add(BatchNorm(), y, *(g.constant(row, "C") for row in rows))
    y = g.add(Relu(), g.add(Sub(), y, g.constant(np.float32(1), "")))
    g.output(g.add(Softmax(("H", "W")), y))
    found = check_same_values(g.seal(), input_layouts={"x": layout})
    assert "Concat + BatchNorm + Sub + Relu" in found


def test_integers_in_a_run_have_no_more_bits_than_their_type() -> None:
    g = Graph("integers")
    x = g.input("x", {"N": 4}, "u8")
    y = g.add(Div(), g.add(Add(), x, x), g.constant(np.uint8(2), ""))
    g.output(y)
    values = np.array([1, 100, 128, 255], np.uint8)
    with Session(g.seal()) as session:
        assert labels(session) == ["Add + Div"]
        assert session.run(None, {"x": values})[0].tolist() == [1, 100, 0, 127]


def test_a_value_of_another_type_or_other_dims_ends_a_run() -> None:
    g = Graph("ends")
    x = g.input("x", {"N": 1, "C": 16, "H": 6, "W": 6})
    small = g.add(Sigmoid(), g.input("s", {"C": 16}))
    y = g.add(Cast("f32"), g.add(Greater(), g.add(Relu(), x), g.constant(np.float32(0.5), "")))
    g.output(g.add(Mul(), y, small))
    assert offered(g.seal()) == {"Cast:0": ["Mul:0"]}


def test_a_library_takes_no_follower_that_it_may_not_take_alone() -> None:
    options: dict[str, Any] = {"libraries": ["numpy"], "pin": {"Conv2D": "onednn", "sum": "onednn"}}
    alone = [node.op_name for node in residual().nodes.values()]
    assert check_same_values(residual(), **options) == alone


def product(*behind: object) -> Graph:
    """A product in f32 and what is behind it."""
    g = Graph("product")
    y = g.add(MatMul("K"), g.input("x", {"M": 2, "K": 3}), g.constant(np.eye(3, dtype="f"), "K N"))
    for number, op in enumerate(behind):
        y = g.add(op, y, name=f"{type(op).__name__}{number}")
    g.output(y, "y")
    return g.seal()


def run_product(graph: Graph, **options: Any) -> tuple[list[str], list[str], float]:
    """What a plan runs, on which libraries, and what becomes of -1."""
    with Session(graph, **options) as session:
        [y] = session.run(None, {"x": np.full((2, 3), -1, np.float32)})
        steps = [step for step in session.plan.steps if not step.is_transform]
        return [step.op for step in steps], [step.library for step in steps], float(y.max())


def test_an_invoker_in_python_takes_nothing_by_looking(bench: Bench) -> None:
    seen = []

    @bench.invoker("MatMul")
    def nosy(ctx: Any, op: Any, a: Any, b: Any, y: Any) -> None:
        seen.append(ctx.followers)
        left, right, dst = (PTensor(one).require(Layout.plain(one.dims)) for one in (a, b, y))
        if lib_tagger("toy", [left, right], [dst]):
            return
        dst.data()[...] = left.data() @ right.data()

    assert run_product(product(Relu())) == (["MatMul", "Relu"], ["toy", "onednn"], 0)
    assert seen


def test_an_invoker_in_python_runs_nothing_behind_it(bench: Bench) -> None:
    """One that makes PTensors of a follower's operands, too: the plan that is made can be run."""

    @bench.invoker("MatMul")
    def fusing(ctx: Any, op: Any, a: Any, b: Any, y: Any) -> None:
        left, right, dst = (PTensor(one).require(Layout.plain(one.dims)) for one in (a, b, y))
        more = [PTensor(one) for follower in ctx.followers for one in follower.operands]
        if lib_tagger("toy", [left, right, *more], [dst]):
            return
        dst.data()[...] = left.data() @ right.data()

    g = Graph("sum")
    x, mask = g.input("x", {"M": 2, "K": 3}), g.input("mask", {"M": 2, "N": 3})
    y = g.add(MatMul("K"), x, g.constant(np.eye(3, dtype=np.float32), "K N"))
    g.output(g.add(Add(), y, mask))
    ones = np.ones((2, 3), np.float32)
    with Session(g.seal()) as session:
        assert labels(session) == ["MatMul", "Add"]
        [found] = session.run(None, {"x": ones, "mask": ones})
    assert (found == 2).all()


def relu_on_toy(bench: Bench, **options: Any) -> None:
    """Let toy, which comes before oneDNN, take Relu: what it makes is 7."""

    @bench.invoker("Relu", **options)
    def seven(ctx: Any, op: Any, x: Any, y: Any) -> None:
        src, dst = PTensor(x).require("ANY"), PTensor(y).require("ANY")
        if lib_tagger("toy", [src], [dst]):
            return
        dst.data()[...] = 7


def test_a_library_that_comes_first_keeps_its_operator(bench: Bench) -> None:
    relu_on_toy(bench)
    assert run_product(product(Relu())) == (["MatMul", "Relu"], ["onednn", "toy"], 7)
    whole = ["MatMul + Clip", "Relu", "Softmax"]
    found = run_product(product(Clip(0.0, 2.0), Relu(), Softmax(("N",))))
    assert found[:2] == (whole, ["onednn", "toy", "onednn"])


def test_a_longer_run_goes_before_priority(bench: Bench) -> None:
    """It saves passes over memory; an order that the session gives binds."""
    relu_on_toy(bench)
    graph = product(Clip(0.0, 2.0), Relu(), Relu6())
    assert run_product(graph)[:2] == (["MatMul + Clip", "Relu + Relu6"], ["onednn", "eigen"])
    order = ["toy", "onednn", "eigen"]
    found = run_product(graph, libraries=order)
    assert found[:2] == (["MatMul + Clip", "Relu", "Relu6"], ["onednn", "toy", "onednn"])


def test_a_library_that_comes_first_and_declines_is_passed_over(bench: Bench) -> None:
    relu_on_toy(bench, when=lambda op, x, y: "not today")
    assert run_product(product(Relu())) == (["MatMul + Relu"], ["onednn"], 0)


@pytest.mark.parametrize(
    "options",
    [{"libraries": ["onednn", "toy"]}, {"libraries": ["onednn"]}],
)
def test_the_sessions_order_goes_before_priority(bench: Bench, options: dict[str, Any]) -> None:
    relu_on_toy(bench)
    assert run_product(product(Relu()), **options) == (["MatMul + Relu"], ["onednn"], 0)


def test_a_library_that_the_session_puts_first_keeps_its_operator() -> None:
    graph = product(Relu())
    with Session(graph, libraries=["numpy", "onednn"], pin={"MatMul": "onednn"}) as session:
        assert [step.library for step in session.plan.steps if not step.is_transform] == [
            "onednn",
            "numpy",
        ]


def test_a_library_takes_what_it_can_from_the_first_on() -> None:
    """A bias behind bounds is nothing that oneDNN has; what comes before it is taken."""
    g = Graph("late")
    y = g.add(Relu6(), g.add(Conv2D(), g.input("x", IMAGE), weights(g)))
    g.output(g.add(BiasAdd(), y, g.constant(np.ones(16, np.float32), "C")))
    assert check_same_values(g.seal()) == ["Conv2D + Relu6", "BiasAdd"]


def test_a_product_of_matrices() -> None:
    g = Graph("dense")
    x = g.input("x", {"N": 1, "C": 16, "H": 6, "W": 6})
    y = g.add(MatMul("C"), x, g.constant(np.eye(16, 8, dtype=np.float32), "C K"))
    g.output(g.add(Relu(), g.add(BiasAdd(), y, g.constant(np.ones(8, np.float32), "K"))))
    assert check_same_values(g.seal()) == ["MatMul + BiasAdd + Relu"]


@pytest.mark.parametrize(("bounds", "high"), [(Relu(), np.inf), (Relu6(), 6), (Clip(0, 2), 2)])
def test_fused_bounds_keep_nan_and_bound_infinities(bounds: object, high: float) -> None:
    g = Graph("special")
    x, mask = g.input("x", {"M": 1, "K": 5}), g.input("mask", {"M": 1, "N": 5})
    y = g.add(MatMul("K"), x, g.constant(np.eye(5, dtype=np.float32), "K N"))
    g.output(g.add(bounds, g.add(Add(), y, mask)))
    special = np.array([[np.nan, np.inf, -np.inf, -1, 1]], np.float32)
    with Session(g) as session:
        assert len(labels(session)) == 1
        [found] = session.run(None, {"x": np.zeros((1, 5), np.float32), "mask": special})
    np.testing.assert_array_equal(found, [[np.nan, high, 0, 0, 1]])


def test_inner_values_can_be_asked_for() -> None:
    graph = residual()
    feeds = {"x": np.ones((1, 16, 6, 6), np.float32)}
    with Session(graph) as session, Session(graph, optimize="none") as plain:
        for name in ("a", "b_bias", "sum"):
            found, expected = (one.run([name], feeds)[0] for one in (session, plain))
            np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def extended(graph: Graph) -> LoweredGraph:
    return extend(resolve(fuse(graph)))


def changed(graph: LoweredGraph, **fields: Any) -> LoweredGraph:
    """The same, the last operator's node with other fields."""
    [*_, last] = (node for node in graph.nodes if isinstance(node, OpNode))
    nodes = [replace(node, **fields) if node is last else node for node in graph.nodes]
    return replace(graph, nodes=nodes)


def test_the_check_follows_what_is_fused() -> None:
    graph = residual()
    plan = extended(graph)
    assert [node.op_name for node in plan.nodes if isinstance(node, OpNode)] == [
        "Conv2D + BiasAdd + Relu",
        "Conv2D + BiasAdd + Add + Relu",
    ]
    # the twins: a follower is left out, they change places, one is wanted elsewhere, or is no node
    able = ["onednn", "eigen", "numpy"]
    ops = [node for node in plan.nodes if isinstance(node, OpNode)]
    check(plan, graph, able)
    bias, total, end = ops[-1].followers
    for followers in ((bias, end), (total, bias, end), (bias, replace(total), end), (bias, total)):
        with pytest.raises(UnsoundPlanError):
            check(changed(plan, followers=followers), graph, able)
    with pytest.raises(UnsoundPlanError, match="not for it alone"):
        check(plan, graph.delivering(["sum"]), able)


def normalized(kind: str, read: bool = False) -> Graph:
    """A normalization and the shift behind it; its mean is an output where it is to be read."""
    g, random = Graph("normalized"), np.random.default_rng(3)
    x = g.input("x", {"N": 1, "C": 16, "T": 6, "F": 6})
    scale, shift = (g.constant(random.standard_normal(6).astype("f4"), "F") for _ in range(2))
    op = LayerNormalization(("F",)) if kind == "layer" else RMSNormalization(("F",))
    made = g.add(op, x, scale)
    y, mean = (made[0], made[1]) if isinstance(made, tuple) else (made, None)
    g.output(g.add(BiasAdd(), y, shift), "y")
    if read and mean is not None:
        g.output(mean, "mean")
    return g.seal()


@pytest.mark.parametrize("library", ["onednn", "eigen"])
@pytest.mark.parametrize("read", [False, True])
def test_a_normalization_adds_its_shift(library: str, read: bool) -> None:
    whole = ["LayerNormalization + BiasAdd"]
    options: dict[str, Any] = {"pin": {"LayerNormalization": library}}
    assert check_same_values(normalized("layer", read), **options) == whole


def test_of_a_root_mean_square_too() -> None:
    assert check_same_values(normalized("rms")) == ["RMSNormalization + BiasAdd"]


def test_a_step_whose_result_nobody_reads_does_not_run() -> None:
    """oneDNN gives the variance, of which two more steps make the output that is asked for here."""
    counts = []
    for asked in (False, True):
        g = Graph("inverse")
        x, scale = g.input("x", {"N": 2, "F": 24}), g.constant(np.ones(24, np.float32), "F")
        y, _, inverse = g.add(LayerNormalization(("F",)), x, scale)
        g.output(y, "y")
        if asked:
            g.output(inverse, "inverse")
        with Session(g.seal(), libraries=["onednn"]) as session:
            counts.append(len(session.plan.recorded))
    assert counts == [1, 3]
