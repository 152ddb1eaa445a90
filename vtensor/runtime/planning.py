"""Planning: one function from a graph and options to a plan.

Simplify, resolve, extend, optimise, check, record: each step takes what the one before made and
changes nothing. What a plan shares with others (memory, packed weights) is the workspace's.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import field, replace
from functools import partial
from typing import TYPE_CHECKING

from libdesc.onnx_reference.node import LIBRARY as REFERENCE
from libdesc.preferences import Preferences
from libdesc.registry import ready
from optimizer.pipeline import MEASURED, optimise, pass_names, simplify
from optimizer.settings import Settings
from ptensor.layout import Layout
from ptensor.stopping import go_on
from resolver.check import check
from resolver.lowered import LoweredGraph
from vtensor.errors import BudgetError, InputError, UnsoundPlanError, VTensorError
from vtensor.language.graph import Graph
from vtensor.language.imported import logger
from vtensor.language.records import dataclass
from vtensor.runtime.allowance import tolerance_of
from vtensor.runtime.budget import check_plan
from vtensor.runtime.calibration import speeds_asked_for
from vtensor.runtime.entries import Entries
from vtensor.runtime.executor import Executor
from vtensor.runtime.feeds import Array
from vtensor.runtime.fewer import fewer
from vtensor.runtime.library_options import preferences_of
from vtensor.runtime.measure import BETWEEN, fastest
from vtensor.runtime.plan import Plan
from vtensor.runtime.probing import Probe
from vtensor.runtime.tuning import Tuner
from vtensor.runtime.workspace import Workspace

if TYPE_CHECKING:
    from resolver.proof import Proof
    from vtensor.runtime.erring import Meter
    from vtensor.runtime.lock import Lock

#: What ``Session(tune=)`` says for a plan by measured times that takes the first one's place.
BACKGROUND = "background"

#: The log message where the plan with measured times is not faster.
KEPT = "%s: without measured times the plan takes %.2f ms, with them %.2f ms: it stays without"

#: The log message where the plan within the tolerance is not faster.
SLOWER = "%s: within the tolerance the plan takes %.2f ms, strictly %.2f ms: it stays strict"

_log = logger(__name__)

Progress = Callable[[str], None]


@dataclass(frozen=True)
class Options:
    """How plans are made.

    Attributes:
        passes: their names, in order.
        settings: what passes are told.
        preferences: which libraries may take what.
        entry: how inputs lie, by name; declared order where nothing is said.
        delivery: how outputs are to lie, by name; declared order where nothing is said.
        progress: called with each node's name while it is recorded.
        deterministic: no plan is exchanged for a better one after its first run.
        entries: where strategies are kept for later processes; None keeps them nowhere.
        tolerance: what results may be off by where times are measured, relative to their largest.
        finite: nobody looks whether numbers are finite.
        calibrate: arrays for inputs, by name, that errors are measured on.
        lock: a plan that was written down: it is the only one.
        later: what passes are told in the background, for the plan that takes a first one's place;
            None where none does.
        first: what passes are told for a provisional plan, whose place one by ``settings`` takes;
            None where nothing is provisional.
    """

    passes: tuple[str, ...] = ()
    settings: Settings = field(default_factory=Settings)
    preferences: Preferences = field(default_factory=Preferences)
    entry: Mapping[str, Layout] = field(default_factory=dict)
    delivery: Mapping[str, Layout] = field(default_factory=dict)
    progress: Progress | None = None
    deterministic: bool = False
    entries: Entries | None = None
    tolerance: float = 0.0
    finite: bool = False
    calibrate: Mapping[str, Array] = field(default_factory=dict)
    lock: Lock | None = None
    later: Settings | None = None
    first: Settings | None = None

    @classmethod
    def of(
        cls,
        executor: Executor,
        *,
        optimize: str | Sequence[str],
        objective: str,
        tune: bool | str,
        libraries: Sequence[str] | None,
        pin: Mapping[str, str] | None,
        reference: bool,
        progress: Progress | None,
        deterministic: bool,
        tolerance: float = 0.0,
        finite: bool = False,
    ) -> Options:
        """What a session was told, checked; the arguments are its own.

        Raises:
            InputError: an option is wrong.
        """
        passes = pass_names(optimize)
        if isinstance(tune, str) and tune != BACKGROUND:
            raise InputError(f"tune={tune!r} must be True, False or {BACKGROUND!r}")
        if tune and (objective or MEASURED not in passes):
            raise InputError(
                f"tune=True (--tune on the command line) needs the pass {MEASURED!r}, and sets the "
                "objective itself"
            )
        if not (progress is None or callable(progress)):
            raise InputError(f"progress={progress!r} must take a node's name, or be None")
        preferences = preferences_of(libraries, pin, barred=() if reference else (REFERENCE,))
        settings, later = _settings(executor, preferences, objective, tune, deterministic, progress)
        looks = settings.probe is not None and not objective and MEASURED in passes
        return cls(
            passes,
            settings,
            preferences,
            progress=progress,
            deterministic=deterministic,
            tolerance=tolerance_of(tolerance),
            finite=finite,
            later=later,
            first=Settings() if looks and not tune and not deterministic else None,
        )


def _settings(
    executor: Executor,
    preferences: Preferences,
    objective: str,
    tune: bool | str,
    deterministic: bool,
    progress: Progress | None,
) -> tuple[Settings, Settings | None]:
    """What passes are told, and what they are told in the background, if anything."""
    speeds = speeds_asked_for()
    later = tune == BACKGROUND and not deterministic
    if tune and not later:
        clock = Tuner(executor, preferences, progress)
        return Settings("time", clock=clock, speeds=speeds), None
    probe = Probe(preferences, executor) if speeds is not None else None
    first = Settings(objective, speeds=speeds, probe=probe)
    if not later:
        return first, None
    clock = Tuner(executor, preferences, None, BETWEEN)
    return first, Settings("time", clock=clock, speeds=speeds)


def simplified(
    graph: Graph, options: Options, only: Collection[tuple[str, str]] | None = None
) -> Graph:
    """A graph as it is planned; rules are applied only here or there, where something is said."""
    return simplify(graph, options.passes, options.preferences, only)


def transferable(options: Options) -> bool:
    """Whether what is chosen with such options may be taken to other sizes."""
    settings = options.settings
    timed = settings.objective in ("", "time") and settings.clock is None
    return timed and MEASURED in options.passes


def plan_of(graph: Graph, options: Options, workspace: Workspace) -> Plan:
    """The plan of a graph whose sizes are known; where times are measured, the fastest of those
    with measured times, with fewer Transforms, and with estimates.

    Args:
        graph: simplified.
        options: how it is made.
        workspace: what it shares with other plans.

    Raises:
        NoInvokerError: no library takes a node, or not the one that it is pinned to.
        BudgetError: it needs more memory than the workspace may have.
    """
    resolved = resolved_of(graph, options)
    made = _recorded(graph, resolved, options, options.settings, workspace)
    if options.settings.clock is None:
        return made
    plain = _recorded(graph, resolved, options, Settings(speeds=options.settings.speeds), workspace)
    choice = partial(optimise, resolved, options.passes)
    few = list[Plan]()
    for lowered in fewer(made.graph, options.settings, choice):
        with suppress(BudgetError):
            few.append(recorded(graph, resolved, lowered, options, workspace))
    try:
        best, took = fastest([*few, made, plain], workspace.executor)
    except VTensorError as error:
        go_on()
        _log.warning("%s: plans cannot be timed, so it stays without: %s", graph.name, error)
        return plain
    if best is plain:
        _log.warning(KEPT, graph.name, took[-1] / 1e6, min(took[:-1]) / 1e6)
    return within_tolerance(graph, best, options, workspace)


def within_tolerance(
    graph: Graph,
    strict: Plan,
    options: Options,
    workspace: Workspace,
    meter: Meter | None = None,
) -> Plan:
    """The plan whose results may be off by the tolerance, if it is faster than the strict one.

    Args:
        graph, options, workspace: as for ``plan_of``; the options have a clock that measures.
        strict: a plan of the graph, which answers where numbers are not finite.
        meter: what has measured errors for another tolerance.
    """
    if not options.tolerance:
        return strict
    from vtensor.runtime.tolerant import observable, tolerant  # nothing else needs it

    again = partial(  # recorded when it is needed: its packed weights need not be kept
        Plan,
        strict.graph,
        graph.constants,
        workspace,
        preferences=options.preferences,
        resolved=strict.resolved,
    )
    simple = observable(graph)
    try:
        found = tolerant(
            simple,
            resolved_of(simple, options),
            options.passes,
            options.settings,
            options.tolerance,
            options.calibrate,
            workspace,
            meter,
        )
        if not found:
            return strict
        made = list[Plan]()
        for lowered in found:
            with suppress(BudgetError):
                sound(lowered, simple, options, workspace)
                plan = Plan(
                    lowered,
                    graph.constants,
                    workspace,
                    options.progress,
                    options.preferences,
                    strict.resolved,
                    strictly=None if options.finite else again,
                )
                made.append(plan)
        if not made:
            return strict
        best, took = fastest([*made, strict], workspace.executor)
        if best is strict:
            _log.info(SLOWER, graph.name, min(took[:-1]) / 1e6, took[-1] / 1e6)
    except UnsoundPlanError:
        raise
    except VTensorError as error:
        go_on()
        _log.warning("%s: no plan within the tolerance, so it is strict: %s", graph.name, error)
        return strict
    return best


def _recorded(
    graph: Graph,
    resolved: LoweredGraph,
    options: Options,
    settings: Settings,
    workspace: Workspace,
) -> Plan:
    """Optimise a resolved graph, prove it sound, and record it."""
    lowered = optimise(resolved, options.passes, settings)
    return recorded(graph, resolved, lowered, options, workspace)


def recorded(
    graph: Graph,
    resolved: LoweredGraph,
    lowered: LoweredGraph,
    options: Options,
    workspace: Workspace,
) -> Plan:
    """The plan of an optimised graph, proven sound."""
    sound(lowered, graph, options, workspace)
    return Plan(
        lowered, graph.constants, workspace, options.progress, options.preferences, resolved
    )


def resolved_of(graph: Graph, options: Options) -> LoweredGraph:
    """A graph with the Transforms that Algorithm 1 leaves, before any pass."""
    from resolver.evaluate import resolve
    from resolver.extend import extend

    return extend(resolve(graph, options.entry, options.preferences), options.delivery)


def partly_optimised(
    resolved: LoweredGraph, options: Options, only: frozenset[str]
) -> LoweredGraph:
    """A resolved graph optimised, where the joint choice may change some nodes alone.

    A certificate says nothing of the others, so there is none, unless there was nothing to gain.
    """
    lowered = optimise(resolved, options.passes, replace(options.settings, only=only))
    certificate = lowered.certificate
    if certificate and (certificate.open_nodes or any(lowered.transforms())):
        return replace(lowered, certificate=None)
    return lowered


def sound(
    lowered: LoweredGraph,
    graph: Graph,
    options: Options,
    workspace: Workspace,
    proof: Proof | None = None,
) -> None:
    """Prove a lowered graph sound, and see that it fits into the budget.

    Args:
        lowered, graph, options, workspace: what is to run, of which graph, and how.
        proof: what was proved of the same in other sizes.

    Raises:
        UnsoundPlanError: it is not.
        BudgetError: it needs more memory than the workspace may have.
    """
    able = [library.name for library in ready().libraries.values() if library.transforms]
    proven = check if proof is None else proof.check
    proven(lowered, graph, able, options.entry, options.delivery)
    check_plan(lowered, workspace.max_bytes)
