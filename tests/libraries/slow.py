"""Cases that are too slow for ``make test``."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable
from typing import Any

import pytest

#: Whether slow cases run, too: ``make test-all``.
ALL = bool(os.environ.get("VTENSOR_TEST_ALL"))
slow = pytest.mark.skipif(not ALL, reason="slow: VTENSOR_TEST_ALL=1")


def slow_but(quick: Collection[Any], cases: Iterable[Any]) -> list[Any]:
    """Return parameters for ``parametrize``: all cases, of which only the quick ones always run."""
    rows = list(cases)
    missing = [case for case in quick if case not in rows]
    assert not missing, missing
    values = (row if isinstance(row, tuple) else (row,) for row in rows)
    marks: Iterable[list[pytest.MarkDecorator]] = ([] if row in quick else [slow] for row in rows)
    return [pytest.param(*row, marks=mark) for row, mark in zip(values, marks, strict=True)]
