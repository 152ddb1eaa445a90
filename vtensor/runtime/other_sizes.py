"""What a session knows for other sizes than those of its plans.

It learns as it makes plans: strategies, and where rules were applied. A first plan that was taken
as it was kept, or is of a blueprint on disk, teaches nothing, since nobody made its graph. Behind
it other sizes have the blueprints on disk; else the strategy that it was made of, which is read
when it is needed.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from ptensor.stopping import go_on
from vtensor.language.cached import cached_property
from vtensor.runtime.better import UNPROVEN, Better
from vtensor.runtime.graphs import Graphs
from vtensor.runtime.keys import PlanKey
from vtensor.runtime.last_used import LastUsed
from vtensor.runtime.options import Options, kept_in, transferable
from vtensor.runtime.plan import Plan
from vtensor.runtime.programs import KeptPlan
from vtensor.runtime.ready import (
    ready_for_blueprints,
    ready_to_draw,
    ready_to_measure,
    ready_to_plan,
)

if TYPE_CHECKING:
    from resolver.lowered import LoweredGraph
    from vtensor.language.graph import Graph
    from vtensor.runtime.blueprint_entries import BlueprintEntries
    from vtensor.runtime.drawing_notes import DrawingNotes
    from vtensor.runtime.kept_blueprints import KeptBlueprint
    from vtensor.runtime.outline import Sized
    from vtensor.runtime.outlines import Outlines
    from vtensor.runtime.strategies import Strategies
    from vtensor.runtime.strategy_cache import Network, StrategyCache

#: Seconds that making a plan in full takes at least, for each of its steps.
STEP_S = 0.005


class OtherSizes:
    """What plans for some sizes tell of those for others. Who makes plans uses it.

    Args:
        graphs: what plans are made of.
        last: those that are kept.

    Attributes:
        applied: where rules were applied to graphs of earlier sizes; None where none was made.
        full_s: seconds that making a plan in full takes at least, by what is on disk.
    """

    def __init__(self, graphs: Graphs, last: LastUsed) -> None:
        self.graphs, self._workspace, self._last = graphs, graphs.workspace, last
        self.applied: set[tuple[str, str]] | None = None
        self.full_s = 0.0
        #: A plan that was taken as it was kept: of its graph nothing is known yet.
        self._unread: PlanKey | None = None
        #: The same, as long as blueprints that were kept behind it are asked.
        self._behind: PlanKey | None = None
        #: The first plan, if it was of a blueprint that was kept.
        self._began: PlanKey | None = None
        self._has_drawn = False  # blueprints of its own: others' are not asked any more

    @cached_property
    def strategies(self) -> Strategies:
        """What was chosen for its plans; a plan that was kept needs none of it."""
        from vtensor.runtime.strategies import Strategies

        return Strategies()

    @cached_property
    def outlines(self) -> Outlines:
        """How its graph is made for other sizes."""
        from vtensor.runtime.outlines import Outlines

        return Outlines(self.graphs.source)

    @cached_property
    def blueprints(self) -> BlueprintEntries | None:
        """The blueprints on disk; None where nothing of this session is kept."""
        entries = kept_in(self.graphs.options)
        if entries is None:
            return None
        ready_for_blueprints()
        from vtensor.runtime.blueprint_entries import BlueprintEntries

        return BlueprintEntries(self.graphs.source, entries, self._workspace)

    @property
    def disk(self) -> StrategyCache | None:
        """The strategies on disk; None where nothing of this session is kept."""
        from vtensor.runtime.strategy_cache import StrategyCache

        return StrategyCache.of(self.graphs.options)

    def sized(self, key: PlanKey, options: Options, traces: bool = True) -> Sized | None:
        """The simplified graph, where it is made as those of other sizes were.

        Args:
            key, options: what a plan is for.
            traces: as for ``Outlines.graph``.
        """
        if self.applied is None:
            return None
        from vtensor.runtime.planning import simplified

        simplify = partial(simplified, options=options, only=self.applied)
        return self.outlines.graph(key, simplify, self.applied, traces)

    def learn(self, graph: Graph) -> None:
        """A plan is made of a simplified graph: for other sizes its rules are looked for."""
        self.applied = {*(self.applied or ()), *graph.applied}

    def behind(self, key: PlanKey) -> None:
        """A plan was taken as it was kept."""
        self._unread, self._behind = self._unread or key, self._behind or key

    def began_with(self, key: PlanKey) -> bool:
        """The first plan was of a blueprint that was kept; this is its key."""
        return self._began == key

    @property
    def _none_kept(self) -> bool:
        """Nobody has kept anything of the model, so there are no blueprints to be read."""
        return self.graphs.source.surface is None

    @property
    def unread(self) -> bool:
        """No plan was made of a graph so far: there are those that were kept, if any."""
        return self.applied is None

    def has_kept(self, key: PlanKey) -> bool:
        """Whether blueprints are on disk that may serve a key."""
        if self._none_kept or self.blueprints is None:
            return False
        lender, options = self._lender(self._behind), self.graphs.entering(key)
        provisional = lender is not None and lender.provisional
        return any(True for _ in self.blueprints.of(key, options, lender, provisional))

    def kept(self, key: PlanKey, options: Options) -> Plan | None:
        """The plan of a blueprint that was kept; until this process has drawn its own."""
        behind = self._behind
        if self._has_drawn or (behind is not None and behind.kind != key.kind):
            return None
        if not transferable(options) or self._none_kept or self.blueprints is None:
            return None
        if options.deterministic:  # a plan is then compared with one of its own
            return None
        full, lender = partial(self._by_nodes, key, options), self._lender(behind)
        found = self.blueprints.plan(key, options, lender, full)
        if found is None:
            return None
        plan, blueprint = found
        if behind is None:
            self._began = self._began or key
        self.full_s = max(self.full_s, STEP_S * blueprint.steps)
        if not blueprint.proven:
            make = partial(self._own, key, options, plan)
            plan.better = Better(make, UNPROVEN, ready=ready_to_measure)
        return plan

    def _by_nodes(self, key: PlanKey, options: Options, blueprint: KeptBlueprint) -> Plan:
        """The plan of a blueprint that was kept, of nodes."""
        ready_to_plan()
        from vtensor.runtime.planning import plan_of
        from vtensor.runtime.taken_over import taken

        graph = self.graphs.simplified(key, options, blueprint.applied)
        network, disk = self.graphs.network(key, graph, options), self.disk
        known = disk.beside(network, blueprint.chosen) if disk is not None else None
        if known is None:
            return plan_of(graph, options, self._workspace)
        return taken(known, key, graph, options, self._workspace)

    def _own(self, key: PlanKey, options: Options, plan: Plan) -> Plan:
        """The plan that is chosen for sizes of which there is one of a kept blueprint."""
        from vtensor.runtime.own_plan import own_plan

        def given() -> tuple[LoweredGraph, Graph]:
            return plan.graph, self.graphs.simplified(key, options)

        return own_plan(given, plan.taken_from or {}, options, self._workspace)

    def beside(self, key: PlanKey, options: Options) -> Network | None:
        """What a plan for other sizes is made of, where the only one so far was taken as it was
        kept: simplified as that one's graph was, with what was chosen for it at hand. None where
        that is read, or cannot be had without its graph.
        """
        unread = self._unread
        if unread is None or unread.kind != key.kind or not transferable(options):
            return None
        kept, disk = self._lent(), self.disk
        if kept is not None and disk is not None and self.applied is None:
            graph = self.graphs.simplified(key, options, kept.applied)
            network = self.graphs.network(key, graph, options)
            if (known := disk.beside(network, kept.chosen)) is not None:
                self.strategies.add(known)
                self.applied, self._unread = {*kept.applied}, None
                return network
        self.read()
        return None

    def draw(self, key: PlanKey, options: Options, notes: DrawingNotes | None) -> None:
        """Draw what a plan is of whose graph no outline has made.

        Args:
            key, options: of the plan.
            notes: what notes how it is drawn.
        """
        sized = self.sized(key, options)
        if sized is not None:
            go_on()
            about = sized, options, self._workspace
            self.strategies.foresee(key, *about, lambda: None, notes=notes)

    def read(self) -> None:
        """Have at hand what was chosen for a plan that was taken as it was kept."""
        if (key := self._unread) is not None and self.applied is None:
            options = self.graphs.entering(key)
            ready_to_draw(self.graphs.source.reads_nodes)
            self._lent()
            network, disk = self.graphs.own_network(key, options), self.disk
            known = disk.known(network) if disk is not None else None
            if known is not None:
                self.strategies.add(known)
                self.applied = {*network.graph.applied}
        self._unread = None  # only now: who wants a plan may have stopped it, and reads by himself

    def forget(self) -> None:
        """Blueprints that were kept are not asked any more: this process has drawn its own."""
        self._behind, self._has_drawn = None, True
        if (blueprints := self.__dict__.get("blueprints")) is not None:
            blueprints.forget()

    def _lent(self) -> KeptPlan | None:
        """The plan that was taken as it was kept; plans of nodes have its weights from now on."""
        plan = self._lender(self._unread)
        if plan is not None:
            plan.lend()
        return plan

    def _lender(self, key: PlanKey | None) -> KeptPlan | None:
        """The plan that was taken as it was kept, if it has still its place."""
        plan = self._last.get(key) if key is not None else None
        return plan if isinstance(plan, KeptPlan) else None
