"""A second choice with fewer Transforms than the choice with the least sum of measured times.

Kernels are measured alone. A kernel whose measured time is slightly too low and that occurs often
can bring its nodes into another layout, with Transforms around them, although a run gets slower.
The second choice therefore charges each Transform a share of a run, and the plans of both choices
are compared by running them in turns.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from optimizer.settings import Settings
from resolver.lowered import LoweredGraph

#: The time that a Transform must save to be worth it, as a share of the time of a run.
TRANSFORM_PRICE = 0.01


def with_fewer_transforms(
    measured: LoweredGraph, settings: Settings, choice: Callable[[Settings], LoweredGraph | None]
) -> list[LoweredGraph]:
    """Make a choice in which each Transform costs more than its time. Return it in a list if it has
    fewer Transforms than ``measured``.

    The list is empty if the choice has no fewer Transforms, or if there is no such choice.

    Args:
        measured: the lowered graph of the choice with the least sum of measured times.
        settings: the settings with which ``measured`` was chosen.
        choice: takes settings; returns the choice for them as a lowered graph, or None if there is
            none.
    """
    count = sum(1 for _ in measured.transforms())
    if not count:
        return []
    cheaper = choice(replace(settings, price=TRANSFORM_PRICE))
    return [cheaper] if cheaper and sum(1 for _ in cheaper.transforms()) < count else []
