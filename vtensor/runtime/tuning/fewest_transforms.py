"""A choice with fewer Transforms beside the one whose measured times add up to the least.

Each kernel is measured alone. A kernel that was measured a little too fast and occurs often can
draw its nodes into another layout, with Transforms around them, and the sum of times says nothing
of it. A second choice therefore charges a Transform a part of a run, and the two plans are run in
turns.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from optimizer.settings import Settings
from resolver.lowered import LoweredGraph

#: What a Transform has to gain, as a part of a run.
PRICE = 0.01


def with_fewer_transforms(
    made: LoweredGraph, settings: Settings, choice: Callable[[Settings], LoweredGraph | None]
) -> list[LoweredGraph]:
    """The choice that charges Transforms more; none where it has as many.

    Args:
        made: the graph in the choice that does not.
        settings: of that.
        choice: makes a graph by settings.
    """
    count = sum(1 for _ in made.transforms())
    if not count:
        return []
    found = choice(replace(settings, price=PRICE))
    return [found] if found and sum(1 for _ in found.transforms()) < count else []
