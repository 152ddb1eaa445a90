"""The proof that a plan which reuses choices of other sizes is what a plan from scratch is.

A session goes from sizes to sizes. At each, its answer is compared

- with a session that makes the plan from scratch with the same choices, which a lock file hands
  over: every bit is the same;
- with a session that chooses for these sizes alone, and with one that takes what libraries like:
  results differ by the order of sums at most. How much that is depends on the model: some change
  more where the last bits of their inputs do, and then no two orders of sums are nearer;
- and its plan is checked against a graph that was made of the model for these sizes and no others.

Where the model does not take the sizes, each session has to say so, in the same words.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from onnx import ModelProto

from libdesc.registry import ready
from optimizer.pipeline import pass_names, simplify
from resolver.check import check
from resolver.lowered import LoweredGraph
from vtensor import Session
from vtensor.benchmark.agreement import difference
from vtensor.errors import VTensorError
from vtensor.frontends.onnx import Model
from vtensor.language.graph import Graph, same_bytes
from vtensor.runtime.execution.plan import Plan

Array = np.ndarray[Any, Any]
Feeds = Mapping[str, Array]
Shapes = dict[str, tuple[int, ...]]

#: What two choices may differ by, of an output's largest element.
BOUND = 1e-5

#: Where it is more, it is to be at most so many times what the last bits of inputs change: each
#: layer rounds, too.
ROUNDINGS = 8

#: Of plans with other choices.
LEVELS = ("all", "none")


@dataclass
class Tally:
    """The counts of a proof.

    Attributes:
        shapes: combinations of sizes that were tried, refused ones included.
        taken: plans that reused what was chosen for other sizes.
        anew: reusing plans that chose some nodes again.
        same: plans that were made from scratch with the same choices.
        refused: combinations that the model does not take.
        worst: the largest difference to a plan of other choices.
        rounded: plans of other choices that differ by more than the bound, and by no more than the
            last bits of inputs let expect.
        faults: differences that should not be, each with its shapes.
    """

    shapes: int = 0
    taken: int = 0
    anew: int = 0
    same: int = 0
    refused: int = 0
    worst: float = 0.0
    rounded: int = 0
    faults: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return (
            f"{self.shapes} shapes: {self.taken} taken over, {self.anew} with nodes anew, "
            f"{self.same} made again to the bit, {self.refused} refused, other choices off by "
            f"{self.worst:.1e}, {self.rounded} by more than the bound as rounding is, "
            f"{len(self.faults)} faults"
        )


def shapes_of(feeds: Feeds) -> Shapes:
    """Return the shapes of arrays by their names."""
    return {name: array.shape for name, array in feeds.items()}


class Proof:
    """One session of a model that goes from sizes to sizes.

    Args:
        given: the model.
        folder: for lock files.
        bound: what two choices may differ by.
    """

    def __init__(self, given: ModelProto | Path, folder: Path, bound: float = BOUND) -> None:
        self.tally = Tally()
        self._model = Model(given)
        self._lock, self._bound = folder / "plan.toml", bound
        self._session = Session(given, threads=1, cache_dir=None)

    def __enter__(self) -> Proof:
        return self

    def __exit__(self, *error: object) -> None:
        self._session.close()

    def at(self, feeds: Feeds, own: bool = True) -> None:
        """Compare at these sizes; without ``own``, not with other choices."""
        tally, shapes = self.tally, shapes_of(feeds)
        tally.shapes += 1
        try:
            answers = self._session.run(None, feeds)
        except VTensorError as error:
            tally.refused += 1
            self._refused(shapes, feeds, error)
            return
        self._session.run(None, feeds)  # the first that runs again looks ahead to other sizes
        plan = self._session.plan
        tally.taken += plan.taken_from is not None
        tally.anew += plan.taken_from is not None and bool(plan.anew)
        try:
            self._check(plan, shapes)
            self._made_again(feeds)
            if own:
                self._compare_with_own(feeds, answers)
        except (VTensorError, AssertionError) as error:
            tally.faults.append(f"{shapes}: {type(error).__name__}: {error}")

    def _refused(self, shapes: Shapes, feeds: Feeds, why: Exception) -> None:
        try:
            self._own(feeds)
        except VTensorError as error:
            if (type(error), str(error)) == (type(why), str(why)):
                return
            text = f"alone it says {type(error).__name__}: {error}"
        else:
            text = "alone it runs"
        self.tally.faults.append(f"{shapes}: {type(why).__name__}: {why}; {text}")

    def _check(self, plan: Plan, shapes: Shapes) -> None:
        able = [library.name for library in ready().libraries.values() if library.transforms]
        alone = simplify(self._model.graph(shapes), pass_names("all"))
        check(plan.graph, _identified(alone, plan.graph), able)

    def _made_again(self, feeds: Feeds) -> None:
        self._session.lock().write(self._lock)
        answers = self._session.run(None, feeds)  # by a plan that is no longer provisional
        again = self._own(feeds, plan=self._lock)
        self.tally.same += 1
        for ours, theirs in zip(answers, again, strict=True):
            assert same_bytes(ours, theirs), f"other bits: {difference([ours], [theirs]):.2g}"

    def _compare_with_own(self, feeds: Feeds, answers: list[Array]) -> None:
        for level in LEVELS:
            apart = difference(answers, self._own(feeds, optimize=level))
            self.tally.worst = max(self.tally.worst, apart)
            if apart <= self._bound:
                continue
            text = f"a plan of its own ({level}) is off by {apart:.2g}"
            rounding = self._rounding(feeds, answers)
            assert apart <= ROUNDINGS * rounding, f"{text}, the last bits change {rounding:.2g}"
            self.tally.rounded += 1

    def _rounding(self, feeds: Feeds, answers: list[Array]) -> float:
        """Return what changes if the last bits of inputs do, up or down at random."""
        random = np.random.default_rng(0)
        moved = {name: _moved(array, random) for name, array in feeds.items()}
        return difference(answers, self._session.run(None, moved))

    def _own(self, feeds: Feeds, **options: Any) -> list[Array]:
        graph = self._model.graph(shapes_of(feeds))
        with Session(graph, threads=1, cache_dir=None, **options) as session:
            return session.run(None, feeds)


def _moved(array: Array, random: np.random.Generator) -> Array:
    """Return the next numbers, larger or smaller at random."""
    if array.dtype.kind != "f":
        return array
    ends = np.array([-np.inf, np.inf], array.dtype)
    moved: Array = np.nextafter(array, random.choice(ends, array.shape))
    return moved


def _identified(alone: Graph, chosen: LoweredGraph) -> Graph:
    """Return a graph with the equal nodes of another: the checker compares them by identity."""
    nodes = dict(alone.nodes)
    for node in chosen.operators:
        same = nodes.get(node.name)
        if same is not None and same.op == node.op:
            nodes[node.name] = replace(same, op=node.op)
        for follower in node.followers:
            same = nodes.get(follower.name)
            if same is not None and vars(same) == vars(follower):
                nodes[follower.name] = follower
    return replace(alone, nodes=nodes)
