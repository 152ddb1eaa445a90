"""Write ``docs/routines.md``: the routines of each library, which invokers return.

``python -m eval.documents.routine_table``. The rows come from the public names of the libraries'
packages, their signatures and the first lines of their docstrings; a test compares the two.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

from eval.markdown import table
from libdesc.routine import Routine

FILE = Path(__file__).parents[2] / "docs" / "routines.md"
#: The libraries that offer routines; each is a package of ``libdesc``.
LIBRARIES = ("onednn", "eigen", "winograd", "narrow")

_HEAD = """\
# Routines

Made by `python -m eval.documents.routine_table` from the libraries' public names; a test compares
the two. An invoker returns a routine: `return onednn.MatMul(a, b, y, op.over,
follow=ctx.followers)`. If no routine fits, write a subclass of `libdesc.Routine`
(`libdesc/routine.py`) beside the library's others, or an invoker in the long form (CONTRIBUTING.md,
"The invokers")."""


def routines(library: str) -> Iterator[tuple[str, str, str]]:
    """Yield (name, parameters, first line of the docstring) of each routine of a library.

    The parameters are one text, separated by commas.
    """
    package = import_module(f"libdesc.{library}")
    for name in sorted(dir(package)):
        routine = getattr(package, name)
        if inspect.isfunction(routine) or _is_routine(routine):
            first = (inspect.getdoc(routine) or "").partition("\n")[0]
            yield name, ", ".join(_parameters(routine)), first


def _is_routine(value: object) -> bool:
    return inspect.isclass(value) and issubclass(value, Routine)


def _parameters(routine: Any) -> Iterator[str]:
    """Yield the names of a routine's parameters; an optional one with ``=`` and its default."""
    for parameter in inspect.signature(routine).parameters.values():
        default = parameter.default
        simple = default is None or isinstance(default, (int, float, str, tuple))
        optional = default is not inspect.Parameter.empty
        text = f"={default!r}" if simple else "=..."
        star = "*" if parameter.kind is inspect.Parameter.VAR_POSITIONAL else ""
        yield f"{star}{parameter.name}{text if optional else ''}"


def page() -> str:
    """Return the text of ``docs/routines.md``."""
    parts = [_HEAD]
    for library in LIBRARIES:
        rows = [
            (f"`{name}({parameters})`", first.replace("|", "\\|"))
            for name, parameters, first in routines(library)
        ]
        parts += [
            f"## {library}",
            table(["routine", "what it computes"], rows).replace("--:", "---"),
        ]
    return "\n\n".join(parts) + "\n"


if __name__ == "__main__":
    FILE.write_text(page(), encoding="utf-8")
