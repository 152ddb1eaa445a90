"""The passes of each level, and functions that run them.

A pass is a function from a lowered graph to a lowered graph of the same network. A simplification
is a function from a graph to a graph, and runs before layouts are resolved. Constants are
transformed ahead of time at every level, by the runtime and by no pass.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import cache
from importlib import import_module
from itertools import chain
from typing import TYPE_CHECKING

from libdesc.preferences import EVERY, Preferences
from optimizer.settings import Settings
from ptensor.background_work import checkpoint
from vtensor.errors import InputError
from vtensor.language.index import importing
from vtensor.language.records import replace

if TYPE_CHECKING:
    from typing import TypeAlias

    from resolver.lowered import LoweredGraph
    from vtensor.language.graph import Graph

    Pass: TypeAlias = Callable[[LoweredGraph, Settings], LoweredGraph]

#: The names of all simplifications, in running order. Each is a function of that name in a file of
#: that name, imported at first use: a session that reads its plan from the cache needs none.
SIMPLIFICATIONS = (
    *("widen", "bypass", "integers", "rewrite", "order", "part", "fold"),
    *("narrow", "thin", "fuse"),
)

#: Every pass by name: the module and the function that run it, imported at first use. The last
#: two are in no level: they are baselines that rebuild a graph as layout-aware frameworks do.
PASSES: dict[str, str] = {
    "lho": "optimizer.lho:hoist",
    "ewo": "optimizer.ewo:reconcile",
    "joint": "optimizer.joint:joint",
    "share": "optimizer.share:share",
    "sink": "optimizer.sink:sink",
    "rise": "optimizer.sink:rise",
    "cancel": "optimizer.cancel:cancel",
    "absorb": "optimizer.absorb:absorb",
    "aware": "resolver.modes:aware",
    "held": "resolver.modes:held",
}

#: The pass that uses measured times, if there are any.
MEASURED = "joint"

#: The passes that ask libraries for further variants of nodes, which takes long.
ASKING = (MEASURED, "sink", "rise")

#: The pass that asks libraries whether they read a value in another layout.
READING = "absorb"

#: The passes of each level. Passes after EWO find nothing to do if its objective is ``shared`` and
#: the solver proved an optimum; they are for other objectives and for a solver that fails.
LEVELS: dict[str, tuple[str, ...]] = {
    "none": (),
    "lho": ("lho",),
    "ewo": ("lho", "ewo", "lho"),
    "all": (
        *("widen", "bypass", "integers", "rewrite", "order", "part", "fold", "thin", "fuse"),
        *("lho", "joint", "lho", "sink", "rise", "share", "cancel", "absorb"),
    ),
}


def pass_of(name: str) -> Pass:
    """Return the function of the pass ``name``, importing its module.

    Raises:
        InputError: ``PASSES`` has no such name.
    """
    _check(name, PASSES)
    module, function = PASSES[name].split(":")
    run: Pass = getattr(import_module(module), function)
    return run


def import_passes() -> None:
    """Import the modules of the passes of all levels, and what they use.

    Meanwhile the lock is held for which a fork of the process waits.
    """
    names = dict.fromkeys(chain.from_iterable(LEVELS.values()))
    modules = [PASSES.get(name, f"optimizer.{name}").partition(":")[0] for name in names]
    for module in (*modules, "optimizer.choice.bound", "resolver.evaluate", "resolver.extend"):
        checkpoint()
        with importing:
            import_module(module)


#: Prefixes of names in a list of passes: of a rewrite rule, and of a pass or rule to leave out.
RULE, WITHOUT = "rewrite.", "-"


def pass_names(optimize: str | Sequence[str]) -> tuple[str, ...]:
    """Return the names of the passes of a level, or of a list of levels and passes.

    ``-thin`` in a list leaves out a pass that precedes it; ``-rewrite.gelu`` leaves out one rule of
    the pass ``rewrite``.

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
        for name in LEVELS[optimize]:
            _check(name, [*SIMPLIFICATIONS, *PASSES])
        return LEVELS[optimize]
    names: list[str] = []
    for name in optimize:
        bare = name.removeprefix(WITHOUT) if isinstance(name, str) else ""
        if bare.startswith(RULE) and name != bare:
            from libdesc.registry import registry

            _check(bare, [f"{RULE}{rule}" for rule in registry().rules], "rules", name)
        else:
            _check(bare, [*LEVELS, *SIMPLIFICATIONS, *PASSES], given=name)
        if name in LEVELS:
            names += pass_names(name)
        elif name == bare or bare.startswith(RULE):
            names.append(name)
        else:
            names = [kept for kept in names if kept != bare]
    return tuple(names)


def _check(
    name: object, known: Collection[str], kind: str = "passes", given: object = None
) -> None:
    """Raise InputError unless ``name`` is among ``known``.

    Args:
        name: the name to check.
        known: the names that exist.
        kind: the kind of things that ``known`` names, for the message.
        given: the text that the message shows in place of ``name``; None shows ``name``.
    """
    if name not in known:
        raise InputError(f"optimize: no pass {given or name!r}; {kind}: {', '.join(known)}")


def simplify(
    graph: Graph,
    optimize: str | Sequence[str] = "all",
    preferences: Preferences = EVERY,
    only: Collection[tuple[str, str]] | None = None,
) -> Graph:
    """Run the simplifications of a level on a graph. Return the new graph, whose ``passes`` has
    their names.

    Args:
        graph: sealed; it is not changed.
        optimize: the level, or names of passes.
        preferences: which nodes are pinned, and which libraries may be used.
        only: the rewrites to which the passes ``integers`` and ``rewrite`` are restricted, as
            (rule, name of the last node that the rule replaces); None is no restriction.

    Raises:
        InputError: the level or a pass does not exist.
    """
    names = pass_names(optimize)
    from libdesc.registry import ready

    ready()  # registers every operator that a simplification may add
    off = [name.removeprefix(WITHOUT + RULE) for name in names if name.startswith(WITHOUT)]
    if "integers" not in names:
        from optimizer.integers import decoded

        graph = decoded(graph)  # constants are computed before a run at every level
    for name in SIMPLIFICATIONS:
        if name in names:
            checkpoint()
            run = getattr(import_module(f"optimizer.{name}"), name)
            more = {"off": off, "only": only} if name in ("integers", "rewrite") else {}
            graph = replace(run(graph, preferences, **more), passes=(*graph.passes, name))
    return graph


def optimise(
    graph: LoweredGraph,
    optimize: str | Sequence[str] = "all",
    settings: Settings | None = None,
) -> LoweredGraph:
    """Run the passes of a level on a lowered graph. Return the new graph, whose ``passes`` has
    their names.

    Raises:
        InputError: the level or a pass does not exist.
    """
    settings = settings or Settings()
    if settings.speeds is not None:  # called once for all passes
        settings = replace(settings, speeds=cache(settings.speeds))
    for name in pass_names(optimize):
        if name in PASSES:
            checkpoint()
            graph = pass_of(name)(graph, settings)
            graph = replace(graph, passes=(*graph.passes, name))
    return graph
