"""Which passes run at which level.

A pass is a function from an extended graph to an extended graph of the same network. Constants are
transformed ahead of time at every level, by the runtime, so that is no pass.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from resolver.extended import ExtendedGraph
from vtensor.errors import InputError

Pass = Callable[[ExtendedGraph], ExtendedGraph]

#: Every pass that there is, by name.
PASSES: dict[str, Pass] = {}

#: The passes of each level; None is a level that is not built yet.
LEVELS: dict[str, tuple[str, ...] | None] = {
    "none": (),
    "lho": None,
    "ewo": None,
    "all": tuple(PASSES),
}


def pass_names(optimize: str | Sequence[str]) -> tuple[str, ...]:
    """The passes that a level or a list of names means.

    Raises:
        InputError: the level or a pass does not exist, or is not built yet.

    >>> pass_names("none")
    ()
    """
    if not isinstance(optimize, Sequence):
        raise InputError(f"optimize={optimize!r} is no level, and no list of passes")
    if not isinstance(optimize, str):
        unknown = [name for name in optimize if name not in PASSES]
        if unknown:
            known = ", ".join(PASSES) or "none yet"
            raise InputError(f"optimize: no pass {', '.join(map(repr, unknown))}; passes: {known}")
        return tuple(optimize)
    if optimize not in LEVELS:
        raise InputError(f"optimize={optimize!r} is no level; levels are {', '.join(LEVELS)}")
    names = LEVELS[optimize]
    if names is None:
        built = ", ".join(level for level, passes in LEVELS.items() if passes is not None)
        raise InputError(f"optimize={optimize!r} is not built yet; levels that are: {built}")
    return names


def optimise(graph: ExtendedGraph, optimize: str | Sequence[str] = "all") -> ExtendedGraph:
    """Run the passes of a level, in order; the graph notes their names.

    Raises:
        InputError: the level or a pass does not exist, or is not built yet.
    """
    for name in pass_names(optimize):
        graph = PASSES[name](graph)
        graph.passes = (*graph.passes, name)
    return graph
