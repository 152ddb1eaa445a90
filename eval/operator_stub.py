"""``python -m eval.operator_stub``: what ``from ops import ...`` finds, for type checkers."""

from __future__ import annotations

import sys
from pathlib import Path

from libdesc.registry import registry
from vtensor.language.operators import OPERATORS

FILE = Path(__file__).parents[1] / "ops" / "__init__.pyi"

_HEAD = """\
# Made by `python -m eval.operator_stub` from what is registered; a test compares the two.
"""


def module_of(name: str) -> str:
    """The module of ``ops`` that has an operator under its name: its class's own, if that does."""
    cls = OPERATORS[name].cls
    own = sorted(
        (module != cls.__module__, "._" in module, module)
        for module, found in list(sys.modules.items())
        if module.startswith("ops.") and vars(found).get(name) is cls
    )
    return own[0][-1] if own else ""


def stub() -> str:
    """Each operator of ``ops``, by name, imported from its module."""
    registry()
    rows = ((module_of(name), name) for name in sorted(OPERATORS))
    return _HEAD + "".join(f"from {file} import {name} as {name}\n" for file, name in rows if file)


if __name__ == "__main__":
    FILE.write_text(stub())
