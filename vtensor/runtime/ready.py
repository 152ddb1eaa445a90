"""Imports of what works beside runs: they come before it, since a fork in the midst of one would
leave it locked in the child.
"""

from __future__ import annotations

from importlib import import_module

from optimizer.pipeline import import_passes

#: What draws blueprints: of models that are read from nodes, and of all.
DRAWING = (
    "vtensor.frontends.tracing",
    "concurrent.futures.thread",
    "libdesc.calls",
    "resolver.refit",
    "vtensor.runtime.blueprint",
    "vtensor.runtime.drawing",
    "vtensor.runtime.sized",
)

#: What measuring needs beside the passes.
MEASURING = (
    "concurrent.futures.thread",
    "libdesc.calls",
    "vtensor.runtime.sized",
    "vtensor.runtime.timings",
)


def ready_to_draw(reads_nodes: bool) -> None:
    """Import what draws blueprints.

    Args:
        reads_nodes: of models that are read from nodes, too.
    """
    import_passes()
    for name in DRAWING[not reads_nodes :]:
        import_module(name)


def ready_to_measure() -> None:
    """Import what makes a plan by times of this machine."""
    import_passes()
    for name in MEASURING:
        import_module(name)
