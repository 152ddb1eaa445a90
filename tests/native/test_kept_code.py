"""Convolutions whose code oneDNN keeps until the process ends are limited in number."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.parametrize("cap", ["sse41", "avx2", "max"])
def test_functions_apart_give_the_same_and_leave_nothing(cap: str) -> None:
    if cap == "sse41" and not os.environ.get("VTENSOR_TEST_ALL"):  # which has no such kernels
        pytest.skip("slow: VTENSOR_TEST_ALL=1")
    command = [sys.executable, "-m", "tests.native.kept_code", cap]
    root = Path(__file__).parents[2]
    ran = subprocess.run(command, capture_output=True, text=True, cwd=root, timeout=500)
    assert ran.returncode == 0, ran.stderr
    *faults, last = ran.stdout.splitlines()
    assert faults == []
    assert cap == "sse41" or int(last.removesuffix(" apart")) > 10
