"""Runs of a model in segments: each knows the values that earlier segments have computed.

A segment is a model with plans of its own. Values are handed on as arrays, which later segments
read in place. Between two segments, nodes of control flow run: a branch is chosen, or the body of a
loop runs turn by turn; their graphs are models, too.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from vtensor.errors import BudgetError, InputError
from vtensor.language.dtype import from_numpy, numpy_dtype
from vtensor.language.process.forks import OwnLock
from vtensor.runtime.execution.looks import LOOK
from vtensor.runtime.execution.repeat import Carried, Repeated, Turns
from vtensor.storage.budget import REMEDY
from vtensor.storage.inputs import Array, Port

if TYPE_CHECKING:
    from vtensor.frontends.onnx import Model
    from vtensor.frontends.segments import Control, Cut, Kind
    from vtensor.runtime.execution.request_tree import RunPath

Arrays = dict[str, Array]


class PartRunner(Protocol):
    """The runner of a part of a model; its parts are those of a part that is cut again."""

    inputs: list[Port]
    outputs: list[Port]

    def run(self, outputs: Sequence[str] | None, inputs: Mapping[str, object], /) -> list[Array]:
        """Run the part and return its outputs, in order."""

    def run_on(
        self, outputs: Sequence[str], inputs: Mapping[str, Array], path: RunPath, /
    ) -> list[Array]:
        """Run the part as ``run`` does, and add it to the path of the model's run."""

    def repeat(self, turns: Turns) -> Repeated | None:
        """Run the part turn after turn by the plan of its last run; None if that does not fit."""

    @property
    def values(self) -> list[str]:
        """Names of the values that a run may return, as far as they are known."""

    @property
    def parts(self) -> Sequence[Any]:
        """The runners of the parts that this part is cut into; only this one if it is not cut."""

    def _close(self) -> None:
        """Release plans, weights and memory."""


#: Makes the runner of a part, given the part's name.
RunnerOf = Callable[["Model", str], PartRunner]

#: The feeds of parts: the names of the outputs, and the arrays that the part reads, by its runner.
Feeds = dict[Any, tuple[Sequence[str], Mapping[str, object]]]

#: Where the first feed of each part that runs is noted; None notes nothing. Turns that run in one
#: native call are left out.
_FEEDS: ContextVar[Feeds | None] = ContextVar("feeds of parts", default=None)

#: The turns of a loop that the first native call runs at most; later ones run twice as many.
MIN_TURNS = 64


class Segments:
    """The parts of a model that is cut where nodes need to know computed values.

    Args:
        parts: the parts.
        runner_of: makes the runner of a part.
        max_bytes: the most bytes of the values that a loop collects.
    """

    def __init__(self, parts: Cut, runner_of: RunnerOf, max_bytes: int) -> None:
        self._parts, self._runner_of, self._making = parts, runner_of, OwnLock()
        self._first = None if parts.first is None else runner_of(parts.first, "first")
        self._controls = [_runs(control, runner_of, max_bytes) for control in parts.controls]
        self._rest: PartRunner | None = None
        #: The name of the rest; empty if it is all of the model.
        self._rest_name = "rest" if self._first is not None or self._controls else ""
        #: The types of the model's inputs and of the first part's outputs; of the first run.
        self._kinds: dict[str, Kind] = {}
        #: Names of the values that the parts after the first compute.
        self._later = {*parts.rest, *(name for row in parts.controls for name in row.outputs)}

    @property
    def runners(self) -> Iterator[PartRunner]:
        """The runners of all parts, in the order in which they run."""
        if self._first is not None:
            yield self._first
        for control in self._controls:
            yield from control.runners.values()
        if self._rest is not None:
            yield self._rest

    @property
    def values(self) -> list[str]:
        """Names of the values that a run may return, as far as they are known."""
        parts = [part.values for part in (self._first, self._rest) if part is not None]
        made = [control.control.outputs for control in self._controls]
        return [*dict.fromkeys(name for names in (*parts, *made) for name in names if name)]

    def run(
        self,
        wanted: Sequence[str],
        inputs: Mapping[str, Array],
        ports: Iterable[Port],
        path: RunPath | None,
    ) -> Arrays:
        """Run the parts and return at least the values ``wanted``, by name.

        Args:
            wanted: names of values.
            inputs: the arrays of all inputs.
            ports: the inputs' ports.
            path: the path of the run, to which its parts are added; None adds none.
        """
        values, kinds = dict(inputs), self._kinds
        missing = dict.fromkeys(wanted)
        if not kinds:
            known = [*ports, *(self._first.outputs if self._first is not None else ())]
            self._kinds = kinds = {port.name: _kind_of(port) for port in known}
        if self._first is not None:
            asked = [port.name for port in self._first.outputs]
            inner = missing.keys() - self._later - values.keys() - {*asked}
            if inner:
                inner.intersection_update(self._first.values)
                asked += [name for name in missing if name in inner]
            values |= _run(self._first, asked, values, path)
        for control in self._controls:
            values |= control.run(values, kinds, path)
        remaining = [name for name in missing if name not in values]
        if remaining:
            if self._rest is None:
                names = self._parts.live
                live = {name: kinds.get(name, (_dtype(values[name]), None)) for name in names}
                with self._making.here:
                    rest = self._parts.rest_of(live)
                    self._rest = self._rest or self._runner_of(rest, self._rest_name)
            values |= _run(self._rest, remaining, values, path)
        return values


def _run(
    runner: PartRunner,
    outputs: Sequence[str],
    values: Mapping[str, Array],
    path: RunPath | None,
) -> Arrays:
    """Run a part on the values that it reads, and return its outputs by name."""
    inputs = {port.name: values[port.name] for port in runner.inputs}
    if path is None:
        results = run_part(runner, outputs, inputs)
    else:
        results = runner.run_on(outputs, inputs, path)
    return dict(zip(outputs, results, strict=True))


def run_part(
    runner: PartRunner, outputs: Sequence[str], inputs: Mapping[str, object]
) -> list[Array]:
    """Run a part and return its outputs, in order; its feed is noted within ``feeds_of``."""
    if (feeds := _FEEDS.get()) is not None:
        feeds.setdefault(runner, (outputs, inputs))
    return runner.run(outputs, inputs)


def feeds_are_noted() -> bool:
    """Return whether a call of ``feeds_of`` notes the feeds of parts."""
    return _FEEDS.get() is not None


def feeds_of(run: Callable[[], object]) -> Feeds:
    """Call ``run``, and return the first feed of each part that runs meanwhile, in order."""
    feeds: Feeds = {}
    token = _FEEDS.set(feeds)
    try:
        run()
    finally:
        _FEEDS.reset(token)
    return feeds


def _kind_of(port: Port) -> Kind:
    """Return the type of a port's value."""
    return port.dtype, None if port.any_rank else tuple(port.shape)


def _dtype(array: Array) -> str:
    return from_numpy(array.dtype)


class _Branch:
    """A node of control flow that runs one of its graphs, by the value of its input.

    Args:
        control: the node.
        runner_of: makes the runner of a graph.
        max_bytes: the most bytes of the values that a loop collects.

    Attributes:
        runners: the runners of the graphs that have run, by the name of the graph's attribute.
    """

    def __init__(self, control: Control, runner_of: RunnerOf, max_bytes: int) -> None:
        self.control, self._runner_of, self.max_bytes = control, runner_of, max_bytes
        self.runners: dict[str, PartRunner] = {}
        #: The names of the outputs of each graph, by the name of the graph's attribute.
        self.outputs = {
            name: [value.name for value in graph.output]
            for name, graph in control.attributes.items()
            if hasattr(graph, "output")
        }
        #: The outputs of each graph that it only passes on, with the values that they are.
        self.passed = {name: control.passed(name) for name in self.outputs}
        #: For each graph, the outputs that it computes, and the outer values that it reads.
        self.computed = {
            name: [*dict.fromkeys(each for each in outputs if each not in self.passed[name])]
            for name, outputs in self.outputs.items()
        }
        self._captured = {name: control.captured(name) for name in self.outputs}
        #: The node's inputs, with the array of one that is a constant, and the node's outputs.
        self._given = [(name, control.constant(name)) for name in control.inputs]
        self._named = control.outputs
        self._making = OwnLock()

    def run(
        self, values: Mapping[str, Array], kinds: Mapping[str, Kind], path: RunPath | None
    ) -> Arrays:
        """Run the node and return its outputs by name.

        Args:
            values: the values that exist, by name.
            kinds: the types of those of them whose rank is known.
            path: the path of the run, to which its parts are added; None adds none.
        """
        [condition] = self.given(values)
        if path is not None:
            path.decide_by(condition)
        chosen = "then_branch" if self.number(condition, "condition") else "else_branch"
        results = self.results(chosen, self.outer(chosen, values), kinds, path)
        return self.named(results)

    def given(self, values: Mapping[str, Array]) -> list[Array | None]:
        """Return the node's inputs, in order; None for one that is left out."""
        return [
            None if not name else values[name] if constant is None else np.asarray(constant)
            for name, constant in self._given
        ]

    def named(self, results: Iterable[Array]) -> Arrays:
        """Return the node's outputs by name."""
        return {n: row for n, row in zip(self._named, results, strict=False) if n}

    def number(self, array: Array | None, what: str) -> int:
        """Return the only element of an array that decides what runs.

        Raises:
            InputError: it has another number of elements.
        """
        if array is None or array.size != 1:
            sizes = "absent" if array is None else array.shape
            raise InputError(f"{self.described}: its {what} must be one number: {sizes}")
        return int(array.reshape(()).item())

    @property
    def described(self) -> str:
        """The operator and the name of the node, for errors."""
        return self.control.node.described

    def outer(self, attribute: str, values: Mapping[str, Array]) -> Arrays:
        """Return the outer values that one of the node's graphs reads, by name."""
        return {name: values[name] for name in self._captured[attribute]}

    def results(
        self,
        attribute: str,
        inputs: Arrays,
        kinds: Mapping[str, Kind],
        path: RunPath | None = None,
    ) -> list[Array]:
        """Run one of the node's graphs and return its outputs, in order.

        Args:
            attribute: the attribute that holds the graph.
            inputs: the values of the graph's own inputs, and its outer values, by name.
            kinds: the types of those outer values whose rank is known.
            path: the path of the run, to which its parts are added; None adds none.
        """
        passed, outputs = self.passed[attribute], self.outputs[attribute]
        computed = self.computed[attribute]
        if not computed:
            return [inputs[passed[name]] for name in outputs]
        runner = self.runners.get(attribute)
        if runner is None:
            with self._making.here:
                runner = self.runners.get(attribute)
                if runner is None:
                    types: dict[str, Kind] = {n: (_dtype(row), None) for n, row in inputs.items()}
                    outer = self._captured[attribute]
                    types |= {name: kinds[name] for name in outer if name in kinds}
                    name = f"{self.control.node.name}.{attribute}"
                    runner = self._runner_of(self.control.body(attribute, types), name)
                    self.runners[attribute] = runner
        results = _run(runner, computed, inputs, path)
        return [inputs[passed[n]] if n in passed else results[n] for n in outputs]


class _Loop(_Branch):
    """An ONNX Loop. Turns run in one native call as long as their shapes do not change, else one by
    one.

    Attributes:
        heads: the number of the body's outputs before its states: one, the condition.
        ahead: the number of the body's inputs before its states: two, the turn's number and the
            condition.
    """

    heads, ahead = 1, 2

    def __init__(self, control: Control, runner_of: RunnerOf, max_bytes: int) -> None:
        super().__init__(control, runner_of, max_bytes)
        inputs = control.attributes["body"].input
        self.names = [value.name for value in inputs]
        #: The ranks of the turn's number and of the condition.
        self.ranks = [len(value.type.tensor_type.shape.dim) for value in inputs[: self.ahead]]
        self._carried = dict[int, Carried | None]()

    def run(
        self, values: Mapping[str, Array], kinds: Mapping[str, Kind], path: RunPath | None
    ) -> Arrays:
        """Run the loop and return its outputs by name; the arguments are those of a branch.

        Raises:
            BudgetError: the values that its outputs stack take more than ``max_bytes``.
        """
        if path is not None:
            path.stop()
        limit, condition, states, scanned = self.begin(self.given(values))
        begin, end, carried = self.ahead, self.heads + len(states), self.carried(len(states))
        names, outer = self.names, self.outer("body", values)
        blocks: list[list[Array]] = [[] for _ in self.outputs["body"][end:]]
        look, number, held = LOOK.get(), 0, 0
        alone = int(_FEEDS.get() is not None)  # the feed of a first turn alone is noted
        ranks, true = self.ranks, [np.array(True, ndmin=rank) for rank in self.ranks[1:]]
        while condition and number < limit:
            if look is not None:
                look()
            ahead = [np.array(number, ndmin=rank) for rank in ranks[:1]] + true
            given = [*ahead, *states, *(rows[number] for rows in scanned)]
            turn, done = outer | dict(zip(names, given, strict=True)), None
            if carried is not None and number >= alone and "body" in self.runners:
                most, rows = min(limit - number, MIN_TURNS + number), [r[number:] for r in scanned]
                turns = Turns(carried, turn, rows, number, most, self.max_bytes - held)
                done = self.runners["body"].repeat(turns)
                alone = 2 * number + 1 if done is None else 0
            if done is None:
                done = self.single(turn, kinds, names[begin : begin + len(states)])
            condition, number = done.goes_on, number + done.number
            changed = map(done.states.get, names[begin:], states)
            states = [state for state in changed if state is not None]
            for block, row in zip(blocks, done.rows, strict=True):
                block.append(row)
                held += row.nbytes
            if held > self.max_bytes:
                raise BudgetError(
                    f"{self.described}: its outputs take {held} bytes after {number} turns, "
                    f"the budget is {self.max_bytes}\n  to fix: {REMEDY}"
                )
        return self.named([*states, *(self.stack(i, block) for i, block in enumerate(blocks))])

    def single(self, turn: Arrays, kinds: Mapping[str, Kind], states: Sequence[str]) -> Repeated:
        """Run one turn.

        Args:
            turn: the values of the body's inputs, and its outer values, by name.
            kinds: the types of those outer values whose rank is known.
            states: the names of the inputs that are states.
        """
        results, end = self.results("body", turn, kinds), self.heads + len(states)
        goes_on = not self.heads or bool(self.number(results[0], "condition"))
        changed = dict(zip(states, results[self.heads : end], strict=True))
        return Repeated(1, goes_on, changed, [row[None] for row in results[end:]])

    def begin(
        self, inputs: Sequence[Array | None]
    ) -> tuple[int, bool, list[Array], Sequence[Array]]:
        """Return (most turns, whether there is a first one, states, scanned inputs).

        The first axis of a scanned input is that of turns.
        """
        limit, condition = [*inputs[:2], None][:2]
        return (
            sys.maxsize if limit is None else self.number(limit, "number of turns"),
            condition is None or bool(self.number(condition, "condition")),
            [array for array in inputs[2:] if array is not None],
            (),
        )

    def carried(self, count: int) -> Carried | None:
        """Return what changes from turn to turn; the result is the same object each time.

        Returns None if a state is another input of the turn before, or the condition is a state.

        Args:
            count: the number of states.
        """
        if count not in self._carried:
            self._carried.setdefault(count, self._changing(count))
        return self._carried[count]

    def _changing(self, count: int) -> Carried | None:
        names, outputs, passed = self.names, self.outputs["body"], self.passed["body"]
        states, end = names[self.ahead : self.ahead + count], self.heads + count
        pairs = zip(states, outputs[self.heads : end], strict=True)
        changing = [(state, name) for state, name in pairs if passed.get(name) != state]
        heads = outputs[: self.heads]
        if any(passed.get(name) in states for name in heads):
            return None
        if any(name in passed for _, name in changing):
            return None
        return Carried(
            names[0] if self.ahead else "",
            next((name for name in heads if name not in passed), ""),
            changing,
            names[self.ahead + count :],
            [passed.get(name, name) for name in outputs[end:]],
        )

    def stack(self, place: int, blocks: Sequence[Array]) -> Array:
        """Return output number ``place`` of those that stack a value of every turn.

        A loop without turns stacks nothing; open sizes of the value are then 0.

        Args:
            place: the index of the output among these.
            blocks: the values, with turns along the first axis.

        Raises:
            InputError: the value has another shape in another turn.
        """
        body, axis, step = self.control.attributes["body"], *self.order(place)
        value = body.output[len(body.output) - self.stacked(body) + place]
        if not blocks:
            from vtensor.frontends.tensors import element_type

            kind = value.type.tensor_type
            shape = [dim.dim_value for dim in kind.shape.dim]
            shape.insert(axis % (len(shape) + 1), 0)
            return np.zeros(shape, numpy_dtype(element_type(kind.elem_type, value.name)))
        if len({block.shape[1:] for block in blocks}) > 1:
            shapes = sorted({block.shape[1:] for block in blocks})
            raise InputError(f"{self.described}: {value.name!r} has several shapes: {shapes}")
        return np.asarray(np.moveaxis(np.concatenate(blocks)[::step], 0, axis), order="C")

    def stacked(self, body: Any) -> int:
        """Return the number of outputs that stack a value of every turn."""
        return len(body.output) - self.heads - (len(body.input) - self.ahead)

    def order(self, place: int) -> tuple[int, int]:  # noqa: ARG002
        """Return the axis along which a stacked output has its turns, and 1, or -1 if reversed."""
        return 0, 1


class _Scan(_Loop):
    """An ONNX Scan: a loop over slices of its last inputs."""

    heads, ahead = 0, 0

    def begin(
        self, inputs: Sequence[Array | None]
    ) -> tuple[int, bool, list[Array], Sequence[Array]]:
        """Return (number of turns, True, states, scanned inputs).

        Raises:
            InputError: the scanned inputs have other lengths, or lack their axes.
        """
        arrays = [array for array in inputs if array is not None]
        count = self.control.attributes["num_scan_inputs"]
        states, scanned = arrays[:-count], arrays[-count:]
        axes = [self.of("scan_input_axes", i) for i in range(count)]
        if any(not -row.ndim <= axis < row.ndim for row, axis in zip(scanned, axes, strict=True)):
            raise InputError(f"{self.described}: an input lacks its axis of {axes}")
        lengths = {row.shape[axis] for row, axis in zip(scanned, axes, strict=True)}
        if len(lengths) != 1:
            raise InputError(f"{self.described}: its inputs have the lengths {sorted(lengths)}")
        steps = [-1 if self.of("scan_input_directions", i) else 1 for i in range(count)]
        rows = [
            np.asarray(np.moveaxis(row, axis, 0)[::step], order="C")
            for row, axis, step in zip(scanned, axes, steps, strict=True)
        ]
        return lengths.pop(), True, states, rows

    def stacked(self, body: Any) -> int:
        """Return the number of outputs that stack a value of every turn."""
        states = len(self.control.inputs) - int(self.control.attributes["num_scan_inputs"])
        return len(body.output) - states

    def order(self, place: int) -> tuple[int, int]:
        """Return the axis along which a stacked output has its turns, and 1, or -1 if reversed."""
        step = -1 if self.of("scan_output_directions", place) else 1
        return self.of("scan_output_axes", place), step

    def of(self, attribute: str, place: int) -> int:
        """Return element ``place`` of an attribute, or 0 if the attribute is absent."""
        row = self.control.attributes.get(attribute)
        return int(row[place]) if row else 0


#: The runs of the operators of control flow.
_RUNS: Mapping[str, type[_Branch]] = {"If": _Branch, "Loop": _Loop, "Scan": _Scan}


def _runs(control: Control, runner_of: RunnerOf, max_bytes: int) -> _Branch:
    """Return the run of a node of control flow."""
    return _RUNS[control.kind](control, runner_of, max_bytes)
