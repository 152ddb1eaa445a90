"""Golden plans: what the resolver decides and where Transforms go, as text."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

from libdesc.registry import registry
from ptensor.layout import Layout
from resolver.check import check
from resolver.evaluate import resolve
from resolver.extend import extend
from resolver.lowered import LoweredGraph
from tests.libraries.bench import Bench, message
from tests.libraries.golden import Golden
from tests.resolver.networks import IMAGE, chain, declare_convolution, diamond, inception, mix
from vtensor.errors import ResolutionError, UnsoundPlanError
from vtensor.language.graph import Graph
from vtensor.runtime.session import Session


def layouts(texts: Mapping[str, str]) -> dict[str, Layout]:
    """Layouts by name."""
    return {name: Layout(text) for name, text in texts.items()}


def plan(
    graph: Graph, entry: Mapping[str, str] | None = None, outputs: Mapping[str, str] | None = None
) -> LoweredGraph:
    """The lowered graph, checked."""
    given, wanted = layouts(entry or {}), layouts(outputs or {})
    extended = extend(resolve(graph, given), wanted)
    able = [library.name for library in registry().libraries.values() if library.transforms]
    check(extended, graph, able, given, wanted)
    return extended


def resolved(resolution: LoweredGraph) -> str:
    """A resolution as text: for each operand, produced against required."""
    lines = [f"resolved {resolution.name}"]
    for node in resolution.operators:
        names, roles = (*node.inputs, *node.outputs), node.roles
        rows = zip(roles, names, node.variant.layouts, strict=True)
        operands = ", ".join(
            f"{role} = {name}: {resolution.values[name].layout} -> {required}"
            if name in node.inputs
            else f"{role} = {name}: {required}"
            for role, name, required in rows
        )
        lines.append(f"{node.name} = {node.op_name}[{node.variant.library}] {operands}")
    return "\n".join(lines)


def test_algorithm_1_on_a_diamond(bench: Bench, golden: Golden) -> None:
    golden.check(str(plan(diamond(bench))))


def test_algorithm_1_with_entry_layouts(bench: Bench, golden: Golden) -> None:
    """Another way in: the first Transform moves, the rest stays."""
    golden.check(str(plan(diamond(bench), {"x": "NHWC"}, {"y": "NHWC"})))


def test_original_resolved_extended(bench: Bench, golden: Golden) -> None:
    """Fig. 7: the original graph, the resolved layouts, the lowered graph."""
    declare_convolution()
    graph = chain(bench)
    resolution = resolve(graph)
    texts = [str(graph), resolved(resolution), str(plan(graph))]
    golden.check("\n\n".join(texts))


def test_concat_feeding_three_convolutions(bench: Bench, golden: Golden) -> None:
    """Fig. 4: one Transform an edge, three of them before optimisation."""
    declare_convolution()
    extended = plan(inception(bench))
    assert [node.reason.consumer for node in extended.transforms()] == [
        *("conv1", "conv2", "conv3"),  # of concat, to NCHW4c
        *("conv1", "conv2", "conv3"),  # of the outputs, to the declared order
    ]
    assert [node.input for node in extended.transforms()][:3] == ["concat"] * 3
    golden.check(str(extended))


def test_values_of_these_networks(bench: Bench) -> None:
    declare_convolution()
    rng = np.random.default_rng(3)
    a, b = (rng.integers(-4, 5, (1, 16, 4, 6)).astype(np.float32) for _ in "ab")
    with Session(inception(bench)) as session:
        results = session.run(None, {"a": a, "b": b})
    total = (a + b).sum(axis=1, keepdims=True)
    for result in results:
        np.testing.assert_array_equal(result, np.broadcast_to(total, (1, 8, 4, 6)))


def test_constants_are_transformed_ahead(bench: Bench) -> None:
    """They are not conversions, and they run once."""
    declare_convolution()
    graph = chain(bench)
    extended = plan(graph)
    assert [node.input for node in extended.ahead()] == ["w1", "w2"]
    with Session(graph) as session:
        assert {c.value for c in session.conversions} == {"x", "conv2"} | {
            node.input for node in extended.transforms()
        }
        assert all(not c.value.startswith("w") for c in session.conversions)
        names = {step.node.name for step in session.plan.steps}
        assert names.isdisjoint(node.name for node in extended.ahead())


def test_dead_nodes_are_left_out(bench: Bench) -> None:
    g = Graph("dead")
    x, unused = g.input("x", IMAGE), g.input("unused", {"K": 3})
    w = g.constant(np.ones(3, np.float32), "K", "w")
    mix(bench, "K K K", unused, w, graph=g, name="dead")
    g.output(mix(bench, "NHWC NHWC", x, graph=g, name="alive"))
    resolution = resolve(g.seal())
    assert [node.name for node in resolution.operators] == ["alive"]
    assert set(resolution.values) == {"x", "unused", "alive"}  # inputs stay: a run is given them
    extended = plan(g)
    assert extended.inputs == ("x", "unused")


def test_nodes_in_topological_order_whatever_their_names(bench: Bench) -> None:
    g = Graph("order")
    x = g.input("x", {"K": 3})
    z = mix(bench, "K K", x, graph=g, name="z")
    a = mix(bench, "K K", z, graph=g, name="a")
    g.output(mix(bench, "K K K", a, z, graph=g, name="m"))
    assert [node.name for node in resolve(g.seal()).nodes] == ["z", "a", "m"]


def test_several_outputs_of_one_value(bench: Bench) -> None:
    """Under two names, in two layouts, and as an input of another node."""
    g = Graph("several")
    x = g.input("x", IMAGE)
    y = mix(bench, "NHWC NHWC", x, graph=g, name="y")
    g.output(y)
    g.output(y, "again")
    g.output(mix(bench, "NHWC NCHW", y, graph=g, name="z"))
    extended = plan(g.seal(), outputs={"again": "NHWC"})
    assert extended.outputs["again"] == "y"
    assert extended.outputs["y"] == "y@1"
    array = np.arange(384, dtype=np.float32).reshape(1, 16, 4, 6)
    with Session(g, output_layouts={"again": "NHWC"}) as session:
        y1, y2, z1 = session.run(None, {"x": array})
    np.testing.assert_array_equal(y1, array + 1)
    np.testing.assert_array_equal(y2, array + 1)
    np.testing.assert_array_equal(z1, array + 2)
    assert y1.flags.c_contiguous
    assert y2.transpose(0, 2, 3, 1).flags.c_contiguous


def test_inputs_and_constants_as_outputs(bench: Bench) -> None:
    g = Graph("through")
    x, w = g.input("x", {"N": 2, "C": 3}), g.constant(np.ones((2, 3), np.float32), "N C", "w")
    g.output(x, "same")
    g.output(w, "weights")
    g.output(x, "turned")
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    with Session(g, output_layouts={"turned": "CN", "weights": "CN"}) as session:
        same, weights, turned = session.run(None, {"x": array})
        assert [c.value for c in session.plan.conversions] == ["x"]
        assert [c.value for c in session.conversions] == ["x", "same", "weights"]  # and copies
    np.testing.assert_array_equal(same, array)
    assert not np.shares_memory(same, array)
    np.testing.assert_array_equal(weights, np.ones((2, 3)))
    np.testing.assert_array_equal(turned, array)
    assert turned.T.flags.c_contiguous


def test_equal_places_need_no_transform(bench: Bench) -> None:
    """C=1 and H=W=1: NHWC and NCHW are the same memory."""
    g = Graph("equal")
    x = g.input("x", {"N": 2, "C": 8, "H": 1, "W": 1})
    g.output(mix(bench, "NHWC NCHW8c", x, graph=g, name="y"))
    extended = plan(g.seal())
    assert list(extended.transforms()) == []
    array = np.arange(16, dtype=np.float32).reshape(2, 8, 1, 1)
    with Session(g) as session:
        np.testing.assert_array_equal(session.run(None, {"x": array})[0], array + 1)


def test_values_without_elements(bench: Bench) -> None:
    g = Graph("empty")
    x = g.input("x", {"N": 0, "C": 8, "H": 2, "W": 3})
    g.output(mix(bench, "NHWC WHCN", x, graph=g, name="y"))
    assert list(plan(g.seal()).transforms()) == []
    with Session(g) as session:
        [y] = session.run(None, {"x": np.zeros((0, 8, 2, 3), np.float32)})
    assert y.shape == (0, 8, 2, 3)


@pytest.mark.parametrize("text", ["NHW", "NHWCD", "ANY"])
def test_wrong_layouts(bench: Bench, text: str) -> None:
    g, layout = diamond(bench), Layout(text)
    assert message(ResolutionError, lambda: resolve(g, {"x": layout})) == (
        f"input 'x': layout {text} does not hold f32 N=1 C=16 H=4 W=6; name each of its dims once"
    )
    if layout.is_any:
        return  # of an output it is the producer's own
    assert message(ResolutionError, lambda: extend(resolve(g), {"y": layout})) == (
        f"output 'y': layout {text} does not hold its dims N C H W"
    )


def test_an_output_may_stay_as_its_producer_leaves_it(bench: Bench) -> None:
    g = diamond(bench)
    extended = plan(g, outputs={"y": "ANY"})
    assert extended.outputs == g.outputs
    with pytest.raises(UnsoundPlanError, match="output y"):  # which is not what is declared
        check(extended, g, ["toy"])


def test_layouts_for_names_that_do_not_exist(bench: Bench) -> None:
    g = diamond(bench)
    assert message(ResolutionError, lambda: resolve(g, {"y": Layout("NCHW")})) == (
        "entry layouts given for y; inputs are x, z"
    )
    assert message(ResolutionError, lambda: extend(resolve(g), {"x": Layout("NCHW")})) == (
        "output layouts are given for x; outputs are y"
    )


def test_names_that_transforms_would_take(bench: Bench) -> None:
    """A model may use them itself."""
    g = Graph("names")
    x, odd = g.input("x", IMAGE), g.input("x@0", IMAGE)
    one = mix(bench, "NHWC NHWC", x, graph=g, name="transform:1")
    g.output(mix(bench, "NHWC NHWC NCHW", one, odd, graph=g, name="y"))
    extended = plan(g.seal())
    assert [(n.name, n.output) for n in extended.transforms()] == [
        ("transform:2", "x@2"),
        ("transform:3", "x@0@3"),
    ]
