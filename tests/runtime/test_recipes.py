"""What recording came to is used again: the same plan as without, and nothing is kept alive."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from random import Random
from typing import Any

import numpy as np
import pytest

from ops import Neg, Relu
from ptensor.evaluation import emit, lib_tagger, share
from ptensor.tensor import PTensor
from resolver.made_up import Names
from tests.frontends.support import f32, model
from tests.libraries.bench import Bench
from tests.libraries.steps import READ, WRITE, FloatStep
from tests.runtime.opened import NETWORKS
from tests.runtime.simulation import faults
from tests.runtime.test_better import settled
from vtensor import Graph, Session
from vtensor.errors import InputError, VTensorError
from vtensor.runtime import recipe_keys, recipes
from vtensor.runtime.plan import Plan
from vtensor.runtime.recipe_keys import Operand
from vtensor.runtime.recipes import Entry, Recipes, Row

Array = np.ndarray[Any, Any]
Feeds = dict[str, Array]

#: Pairs of calls that are equal but for one thing: weights, a parameter, what is fused behind, the
#: dim that is reduced, the element type; and slices, concatenations and views of each.
PAIRS = """pairs (float[n, 8, 8] x, float[m, 8, 8] p) => (float[n, 8, 8] y, float[k, 8, 8] z,
                                                        int32[n, 8, 8] i, float[n, 8, 4] c,
                                                        float[n, 8, 8] v) {
    a0 = MatMul(x, w0) a = Relu(a0) b0 = MatMul(a, w1) b = Tanh(b0)
    s = Softmax(b) e = LeakyRelu<alpha = 0.1>(s) e1 = Softmax(e) f = LeakyRelu<alpha = 0.2>(e1)
    g = ReduceMax<axes = [1]>(f) h = ReduceMax<axes = [2]>(f) y0 = Add(g, h) y = Add(y0, f)
    z0 = Concat<axis = 0>(p, f) z1 = Concat<axis = 0>(z0, e) z = Neg(z1)
    j = Cast<to = 6>(x) i = Neg(j) u = CumSum(s, one) v0 = CumSum(u, two) v = Neg(v0)
    l = Split<axis = 2>(f, halves) c = Add(l, k0)
}""".replace("l = Split<axis = 2>(f, halves)", "l, r = Split<axis = 2>(f, halves) k0 = Exp(r)")


def pairs() -> Any:
    weights = {f"w{i}": f32(8, 8, seed=i) for i in range(2)}
    axes = {"one": np.array(1), "two": np.array(2)}
    return model(PAIRS, 17, **weights, **axes, halves=np.array([4, 4]))


def drawn(seed: int, count: int) -> Iterator[Feeds]:
    """Inputs of random sizes."""
    random = Random(seed)
    for _ in range(count):
        n, m = random.randint(1, 9), random.randint(1, 9)
        yield {"x": 9 * f32(n, 8, 8, seed=n), "p": f32(m, 8, 8, seed=m)}


@contextmanager
def none_known() -> Iterator[None]:
    """Every call is recorded by itself."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Recipes, "find", lambda self, key: Entry(None))
        yield


def steps(session: Session) -> list[tuple[str, str, str]]:
    return [(step.node, step.library, step.kernel) for step in session.plan.recorded]


def check(proto: Any, given: Iterator[Feeds], **options: Any) -> None:
    """Plans made with recipes do bit for bit what those do that are recorded call by call."""
    options = {"threads": 1, "deterministic": True, **options}
    with Session(proto, **options) as session, Session(proto, **options) as other:
        for feeds in given:
            found = session.run(None, feeds)
            assert faults(session.plan.placement, len(session.plan.graph.inputs)) == []
            with none_known():
                wanted = other.run(None, feeds)
            assert len(found) == len(wanted)
            for one, expected in zip(found, wanted, strict=True):
                np.testing.assert_array_equal(one, expected)
            assert steps(session) == steps(other)
            memory = session.memory, other.memory
            assert memory[0].planned == memory[1].planned
        assert recipes_of(session)
        assert not recipes_of(other)


def recipes_of(session: Session) -> Recipes:
    return session._runner.workspace.recipes


@pytest.mark.parametrize("name", [*NETWORKS])
def test_networks_of_any_sizes_do_the_same(name: str) -> None:
    network = NETWORKS[name]()
    check(network.proto, (network.feeds(*sizes) for sizes in network.sizes(3, 12)))


#: Options of sessions: all is fused that can be, nothing is, one library has most of it.
WAYS: list[dict[str, Any]] = [
    {},
    {"optimize": "none"},
    {"optimize": "none", "libraries": ["eigen", "numpy"]},
]


def check_in_all_ways() -> None:
    for way in WAYS:
        check(pairs(), drawn(5, 8), **way)


def test_calls_that_differ_in_one_thing_do_the_same() -> None:
    check_in_all_ways()


def kind_without(place: int) -> Callable[..., Any]:
    known = Operand.kind

    def kind(self: Operand, names: Names) -> Any:
        row = list(known(self, names))
        row[place] = ()
        return tuple(row)

    return kind


#: Of each part of a key: what is replaced so that keys lack it.
PARTS: dict[str, tuple[object, str, Callable[..., Any]]] = {
    "element types": (Operand, "kind", kind_without(0)),
    "sizes": (Operand, "kind", kind_without(2)),
    "parameters": (Names, "of", lambda self, value: type(value)),
    "what is fused behind": (recipe_keys, "_behind", lambda node, names: iter(())),
    "which name": (Names, "__missing__", lambda self, text: text[:1]),
    "whether a node is the same": (Row, "fits", lambda self, node, operands: True),
}


@pytest.mark.parametrize("part", PARTS)
def test_a_key_that_lacks_a_part_is_found_out(part: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(*PARTS[part])
    with pytest.raises((AssertionError, VTensorError, ValueError)):
        check_in_all_ways()


def moved() -> Graph:
    """Two inputs that lie in different orders, and two nodes on different libraries."""
    g = Graph("moved")
    for name in "ab":
        x = g.input(name, {"N": None, "C": 4, "H": 4})
        g.output(g.add(Relu(), g.add(Neg(), x, name=f"n{name}"), name=f"r{name}"), f"y{name}")
    return g.seal()


MOVED: dict[str, Any] = {
    "pin": {"na": "eigen", "nb": "numpy"},
    "libraries": ["eigen", "numpy"],
    "optimize": "none",
}


def both(dense: bool) -> Iterator[Feeds]:
    """Two images; where they are not dense, the dims of one lie as C N H, of the other as H C N."""
    for n in range(2, 6):
        a, b = f32(4, n, 4).transpose(1, 0, 2), f32(4, 4, n).transpose(2, 1, 0)
        yield {"a": a.copy(), "b": b.copy()} if dense else {"a": a, "b": b}


@pytest.mark.parametrize("dense", [True, False])
def test_orders_and_libraries_do_the_same(dense: bool) -> None:
    check(moved(), both(dense), **MOVED)


@pytest.mark.parametrize("fault", ["orders", "variants"])
def test_without_orders_or_variants_in_keys_it_is_found_out(
    fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if fault == "orders":
        monkeypatch.setattr(Operand, "kind", kind_without(3))
    else:
        monkeypatch.setattr(recipe_keys, "_way", lambda variant: ())
    with pytest.raises((AssertionError, VTensorError, ValueError)):
        check(moved(), both(dense=fault == "variants"), **MOVED)


def test_the_same_nodes_of_the_same_values_are_not_looked_into(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with Session(pairs(), threads=1, deterministic=True) as session:
        for feeds in drawn(5, 2):
            wanted = session.run(None, feeds)
        plan, workspace = session.plan, session._runner.workspace
        constants = session._runner.open().made_of(plan)[0].constants
        asked: list[str] = []
        operator = recipe_keys.Keys.operator

        def key(self: Any, node: Any, operands: Any) -> Any:
            asked.append(node.name)
            return operator(self, node, operands)

        monkeypatch.setattr(recipe_keys.Keys, "operator", key)
        name = next(name for name in plan.graph.values if name.startswith("s"))
        other = dict(plan.graph.values) | {name: replace(plan.graph.values[name])}
        readers = [node.name for node in plan.graph.nodes if name in (*node.inputs, *node.outputs)]
        for graph, expected in ((plan.graph, []), (replace(plan.graph, values=other), readers)):
            asked.clear()
            plan_again = partial(Plan, graph, constants, workspace, confirming=True)
            made = workspace.executor.planning(plan_again)
            assert asked == expected
            assert [one.native for one in made.recorded] == [one.native for one in plan.recorded]
        assert wanted


def test_equal_layers_have_one_recipe_and_their_own_weights() -> None:
    layers = "".join(f"x{i + 1} = MatMul(x{i}, w{i}) " for i in range(6))
    text = f"layers (float[n, 4] x0) => (float[n, 4] x6) {{ {layers} }}"
    weights: dict[str, Any] = {f"w{i}": f32(4, 4, seed=i) for i in range(6)}
    with Session(model(text, **weights), threads=1) as session:
        for n in (1, 2, 3):
            x = f32(n, 4)
            [found] = session.run(None, {"x0": x})
            for one in weights.values():
                x = x @ one
            np.testing.assert_allclose(found, x, rtol=1e-4, atol=1e-4)
        natives = {id(step.native) for step in session.plan.recorded}
        assert len(natives) < len(session.plan.recorded)


def test_no_recipe_holds_memory_and_a_closed_session_holds_no_recipe() -> None:
    session = Session(pairs(), threads=1, deterministic=True)
    for feeds in drawn(2, 3):
        session.run(None, feeds)
    kept = recipes_of(session)
    entries = [entry.recipe for entry in kept._kept.values() if entry.recipe is not None]
    assert entries
    for recipe in entries:
        slots = [slot for step in recipe.recorded.steps for slot in step.slots]
        storages = [slot for slot in slots if not isinstance(slot, int)]
        assert not any(one.bound for one in (*recipe.inputs, *recipe.recorded.outputs, *storages))
    session.close()
    assert not recipes_of(session)


def test_recipes_of_the_last_plans_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recipes, "PLANS", 2)
    with Session(pairs(), threads=1, deterministic=True) as session:
        counts = []
        for feeds in drawn(7, 9):
            session.run(None, feeds)
            counts.append(len(recipes_of(session)))
        assert max(counts) <= 2 * len(session.plan.graph.nodes)
    check(pairs(), drawn(7, 6))


def test_what_no_plan_uses_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recipes, "PLANS", 2)
    keys = [recipe_keys.Key((i,), ()) for i in range(3)]
    known = Recipes()
    first = known.keep(keys[0], None)
    for key in keys[1:]:
        known.begin("all")
        known.keep(key, None)
        known.use(first)
    known.begin("all")
    assert [known.find(key) is not None for key in keys] == [True, False, True]


def test_what_looks_at_constants_is_recorded_by_itself(bench: Bench) -> None:
    """Its native step may have the values in it."""

    @bench.invoker("Pair", python=False)
    def scaled(ctx: object, op: object, a: Any, b: Any, y: Any) -> None:
        tensors = [PTensor(one).require("NC") for one in (a, b, y)]
        if lib_tagger("toy", tensors[:2], tensors[2:]):
            return
        size, factor = a.num_elements, float(tensors[1].data()[0, 0])

        def run(slots: list[Array]) -> None:
            slots[2][:] = slots[0] * factor

        step = FloatStep("scaled", [(size, READ), (1, READ), (size, WRITE)], run)
        emit(step, tensors)

    g = Graph("scales")
    x = g.input("x", {"N": None, "C": 3})
    for i in (2, 3):
        factor = g.constant(np.full((1, 1), i, np.float32), "N C")
        x = g.add(bench.op("Pair"), x, factor, name=f"times{i}")
    g.output(x, "y")
    with Session(g, threads=1, optimize="none") as session:
        for n in (1, 2, 1):
            np.testing.assert_array_equal(session.run(None, {"x": f32(n, 3)})[0], f32(n, 3) * 6)
        entries = recipes_of(session)._kept.values()
        assert [entry.recipe for entry in entries] == [None, None]


def test_what_python_runs_sees_its_own_operands(bench: Bench) -> None:
    seen: list[str] = []

    @bench.invoker()
    def python(ctx: Any, op: object, x: Any, y: Any) -> None:
        src, dst = PTensor(x).require("NC"), PTensor(y).require("NC")
        if lib_tagger("toy", [src], [dst]):
            return
        seen.append(ctx.node)
        dst.data()[...] = src.data() + 1

    g = Graph("twice")
    x = g.input("x", {"N": None, "C": 3})
    g.output(g.add(bench.op("Toy"), g.add(bench.op("Toy"), x, name="one"), name="two"), "y")
    with Session(g, threads=1) as session:
        for n in (1, 2, 3):
            np.testing.assert_array_equal(session.run(None, {"x": f32(n, 3)})[0], f32(n, 3) + 1 + 1)
    assert seen == ["one", "two"] * 3


def test_memory_that_is_shared_is_each_nodes_own(bench: Bench) -> None:
    @bench.invoker(python=False)
    def alias(ctx: object, op: object, x: Any, y: Any) -> None:
        src, dst = PTensor(x), PTensor(y)
        if not lib_tagger("toy", [src], [dst]):
            share(src, dst)

    g = Graph("shared")
    for name in "ab":
        g.output(g.add(bench.op("Toy"), g.input(name, {"N": None, "C": 3}), name=f"t{name}"), name)
    with Session(g, threads=1) as session:
        for n in (1, 2, 3):
            feeds = {name: f32(n, 3, seed=i) for i, name in enumerate("ab")}
            for found, given in zip(session.run(None, feeds), feeds.values(), strict=True):
                np.testing.assert_array_equal(found, given)
        assert session.plan.recorded == ()


def test_an_error_of_a_step_names_its_own_node_and_dims() -> None:
    text = """picked (float[n, m] x, int64[k] i, int64[k] j) => (float[k, m] y, float[k, m] z) {
        y = Gather<axis = 0>(x, i) r = Relu(x) z = Gather<axis = 0>(r, j) }"""
    with Session(model(text), threads=1, optimize="none") as session:
        for n in (3, 4):
            feeds = {"x": f32(n, 2), "i": np.zeros(1, np.int64), "j": np.array([n])}
            with pytest.raises(InputError, match=rf"'Gather:2': .* index {n} along D0"):
                session.run(None, feeds)


@pytest.mark.parametrize(
    ("one", "other", "alike"),
    [
        (("D1", "D2"), ("D7", "D12"), True),
        (("D1", "D2"), ("D2", "D1"), True),
        (("D1", "D1"), ("D1", "D2"), False),
        (("D1", "N"), ("D2", "N"), True),
        (("D1", "N"), ("D1", "C"), False),
        (("D1", 0), ("D1", 1), False),
        (("D1", 0.0), ("D1", -0.0), False),
        (("D1", 1), ("D1", True), False),
        (("D1", ("D2", 3)), ("D4", ("D5", 3)), True),
        ((0,), ("D1",), False),
        (("D1", "D1 D2"), ("D2", "D2 D1"), False),
    ],
)
def test_names_that_were_made_up_say_nothing(one: Any, other: Any, alike: bool) -> None:
    """But which are the same; one within a text says what it says."""

    def key(value: object) -> tuple[object, bool]:
        names = Names()
        found = names.of(value)
        return (Names(literal=True).of(value) if names.literal else found), names.literal

    assert (key(one) == key(other)) == alike


def test_recipes_go_with_their_session() -> None:
    settled()  # what other tests left is over
    before = {id(one) for one in gc.get_objects() if type(one) is recipes.Recipe}
    with Session(pairs(), threads=1, deterministic=True) as session:
        for feeds in drawn(2, 2):
            session.run(None, feeds)
    del session
    gc.collect()
    after = {id(one) for one in gc.get_objects() if type(one) is recipes.Recipe}
    assert after <= before
