"""The planner: makes the plan for a key that is not in memory, in one of three ways:

1. the lock file, if the session has one;
2. a symbolic plan, from memory or from the cache, whose guards hold for these sizes;
3. a new choice, recorded on symbols. Nodes of the nearest earlier choice are hints.

A choice that cannot be recorded on symbols (a step calls back into Python, or sizes change the
graph otherwise than by numbers) is recorded on numbers, for each combination of sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from ptensor.background_work import checkpoint
from vtensor.errors import LockError, VTensorError
from vtensor.language.process.imported import logger
from vtensor.language.process.interrupts import MALFORMED, pass_signals
from vtensor.language.symbolic.rows import Known
from vtensor.language.symbolic.trace import NotTraced
from vtensor.runtime.execution.origin import LOCKED, RECORDED_ON_SIZES, SPECIALISED
from vtensor.runtime.execution.plan import Nodes, Plan
from vtensor.runtime.planning.choice import MOST_CHOICES, Choice, InputKind, kind_of
from vtensor.runtime.planning.keys import PlanKey
from vtensor.runtime.planning.networks import Networks, SimplifiedNetwork
from vtensor.runtime.planning.options import Options, transferable
from vtensor.runtime.planning.source import Source
from vtensor.runtime.planning.symbolic_plan import SymbolicPlan
from vtensor.runtime.recording.workspace import Workspace

if TYPE_CHECKING:
    from resolver.choice import ChosenGraph
    from resolver.lowered import LoweredGraph
    from vtensor.runtime.cache.plans import SavedPlans
    from vtensor.runtime.lock.lock_file import Lock

#: The most input kinds that a session remembers, the last used ones.
MAX_KINDS = 32

#: The most of the nearest choices that are tried as hints.
MAX_HINTS = 2

_log = logger(__name__)

#: Choices whose guards fail for some sizes, with their symbolic plans.
Failed = dict[Choice, SymbolicPlan]


class Planner:
    """The planner of a session. One thread at a time may use it.

    Args:
        source: the graph or model of the session.
        options: the options of plans.
        workspace: the arena, weights and executors that plans share.
        cache: the saved plans; None without a cache.

    Attributes:
        networks: the simplified graphs of the session.
    """

    def __init__(
        self, source: Source, options: Options, workspace: Workspace, cache: SavedPlans | None
    ) -> None:
        self.source, self._options, self._workspace = source, options, workspace
        self._cache = cache
        self.networks = Networks(source)
        self._kinds: dict[Hashable, InputKind] = {}

    def plan(self, key: PlanKey, options: Options) -> tuple[Plan, Choice | None]:
        """Return the plan for a key and its choice; the choice is None for a lock file that fixes
        all sizes.

        Args:
            key: input shapes, element types and layouts.
            options: the options of plans, with the key's layouts; if ``options.first`` is None, no
                provisional choice is used.

        Raises:
            VTensorError: no plan can be made.
        """
        if options.lock is not None and not options.lock.computed:
            locked = self._locked(options.lock, key, options)
            return self._repeated(locked, locked.graph.overflows, key, options), None
        kind, known, failed = self._kind(key), Known(), Failed()
        open_sizes = self.source.open_of(key)
        for choice in self._candidates(kind, key, options):
            if (symbolic := choice.plan_for(open_sizes, known)) is None:
                continue
            nodes = partial(self.nodes, choice, key, options)
            try:
                plan = symbolic.specialise(open_sizes, self._workspace, known, nodes)
            except MALFORMED as why:
                pass_signals(why)
                if not choice.cached:
                    raise
                _log.debug("a cached plan is not taken: %s", why)
                choice.symbolic = None
                continue
            if plan is None:
                failed[choice] = symbolic
                continue
            plan.origin = LOCKED if choice.locked else replace(SPECIALISED, cached=choice.cached)
            self._repeated(plan, symbolic.overflows, key, options)
            return self._with_quality(plan, choice, key), choice
        return self._new(key, options, kind, known, failed)

    def _kind(self, key: PlanKey) -> InputKind:
        """Return the input kind of a key, new if the planner has none, and mark it as used."""
        name = kind_of(key)
        self._kinds[name] = kind = self._kinds.pop(name, None) or InputKind()
        if len(self._kinds) > MAX_KINDS:
            del self._kinds[next(iter(self._kinds))]
        return kind

    def _candidates(self, kind: InputKind, key: PlanKey, options: Options) -> Iterator[Choice]:
        """Yield the choices that may serve the sizes of a key: first from memory, the last added
        first, then from the cache.

        If memory has no exact choice for the key, one from the cache is added first.
        """

        def serves(choice: Choice) -> bool:
            other_sizes = choice.key != key and not choice.locked
            return not (
                choice.refuses(key)
                or (choice.provisional and options.first is None)
                or (other_sizes and (options.deterministic or not transferable(options)))
            )

        exact = [choice for choice in kind.choices if choice.exact and choice.key == key]
        if self._cache is not None and not exact:
            for choice in self._cache.read_own(key, options):
                kind.add(choice)
        yield from filter(serves, [*kind.choices])
        if self._cache is None or options.settings.clock is not None:
            return
        if kind.entries_read >= MOST_CHOICES:
            return
        # Progress is kept as a number: a forked child would inherit an iterator in use.
        for count, choice in self._cache.read(key, options, kind.entries_read):
            kind.entries_read = count
            kind.choices.append(choice)
            if serves(choice):
                yield choice
        kind.entries_read = MOST_CHOICES

    def _with_quality(self, plan: Plan, choice: Choice, key: PlanKey) -> Plan:
        """Note in a plan whether its choice is provisional, and for which other sizes it was made,
        if any; return the plan.
        """
        plan.provisional = choice.provisional
        plan.taken_from = None if choice.key == key else choice.key.shapes
        return plan

    def _new(
        self,
        key: PlanKey,
        options: Options,
        kind: InputKind,
        known: Known,
        failed: Failed,
    ) -> tuple[Plan, Choice | None]:
        """Make a choice; return its plan and the choice.

        Args:
            key, options: the plan's key, and the options with the key's layouts.
            kind: the choices that exist for inputs of the key's kind.
            known: the values of traces that were evaluated earlier. Newly evaluated ones are added.
            failed: the choices whose guards fail for these sizes, each with its symbolic plan.
        """
        from resolver.choice import ChoiceRefused

        network = self.networks.of(key, options, known)
        if options.lock is not None:
            followed = self._followed(options.lock, key, options, kind, network, known)
            if followed is not None:
                return followed
        provisional = options.first is not None
        if options.settings.clock is not None:
            return self._tuned(key, options, network)
        for choice in self._hints(kind, key, options):
            decisions = choice.of(network.graph)
            if decisions is None:
                continue
            symbolic = failed.get(choice)
            declined = (
                symbolic.declined(network.open_sizes, known) if symbolic else frozenset[str]()
            )
            hints = choice, decisions, declined
            try:
                return self._with_hints(key, options, kind, network, known, hints)
            except (ChoiceRefused, VTensorError) as why:
                _log.debug("%s: no plan with hints of %s: %s", key.shapes, choice.key.shapes, why)
        from vtensor.runtime.planning.choosing import chosen

        lowered = chosen(network.graph, options.soon if provisional else options, provisional)
        recording = self._recorded(key, options, network, lowered, known, confirming=False)
        return self._add_choice(key, kind, recording, provisional)

    def _hints(self, kind: InputKind, key: PlanKey, options: Options) -> list[Choice]:
        """Return the choices of ``kind`` to try as hints, at most ``MAX_HINTS``.

        Choices for sizes nearest to those of the key come first. Provisional choices are returned
        only if ``options.first`` is not None and there is no measured choice.
        """
        if not transferable(options):
            return []
        nearest = [
            choice
            for choice in kind.nearest(key)
            if options.first is not None or not choice.provisional
        ]
        measured = [choice for choice in nearest if not choice.provisional]
        return (measured or nearest)[:MAX_HINTS]

    def _with_hints(
        self,
        key: PlanKey,
        options: Options,
        kind: InputKind,
        network: SimplifiedNetwork,
        known: Known,
        hints: tuple[Choice, ChosenGraph, frozenset[str]],
    ) -> tuple[Plan, Choice]:
        """Make a choice with hints; return its plan and the choice.

        Args:
            key, options: the plan's key, and the options with the key's layouts.
            kind: the choices that exist for inputs of the key's kind.
            network: the simplified graph for the key.
            known: the values of traces that were evaluated earlier. Newly evaluated ones are added.
            hints: the earlier choice; its decisions by node; and the names of the nodes whose
                libraries decline these sizes.

        Raises:
            ChoiceRefused, VTensorError: too many nodes would differ from the hints, the plan would
                be too slow, or no plan can be made with these hints.
        """
        from vtensor.runtime.planning.choosing import chosen_with_hints, widened

        choice, decisions, declined = hints
        provisional = choice.provisional

        def make(reopened: frozenset[str]) -> tuple[Plan, Choice]:
            lowered, others = chosen_with_hints(
                network.graph, options, decisions, reopened, provisional
            )
            if options.deterministic:
                _check_excess(lowered, options)
            recording = self._recorded(key, options, network, lowered, known, confirming=True)
            plan, new_choice = self._add_choice(key, kind, recording, provisional)
            if choice.key != key:
                plan.taken_from, plan.anew = choice.key.shapes, others
            plan.origin = replace(plan.origin, cached=choice.cached)
            return plan, new_choice

        return widened(make, declined)

    def _recorded(
        self,
        key: PlanKey,
        options: Options,
        network: SimplifiedNetwork,
        lowered: LoweredGraph,
        known: Known,
        *,
        confirming: bool,
    ) -> tuple[Plan, Choice]:
        """Record a choice, and return its plan and the choice.

        The choice is recorded on symbols in place of open sizes; if that is not possible, for these
        sizes alone.

        Args:
            key, options: the plan's key, and the options with the key's layouts.
            network: the simplified graph that the choice was made for.
            lowered: the choice as a lowered graph.
            known: the values of traces that were evaluated earlier. Newly evaluated ones are added.
            confirming: True asks libraries again whether they accept their nodes.

        Returns:
            The plan for the key, and the choice, not yet marked as provisional.
        """
        from resolver.choice import ChosenGraph
        from vtensor.runtime.planning.choosing import recorded, resolved_of, sound

        choice = Choice(key, False, frozenset(network.graph.applied), observed=network.observed)
        choice.decisions = ChosenGraph.of(lowered)
        if network.symbolic is not None:
            from vtensor.runtime.planning.tracing import traced_plan

            sound(lowered, network.graph, options, self._workspace)
            checkpoint()
            open_sizes = network.open_sizes
            arguments = network.symbolic, open_sizes, lowered, options, self._workspace, known
            try:
                choice.symbolic = traced_plan(*arguments, confirming=confirming)
            except NotTraced as why:
                _log.debug("%s: it is recorded on sizes: %s", key.shapes, why)
            else:
                nodes = partial(self.nodes, choice, key, options)
                plan = choice.symbolic.specialise(open_sizes, self._workspace, known, nodes)
                if plan is not None:
                    return self._repeated(plan, lowered.overflows, key, options), choice
                choice.symbolic = None
        resolved = partial(resolved_of, network.graph, options)
        number_arguments = network.graph, resolved, lowered, options, self._workspace
        plan = recorded(*number_arguments, confirming=confirming)
        choice.later = _symbolic_later(plan, network.open_sizes)
        if network.open_sizes:
            plan.origin = RECORDED_ON_SIZES
        return self._repeated(plan, lowered.overflows, key, options), choice

    def _repeated(self, plan: Plan, overflows: bool, key: PlanKey, options: Options) -> Plan:
        """Let the runs of a plan be repeated in f32 if outputs are not finite; return the plan.

        Args:
            plan: the plan.
            overflows: True if a node of it computes in f16; otherwise runs are not repeated.
            key, options: the plan's key and options.
        """
        if overflows and "widen" in options.passes and not options.finite:
            plan.repeat_wide(partial(self._wide, key, options))
        return plan

    def _wide(self, key: PlanKey, options: Options) -> Plan:
        """Return the plan for a key in which nothing is computed in f16."""
        from vtensor.runtime.planning.choosing import plan_in_full, simplified

        preferences = replace(options.preferences, wide=True)
        options = replace(options, preferences=preferences, lock=None)
        graph = simplified(self.source.graph(key.shapes, key.known, key.inner), options)
        return plan_in_full(graph, options, self._workspace)

    def _add_choice(
        self,
        key: PlanKey,
        kind: InputKind,
        recording: tuple[Plan, Choice],
        provisional: bool,
    ) -> tuple[Plan, Choice]:
        """Add a choice to its input kind as a hint for other sizes; return its plan and the choice.

        Args:
            key, kind: the plan's key, and the choices so far for inputs of its kind.
            recording: the plan and the choice, from ``_recorded``.
            provisional: True if the choice was made without times of this machine.
        """
        plan, choice = recording
        choice.provisional = provisional
        kind.add(choice)
        return self._with_quality(plan, choice, key), choice

    def _tuned(
        self, key: PlanKey, options: Options, network: SimplifiedNetwork
    ) -> tuple[Plan, Choice]:
        """Make a choice by measured times for exactly the sizes of ``key``; return its plan and the
        choice.
        """
        from resolver.choice import ChosenGraph
        from vtensor.runtime.planning.tuned import plan_of

        plan = plan_of(network.graph, options, self._workspace)
        self._repeated(plan, plan.graph.overflows, key, options)
        choice = Choice(key, False, frozenset(network.graph.applied), exact=True)
        choice.later = _symbolic_later(plan, network.open_sizes)
        choice.decisions, choice.observed = ChosenGraph.of(plan.graph), network.observed
        return plan, choice

    def prepare(self, key: PlanKey, options: Options) -> Choice | None:
        """Make and return a choice for a key before its plan is requested.

        Returns None, and makes none, if an earlier choice serves the key's sizes.

        Args:
            key, options: the plan's key, and the options with the key's layouts.

        Raises:
            VTensorError: the model takes no such sizes, or no plan can be made.
        """
        kind, known, failed = self._kind(key), Known(), Failed()
        open_sizes = self.source.open_of(key)
        for choice in self._candidates(kind, key, options):
            if (symbolic := choice.plan_for(open_sizes, known)) is None:
                continue
            if symbolic.serves(open_sizes, known):
                return None
            failed[choice] = symbolic
        return self._new(key, options, kind, known, failed)[1]

    def record(
        self,
        key: PlanKey,
        options: Options,
        network: SimplifiedNetwork,
        lowered: LoweredGraph,
        *,
        exact: bool = False,
    ) -> tuple[Plan, Choice]:
        """Record a choice that was made for a key; return its plan and the choice.

        Args:
            key, options: the plan's key, and the options with the key's layouts.
            network: the simplified graph that the choice was made for.
            lowered: the choice as a lowered graph.
            exact: True if the choice serves no other sizes.
        """
        kind, known = self._kind(key), Known()
        plan, choice = self._recorded(key, options, network, lowered, known, confirming=False)
        choice.exact = exact
        kind.add(choice)
        return self._with_quality(plan, choice, key), choice

    def measured(self, key: PlanKey, options: Options) -> tuple[Plan, Choice] | None:
        """Return the plan for a key and its choice; None if memory has no measured choice for the
        key's input kind.

        If no measured choice serves the key's sizes, a new one is made with them as hints.

        Args:
            key: the plan's key.
            options: the options with the key's layouts, whose ``first`` is None.
        """
        kind = self._kind(key)
        if any(not known.provisional and not known.exact for known in kind.choices):
            plan, choice = self.plan(key, options)
            assert choice is not None, "there is no lock file"
            return plan, choice
        return None

    def confirmed(self, choice: Choice, plan: Plan, lowered: LoweredGraph) -> bool:
        """Mark a provisional choice as measured if the measured choice is equal to it.

        Args:
            choice, plan: the provisional choice and its plan.
            lowered: the measured choice for the plan's sizes.

        Returns:
            True if the two are equal; False, with nothing changed, if they differ or the
            provisional choice was made for other sizes.
        """
        from resolver.choice import ChosenGraph, lasting_certificate
        from vtensor.runtime.planning.choosing import same_choice

        before = choice.decisions
        if plan.taken_from is not None or before is None:
            return False
        if not same_choice(ChosenGraph.of(lowered).chosen, before.chosen):
            return False
        choice.decisions, choice.provisional = ChosenGraph.of(lowered), False
        if choice.symbolic is not None:
            choice.symbolic.proven = lasting_certificate(lowered) is not None
        if "nodes" in vars(plan):
            vars(plan)["nodes"] = replace(plan.nodes, graph=lowered)
        return True

    def nodes(self, choice: Choice, key: PlanKey, options: Options) -> Nodes:
        """Record a choice for the sizes of a key alone, and return the nodes of the plan, for
        inspection.

        Args:
            choice: the choice of the key's plan.
            key, options: the plan's key and options.
        """
        from resolver.choice import ChoiceRefused
        from vtensor.runtime.planning.choosing import (
            plan_in_full,
            recorded,
            resolved_of,
            simplified,
        )

        source_graph = self.source.graph(key.shapes, key.known, key.inner)
        graph = simplified(source_graph, options, choice.applied)
        decisions = choice.of(graph)
        if decisions is None:  # the entry's nodes are damaged, but not its steps
            return plan_in_full(graph, options, self._workspace).nodes
        try:
            lowered = decisions.on(graph)
        except ChoiceRefused:  # on numbers, other nodes are constants than in the trace
            networks = Networks(self.source)  # its own: ``networks`` is for one thread at a time
            networks.of(choice.key, options, {})
            graph = networks.of(key, options, {}).graph
            lowered = decisions.on(graph)
        if choice.key == key:
            lowered = replace(lowered, certificate=decisions.chosen.certificate)
        resolved = partial(resolved_of, graph, options)
        arguments = graph, resolved, lowered, replace(options, progress=None), self._workspace
        return recorded(*arguments, confirming=True).nodes

    def _followed(
        self,
        lock: Lock,
        key: PlanKey,
        options: Options,
        kind: InputKind,
        network: SimplifiedNetwork,
        known: Known,
    ) -> tuple[Plan, Choice | None] | None:
        """Return the plan for a key by a lock file, some of whose sizes data decide, and its
        choice.

        Returns None if the file's choice does not hold for sizes that differ from the file's own.
        An approximate choice never does, since its errors were measured for these.

        Args:
            lock: the lock file's part for this segment.
            key, options: the plan's key, and the options with the key's layouts.
            kind: the choices that exist for inputs of the key's kind.
            network: the simplified graph for the key.
            known: the values of traces that were evaluated earlier. Newly evaluated ones are added.

        Raises:
            LockError: the file's choice does not hold for sizes that the caller decides, or for the
                file's own.
        """
        from vtensor.runtime.planning.locked_plan import check_given, is_own, locked_graph

        graph = self.source.graph(key.shapes, key.known, key.inner)
        check_given(lock, graph, options)
        try:
            lowered = locked_graph(lock, network.graph, options, self._workspace)
        except LockError as why:
            if is_own(lock, graph):
                raise
            _log.warning("%s\n  for these sizes, a plan is made by the file's options", why)
            return None
        if lowered.inexact:
            return (self._locked(lock, key, options), None) if is_own(lock, graph) else None
        recording = self._recorded(key, options, network, lowered, known, confirming=True)
        plan, choice = self._add_choice(key, kind, recording, provisional=False)
        plan.origin, choice.locked = LOCKED, True
        return plan, choice

    def _locked(self, lock: Lock, key: PlanKey, options: Options) -> Plan:
        """Return the plan of a lock file."""
        from vtensor.runtime.planning.choosing import simplified
        from vtensor.runtime.planning.locked_plan import locked_plan

        source_graph = self.source.graph(key.shapes, key.known, key.inner)
        return locked_plan(
            lock, source_graph, simplified(source_graph, options), options, self._workspace
        )


def _symbolic_later(plan: Plan, open_sizes: Sequence[int]) -> Callable[[], SymbolicPlan] | None:
    """Return a function that makes a symbolic plan, for saving, of a plan recorded for fixed sizes.

    Returns None if the plan calls back into Python, because no cache entry can hold it.

    Args:
        plan: the plan.
        open_sizes: the values of the open sizes for which the plan was recorded, in order.
    """
    if plan.recording is None:
        return None
    from vtensor.runtime.planning.tracing import plan_of_numbers

    recorder, ends, steps = plan.recording
    return partial(plan_of_numbers, recorder, ends, steps, open_sizes)


def _check_excess(lowered: LoweredGraph, options: Options) -> None:
    """Check that a choice for other sizes is good enough for a session that never refines.

    Raises:
        ChoiceRefused: the best choice may save more than ``refine.SLACK`` of the estimated time.
    """
    from optimizer.choice.bound import excess
    from resolver.choice import ChoiceRefused
    from vtensor.runtime.planning.refine import SLACK

    if any(lowered.transforms()) and excess(lowered, options.settings) > SLACK:
        raise ChoiceRefused("Transforms take more of the time than they did")
