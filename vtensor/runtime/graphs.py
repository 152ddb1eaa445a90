"""The graphs that a session's plans are made of."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import TYPE_CHECKING

from vtensor.runtime.keys import PlanKey
from vtensor.runtime.options import Options
from vtensor.runtime.source import Source
from vtensor.runtime.workspace import Workspace

if TYPE_CHECKING:
    from vtensor.language.graph import Graph
    from vtensor.runtime.strategy_cache import Network


class Graphs:
    """A session's network with the sizes of a key.

    Args:
        source: what graphs are made from.
        options: how plans are made.
        workspace: what they share.
    """

    def __init__(self, source: Source, options: Options, workspace: Workspace) -> None:
        self.source, self.options, self.workspace = source, options, workspace

    def entering(self, key: PlanKey) -> Options:
        """The options for inputs that lie as a key says."""
        return replace(self.options, entry=key.entry)

    def given(self, key: PlanKey) -> Graph:
        """The graph before any pass."""
        return self.source.graph(key.shapes, key.known, key.inner)

    def simplified(
        self, key: PlanKey, options: Options, only: Collection[tuple[str, str]] | None = None
    ) -> Graph:
        """The graph as it is planned; ``only`` as for ``planning.simplified``."""
        from vtensor.runtime.planning import simplified

        return simplified(self.given(key), options, only)

    def network(self, key: PlanKey, graph: Graph, options: Options) -> Network:
        """What a plan is made of, for caches: a simplified graph."""
        from vtensor.runtime.strategy_cache import Network

        packed = len(self.workspace.recipes) > 0
        looked_at = None if packed else self.source.looked_at
        return Network(key, graph, options, self.workspace.executor.threads, looked_at)

    def own_network(self, key: PlanKey, options: Options) -> Network:
        """The same, of the graph simplified by all rules."""
        return self.network(key, self.simplified(key, options), options)
