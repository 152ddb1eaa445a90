"""What all tests share: golden files, and a registry that a test may change."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.libraries.bench import Bench
from tests.libraries.golden import Golden
from tests.libraries.scratch import scratch_registry

#: A distribution of its own: ``test_plugin.py`` builds and installs it.
collect_ignore = ["plugin"]


def pytest_addoption(parser: pytest.Parser) -> None:
    """``--update-golden`` writes golden files anew: look at the difference before it is kept."""
    parser.addoption("--update-golden", action="store_true", help="write golden files anew")


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Golden:
    """Compares text with ``tests/golden/<file>/<test>.txt``."""
    module = Path(str(request.node.path)).stem
    update = bool(request.config.getoption("--update-golden"))
    return Golden(Path(__file__).parent / "golden" / module, str(request.node.name), update)


@pytest.fixture
def scratch() -> Iterator[None]:
    """Whatever the test registers is gone afterwards."""
    with scratch_registry():
        yield


@pytest.fixture
def bench(scratch: None) -> Bench:
    """The library ``toy`` and the operators ``Toy``, ``Pair``, ``Mix``, for a test's invokers."""
    return Bench()
