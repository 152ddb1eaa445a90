"""Rewrite rules: each against what it replaces, on random graphs made of its own pattern."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np
import pytest

from libdesc.registry import registry
from optimizer.rewrite import rewrite
from vtensor import Graph, Session, VTensor
from vtensor.language.operators import OPERATORS
from vtensor.language.rules import Apply, Either, Hole, Named, Number, Part, Pattern, Rule
from vtensor.language.traits import Commutes

RULES = registry().rules
Random = np.random.Generator


def plain(pattern: Pattern) -> list[Pattern]:
    """The pattern with each choice made, in every way."""
    match pattern:
        case Either(choices):
            return [one for choice in choices for one in plain(choice)]
        case Part(name, inner):
            return [Part(name, one) for one in plain(inner)]
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
                given = [self.made(one) for one in operands]
                cls = OPERATORS[op].cls
                known = {key: self.parameter(one) for key, one in parameters.items()}
                made = cls(**{key: one for key, one in known.items() if one is not None})
                if OPERATORS[op].trait(Commutes):
                    given = list(self.rng.permutation(np.array([*given, None])[:-1]))
                    while len(given) > 2:
                        at = int(self.rng.integers(len(given) - 1))
                        given[at : at + 2] = [self.graph.add(made, *given[at : at + 2])]
                result: Any = self.graph.add(made, *given)
                return result[0] if isinstance(result, tuple) else result
        raise AssertionError(pattern)

    def hole(self, name: str, kind: str) -> VTensor:
        example = self.rule.example.get(name, "" if kind == "scalar" else "N C H W")
        if not isinstance(example, str):
            return self.graph.constant(np.float32(example), "")
        truth = example.startswith("?")
        rows = [row.partition("=") for row in example.strip("?").split()]
        dims = {dim: self.size(size or dim) for dim, _, size in rows}
        if not kind:
            return self.graph.input(name, dims, "bool" if truth else "f32")
        return self.graph.constant(self.rng.normal(size=[*dims.values()]).astype("f4"), [*dims])

    def size(self, name: str) -> int:
        drawn = int(self.rng.integers(2, 6))
        return int(name) if name.isdigit() else self.sizes.setdefault(name, drawn)

    def parameter(self, given: object) -> object:
        if not isinstance(given, Named):
            return given
        example = self.rule.example.get(given.name)
        return example(self.sizes) if callable(example) else example


def values_of(graph: Graph, feed: dict[str, Any]) -> Any:
    with Session(graph, optimize="none", libraries=["numpy"]) as session:
        return session.run(None, feed)[0]


def drawn(value: VTensor, rng: Random) -> Any:
    array = rng.normal(0, 3, [*value.dims.values()]).astype("f4")
    return array > -1 if value.dtype == "bool" else array


def check(rule: Rule, seed: int) -> None:
    """The rule is applied to all that its pattern means, and changes no value."""
    rng = np.random.default_rng(seed)
    patterns = plain(rule.pattern)
    for index in rng.permutation(len(patterns))[:12]:
        graph = Instance(rule, patterns[index], rng).graph
        made = rewrite(graph, rules=[rule.name])
        assert made.rewritten == {rule.name: 1}, f"{patterns[index]}\n{graph}"
        assert rule.makes.op in {node.op_name for node in made.nodes.values()}
        assert len(made.nodes) <= len(graph.nodes)
        feed = {name: drawn(graph.values[name], rng) for name in graph.inputs}
        want, got = values_of(graph, feed), values_of(made, feed)
        np.testing.assert_allclose(got, want, rtol=3e-5, atol=3e-6)


@pytest.mark.parametrize("seed", range(3))
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
    with pytest.raises(AssertionError):
        check(wrong, 0)
