"""Processes that tests of a module share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.planning.support import Process, process


@pytest.fixture(autouse=True)
def caching(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cache plans in this process, too, where other tests may have registered operators."""
    monkeypatch.setattr("vtensor.runtime.cache.plans.no_plugins", lambda: True)


def _process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    """Start a process that goes from row to row."""
    with process(tmp_path_factory.mktemp("timings")) as worker:
        yield worker


here = pytest.fixture(scope="module", name="here")(_process)
there = pytest.fixture(scope="module", name="there")(_process)
