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


def docstrings(tree: ast.AST) -> set[int]:
    """The constants that are docstrings, by identity; those of attributes too."""
    found = set()
    for node in ast.walk(tree):
        body = getattr(node, "body", [])
        for statement in body if isinstance(body, list) else []:
            if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
                found.add(id(statement.value))
    return found


def mentions(text: str, names: set[str]) -> Iterator[tuple[int, str]]:
    """Lines where a name is imported or stands as a string literal."""
    tree = ast.parse(text)
    exempt = docstrings(tree)
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
    """The names of VTensor's own operators."""
    registry()
    here = str(ROOT / "ops")
    return {name for name, info in OPERATORS.items() if info.file.startswith(here)}


def test_no_operator_by_name() -> None:
    names = operator_names()
    assert len(FILES) > 20
    assert {"Conv2D", "Relu", "Add"} <= names
    found = {str(path.relative_to(ROOT)): [*mentions(path.read_text(), names)] for path in FILES}
    assert {path: lines for path, lines in found.items() if lines} == {}


@pytest.mark.parametrize(
    "text",
    [
        "from ops import Conv2D",
        "from ops.convolution import Conv2D",
        "import ops.convolution",
        "from somewhere import Relu",
        'if op_name == "Relu": pass',
        'TABLE = {"Add": 1}',
        'def f(): return f(x="Conv2D")',
    ],
)
def test_a_mention_is_found(text: str) -> None:
    # The twin: a checker that finds nothing would pass everything.
    assert list(mentions(text, operator_names()))


def test_docstrings_are_exempt() -> None:
    text = (
        '"""Relu"""\nclass A:\n    """Add"""\n    def f(self):\n        "Conv2D"\n        return 1'
    )
    assert not list(mentions(text, operator_names()))
