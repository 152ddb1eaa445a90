"""Write ``docs/api.md``: the public names with their signatures and docstrings.

``python -m eval.documents.api_reference``. The names are those of the packages' ``__init__.pyi``,
of ``vtensor.operators`` and of the typed errors; a test compares the document with them.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

FILE = Path(__file__).parents[2] / "docs" / "api.md"
#: The modules whose public names are documented, in the order of the page.
MODULES = (
    "vtensor",
    "vtensor.testing",
    "vtensor.errors",
    "vtensor.operators",
    "libdesc",
    "ptensor",
)
_HEAD = """\
# Public interface

Made by `python -m eval.documents.api_reference` from signatures and docstrings; a test compares the
two. [operators.md](operators.md) lists the operators, [routines.md](routines.md) the routines of
each library; [guide.md](guide.md) has an example of each thing."""


def names_of(module: Any) -> list[str]:
    """Return the names of a module's public classes and functions, in alphabetical order."""
    listed = getattr(module, "__all__", None) or dir(module)
    return sorted(name for name in listed if not name.startswith("_") and _ours(module, name))


def _ours(module: Any, name: str) -> bool:
    """Return whether a name is a class or function of this repository.

    In a module of errors only those count that are defined there.
    """
    value = getattr(module, name)
    home = getattr(value, "__module__", "") or ""
    known = (inspect.isclass(value) or inspect.isfunction(value)) and home.partition(".")[0] in (
        "vtensor",
        "libdesc",
        "ptensor",
    )
    return known and (not module.__file__.endswith("errors.py") or home == module.__name__)


def sections(module: Any) -> Iterator[str]:
    """Yield Markdown for each public name of a module: signature, docstring, public methods."""
    for name in names_of(module):
        value = getattr(module, name)
        yield f"### {name}\n\n{_block(f'{module.__name__}.{name}', value)}"
        if not inspect.isclass(value):
            continue
        for member, function in vars(value).items():
            plain = inspect.unwrap(getattr(function, "fget", None) or function)
            plain = getattr(plain, "__func__", plain)
            if not member.startswith("_") and inspect.isfunction(plain) and inspect.getdoc(plain):
                yield f"#### {name}.{member}\n\n{_block(f'{name}.{member}', plain)}"


def _block(name: str, value: Any) -> str:
    """Return the Markdown block of a class or function: ``name``, its signature, its docstring."""
    try:
        signature = str(inspect.signature(value))
    except (TypeError, ValueError):
        signature = ""
    signature = re.sub(r"(: |-> )'([^']*)'", r"\1\2", signature)  # annotations are strings
    signature = re.sub(r"= ?<[^<>]*>", "=...", signature)  # values whose repr is no code
    documentation = inspect.getdoc(value) or ""
    return f"```text\n{name}{signature}\n\n{documentation}\n```"


def page() -> str:
    """Return the text of ``docs/api.md``."""
    parts = [_HEAD]
    for name in MODULES:
        module = import_module(name)
        parts += [f"## {name}", *sections(module)]
    return "\n\n".join(parts) + "\n"


if __name__ == "__main__":
    FILE.write_text(page(), encoding="utf-8")
