"""Runners of the graphs that Python steps of a model call, and of the numeric parts after them."""

from __future__ import annotations

import os
from functools import partial
from typing import TYPE_CHECKING, Any

from vtensor.frontends.edges.model import Edges, Run
from vtensor.runtime.planning.options import Options
from vtensor.runtime.planning.source import Source
from vtensor.runtime.recording.workspace import Workspace
from vtensor.runtime.runner import Runner
from vtensor.runtime.segments import run_part

if TYPE_CHECKING:
    from onnx import ModelProto

    from vtensor.storage.entries import Entries


class Graphs:
    """The runners of the graphs of a session's Python steps, and of the parts after these.

    Args:
        reference: True allows nodes to run on ONNX's reference evaluator.
        root: the folder that must contain files of external data.
        entries: the cache; None without one.
        workspace: the executor and memory that plans share.

    Attributes:
        options: the options of plans, without layouts of inputs and outputs.
        runners: the runners that were made, in order.
    """

    def __init__(
        self,
        reference: bool,
        root: str | os.PathLike[str] | None,
        entries: Entries | None,
        workspace: Workspace,
    ) -> None:
        self._reference, self._root = reference, root
        self._entries, self._workspace = entries, workspace
        self.options = Options()
        self.runners: list[Runner] = []

    def opened(self, graph: ModelProto) -> Run:
        """Return what runs a graph, given as a model; its values may be texts and sequences.

        Raises:
            ModelError: the graph is inconsistent, or uses what VTensor lacks.
        """
        edges = Edges(graph, self.opened, self._workspace.max_bytes)
        limits = self._reference, self._workspace.max_bytes, self._root
        source = Source(edges.core, *limits, self._entries)
        runner = Runner(source, self.options, self._workspace, declared=False)
        self.runners.append(runner)
        run: Any = partial(run_part, runner)
        return run if edges.plain else partial(edges.run, core=run)
