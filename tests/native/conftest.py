"""Libraries of steps, compiled once."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.native.stepping import compiled


@pytest.fixture(scope="session")
def c_steps(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What steps.c defines."""
    return compiled("steps.c", tmp_path_factory.mktemp("steps"))


@pytest.fixture(scope="session")
def cpp_steps(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What steps.cpp defines."""
    return compiled("steps.cpp", tmp_path_factory.mktemp("steps"))
