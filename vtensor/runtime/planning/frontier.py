"""The frontier of time against error: the plans of a network for several tolerances, each with its
time and its error.

The strict plan is always among them, and all others are compared with it. Tolerances that lead to
the same choice share a plan. Further plans are one for each approximate form by itself, one in bf16
if this processor is faster in bf16, and those of other models of the same network.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import isfinite
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from optimizer.choice.elsewhere import inexact_nodes
from optimizer.constants.observed import observed
from ptensor.layout import Layout
from resolver.errors import form_name
from resolver.lowered import LoweredGraph, OpNode
from vtensor.errors import InputError
from vtensor.language.dtype import bits
from vtensor.language.graph import Graph
from vtensor.language.records import dataclass
from vtensor.language.wording import counted
from vtensor.runtime.execution.plan import Plan
from vtensor.runtime.planning.choosing import resolved_of, simplified
from vtensor.runtime.planning.locked_plan import lock_of
from vtensor.runtime.planning.options import Options, Progress
from vtensor.runtime.planning.tolerance import PRECISIONS, has_instructions, tolerance_of
from vtensor.runtime.planning.tuned import plan_of, within_tolerance
from vtensor.runtime.recording.on_numbers import plan_on_numbers
from vtensor.runtime.recording.workspace import Workspace
from vtensor.runtime.tuning.error_amplification import difference, results
from vtensor.runtime.tuning.measure import in_turns
from vtensor.runtime.tuning.tolerant_choice import observable
from vtensor.runtime.tuning.variant_errors import Meter, bound_memory
from vtensor.storage.inputs import Array, Port, random_array

if TYPE_CHECKING:
    from vtensor.runtime.lock.lock_file import Lock

#: Default tolerances.
TOLERANCES = (0.0, 1e-6, 3e-6, 1e-5, 1e-4, 1e-3)

#: The precision of a further plan.
NARROW = "bf16"

#: The element types that take fewer than this number of bits are narrow.
WIDE_BITS = 32

#: The seeds of the inputs on which plans are compared; no choice was made on these inputs.
SEEDS = (11, 12, 13)


@dataclass(frozen=True)
class Point:
    """A plan with its time and the error of its results.

    Attributes:
        tolerances: the tolerances for which the plan was chosen, the smallest first; 0 is the
            strict plan's. Empty if the plan was chosen in another way.
        plan: the plan.
        forms: the number of approximate nodes, by a text of library and kernel; of another model,
            the number of nodes with operands in narrow types.
        expected: the error of results that the certificate expects; 0 for the strict plan.
        error: the largest error of results, measured on other inputs than those on which the choice
            was made, and compared with results of strict kernels.
        runs: the time of each run, in nanoseconds.
        weights: bytes of all constants in the layouts that the plan reads.
        precision: the precision of the plan; empty for f32.
        form: the only approximate form that the plan may have (``form_name``); empty for any.
        model: the name of the other model whose plan it is; empty for the model itself.
        kinds: what the forms are, the most frequent first: ``winograd``, ``bf16x3``, ``u8``.
    """

    tolerances: tuple[float, ...]
    plan: Plan
    forms: Mapping[str, int]
    expected: float
    error: float
    runs: tuple[int, ...]
    weights: int
    precision: str = ""
    form: str = ""
    model: str = ""
    kinds: tuple[str, ...] = ()

    @property
    def ns(self) -> float:
        """The nanoseconds of a run: the median."""
        return median(self.runs)

    @property
    def name(self) -> str:
        """The tolerances as text; the name of the other model; or the only form or precision.

        >>> Point((0.0, 1e-06), None, {}, 0.0, 0.0, (1,), 0).name
        '0, 1e-6'
        """
        form = f"{self.form} alone" if self.form else self.precision
        return self.model or form or ", ".join(map(format_tolerance, self.tolerances))

    @property
    def label(self) -> str:
        """The name, and what the forms of the plan are.

        >>> Point((1e-05,), None, {}, 0.0, 0.0, (1,), 0, kinds=("winograd", "bf16")).label
        '1e-5: winograd, bf16'
        >>> Point((), None, {}, 0.0, 0.0, (1,), 0, precision="bf16", kinds=("bf16",)).label
        'bf16'
        """
        if self.form or self.precision:
            return self.name
        kinds = ", ".join(self.kinds) or ("strict" if self.tolerances else "f32")
        return f"{self.name}: {kinds}"

    def ahead_of(self, other: Point) -> bool:
        """Return whether this point has less time or less error than ``other``, and has more of
        neither.
        """
        values, other_values = (self.ns, self.error), (other.ns, other.error)
        return (
            values != other_values and values[0] <= other_values[0] and values[1] <= other_values[1]
        )


class OtherModel(NamedTuple):
    """Another model of the same network, with other element types.

    Attributes:
        name: the model's name.
        plan: its plan, for inputs of the same sizes.
        lock: the lock file of the plan.
    """

    name: str
    plan: Plan
    lock: Lock


class PeerPoint(NamedTuple):
    """Another engine, as installed, on the same network.

    Attributes:
        name: the engine's name and version.
        ns: the nanoseconds of a run: the median.
        error: the largest difference of an output from VTensor's, relative to its largest element.
    """

    name: str
    ns: float
    error: float


@dataclass(frozen=True)
class Frontier:
    """The points of a network.

    Attributes:
        name: the network's name.
        threads: the number of kernel threads of a run.
        points: the point of the strict plan, then the others by tolerance, those of single forms,
            that in bf16, and those of other models.
        note: why there is no other plan than the strict one, or none of a single form; else empty.
        make_lock: makes the lock file of a point's plan.
        peers: other engines on the same network.
    """

    name: str
    threads: int
    points: tuple[Point, ...]
    note: str
    make_lock: Callable[[Point], Lock]
    peers: tuple[PeerPoint, ...] = ()

    @property
    def best(self) -> tuple[Point, ...]:
        """The points that no other point dominates, ordered by error."""
        undominated = [
            point
            for point in self.points
            if not any(other.ahead_of(point) for other in self.points)
        ]
        return tuple(sorted(undominated, key=lambda point: point.error))

    def lock(self, point: Point) -> Lock:
        """Return the lock of a point's plan, which ``Session(model, plan=FILE)`` runs."""
        return self.make_lock(point)

    def to_dict(self) -> dict[str, Any]:
        """Return the frontier as JSON data; times are in nanoseconds, weights in bytes."""
        best, strict = self.best, self.points[0]
        return {
            "model": self.name,
            "threads": self.threads,
            "runs": len(strict.runs),
            "note": self.note,
            "peers": [peer._asdict() for peer in self.peers],
            "points": [
                {
                    "label": point.label,
                    "tolerances": list(point.tolerances),
                    "precision": point.precision or "f32",
                    "form": point.form,
                    "model": point.model or self.name,
                    "kinds": list(point.kinds),
                    "best": point in best,
                    "ns": {"median": point.ns, "min": min(point.runs), "max": max(point.runs)},
                    "of_strict": point.ns / strict.ns,
                    "error": point.error if isfinite(point.error) else None,
                    "expected": point.expected,
                    "forms": dict(point.forms),
                    "nodes": len(point.plan.graph.operators),
                    "transforms": len(point.plan.conversions),
                    "weights": point.weights,
                }
                for point in self.points
            ],
        }


def format_tolerance(tolerance: float) -> str:
    """Format a tolerance as a short decimal or power of ten.

    >>> [*map(format_tolerance, (0.0, 0.0001, 1.5e-05, 0.5))]
    ['0', '1e-4', '1.5e-5', '0.5']
    """
    if not 0 < tolerance < 0.1:
        return f"{tolerance:g}"
    digits, _, power = f"{tolerance:.6e}".partition("e")
    return f"{float(digits):g}e{int(power)}"


def tolerances_of(tolerances: Sequence[float]) -> tuple[float, ...]:
    """Return tolerances, each once, the smallest first.

    Raises:
        InputError: there is no tolerance, or one of them is no finite number of at least 0.

    >>> tolerances_of([1e-3, 0, 1e-3])
    (0.0, 0.001)
    """
    if not isinstance(tolerances, Iterable):
        raise InputError(f"tolerances={tolerances!r} is no list of numbers")
    if not (numbers := [*tolerances]):
        raise InputError("tolerances: there must be at least one, as in 0,1e-5 (--tolerances)")
    return tuple(sorted({*map(tolerance_of, numbers)}))


class _Candidate(NamedTuple):
    """A plan that becomes a point; fields of the same names are those of ``Point``.

    Attributes:
        graph: the simplified graph of the plan, if it is not that of the strict plan.
    """

    plan: Plan
    tolerances: list[float]
    precision: str = ""
    form: str = ""
    model: str = ""
    graph: Graph | None = None


def frontier_of(
    plan: Plan,
    graph: Graph,
    options: Options,
    workspace: Workspace,
    tolerances: Sequence[float],
    arrays: Mapping[str, Array],
    runs: int,
    progress: Progress | None = None,
    others: Sequence[OtherModel] = (),
) -> Frontier:
    """Make a plan for each tolerance, measure its error and its time, and return the frontier.

    Errors are compared with results of strict kernels; for times, all plans run in turns.

    Args:
        plan: the session's plan for the graph.
        graph: the graph before any pass.
        options: the options of plans, with a clock that measures.
        workspace: the arena, weights and executors that plans share.
        tolerances: the tolerances, each once, the smallest first.
        arrays: inputs by name; missing ones get noise.
        runs: the number of timed runs of each plan; one untimed run precedes them.
        progress: called with a description of each phase.
        others: other models of the same network.

    Raises:
        InputError: another model has outputs of other sizes.
    """
    say = progress or (lambda _: None)
    simple, executor = simplified(graph, options), workspace.executor

    def within(tolerance: float) -> Options:
        return replace(options, tolerance=tolerance, progress=None)

    passes = (*options.passes, PRECISIONS[NARROW])
    narrowed = replace(within(0.0), precision=NARROW, passes=passes)
    narrow: Graph | None = None
    if options.precision != NARROW and has_instructions(NARROW):
        narrow = observable(simplified(graph, narrowed), observed(simple))
        narrow = None if narrow.notes == simple.notes else narrow  # it notes each conversion

    largest = max(tolerances, default=0.0)

    def choose() -> tuple[list[_Candidate], list[str], list[dict[str, Array]], list[float]]:
        say("strict")
        strict = plan if not plan.graph.inexact else plan_of(simple, within(0.0), workspace)
        chosen = {_chosen_steps(strict.graph): _Candidate(strict, [0.0])}
        meter = _meter(simple, options, workspace)  # each error is measured once
        for tolerance in filter(None, tolerances):
            say(f"tolerance {format_tolerance(tolerance)}")
            candidate = within_tolerance(simple, strict, within(tolerance), workspace, meter)
            candidate = candidate if candidate.graph.inexact else strict
            steps = _chosen_steps(candidate.graph)
            chosen.setdefault(steps, _Candidate(candidate, [])).tolerances.append(tolerance)
        candidates, missing = [*chosen.values()], list[str]()
        drawn = [_kinds(candidate) for candidate in candidates]
        for form in sorted(meter.forms - {"", NARROW if narrow is not None else ""}):
            if (form,) not in drawn:
                say(f"{form} alone")
                alone = within_tolerance(simple, strict, within(largest), workspace, meter, form)
                if alone.graph.inexact:
                    candidates.append(_Candidate(alone, [], form=form))
                else:
                    missing.append(form)
        if narrow is not None:
            say(NARROW)
            planned = plan_of(narrow, narrowed, workspace)
            candidates.append(_Candidate(planned, [], precision=NARROW, graph=narrow))
        candidates += [_Candidate(other.plan, [], model=other.name) for other in others]
        rows = [*_inputs(strict.graph, arrays)]
        return candidates, missing, rows, [*_errors(simple, options, workspace, candidates, rows)]

    candidates, missing, rows, errors = executor.planning(choose)
    times = _times([candidate.plan for candidate in candidates], rows[0], workspace, runs, say)
    points = tuple(
        Point(
            tuple(candidate.tolerances),
            candidate.plan,
            _forms(candidate),
            _expected(candidate.plan),
            error,
            runs_ns,
            _weights(candidate.plan),
            candidate.precision,
            candidate.form,
            candidate.model,
            _kinds(candidate),
        )
        for candidate, error, runs_ns in zip(candidates, errors, times, strict=True)
    )
    only_strict = sum(bool(point.tolerances) for point in points) == 1
    notes = [f"{form}: no plan is faster with this form alone" for form in missing]
    if only_strict:
        notes.insert(0, _note(candidates[0].plan, tolerances))
    locks = {other.name: other.lock for other in others}

    def make_lock(point: Point) -> Lock:
        if point.model:
            return locks[point.model]
        made_with = narrowed if point.precision else within(min(point.tolerances, default=largest))
        return lock_of(point.plan, graph, made_with, executor.threads)

    return Frontier(graph.name, executor.threads, points, "; ".join(notes), make_lock)


def _meter(graph: Graph, options: Options, workspace: Workspace) -> Meter:
    simple = observable(graph)
    resolved = resolved_of(simple, options)
    return Meter(simple, resolved, observed(simple), options.calibrate, workspace)


def _chosen_steps(graph: LoweredGraph) -> object:
    """Return a value that is equal for lowered graphs of the same choice, whatever its times."""
    rows = list[object]()
    for node in graph.nodes:
        if isinstance(node, OpNode):
            variant = node.variant
            rows.append(
                (node.name, variant.library, variant.kernel, variant.forms, variant.followers)
            )
        else:
            layout = graph.values[node.output].layout
            rows.append((graph.sources[node.output], node.library, layout))
    return tuple(rows)


def _narrow_types(candidate: _Candidate, node: OpNode) -> tuple[str, ...]:
    """Return the narrow types that a node's inputs are stored in, each once, in order.

    Of plans of the model itself, only the type of a rounded precision counts.
    """
    values = candidate.plan.graph.values
    names = zip(node.inputs, node.variant.layouts, strict=False)
    types = dict.fromkeys(layout.stored(values[name].dtype).dtype for name, layout in names)
    if candidate.model:
        return tuple(t for t in types if t != "bool" and bits(t) < WIDE_BITS)
    return (NARROW,) * (NARROW in types)


def _forms(candidate: _Candidate) -> Mapping[str, int]:
    forms = Counter[str]()
    for node in candidate.plan.graph.operators:
        types = _narrow_types(candidate, node)
        if node.variant.inexact or types:
            kernel = f"{node.variant.library} {node.variant.kernel}".strip()
            forms[f"{kernel} in {', '.join(types)}" if types else kernel] += 1
    return forms


def _kinds(candidate: _Candidate) -> tuple[str, ...]:
    """Return what the forms of a plan are, the most frequent first."""
    kinds = Counter[str]()
    for node in candidate.plan.graph.operators:
        form = form_name(node.variant)
        kinds.update([form] if form else _narrow_types(candidate, node))
    return tuple(kind for kind, _ in kinds.most_common())


def _expected(plan: Plan) -> float:
    proof = plan.certificate.errors if plan.certificate is not None else None
    return proof.expected if proof is not None and plan.graph.inexact else 0.0


def _weights(plan: Plan) -> int:
    values = plan.graph.values
    read = {name for node in plan.graph.operators for name in node.inputs}
    return sum(values[name].nbytes for name in read if values[name].constant)


def _note(strict: Plan, tolerances: Sequence[float]) -> str:
    """Return the reason why the strict plan is the only one for all of these tolerances."""
    if not any(tolerances):
        return "tolerance 0 is that of the strict plan alone"
    able = len(inexact_nodes(strict.resolved))
    if not able:
        return "no library has an approximate form of any of its nodes: only the strict plan exists"
    nodes = counted(able, "node")
    return (
        f"{nodes} may run in approximate forms, and no plan with them was faster within a tolerance"
    )


def _inputs(graph: LoweredGraph, arrays: Mapping[str, Array]) -> Iterator[dict[str, Array]]:
    """Yield the inputs of one run after another, by name: the given arrays, and seeded noise for
    missing ones.

    There is one run for each seed; a single one if no array is missing.
    """
    some_missing = not arrays.keys() >= {*graph.inputs}
    for seed in SEEDS if some_missing else SEEDS[:1]:
        generator, feeds = np.random.default_rng(seed), dict[str, Array]()
        for name in graph.inputs:
            value = graph.values[name]
            port = Port(name, value.dtype, tuple(value.dims.values()), tuple(value.dims))
            feeds[name] = arrays[name] if name in arrays else random_array(port, generator)
        yield feeds


def _errors(
    graph: Graph,
    options: Options,
    workspace: Workspace,
    candidates: Sequence[_Candidate],
    rows: Sequence[Mapping[str, Array]],
) -> Iterator[float]:
    """Yield, for each plan, the largest error over all runs, measured at the observed values of the
    graph; of other models, at the outputs.

    The reference is the resolved graph before passes, with strict kernels: no observed value is
    inside a fused node there. For other models it is the first plan, the strict one.

    Args:
        graph, options, workspace: the simplified graph, options, and memory that plans share.
        candidates: the plans.
        rows: the inputs by name, a dict for each run.

    Raises:
        InputError: another model has outputs of other sizes.
    """
    simple = observable(graph)
    names = observed(simple)
    own_workspace = Workspace(workspace.executor, workspace.max_bytes, weights=workspace.weights)

    def answers(lowered: LoweredGraph, own: Graph) -> list[Mapping[str, Array]]:
        outputs, delivery = dict(zip(names, names, strict=True)), dict.fromkeys(names, Layout.ANY)
        delivering = replace(lowered, outputs=outputs, delivery=delivery, certificate=None)
        plan = plan_on_numbers(delivering, own.constants, own_workspace, confirming=True)
        return [_answer(plan, row, own_workspace) for row in rows]

    strict: list[Mapping[str, Array]] = []
    for plan, _, _, _, model, own in candidates:
        if model:
            pairs = [
                [_answer(p, row, workspace) for p in (candidates[0].plan, plan)] for row in rows
            ]
            _check_sizes(model, *pairs[0])
            yield max(difference(expected, actual) for expected, actual in pairs)
        elif plan.graph.inexact or own is not None:
            strict = strict or answers(resolved_of(simple, options), graph)
            both = zip(strict, answers(plan.graph, own or graph), strict=True)
            yield max(difference(expected, actual) for expected, actual in both)
        else:
            yield 0.0


def check_ports(model: str, kind: str, own: Sequence[Port], others: Sequence[Port]) -> None:
    """Check that another model has the inputs, or the outputs, of the first model.

    Names and element types must be the same, and sizes where both models fix them.

    Args:
        model: the name of the other model.
        kind: ``input`` or ``output``.
        own, others: the ports of the first model and of the other one.

    Raises:
        InputError: they are not the same.
    """
    rows = {port.name: port for port in others}
    for port in own:
        other = rows.pop(port.name, None)
        sizes = zip(port.shape, other.shape, strict=False) if other is not None else ()
        if (
            other is None
            or (port.dtype, len(port.shape)) != (other.dtype, len(other.shape))
            or any(a != b for a, b in sizes if None not in (a, b))
        ):
            found = f"has {other}" if other is not None else f"has no {kind} {port.name!r}"
            raise InputError(
                f"model {model!r} {found}, and the first model has {port}\n"
                "  to fix: give models of one network, with the same inputs and outputs"
            )
    for name in rows:
        raise InputError(
            f"model {model!r} has an {kind} {name!r} that the first model lacks\n"
            "  to fix: give models of one network, with the same inputs and outputs"
        )


def _check_sizes(model: str, own: Mapping[str, Array], others: Mapping[str, Array]) -> None:
    """Raise InputError if another model's outputs have other sizes than the first model's."""
    for name, array in own.items():
        if array.shape != others[name].shape:
            sizes = f"{list(others[name].shape)}, the first model's {list(array.shape)}"
            raise InputError(f"model {model!r}: its output {name!r} has the sizes {sizes}")


def _answer(plan: Plan, feeds: Mapping[str, Array], workspace: Workspace) -> Mapping[str, Array]:
    memory = bound_memory(plan, feeds)
    workspace.executor.run(partial(plan.replay, memory))
    return results(plan, memory)


def _times(
    plans: Sequence[Plan],
    feeds: Mapping[str, Array],
    workspace: Workspace,
    runs: int,
    say: Progress,
) -> list[tuple[int, ...]]:
    """Return the nanoseconds of each plan's runs; all plans run in turns.

    Args:
        plans: the plans.
        feeds: the inputs of all runs, by name.
        workspace: the memory and threads that plans share.
        runs: the number of runs of each plan that count; the first run of each does not.
        say: called with a description of each turn.
    """

    def replay_of(plan: Plan) -> Callable[[], object]:
        return partial(plan.replay, bound_memory(plan, feeds))

    times_of: list[list[int]] = [[] for _ in plans]
    each = [*map(replay_of, plans)]
    for turn in range(1 + runs):
        say(f"turn {turn} of {runs}")
        for times, turn_ns in zip(times_of, in_turns(each, workspace.executor, 1), strict=True):
            times += turn_ns
    return [tuple(times[1:]) for times in times_of]
