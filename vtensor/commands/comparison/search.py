"""The search for the first value on which two engines disagree, and its smallest reproduction."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from onnx import ModelProto

from vtensor.commands.comparison.difference import Difference, difference
from vtensor.commands.comparison.engines import Engines, exact
from vtensor.commands.comparison.parts import Parts
from vtensor.errors import VTensorError
from vtensor.language.records import dataclass
from vtensor.storage.inputs import Array


@dataclass(frozen=True)
class Probe:
    """Both engines' results for one value, by models that end at this value.

    Attributes:
        theirs: ONNX Runtime's result.
        difference: the difference of both results.
        steps: the steps of VTensor's plan, as data.
    """

    theirs: Any
    difference: Difference
    steps: Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class Judgement:
    """Errors of both engines against a run in float64, relative to the largest number.

    Attributes:
        evaluator: the name of the evaluator that ran in float64.
        ours, theirs: the errors of VTensor and of ONNX Runtime; infinite for another shape.
    """

    evaluator: str
    ours: float
    theirs: float

    @property
    def nearer(self) -> str:
        """The engine with the smaller error; ``neither`` if they are equal."""
        if self.ours == self.theirs:
            return "neither"
        return "vtensor" if self.ours < self.theirs else "onnxruntime"


@dataclass(frozen=True)
class Found:
    """The first value on which the engines disagree.

    Attributes:
        value: its name.
        nodes: (name, operator) of the nodes that compute it from values on which they agree.
        difference: the difference in the model that ends at the value.
        step: the step of VTensor's plan that computes the value, as data; None if there is none.
        part: the smallest part of the model on which the engines disagree.
        feeds: the inputs of that part, by name.
        alone: the difference of the part's results.
        judgement: who is nearer to float64 on that part; None if no evaluator can run it.
    """

    value: str
    nodes: Sequence[tuple[str, str]]
    difference: Difference
    step: Mapping[str, Any] | None
    part: ModelProto
    feeds: Mapping[str, Array]
    alone: Difference
    judgement: Judgement | None


class Search:
    """A search by bisection over the values of a model.

    Args:
        parts: the model.
        engines: both engines.
        feeds: the inputs of the model.
        tolerance, steps: the limits of ``difference``.
        report: called with the name of each value that is tried.
    """

    def __init__(
        self,
        parts: Parts,
        engines: Engines,
        feeds: Mapping[str, Array],
        tolerance: float | None,
        steps: float,
        report: Callable[[str], object],
    ) -> None:
        self._parts, self._engines, self._feeds = parts, engines, feeds
        self._limits, self._report = (tolerance, steps), report
        self._probes: dict[str, Probe | None] = {}

    @property
    def probes(self) -> int:
        """The number of values that were tried."""
        return len(self._probes)

    def compare(self, name: str, ours: object, theirs: object) -> Difference:
        """Return the difference of both engines' results for one value of the model."""
        tolerance, steps = self._limits
        step = self._parts.step(name, theirs) if name in self._parts.producers else None
        return difference(ours, theirs, tolerance, step, steps)

    def first(self, output: str) -> Found | None:
        """Return the first value that differs among those that an output is computed from.

        "First" means that no value differs of those that its node reads. None if the engines agree
        on the output as soon as the model ends there.
        """
        if not self._differs(output):
            return None
        while True:
            output = self._bisected(self._candidates(output))
            earlier = [name for name in self._sources(output) if self._differs(name)]
            if not earlier:
                return self._found(output)
            output = earlier[0]

    def _candidates(self, name: str) -> list[str]:
        """Return the values that ``name`` is computed from, in order; it is the last."""
        nodes = [self._parts.proto.graph.node[place] for place in self._parts.above([name])]
        read = {value for node in nodes for value in self._parts.reads(node)}
        values = [value for node in nodes for value in node.output if value in read]
        return [value for value in values if value in self._parts.varying] + [name]

    def _bisected(self, names: list[str]) -> str:
        """Return a value that differs while the one before it in the list agrees.

        Args:
            names: values in order, of which the last differs; those that cannot be compared are
                removed.
        """
        agrees, differs = -1, len(names) - 1
        while differs - agrees > 1:
            middle = (agrees + differs) // 2
            if self._probe(names[middle]) is None:
                del names[middle]
                differs -= 1
            elif self._differs(names[middle]):
                differs = middle
            else:
                agrees = middle
        return names[differs]

    def _differs(self, name: str) -> bool:
        probe = self._probe(name)
        return probe is not None and probe.difference.beyond

    def _probe(self, name: str) -> Probe | None:
        """Return both engines' results for a value; None if an engine cannot deliver it."""
        if name not in self._probes:
            self._report(f"value {name}")
            part = self._parts.cut([name])
            try:
                [theirs] = self._engines.theirs(part, self._feeds)
                [ours], steps = self._engines.ours(part, self._feeds)
                self._probes[name] = Probe(theirs, self.compare(name, ours, theirs), steps)
            except VTensorError:
                self._probes[name] = None
        return self._probes[name]

    def _sources(self, name: str) -> list[str]:
        """Return the nearest values that ``name`` is computed from and that can be compared."""
        if name not in self._parts.producers:
            return []
        sources: dict[str, None] = {}
        for value in self._parts.reads(self._parts.node(name)):
            if value in self._parts.varying:
                comparable = self._probe(value) is not None
                sources.update(dict.fromkeys([value] if comparable else self._sources(value)))
        return [*sources]

    def _found(self, name: str) -> Found:
        probe = self._probe(name)
        assert probe is not None, "it differs"
        sources = self._sources(name)
        nodes = [self._parts.proto.graph.node[p] for p in self._parts.above([name], sources)]
        part, feeds, ours, theirs = self._smallest(name, sources)
        return Found(
            name,
            [
                (node.name, node.op_type)
                for node in nodes
                if not self._parts.varying.isdisjoint(node.output)
            ],
            probe.difference,
            next((row for row in reversed(probe.steps) if _makes(row, name)), None),
            part,
            feeds,
            self.compare(name, ours, theirs),
            _judged(part, feeds, ours, theirs),
        )

    def _smallest(
        self, name: str, sources: Sequence[str]
    ) -> tuple[ModelProto, dict[str, Array], Any, Any]:
        """Return the smallest part on which the engines disagree, its inputs and both results.

        The part grows from the value's own node backwards until the results differ: a fault of
        fused nodes needs all of them.
        """
        while True:
            self._report(f"{len(self._parts.above([name], sources))} nodes alone")
            given: dict[str, Array] = {}
            if sources:
                values = self._engines.theirs(self._parts.cut(sources), self._feeds)
                given = dict(zip(sources, values, strict=True))
            part = self._parts.with_data(self._parts.cut([name], given))
            feeds = {**self._feeds, **given}
            feeds = {port.name: feeds[port.name] for port in part.graph.input}
            try:
                [ours], _ = self._engines.ours(part, feeds)
                [theirs] = self._engines.theirs(part, feeds)
            except VTensorError:
                if not sources:
                    raise
            else:
                if not sources or self.compare(name, ours, theirs).beyond:
                    return part, feeds, ours, theirs
            count = 2 * len(self._parts.above([name], sources))
            while sources and len(self._parts.above([name], sources)) < count:
                sources = self._before(sources)

    def _before(self, names: Iterable[str]) -> list[str]:
        """Return the comparable values one node before some values."""
        return [*dict.fromkeys(value for name in names for value in self._sources(name))]


def _makes(step: Mapping[str, Any], name: str) -> bool:
    """Return whether a step computes a value; a Transform only moves it."""
    return "reasons" not in step and any(row["value"] == name for row in step["outputs"])


def _judged(
    part: ModelProto, feeds: Mapping[str, Array], ours: object, theirs: object
) -> Judgement | None:
    evaluated = exact(part, feeds)
    if evaluated is None:
        return None
    [right], evaluator = evaluated
    return Judgement(evaluator, _error(ours, right), _error(theirs, right))


def _error(result: object, right: object) -> float:
    if not isinstance(result, np.ndarray) or not isinstance(right, np.ndarray):
        return difference(result, right).error
    try:
        return difference(result.astype(right.dtype), right).error
    except (TypeError, ValueError):
        return np.inf
