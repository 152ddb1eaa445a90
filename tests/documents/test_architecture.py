"""No operator is known by name where operators must not matter: vtensor/, resolver/, optimizer/."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from libdesc.registry import registry
from vtensor.language.operators import OPERATORS

ROOT = Path(__file__).parents[2]
FILES = sorted(
    path
    for folder in ("vtensor", "resolver", "optimizer")
    for path in (ROOT / folder).rglob("*.py")
)


def mentions(text: str, names: set[str]) -> Iterator[tuple[int, str]]:
    """Yield the lines that import a name or have it as a string, docstrings aside."""
    tree = ast.parse(text)
    exempt = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            module = node.module or ""
            yield from ((node.lineno, a.name) for a in node.names if a.name in names)
            if module.split(".")[0] == "ops":
                yield node.lineno, module
        elif isinstance(node, ast.Import):
            yield from ((node.lineno, a.name) for a in node.names if a.name.split(".")[0] == "ops")
        elif isinstance(node, ast.Constant) and node.value in names and id(node) not in exempt:
            yield node.lineno, str(node.value)


def operator_names() -> set[str]:
    """Return the names of VTensor's own operators."""
    registry()
    here = str(ROOT / "ops")
    return {name for name, info in OPERATORS.items() if info.file.startswith(here)}


def test_no_operator_is_named_outside_of_ops() -> None:
    names = operator_names()
    assert len(FILES) > 20
    assert {"Conv2D", "Relu", "Add"} <= names
    lines = {str(path.relative_to(ROOT)): [*mentions(path.read_text(), names)] for path in FILES}
    assert {path: rows for path, rows in lines.items() if rows} == {}


@pytest.mark.parametrize(
    ("text", "mentioned"),
    [
        ("from ops import Conv2D", True),
        ("from ops.convolution import Conv2D", True),
        ("import ops.convolution", True),
        ("from somewhere import Relu", True),
        ('if op_name == "Relu": pass', True),
        ('TABLE = {"Add": 1}', True),
        ('def f(): return f(x="Conv2D")', True),
        ('"""Relu"""\nclass A:\n    """Add"""\n    def f(self):\n        "Conv2D"\n', False),
    ],
)
def test_mention_is_found_outside_of_docstrings(text: str, mentioned: bool) -> None:
    assert bool(list(mentions(text, operator_names()))) == mentioned
