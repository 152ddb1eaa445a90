"""The plans of a session: what each was made for, and the last used ones."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import cached_property, partial
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from ptensor.layout import Layout
from ptensor.pages import give_back
from ptensor.stopping import go_on
from vtensor.errors import InputError, ValuesNeededError
from vtensor.language import collector
from vtensor.language.forks import process_lock
from vtensor.language.index import importing
from vtensor.runtime.better import UNPROVEN, Better
from vtensor.runtime.drawings import Drawings, attempt
from vtensor.runtime.feeds import Feed, Port
from vtensor.runtime.keys import InputKey, PlanKey
from vtensor.runtime.options import Options, kept_in, transferable
from vtensor.runtime.plan import Plan
from vtensor.runtime.plan_entry import PlanEntry
from vtensor.runtime.programs import KeptPlan
from vtensor.runtime.ready import (
    ready_for_blueprints,
    ready_to_draw,
    ready_to_measure,
    ready_to_plan,
)
from vtensor.runtime.source import Source
from vtensor.runtime.turns import Turn
from vtensor.runtime.workspace import Workspace

if TYPE_CHECKING:
    from resolver.lowered import LoweredGraph
    from vtensor.language.graph import Graph
    from vtensor.runtime.blueprint_entries import BlueprintEntries
    from vtensor.runtime.kept_blueprints import KeptBlueprint
    from vtensor.runtime.outline import Outline, Sized
    from vtensor.runtime.outlines import Outlines
    from vtensor.runtime.strategies import Known, Refused, Strategies
    from vtensor.runtime.strategy_cache import Network, StrategyCache

#: Guards what sessions keep, for moments; whoever has it takes no other lock.
_keeping = process_lock(2)

#: What a provisional plan says of itself.
PROVISIONAL = "it is provisional: chosen by what libraries declare, without times of this machine"

#: Seconds that making a plan in full takes at least, for each of its steps.
STEP_S = 0.005

#: Plans that a session keeps, the last used ones. They share packed weights and one arena; what a
#: plan holds by itself, steps and descriptions, is about 2 MB of a network of some hundred nodes.
PLANS_KEPT = 32


class PlanCache:
    """Makes plans when they are first asked for, and keeps the last used ones.

    Threads that want the same plan, or several of them, make one after the other, each once; who
    wants a plan that is there has it at once.

    Args:
        source: what graphs are made from.
        options: how plans are made; its entry layouts are what is expected of inputs.
        workspace: what plans share.
    """

    def __init__(self, source: Source, options: Options, workspace: Workspace) -> None:
        self.source = source
        self._options = options
        self._workspace = workspace
        self._kept: OrderedDict[PlanKey, Plan] = OrderedDict()
        self._making = Turn()
        self._count = 0  # of plans that were made
        self._longest = 0.0  # that making a plan took, in seconds: the first is made in full
        #: What plans that may be exchanged were made of: the better one is kept on disk.
        self._networks: dict[PlanKey, Callable[[], Network]] = {}
        #: Plans that others took the place of, as long as somebody has them.
        self._exchanged: WeakKeyDictionary[Plan, PlanKey] = WeakKeyDictionary()
        self._drawings = Drawings(workspace)
        #: What is done beside runs.
        self._works: list[Better[None]] = []
        self._closed = self._awaited = False
        #: It is ready for other sizes, as far as it can be.
        self.foreseen = False
        #: Where rules were applied to graphs of earlier sizes.
        self._applied: set[tuple[str, str]] | None = None
        #: Strategies whose blueprints were written down, or could not be; each with its outline.
        self._written: list[tuple[Known, Outline]] = []
        #: Blueprints are on disk, behind a plan that was taken as it was kept.
        self._ready = False
        #: A plan that was taken as it was kept: of its graph nothing is known yet.
        self._unread: PlanKey | None = None

    @cached_property
    def _strategies(self) -> Strategies:
        """What was chosen for its plans; a plan that was kept needs none of it."""
        from vtensor.runtime.strategies import Strategies

        one: Strategies = self.__dict__.setdefault("_strategies", Strategies())
        return one  # two threads get the same

    @cached_property
    def _blueprints(self) -> BlueprintEntries | None:
        """The blueprints on disk; None where nothing of this session is kept."""
        entries = kept_in(self._options)
        if entries is None:
            return None
        ready_for_blueprints()
        from vtensor.runtime.blueprint_entries import BlueprintEntries

        return BlueprintEntries(self.source, entries, self._workspace)

    @cached_property
    def _outlines(self) -> Outlines:
        """How its graph is made for other sizes."""
        from vtensor.runtime.outlines import Outlines

        return Outlines(self.source)

    def close(self) -> None:
        """What is made in the background is not wanted any more."""
        with _keeping:
            self._closed = True
            plans, works = [*self._kept.values()], self._works
            # Some of them have this.
            self._kept, self._networks, self._works = OrderedDict(), {}, []
        for plan in plans:
            _stop(plan)
        for work in works:
            work.stop()

    def __len__(self) -> int:
        return len(self._kept)

    def declared(self) -> Plan:
        """The plan for the shapes that are declared, which are all known."""
        rows = (
            InputKey(p.name, tuple(size or 0 for size in p.shape), p.dtype, self._expected(p))
            for p in self.source.inputs
        )
        return self.get(PlanKey(tuple(rows)))

    def find(self, feeds: Mapping[str, Feed], wanted: Sequence[str]) -> tuple[Plan, PlanKey]:
        """The plan for what is given and wanted, and its key."""
        known = {port.name for port in self.source.outputs}
        inner = tuple(dict.fromkeys(name for name in wanted if name not in known))
        while True:
            deciding = self.source.deciding
            rows = (
                InputKey.of(port, feeds[port.name], self._expected(port), port.name in deciding)
                for port in self.source.inputs
            )
            key = PlanKey(tuple(rows), inner)
            try:
                return self.get(key), key
            except ValuesNeededError:
                if self.source.deciding == deciding:
                    raise

    def get(self, key: PlanKey) -> Plan:
        """The plan that is made for this."""
        if (plan := self._found(key)) is not None:
            return plan
        with self._making.taken():
            if (plan := self._found(key)) is not None:  # made while we waited
                return plan
            begun = time.perf_counter()
            waiting = collector.later() if self._options.settings.clock is None else nullcontext()
            with self._workspace.executor.planning(), waiting:
                self._drawings.before_a_plan()
                before = self._workspace.weights.nbytes
                plan = self._planned(key, self._entering(key))
            if self._workspace.weights.nbytes > before:
                give_back()  # what was packed, resolved, solved and measured is gone
            self._longest = max(self._longest, time.perf_counter() - begun)
            plan.better = self._provisional(key, plan) or plan.better
            if plan.better is not None:
                plan.better.wait(self._longest)
            plan.better = self._later(key, plan) or plan.better
            self._count += 1
            self._keep(key, plan)
        return plan

    def has_run(self, plan: Plan) -> None:
        """Draw the blueprint of a plan that has run, for sizes to come: beside runs, or before the
        next plan but one. Somebody waits for its first run, which that would slow down.
        """
        with _keeping:
            drawing, plan.drawing = plan.drawing, None
        if drawing is None:
            return
        key = self._key_of(plan)

        def draw() -> None:
            self._ahead(self._drawings.draw)
            if key is not None:
                self._ahead(partial(attempt, partial(self._keep_drawn, key)))

        self._drawings.add(drawing)
        self._beside(draw)

    def _ahead(self, work: Callable[[], None]) -> None:
        with self._workspace.executor.planning(), collector.later():
            self._making.ahead(work)

    def foresee(self, key: PlanKey) -> None:
        """A plan is used again: once, be ready for other sizes, where there may be such."""
        self.foreseen = True
        options = self._options
        if options.deterministic or options.later or options.lock or not transferable(options):
            return
        known = {one.name for one in key.inputs if one.value is not None}
        sizes = self.source.foreseen(key.shapes, known)
        keys = [key.sized(one) for one in sizes]
        works: list[Callable[[], None]] = [partial(self._foresee, one) for one in keys]
        works += [partial(self._keep_drawn, one) for one in keys]

        def draw() -> None:
            self._ahead(partial(attempt, partial(self._look, key)))
            for work in () if self._ready else (self._read, *works):
                self._ahead(partial(attempt, work))
            self._workspace.make_room()

        if works:
            self._beside(draw, reads=self._unread is not None and self._applied is None)

    def _look(self, key: PlanKey) -> None:
        """See whether blueprints are kept, so that nothing is to be read nor drawn."""
        if self._unread is not None and self._applied is None and self._blueprints is not None:
            found = self._blueprints.of(key, self._entering(key), self._lender(lend=False))
            self._ready = any(True for _ in found)

    def _keep_drawn(self, key: PlanKey) -> None:
        """Write down what was drawn, for other processes."""
        options = self._entering(key)
        if (disk := self._disk(options)) is None or self._blueprints is None:
            return
        if (sized := self._sized(key, options)) is None:
            return
        known = self._strategies.drawn_of(key, sized.outline)
        if known is None or (known, sized.outline) in self._written:
            return
        from vtensor.runtime.outlines import Outlines
        from vtensor.runtime.planning import simplified

        self._written.append((known, sized.outline))
        go_on()
        network, applied = self._network(key, sized.graph, options), self._applied or ()
        strategy = disk.payload(
            replace(network, key=known.key), sized.on(known.strategy), network.name
        )
        simplify = partial(simplified, options=options, only=applied)
        traced = partial(Outlines(self.source).graph, key, simplify, applied)
        self._blueprints.keep(network, known, strategy, traced)

    def _read(self) -> None:
        """Have at hand what was chosen for a plan that was taken as it was kept."""
        if (key := self._unread) is not None and self._applied is None:
            options = self._entering(key)
            reads_nodes = self.source.reads_nodes
            with (
                importing
            ):  # a fork waits for that; a graph is not made in it, as that waits for it
                ready_to_draw(reads_nodes)
            self._lender()
            network, disk = self._own_network(key, options), self._disk(options)
            known = disk.known(network) if disk is not None else None
            if known is not None:
                self._strategies.add(known)
                self._applied = {*network.graph.applied}
        self._unread = None  # only now: who wants a plan may have stopped it, and reads by himself

    def _foresee(self, key: PlanKey) -> None:
        if self._workspace.full:  # weights in further forms would take the place of plans
            return
        options = self._entering(key)
        sized, disk = self._sized(key, options), self._disk(options)
        if sized is None:
            return
        go_on()
        network = self._network(key, sized.graph, options)
        told = partial(disk.foreseen, network) if disk is not None else lambda: None
        chosen = self._strategies.foresee(key, sized, options, self._workspace, told)
        if chosen is not None and disk is not None:
            disk.keep(network, chosen, network.ahead)

    def _beside(self, work: Callable[[], None], reads: bool = False) -> None:
        """Do it between runs, and a little beside them; what reads a model imports by itself."""
        if not reads:
            ready_to_draw(self.source.reads_nodes)
        made = Better(work, "plans are made node by node", self._hurries)
        with _keeping:
            self._works = [*(one for one in self._works if not one.done), made]
            if self._closed:
                made.stop()
        made.wanted(lambda _: None)

    def _hurries(self) -> bool:
        """Nothing runs that would be in the way, or somebody waits for a plan."""
        return not self._workspace.lanes.busy or bool(self._making.waiting)

    def current(self, key: PlanKey, plan: Plan) -> bool:
        """Whether a plan that is used again still has its place."""
        return self._found(key) in (plan, None)

    def strict(self, plan: Plan) -> Plan:
        """The plan that answers in a plan's place where numbers are not finite."""
        with self._making.taken(), self._workspace.executor.planning():
            return plan.strict

    def used(self, key: PlanKey) -> set[Plan]:
        """All that are kept, after a use of this one."""
        with _keeping:
            if key in self._kept:
                self._kept.move_to_end(key)
            return set(self._kept.values())

    def _found(self, key: PlanKey) -> Plan | None:
        with _keeping:
            plan = self._kept.get(key)
            if plan is not None:
                self._kept.move_to_end(key)
        if plan is not None and (better := plan.better) is not None:
            better.wanted(partial(self._exchange, key, plan), self._count)
        return plan

    def _exchange(self, key: PlanKey, old: Plan, new: Plan) -> None:
        """Later runs have another plan; those that are under way end on theirs."""
        first = old.provisional
        with self._making.taken():
            if new is old:  # the same is chosen by what was measured
                self._strategies.confirm(key)
                new.better, new.provisional = None, False
            elif self._options.later is None and new.taken_from is None:
                self._strategies.keep(key, new.graph, self._options)
                self.foreseen &= not first  # other sizes are to be as the new one is
            if new.better is not None:
                new.better.wait(self._longest)
        with _keeping:
            network = self._networks.pop(key, None)
            if self._kept.get(key) is old:
                self._kept[key] = new
                if new is not old:
                    self._exchanged[old] = key
        disk = self._disk(self._options)
        if disk is not None and network is not None and new.taken_from is None:
            disk.keep(network(), new.graph)
            if first:
                self._entry(key, self._entering(key)).replaced()

    def _keep(self, key: PlanKey, plan: Plan) -> None:
        dropped: Plan | None = None  # freed after the lock is
        with _keeping:
            self._kept[key] = plan
            if len(self._kept) > (1 if self._workspace.full else PLANS_KEPT):
                oldest, dropped = self._kept.popitem(last=False)
                self._networks.pop(oldest, None)
        if dropped is not None:
            _stop(dropped)

    def settled(self, plan: Plan) -> Plan:
        """What takes the place of a plan, where that is provisional: made now."""
        key, better = self._key_of(plan), plan.better
        if key is None or not plan.provisional:
            return plan
        if better is not None:
            self._awaited = True
            better.now(partial(self._exchange, key, plan))
        with _keeping:
            return self._kept.get(key, plan)

    def _key_of(self, plan: Plan) -> PlanKey | None:
        """What a plan was made for; None where it is kept no longer."""
        with _keeping:
            found = next((key for key, one in self._kept.items() if one is plan), None)
            return found or self._exchanged.get(plan)

    def made_of(self, plan: Plan) -> tuple[Graph, Options]:
        """What one of the last plans was made of: a graph before any pass, and options.

        Raises:
            InputError: it delivers values beside the network's outputs, or is kept no longer.
        """
        key = self._key_of(plan)
        if key is None:
            raise InputError("many runs since have made plans of their own: run this once more")
        if key.inner:
            raise InputError(f"the last run asked for {', '.join(key.inner)}: run outputs alone")
        return self._graph(key), self._entering(key)

    def _graph(self, key: PlanKey) -> Graph:
        return self._making_graph(key)()

    def _making_graph(self, key: PlanKey) -> Callable[[], Graph]:
        return partial(self.source.graph, key.shapes, key.known, key.inner)

    def _provisional(self, key: PlanKey, plan: Plan) -> Better[Plan] | None:
        """What takes the place of a provisional plan."""
        if not plan.provisional:
            return None
        make = partial(self._measured, key, plan)
        return Better(make, PROVISIONAL, self._hurries, ready_to_measure)

    def _measured(self, key: PlanKey, first: Plan) -> Plan:
        """The plan by times of this machine; where there is one for other sizes, as that is."""
        from vtensor.runtime.own_plan import TIME_LIMIT
        from vtensor.runtime.provisional import measured

        options = replace(self._options, entry=key.entry, first=None)
        if self._strategies.measured(key):
            with self._making.taken(), self._workspace.executor.planning(), collector.later():
                return self._planned(key, options)
        graph = partial(self._simplified, key, options)
        limit = options.settings.time_limit if self._awaited else TIME_LIMIT
        return measured(first, graph, options, self._workspace, limit)

    def _simplified(self, key: PlanKey, options: Options) -> Graph:
        from vtensor.runtime.planning import simplified

        network = self._networks.get(key)
        return simplified(self._graph(key), options) if network is None else network().graph

    def _later(self, key: PlanKey, plan: Plan) -> Better[Plan] | None:
        """What takes the place of a plan of the outputs, where times are to be measured."""
        if self._options.later is None or key.inner:
            return None
        from vtensor.runtime.tuned_later import tuned_later

        options = self._entering(key)
        return tuned_later(plan, self._making_graph(key), options, self._workspace)

    def _planned(self, key: PlanKey, options: Options) -> Plan:
        if options.lock is not None:
            ready_to_plan()
            from vtensor.runtime.locked import locked_plan
            from vtensor.runtime.planning import simplified

            given = self._graph(key)
            simple = simplified(given, options)
            return locked_plan(options.lock, given, simple, options, self._workspace)
        kept = self._entry(key, options)
        if (plan := kept.plan(partial(self._by_nodes, key, options))) is not None:
            if plan.provisional:
                self._networks[key] = partial(self._own_network, key, options)
            self._unread, self.source.seen = self._unread or key, (key.shapes, key.known)
            return plan
        if (plan := self._as_drawn(key, options)) is not None:
            return plan
        ready_to_plan()
        return self._made(key, options, kept)

    def _as_drawn(self, key: PlanKey, options: Options) -> Plan | None:
        """The plan of a blueprint that was kept, where the only plan so far was, too."""
        unread = self._unread
        alike = unread is not None and self._applied is None and unread.kind == key.kind
        if not alike or not transferable(options) or self._blueprints is None:
            return None
        if options.deterministic:  # a plan is then compared with one of its own
            return None
        full = partial(self._drawn_by_nodes, key, options)
        found = self._blueprints.plan(key, options, self._lender(lend=False), full)
        if found is None:
            return None
        plan, blueprint = found
        self._longest = max(self._longest, STEP_S * blueprint.steps)
        if not blueprint.proven:
            make = partial(self._own, key, options, plan)
            plan.better = Better(make, UNPROVEN, ready=ready_to_measure)
        return plan

    def _drawn_by_nodes(self, key: PlanKey, options: Options, blueprint: KeptBlueprint) -> Plan:
        """The plan of a blueprint that was kept, of nodes."""
        ready_to_plan()
        from vtensor.runtime.planning import plan_of, simplified

        graph = simplified(self._graph(key), options, blueprint.applied)
        network, disk = self._network(key, graph, options), self._disk(options)
        known = disk.beside(network, blueprint.chosen) if disk is not None else None
        if known is None:
            return plan_of(graph, options, self._workspace)
        return self._strategies.by_nodes(known, key, graph, options, self._workspace)

    def _own(self, key: PlanKey, options: Options, plan: Plan) -> Plan:
        """The plan that is chosen for sizes of which there is one of a kept blueprint."""
        from vtensor.runtime.own_plan import own_plan
        from vtensor.runtime.planning import simplified

        def given() -> tuple[LoweredGraph, Graph]:
            return plan.graph, simplified(self._graph(key), options)

        return own_plan(given, plan.taken_from or {}, options, self._workspace)

    def _made(self, key: PlanKey, options: Options, kept: PlanEntry) -> Plan:
        """A plan that is not there as it runs."""
        from vtensor.runtime.planning import plan_of, simplified, within_tolerance
        from vtensor.runtime.provisional import first_plan

        disk = self._disk(options)
        refused: Refused = {}
        sized, unread = None, self._unread
        reads = unread is not None and unread.kind == key.kind and transferable(options)
        beside = self._beside_kept(key, options) if reads else None
        if beside is None:
            if (drawn := self._drawn(key, options, refused)) is not None:
                return drawn
            sized = self._sized(key, options)
            graph = sized.graph if sized else simplified(self._graph(key), options, self._applied)
        network = beside or self._network(key, graph, options)
        graph = network.graph
        if sized is not None:  # made sooner than looked for on disk
            plan = self._fitting(network, sized, refused, mending=False)
            if plan is not None:
                return plan
        find = partial(disk.plan, network, self._workspace) if disk else None
        if find is not None and (found := kept.noted(network, find)) is not None:
            self._strategies.add(found.known)
            self._applied = {*(self._applied or ()), *graph.applied}
            if found.plan.provisional:
                self._networks[key] = lambda: network
            if options.settings.clock is None:
                return found.plan
            return within_tolerance(graph, found.plan, options, self._workspace)
        if disk and (sized or beside) and (ahead := disk.foreseen(network)) is not None:
            self._strategies.add(ahead)
        if disk is not None and transferable(options) and not self._strategies.measured(key):
            for other in disk.others(network):
                self._strategies.add(other)
        plan = self._fitting(network, sized, refused)
        if plan is None and self._applied is not None:  # more rules may apply to these sizes
            graph = simplified(self._graph(key), options)
            network = replace(network, graph=graph)
        self._applied = {*(self._applied or ()), *graph.applied}
        if plan is None:
            first, name = options.first, network.name if options.first is None else network.first
            told = replace(options, settings=first or options.settings)
            plan = (plan_of if first is None else first_plan)(graph, told, self._workspace)
            self._strategies.keep(key, plan.graph, told, plan.provisional)
            if disk is not None and not plan.graph.inexact:  # errors hold for one set of weights
                disk.keep(replace(network, options=told), plan.graph, name)
                if first is None:
                    kept.replaced()
            if plan.provisional:
                self._networks[key] = lambda: network
        return plan

    def _beside_kept(self, key: PlanKey, options: Options) -> Network | None:
        """What a plan for other sizes is made of, where the only one so far was taken as it was
        kept: simplified as that one's graph was, with what was chosen for it at hand. None where
        that is read, or cannot be had without its graph.
        """
        from vtensor.runtime.planning import simplified

        kept, disk = self._lender(), self._disk(options)
        if kept is not None and disk is not None and self._applied is None:
            graph = simplified(self._graph(key), options, kept.applied)
            network = self._network(key, graph, options)
            if (known := disk.beside(network, kept.chosen)) is not None:
                self._strategies.add(known)
                self._applied, self._unread = {*kept.applied}, None
                return network
        self._read()
        return None

    def _lender(self, lend: bool = True) -> KeptPlan | None:
        """The plan that was taken as it was kept; plans of nodes may have its weights then."""
        with _keeping:
            plan = self._kept.get(self._unread) if self._unread is not None else None
        if not isinstance(plan, KeptPlan):
            return None
        if lend:
            plan.lend()
        return plan

    def _entry(self, key: PlanKey, options: Options) -> PlanEntry:
        """What the cache has of a plan as it runs."""
        return PlanEntry(self.source, key, options, self._workspace, kept_in(options))

    def _disk(self, options: Options) -> StrategyCache | None:
        from vtensor.runtime.strategy_cache import StrategyCache

        return StrategyCache.of(options)

    def _by_nodes(self, key: PlanKey, options: Options, chosen: bytes) -> Plan:
        """A plan of what was chosen, of nodes."""
        ready_to_plan()
        from vtensor.runtime.planning import plan_of

        network, disk = self._own_network(key, options), self._disk(options)
        found = disk.plan(network, self._workspace, chosen) if disk else None
        return found.plan if found else plan_of(network.graph, options, self._workspace)

    def _drawn(self, key: PlanKey, options: Options, refused: Refused) -> Plan | None:
        """The plan of a blueprint, where there is one for these sizes; else what it refuses."""
        given, outlines = self._outlines.of(key)
        plan = self._strategies.drawn(key, given, outlines, options, self._workspace, refused)
        if plan is not None and (plan.better is not None or plan.provisional):
            self._networks[key] = partial(self._own_network, key, options)
        return plan

    def _fitting(
        self, network: Network, sized: Sized | None, refused: Refused, mending: bool = True
    ) -> Plan | None:
        """The plan of a strategy that fits, and is not among those that were refused."""
        key, graph, options = network.key, network.graph, network.options
        plan = self._strategies.plan(
            key, graph, options, self._workspace, sized, refused, mending=mending
        )
        if plan is not None and (plan.better is not None or plan.provisional):
            self._networks[key] = lambda: network
        return plan

    def _sized(self, key: PlanKey, options: Options) -> Sized | None:
        """The simplified graph, where it is made as those of other sizes were."""
        if self._applied is None:
            return None
        from vtensor.runtime.planning import simplified

        simplify = partial(simplified, options=options, only=self._applied)
        return self._outlines.graph(key, simplify, self._applied)

    def _entering(self, key: PlanKey) -> Options:
        """The options for inputs that lie as a key says."""
        return replace(self._options, entry=key.entry)

    def _own_network(self, key: PlanKey, options: Options) -> Network:
        from vtensor.runtime.planning import simplified

        return self._network(key, simplified(self._graph(key), options), options)

    def _network(self, key: PlanKey, graph: Graph, options: Options) -> Network:
        from vtensor.runtime.strategy_cache import Network

        return Network(key, graph, options, self._workspace.executor.threads)

    def _expected(self, port: Port) -> Layout:
        return self._options.entry.get(port.name, Layout.plain(port.dims))


def _stop(plan: Plan) -> None:
    """Nobody wants a better one than this any more."""
    if (better := plan.better) is not None:
        better.stop()
