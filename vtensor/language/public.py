"""Packages whose names are imported when they are first used (Scientific Python's SPEC 1)."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any


def names_of(package: str, file: str) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return the functions ``__getattr__`` and ``__dir__`` of a package.

    The stub ``__init__.pyi`` next to ``file`` says which module defines each name. It is read at
    the first use of a name, and only the module of that name is imported.

    Args:
        package: the package's name.
        file: the path of its ``__init__.py``.

    >>> import ptensor
    >>> named, names = names_of("ptensor", ptensor.__file__)
    >>> "Layout" in names(), named("Layout") is ptensor.Layout
    (True, True)
    """

    @cache
    def places() -> dict[str, str]:
        lines = Path(file).with_suffix(".pyi").read_text("utf-8").splitlines()
        rows = (line.split() for line in lines if line.startswith("from ."))
        return {name: package + module.rstrip(".") for _, module, _, name, *_ in rows}

    def named(name: str) -> Any:
        if name == "__all__":
            return sorted(places())
        if name.startswith("__") or name not in places():
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        place = places()[name]
        if place == package:
            return import_module(f"{package}.{name}")
        return getattr(import_module(place), name)

    return named, lambda: sorted(places())
