"""Libraries of steps, compiled once, and teams of one and of two threads."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.native.stepping import NamedSteps, compiled, held, step_of
from vtensor.runtime._replay import Team


@pytest.fixture(scope="session")
def c_steps(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Compile steps.c."""
    return compiled("steps.c", tmp_path_factory.mktemp("steps"))


@pytest.fixture(scope="session")
def cpp_steps(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Compile steps.cpp."""
    return compiled("steps.cpp", tmp_path_factory.mktemp("steps"))


@pytest.fixture
def step(c_steps: Path) -> NamedSteps:
    """Return the steps of steps.c by name, as their supplier hands them over."""
    return lambda name: held(step_of(c_steps, name))


@pytest.fixture
def team() -> Iterator[Team]:
    """Make a team of two threads."""
    pair = Team(2, "test")
    yield pair
    pair.close()


@pytest.fixture
def alone() -> Iterator[Team]:
    """Make a team of one thread."""
    single = Team(1, "test")
    yield single
    single.close()
