"""No test hangs: each has a time limit, and so has each process that a test starts."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
STARTS = {"run", "call", "check_call", "check_output"}


def test_every_test_here_has_the_limits(request: pytest.FixtureRequest) -> None:
    assert float(request.config.getini("timeout")) <= 600
    assert float(request.config.getini("faulthandler_timeout")) <= 1800


def endless(tree: ast.AST) -> Iterator[int]:
    """The lines that wait for a process as long as it takes."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        of = node.func.value
        starts = isinstance(of, ast.Name) and of.id == "subprocess" and node.func.attr in STARTS
        if starts and not any(keyword.arg == "timeout" for keyword in node.keywords):
            yield node.lineno


def test_every_process_that_a_test_starts_has_a_limit() -> None:
    files = [*(ROOT / "tests").rglob("*.py"), *(ROOT / "eval" / "tests").rglob("*.py")]
    found = [
        f"{file.name}:{line}" for file in files for line in endless(ast.parse(file.read_text()))
    ]
    assert found == []


def test_a_process_without_a_limit_is_seen() -> None:
    """The twin of the test above."""
    text = "subprocess.run([])\nsubprocess.run([], timeout=1)\nsubprocess.check_output([])"
    assert list(endless(ast.parse(text))) == [1, 3]
