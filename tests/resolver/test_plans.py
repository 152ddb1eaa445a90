"""Golden plans: what the resolver decides and where Transforms go, as text."""

from __future__ import annotations

import json
from collections.abc import Mapping

import numpy as np
import pytest

from libdesc.preferences import EVERY
from ptensor.layout import Layout
from resolver.check import check
from resolver.choice import ChoiceRefused
from resolver.choice_data import OPERATOR, from_plain_data, plain_data
from resolver.evaluate import resolve
from resolver.extend import extend
from resolver.lowered import LoweredGraph
from tests.libraries.bench import Bench, message
from tests.libraries.golden import Golden
from tests.resolver.networks import chain, checked, declare_convolution, diamond, inception, mixes
from vtensor.errors import ResolutionError, UnsoundPlanError
from vtensor.language.graph import Graph
from vtensor.runtime.session import Session

#: The values of an input of the dims ``IMAGE``.
ARRAY = np.arange(384, dtype=np.float32).reshape(1, 16, 4, 6)


def plan(
    graph: Graph, entry: Mapping[str, str] | None = None, outputs: Mapping[str, str] | None = None
) -> LoweredGraph:
    entered, wanted = (
        {name: Layout(text) for name, text in (texts or {}).items()} for texts in (entry, outputs)
    )
    return checked(extend(resolve(graph, entered), wanted), graph, entered, wanted)


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
    golden.check(str(plan(diamond())))


def test_algorithm_1_with_entry_layouts(bench: Bench, golden: Golden) -> None:
    """Another way in: the first Transform moves, the rest stays."""
    golden.check(str(plan(diamond(), {"x": "NHWC"}, {"y": "NHWC"})))


def test_original_resolved_extended(bench: Bench, golden: Golden) -> None:
    """Fig. 7: the original graph, the resolved layouts, the lowered graph."""
    declare_convolution()
    graph = chain(bench)
    golden.check("\n\n".join([str(graph), resolved(resolve(graph)), str(plan(graph))]))


def test_concat_feeding_three_convolutions(bench: Bench, golden: Golden) -> None:
    """Fig. 4: one Transform an edge, three of them before optimisation."""
    declare_convolution()
    graph = inception(bench)
    extended = plan(graph)
    golden.check(str(extended))
    assert [node.reason.consumer for node in extended.transforms()] == [
        "conv1",
        "conv2",
        "conv3",
    ] * 2
    rng = np.random.default_rng(3)
    a, b = (rng.integers(-4, 5, (1, 16, 4, 6)).astype(np.float32) for _ in "ab")
    total = np.broadcast_to((a + b).sum(axis=1, keepdims=True), (1, 8, 4, 6))
    with Session(graph) as session:
        for result in session.run(None, {"a": a, "b": b}):
            np.testing.assert_array_equal(result, total)


@pytest.mark.parametrize("place", [-1, 99])
def test_saved_data_with_an_index_of_no_row_is_no_choice(bench: Bench, place: int) -> None:
    graph = diamond()
    lowered = extend(resolve(graph))
    data = json.loads(json.dumps(plain_data(lowered)))
    assert str(from_plain_data(data, graph, {}, EVERY, ())) == str(lowered)
    requirements = next(row for row in data["nodes"] if row[0] == OPERATOR)[5]
    requirements[0] = place
    with pytest.raises(ChoiceRefused):
        from_plain_data(data, graph, {}, EVERY, ())


@pytest.mark.parametrize("text", ["it is computed in f32", 7])
def test_saved_data_has_the_notes_of_nodes(bench: Bench, text: object) -> None:
    graph = diamond()
    data = json.loads(json.dumps(plain_data(extend(resolve(graph)))))
    data["notes"] = {"a": text}
    if isinstance(text, str):
        assert from_plain_data(data, graph, {}, EVERY, ()).notes == data["notes"]
    else:
        with pytest.raises(ChoiceRefused):
            from_plain_data(data, graph, {}, EVERY, ())


def test_constants_are_transformed_ahead(bench: Bench) -> None:
    """They are not conversions, and they run once."""
    declare_convolution()
    graph = chain(bench)
    extended = plan(graph)
    assert [node.input for node in extended.ahead()] == ["w1", "w2"]
    with Session(graph) as session:
        converted = {c.value for c in session.conversions}
        assert converted == {"x", "conv2"} | {node.input for node in extended.transforms()}
        assert all(not value.startswith("w") for value in converted)
        names = {step.node.name for step in session.plan.steps}
        assert names.isdisjoint(node.name for node in extended.ahead())


def test_dead_nodes_are_left_out(bench: Bench) -> None:
    g = Graph("dead")
    x, unused = g.input("x", {"N": 2}), g.input("unused", {"K": 3})
    w = g.constant(np.ones(3, np.float32), "K", "w")
    g.add(bench.op("Mix", ("K", "K", "K")), unused, w, name="dead")
    g.output(g.add(bench.op("Mix", ("N", "N")), x, name="alive"))
    resolution = resolve(g.seal())
    assert [node.name for node in resolution.operators] == ["alive"]
    assert set(resolution.values) == {"x", "unused", "alive"}  # inputs stay: a run is given them
    assert plan(g).inputs == ("x", "unused")


def test_nodes_are_in_topological_order_whatever_their_names(bench: Bench) -> None:
    graph = mixes("z: x K K", "a: z K K", "m: a z K K K", x={"K": 3})
    assert [node.name for node in resolve(graph).nodes] == ["z", "a", "m"]


def test_a_value_may_be_several_outputs(bench: Bench) -> None:
    """Under two names, in two layouts, and as an input of another node."""
    g = Graph("several")
    y = g.add(bench.op("Mix", ("NHWC", "NHWC")), g.input("x", {"N": 1, "C": 16, "H": 4, "W": 6}))
    g.output(y, "y")
    g.output(y, "again")
    g.output(g.add(bench.op("Mix", ("NHWC", "NCHW")), y), "z")
    extended = plan(g.seal(), outputs={"again": "NHWC"})
    assert (extended.outputs["again"], extended.outputs["y"]) == (y.name, f"{y.name}@1")
    with Session(g, output_layouts={"again": "NHWC"}) as session:
        y1, y2, z1 = session.run(None, {"x": ARRAY})
    for value, wanted in ((y1, ARRAY + 1), (y2, ARRAY + 1), (z1, ARRAY + 2)):
        np.testing.assert_array_equal(value, wanted)
    assert y1.flags.c_contiguous
    assert y2.transpose(0, 2, 3, 1).flags.c_contiguous


def test_inputs_and_constants_may_be_outputs(bench: Bench) -> None:
    g = Graph("through")
    x, w = g.input("x", {"N": 2, "C": 3}), g.constant(np.ones((2, 3), np.float32), "N C", "w")
    for value, name in ((x, "same"), (w, "weights"), (x, "turned")):
        g.output(value, name)
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


@pytest.mark.parametrize(
    ("asks", "sizes"),
    [("NHWC NCHW8c", (2, 8, 1, 1)), ("NHWC WHCN", (0, 8, 2, 3))],
    ids=["equal places", "no elements"],
)
def test_the_same_memory_needs_no_transform(
    bench: Bench, asks: str, sizes: tuple[int, ...]
) -> None:
    graph = mixes(f"y: x {asks}", x=dict(zip("NCHW", sizes, strict=True)))
    assert list(plan(graph).transforms()) == []
    array = np.arange(np.prod(sizes), dtype=np.float32).reshape(sizes)
    with Session(graph) as session:
        np.testing.assert_array_equal(session.run(None, {"x": array})[0], array + 1)


@pytest.mark.parametrize("text", ["NHW", "NHWCD", "ANY"])
def test_a_layout_of_other_dims_is_refused(bench: Bench, text: str) -> None:
    g, layout = diamond(), Layout(text)
    assert message(ResolutionError, lambda: resolve(g, {"x": layout})) == (
        f"input 'x': layout {text} does not hold f32 N=1 C=16 H=4 W=6; name each of its dims once"
    )
    if not layout.is_any:  # of an output it is the producer's own
        assert message(ResolutionError, lambda: extend(resolve(g), {"y": layout})) == (
            f"output 'y': layout {text} does not hold its dims N C H W"
        )


def test_an_output_may_stay_as_its_producer_leaves_it(bench: Bench) -> None:
    g = diamond()
    extended = plan(g, outputs={"y": "ANY"})
    assert extended.outputs == g.outputs
    with pytest.raises(UnsoundPlanError, match="output y"):  # which is not what is declared
        check(extended, g, ["toy"])


def test_a_layout_of_a_name_that_does_not_exist_is_refused(bench: Bench) -> None:
    g, layout = diamond(), Layout("NCHW")
    assert message(ResolutionError, lambda: resolve(g, {"y": layout})) == (
        "entry layouts given for y; inputs are x, z"
    )
    assert message(ResolutionError, lambda: extend(resolve(g), {"x": layout})) == (
        "output layouts are given for x; outputs are y"
    )


def test_a_transform_takes_no_name_of_the_model(bench: Bench) -> None:
    graph = mixes("transform:1: x NHWC NHWC", "y: transform:1 x@0 NHWC NHWC NCHW")
    assert [(n.name, n.output) for n in plan(graph).transforms()] == [
        ("transform:2", "x@2"),
        ("transform:3", "x@0@3"),
    ]
