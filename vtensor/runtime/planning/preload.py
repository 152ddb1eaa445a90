"""Imports for background work, made before the work begins, under the lock that forks wait for."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from importlib import import_module

from optimizer.pipeline import import_passes
from ptensor.background_work import checkpoint
from vtensor.language.index import importing

#: Modules for saving.
SAVING = (
    "vtensor.frontends.files.fingerprint",
    "vtensor.runtime.cache.codec",
    "resolver.choice_data",
)

#: Modules for refining and preparing other than passes.
PLANNING = (
    "vtensor.runtime.planning.choosing",
    "vtensor.runtime.planning.symbolic_graph",
    "vtensor.runtime.planning.tracing",
    "vtensor.runtime.planning.refine",
    "vtensor.runtime.tuning.calibration",
    "vtensor.runtime.tuning.timings",
    "vtensor.runtime.tuning.tuner",
    "vtensor.runtime.tuning.peaks",
    "resolver.choice_data",
)

#: Modules for making graphs of a model's nodes.
READING = ("vtensor.frontends.tracing",)


def import_all(names: Iterable[str]) -> None:
    """Import modules, one at a time under the lock that forks wait for."""
    for name in names:
        with importing:
            import_module(name)


@cache  # later calls wait for no imports of other threads
def preload_saving() -> None:
    """Import the modules for saving."""
    import_all(SAVING)


@cache
def preload_planning(reads_nodes: bool) -> None:
    """Import the modules for refining and preparing.

    Args:
        reads_nodes: True if graphs are made of the nodes of an ONNX model, whose reader is then
            imported too; False if they are made of a graph.

    Raises:
        Stopped: the process ends, and with it the background work that needs the modules.
    """
    for name in (*PLANNING, *(READING if reads_nodes else ())):
        checkpoint()
        import_all((name,))
    import_passes()
