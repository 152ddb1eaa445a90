"""Which passes run at which level.

A pass is a function from a lowered graph to a lowered graph of the same network. A simplification
is a function from a graph to a graph, and runs before layouts are resolved. Constants are
transformed ahead of time at every level, by the runtime: no pass does that.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import cache, partial
from importlib import import_module
from typing import TYPE_CHECKING

from libdesc.preferences import EVERY, Preferences
from optimizer.settings import Settings
from ptensor.stopping import go_on
from vtensor.errors import InputError
from vtensor.language.records import replace

if TYPE_CHECKING:
    from typing import TypeAlias

    from resolver.lowered import LoweredGraph
    from vtensor.language.graph import Graph

    Pass: TypeAlias = Callable[[LoweredGraph, Settings], LoweredGraph]

#: The names of all simplifications, in the order in which they run: each is a function of its name
#: in a file of its name, which a session that takes a plan as it was kept does not import.
SIMPLIFICATIONS = ("bypass", "rewrite", "order", "part", "fold", "thin", "fuse")


def _run(name: str, graph: LoweredGraph, settings: Settings) -> LoweredGraph:
    """Run one of ``PASSES``; a session that takes over what was chosen earlier imports none."""
    match name:
        case "lho":
            from optimizer.lho import hoist as run
        case "ewo":
            from optimizer.ewo import reconcile as run
        case "joint":
            from optimizer.joint import joint as run
        case "share":
            from optimizer.share import share as run
        case "sink":
            from optimizer.sink import sink as run
        case "rise":
            from optimizer.sink import rise as run
        case "cancel":
            from optimizer.cancel import cancel as run
        case "absorb":
            from optimizer.absorb import absorb as run
        case mode:  # it makes the graph anew, not as the resolver does
            from resolver import modes

            return modes.aware(graph) if mode == "aware" else modes.held(graph)
    return run(graph, settings)


def import_passes() -> None:
    """Import what chooses variants now, before a thread in the background does: a fork in the midst
    of an import would leave it locked in the child.
    """
    chosen = ("absorb", "bound", "cancel", "ewo", "joint", "lho", "share", "sink")
    for name in (*SIMPLIFICATIONS, *chosen):
        import_module(f"optimizer.{name}")
    for name in ("evaluate", "extend"):
        import_module(f"resolver.{name}")


#: Every pass that there is, by name. The last two are what levels are compared with; no level has
#: them.
PASSES: dict[str, Pass] = {
    name: partial(_run, name)
    for name in (
        *("lho", "ewo", "joint", "share", "sink", "rise", "cancel", "absorb"),
        *("aware", "held"),
    )
}

#: The pass that goes by time where times are measured.
MEASURED = "joint"

#: Those that ask libraries what else they have for nodes, which takes long.
ASKING = (MEASURED, "sink", "rise")

#: The one that asks libraries whether they read a value where it lies.
READING = "absorb"

#: The passes of each level. The rules behind EWO find nothing where its objective is ``shared`` and
#: its solver ended; they are for what else may be.
LEVELS: dict[str, tuple[str, ...]] = {
    "none": (),
    "lho": ("lho",),
    "ewo": ("lho", "ewo", "lho"),
    "all": (
        *("bypass", "rewrite", "order", "part", "fold", "thin", "fuse"),
        *("lho", "joint", "lho", "sink", "rise", "share", "cancel", "absorb"),
    ),
}


#: What stands before the name of a rule, and before what a list takes away again.
RULE, WITHOUT = "rewrite.", "-"


def pass_names(optimize: str | Sequence[str]) -> tuple[str, ...]:
    """The passes that a level or a list of names means.

    A list may name levels, too; ``-thin`` in it takes a pass away again, and ``-rewrite.gelu`` one
    rule of the pass ``rewrite``.

    Raises:
        InputError: the level, a pass or a rule does not exist.

    >>> pass_names("none"), pass_names(["ewo", "-ewo", "-rewrite.gelu"])
    ((), ('lho', 'lho', '-rewrite.gelu'))
    """
    if not isinstance(optimize, Sequence):
        raise InputError(f"optimize={optimize!r} is no level, and no list of passes")
    if isinstance(optimize, str):
        if optimize not in LEVELS:
            raise InputError(
                f"optimize={optimize!r} (--optimize) is no level; levels are {', '.join(LEVELS)}"
            )
        return LEVELS[optimize]
    names: list[str] = []
    for name in optimize:
        _check_pass(name)
        bare = name.removeprefix(WITHOUT)
        if name == bare:
            names += LEVELS.get(name, (name,))
        elif bare.startswith(RULE):
            names.append(name)
        else:
            names = [one for one in names if one != bare]
    return tuple(names)


def _check_pass(name: object) -> None:
    bare = name.removeprefix(WITHOUT) if isinstance(name, str) else ""
    kind, known = "passes", [*LEVELS, *SIMPLIFICATIONS, *PASSES]
    if bare.startswith(RULE) and name != bare:
        from libdesc.registry import registry

        kind, known = "rules", [f"{RULE}{rule}" for rule in registry().rules]
    if bare not in known:
        raise InputError(f"optimize: no pass {name!r}; {kind}: {', '.join(known)}")


def simplify(
    graph: Graph,
    optimize: str | Sequence[str] = "all",
    preferences: Preferences = EVERY,
    only: Collection[tuple[str, str]] | None = None,
) -> Graph:
    """Run the simplifications of a level; the graph notes their names.

    Args:
        graph: sealed; it is not changed.
        optimize: the level, or names of passes.
        preferences: which nodes are pinned, and which libraries may be used.
        only: as for ``rewrite``.

    Raises:
        InputError: the level or a pass does not exist.
    """
    names = pass_names(optimize)
    from libdesc.registry import ready

    ready()  # so that every operator is found which a simplification may add
    off = [name.removeprefix(WITHOUT + RULE) for name in names if name.startswith(WITHOUT)]
    for name in SIMPLIFICATIONS:
        if name in names:
            go_on()
            run = getattr(import_module(f"optimizer.{name}"), name)
            more = {"off": off, "only": only} if name == "rewrite" else {}
            graph = replace(run(graph, preferences, **more), passes=(*graph.passes, name))
    return graph


def optimise(
    graph: LoweredGraph,
    optimize: str | Sequence[str] = "all",
    settings: Settings | None = None,
) -> LoweredGraph:
    """Run the other passes of a level, in order; the graph notes their names.

    Raises:
        InputError: the level or a pass does not exist.
    """
    settings = settings or Settings()
    if settings.speeds is not None:  # several passes want them
        settings = replace(settings, speeds=cache(settings.speeds))
    for name in pass_names(optimize):
        if name in PASSES:
            go_on()
            graph = PASSES[name](graph, settings)
            graph = replace(graph, passes=(*graph.passes, name))
    return graph
