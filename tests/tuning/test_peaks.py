"""The machine's peaks: measured with steps that libraries offer."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from libdesc import register
from libdesc.onednn.handlers import peaks as onednn_peaks
from libdesc.registry import registry
from vtensor.runtime.tuning import peaks
from vtensor.runtime.tuning.peaks import Peaks, peaks_of

NBYTES = 1 << 16


@pytest.fixture
def offered(scratch: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[str, int, int]]]:
    """Libraries offer these alone: a kind, the counts of a step, the nanoseconds it takes."""
    rows: list[tuple[str, int, int]] = []

    def steps(_library: object, nbytes: int) -> Iterator[tuple[str, Any, int]]:
        assert nbytes >= peaks.MIN_COPY_BYTES
        yield from ((kind, took, count) for kind, count, took in rows)

    [name, *others] = registry().libraries
    for other in others:
        del registry().libraries[other]
    monkeypatch.setattr(type(registry().libraries[name]), "peaks", steps)
    monkeypatch.setattr(peaks, "times_of", lambda took, _enough: [took * 3, took, took * 2])
    peaks_of.cache_clear()
    yield rows
    peaks_of.cache_clear()


def test_the_best_counts(offered: list[tuple[str, int, int]]) -> None:
    offered += [("product", 1000, 10), ("product", 4000, 20), ("copy", 900, 30)]
    assert peaks_of(1) == Peaks(gflops=200, gbytes=30)
    offered.clear()
    assert peaks_of(1) == Peaks(gflops=200, gbytes=30), "they are measured once"


@pytest.mark.parametrize("rows", [[], [("product", 1, 1)], [("copy", 1, 1)]])
def test_half_is_nothing(
    offered: list[tuple[str, int, int]], rows: list[tuple[str, int, int]]
) -> None:
    offered += rows
    assert peaks_of(1) is None


def test_steps_are_timed_in_memory_of_their_own() -> None:
    offers = list(onednn_peaks(NBYTES))
    assert {kind for kind, _, _ in offers} == {"product", "copy"}
    assert offers[-1][2] == 2 * NBYTES
    for _, step, count in offers:
        times = list(peaks.times_of(step, 0))
        assert len(times) == 3
        assert count > 0 < min(times)


@pytest.mark.parametrize("rows", [[], [("product", 1, 1)]])
def test_memory_is_copied_without_a_step_for_it(
    offered: list[tuple[str, int, int]],
    rows: list[tuple[str, int, int]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(peaks, "MIN_COPY_BYTES", NBYTES)
    offered += rows
    assert getattr(peaks.copying(NBYTES)(), "nbytes", 0) == NBYTES


def test_memory_is_copied_by_the_first_step_for_it() -> None:
    assert peaks.copying(NBYTES)() is None


def test_a_library_without_steps_offers_none(scratch: None, tmp_path: Path) -> None:
    file = tmp_path / "bare.toml"
    file.write_text('[library]\nname = "bare"\npriority = 1\ndevices = ["cpu"]\n')
    with register(file):
        assert list(registry().libraries["bare"].peaks(NBYTES)) == []
