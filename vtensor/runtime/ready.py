"""Imports that come before what needs them: of what makes plans, since a plan that was kept does
without, and of what works beside runs, on the thread for such work. A fork waits for them.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from importlib import import_module

from optimizer.pipeline import import_passes
from vtensor.language.index import importing

#: What makes plans.
PLANNING = (
    "vtensor.runtime.calibration",
    "vtensor.runtime.needed",
    "vtensor.runtime.outlines",
    "vtensor.runtime.placement",
    "vtensor.runtime.plan_steps",
    "vtensor.runtime.planning",
    "vtensor.runtime.provisional",
    "vtensor.runtime.record",
    "vtensor.runtime.strategies",
    "vtensor.runtime.strategy_cache",
    "vtensor.runtime.stretches",
)

#: What reads blueprints that were kept.
BLUEPRINTS = ("vtensor.runtime.blueprint_entries",)

#: What draws blueprints: of models that are read from nodes, and of all.
DRAWING = (
    "vtensor.frontends.tracing",
    "resolver.refit",
    "vtensor.runtime.blueprint",
    "vtensor.runtime.blueprint_notes",
    "vtensor.runtime.drawing",
    "vtensor.runtime.drawing_notes",
    "vtensor.runtime.sized",
    *BLUEPRINTS,
)

#: What writes for other processes, beside what it is of.
WRITING = ("vtensor.frontends.surface", "vtensor.runtime.program_notes")

#: What measuring needs beside the passes.
MEASURING = (
    "vtensor.runtime.measure",
    "vtensor.runtime.peaks",
    "vtensor.runtime.program_notes",
    "vtensor.runtime.sized",
    "vtensor.runtime.timings",
    "vtensor.runtime.tuning",
)


def import_all(names: Iterable[str]) -> None:
    """Import modules, one at a time under the lock that forks wait for."""
    for name in names:
        with importing:
            import_module(name)


@cache  # later calls wait for nobody's imports
def ready_to_plan() -> None:
    """Import what makes plans."""
    import_all(PLANNING)


@cache
def ready_for_blueprints() -> None:
    """Import what reads blueprints that were kept."""
    import_all(BLUEPRINTS)


@cache
def ready_to_draw(reads_nodes: bool) -> None:
    """Import what draws blueprints.

    Args:
        reads_nodes: of models that are read from nodes, too.
    """
    ready_to_plan()
    import_passes()
    import_all(DRAWING[not reads_nodes :])


@cache
def ready_to_measure() -> None:
    """Import what makes a plan by times of this machine."""
    ready_to_plan()
    import_passes()
    import_all(MEASURING)


@cache
def ready_to_write() -> None:
    """Import what writes for other processes."""
    import_all(WRITING)
    ready_for_blueprints()
