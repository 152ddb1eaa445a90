"""Which plan a run of a session gets.

The plans used last are in memory. Any other is made (``planner.py``), by one thread at a time, and
kept. In the background choices are refined, shapes that are likely to come are prepared, and what
was chosen is saved for later processes.
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
from vtensor.language.forks import process_lock
from vtensor.runtime.execution.plan import Plan
from vtensor.runtime.execution.trim import let_go, trim_kernels
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

#: What a provisional plan says of itself.
PROVISIONAL = "it is provisional: chosen by what libraries declare, without times of this machine"

#: Plans that a session keeps, the last used ones. They share packed weights and one arena; what a
#: plan holds by itself, steps and descriptions, is about 2 MB of a network of some hundred nodes.
MOST_PLANS = 32

#: Seconds for which saving may go on after the end of the process.
GRACE_S = 3.0

#: How often saving gives way to a plan that is wanted.
GIVES_WAY = 2

#: Shapes near those of a run that are prepared at most.
MOST_NEIGHBOURS = 2

#: Guards what sessions keep, for moments; its holder takes no other lock.
_keeping = process_lock(2)


class PlanEntry(NamedTuple):
    """A plan in memory, and the choice that it is of."""

    plan: Plan
    choice: Choice | None


class PlanStore:
    """Makes plans when they are first asked for, and keeps the last used ones.

    Threads that want the same plan, or several of them, make one after the other, each once; a
    plan that is in memory is there at once.

    Args:
        source: what graphs are made from.
        options: how plans are made; its entry layouts are what is expected of inputs.
        workspace: what plans share.
        cache: the plans that are saved; None without a cache.

    Attributes:
        prepared: what is likely to come was prepared, or there is nothing to prepare.
    """

    def __init__(
        self, source: Source, options: Options, workspace: Workspace, cache: SavedPlans | None
    ) -> None:
        self.source, self._options, self._workspace = source, options, workspace
        #: The last used one is last. An ``OrderedDict`` would turn what a signal handler raises
        #: while a key is hashed into a ``KeyError``.
        self._plans: dict[PlanKey, PlanEntry] = {}
        #: Plans that others took the place of, as long as somebody has them.
        self._replaced: WeakKeyDictionary[Plan, PlanKey] = WeakKeyDictionary()
        self._making = PlanningLock()
        self._planner, self._cache = Planner(source, options, workspace, cache), cache
        self._tasks: list[BackgroundTask[None]] = []
        self._unsaved: list[Choice] = []
        self._closed = self.prepared = False
        self._longest_s = 0.0  # that making a plan took
        self._count = 0  # of plans that were made
        self._awaited = False  # a refined plan is waited for

    def __len__(self) -> int:
        return len(self._plans)

    def close(self) -> list[BackgroundTask[None]]:
        """Stop background work and release all plans; return the work that goes on for a while."""
        with _keeping:
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
        """Return the plan for the declared shapes, which are all known."""
        rows = (
            InputKey(p.name, tuple(size or 0 for size in p.shape), p.dtype, self._expected(p))
            for p in self.source.inputs
        )
        return self.get(PlanKey(tuple(rows)))

    def find(self, feeds: Mapping[str, Feed], wanted: Sequence[str]) -> tuple[Plan, PlanKey]:
        """Return the plan for what is given and wanted, and its key."""
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
        """Return the plan for a key."""
        held = self._use(key)
        return held.plan if held is not None else self._making.take(partial(self._make, key))

    def _make(self, key: PlanKey) -> Plan:
        """Make a plan and keep it, unless another thread did so meanwhile."""
        if (held := self._use(key)) is not None:
            return held.plan
        begun, before = time.perf_counter(), self._workspace.weights.nbytes
        make = partial(self._planner.plan, key, self._entering(key))
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
        self._add(key, PlanEntry(plan, choice))
        if choice is not None and not choice.cached and not choice.saved:
            self._unsaved.append(choice)
        return plan

    def _tidy(self, before: int) -> None:
        """Give back what a plan was made with, where weights were packed or holes were left."""
        if self._workspace.weights.nbytes > before:
            tidy = give_back if self._count else let_go
            tidy()
        elif self._count % MOST_PLANS == 0:  # kernels of dropped plans leave holes
            give_back()

    def _use(self, key: PlanKey) -> PlanEntry | None:
        """Return a plan in memory as the last used one; a better one is then wanted."""
        with _keeping:
            held = self._plans.pop(key, None)
            if held is not None:
                self._plans[key] = held
        if held is not None and (refinement := held.plan.refinement) is not None:
            refinement.wanted(partial(self._exchange, key, held.plan), self._count)
        return held

    def _add(self, key: PlanKey, held: PlanEntry) -> None:
        """Keep a plan; those beyond what a session keeps go."""
        most, dropped = 1 if self._workspace.full else MOST_PLANS, list[PlanEntry]()
        with _keeping:
            self._plans[key] = held
            while len(self._plans) > most:
                dropped.append(self._plans.pop(next(iter(self._plans))))
        for plan, _ in dropped:  # freed after the lock is
            if plan.refinement is not None:
                plan.refinement.stop()

    # --- what runners ask

    def current(self, key: PlanKey, plan: Plan) -> bool:
        """Return whether a plan that is used again still has its place."""
        held = self._use(key)
        return held is None or held.plan is plan

    def strict(self, plan: Plan) -> Plan:
        """Return the plan that answers in a plan's place where numbers are not finite."""
        return self._planning(lambda: plan.strict)

    def used(self, key: PlanKey) -> None:
        """Note that a plan was used."""
        with _keeping:
            if (held := self._plans.pop(key, None)) is not None:
                self._plans[key] = held

    def holds(self, key: PlanKey, plan: Plan) -> bool:
        """Return whether a plan still has its place."""
        with _keeping:
            held = self._plans.get(key)
        return held is not None and held.plan is plan

    def _key_of(self, plan: Plan) -> PlanKey | None:
        """Return what a plan was made for; None of one that is kept no longer."""
        with _keeping:
            own = (key for key, held in self._plans.items() if held.plan is plan)
            return next(own, None) or self._replaced.get(plan)

    def has(self, plan: Plan) -> bool:
        """Return whether a plan is one of these."""
        return self._key_of(plan) is not None

    def made_of(self, plan: Plan) -> tuple[Graph, Options]:
        """Return what one of the last plans was made of: a graph before any pass, and options.

        Raises:
            InputError: it delivers values beside the network's outputs, or is kept no longer.
        """
        key = self._key_of(plan)
        if key is None:
            raise InputError("many runs since have made plans of their own: run this once more")
        if key.inner:
            raise InputError(f"the last run asked for {', '.join(key.inner)}: run outputs alone")
        return self.source.graph(key.shapes, key.known, key.inner), self._entering(key)

    def settled(self, plan: Plan) -> Plan:
        """Return the plan that takes the place of a provisional one, made now; else the plan."""
        key, refinement = self._key_of(plan), plan.refinement
        if key is None or not plan.provisional:
            return plan
        if refinement is not None:
            self._awaited = True
            refinement.now(partial(self._exchange, key, plan))
        with _keeping:
            held = self._plans.get(key)
        return plan if held is None else held.plan

    # --- refining

    def _refinable(self, key: PlanKey, plan: Plan, choice: Choice | None) -> None:
        """Note what may take a plan's place once its runs took as long as planning."""
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
            and not (choice.symbolic is not None and choice.symbolic.proven)
        ):
            make = partial(self._own, key, plan)
            plan.refinement = BackgroundTask(make, UNPROVEN, before_start=self._preload)
        if plan.refinement is not None:
            plan.refinement.wait(self._longest_s)

    def _measured(self, key: PlanKey, plan: Plan, choice: Choice) -> Plan:
        """Return the plan by times of this machine."""
        from vtensor.runtime.planning.refine import TIME_LIMIT, measured

        options = replace(self._entering(key), first=None, progress=None)
        if (made := self._planning(lambda: self._planner.measured(key, options))) is not None:
            return self._chosen(*made)
        network = self._network(key, options)
        limit = options.settings.time_limit if self._awaited else TIME_LIMIT
        measure = partial(measured, network.graph, options, limit)
        lowered = self._workspace.executor.planning(measure)
        if self._planning(lambda: self._planner.confirmed(choice, plan, lowered)):
            self._save_later(choice)
            return plan
        record = partial(self._planner.record, key, options, network, lowered)
        return self._chosen(*self._planning(record))

    def _own(self, key: PlanKey, plan: Plan) -> Plan:
        """Return the plan that is chosen for the sizes of one that was chosen for others."""
        from vtensor.runtime.planning.refine import own_choice

        options = replace(self._entering(key), first=None, progress=None)
        network = self._network(key, options)
        choose = partial(own_choice, plan, network.graph, options)
        lowered = self._workspace.executor.planning(choose)
        record = partial(self._planner.record, key, options, network, lowered, exact=True)
        own = self._chosen(*self._planning(record))
        own.replaces = plan.taken_from
        return own

    def _tuned(self, key: PlanKey, plan: Plan) -> Plan:
        """Return the plan by measured times."""
        from vtensor.runtime.planning.refine import tuned

        options = self._entering(key)
        graph = self._network(key, options).graph
        tune = partial(tuned, plan, graph, options, self._workspace)
        return self._workspace.executor.planning(tune)

    def _preload(self) -> None:
        """Import what refining and preparing need, on the background thread."""
        preload_planning(self.source.reads_nodes)

    def _network(self, key: PlanKey, options: Options) -> SimplifiedNetwork:
        """Return the simplified graph for a key."""
        return self._planning(partial(self._planner.networks.of, key, options, {}))

    def _chosen(self, plan: Plan, choice: Choice) -> Plan:
        """Note the choice of a plan that is to take another's place."""
        self._save_later(choice)
        return plan

    def _exchange(self, key: PlanKey, old: Plan, new: Plan) -> None:
        """Give later runs another plan; those that are under way end on theirs."""
        provisional = old.provisional
        if new is old:  # the same is chosen by what was measured
            new.refinement, new.provisional = None, False
        with _keeping:
            held = self._plans.get(key)
            if held is not None and held.plan is old and new is not old:
                self._plans[key] = PlanEntry(new, held.choice)
                self._replaced[old] = key
        if provisional and new.taken_from is None:  # other sizes are to be as the new one is
            self.prepared = False

    def _planning(self, work: Callable[[], T]) -> T:
        """Run ``work``, which plans, in a turn, and return its result."""
        return self._making.take(partial(self._workspace.executor.planning, work))

    def _hurries(self) -> bool:
        """Return whether nothing runs that would be disturbed, or a plan is waited for."""
        return not self._workspace.lanes.busy or bool(self._making.waiting)

    # --- preparing and saving

    def has_run(self) -> None:
        """Save what was chosen for plans that have run: before, answers were waited for."""
        if self._unsaved and self._cache is not None:
            unsaved, self._unsaved = self._unsaved, []
            save = partial(self._save, unsaved)
            about = save, "", self._hurries, preload_saving
            self._begin(BackgroundTask(*about, for_other_processes=True, grace_s=GRACE_S))

    def _save_later(self, choice: Choice) -> None:
        """Save a choice that was made in the background."""
        choice.saved = False
        self._unsaved.append(choice)
        self.has_run()

    def _save(self, choices: Sequence[Choice]) -> None:
        """Save choices, unless a plan is wanted meanwhile: then it is made first."""
        if self._cache is None:
            return
        for choice in choices:
            write = partial(self._cache.write, choice, self._entering(choice.key))
            self._making.ahead(write, GIVES_WAY)

    def prepare(self, key: PlanKey) -> None:
        """Plan for shapes that are likely to come, once a plan is used again."""
        self.prepared = True
        options = self._options
        if options.deterministic or options.later or options.lock or not transferable(options):
            return
        known = {one.name for one in key.inputs if one.value is not None}
        ones = [key.with_shapes(one) for one in self.source.likely_shapes(key.shapes, known)]
        neighbours = [
            key.with_shapes(one) for one in self.source.neighbour_shapes(key.shapes, known)
        ]
        if ones:
            prepare = partial(self._prepare, ones, neighbours)
            self._begin(BackgroundTask(prepare, "", self._hurries, self._preload))

    def _prepare(self, ones: Sequence[PlanKey], neighbours: Sequence[PlanKey]) -> None:
        left = MOST_NEIGHBOURS
        for key in (*ones, *neighbours):
            if self._workspace.full or not left:
                break
            made: list[Choice] = []
            self._making.ahead(partial(self._prepare_one, key, made))
            left -= bool(made and key in neighbours)
            self._unsaved += made
        self._workspace.make_room()
        self.has_run()

    def _prepare_one(self, key: PlanKey, made: list[Choice]) -> None:
        prepare = partial(self._planner.prepare, key, self._entering(key))
        choice = self._workspace.executor.planning(prepare)
        if choice is not None:
            made.append(choice)

    def _begin(self, task: BackgroundTask[None]) -> None:
        """Begin background work, unless the session is closed."""
        with _keeping:
            self._tasks = [*(one for one in self._tasks if not one.done), task]
            if self._closed:
                task.stop()
        task.wanted(_ignored)

    def _entering(self, key: PlanKey) -> Options:
        """Return the options for inputs that are laid out as a key says."""
        return replace(self._options, entry=key.entry)

    def _expected(self, port: Port) -> Layout:
        layout = self._options.entry.get(port.name)
        fits = layout is not None and len(layout.dims) == len(port.dims)
        return layout if layout is not None and fits else Layout.plain(port.dims)


def _ignored(_: object) -> None:
    """Nothing waits for the work."""
