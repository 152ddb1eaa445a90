"""What is offered after a node, what libraries take of it, and that it is the same network."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import ops
from libdesc import register, without_invoker
from libdesc.preferences import Preferences
from libdesc.schema import Description
from optimizer.fuse import fuse
from ptensor import Layout, PTensor, lib_tagger
from resolver.check import check
from resolver.evaluate import resolve
from resolver.extend import extend
from resolver.lowered import OpNode
from tests.libraries.bench import Bench
from tests.optimizer.graphs import check_same_values, compared, steps_of
from vtensor import Session
from vtensor.errors import UnsoundPlanError
from vtensor.language.dtype import numpy_dtype
from vtensor.language.graph import Graph
from vtensor.language.tensor import VTensor
from vtensor.runtime.planning.library_options import preferences_of

IMAGE = {"N": 1, "C": 16, "H": 6, "W": 6}
EYE = np.eye(3, dtype=np.float32)
NUMPY = {"optimize": "none", "libraries": ["numpy"]}


def weights(g: Graph, seed: int = 0) -> VTensor:
    array = np.random.default_rng(seed).standard_normal((16, 16, 3, 3)) / 12
    return g.constant(array.astype(np.float32), "O I h w")


def convolution(g: Graph, x: VTensor, name: str) -> VTensor:
    y = g.add(ops.Conv2D(pads=(1, 1, 1, 1)), x, weights(g), name=name)
    bias = g.constant(np.linspace(-1, 1, 16, dtype=np.float32), "C")
    total: VTensor = g.add(ops.BiasAdd(), y, bias, name=f"{name}_bias")
    return total


def residual(asked: bool = False) -> Graph:
    """relu(conv(relu(conv(x))) + x), the inner sum an output where it is asked for."""
    g = Graph("residual")
    x = g.input("x", IMAGE)
    inner = g.add(ops.Relu(), convolution(g, x, "a"), name="a_relu")
    total = g.add(ops.Add(), x, convolution(g, inner, "b"), name="sum")
    g.output(g.add(ops.Relu(), total, name="end"), "y")
    if asked:
        g.output(total, "sum")
    return g.seal()


def of_image(add: Callable[[Graph, VTensor], VTensor]) -> Graph:
    g = Graph("image")
    g.output(add(g, g.input("x", IMAGE)))
    return g.seal()


def fused(graph: Graph, **options: Any) -> list[str]:
    """The steps of a plan whose runs give what NumPy alone gives."""
    return steps_of(compared(graph, plain=NUMPY, **options))


# Offers


def offered(graph: Graph, preferences: Preferences | None = None) -> dict[str, list[str]]:
    offers = fuse(graph, preferences or Preferences()).offers
    return {lead: [node.name for node in followers] for lead, followers in offers.items()}


def test_a_chain_is_offered() -> None:
    assert offered(residual()) == {
        "a": ["a_bias", "a_relu"],
        "a_bias": ["a_relu"],
        "b": ["b_bias", "sum", "end"],
        "b_bias": ["sum", "end"],
        "sum": ["end"],
    }


def test_outputs_and_pinned_nodes_end_a_chain() -> None:
    assert offered(residual(asked=True))["b"] == ["b_bias", "sum"]
    for pin in ({"sum": "onednn"}, {"Add": "onednn"}):
        assert offered(residual(), preferences_of(pin=pin))["b"] == ["b_bias"]


def sum_of_two(g: Graph, x: VTensor) -> VTensor:
    y: VTensor = g.add(ops.Add(), convolution(g, x, "a"), convolution(g, x, "b"), name="sum")
    return y


def with_other_types_and_dims(g: Graph, x: VTensor) -> VTensor:
    small = g.add(ops.Sigmoid(), g.input("s", {"C": 16}))
    truth = g.add(ops.Greater(), g.add(ops.Relu(), x), g.constant(np.float32(0.5), ""))
    y: VTensor = g.add(ops.Mul(), g.add(ops.Cast("f32"), truth), small)
    return y


@pytest.mark.parametrize(
    ("add", "offers"),
    [
        (sum_of_two, {"a": ["a_bias"], "b": ["b_bias", "sum"], "b_bias": ["sum"]}),  # the later one
        (lambda g, x: g.add(ops.Softmax(("C",)), convolution(g, x, "a")), {"a": ["a_bias"]}),
        (
            with_other_types_and_dims,
            {
                "Relu:0": ["Greater:0", "Cast:0", "Mul:0"],
                "Greater:0": ["Cast:0", "Mul:0"],
                "Cast:0": ["Mul:0"],
            },
        ),
    ],
)
def test_a_chain_ends_at_what_cannot_follow(add: Any, offers: dict[str, list[str]]) -> None:
    assert offered(of_image(add)) == offers


# What libraries take

ALONE = ["Conv2D", "BiasAdd", "Relu", "Conv2D", "BiasAdd", "Add", "Relu"]
WHOLE = ["Conv2D + BiasAdd + Relu", "Conv2D + BiasAdd + Add + Relu"]


@pytest.mark.parametrize(
    ("options", "steps"),
    [
        ({}, WHOLE),
        ({"optimize": ["fuse"]}, WHOLE),
        ({"optimize": "ewo"}, ALONE),
        ({"libraries": ["numpy"]}, ALONE),  # which takes no follower
        ({"libraries": ["numpy"], "pin": {"Conv2D": "onednn", "sum": "onednn"}}, ALONE),
        ({"libraries": ["eigen"]}, ["Conv2D", "BiasAdd + Relu", "Conv2D", "BiasAdd + Add + Relu"]),
    ],
)
def test_a_library_takes_what_it_may_and_can(options: dict[str, Any], steps: list[str]) -> None:
    """Eigen takes runs of what is point-wise; no library a follower that it may not take alone."""
    session = compared(residual(), plain=NUMPY, **options)
    assert steps_of(session) == steps
    assert bool(session.plan.graph.merged) == (steps != ALONE)


def test_what_is_asked_for_is_not_taken_away() -> None:
    assert fused(residual(asked=True))[1:] == ["Conv2D + BiasAdd + Add", "Relu"]
    graph, feeds = residual(), {"x": np.ones((1, 16, 6, 6), np.float32)}
    with Session(graph) as session, Session(graph, optimize="none") as plain:
        for name in ("a", "b_bias", "sum"):
            result, expected = (each.run([name], feeds)[0] for each in (session, plain))
            np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-5)


def gelu(g: Graph, x: VTensor) -> VTensor:
    """x * (1 + erf(x / sqrt(2))) / 2, as exporters spell it; a number is the first operand once."""
    root, unit, two = (g.constant(np.float32(number), "") for number in (2**0.5, 1, 2))
    inner = g.add(ops.Add(), unit, g.add(ops.Erf(), g.add(ops.Div(), x, root)))
    y: VTensor = g.add(ops.Div(), g.add(ops.Mul(), x, inner), two)
    return y


def of_every_operand(g: Graph, x: VTensor) -> VTensor:
    """The lead's own input again, numbers, a channel's operand, and the value twice."""
    y = gelu(g, x)
    y = g.add(ops.Mul(), y, y)
    y = g.add(ops.Sub(), g.constant(np.arange(16, dtype=np.float32), "C"), y)
    seven = g.constant(np.float32(7), "")
    last: VTensor = g.add(ops.Where(), g.constant(np.arange(6) > 2, "W"), y, seven)
    return last


def late_bias(g: Graph, x: VTensor) -> VTensor:
    """A bias after bounds is nothing that oneDNN has; what comes before it is taken."""
    y = g.add(ops.Relu6(), g.add(ops.Conv2D(), x, weights(g)))
    total: VTensor = g.add(ops.BiasAdd(), y, g.constant(np.ones(16, np.float32), "C"))
    return total


def dense(g: Graph, x: VTensor) -> VTensor:
    y = g.add(ops.MatMul("C"), x, g.constant(np.eye(16, 8, dtype=np.float32), "C K"))
    bias = g.constant(np.ones(8, np.float32), "K")
    last: VTensor = g.add(ops.Relu(), g.add(ops.BiasAdd(), y, bias))
    return last


@pytest.mark.parametrize(
    ("add", "steps"),
    [
        (of_every_operand, ["Div + Erf + Add + Mul + Div + Mul + Sub + Where"]),
        (late_bias, ["Conv2D + Relu6", "BiasAdd"]),
        (dense, ["MatMul + BiasAdd + Relu"]),
    ],
)
def test_a_run_is_one_step_as_far_as_its_library_goes(add: Any, steps: list[str]) -> None:
    assert fused(of_image(add), optimize=["all", "-rewrite"]) == steps


@pytest.mark.parametrize("sizes", [(16, 16, 16), (16, 3)])
@pytest.mark.parametrize("layout", ["NCHW", "NHWC", "NCHW8c"])
def test_what_is_concatenated_is_normalized_in_place(layout: str, sizes: tuple[int, ...]) -> None:
    def add(g: Graph, x: VTensor) -> VTensor:
        slices = (g.add(ops.Slice(("C",), (0,), (size,), (1,)), x) for size in sizes)
        y = g.add(ops.Concat("C"), *(g.add(ops.Sigmoid(), part) for part in slices))
        rows = np.random.default_rng(0).random((4, sum(sizes)), np.float32) + 1
        y = g.add(ops.BatchNorm(), y, *(g.constant(row, "C") for row in rows))
        y = g.add(ops.Relu(), g.add(ops.Sub(), y, g.constant(np.float32(1), "")))
        last: VTensor = g.add(ops.Softmax(("H", "W")), y)
        return last

    assert "Concat + BatchNorm + Sub + Relu" in fused(of_image(add), input_layouts={"x": layout})


def test_integers_in_a_run_have_no_more_bits_than_their_type() -> None:
    g = Graph("integers")
    x = g.input("x", {"N": 4}, "u8")
    g.output(g.add(ops.Div(), g.add(ops.Add(), x, x), g.constant(np.uint8(2), "")))
    values = np.array([1, 100, 128, 255], np.uint8)
    with Session(g.seal()) as session:
        assert steps_of(session) == ["Add + Div"]
        assert session.run(None, {"x": values})[0].tolist() == [1, 100, 0, 127]


def quantized(g: Graph, x: VTensor) -> VTensor:
    """A chain between integers of 8 bits."""
    scale, zero = g.constant(np.float32(0.05), ""), g.constant(np.uint8(7), "")
    y = g.add(ops.HardSwish(), g.add(ops.DequantizeLinear(), x, scale, zero))
    last: VTensor = g.add(ops.QuantizeLinear("s8"), y, scale)
    return last


def test_a_chain_changes_its_type_within_one_step() -> None:
    g = Graph("quantized")
    g.output(quantized(g, g.input("x", {"N": 256}, "u8")))
    feeds = {"x": np.arange(256, dtype=np.uint8)}
    with Session(g.seal()) as session, Session(g, libraries=["numpy"]) as plain:
        assert steps_of(session) == ["DequantizeLinear + HardSwish + QuantizeLinear"]
        result, expected = (each.run(None, feeds)[0] for each in (session, plain))
    assert result.dtype == np.int8
    np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("many", [256, 70_000])  # from some thousand elements on, by a table
@pytest.mark.parametrize("dtype", ["u8", "s8"])
@pytest.mark.parametrize("ends", ["u8", "f32"])
def test_a_chain_on_one_byte_reads_it_as_often_as_it_likes(
    many: int, dtype: str, ends: str
) -> None:
    """Two inputs of a run may be one array or two."""
    g, scale = Graph("gate"), np.float32(0.04)
    x, other = (g.input(name, {"N": many}, dtype) for name in ("x", "other"))
    zero = g.constant(np.array(3, numpy_dtype(dtype)), "")
    by = g.constant(scale, ""), zero
    for name, read in (("same", x), ("another", other)):
        gate = g.add(ops.Sigmoid(), g.add(ops.DequantizeLinear(), x, *by))
        steps = g.add(ops.QuantizeLinear(dtype), gate, g.constant(np.float32(1 / 200), ""), zero)
        y = g.add(ops.DequantizedMul(), steps, by[0], zero, read, *by, name=name)
        g.output(y if ends == "f32" else g.add(ops.QuantizeLinear("u8"), y, by[0]), f"{name} y")
    limits = np.iinfo(numpy_dtype(dtype))
    values = np.resize(np.arange(limits.min, limits.max + 1), many).astype(numpy_dtype(dtype))
    feeds = {"x": values, "other": values[::-1].copy()}
    with Session(g.seal(), threads=1) as session, Session(g, libraries=["numpy"]) as plain:
        assert len(steps_of(session)) == 2
        answers = zip(session.run(None, feeds), plain.run(None, feeds), strict=True)
        for answer, expected in answers:
            np.testing.assert_allclose(answer, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("library", ["onednn", "winograd", "eigen"])
def test_a_library_declines_a_follower_of_another_type(library: str) -> None:
    """Only element-wise steps of Eigen take it; a convolution in f32 leaves it behind."""
    g = Graph("another")
    x = g.input("x", IMAGE)
    each = g.constant(np.ones((16, 1, 1, 3, 3), np.float32), "G O I h w")
    deep = library == "winograd"  # whose other convolutions are approximate
    y = g.add(ops.DepthwiseConv2D(), x, each, name="a") if deep else convolution(g, x, "a")
    y = g.add(ops.QuantizeLinear("u8"), y, g.constant(np.float32(0.01), ""), name="q")
    g.output(g.add(ops.DequantizeLinear(), y, g.constant(np.float32(0.01), "")))
    session = compared(g.seal(), plain=NUMPY, pin={"a": library})
    lead, *others = steps_of(session)
    assert "QuantizeLinear" not in lead
    assert "QuantizeLinear + DequantizeLinear" in others[-1]


@pytest.mark.parametrize(
    ("bounds", "high"), [(ops.Relu(), np.inf), (ops.Relu6(), 6), (ops.Clip(0, 2), 2)]
)
def test_fused_bounds_keep_nan_and_bound_infinities(bounds: object, high: float) -> None:
    g = Graph("special")
    x, mask = g.input("x", {"M": 1, "K": 5}), g.input("mask", {"M": 1, "N": 5})
    y = g.add(ops.MatMul("K"), x, g.constant(np.eye(5, dtype=np.float32), "K N"))
    g.output(g.add(bounds, g.add(ops.Add(), y, mask)))
    special = np.array([[np.nan, np.inf, -np.inf, -1, 1]], np.float32)
    with Session(g) as session:
        assert len(steps_of(session)) == 1
        [result] = session.run(None, {"x": np.zeros((1, 5), np.float32), "mask": special})
    np.testing.assert_array_equal(result, [[np.nan, high, 0, 0, 1]])


@pytest.mark.parametrize(
    ("name", "pin", "read"),
    [
        *(("LayerNormalization", name, read) for name in ("onednn", "eigen") for read in (0, 1)),
        ("RMSNormalization", None, 0),
    ],
)
def test_a_normalization_adds_its_shift(name: str, pin: str | None, read: int) -> None:
    """Also where its mean is an output."""
    g, random = Graph("normalized"), np.random.default_rng(3)
    x = g.input("x", {"N": 1, "C": 16, "T": 6, "F": 6})
    scale, shift = (g.constant(random.standard_normal(6).astype("f4"), "F") for _ in range(2))
    outputs = g.add(getattr(ops, name)(("F",)), x, scale)
    y = outputs[0] if isinstance(outputs, tuple) else outputs
    g.output(g.add(ops.BiasAdd(), y, shift), "y")
    if read:
        g.output(outputs[1], "mean")
    assert fused(g.seal(), pin={name: pin} if pin else None) == [f"{name} + BiasAdd"]


def test_a_step_whose_result_is_not_read_does_not_run() -> None:
    """oneDNN gives the variance, of which two more steps make the output that is asked for here."""
    counts = []
    for asked in (False, True):
        g = Graph("inverse")
        x, scale = g.input("x", {"N": 2, "F": 24}), g.constant(np.ones(24, np.float32), "F")
        y, _, inverse = g.add(ops.LayerNormalization(("F",)), x, scale)
        g.output(y, "y")
        if asked:
            g.output(inverse, "inverse")
        with Session(g.seal(), libraries=["onednn"]) as session:
            counts.append(len(session.plan.recorded))
    assert counts == [1, 3]


# Libraries that compete


FOLLOWERS = {"Clip": ops.Clip(0.0, 2.0), "Softmax": ops.Softmax(("N",))}


def product(*followers: str) -> Graph:
    """A product in f32 and the operators that come after it."""
    g = Graph("product")
    y = g.add(ops.MatMul("K"), g.input("x", {"M": 2, "K": 3}), g.constant(EYE, "K N"))
    for name in followers:
        y = g.add(FOLLOWERS.get(name) or getattr(ops, name)(), y)
    g.output(y, "y")
    return g.seal()


def run_product(graph: Graph, **options: Any) -> tuple[list[str], list[str], float]:
    """What a plan runs, on which libraries, and what becomes of -1."""
    with Session(graph, **options) as session:
        [y] = session.run(None, {"x": np.full((2, 3), -1, np.float32)})
        return steps_of(session), steps_of(session, "library"), float(y.max())


def multiplying(more: Callable[[Any], list[PTensor]]) -> Any:
    """An invoker of MatMul in Python that does something with its context before the tagger."""

    def invoke(ctx: Any, op: Any, a: Any, b: Any, y: Any) -> None:
        left, right, dst = (PTensor(t).require(Layout.plain(t.dims)) for t in (a, b, y))
        if lib_tagger("toy", [left, right, *more(ctx)], [dst]):
            return
        dst.data()[...] = left.data() @ right.data()

    return invoke


def test_an_invoker_in_python_takes_nothing_by_looking(bench: Bench) -> None:
    seen = []

    def look(ctx: Any) -> list[PTensor]:
        seen.append(ctx.followers)
        return []

    bench.invoker("MatMul")(multiplying(look))
    assert run_product(product("Relu")) == (["MatMul", "Relu"], ["toy", "onednn"], 0)
    assert seen


def test_an_invoker_in_python_runs_no_follower(bench: Bench) -> None:
    """One that makes PTensors of a follower's operands, too: the plan that is made can be run."""

    def look(ctx: Any) -> list[PTensor]:
        return [PTensor(operand) for follower in ctx.followers for operand in follower.operands]

    bench.invoker("MatMul")(multiplying(look))
    g = Graph("sum")
    x, mask = g.input("x", {"M": 2, "K": 3}), g.input("mask", {"M": 2, "N": 3})
    g.output(g.add(ops.Add(), g.add(ops.MatMul("K"), x, g.constant(EYE, "K N")), mask))
    ones = np.ones((2, 3), np.float32)
    with Session(g.seal()) as session:
        assert steps_of(session) == ["MatMul", "Add"]
        [result] = session.run(None, {"x": ones, "mask": ones})
    assert (result == 2).all()


def relu_on_toy(bench: Bench, **options: Any) -> None:
    """Let toy, which comes before oneDNN, take Relu: what it makes is 7."""

    @bench.invoker("Relu", **options)
    def seven(ctx: Any, op: Any, x: Any, y: Any) -> None:
        src, dst = PTensor(x).require("ANY"), PTensor(y).require("ANY")
        if lib_tagger("toy", [src], [dst]):
            return
        dst.data()[...] = 7


LISTED = {"libraries": ["toy", "onednn", "eigen"]}
PINNED = {"libraries": ["numpy", "onednn"], "pin": {"MatMul": "onednn"}}


@pytest.mark.parametrize(
    ("followers", "options", "steps", "libraries"),
    [
        # a library that comes first keeps its operator
        ("Relu", {}, "MatMul, Relu", "onednn toy"),
        ("Clip Relu Softmax", {}, "MatMul + Clip, Relu, Softmax", "onednn toy onednn"),
        # a longer run goes before priority, for it saves passes over memory
        ("Clip Relu Relu6", {}, "MatMul + Clip, Relu + Relu6", "onednn eigen"),
        # an order that the session gives binds
        ("Clip Relu Relu6", LISTED, "MatMul + Clip, Relu, Relu6", "onednn toy onednn"),
        ("Relu", {"libraries": ["onednn", "toy"]}, "MatMul + Relu", "onednn"),
        ("Relu", {"libraries": ["onednn"]}, "MatMul + Relu", "onednn"),
        ("Relu", PINNED, "MatMul, Relu", "onednn numpy"),
    ],
)
def test_a_follower_is_taken_by_priority_and_length(
    bench: Bench, followers: str, options: dict[str, Any], steps: str, libraries: str
) -> None:
    relu_on_toy(bench)
    ran = run_product(product(*followers.split()), **options)
    assert ran[:2] == (steps.split(", "), libraries.split())
    if followers == "Relu":
        assert ran[2] == (7 if "toy" in libraries else 0)


def test_a_library_that_comes_first_and_declines_is_passed_over(bench: Bench) -> None:
    relu_on_toy(bench, when=lambda op, x, y: "not today")
    assert run_product(product("Relu")) == (["MatMul + Relu"], ["onednn"], 0)


def test_a_follower_that_no_library_runs_alone_is_fused(bench: Bench) -> None:
    relu_on_toy(bench, when=lambda op, x, y: "not today")
    with ExitStack() as stack:
        for library in ("onednn", "eigen", "numpy"):
            stack.enter_context(without_invoker("Relu", library))
        [node] = resolve(fuse(product("Relu"))).operators
    assert (node.op_name, node.variant.library) == ("MatMul + Relu", "onednn")


@pytest.mark.parametrize("more", [["toy"], []])
def test_a_library_goes_first_if_it_may_precede_those_of_each_node(
    bench: Bench, more: list[str]
) -> None:
    """``low`` may precede the libraries of MatMul; of Relu, toy comes first."""

    def low(ctx: Any, op: Any, a: Any, b: Any, y: Any) -> None:
        tensors = [PTensor(t).require(Layout.plain(t.dims)) for t in (a, b, y)]
        lib_tagger("low", tensors[:2], tensors[2:], ctx.followers)

    relu_on_toy(bench)
    register(Description("low", 1, ("cpu",), python=True))
    before = ["onednn", "eigen", *more]
    bench.invoker("MatMul", "low", first=lambda op, a, b: True, before=before)(low)
    nodes = resolve(fuse(product("Relu"))).operators
    libraries = [node.variant.library for node in nodes]
    assert libraries == (["low"] if more else ["onednn", "toy"])


def test_the_check_follows_what_is_fused() -> None:
    """The twins: a follower is left out, two change places, one is read elsewhere or is no node."""
    graph, able = residual(), ["onednn", "eigen", "numpy"]
    plan = extend(resolve(fuse(graph)))
    nodes = [node for node in plan.nodes if isinstance(node, OpNode)]
    assert [node.op_name for node in nodes] == WHOLE
    check(plan, graph, able)
    bias, total, end = nodes[-1].followers
    for followers in ((bias, end), (total, bias, end), (bias, replace(total), end), (bias, total)):
        wrong = replace(nodes[-1], followers=followers)
        others = [wrong if node is nodes[-1] else node for node in plan.nodes]
        with pytest.raises(UnsoundPlanError):
            check(replace(plan, nodes=others), graph, able)
    with pytest.raises(UnsoundPlanError, match="not for it alone"):
        check(plan, graph.delivering(["sum"]), able)
    again = replace(graph.nodes["end"], name="again", outputs=("again",))  # it reads the sum, too
    with pytest.raises(UnsoundPlanError, match="not for it alone"):
        check(plan, replace(graph, nodes={**graph.nodes, "again": again}), able)


# A bias goes by the name of its dim, also where all sizes are equal

SIZE = 8
DIMS = "N C H W"
#: Leads, the dims of input and weights ("O:4" is a size), and the dims along which they take a sum:
#: that of oneDNN's own bias first, then others, where the kernel takes a sum after its result, as
#: the product of a transposed convolution does, and the product of several matrices.
LEADS: dict[str, tuple[object, str, str, str]] = {
    "Conv1D": (ops.Conv1D(pads=(1, 1)), "N C W", "O I w:3", "C"),
    "Conv2D": (ops.Conv2D(pads=(1,) * 4), DIMS, "O I h:3 w:3", "C"),
    "Conv3D": (ops.Conv3D(), "N C D H W", "O I d:1 h:1 w:1", "C"),
    "pointwise": (ops.Conv2D(), DIMS, "O I h:1 w:1", "C"),
    "last": (ops.Conv2D(), "N H W C", "O I h:1 w:1", "C"),
    "groups": (ops.Conv2D(group=2, pads=(1,) * 4), DIMS, "G:2 O:4 I:4 h:3 w:3", "C"),
    "depthwise": (ops.DepthwiseConv2D(pads=(1,) * 4), DIMS, "G O:1 I:1 h:3 w:3", "C"),
    "ConvTranspose": (ops.ConvTranspose(), DIMS, "I O h:1 w:1", "C N H W"),
    "weights": (ops.MatMul("K"), "M K", "K N", "N"),
    "left weights": (ops.MatMul("K"), "K N", "M K", "M"),
    "rows of rows": (ops.MatMul("K"), "B M K", "K N", "N M"),
    "stacks": (ops.MatMul("K"), "B M K", "B K N", "N M"),
}
CASES = [
    (lead, dim)
    for lead, (_, first, second, _) in LEADS.items()
    for dim in dict.fromkeys((f"{first} {second}" if "K" in first else first).split())
    if dim != "K"
]


def dims(spelled: str) -> dict[str, int]:
    """Dims by name, of one size unless they say another."""
    pairs = (name.partition(":") for name in spelled.split())
    return {name: int(size or SIZE) for name, _, size in pairs}


@pytest.mark.parametrize(("lead", "dim"), CASES)
def test_a_bias_is_fused_along_the_dims_that_a_lead_takes(lead: str, dim: str) -> None:
    """It is of whole numbers that are all different."""
    op, first, second, along = LEADS[lead]
    extents, g = dims(second), Graph(lead)
    array = np.random.default_rng(0).integers(-4, 5, [*extents.values()]).astype(np.float32)
    operands = [g.input("x", dims(first)), g.constant(array, tuple(extents))]
    y = g.add(op, *(operands[::-1] if lead == "left weights" else operands))
    bias = g.constant(np.arange(1, SIZE + 1, dtype=np.float32), (dim,))
    g.output(g.add(ops.BiasAdd(), y, bias), "y")
    graph = g.seal()
    check_same_values(graph, 1, [{"optimize": "none"}, {"optimize": "all"}])
    with Session(graph, threads=1, objective="shared") as session:
        assert bool(session.plan.graph.merged) == (dim in along.split())
