"""Which plan a run of a session gets.

One that was made for the same is found (``LastUsed``); else one is made (``Planner``), by one
thread at a time (``Turn``), and kept. A plan that may be off is exchanged for a better one between
two runs (``Better``). Beside runs the session gets ready for other sizes (``Ahead``).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from ptensor.layout import Layout
from ptensor.pages import give_back
from vtensor.errors import InputError, ValuesNeededError
from vtensor.runtime.ahead import Ahead
from vtensor.runtime.better import Better
from vtensor.runtime.drawings import attempt
from vtensor.runtime.feeds import Feed, Port
from vtensor.runtime.graphs import Graphs
from vtensor.runtime.keys import InputKey, PlanKey
from vtensor.runtime.last_used import LastUsed
from vtensor.runtime.leftovers import drop_unused_kernels, let_go
from vtensor.runtime.options import Options
from vtensor.runtime.other_sizes import OtherSizes
from vtensor.runtime.plan import Plan
from vtensor.runtime.planner import Planner
from vtensor.runtime.ready import ready_to_measure
from vtensor.runtime.source import Source
from vtensor.runtime.turns import Turn
from vtensor.runtime.workspace import Workspace

if TYPE_CHECKING:
    from vtensor.language.graph import Graph

T = TypeVar("T")

#: What a provisional plan says of itself.
PROVISIONAL = "it is provisional: chosen by what libraries declare, without times of this machine"

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

    Attributes:
        ahead: what is made beside runs.
    """

    def __init__(self, source: Source, options: Options, workspace: Workspace) -> None:
        self.source = source
        self._options = options
        self._workspace = workspace
        self._kept = LastUsed()
        self._making = Turn()
        self._graphs = Graphs(source, options, workspace)
        self._others = OtherSizes(self._graphs, self._kept)
        self._planner = Planner(self._others, self._kept)
        self.ahead = Ahead(self._others, self._kept, self._making, self._planner.keep)
        self._count = 0  # of plans that were made
        self._awaited = False  # somebody waits for a better plan

    def close(self) -> list[Better[None]]:
        """What is made in the background is not wanted any more; what lingers of it."""
        for plan in self._kept.clear():  # a better one of theirs may have this
            _stop(plan)
        return self.ahead.close()

    def __len__(self) -> int:
        return len(self._kept)

    def declared(self) -> Plan:
        """The plan for the shapes that are declared, which are all known."""
        rows = (
            InputKey(p.name, tuple(size or 0 for size in p.shape), p.dtype, self._expected(p))
            for p in self.source.inputs
        )
        plan = self.get(PlanKey(tuple(rows)))
        attempt(partial(self.ahead.was_made, plan))
        return plan

    def find(self, feeds: Mapping[str, Feed], wanted: Sequence[str]) -> tuple[Plan, PlanKey]:
        """The plan for what is given and wanted, and its key."""
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
        """The plan that is made for this."""
        plan = self._found(key)
        return plan if plan is not None else self._making.take(partial(self._make, key))

    def _make(self, key: PlanKey) -> Plan:
        """Make a plan and keep it, unless another thread did so meanwhile."""
        if (plan := self._found(key)) is not None:
            return plan
        begun, before = time.perf_counter(), self._workspace.weights.nbytes

        def make() -> Plan:
            self.ahead.drawings.before_a_plan()
            return self._planner.plan(key, self._graphs.entering(key))

        plan = self._workspace.executor.planning(make)
        drop_unused_kernels()
        if self._workspace.weights.nbytes > before:
            tidy = give_back if self._count else let_go  # what it was made with is not needed
            tidy()
        elif self._count % PLANS_KEPT == 0:  # kernels of dropped plans leave holes
            give_back()
        self.ahead.longest_s = max(self.ahead.longest_s, time.perf_counter() - begun)
        plan.better = self._provisional(key, plan) or plan.better
        if plan.better is not None:
            plan.better.wait(self._full_s)
        plan.better = self._later(key, plan) or plan.better
        self._count += 1
        self._keep(key, plan)
        return plan

    def current(self, key: PlanKey, plan: Plan) -> bool:
        """Whether a plan that is used again still has its place."""
        return self._found(key) in (plan, None)

    def strict(self, plan: Plan) -> Plan:
        """The plan that answers in a plan's place where numbers are not finite."""
        return self._planning(lambda: plan.strict)

    def used(self, key: PlanKey) -> None:
        """A plan was used."""
        self._kept.use(key)

    def keeps(self, key: PlanKey, plan: Plan) -> bool:
        """Whether a plan still has its place."""
        return self._kept.get(key) is plan

    def _found(self, key: PlanKey) -> Plan | None:
        plan = self._kept.use(key)
        if plan is not None and (better := plan.better) is not None:
            better.wanted(partial(self._exchange, key, plan), self._count)
        return plan

    def _exchange(self, key: PlanKey, old: Plan, new: Plan) -> None:
        """Later runs have another plan; those that are under way end on theirs."""
        first = old.provisional

        def learn() -> None:
            if new is old:  # the same is chosen by what was measured
                self._others.strategies.confirm(key)
                new.better, new.provisional = None, False
            elif self._options.later is None and new.taken_from is None:
                self._others.strategies.keep(key, new.graph, self._options)
            if new.better is not None:
                new.better.wait(self._full_s)

        self._making.take(learn)
        network, disk = self._kept.exchange(key, old, new), self._others.disk
        if disk is not None and network is not None and new.taken_from is None:
            told = network()
            disk.keep(told, new.graph)
            if began := self._others.began_with(key):
                self._making.take(partial(self._others.learn, told.graph))
            if first or began:
                self.ahead.write([partial(self._planner.keep, told)])
        if first and new.taken_from is None:  # other sizes are to be as the new one is
            self.ahead.foreseen = False

    def _keep(self, key: PlanKey, plan: Plan) -> None:
        for dropped in self._kept.keep(key, plan, 1 if self._workspace.full else PLANS_KEPT):
            _stop(dropped)

    def has(self, plan: Plan) -> bool:
        """Return whether a plan is one of these."""
        return self._kept.key_of(plan) is not None

    def settled(self, plan: Plan) -> Plan:
        """What takes the place of a plan, where that is provisional: made now."""
        key, better = self._kept.key_of(plan), plan.better
        if key is None or not plan.provisional:
            return plan
        if better is not None:
            self._awaited = True
            better.now(partial(self._exchange, key, plan))
        now = self._kept.get(key)
        return plan if now is None else now

    def made_of(self, plan: Plan) -> tuple[Graph, Options]:
        """What one of the last plans was made of: a graph before any pass, and options.

        Raises:
            InputError: it delivers values beside the network's outputs, or is kept no longer.
        """
        key = self._kept.key_of(plan)
        if key is None:
            raise InputError("many runs since have made plans of their own: run this once more")
        if key.inner:
            raise InputError(f"the last run asked for {', '.join(key.inner)}: run outputs alone")
        return self._graphs.given(key), self._graphs.entering(key)

    def _provisional(self, key: PlanKey, plan: Plan) -> Better[Plan] | None:
        """What takes the place of a provisional plan."""
        if not plan.provisional:
            return None
        make = partial(self._measured, key, plan)
        return Better(make, PROVISIONAL, self.ahead.hurries, ready_to_measure)

    def _measured(self, key: PlanKey, first: Plan) -> Plan:
        """The plan by times of this machine; where there is one for other sizes, as that is."""
        from vtensor.runtime.own_plan import TIME_LIMIT
        from vtensor.runtime.provisional import confirmed, measured

        options = replace(self._graphs.entering(key), first=None)
        if self._others.strategies.measured(key):
            return self._planning(partial(self._planner.plan, key, options))
        make = self._kept.networks.get(key, partial(self._graphs.own_network, key, options))
        network, disk = replace(make(), options=options), self._others.disk
        if disk is not None:
            found = self._planning(partial(disk.plan, network, self._workspace))
            if found is not None:  # another process has measured it
                return first if confirmed(first, found.plan.graph) else found.plan
        limit = options.settings.time_limit if self._awaited else TIME_LIMIT
        return measured(first, network.graph, options, self._workspace, limit)

    def _planning(self, work: Callable[[], T]) -> T:
        """Run ``work``, which makes a plan, in a turn, and return its result."""
        return self._making.take(partial(self._workspace.executor.planning, work))

    def _later(self, key: PlanKey, plan: Plan) -> Better[Plan] | None:
        """What takes the place of a plan of the outputs, where times are to be measured."""
        if self._options.later is None or key.inner:
            return None
        from vtensor.runtime.tuned_later import tuned_later

        graph = partial(self._graphs.given, key)
        return tuned_later(plan, graph, self._graphs.entering(key), self._workspace)

    @property
    def _full_s(self) -> float:
        """Seconds that making a plan in full takes."""
        return max(self.ahead.longest_s, self._others.full_s)

    def _expected(self, port: Port) -> Layout:
        layout = self._options.entry.get(port.name)
        fits = layout is not None and len(layout.dims) == len(port.dims)
        return layout if layout is not None and fits else Layout.plain(port.dims)


def _stop(plan: Plan) -> None:
    """Nobody wants a better one than this any more."""
    if (better := plan.better) is not None:
        better.stop()
