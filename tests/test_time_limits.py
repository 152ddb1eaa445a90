"""No test hangs: each has a time limit, and so has each process that a test starts."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
STARTS = {"run", "call", "check_call", "check_output"}


def endless(tree: ast.AST) -> Iterator[int]:
    """Yield the lines that wait for a process without a limit."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            module = node.func.value
            starts = isinstance(module, ast.Name) and module.id == "subprocess"
            limited = any(keyword.arg == "timeout" for keyword in node.keywords)
            if starts and node.func.attr in STARTS and not limited:
                yield node.lineno


def test_tests_and_their_processes_have_limits(request: pytest.FixtureRequest) -> None:
    assert float(request.config.getini("timeout")) <= 600
    assert float(request.config.getini("faulthandler_timeout")) <= 1800
    files = [*(ROOT / "tests").rglob("*.py"), *(ROOT / "eval" / "tests").rglob("*.py")]
    texts = {file: text for file in files if "subprocess." in (text := file.read_text())}
    lines = [f"{file}:{line}" for file in texts for line in endless(ast.parse(texts[file]))]
    assert lines == []
    text = "subprocess.run([])\nsubprocess.run([], timeout=1)\nsubprocess.check_output([])"
    assert list(endless(ast.parse(text))) == [1, 3]
