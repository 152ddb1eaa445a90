"""Other sizes take over what was chosen: the same values, guards at their borders, what is said."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from ops import Add, Relu
from optimizer.magnitude import largest
from optimizer.originals import Original
from optimizer.pipeline import ASKING, optimise, simplify
from ptensor.evaluation import lib_tagger
from ptensor.layout import Layout
from ptensor.pages import Room, one_after_the_other
from ptensor.tensor import PTensor
from resolver.check import check
from resolver.evaluate import resolutions, resolve
from resolver.extend import extend
from resolver.lowered import LoweredGraph
from resolver.refit import refitted
from resolver.strategy import Strategy, StrategyRefused
from tests.frontends.support import f32, model
from tests.libraries.bench import Bench
from tests.runtime.opened import NETWORKS
from vtensor import Graph, Session
from vtensor.errors import BudgetError, DimError, UnsoundPlanError
from vtensor.report import plan_dict, plan_lines
from vtensor.runtime import provisional

Array = np.ndarray[Any, Any]


def delivered(c: int, h: int, layout: str = "NCHW8c") -> tuple[Graph, dict[str, Layout]]:
    """A Relu whose output is delivered in blocks."""
    g = Graph("delivered")
    g.output(g.add(Relu(), g.input("x", {"N": 2, "C": c, "H": h, "W": h}), name="y"))
    return simplify(g.seal()), {"y": Layout(layout)}


def chosen(graph: Graph, delivery: dict[str, Layout]) -> LoweredGraph:
    """What is chosen for a graph by itself."""
    return optimise(extend(resolve(graph), delivery))


BORDERS = [(1, 1), (7, 1), (8, 1), (9, 1), (1, 2), (7, 2), (8, 2), (9, 2)]


@pytest.mark.parametrize("before", BORDERS)
def test_at_the_border_of_a_block_transforms_stay_or_come_and_go(
    before: tuple[int, int],
) -> None:
    graph, delivery = delivered(*before)
    strategy = Strategy.of(chosen(graph, delivery))
    for sizes in BORDERS:
        other, _ = delivered(*sizes)
        own = chosen(other, delivery)
        if _changes(own) == _changes(strategy.chosen):
            made = strategy.on(other)
            assert str(made) == str(own)
            check(made, other, ["eigen", "onednn", "numpy"], output_layouts=delivery)
        else:
            with pytest.raises(StrategyRefused, match="Transforms") as why:
                strategy.on(other)
            made, _ = refitted(strategy.roughly(other), why.value.nodes)
            assert _changes(made) == _changes(own)
            check(made, other, ["eigen", "onednn", "numpy"], output_layouts=delivery)


def _changes(graph: LoweredGraph) -> list[str]:
    return [node.name for node in graph.transforms()]


def test_without_its_guard_the_checker_sees_a_missing_transform(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    graph, delivery = delivered(8, 1)
    strategy = Strategy.of(chosen(graph, delivery))
    assert not _changes(strategy.chosen)
    monkeypatch.setattr("resolver.strategy.alike", lambda *_: True)
    other, _ = delivered(8, 2)
    with pytest.raises(UnsoundPlanError, match="output y"):
        check(strategy.on(other), other, ["eigen"], output_layouts=delivery)


def chain(**changes: Any) -> Graph:
    """A sum, and what may be fused behind it."""
    g = Graph("chain")
    a, b = (g.input(name, {"N": 2, "C": 3}) for name in "ab")
    g.output(g.add(Relu(), g.add(Add(), a, b, name="sum"), name="y"))
    return replace(simplify(g.seal()), **changes)


WRONG: dict[str, Callable[[], Graph]] = {
    "no node of it": lambda: chain(nodes={"y": chain().nodes["y"]}),
    "another operator": lambda: chain(
        nodes={
            name: replace(node, op=Relu()) if name == "sum" else node
            for name, node in chain().nodes.items()
        }
    ),
    "fused": lambda: chain(offers={}),
    "other dims": lambda: chain(
        values={name: v.rename({"C": "D"}) for name, v in chain().values.items()}
    ),
    "a constant": lambda: chain(constants={"a": f32(2, 3)}),
    "other inputs": lambda: chain(inputs=["a"]),
}


@pytest.mark.parametrize("fault", WRONG)
def test_another_network_is_refused(fault: str) -> None:
    strategy = Strategy.of(chosen(chain(), {}))
    assert any(node.followers for node in strategy.chosen.operators)
    assert str(strategy.on(chain())) == str(strategy.chosen)
    with pytest.raises(StrategyRefused, match=fault):
        strategy.on(WRONG[fault]())


def resized() -> Session:
    """Rows brought to eight; oneDNN takes elements as they are where sizes divide."""
    text = """resized (float[1, 2, h, 8] x) => (float[1, 2, 8, 8] y) {
        y = Resize<mode = "nearest", coordinate_transformation_mode = "asymmetric",
                   nearest_mode = "floor">(x, , , to) }"""
    return Session(model(text, to=np.array([1, 2, 8, 8])), threads=1)


def test_a_library_may_refuse_other_sizes() -> None:
    """It is asked again: its condition, and whether it has a kernel."""
    with resized() as session:
        for rows, taken in ((4, False), (2, True), (5, False), (7, True), (8, True)):
            x = f32(1, 2, rows, 8)
            [found] = session.run(None, {"x": x})
            np.testing.assert_array_equal(found, x[:, :, np.arange(8) * rows // 8])
            assert (session.plan.taken_from is not None) == taken, rows


def test_a_library_that_is_not_asked_again_would_be_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    from vtensor.runtime.evaluations import RecordEvaluation

    silent = property(lambda self: False, lambda self, _: None)
    monkeypatch.setattr(RecordEvaluation, "confirming", silent)
    with resized() as session:
        session.run(None, {"x": f32(1, 2, 4, 8)})
        x = f32(1, 2, 5, 8)
        [found] = session.run(None, {"x": x})
        assert (found != x[:, :, np.arange(8) * 5 // 8]).any()


def test_an_invoker_in_python_is_asked_before_the_run(bench: Bench) -> None:
    @bench.invoker()
    def toy(ctx: object, op: object, x: Any, y: Any) -> None:
        layout = "CN" if x.size("N") > 4 else "NC"
        src, dst = PTensor(x).require(layout), PTensor(y).require(layout)
        if lib_tagger("toy", [src], [dst]):
            return
        dst.data()[...] = src.data()

    g = Graph("open")
    g.output(g.add(bench.op("Toy"), g.input("x", {"N": None, "C": 3}), name="y"))
    with Session(g) as session:
        for size, taken in ((2, False), (3, True), (5, False), (6, True), (4, True)):
            np.testing.assert_array_equal(session.run(None, {"x": f32(size, 3)})[0], f32(size, 3))
            assert (session.plan.taken_from is not None) == taken, size


def test_when_libraries_have_changed_all_is_chosen_anew(bench: Bench) -> None:
    def copy(library: str) -> Callable[..., None]:
        def run(ctx: object, op: object, x: Any, y: Any) -> None:
            src, dst = PTensor(x).require("NC"), PTensor(y).require("NC")
            if not lib_tagger(library, [src], [dst]):
                dst.data()[...] = src.data()

        return run

    bench.invoker(library="numpy")(copy("numpy"))
    g = Graph("open")
    g.output(g.add(bench.op("Toy"), g.input("x", {"N": None, "C": 3}), name="y"))
    with Session(g) as session:
        for size, library in ((2, "numpy"), (3, "numpy"), (4, "toy"), (5, "toy")):
            if size == 4:
                bench.invoker()(copy("toy"))
            session.run(None, {"x": f32(size, 3)})
            assert [step.library for step in session.plan.steps] == [library]
            assert (session.plan.taken_from is None) == (size in (2, 4))


#: Of a network the sizes of its first plan, others in which some nodes do not fit, and more in
#: which all fit that was chosen for those.
APART = {
    "attention": ((1, 1), (2, 1), (3, 1)),
    "squeeze": ((1, 32, 32), (1, 2, 2), (2, 2, 2)),
    "detector": ((1, 32, 32), (1, 1, 1), (1, 1, 1)),
}


@pytest.mark.parametrize("name", APART)
def test_only_what_does_not_fit_is_chosen_anew_and_what_is_around_it(name: str) -> None:
    network = NETWORKS[name]()
    with Session(network.proto, threads=1) as session:
        first, *others = APART[name]
        session.run(None, network.feeds(*first))
        before = {node.name: node.variant for node in session.plan.graph.operators}
        assert session.plan.anew == tuple(before)
        for count, sizes in enumerate(others):
            feeds = network.feeds(*sizes)
            [found] = session.run(None, feeds)
            plan = session.plan
            assert plan.taken_from is not None
            if not count:
                assert 0 < len(plan.anew) < len(before) / 2
                assert plan_dict(session, "")["anew"] == [*plan.anew]
                lines = [line.text for line in plan_lines(session, "")]
                text = f"{len(plan.anew)} of {len(before)} nodes anew"
                assert any(text in line for line in lines)
                for node in plan.graph.operators:
                    if node.name not in plan.anew:
                        assert node.variant.library == before[node.name].library
                        assert node.variant.layouts == before[node.name].layouts
            elif sizes != others[0]:
                assert not plan.anew, "it takes what was chosen for the nearest sizes"
            with Session(network.proto, threads=1) as other:
                [wanted] = other.run(None, feeds)
            np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("enough", "asked"), [(1.0, False), (-1.0, True)])
def test_beside_a_provisional_plan_what_does_not_fit_is_chosen_as_soon(
    enough: float, asked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Libraries are asked for other variants where that may gain something, and not always."""
    monkeypatch.setattr("vtensor.runtime.options.speeds_asked_for", lambda: dict)
    text = """g (float[a, b] x, float[4, 8] u) => (float[b, a] y, float[4, 8] z) {
        r = Relu(x)  y = Transpose<perm = [1, 0]>(r)
        p = MatMul(u, k)  s = Softmax(p)  q = MatMul(s, k)  t = Softmax(q)  z = MatMul(t, k) }"""
    with Session(model(text, k=f32(8, 8)), threads=1) as session:
        session.run(None, {"x": f32(1, 64), "u": f32(4, 8)})
        assert session.plan.provisional
        for limit in ("ENOUGH", "WORTH"):
            monkeypatch.setattr(provisional, limit, enough)
        x, count = f32(64, 64), resolutions()
        found, _ = session.run(None, {"x": x, "u": f32(4, 8)})
        np.testing.assert_array_equal(found, np.maximum(x, 0).T)
        assert resolutions() > count
        assert session.plan.taken_from is not None
        assert session.plan.provisional
        assert any(one in ASKING for one in session.plan.graph.passes) == asked


def test_a_library_that_wants_constants_otherwise_has_them_so(bench: Bench) -> None:
    @bench.invoker("Pair")
    def pair(ctx: object, op: object, a: Any, b: Any, y: Any) -> None:
        few = a.size("N") <= 4
        asked = zip((a, b, y), ("NC", "CK" if few else "KC", "NCK"), strict=True)
        one, other, out = (PTensor(tensor).require(text) for tensor, text in asked)
        if not lib_tagger("toy", [one, other], [out]):
            rows = other.data() if few else other.data().T
            out.data()[...] = one.data()[:, :, None] + rows

    g, weights = Graph("open"), f32(3, 2)
    x, w = g.input("x", {"N": None, "C": 3}), g.constant(weights, "C K", name="w")
    g.output(g.add(Relu(), g.add(bench.op("Pair"), g.add(Relu(), x), w, name="pair")), "y")
    with Session(g) as session:
        for size, anew in ((2, None), (3, ()), (5, ("pair",)), (6, ()), (4, ()), (9, ())):
            given, count = f32(size, 3), resolutions()
            [found] = session.run(None, {"x": given})
            wanted = np.maximum(np.maximum(given, 0)[:, :, None] + weights, 0)
            np.testing.assert_array_equal(found, wanted)
            assert anew is None or (session.plan.anew, resolutions()) == (anew, count), size
            assert ["w" in node.inputs for node in session.plan.graph.ahead()] == [True] * (
                session.plan.graph.operators[1].variant.layouts[1] == Layout("KC")
            )


def heads() -> Session:
    """Heads that are counted with the batch, and apart again: all of it lies as the input does."""
    text = """heads (float[n, 5, 1, 3, 4] x) => (float[n, 3, 4, 5] y) {
        apart = Transpose<perm = [2, 0, 3, 1, 4]>(x)  all = Reshape(apart, counted)
        turned = Transpose<perm = [0, 2, 1]>(all)  back = Reshape(turned, shape)
        y = Relu(back) }"""
    counted, shape = np.array([-1, 5, 4]), np.array([-1, 3, 4, 5])
    return Session(model(text, counted=counted, shape=shape), threads=1)


def test_a_dim_of_one_element_that_has_two_moves_what_stands_around_it() -> None:
    with heads() as session:
        for size in (1, 2, 3, 1):
            x, count = f32(size, 5, 1, 3, 4), resolutions()
            [found] = session.run(None, {"x": x})
            wanted = np.maximum(x.transpose(2, 0, 3, 1, 4).reshape(-1, 3, 5, 4), 0)
            np.testing.assert_array_equal(found, wanted.transpose(0, 1, 3, 2))
            assert len([*session.plan.graph.transforms()]) == 1, "its output lies otherwise"
            if session.plan.taken_from is not None:
                assert resolutions() == count
                assert (len(session.plan.anew) == 3) == (size == 2)


def test_where_transforms_would_take_long_more_is_chosen_anew() -> None:
    text = "g (float[a, b] x) => (float[b, a] y) { r = Relu(x) y = Transpose<perm = [1, 0]>(r) }"
    with Session(model(text), threads=1) as session:
        for rows in (1, 64):
            x, count = f32(rows, 64), resolutions()
            [found] = session.run(None, {"x": x})
            np.testing.assert_array_equal(found, np.maximum(x, 0).T)
        assert resolutions() > count


@pytest.mark.parametrize("name", ["mobile", "transformer", "attention", "squeeze"])
def test_another_batch_than_one_takes_all_nodes(name: str) -> None:
    network, inner = NETWORKS[name](), (9, 9) if name in ("mobile", "squeeze") else (9,)
    for before, after in ((1, 2), (2, 1)):
        with Session(network.proto, threads=1) as session:
            session.run(None, network.feeds(before, *inner))
            session.run(None, network.feeds(after, *inner))
            assert session.plan.taken_from is not None
            assert len(session.plan.anew) <= len(session.plan.graph.operators) / 10


def test_nodes_are_added_until_libraries_take_all_of_them() -> None:
    """One token is no sequence: some libraries decline when others are content already."""
    network = NETWORKS["attention"]()
    with Session(network.proto, threads=1, cache_dir=None) as session:
        session.run(None, network.feeds(2, 9))
        [found] = session.run(None, network.feeds(2, 1))
        assert session.plan.taken_from is not None
        assert 0 < len(session.plan.anew) < len(session.plan.graph.operators) / 3
    with Session(network.proto, threads=1, optimize="none", cache_dir=None) as session:
        [wanted] = session.run(None, network.feeds(2, 1))
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


def test_where_nothing_is_said_of_nodes_or_too_many_do_not_fit_all_is_chosen_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise StrategyRefused("nothing is said of nodes")

    monkeypatch.setattr("vtensor.runtime.strategies.refitted", refuse)
    network = NETWORKS["attention"]()
    with Session(network.proto, threads=1, cache_dir=None) as session:
        session.run(None, network.feeds(2, 9))
        session.run(None, network.feeds(2, 1))
        assert session.plan.taken_from is None
        assert session.plan.certificate is not None


def test_sizes_that_cannot_be_are_refused_and_others_run_on() -> None:
    text = """g (float[n, 3, h, w] x) => (float[n, 4, a, b] y) { c = Conv(x, k) y = Relu(c) }"""
    with Session(model(text, k=f32(4, 3, 5, 5)), threads=1, max_bytes=1 << 20) as session:
        for sizes in ((1, 9, 9), (2, 7, 9)):
            session.run(None, {"x": f32(sizes[0], 3, *sizes[1:])})
            for wrong, error in (((1, 4, 9), DimError), ((1, 2000, 2000), BudgetError)):
                with pytest.raises(error):
                    session.run(None, {"x": np.zeros((wrong[0], 3, *wrong[1:]), np.float32)})
        session.run(None, {"x": f32(3, 3, 8, 8)})
        assert session.plan.taken_from is not None


def test_what_is_broadcast_may_change() -> None:
    text = "g (float[n, c] x, float[m, c] y) => (float[k, c] z) { a = Add(x, y) z = Relu(a) }"
    with Session(model(text), threads=1) as session:
        for n, m, c in (
            (1, 1, 1),
            (4, 1, 1),
            (4, 4, 1),
            (1, 4, 8),
            (4, 1, 8),
            (4, 4, 8),
            (1, 1, 3),
        ):
            x, y = f32(n, c), f32(m, c, seed=1)
            [found] = session.run(None, {"x": x, "y": y})
            np.testing.assert_array_equal(found, np.maximum(x + y, 0))


@pytest.mark.parametrize("level", ["none", "lho", "ewo", "all"])
def test_levels_of_the_paper_choose_for_each_shape(level: str) -> None:
    network = NETWORKS["transformer"]()
    with Session(network.proto, threads=1, optimize=level) as session:
        for count, sizes in enumerate([(1, 8), (2, 9), (2, 10)], 1):
            before = resolutions()
            session.run(None, network.feeds(*sizes))
            fresh = level != "all" or count == 1
            assert (session.plan.taken_from is None) == fresh
            assert resolutions() == before + fresh


def test_a_plan_says_whose_choices_it_has() -> None:
    network = NETWORKS["transformer"]()
    with Session(network.proto, threads=1) as session:
        session.run(None, network.feeds(2, 9))
        first = str(session.plan.graph)
        assert plan_dict(session, "")["taken_from"] == {}
        session.run(None, network.feeds(3, 5))
        assert plan_dict(session, "")["taken_from"] == {"ids": [2, 9]}
        lines = [line.text for line in plan_lines(session, "")]
        assert any("chosen for other sizes, ids 2x9: " in line for line in lines)
        assert str(session.plan.resolved).startswith("extended transformer")
        inner = session.run(["y", "h"], network.feeds(3, 5))
        assert session.plan.taken_from is None, "it delivers other values"
        np.testing.assert_allclose(inner[0], session.run(None, network.feeds(3, 5))[0], rtol=1e-5)
        for size in range(2, 12):
            session.run(None, network.feeds(1, size))
        session.run(None, network.feeds(2, 9))
        assert session.plan.taken_from is None, "the plan that was dropped came back whole"
        assert session.plan.certificate is not None
        assert str(session.plan.graph) == first


def test_values_that_decide_shapes_are_no_sizes_of_their_own() -> None:
    """Another value of the same shape is another choice."""
    text = "g (float[1, c] x, int64[2] to) => (float[a, c] y) { r = Relu(x) y = Expand(r, to) }"
    with Session(model(text), threads=1) as session:
        for rows, own in ((4, True), (6, False), (4, True), (2, False)):
            [found] = session.run(None, {"x": f32(1, 12), "to": np.array([rows, 12])})
            np.testing.assert_array_equal(found, np.maximum(f32(1, 12), 0).repeat(rows, 0))
            assert (session.plan.taken_from is None) == own


def test_largest_is_found_once_an_array_and_goes_with_it() -> None:
    from optimizer.magnitude import _known

    array = np.array([1.0, -4.0, 2.0])
    before = len(_known)
    assert largest(array) == largest(array) == 4.0
    assert len(_known) == before + 1
    del array
    assert len(_known) == before
    assert np.isnan(largest(np.array([1.0, np.nan, np.inf])))


def test_what_nobody_has_read_is_read_for_that_alone() -> None:
    """One after the other into the same memory, and they are as unread as before."""
    arrays = [np.array(one, np.float32) for one in ([3, -4, 2], [1, -9], [7])]
    places: list[int] = []

    def reads(array: Array) -> Callable[[Room], Array]:
        def read(room: Room) -> Array:
            made = room(array.nbytes)
            made[:] = array.view(np.uint8)
            places.append(made.ctypes.data)
            return made

        return read

    given = [Original.unread(one.shape, one.dtype, reads(one)) for one in arrays]
    room = one_after_the_other()
    assert [largest(one, room) for one in given] == [4.0, 9.0, 7.0]
    assert len(set(places)) == 1
    assert [(one.held, one.asks) for one in given] == [(False, 0)] * 3
    assert given[0].array.tolist() == [3, -4, 2]  # whoever asks has memory of his own
    assert len(set(places)) == 2
