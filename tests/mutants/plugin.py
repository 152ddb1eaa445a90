"""A plugin of pytest for ``python -m tests.mutants``: chooses and sorts tests, and keeps a log.

``MUTANTS_LOG`` names a file that gets a line for each test that begins or ends. ``MUTANTS_ORDER``
names a JSON file: ``order``, the tests to run, and ``known``, all tests of the map. Tests that the
map does not know run at the end.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path

import pytest

LOG, ORDER = "MUTANTS_LOG", "MUTANTS_ORDER"

_seconds, _failed = Counter[str](), set[str]()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave out the known tests that do not cover the fault, and sort the others."""
    if ORDER in os.environ:
        told = json.loads(Path(os.environ[ORDER]).read_text())
        ranks, known = {name: at for at, name in enumerate(told["order"])}, {*told["known"]}
        wanted = [item for item in items if item.nodeid in ranks or item.nodeid not in known]
        items[:] = sorted(wanted, key=lambda item: ranks.get(item.nodeid, len(ranks)))


def pytest_runtest_logstart(nodeid: str) -> None:
    """Log that a test begins: where the process crashes, no line follows."""
    _write("begin", nodeid)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Log the seconds of a test, fixtures included, and whether it failed."""
    name = report.nodeid
    _seconds[name] += report.duration  # type: ignore[assignment]
    if report.failed:
        _failed.add(name)
    if report.when == "teardown":
        _write("end", name, f"{_seconds[name]:.3f}", "failed" if name in _failed else "passed")


def _write(*fields: str) -> None:
    if LOG in os.environ:
        with Path(os.environ[LOG]).open("a") as file:
            file.write("\t".join(fields) + "\n")
