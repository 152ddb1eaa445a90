"""The store of a session's plans.

The plans that were used last are in memory. Any other plan is made by the planner, on one thread at
a time. The background worker refines choices, prepares choices for shapes that are likely to come,
and saves choices for later processes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, TypeVar
from weakref import WeakKeyDictionary

from ptensor.layout import Layout
from ptensor.pages import give_back
from vtensor.errors import InputError, ValuesNeededError
from vtensor.language.process.forks import process_lock
from vtensor.runtime.execution.plan import Plan
from vtensor.runtime.execution.trim import trim_kernels, trim_memory
from vtensor.runtime.planning.background import UNPROVEN, BackgroundTask
from vtensor.runtime.planning.choice import Choice
from vtensor.runtime.planning.keys import InputKey, PlanKey
from vtensor.runtime.planning.options import Options, transferable
from vtensor.runtime.planning.planner import Planner
from vtensor.runtime.planning.planning_lock import PlanningLock
from vtensor.runtime.planning.preload import preload_planning, preload_saving
from vtensor.runtime.planning.source import Source
from vtensor.runtime.recording.workspace import Workspace
from vtensor.storage.inputs import Feed, Port

if TYPE_CHECKING:
    from vtensor.language.graph import Graph
    from vtensor.runtime.cache.plans import SavedPlans
    from vtensor.runtime.planning.networks import SimplifiedNetwork

T = TypeVar("T")

#: The begin of the note of a task that replaces a provisional plan.
PROVISIONAL = "it is provisional: chosen by what libraries declare, without times of this machine"

#: The most plans in memory of one session. They share packed weights and an arena; each has its own
#: steps and descriptions.
MOST_PLANS = 32

#: The most steps of all plans in memory, if these are more than ``MOST_PLANS``.
MOST_STEPS = 1 << 15

#: The most plans in memory with which a part of a model, whose sizes change with data, gets its own
#: choices for further sizes.
MOST_REFINED = 8

#: Seconds for which saving may go on after the end of the process has begun.
GRACE_S = 3.0

#: The most times that saving yields to a request for a plan.
YIELDS = 2

#: The most shapes with neighbouring sizes for which choices are prepared after a run.
MOST_NEIGHBOURS = 2

#: Guards the tables of all plan stores, for moments; its holder takes no other lock.
_tables_lock = process_lock(2)


class PlanInMemory(NamedTuple):
    """A plan in memory and its choice, which is None for a lock file."""

    plan: Plan
    choice: Choice | None


class PlanStore:
    """The plans of a session, made on their first request; the last used ones stay in memory.

    Concurrent requests make each plan once, one after another; a plan in memory is returned without
    waiting.

    Args:
        source: the graph or model of the session.
        options: the options of plans. Their input layouts are the layouts in which inputs are
            expected.
        workspace: the arena, weights and executors that plans share.
        cache: the saved plans; None without a cache.
        most: the most plans in memory; None is ``MOST_PLANS``.

    Attributes:
        prepared: True if the planning of likely shapes was queued, or is not needed.
    """

    def __init__(
        self,
        source: Source,
        options: Options,
        workspace: Workspace,
        cache: SavedPlans | None,
        most: int | None = None,
    ) -> None:
        self._most = MOST_PLANS if most is None else most
        self.source, self._options, self._workspace = source, options, workspace
        #: The plans in memory, in the order of their last use. An ``OrderedDict`` is not used: if a
        #: signal handler raises an exception while a key is hashed, it would raise a ``KeyError``
        #: instead.
        self._plans: dict[PlanKey, PlanInMemory] = {}
        #: Keys of plans that were replaced, as long as a run or caller holds them.
        self._replaced: WeakKeyDictionary[Plan, PlanKey] = WeakKeyDictionary()
        self._making = PlanningLock()
        self._planner, self._cache = Planner(source, options, workspace, cache), cache
        self._tasks: list[BackgroundTask[None]] = []
        self._unsaved: list[Choice] = []
        self._closed = self.prepared = False
        self._longest_s = 0.0  # the seconds of the slowest planning
        self._count = 0  # plans made
        self._awaited = False  # a caller waits for a refined plan

    def __len__(self) -> int:
        return len(self._plans)

    def close(self) -> list[BackgroundTask[None]]:
        """Stop background work and release all plans.

        Returns the tasks for other processes, which may still run for their grace period.
        """
        with _tables_lock:
            held, self._plans = [*self._plans.values()], {}
            self._closed = True
            tasks, self._tasks = self._tasks, []
        for plan, _ in held:
            if plan.refinement is not None:
                plan.refinement.stop()
        for task in tasks:
            task.stop()
        return [task for task in tasks if task.for_other_processes]

    def declared(self) -> Plan:
        """Return the plan for the declared shapes; only for a model without open sizes."""
        rows = (
            InputKey(p.name, tuple(size or 0 for size in p.shape), p.dtype, self._expected(p))
            for p in self.source.inputs
        )
        return self.get(PlanKey(tuple(rows)))

    def find(self, feeds: Mapping[str, Feed], wanted: Sequence[str]) -> tuple[Plan, PlanKey]:
        """Return the plan of a run and its key; make the plan if it is not in memory.

        Args:
            feeds: the inputs, by name.
            wanted: the names of the run's results: outputs, or other values of the network.
        """
        known = {port.name for port in self.source.outputs}
        inner = tuple(dict.fromkeys(name for name in wanted if name not in known))
        while True:
            deciding = self.source.deciding
            rows = (
                InputKey.of(
                    port,
                    feed := feeds[port.name],
                    self._expected(port.of_rank(len(feed.dims))),
                    port.name in deciding,
                )
                for port in self.source.inputs
            )
            key = PlanKey(tuple(rows), inner)
            try:
                return self.get(key), key
            except ValuesNeededError:
                if self.source.deciding == deciding:
                    raise

    def get(self, key: PlanKey) -> Plan:
        """Return the plan for a key; make it if it is not in memory."""
        held = self._use_plan(key)
        return held.plan if held is not None else self._making.take(partial(self._make, key))

    def _make(self, key: PlanKey) -> Plan:
        """Make a plan and add it, unless another thread did so meanwhile."""
        if (held := self._use_plan(key)) is not None:
            return held.plan
        begun, before = time.perf_counter(), self._workspace.weights.nbytes
        make = partial(self._planner.plan, key, self._options_for(key))
        plan, choice = self._workspace.executor.planning(make)
        self.source.seen = key.shapes, key.known
        trim_kernels()
        self._tidy(before)
        seconds = time.perf_counter() - begun
        if choice is not None:
            choice.seconds = seconds = max(seconds, choice.seconds)
        self._longest_s = max(self._longest_s, seconds)
        self._count += 1
        self._refinable(key, plan, choice)
        self._add(key, PlanInMemory(plan, choice))
        if choice is not None and not choice.cached and not choice.saved:
            self._unsaved.append(choice)
        return plan

    def _tidy(self, before: int) -> None:
        """Return free memory to the system, if planning packed weights or many plans were made
        since the last time.

        Args:
            before: the bytes of packed weights before planning.
        """
        if self._workspace.weights.nbytes > before:
            tidy = give_back if self._count else trim_memory
            tidy()
        elif self._count % MOST_PLANS == 0:  # kernels of dropped plans leave holes
            give_back()

    def _use_plan(self, key: PlanKey) -> PlanInMemory | None:
        """Return the plan in memory for a key, mark it as used and queue its refinement.

        Returns None if there is none.
        """
        with _tables_lock:
            held = self._plans.pop(key, None)
            if held is not None:
                self._plans[key] = held
        if held is not None and (refinement := held.plan.refinement) is not None:
            refinement.wanted(partial(self._exchange, key, held.plan), self._count)
        return held

    def _add(self, key: PlanKey, held: PlanInMemory) -> None:
        """Add a plan and drop the least recently used ones beyond the most.

        If the memory budget is exceeded, all other plans are dropped.
        """
        most, dropped = 1 if self._workspace.full else self._most, list[PlanInMemory]()
        with _tables_lock:
            self._plans[key] = held
            left = MOST_STEPS - sum(other.plan.count for other in self._plans.values())
            while len(self._plans) > (most if left >= 0 else min(most, MOST_PLANS)):
                dropped.append(self._plans.pop(next(iter(self._plans))))
                left += dropped[-1].plan.count
        for plan, _ in dropped:  # freed after the lock is released
            if plan.refinement is not None:
                plan.refinement.stop()

    # --- requests of runners

    def current(self, key: PlanKey, plan: Plan) -> bool:
        """Mark the plan in memory for a key as used.

        Returns False if that is another plan than ``plan``, which it has replaced.
        """
        held = self._use_plan(key)
        return held is None or held.plan is plan

    def strict(self, plan: Plan) -> Plan:
        """Return the strict plan, which repeats a run of ``plan`` in which a number was not
        finite.
        """
        return self._planning(lambda: plan.strict)

    def used(self, key: PlanKey) -> None:
        """Mark the plan in memory for a key as used, without queueing its refinement."""
        with _tables_lock:
            if (held := self._plans.pop(key, None)) is not None:
                self._plans[key] = held

    def holds(self, key: PlanKey, plan: Plan) -> bool:
        """Return whether a plan is the one in memory for a key."""
        with _tables_lock:
            held = self._plans.get(key)
        return held is not None and held.plan is plan

    def _key_of(self, plan: Plan) -> PlanKey | None:
        """Return the key of a plan that is in memory, or that another plan has replaced.

        Returns None if the plan was dropped.
        """
        with _tables_lock:
            keys = (key for key, held in self._plans.items() if held.plan is plan)
            return next(keys, None) or self._replaced.get(plan)

    def has(self, plan: Plan) -> bool:
        """Return whether a plan is in memory or was replaced; False if it was dropped."""
        return self._key_of(plan) is not None

    def made_of(self, plan: Plan) -> tuple[Graph, Options]:
        """Return the graph before any pass, and the options, that a plan was made of.

        Raises:
            InputError: the plan delivers values other than outputs, or was dropped.
        """
        key = self._key_of(plan)
        if key is None:
            raise InputError("many runs since have made plans of their own: run this once more")
        if key.inner:
            raise InputError(f"the last run asked for {', '.join(key.inner)}: run outputs alone")
        return self.source.graph(key.shapes, key.known, key.inner), self._options_for(key)

    def settled(self, plan: Plan) -> Plan:
        """Return the measured plan that replaces a provisional plan; it is made now, before this
        method returns.

        A plan that is not provisional is returned unchanged.
        """
        key, refinement = self._key_of(plan), plan.refinement
        if key is None or not plan.provisional:
            return plan
        if refinement is not None:
            self._awaited = True
            refinement.now(partial(self._exchange, key, plan))
        with _tables_lock:
            held = self._plans.get(key)
        return plan if held is None else held.plan

    # --- refining

    def _refinable(self, key: PlanKey, plan: Plan, choice: Choice | None) -> None:
        """Give a plan the background task that may replace it by a better plan; give none if no
        better plan is to be made.

        Args:
            key, plan: the plan and its key.
            choice: the plan's choice; None for a lock file.
        """
        options = self._options
        if choice is None or options.lock is not None:
            return
        if plan.provisional:
            make = partial(self._measured, key, plan, choice)
            plan.refinement = BackgroundTask(make, PROVISIONAL, self._hurries, self._preload)
        elif options.later is not None and not key.inner:
            make = partial(self._tuned, key, plan)
            why = "it was made without measured times"
            plan.refinement = BackgroundTask(make, why, before_start=self._preload)
            return
        elif (
            plan.taken_from is not None
            and not options.deterministic
            and (self._most <= MOST_PLANS or len(self) < MOST_REFINED)
            and not (choice.symbolic is not None and choice.symbolic.proven)
        ):
            make = partial(self._with_own_choice, key, plan)
            plan.refinement = BackgroundTask(make, UNPROVEN, before_start=self._preload)
        if plan.refinement is not None:
            plan.refinement.wait(self._longest_s)

    def _measured(self, key: PlanKey, plan: Plan, choice: Choice) -> Plan:
        """Return the plan by times of this machine that replaces a provisional plan.

        Returns ``plan`` itself if both choices are equal.

        Args:
            key, plan, choice: the key of the provisional plan, that plan, and its choice.
        """
        from vtensor.runtime.planning.refine import TIME_LIMIT, measured

        options = replace(self._options_for(key), first=None, progress=None)
        if (known_plan := self._planning(lambda: self._planner.measured(key, options))) is not None:
            return self._saving_later(*known_plan)
        network = self._network(key, options)
        limit = options.settings.time_limit if self._awaited else TIME_LIMIT
        measure = partial(measured, network.graph, options, limit)
        lowered = self._workspace.executor.planning(measure)
        if self._planning(lambda: self._planner.confirmed(choice, plan, lowered)):
            self._save_later(choice)
            return plan
        record = partial(self._planner.record, key, options, network, lowered)
        return self._saving_later(*self._planning(record))

    def _with_own_choice(self, key: PlanKey, plan: Plan) -> Plan:
        """Return the plan that replaces ``plan`` for a key. Its choice is made for the key's exact
        sizes; that of ``plan`` was made for other sizes.

        Raises:
            PlanStays: a choice for the key's exact sizes saves too little time.
        """
        from vtensor.runtime.planning.refine import own_choice

        options = replace(self._options_for(key), first=None, progress=None)
        network = self._network(key, options)
        choose = partial(own_choice, plan, network.graph, options)
        lowered = self._workspace.executor.planning(choose)
        record = partial(self._planner.record, key, options, network, lowered, exact=True)
        replacement = self._saving_later(*self._planning(record))
        replacement.replaces = plan.taken_from
        return replacement

    def _tuned(self, key: PlanKey, plan: Plan) -> Plan:
        """Return the plan that replaces ``plan`` and is chosen by measured times of its nodes.

        Raises:
            PlanStays: measured times give no faster plan.
        """
        from vtensor.runtime.planning.refine import tuned

        options = self._options_for(key)
        graph = self._network(key, options).graph
        tune = partial(tuned, plan, graph, options, self._workspace)
        return self._workspace.executor.planning(tune)

    def _preload(self) -> None:
        """Import the modules for refining and preparing, on the background thread."""
        preload_planning(self.source.reads_nodes)

    def _network(self, key: PlanKey, options: Options) -> SimplifiedNetwork:
        """Return the simplified graph for a key."""
        return self._planning(partial(self._planner.networks.of, key, options, {}))

    def _saving_later(self, plan: Plan, choice: Choice) -> Plan:
        """Queue the saving of ``choice``, which is that of a plan made in the background, and
        return its plan.
        """
        self._save_later(choice)
        return plan

    def _exchange(self, key: PlanKey, old: Plan, new: Plan) -> None:
        """Replace a key's plan ``old`` by ``new`` for later runs. Runs in progress end on ``old``.

        If both are the same plan, measured times have confirmed it, and it is no longer
        provisional.
        """
        provisional = old.provisional
        if new is old:  # measured times confirm the choice
            new.refinement, new.provisional = None, False
        with _tables_lock:
            held = self._plans.get(key)
            if held is not None and held.plan is old and new is not old:
                self._plans[key] = PlanInMemory(new, held.choice)
                self._replaced[old] = key
        if provisional and new.taken_from is None:  # other shapes are prepared from the new choice
            self.prepared = False

    def _planning(self, work: Callable[[], T]) -> T:
        """Run ``work`` under the planning lock and return its result."""
        return self._making.take(partial(self._workspace.executor.planning, work))

    def _hurries(self) -> bool:
        """Return whether background work need not sleep now: no run is in progress, or a request
        for a plan waits until that work stops.
        """
        return not self._workspace.lanes.busy or bool(self._making.waiting)

    # --- preparing and saving

    def has_run(self) -> None:
        """Queue the saving of choices. Called after a run has ended, so that no run waits for
        saving.
        """
        if self._unsaved and self._cache is not None:
            unsaved, self._unsaved = self._unsaved, []
            save = partial(self._save, unsaved)
            arguments = save, "", self._hurries, preload_saving
            self._begin(BackgroundTask(*arguments, for_other_processes=True, grace_s=GRACE_S))

    def _save_later(self, choice: Choice) -> None:
        """Queue the saving of a choice that was made in the background."""
        choice.saved = False
        self._unsaved.append(choice)
        self.has_run()

    def _save(self, choices: Sequence[Choice]) -> None:
        """Write choices to the cache. A thread that requests a plan meanwhile goes first."""
        if self._cache is None:
            return
        for choice in choices:
            write = partial(self._cache.write, choice, self._options_for(choice.key))
            self._making.run_background(write, YIELDS)

    def prepare(self, key: PlanKey) -> None:
        """Queue planning for shapes that are likely to come.

        Args:
            key: the key of a plan that is used again.
        """
        self.prepared = True
        options = self._options
        if options.deterministic or options.later or options.lock or not transferable(options):
            return
        known = {port_key.name for port_key in key.inputs if port_key.value is not None}
        ones = [key.with_shapes(shapes) for shapes in self.source.likely_shapes(key.shapes, known)]
        neighbours = [
            key.with_shapes(shapes) for shapes in self.source.neighbour_shapes(key.shapes, known)
        ]
        if ones:
            prepare = partial(self._prepare, ones, neighbours)
            self._begin(BackgroundTask(prepare, "", self._hurries, self._preload))

    def _prepare(self, ones: Sequence[PlanKey], neighbours: Sequence[PlanKey]) -> None:
        left = MOST_NEIGHBOURS
        for key in (*ones, *neighbours):
            if self._workspace.full or not left:
                break
            choices: list[Choice] = []
            self._making.run_background(partial(self._prepare_one, key, choices))
            left -= bool(choices and key in neighbours)
            self._unsaved += choices
        self._workspace.make_room()
        self.has_run()

    def _prepare_one(self, key: PlanKey, choices: list[Choice]) -> None:
        prepare = partial(self._planner.prepare, key, self._options_for(key))
        choice = self._workspace.executor.planning(prepare)
        if choice is not None:
            choices.append(choice)

    def _begin(self, task: BackgroundTask[None]) -> None:
        """Queue a background task, unless the session is closed."""
        with _tables_lock:
            self._tasks = [*(running for running in self._tasks if not running.done), task]
            if self._closed:
                task.stop()
        task.wanted(_drop_result)

    def _options_for(self, key: PlanKey) -> Options:
        """Return the options with the input layouts of a key."""
        return replace(self._options, entry=key.entry)

    def _expected(self, port: Port) -> Layout:
        layout = self._options.entry.get(port.name)
        fits = layout is not None and len(layout.dims) == len(port.dims)
        return layout if layout is not None and fits else Layout.plain(port.dims)


def _drop_result(_: object) -> None:
    """Drop the result of a background task."""
