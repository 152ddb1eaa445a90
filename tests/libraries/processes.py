"""Fresh Python processes, for what an earlier test in this one would change."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

#: The folder of the repository.
ROOT = Path(__file__).parents[2]


def run_python(
    *arguments: object,
    at: Path = ROOT,
    timeout: int = 240,
    environment: Mapping[str, str] = MappingProxyType({}),
) -> subprocess.CompletedProcess[str]:
    """Run a fresh interpreter and return what it printed and its exit status.

    Args:
        arguments: those of the interpreter.
        at: its working folder.
        timeout: a limit, in seconds.
        environment: variables on top of this process's own.
    """
    return subprocess.run(
        [sys.executable, *map(str, arguments)],
        cwd=at,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


def printed(*arguments: object, **options: Any) -> str:
    """Return what a fresh interpreter prints; it must not fail. Options are ``run_python``'s."""
    done = run_python(*arguments, **options)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout
