"""Runners of the graphs that Python steps of a model call."""

from __future__ import annotations

import os
from functools import partial
from typing import TYPE_CHECKING, Any

from vtensor.frontends.edges.model import Edges, Run
from vtensor.runtime.planning.options import Options
from vtensor.runtime.planning.source import Source
from vtensor.runtime.recording.workspace import Workspace
from vtensor.runtime.runner import Runner

if TYPE_CHECKING:
    from onnx import ModelProto


class Graphs:
    """The runners of the graphs of a session's Python steps.

    Args:
        reference: True allows nodes to run on ONNX's reference evaluator.
        root: the folder that must contain files of external data.
        options: the options of the session's plans.
        workspace: the executor and memory that plans share.

    Attributes:
        runners: the runners that were made, in order.
    """

    def __init__(
        self,
        reference: bool,
        root: str | os.PathLike[str] | None,
        options: Options,
        workspace: Workspace,
    ) -> None:
        self._reference, self._root = reference, root
        self._options, self._workspace = options, workspace
        self.runners: list[Runner] = []

    def opened(self, graph: ModelProto) -> Run:
        """Return what runs a graph, given as a model; its values may be texts and sequences.

        Raises:
            ModelError: the graph is inconsistent, or uses what VTensor lacks.
        """
        edges = Edges(graph, self.opened, self._workspace.max_bytes)
        source = Source(edges.core, self._reference, self._workspace.max_bytes, self._root)
        runner = Runner(source, self._options, self._workspace, declared=False)
        self.runners.append(runner)
        run: Any = runner.run
        return run if edges.plain else partial(edges.run, core=run)
