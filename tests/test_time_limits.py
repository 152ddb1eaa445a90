"""No test hangs: each has a time limit, and so has each process that a test starts."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
STARTS = {"run", "call", "check_call", "check_output"}

PYTHON = """
import time
def test_hangs():
    while True:
        time.sleep(0.01)
def test_passes():
    pass
"""
#: A mutex locked twice: ``PyDLL`` keeps Python's lock, so that no handler of a signal is ever run.
NATIVE = """
import ctypes
def test_hangs():
    mutex = ctypes.create_string_buffer(64)
    for _ in range(2):
        ctypes.PyDLL(None).pthread_mutex_lock(mutex)
"""


def ran(folder: Path, code: str, *options: str) -> subprocess.CompletedProcess[str]:
    """Pytest, configured as it is here, on a file with this code, with SIGINT ignored."""
    file = folder / "test_file.py"
    file.write_text(code)
    command = [sys.executable, "-m", "pytest", "-c", ROOT / "pyproject.toml", file]
    return subprocess.run(
        ["sh", "-c", 'trap "" INT; exec "$@"', "sh", *map(str, command), *options],
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_a_test_that_hangs_fails_and_the_next_one_runs(tmp_path: Path) -> None:
    done = ran(tmp_path, PYTHON, "-o", "timeout=1")
    assert done.returncode == pytest.ExitCode.TESTS_FAILED, done.stdout
    assert "1 failed, 1 passed" in done.stdout
    assert "Timeout (>1.0s) from pytest-timeout" in done.stdout


def test_native_code_that_hangs_ends_pytest(tmp_path: Path) -> None:
    done = ran(tmp_path, NATIVE, "-o", "timeout=1", "-o", "faulthandler_timeout=3")
    assert done.returncode == 1, done.stdout
    assert "in test_hangs" in done.stderr


def test_workers_have_the_same_limits(tmp_path: Path) -> None:
    """Of the processes of ``make test``, one that never comes back is told and ended."""
    limits = ("-n", "2", "-o", "timeout=1", "-o", "faulthandler_timeout=3")
    done = ran(tmp_path, PYTHON + NATIVE.replace("hangs", "never_comes_back"), *limits)
    assert done.returncode == pytest.ExitCode.TESTS_FAILED, done.stdout
    assert "2 failed, 1 passed" in done.stdout
    assert "Timeout (>1.0s) from pytest-timeout" in done.stdout
    assert re.search(r"crashed while running .*::test_never_comes_back", done.stdout)


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
    files = (ROOT / "tests").rglob("*.py")
    found = [
        f"{file.name}:{line}" for file in files for line in endless(ast.parse(file.read_text()))
    ]
    assert found == []


def test_a_process_without_a_limit_is_seen() -> None:
    """The twin of the test above."""
    text = "subprocess.run([])\nsubprocess.run([], timeout=1)\nsubprocess.check_output([])"
    assert list(endless(ast.parse(text))) == [1, 3]
