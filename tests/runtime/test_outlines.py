"""Graphs of other sizes come from an outline, and are those that the model makes by itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto

from ops import Relu
from optimizer.pipeline import simplify
from ptensor.buffer import TensorStorage
from ptensor.layout import Layout
from resolver.check import check
from resolver.constants import stored
from resolver.lowered import LoweredGraph
from resolver.proof import Proof
from resolver.strategy import Strategy, StrategyRefused
from tests.frontends.support import f32, model
from tests.runtime.opened import NETWORKS
from tests.runtime.test_strategy import BORDERS, chosen
from vtensor import Graph, Session, load_onnx
from vtensor.errors import InputError, UnsoundPlanError, VTensorError
from vtensor.language.graph import same_bytes
from vtensor.language.trace import NotTraced, Trace
from vtensor.runtime.keys import PlanKey
from vtensor.runtime.outline import Outline
from vtensor.runtime.plan import Plan
from vtensor.runtime.source import Source
from vtensor.runtime.taken_over import Known

Array = np.ndarray[Any, Any]
Shapes = Mapping[str, tuple[int, ...]]


def source_of(given: ModelProto | Graph) -> Source:
    return Source(given, True, 1 << 30, None)


def outline_of(source: Source, shapes: Shapes, known: Mapping[str, Array] | None = None) -> Outline:
    """An outline that is made with these sizes, of a source that has made a graph."""
    trace = Trace()
    graph = source.traced(shapes, known or {}, (), trace)
    assert graph is not None
    return Outline(simplify(graph), trace)


def assert_same(one: Graph, other: Graph) -> None:
    """All that passes and plans read is the same, to the bit."""
    assert str(one) == str(other)
    assert [*one.constants] == [*other.constants]
    for name, array in other.constants.items():
        assert same_bytes(one.constants[name], array), name
    behind = [
        {lead: [node.name for node in row] for lead, row in graph.offers.items()}
        for graph in (one, other)
    ]
    assert behind[0] == behind[1]
    assert all(one.nodes[node.name] is node for row in one.offers.values() for node in row)
    assert (one.merged, one.passes, one.rewritten) == (other.merged, other.passes, other.rewritten)
    assert one.applied == other.applied


@pytest.mark.parametrize("name", NETWORKS)
def test_it_is_the_graph_that_a_model_makes_by_itself(
    name: str, pytestconfig: pytest.Config
) -> None:
    network = NETWORKS[name]()
    count = max(pytestconfig.getoption("--shapes"), 8)
    sizes = [
        {key: array.shape for key, array in network.feeds(*row).items()}
        for row in network.sizes(3, count)
    ]
    source, outlines, taken = source_of(network.proto), list[Outline](), 0
    source.graph(sizes[0], {})
    for shapes in sizes[1:]:
        given = source.open_sizes(shapes, {})
        made = next((g for one in outlines if (g := one.graph(given)) is not None), None)
        if made is None:
            outlines.append(outline_of(source, shapes))
        else:
            taken += 1
            assert_same(made, simplify(load_onnx(network.proto, shapes=shapes)))
    assert taken >= count // 3


#: What models compute of sizes before a run: positions, masks, shapes, of each operator.
COMPUTED: dict[str, str] = {
    "moved": """
        s = Shape(x) n = Slice(s, one, two) m = Gather(s, zero)
        e = Unsqueeze(m, zero1) i = Concat<axis = 0>(e, n) j = Identity(i) k = Cast<to = 7>(j)
        t = Reshape(k, pair) r = Squeeze(t) z = Reshape(x, r) y = Relu(z)
    """,
    "computed": """
        s = Shape(x) m = Gather(s, zero) n = Gather(s, one0) t = Mul(m, n) u = Add(t, n)
        v = Sub(u, n) e = Unsqueeze(v, zero1) z = Reshape(x, e) y = Relu(z)
    """,
    "positions": """
        s = Shape(x) n = Gather(s, one0) r = Range(zero, n, one0) e = Unsqueeze(r, zero1)
        f = Cast<to = 1>(e) z = Add(x, f) y = Relu(z)
    """,
    "backwards": """
        s = Shape(x) n = Gather(s, one0) h = Sub(n, one0) r = Range(h, minus, minus)
        g = Gather<axis = 1>(x, r) y = Relu(g)
    """,
    "masked": """
        s = Shape(x) n = Gather(s, one0) m = Gather(s, zero) r = Range(zero, n, one0)
        q = Range(zero, m, one0) c = Unsqueeze(q, one)
        a = LessOrEqual(r, c) b = Less(c, r) d = Greater(c, r) e = GreaterOrEqual(r, c)
        f = Equal(c, r) g = And(a, e) h = Or(g, f) i = Or(b, d) k = Not(i) l = And(h, k)
        w = Where(l, half, low) z = Add(x, w) y = Relu(z)
    """,
    "spread": """
        s = Shape(x) w = Expand(row, s) u = Unsqueeze(s, zero1) v = Squeeze(u, zero1)
        r = Reshape(w, v) z = Add(x, r) y = Relu(z)
    """,
    "picked": """
        s = Shape(x) n = Slice(s, one, two) c = Slice(table, zero1, n, one)
        m = Max(c, half) o = Min(m, two_f) z = Add(x, o) y = Relu(z)
    """,
    "rows": """
        s = Shape(x) n = Gather(s, one0) r = Range(zero, n, one0) p = Cast<to = 1>(r)
        e = Unsqueeze(p, zero1) t = Concat<axis = 0>(e, e) u = Transpose(t)
        v = Tile(u, ones) w = Transpose<perm = [1, 0]>(v) k = CumSum(w, one0)
        i = Unsqueeze(zero1, zero1) d = GatherND(k, i) h = Trilu(k, one0) o = Trilu<upper = 0>(h)
        g = Gather<axis = 0>(o, zero1) a = Add(d, g) z = Add(x, a) y = Relu(z)
    """,
    "narrow": """
        s = Shape(x) i = Cast<to = 6>(s) m = Gather(i, zero) n = Gather(i, one0) t = Mul(n, m)
        e = Unsqueeze(t, zero1) l = Cast<to = 7>(e) z = Reshape(x, l) y = Relu(z)
    """,
    "batches": """
        s = Shape(x) n = Gather(s, one0) r = Range(zero, n, one0) e = Unsqueeze(r, one)
        u = Unsqueeze(e, zero1) g = GatherND<batch_dims = 1>(table, u) z = Add(x, g) y = Relu(z)
    """,
    "elements": """
        s = Shape(x) n = Gather(s, one0) r = Range(zero, n, one0) e = Unsqueeze(r, zero1)
        g = GatherElements<axis = 1>(table, e) z = Add(x, g) y = Relu(z)
    """,
}

NUMBERS: dict[str, Array] = {
    "zero": np.array(0),
    "one0": np.array(1),
    "minus": np.array(-1),
    "zero1": np.array([0]),
    "one": np.array([1]),
    "two": np.array([2]),
    "pair": np.array([1, -1]),
    "ones": np.array([1, 1]),
    "half": np.array(0.5, np.float32),
    "two_f": np.array(2, np.float32),
    "low": np.array(-9, np.float32),
    "row": f32(1, 1),
    "table": f32(1, 64),
}


@pytest.mark.parametrize("kind", COMPUTED)
def test_what_is_computed_of_sizes_is_computed_of_others(kind: str) -> None:
    words = COMPUTED[kind].replace(",", " ").replace(")", " ").replace("(", " ").split()
    numbers = {name: array for name, array in NUMBERS.items() if name in words}
    rank = "float[p] y" if kind in ("computed", "narrow") else "float[p, q] y"
    proto = model(f"g (float[a, b] x) => ({rank}) {{ {COMPUTED[kind]} }}", 17, **numbers)
    source = source_of(proto)
    source.graph({"x": (3, 4)}, {})
    outline = outline_of(source, {"x": (5, 7)})
    for shape in ((5, 7), (2, 9), (6, 40), (31, 3), (17, 17)):
        made = outline.graph(shape)
        assert made is not None, shape
        assert_same(made, simplify(load_onnx(proto, shapes={"x": shape})))


@pytest.mark.parametrize("name", NETWORKS)
def test_answers_are_those_of_a_session_without_outlines(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    network = NETWORKS[name]()
    feeds = [network.feeds(*sizes) for sizes in network.sizes(7, 6)]
    made = list[Graph]()
    graph = Outline.graph

    def noted(self: Outline, given: tuple[int, ...]) -> Graph | None:
        found = graph(self, given)
        made.extend([found] if found is not None else [])
        return found

    answers = []
    for instead in (noted, lambda *_: None):
        monkeypatch.setattr(Outline, "graph", instead)
        with Session(network.proto, threads=1, deterministic=True, cache_dir=None) as session:
            answers.append([session.run(None, one) for one in feeds])
    assert len(made) >= len(feeds) - 2
    for one, other in zip(*answers, strict=True):
        for a, b in zip(one, other, strict=True):
            assert same_bytes(a, b)


def test_a_question_that_is_answered_otherwise_refuses_sizes() -> None:
    """At a block's border, where a broadcast begins or ends, where a size would be negative."""
    proto = model("g (float[a, b] x, float[c, b] w) => (float[a, b] y) { y = Add(x, w) }")
    source = source_of(proto)
    source.graph({"x": (2, 3), "w": (1, 3)}, {})
    outline = outline_of(source, {"x": (4, 5), "w": (1, 5)})
    for a, b, c in ((3, 3, 1), (9, 1, 1), (3, 3, 3), (1, 1, 1), (1, 2, 4), (2, 3, 4)):
        made = outline.graph([a, b, c, b])
        shapes = {"x": (a, b), "w": (c, b)}
        if made is not None:
            assert_same(made, simplify(load_onnx(proto, shapes=shapes)))
        assert (made is not None) == (c == 1 and a > 1 and b > 1), shapes
    assert outline.graph([3, 4, 1, 5]) is None  # two sizes of one name


def test_sizes_that_are_wrong_are_said_as_at_first() -> None:
    proto = model("g (float[a, b] x, float[c, b] w) => (float[a, b] y) { y = Add(x, w) }")
    with Session(proto, threads=1) as session:
        for a in (2, 3, 4):
            session.run(None, {"x": f32(a, 3), "w": f32(1, 3)})
        with pytest.raises(InputError, match="b is 3 here and 4 in input"):
            session.run(None, {"x": f32(2, 4), "w": f32(1, 3)})
        [y] = session.run(None, {"x": f32(5, 3), "w": f32(1, 3)})
        assert y.shape == (5, 3)


def test_after_sizes_that_are_wrong_others_have_outlines(monkeypatch: pytest.MonkeyPatch) -> None:
    made = list[Outline]()
    monkeypatch.setattr("vtensor.runtime.outlines.Sized", lambda _, one, __: made.append(one))
    window = "y = MaxPool<kernel_shape = [3, 3]>(x)"
    proto = model(f"g (float[1, 2, h, w] x) => (float[1, 2, h2, w2] y) {{ {window} }}")
    with Session(proto, threads=1, cache_dir=None) as session:
        for h, w in ((5, 5), (2, 5), (6, 5), (7, 8)):
            given = {"x": f32(1, 2, h, w)}
            if h < 3:
                with pytest.raises(VTensorError, match="does not fit"):
                    session.run(None, given)
            else:
                session.run(None, given)
    assert len(made) == 2


def test_values_that_decide_sizes_are_part_of_what_an_outline_is_for() -> None:
    proto = model(
        "g (float[a, b] x, int64[2] s) => (float[c, d] y) { z = Reshape(x, s) y = Relu(z) }"
    )
    with Session(proto, threads=1) as session:
        for a, shape in ((2, (4, 3)), (4, (4, 6)), (6, (4, 9)), (6, (3, 12)), (8, (3, 16))):
            x = f32(a, 6)
            [y] = session.run(None, {"x": x, "s": np.array(shape)})
            np.testing.assert_array_equal(y, np.maximum(x, 0).reshape(shape))


def test_graphs_of_open_sizes_have_outlines_too() -> None:
    given = Graph("open")
    x = given.input("x", {"N": None, "C": None})
    given.output(given.add(Relu(), x, name="y"))
    source = source_of(given)
    outline = outline_of(source, {"x": (2, 3)})
    for shape in ((1, 1), (5, 2), (2, 3)):
        made = outline.graph(shape)
        assert made is not None
        assert_same(made, simplify(source.graph({"x": shape}, {})))


@dataclass(frozen=True)
class Hiding:
    """Parameters of a kind that nobody looks into."""

    rows: object


def test_a_size_that_may_be_hidden_makes_no_outline() -> None:
    trace = Trace()
    n = trace.size(4)
    given = Graph("hiding")
    given.output(given.add(Relu(), given.input("x", {"N": n}), name="y"))
    graph = given.seal()
    for rows in (iter([n]), {n.value: iter([n])}, np.array([n], object), memoryview(b"n"), f"{n}"):
        node = replace(graph.nodes["y"], op=Hiding(rows))
        with pytest.raises(NotTraced):
            Outline(replace(graph, nodes={"y": node}), trace)
    with pytest.raises(NotTraced):
        Outline(replace(graph, nodes={f"{n}": graph.nodes["y"]}), trace)


def opened() -> Source:
    """A Relu, whose output is delivered in blocks."""
    g = Graph("delivered")
    g.output(g.add(Relu(), g.input("x", {"N": 2, "C": None, "H": None, "W": None}), name="y"))
    return source_of(g)


DELIVERY = {"y": Layout("NCHW8c")}


@pytest.mark.parametrize("before", BORDERS)
def test_a_strategy_on_an_outline_is_that_on_each_graph(before: tuple[int, int]) -> None:
    source, (c, h) = opened(), before
    outline = outline_of(source, {"x": (2, c, h, h)})
    own = outline.graph([c, h, h])
    assert own is not None
    strategy = Strategy.of(chosen(own, DELIVERY))
    outline.lowered(strategy, own)
    for c, h in BORDERS:
        graph = outline.graph([c, h, h])
        if graph is None:
            continue
        if any(chosen(graph, DELIVERY).transforms()) != any(strategy.chosen.transforms()):
            with pytest.raises(StrategyRefused, match="Transforms"):
                outline.lowered(strategy, graph)
        else:
            made, wanted = outline.lowered(strategy, graph), strategy.on(graph)
            assert str(made) == str(wanted)
            assert all(made.values[name] == value for name, value in wanted.values.items())
            check(made, graph, ["eigen", "onednn", "numpy"], output_layouts=DELIVERY)


def test_without_its_questions_the_checker_sees_a_missing_transform(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("resolver.fitted._questions", lambda _: [])
    outline = outline_of(opened(), {"x": (2, 16, 1, 1)})
    own, other = outline.graph([8, 1, 1]), outline.graph([8, 2, 2])
    assert own is not None
    assert other is not None
    strategy = Strategy.of(chosen(own, DELIVERY))
    proof = Proof()
    proof.check(outline.lowered(strategy, own), own, ["eigen"], delivery=DELIVERY)
    with pytest.raises(UnsoundPlanError, match="output y"):
        check(outline.lowered(strategy, other), other, ["eigen"], output_layouts=DELIVERY)
    with pytest.raises(UnsoundPlanError, match="output y"):
        proof.check(outline.lowered(strategy, other), other, ["eigen"], delivery=DELIVERY)


@pytest.mark.parametrize("name", NETWORKS)
def test_what_is_proved_for_some_sizes_holds_for_others(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The checker says the same of each plan, and is not asked; it is where a size is wrong."""
    network = NETWORKS[name]()
    full, spared = list[LoweredGraph](), 0

    def noted(extended: LoweredGraph, *rest: Any) -> None:
        full.append(extended)
        check(extended, *rest)

    def proved(self: Proof, extended: LoweredGraph, graph: Graph, *rest: Any) -> None:
        nonlocal spared
        before = len(full)
        prove(self, extended, graph, *rest)
        if len(full) > before:
            return
        check(extended, graph, *rest)
        spared += 1
        for value in [*extended.values.values()][::7]:
            if not value.dims:
                continue
            dims = {dim: size + 1 for dim, size in value.dims.items()}
            values = {**extended.values, value.name: replace(value, dims=dims)}
            with pytest.raises(UnsoundPlanError):
                prove(self, replace(extended, values=values), graph, *rest)

    prove = Proof.check
    monkeypatch.setattr("resolver.proof.check", noted)
    monkeypatch.setattr(Proof, "check", proved)
    with Session(network.proto, threads=1, deterministic=True, cache_dir=None) as session:
        for sizes in network.sizes(7, 10):
            session.run(None, network.feeds(*sizes))
    assert spared >= 2


def test_a_strategy_that_does_not_fit_is_tried_once(monkeypatch: pytest.MonkeyPatch) -> None:
    tried = list[Any]()

    def refused(known: Known, key: PlanKey, *_: object) -> Plan:
        tried.append((known.key, key))
        raise StrategyRefused("it does not fit")

    monkeypatch.setattr("vtensor.runtime.strategies.taken", refused)
    proto = model("g (float[a, b] x) => (float[a, b] z) { y = Relu(x) z = Neg(y) }")
    with Session(proto, threads=1, cache_dir=None, deterministic=True) as session:
        for size in (2, 3, 4, 5):
            session.run(None, {"x": f32(size, 3)})
    assert len(tried) > 3
    assert len(tried) == len(set(tried))


def test_memory_of_constants_is_made_for_who_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    made, deferred = list[object](), TensorStorage.deferred

    def noted(*row: Any) -> TensorStorage:
        made.append(row)
        return deferred(*row)

    monkeypatch.setattr(TensorStorage, "deferred", noted)
    graph = load_onnx(NETWORKS["detector"]().proto, shapes={"x": (1, 3, 32, 32)})
    found = stored(graph, graph.constants)
    assert [*found] == [*graph.constants]
    assert len(found) == len(graph.constants)
    assert not made
    name = next(iter(graph.constants))
    assert found[name] is found[name]
    assert found[name].nbytes == graph.constants[name].nbytes
    assert len(made) == 1
    assert found.get("nothing") is None
