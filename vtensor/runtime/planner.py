"""How the plan for a key is made: in the soonest way that there is.

In this order: of a plan that was written down; as the cache keeps it; of a blueprint that is kept
(last of the blueprints, once a graph was made); of a blueprint that this process drew; of a
strategy for other sizes; of the one on disk for exactly these; of a strategy, with other variants
around what does not fit; in full.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache, partial
from typing import TYPE_CHECKING

from ptensor.stopping import go_on
from vtensor.runtime.keys import PlanKey
from vtensor.runtime.last_used import LastUsed
from vtensor.runtime.options import Options, kept_in, transferable
from vtensor.runtime.other_sizes import OtherSizes
from vtensor.runtime.plan import Plan
from vtensor.runtime.plan_entry import PlanEntry
from vtensor.runtime.ready import ready_to_measure, ready_to_plan

if TYPE_CHECKING:
    from vtensor.runtime.lock import Lock
    from vtensor.runtime.outline import Sized
    from vtensor.runtime.strategies import Refused
    from vtensor.runtime.strategy_cache import Network

#: After so many plans in a row that no process has kept as they run, none is looked for: sizes that
#: grow with every run have none.
MISSES = 8


class Planner:
    """Makes the plans of a session. Used by one thread at a time.

    Args:
        others: what is known for other sizes.
        last: where what a plan is made of is noted, if it may be exchanged.
    """

    def __init__(self, others: OtherSizes, last: LastUsed) -> None:
        self._graphs, self._others, self._last = others.graphs, others, last
        self._workspace = others.graphs.workspace
        self._missed = 0  # plans in a row of which none was kept as it runs

    def plan(self, key: PlanKey, options: Options) -> Plan:
        """The plan for this.

        Args:
            key: what it is for.
            options: as ``Graphs.entering`` says, or without provisional plans.
        """
        if options.lock is not None:
            return self._locked(options.lock, key, options)
        about = self._graphs.source, key, options, self._workspace
        entry = PlanEntry(*about, kept_in(options))
        plan = None
        if self._missed < MISSES:
            plan = entry.plan(partial(self._by_nodes, key, options))
            self._missed = self._missed + 1 if plan is None else 0
        if plan is not None:
            if plan.provisional:  # once: later somebody has looked at weights
                self._last.networks[key] = cache(partial(self._graphs.own_network, key, options))
            self._others.behind(key)
            self._graphs.source.seen = key.shapes, key.known
            return plan
        asked = self._others.unread
        if asked and (plan := self._behind_kept(key, options)) is not None:
            return plan
        ready_to_plan()
        return self._made(key, options, entry, asked)

    def keep(self, network: Network) -> None:
        """Write down a plan as it runs, whose choices are on disk: it is made once more, while
        somebody notes how, for nobody did when it was.

        Args:
            network: what it is made of.
        """
        options, apart = self._graphs.entering(network.key), self._workspace.apart()
        entry = PlanEntry(self._graphs.source, network.key, options, apart, kept_in(options))
        if (disk := self._others.disk) is None or not entry.can_note(network):
            return
        resting = replace(network.options, progress=lambda _: go_on())
        entry.noted(network, partial(disk.plan, replace(network, options=resting), apart))

    def _locked(self, lock: Lock, key: PlanKey, options: Options) -> Plan:
        """The plan that was written down."""
        ready_to_plan()
        from vtensor.runtime.locked import locked_plan
        from vtensor.runtime.planning import simplified

        given = self._graphs.given(key)
        simple = simplified(given, options)
        return locked_plan(lock, given, simple, options, self._workspace)

    def _by_nodes(self, key: PlanKey, options: Options, chosen: bytes) -> Plan:
        """A plan of what was chosen, of nodes."""
        ready_to_plan()
        from vtensor.runtime.planning import plan_of

        network, disk = self._graphs.own_network(key, options), self._others.disk
        found = disk.plan(network, self._workspace, chosen) if disk else None
        return found.plan if found else plan_of(network.graph, options, self._workspace)

    def _made(self, key: PlanKey, options: Options, entry: PlanEntry, asked: bool) -> Plan:
        """A plan that is not there as it runs; kept blueprints were asked, or are to be."""
        others, sized = self._others, None
        refused: Refused = {}
        network = others.beside(key, options)
        beside = network is not None
        if network is None:
            plan = self._drawn(key, options, refused)
            if plan is None and not asked:
                plan = self._behind_kept(key, options)
            if plan is not None:
                return plan
            sized = others.sized(key, options)
            if sized is not None:
                graph = sized.graph
            else:
                graph = self._graphs.simplified(key, options, others.applied)
            network = self._graphs.network(key, graph, options)
        if sized is not None:  # made sooner than looked for on disk
            plan = self._fitting(network, sized, refused, mending=False)
            if plan is not None:
                return plan
        if (plan := self._chosen(network, entry)) is not None:
            return plan
        self._ask_disk(network, ahead=beside or sized is not None)
        if (plan := self._fitting(network, sized, refused)) is not None:
            others.learn(network.graph)
            if sized is None and plan.taken_from and not options.deterministic:
                plan.drawing = partial(others.draw, key, options)
            return plan
        if others.applied is not None:  # more rules may apply to these sizes
            network = replace(network, graph=self._graphs.simplified(key, options))
        others.learn(network.graph)
        return self._in_full(network)

    def _behind_kept(self, key: PlanKey, options: Options) -> Plan | None:
        """The plan of a blueprint that is kept, where there is one for these sizes."""
        plan = self._others.kept(key, options)
        if plan is not None and (plan.better is not None or plan.provisional):
            self._last.networks[key] = cache(partial(self._graphs.own_network, key, options))
        return plan

    def _drawn(self, key: PlanKey, options: Options, refused: Refused) -> Plan | None:
        """The plan of a blueprint, where there is one for these sizes; else what it refuses."""
        given, outlines = self._others.outlines.of(key)
        about = given, outlines, options, self._workspace, refused
        plan = self._others.strategies.drawn(key, *about)
        if plan is not None and (plan.better is not None or plan.provisional):
            self._last.networks[key] = partial(self._graphs.own_network, key, options)
        return plan

    def _fitting(
        self, network: Network, sized: Sized | None, refused: Refused, mending: bool = True
    ) -> Plan | None:
        """The plan of a strategy that fits, and is not among those that were refused."""
        key, graph, options = network.key, network.graph, network.options
        plan = self._others.strategies.plan(
            key, graph, options, self._workspace, sized, refused, mending=mending
        )
        if plan is not None and (plan.better is not None or plan.provisional):
            self._last.networks[key] = lambda: network
        return plan

    def _chosen(self, network: Network, entry: PlanEntry) -> Plan | None:
        """The plan of the strategy on disk for exactly this."""
        if (disk := self._others.disk) is None:
            return None
        found = entry.noted(network, partial(disk.plan, network, self._workspace))
        if found is None:
            return None
        self._others.strategies.add(found.known)
        self._others.learn(network.graph)
        if found.plan.provisional:
            self._last.networks[network.key] = lambda: network
        if network.options.settings.clock is None:
            return found.plan
        from vtensor.runtime.planning import within_tolerance

        return within_tolerance(network.graph, found.plan, network.options, self._workspace)

    def _ask_disk(self, network: Network, ahead: bool) -> None:
        """Have at hand what earlier processes chose for other sizes, and for these ahead of any
        run.
        """
        if (disk := self._others.disk) is None:
            return
        strategies = self._others.strategies
        if ahead and (foreseen := disk.foreseen(network)) is not None:
            strategies.add(foreseen)
        if transferable(network.options) and not strategies.measured(network.key):
            for other in disk.others(network):
                strategies.add(other)

    def _in_full(self, network: Network) -> Plan:
        """A plan that takes nothing over; a provisional one, where the session has such."""
        from vtensor.runtime.planning import plan_of
        from vtensor.runtime.provisional import first_plan

        key, graph, options = network.key, network.graph, network.options
        first, disk = options.first, self._others.disk
        if first is None and (options.settings.probe or options.settings.clock):
            ready_to_measure()
        told = options.soon
        plan = (plan_of if first is None else first_plan)(graph, told, self._workspace)
        self._others.strategies.keep(key, plan.graph, told, plan.provisional)
        if disk is not None and not plan.graph.inexact:  # errors hold for one set of weights
            name = network.name if first is None else network.first
            plan.writing = partial(disk.keep, replace(network, options=told), plan.graph, name)
            if not plan.provisional:
                plan.written()
        if plan.provisional:
            self._last.networks[key] = lambda: network
        return plan
