"""The budget of threads: affinity, and the quotas of control groups of either version."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from vtensor.runtime.execution import processors
from vtensor.runtime.execution.processors import (
    NO_QUOTA,
    Quota,
    available_threads,
    binding_quota,
    quota,
)

UNLIMITED = (math.inf, 100_000)


def group(root: Path, membership: str, files: Mapping[str, str]) -> Quota:
    """The quota in a tree of control groups."""
    for name, text in files.items():
        file = root / "mount" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    (root / "membership").write_text(membership)
    return quota(root / "membership", root / "mount")


HYBRID = "9:name=systemd:/\n4:cpu,cpuacct:/docker/abc\n2:cpuset:/\n0::/\n"
TREES: dict[str, tuple[str, dict[str, str], tuple[float, int]]] = {
    "nothing mounted": ("0::/\n", {}, UNLIMITED),
    "version 2": ("0::/\n", {"cpu.max": "200000 100000\n"}, (2, 100_000)),
    "a part": ("0::/\n", {"cpu.max": "150000 100000\n"}, (1.5, 100_000)),
    "less than one": ("0::/\n", {"cpu.max": "10000 100000\n"}, (0.1, 100_000)),
    "no quota": ("0::/\n", {"cpu.max": "max 100000\n"}, UNLIMITED),
    "its own group": (
        "0::/a/b\n",
        {"a/b/cpu.max": "300000 100000", "a/c/cpu.max": "1 1"},
        (3, 100_000),
    ),
    "the least around it": (
        "0::/a/b\n",
        {"a/b/cpu.max": "800000 100000", "a/cpu.max": "400000 100000", "cpu.max": "max 100000"},
        (4, 100_000),
    ),
    "a group that is not mounted here": (
        "0::/../outside\n",
        {"cpu.max": "200000 100000"},
        (2, 100_000),
    ),
    "version 1": (
        HYBRID,
        {"cpu/docker/abc/cpu.cfs_quota_us": "350000", "cpu/docker/abc/cpu.cfs_period_us": "100000"},
        (3.5, 100_000),
    ),
    "version 1, seen from a container": (
        HYBRID,
        {"cpu/cpu.cfs_quota_us": "50000", "cpu/cpu.cfs_period_us": "25000"},
        (2, 25_000),
    ),
    "version 1, no quota": (
        HYBRID,
        {"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"},
        UNLIMITED,
    ),
    "version 1, the least around it, under another name": (
        "4:cpu,cpuacct:/a/b\n",
        {
            f"cpu,cpuacct/{folder}cpu.cfs_{kind}_us": number
            for folder, quota_us in (("a/b/", "800000"), ("a/", "300000"), ("", "-1"))
            for kind, number in (("quota", quota_us), ("period", "100000"))
        },
        (3, 100_000),
    ),
    "no numbers": ("0::/\n", {"cpu.max": "many\n"}, UNLIMITED),
}


@pytest.mark.parametrize("case", TREES)
def test_quotas(case: str, tmp_path: Path) -> None:
    membership, files, expected = TREES[case]
    assert group(tmp_path, membership, files) == expected


def test_without_control_groups_there_is_no_quota(tmp_path: Path) -> None:
    assert quota(tmp_path / "none", tmp_path) == UNLIMITED


@pytest.mark.parametrize(
    ("limit", "threads", "binds"),
    [(math.inf, 6, False), (6, 6, False), (4, 4, True), (3.5, 4, True), (0.1, 1, True)],
)
def test_affinity_and_quota_both_count(
    limit: float, threads: int, binds: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The budget is rounded up; a quota of as many processors as there are stops nobody."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(6)), raising=False)
    found = Quota(limit, 50_000)
    monkeypatch.setattr(processors, "quota", lambda: found)
    assert available_threads() == threads
    assert binding_quota() == (found if binds else NO_QUOTA)
