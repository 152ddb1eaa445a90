"""Tests that depend on instructions, in processes that are capped as on lesser processors."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.libraries.processes import run_python
from tests.libraries.slow import slow_but

CAPS = ("sse41", "avx2")

FILES = (
    "tests/conformance/test_matrix.py",
    "tests/operators/test_libraries.py",
    "tests/operators/test_levels.py",
    "eval/tests/test_layout_aware_operators.py",
    "tests/native/test_eigen_pointwise.py",
    "tests/native/test_primitives.py",
    "tests/native/test_steps.py",
    "tests/runtime/test_memory.py",
)
#: Tests that cap processes of their own, and those of memory that no instruction decides.
OTHERS = ("under_a_cap", "a_network_takes", "never_run", "ten_thousand")
#: Some cases of every other test; and cases of types that need instructions.
RUNS = {
    "some of all": [*FILES, "--draw", "2", "-k", " and ".join(f"not {name}" for name in OTHERS)],
    "narrow types": [
        *FILES[:2],
        *("-k", "(bf16 and (Pad or Conv2D or MatMul)) or (every_kind and Conv2D)"),
    ],
    "the bits of integers": [
        "tests/networks/test_narrow.py",
        "-k",
        "single or mobile or efficient",
    ],
}


def capped(cap: str, *arguments: str | Path) -> tuple[str, int, int]:
    """Return the end of pytest's output under a cap, the number of passing tests, the exit status.

    oneDNN's variable caps also the processes that a test starts, unless these cap themselves.
    """
    command = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "--isa", cap)
    variable = {"ONEDNN_MAX_CPU_ISA": cap.upper()}
    done = run_python(*command, *arguments, timeout=480, environment=variable)
    passed = re.search(r"(\d+) passed", done.stdout)
    tail = "\n".join([*done.stdout.splitlines()[-60:], *done.stderr.splitlines()[-20:]])
    return tail, int(passed[1]) if passed else 0, done.returncode


@pytest.mark.parametrize("run", RUNS)
@pytest.mark.parametrize("cap", slow_but(["sse41"], CAPS))
def test_tests_pass_under_a_cap(cap: str, run: str) -> None:
    tail, passed, code = capped(cap, *RUNS[run])
    assert code == pytest.ExitCode.OK, tail
    assert passed > 5, tail


def test_capped_process_is_capped_and_its_failures_are_seen(tmp_path: Path) -> None:
    """The twin: tests that hold without the cap alone."""
    code = """
from libdesc.eigen import native as eigen
from libdesc.onednn import native
def test_onednn():
    assert native.load().isa() != "sse41"
def test_eigen():
    assert eigen.load().level != "baseline"
def test_passes():
    pass
"""
    file = tmp_path / "test_file.py"
    file.write_text(code)
    shown = "tests/processors/test_processors.py::test_unknown_cap_is_refused"
    tail, passed, status = capped("sse41", shown, file)
    assert status == pytest.ExitCode.TESTS_FAILED
    assert passed == 2
    assert "test_onednn" in tail
    assert "test_eigen" in tail
