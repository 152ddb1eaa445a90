"""Fixtures that tests of several modules use."""

from __future__ import annotations

import pytest


@pytest.fixture
def caching(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cache plans in this process, too, where other tests may have registered operators."""
    monkeypatch.setattr("vtensor.runtime.cache.plans.no_plugins", lambda: True)
