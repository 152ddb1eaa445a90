"""A registry to scribble in: what is registered inside the block is gone after it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from libdesc.registry import registry
from ptensor.libraries import LIBRARIES
from vtensor.language.operators import OPERATORS


@contextmanager
def scratch_registry() -> Iterator[None]:
    """Put operators, libraries, invokers and problems back at the end."""
    found = registry()
    kept = dict(OPERATORS), dict(LIBRARIES), dict(found.libraries), dict(found.invokers)
    problems, modules = list(found.problems), set(sys.modules)
    try:
        yield
    finally:
        tables = (OPERATORS, LIBRARIES, found.libraries, found.invokers)
        for table, content in zip(tables, kept, strict=True):
            table.clear()  # type: ignore[attr-defined]
            table.update(content)  # type: ignore[attr-defined]
        found.problems[:] = problems
        found.version += 1
        for name in set(sys.modules) - modules:
            if name.startswith("vtensor_library_"):  # modules that lie beside a description
                del sys.modules[name]
