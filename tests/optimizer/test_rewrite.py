"""Rewrite rules: each against what it replaces, on random graphs made of its own pattern."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np
import pytest

import ops
from libdesc import without_invoker
from libdesc.registry import installed, registry
from optimizer.rewrite import rewrite
from tests.optimizer.graphs import compared, operators
from vtensor import Graph, Session, VTensor
from vtensor.commands.explain import explain_dict
from vtensor.errors import GraphError, InputError
from vtensor.language.dtype import numpy_dtype
from vtensor.language.operators import OPERATORS, info_of
from vtensor.language.rules import Apply, Either, Hole, Named, Number, Part, Pattern, Rule
from vtensor.language.traits import Commutes
from vtensor.report import plan_dict, plan_lines

RULES = registry().rules
Random = np.random.Generator


def plain(pattern: Pattern) -> list[Pattern]:
    """The pattern with each choice made, in every way."""
    match pattern:
        case Either(choices):
            return [simple for choice in choices for simple in plain(choice)]
        case Part(name, inner):
            return [Part(name, simple) for simple in plain(inner)]
        case Apply(op, operands, parameters):
            return [Apply(op, row, parameters) for row in product(*map(plain, operands))]
    return [pattern]


class Instance:
    """A graph made of a pattern without choices: what it begins with is drawn."""

    def __init__(self, rule: Rule, pattern: Pattern, rng: Random) -> None:
        self.rule, self.rng = rule, rng
        self.graph, self.sizes = Graph(rule.name), dict[str, int]()
        self.values, self.parts = dict[str, VTensor](), dict[str, VTensor]()
        self.graph.output(self.made(pattern), "result")
        self.graph.seal()

    def made(self, pattern: Pattern) -> VTensor:
        match pattern:
            case Hole(name, kind):
                if name not in self.values:
                    self.values[name] = self.hole(name, kind)
                return self.values[name]
            case Number(value):
                return self.graph.constant(np.float32(value), "")
            case Part(name, inner):
                if name not in self.parts:
                    self.parts[name] = self.made(inner)
                return self.parts[name]
            case Apply(op, operands, parameters):
                inputs = [self.made(item) for item in operands]
                cls = OPERATORS[op].cls
                known = {key: self.parameter(item) for key, item in parameters.items()}
                node = cls(**{key: item for key, item in known.items() if item is not None})
                if OPERATORS[op].trait(Commutes):
                    inputs = list(self.rng.permutation(np.array([*inputs, None])[:-1]))
                    while len(inputs) > 2:
                        at = int(self.rng.integers(len(inputs) - 1))
                        inputs[at : at + 2] = [self.graph.add(node, *inputs[at : at + 2])]
                result: Any = self.graph.add(node, *inputs)
                first: VTensor = result[0] if isinstance(result, tuple) else result
                return first
        raise AssertionError(pattern)

    def hole(self, name: str, kind: str) -> VTensor:
        example = self.rule.example.get(name, "" if kind == "scalar" else "N C H W")
        if not isinstance(example, str):
            number = np.int64 if isinstance(example, int) else np.float32
            return self.graph.constant(number(example), "")
        dtype, words = "bool" if example.startswith("?") else "f32", example.strip("?").split()
        if words and words[0] in ("u8", "s8", "s32"):
            dtype, *words = words
        rows = [row.partition("=") for row in words]
        dims = {dim: self.size(size or dim) for dim, _, size in rows}
        if not kind:
            return self.graph.input(name, dims, dtype)
        array = self.rng.normal(size=[*dims.values()]).astype("f4")
        if dtype != "f32":
            array = drawn(VTensor(dtype, dims), self.rng)
        return self.graph.constant(array, [*dims])

    def size(self, name: str) -> int:
        drawn = int(self.rng.integers(2, 6))
        return int(name) if name.isdigit() else self.sizes.setdefault(name, drawn)

    def parameter(self, value: object) -> object:
        if not isinstance(value, Named):
            return value
        example = self.rule.example.get(value.name)
        return example(self.sizes) if callable(example) else example


def values_of(graph: Graph, feed: dict[str, Any]) -> Any:
    with Session(graph, optimize="none", libraries=["numpy"]) as session:
        return session.run(None, feed)[0]


def drawn(value: VTensor, rng: Random) -> Any:
    sizes = [*value.dims.values()]
    if value.dtype[0] in "su":
        low = -100 if value.dtype[0] == "s" else 0
        return rng.integers(low, 100, sizes).astype(numpy_dtype(value.dtype))
    array = rng.normal(0, 3, sizes).astype("f4")
    return array > -1 if value.dtype == "bool" else array


def moving(graph: Graph) -> int:
    """How many nodes there are that do more than name and count elements anew."""
    infos = (info_of(node.op) for node in graph.nodes.values())
    return sum(info.structural not in ("reshape", "rename") for info in infos)


def check(rule: Rule, seed: int) -> None:
    """The rule is applied to all that its pattern means, and changes no value."""
    rng = np.random.default_rng(seed)
    patterns = plain(rule.pattern)
    for index in rng.permutation(len(patterns))[:4]:
        graph = Instance(rule, patterns[index], rng).graph
        names = {*operators(graph)}
        assert any(needed <= names for needed in rule.needs)  # so the rule would be imported
        at = {(rule.name, name) for name in graph.nodes}  # whatever it takes
        rewritten = rewrite(graph, rules=[rule.name], native=False, only=at, early=rule.early)
        assert rewritten.rewritten == {rule.name: 1}, f"{patterns[index]}\n{graph}"
        assert rule.makes.op in operators(rewritten)
        assert moving(rewritten) <= moving(graph) or rule.makes.op == "Cast"  # conversions
        feed = {name: drawn(graph.values[name], rng) for name in graph.inputs}
        want, got = values_of(graph, feed), values_of(rewritten, feed)
        np.testing.assert_allclose(got, want, rtol=3e-5, atol=3e-6)


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("name", RULES)
def test_a_rule_makes_what_it_replaces(name: str, seed: int) -> None:
    assert RULES[name].equation
    check(RULES[name], seed)


@pytest.fixture
def wrong() -> Iterator[Rule]:
    """A rule that is no equation."""
    rule = Rule.of("wrong", "x / (1 + e^-x)", "Mul(x, Sigmoid(x))", "Swish(x, alpha=2.0)")
    RULES["wrong"] = rule
    yield rule
    del RULES["wrong"]


def test_a_wrong_rule_is_found(wrong: Rule) -> None:
    with pytest.raises(AssertionError, match="Not equal to tolerance"):
        check(wrong, 0)


def swish(also: str = "", between: int = 0) -> Graph:
    """x times its sigmoid, perhaps through views; perhaps another value is an output."""
    g = Graph("swish")
    x = g.input("x", {"N": 2, "C": 3})
    gate = g.add(ops.Sigmoid(), x, name="gate")
    for _ in range(between):
        gate = g.add(ops.Rename((("C", "C"), ("N", "N"))), gate)
    g.output(g.add(ops.Mul(), x, gate, name="y"))
    if also:
        g.output(g.values[also])
    return g.seal()


def test_views_in_between_are_looked_through() -> None:
    rewritten = rewrite(swish(between=2))
    assert operators(rewritten) == ["Swish"]
    assert rewritten.merged == {"gate": "y", "Rename:0": "y", "Rename:1": "y"}
    assert str(rewritten.values["y"]) == str(swish().values["y"])


def test_what_an_output_or_another_node_needs_stays() -> None:
    assert operators(rewrite(swish("gate"))) == ["Sigmoid", "Mul"]
    g = Graph("twice")
    x = g.input("x", {"N": 2})
    gate = g.add(ops.Sigmoid(), x)
    g.output(g.add(ops.Mul(), x, gate))
    g.output(g.add(ops.Neg(), gate))
    assert operators(rewrite(g.seal())) == ["Sigmoid", "Mul", "Neg"]


@pytest.mark.parametrize("pin", [{"gate": "numpy"}, {"Sigmoid": "numpy"}])
def test_a_pinned_node_stays(pin: dict[str, str]) -> None:
    with Session(swish(), pin=pin) as session:
        assert [node.op_name for node in session.plan.graph.operators] == ["Sigmoid", "Mul"]


def test_native_code_does_not_become_a_call_back() -> None:
    with without_invoker("Swish", "onednn"), without_invoker("Swish", "eigen"):
        assert operators(rewrite(swish())) == ["Sigmoid", "Mul"]
        assert operators(rewrite(swish(), native=False)) == ["Swish"]


def test_integers_stay() -> None:
    g = Graph("integers")
    x = g.input("x", {"C": 3}, "s64")
    three, six = (g.constant(np.int64(value), "") for value in (3, 6))
    clipped = g.add(ops.Relu6(), g.add(ops.Add(), x, three))
    g.output(g.add(ops.Div(), g.add(ops.Mul(), x, clipped), six))
    assert "HardSwish" not in operators(rewrite(g.seal()))


def test_another_number_is_another_function() -> None:
    g = Graph("odd")
    x, two = g.input("x", {"C": 3}), g.constant(np.float32(2), "")
    g.output(g.add(ops.Div(), x, g.add(ops.Add(), g.add(ops.Exp(), g.add(ops.Neg(), x)), two)))
    assert rewrite(g.seal()).rewritten == {}


def takes(graph: Graph, pattern: str) -> bool:
    """Return whether a rule of this pattern, which makes -x, is applied."""
    with installed(registry().copy()) as copied:
        copied.rules["own"] = Rule.of("own", "", pattern, "Neg(x)")
        return bool(rewrite(graph, rules=["own"]).rewritten)


@pytest.mark.parametrize("second", [1, 2])
def test_a_constant_that_a_pattern_has_twice_is_one(second: int) -> None:
    g = Graph("twice")
    x = g.input("x", {"C": 3})
    for value in (1, second):
        x = g.add(ops.Sub(), x, g.constant(np.full(3, value, np.float32), "C"))
    g.output(x)
    assert takes(g.seal(), "Sub(Sub(x, constant(c)), constant(c))") == (second == 1)


@pytest.mark.parametrize("asked", [False, True])
def test_a_node_whose_second_output_is_read_stays(asked: bool) -> None:
    g = Graph("mean")
    scale = g.constant(np.ones(3, np.float32), "F")
    y, mean, _ = g.add(ops.LayerNormalization(("F",)), g.input("x", {"N": 2, "F": 3}), scale)
    g.output(y)
    if asked:
        g.output(mean)
    assert takes(g.seal(), "LayerNormalization(x, scale, axes=axes)") != asked


@pytest.mark.parametrize(
    ("optimize", "rewritten"),
    [
        ("all", {"swish": 1}),
        (["all", "-rewrite.swish"], {}),
        (["all", "-rewrite"], {}),
        ("ewo", {}),
    ],
)
def test_a_plan_says_what_was_rewritten(optimize: Any, rewritten: dict[str, int]) -> None:
    """A rule is switched off by its name."""
    with Session(swish(), optimize=optimize) as session:
        assert session.plan.graph.rewritten == rewritten
        assert plan_dict(session, "m")["rewritten"] == rewritten
        assert explain_dict(session.plan.graph, "m", others=False)["rewritten"] == rewritten
        lines = [line.text for line in plan_lines(session, "m")]
        assert ("  rewritten: swish (1)" in lines) == bool(rewritten)


@pytest.mark.parametrize("name", ["-rewrite.swich", "rewrite.swish", "-swish", 3])
def test_a_rule_that_is_not_there_is_refused(name: Any) -> None:
    with pytest.raises(InputError, match="no pass"):
        Session(swish(), optimize=["all", name])


@pytest.mark.parametrize(
    ("pattern", "makes"),
    [
        ("Mul(x, ", "Swish(x)"),
        ("x", "Swish(x)"),
        ("Mul(x, y) | x", "Swish(x)"),
        ("Mul(x, f'no')", "Swish(x)"),
        ("x.y = 3; Mul(x, y)", "Swish(x)"),
        ("Mul(x, y)", "x"),
    ],
)
def test_a_text_that_is_no_rule_is_refused(pattern: str, makes: str) -> None:
    with pytest.raises(GraphError, match="rule bad"):
        Rule.of("bad", "", pattern, makes)


def test_an_operator_that_is_not_there_is_reported() -> None:
    with installed(registry().copy()) as copied:
        copied.rules["typo"] = Rule.of("typo", "", "Mul(x, Sigmod(x))", "Swish(x)")
        copied._report_names()
        assert copied.problems[-1] == (
            "rule typo",
            "there is no operator 'Sigmod'; did you mean 'Sigmoid'?",
        )


@pytest.mark.parametrize("hidden", [[], [0], [0, 1, 2]])
@pytest.mark.parametrize("nothing", [None, 0, 1])
def test_attention_stays_where_all_keys_are_hidden(hidden: list[int], nothing: int | None) -> None:
    """As PyTorch's exporters spell it, which may have no weights where all keys are hidden."""
    g = Graph("attention")
    q, k = g.input("q", {"Q": 3, "F": 4}), g.input("k", {"K": 5, "F": 4})
    v, mask = g.input("v", {"K": 5, "V": 2}), g.input("mask", {"Q": 3, "K": 5})
    weights = g.add(ops.Softmax(("K",)), g.add(ops.Add(), g.add(ops.MatMul("F"), q, k), mask))
    if nothing is not None:
        number = g.constant(np.float32(nothing), "")
        weights = g.add(ops.Where(), g.add(ops.IsNaN(), weights), number, weights)
    g.output(g.add(ops.MatMul("K"), weights, v))
    masked = np.zeros((3, 5), "f4")
    masked[hidden] = -np.inf
    checked_run(g, "" if nothing else "attention", rtol=1e-5, mask=masked)


def checked_run(g: Graph, rule: str, rtol: float, atol: float = 0, **feeds: Any) -> None:
    """A session applies a rule, if one is named, calls no Python, and gives what NumPy gives."""
    graph, rng = g.seal(), np.random.default_rng(0)
    feed = {name: drawn(graph.values[name], rng) for name in graph.inputs} | feeds
    with Session(graph) as session:
        assert session.plan.graph.rewritten == ({rule: 1} if rule else {})
        assert not any("python" in step.kernels for step in session.plan.steps)
        [got] = session.run(None, feed)
    np.testing.assert_allclose(got, values_of(graph, feed), rtol=rtol, atol=atol)


@pytest.mark.parametrize(("parts", "onesided"), [(1, True), (1, False), (2, False)])
def test_frames_are_transformed_in_native_code(parts: int, onesided: bool) -> None:
    g = Graph("frames")
    x = g.input("x", {"N": 2, "T": 50, "part": parts})
    g.output(g.add(ops.STFT(7, 16, onesided), x))
    signal = np.random.default_rng(0).normal(size=(2, 50, parts)).astype("f4")
    checked_run(g, "frames", 1e-5, 1e-5, x=signal)


def test_frames_that_are_long_are_left_to_a_fast_transform() -> None:
    g = Graph("long")
    g.output(g.add(ops.STFT(100, 400), g.input("x", {"N": 1, "T": 5000, "part": 1})))
    signal = np.random.default_rng(0).normal(size=(1, 5000, 1)).astype("f4")
    checked_run(g, "", 1e-5, 1e-3, x=signal)


def test_what_a_rule_has_made_stays_when_the_next_takes_its_node() -> None:
    g = Graph("one behind another")
    x = g.input("x", {"N": 2, "C": 8, "H": 3})
    for place in range(8):
        picked = g.add(OPERATORS["Gather"].cls("C"), x, g.constant(np.int64(place), ""))
        g.output(g.add(OPERATORS["Reshape"].cls((("all", 6),)), picked), f"y{place}")
    graph = g.seal()
    rewritten = rewrite(graph, rules=["gather_one", "reshape_twice"])
    assert rewritten.rewritten == {"gather_one": 8, "reshape_twice": 8}
    feed = {"x": np.arange(48, dtype=np.float32).reshape(2, 8, 3)}
    for place, row in enumerate(Session(rewritten, optimize="none").run(None, feed)):
        assert np.array_equal(row, feed["x"][:, place].ravel())


@pytest.mark.parametrize(("place", "picked"), [(-4, 1), (3, 1), (4, 0), (-5, 0)])
def test_only_a_place_inside_is_picked_as_a_slice(place: int, picked: int) -> None:
    """A Gather from another place is an error of the run."""
    g = Graph("picked")
    x = g.input("x", {"C": 4, "H": 3})
    g.output(g.add(OPERATORS["Gather"].cls("C"), x, g.constant(np.int64(place), "")))
    assert rewrite(g.seal()).rewritten.get("gather_one", 0) == picked


def test_parts_of_one_product_are_not_transformed() -> None:
    """Queries, keys and values as exporters take them apart."""
    g = Graph("qkv")
    x = g.input("x", {"N": 1, "T": 20, "C": 32})
    rng = np.random.default_rng(3)
    weights = g.constant(rng.normal(size=(32, 96)).astype("f4"), ["C", "D"])
    product = g.add(ops.MatMul("C"), x, weights)
    sizes = (("n", 1), ("t", 20), ("part", 3), ("head", 4), ("feat", 8))
    order = tuple((dim, dim) for dim in ("part", "n", "head", "t", "feat"))
    parts = g.add(ops.Rename(order), g.add(ops.Reshape(sizes), product))
    q, k, v = (g.add(ops.Gather("part"), parts, g.constant(np.int64(i), "")) for i in range(3))
    k = g.add(ops.Rename((("t", "key"),)), k)
    v = g.add(ops.Rename((("t", "key"), ("feat", "value"))), v)
    y = g.add(ops.Attention("feat", "key", 0.3), q, k, v)
    rows = g.add(ops.Rename(tuple((dim, dim) for dim in ("n", "t", "head", "value"))), y)
    together = g.add(ops.Reshape((("N", 1), ("T", 20), ("C", 32))), rows)
    g.output(g.add(ops.MatMul("C"), together, weights), "y")
    graph = g.seal()
    session = compared(graph, 1e-5, 1e-5)
    assert not session.conversions
    assert {"Slice", "Attention"} <= {step["operator"] for step in plan_dict(session, "")["steps"]}
