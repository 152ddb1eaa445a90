"""The number of threads: affinity, quotas of control groups of both versions, instruction sets."""

from __future__ import annotations

import math
import os
from pathlib import Path

import pytest

from vtensor.errors import InputError
from vtensor.isa import CAPS, limit_isa
from vtensor.runtime.execution import processors
from vtensor.runtime.execution.processors import NO_QUOTA, Quota, available_threads, binding_quota

NONE = (math.inf, 100_000)

HYBRID = "9:name=systemd:/\n4:cpu,cpuacct:/docker/abc\n2:cpuset:/\n0::/\n"


def version_1(*rows: tuple[str, str]) -> dict[str, str]:
    """Return the files of groups of version 1: folders, and quotas with periods."""
    return {
        f"{folder}/cpu.cfs_{kind}_us": number
        for folder, text in rows
        for kind, number in zip(("quota", "period"), text.split(), strict=True)
    }


#: By name: the groups of the process, the files below the mount, quota and period.
TREES: dict[str, tuple[str, dict[str, str], tuple[float, int]]] = {
    "nothing mounted": ("0::/\n", {}, NONE),
    "version 2": ("0::/\n", {"cpu.max": "200000 100000\n"}, (2, 100_000)),
    "a part": ("0::/\n", {"cpu.max": "150000 100000\n"}, (1.5, 100_000)),
    "less than one": ("0::/\n", {"cpu.max": "10000 100000\n"}, (0.1, 100_000)),
    "no quota": ("0::/\n", {"cpu.max": "max 100000\n"}, NONE),
    "its own group": (
        *("0::/a/b\n", {"a/b/cpu.max": "300000 100000", "a/c/cpu.max": "1 1"}, (3, 100_000)),
    ),
    "the least around it": (
        "0::/a/b\n",
        {"a/b/cpu.max": "800000 100000", "a/cpu.max": "400000 100000", "cpu.max": "max 100000"},
        (4, 100_000),
    ),
    "not mounted here": ("0::/../outside\n", {"cpu.max": "200000 100000"}, (2, 100_000)),
    "version 1": (HYBRID, version_1(("cpu/docker/abc", "350000 100000")), (3.5, 100_000)),
    "version 1, in a container": (HYBRID, version_1(("cpu", "50000 25000")), (2, 25_000)),
    "version 1, no quota": (HYBRID, version_1(("cpu", "-1 100000")), NONE),
    "version 1, the least around it, under another name": (
        "4:cpu,cpuacct:/a/b\n",
        version_1(
            ("cpu,cpuacct/a/b", "800000 100000"),
            ("cpu,cpuacct/a", "300000 100000"),
            ("cpu,cpuacct", "-1 100000"),
        ),
        (3, 100_000),
    ),
    "no numbers": ("0::/\n", {"cpu.max": "many\n"}, NONE),
}


@pytest.mark.parametrize("case", TREES)
def test_quota_is_that_of_the_control_groups(case: str, tmp_path: Path) -> None:
    membership, files, expected = TREES[case]
    for name, text in files.items():
        file = tmp_path / "mount" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    assert processors.quota(tmp_path / "membership", tmp_path / "mount") == NONE
    (tmp_path / "membership").write_text(membership)
    assert processors.quota(tmp_path / "membership", tmp_path / "mount") == expected


@pytest.mark.parametrize(
    ("limit", "threads", "binds"),
    [(math.inf, 6, False), (6, 6, False), (4, 4, True), (3.5, 4, True), (0.1, 1, True)],
)
def test_affinity_and_quota_both_count(
    limit: float, threads: int, binds: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The number is rounded up; a quota of all processors binds nothing."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(6)), raising=False)
    limited = Quota(limit, 50_000)
    monkeypatch.setattr(processors, "quota", lambda: limited)
    assert available_threads() == threads
    assert binding_quota() == (limited if binds else NO_QUOTA)


def test_unknown_cap_is_refused() -> None:
    with pytest.raises(InputError, match=", ".join(CAPS)):
        limit_isa("mmx")
