"""Libraries of steps, compiled once, and a team of two threads."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.native.stepping import compiled
from vtensor.runtime._replay import Team


@pytest.fixture(scope="session")
def c_steps(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What steps.c defines."""
    return compiled("steps.c", tmp_path_factory.mktemp("steps"))


@pytest.fixture(scope="session")
def cpp_steps(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What steps.cpp defines."""
    return compiled("steps.cpp", tmp_path_factory.mktemp("steps"))


@pytest.fixture
def team() -> Iterator[Team]:
    """A team of two threads."""
    one = Team(2, "test")
    yield one
    one.close()
