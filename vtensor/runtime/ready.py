"""Imports that come before what needs them: of what makes plans, since a plan that was kept does
without, and of what works beside runs. A fork in the midst of one would leave it locked in the
child, so that each is told.
"""

from __future__ import annotations

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


@cache  # later calls wait for nobody's imports
def ready_to_plan() -> None:
    """Import what makes plans; a fork waits for that."""
    with importing:
        for name in PLANNING:
            import_module(name)


@cache
def ready_for_blueprints() -> None:
    """Import what reads blueprints that were kept."""
    with importing:
        for name in BLUEPRINTS:
            import_module(name)


def ready_to_draw(reads_nodes: bool) -> None:
    """Import what draws blueprints.

    Args:
        reads_nodes: of models that are read from nodes, too.
    """
    ready_to_plan()
    import_passes()
    for name in DRAWING[not reads_nodes :]:
        import_module(name)


def ready_to_measure() -> None:
    """Import what makes a plan by times of this machine."""
    ready_to_plan()
    import_passes()
    for name in MEASURING:
        import_module(name)


@cache
def ready_to_write() -> None:
    """Import what writes for other processes; a fork waits for that."""
    with importing:
        for name in WRITING:
            import_module(name)
    ready_for_blueprints()
