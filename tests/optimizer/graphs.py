"""Seeded random graphs of toy operators, their cost by brute force, and runs compared with runs."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import product
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from optimizer.choice.problem import Problem, Traffic
from ptensor.layout import Layout
from resolver.evaluate import resolve
from resolver.extend import extend
from resolver.lowered import LoweredGraph, Value
from vtensor.language.graph import Graph
from vtensor.language.operators import OPERATORS
from vtensor.language.tensor import VTensor
from vtensor.runtime.session import Session

IMAGE = ("NCHW", "NHWC", "NCHW4c", "NCHW8c")
ROW = ("NC", "CN", "NC4c")

#: The most open nodes of a graph.
OPEN = 6

#: The most assignments that are tried one by one.
MOST = 40_000


def random_graph(seed: int) -> Graph:
    """Up to ten nodes, about six of them open; channels may be no multiple of a block."""
    rng = random.Random(seed)
    g = Graph(f"random{seed}")
    sizes = {"N": 2, "C": rng.choice((8, 8, 6)), "H": 3, "W": 2}
    images = [g.input("x0", sizes)]
    if rng.random() < 0.5:
        images.append(g.input("x1", sizes))
    rows = [g.input("row", {"N": 2, "C": sizes["C"]})]
    bias = g.constant(np.arange(sizes["C"], dtype=np.float32), "C", "bias")
    opened = 0
    for index in range(rng.randint(6, 10)):
        image = rng.random() < 0.85
        lead = rng.choice(images[-4:] if image else rows)
        others = rng.choices([*images[-4:], rows[-1], bias] if image else [*rows, bias], k=2)
        inputs = [lead, *others[: rng.choice((0, 0, 1, 1, 2))]]
        rng.shuffle(inputs)
        inputs.sort(key=lambda value: value.dims != lead.dims)  # a whole one gives Mix its type
        is_open = opened < OPEN and rng.random() < 0.65
        opened += is_open
        asks = asked(rng, inputs, lead, is_open)
        value = g.add(OPERATORS["Mix"].cls(asks), *inputs, name=f"n{index}")
        (images if image else rows).append(value)
    results = [value for value in [*images, *rows] if value.op]
    used = {name for node in g.nodes.values() for name in node.inputs}
    ends = [value for value in results if value.name not in used]
    for value in dict.fromkeys([*ends, rng.choice(results)]):
        g.output(value)
    return g.seal()


def asked(
    rng: random.Random, inputs: list[VTensor], output: VTensor, is_open: bool
) -> tuple[str, ...]:
    """What a node asks for its operands: ANY of all, or one layout of each."""
    if is_open:
        return ("ANY",) * (len(inputs) + 1)
    pairs = [rng.choice(IMAGE if "H" in t.dims else ROW) for t in (*inputs, output)]
    return tuple(
        "C" if len(t.dims) == 1 else text for t, text in zip((*inputs, output), pairs, strict=True)
    )


def extended_of(graph: Graph) -> LoweredGraph:
    """The resolver's graph, every output delivered in declared order."""
    return extend(resolve(graph))


def operators(graph: Graph) -> list[str]:
    """The operators of a graph's nodes."""
    return [node.op_name for node in graph.nodes.values()]


def steps_of(session: Session, kind: str = "op") -> list[str]:
    """The operators of a plan's steps, or another attribute of them, without Transforms."""
    return [getattr(step, kind) for step in session.plan.steps if not step.is_transform]


def compared(
    graph: Graph,
    rtol: float = 1e-4,
    atol: float = 1e-5,
    plain: Mapping[str, Any] = MappingProxyType({"optimize": "none"}),
    **options: Any,
) -> Session:
    """Return a session with these options, after runs that give what a plain one gives."""
    draw = np.random.default_rng(1)
    feeds = {
        name: draw.standard_normal([*graph.values[name].dims.values()]).astype("f4")
        for name in graph.inputs
    }
    with Session(graph, threads=1, **plain) as session:
        wanted = session.run(None, feeds)
    session = Session(graph, **options)
    for _ in range(2):
        for value, want in zip(session.run(None, feeds), wanted, strict=True):
            assert value.shape == want.shape
            np.testing.assert_allclose(value, want, rtol=rtol, atol=atol)
    return session


def check_same_values(graph: Graph, seed: int, options: Iterable[Mapping[str, Any]]) -> None:
    """Sessions with each of these options answer alike, and exactly: to whole numbers."""
    draw = np.random.default_rng(seed)
    feeds = {
        name: draw.integers(-8, 9, list(graph.values[name].dims.values())).astype(np.float32)
        for name in graph.inputs
    }
    answers = []
    for row in options:
        with Session(graph, threads=1, **row) as session:
            answers.append(session.run(None, feeds))
    for answer in answers[1:]:
        for value, other in zip(answers[0], answer, strict=True):
            np.testing.assert_array_equal(value, other)


def moved(extended: LoweredGraph) -> Traffic:
    """What the Transforms of a graph really move, and how many there are."""
    values = extended.values
    sizes = [values[t.input].nbytes + values[t.output].nbytes for t in extended.transforms()]
    return Traffic(sum(sizes), len(sizes))


def chained(graph: LoweredGraph, *layouts: str) -> LoweredGraph:
    """The first Transform replaced by a chain that ends in the same layout."""
    first = next(graph.transforms())
    source, target = graph.values[first.input], graph.values[first.output]
    nodes, values, before = [], dict(graph.values), source
    for index, text in enumerate([*layouts, str(target.layout)]):
        last = index == len(layouts)
        name = target.name if last else f"between{index}"
        values[name] = Value(name, source.dtype, source.dims, Layout(text))
        nodes.append(replace(first, name=f"t{index}", input=before.name, output=name))
        before = values[name]
    place = graph.nodes.index(first)
    rest = [*graph.nodes[:place], *nodes, *graph.nodes[place + 1 :]]
    return replace(graph, nodes=rest, values=values)


def combinations(problem: Problem) -> int:
    return int(np.prod([len(variants) for variants in problem.variants.values()], dtype=np.int64))


class Best(NamedTuple):
    """The least of each objective; of ``time`` where there is a clock."""

    shared: Traffic
    paper: int
    time: int

    def least(self, other: Best) -> Best:
        """The lesser of each."""
        return Best(
            min(self.shared, other.shared), min(self.paper, other.paper), min(self.time, other.time)
        )


def by_brute_force(problem: Problem) -> Best:
    """The least of each objective over all assignments; only the cost functions are shared.

    What a value costs depends on its maker and its users alone, so it is reckoned once for them.
    """
    names = list(problem.variants)
    known: dict[tuple[object, ...], Best] = {}
    touching = {value: around(problem, value) for value in problem.uses}
    best: Best | None = None
    for variants in product(*(range(len(problem.variants[name])) for name in names)):
        chosen = dict(zip(names, variants, strict=True))
        total = Best(Traffic(0, 0), 0, sum(problem.variants[n][chosen[n]].ns or 0 for n in names))
        for value, nodes in touching.items():
            key = (value, *(chosen[node] for node in nodes))
            if key not in known:
                known[key] = _of_value(problem, chosen, value)
            cost, edges, ns = known[key]
            moved = Traffic(*map(sum, zip(total.shared, cost, strict=True)))
            total = Best(moved, total.paper + edges, total.time + ns)
        best = total if best is None else best.least(total)
    assert best is not None
    return best


def around(problem: Problem, value: str) -> list[str]:
    nodes = [problem.makers.get(value, ""), *(use.node for use in problem.uses[value])]
    return [node for node in dict.fromkeys(nodes) if node in problem.variants]


def _of_value(problem: Problem, chosen: Mapping[str, int], value: str) -> Best:
    differ = [(made, want) for _, made, want, _ in problem.edges(chosen, [value]) if made != want]
    ns = sum(problem.ns(value, *pair) for pair in set(differ)) if problem.clock else 0
    return Best(problem.shared_cost(chosen, [value]), len(differ), ns)
