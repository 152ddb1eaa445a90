"""The error row of the joint choice: by brute force, and by an independent check."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from optimizer.choice.errors import Allowed
from optimizer.choice.ilp import choose
from optimizer.choice.problem import Problem
from optimizer.ewo import chosen_by
from optimizer.joint import timed_variants
from optimizer.settings import Settings
from ptensor.evaluation import Variant
from ptensor.layout import Layout
from resolver.check_errors import check_errors
from resolver.errors import ErrorProof, Share, expected
from resolver.lowered import LoweredGraph, OpNode
from tests.libraries.bench import Bench
from tests.libraries.sloppy import KERNELS, Hasty, declare_sloppy
from tests.optimizer.graphs import around, extended_of, random_graph
from tests.optimizer.test_proof import BATCH, in_batches
from tests.resolver.networks import checked
from vtensor.errors import UnsoundPlanError

TOLERANCE = 1e-4

#: Graphs of at most so many nodes are tried, each with all of its choices.
NODES = 8


@dataclass(frozen=True)
class Said:
    """A meter of errors that are what kernels say, times drawn gains."""

    seed: int

    def shares(self, nodes: Sequence[OpNode]) -> list[Share | None]:
        return [self.share(node) for node in nodes]

    def holds(self, *_: object) -> bool:
        return True

    def gains(self, nodes: Sequence[OpNode]) -> list[float | None]:
        return [share.gain if share else None for share in self.shares(nodes)]

    def share(self, node: OpNode) -> Share | None:
        draw = np.random.default_rng((self.seed, *node.name.encode()))
        gain, known = float(draw.uniform(0.1, 2)), draw.random() > 0.1
        error = KERNELS[node.variant.kernel or "off 1e-6"] / 2
        if not known:
            return None
        return Share(node.name, node.variant.kernel, error, gain, ((error, 1.0),), ((1.0, gain),))


def problem_of(seed: int, budget: float = TOLERANCE) -> Problem:
    """A random graph's problem, with inexact variants."""
    graph, clock = extended_of(random_graph(seed)), Hasty(seed)
    allowed = Allowed(TOLERANCE, budget, Said(seed))
    variants = timed_variants(graph, clock, allowed=allowed)
    return Problem.of(graph, variants, clock, allowed=allowed)


def least(problem: Problem) -> int:
    """The least time of all choices whose errors, added up here, are within the budget.

    An axis a node, a place a choice: what each node takes, what it adds to the squares of errors,
    and what the Transforms of each value take.
    """
    assert problem.allowed is not None
    names = list(problem.variants)
    axes = {name: axis for axis, name in enumerate(names)}

    def along(table: np.ndarray[Any, Any], nodes: Sequence[str]) -> np.ndarray[Any, Any]:
        order = sorted(range(len(nodes)), key=lambda place: axes[nodes[place]])
        shape = [len(problem.variants[name]) if name in nodes else 1 for name in names]
        return table.transpose(order).reshape(shape)

    whole = [len(problem.variants[name]) for name in names]
    took, squares = np.zeros(whole, np.int64), np.zeros(whole)
    for name, row in problem.variants.items():
        errors = [
            problem.shares[name][number].gain * variant.error if variant.inexact else 0.0
            for number, variant in enumerate(row)
        ]
        took += along(np.array([variant.ns or 0 for variant in row]), [name])
        squares += along(np.array(errors) ** 2, [name])
    for value in problem.uses:
        nodes = around(problem, value)
        table = np.zeros([len(problem.variants[name]) for name in nodes], np.int64)
        for numbers in np.ndindex(table.shape):
            chosen = dict(zip(nodes, numbers, strict=True))
            owed = {(have, want) for _, have, want, _ in problem.edges(chosen, [value])}
            table[numbers] = sum(problem.ns(value, *pair) for pair in owed if pair[0] != pair[1])
        took += along(table, nodes)
    return int(took[squares <= problem.allowed.budget**2].min())


@in_batches
def test_the_program_finds_what_brute_force_finds(bench: Bench, first: int) -> None:
    """On each graph of at most eight nodes, whatever the number of its choices."""
    declare_sloppy()
    bound = tried = 0
    for seed in range(first, first + BATCH):
        if len(random_graph(seed).nodes) > NODES:
            continue
        problem = problem_of(seed, (1e-6, 1e-4)[seed % 2] * (0.5 + seed % 3 / 2))
        tried += 1
        choice = choose(problem, "time", "CBC" if seed % 5 == 0 else "")
        assert problem.time_cost(choice.chosen) == least(problem), seed
        assert problem.fits(choice.chosen)
        bound += problem.time_cost(unbounded(problem)) < problem.time_cost(choice.chosen)
    assert tried > BATCH / 4
    assert bound  # else the row says nothing


def unbounded(problem: Problem) -> dict[str, int]:
    free = replace(problem, allowed=None, shares={})
    return dict(choose(free, "time").chosen)


def test_a_choice_beyond_the_row_is_seen(bench: Bench) -> None:
    """The twin: without the row the choice takes less than the least, or is not within it."""
    declare_sloppy()
    tight = (problem_of(seed, 1e-6) for seed in range(BATCH))
    problem = next(candidate for candidate in tight if not candidate.fits(unbounded(candidate)))
    assert problem.time_cost(unbounded(problem)) < least(problem)


def test_the_room_for_packed_constants_is_a_row(bench: Bench) -> None:
    """Constants that all variants but the first have in blocks take more than there is room for."""
    declare_sloppy()
    seen = 0
    for seed in range(8):
        problem = problem_of(seed)
        variants = {
            name: [row[0], *map(blocked, row[1:])] for name, row in problem.variants.items()
        }
        problem = replace(problem, variants=variants)
        wide = choose(problem, "time").chosen
        tight = choose(replace(problem, room=0), "time").chosen
        seen += any(problem.packed_more(*row) for row in wide.items())
        assert not any(problem.packed_more(*row) for row in tight.items())
    assert seen > 2


def blocked(variant: Variant) -> Variant:
    """With its vectors of channels in blocks of 16."""
    rows = [Layout("C16c") if str(layout) == "C" else layout for layout in variant.layouts]
    return variant.lying(rows)


def chosen_graph(seed: int) -> LoweredGraph:
    """A random graph in its choice, said to have been measured."""
    graph, problem = random_graph(seed), problem_of(seed)
    plan = chosen_by(extended_of(graph), problem, "time", Settings("time", clock=Hasty(seed)))
    return with_proof(checked(plan, graph), measured=TOLERANCE / 2)


def proof(graph: LoweredGraph) -> ErrorProof:
    assert graph.certificate is not None
    assert graph.certificate.errors is not None
    return graph.certificate.errors


def with_proof(graph: LoweredGraph, **changes: object) -> LoweredGraph:
    errors = replace(proof(graph), **changes)  # type: ignore[arg-type]
    return replace(graph, certificate=replace(graph.certificate, errors=errors))  # type: ignore[type-var]


def with_share(graph: LoweredGraph, **changes: Any) -> LoweredGraph:
    first, *others = proof(graph).shares
    return with_proof(graph, shares=(replace(first, **changes), *others))


def test_the_check_agrees_with_the_program(bench: Bench) -> None:
    declare_sloppy()
    for seed in range(12):
        graph = chosen_graph(seed)
        assert graph.inexact
        check_errors(graph, TOLERANCE)
        assert expected(proof(graph).shares) <= TOLERANCE
        assert proof(graph).plain_sum >= proof(graph).expected


#: Faults, and what the check says of them.
TWINS: dict[str, Callable[[LoweredGraph], LoweredGraph]] = {
    "its gain is said to be": lambda g: with_share(g, gain=proof(g).shares[0].gain * 0.5),
    "its error is said to be|another variant": lambda g: with_share(g, error=0.0),
    "its gain was not measured": lambda g: with_share(g, probes=()),
    "error shares differ": lambda g: with_proof(g, shares=proof(g).shares[1:]),
    "without a share": lambda g: replace(g, certificate=None),
    "errors add up to": lambda g: with_proof(g, budget=proof(g).expected / 2),
    "exact kernels": lambda g: with_proof(g, direct=TOLERANCE),
    "are scaled by": lambda g: with_proof(g, scale=2.0),
    "nothing was measured": lambda g: with_proof(g, measured=None),
    "was measured; the tolerance is": lambda g: with_proof(g, measured=2 * TOLERANCE),
}


@pytest.mark.parametrize("says", TWINS)
def test_a_wrong_row_is_seen(bench: Bench, says: str) -> None:
    declare_sloppy()
    with pytest.raises(UnsoundPlanError, match=says):
        check_errors(TWINS[says](chosen_graph(1)), TOLERANCE)
