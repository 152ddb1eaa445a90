"""A program in a process of its own, which caps the instruction set: libraries fix it when used."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def printed_under(isa: str, code: str, *arguments: str) -> list[str]:
    """The lines that a program prints; it finds the cap in ``sys.argv[1]``, then the arguments."""
    done = subprocess.run(
        [sys.executable, "-c", code, isa, *arguments],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()
