"""The costs of plans: the machine's peaks, what libraries reach and declare, and which counts."""

from __future__ import annotations

import sqlite3
import stat
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from libdesc import register
from libdesc.library import RegisteredLibrary
from libdesc.onednn.handlers import peaks as onednn_peaks
from libdesc.registry import registry
from libdesc.schema import Description, Rates
from ops import Conv2D, Mean, Relu
from optimizer.choice.estimate import calibrated
from optimizer.pipeline import optimise, simplify
from optimizer.settings import Settings
from ptensor.evaluation import Step
from resolver.evaluate import resolve
from resolver.extend import extend
from vtensor import Session
from vtensor.errors import InputError
from vtensor.language.graph import Graph
from vtensor.runtime.tuning import calibration, peaks, timings
from vtensor.runtime.tuning.peaks import Peaks, peaks_of
from vtensor.runtime.tuning.speeds import speeds, speeds_asked_for

Steps = Iterator[tuple[str, Step, int]]

NBYTES = 1 << 16


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Use an empty cache, in a process that knows no speeds yet."""
    monkeypatch.setenv("VTENSOR_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(calibration, "_known", {})
    return tmp_path / "cache"


@pytest.fixture
def timed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[Step]:
    """Record the timed steps; a step takes a millisecond."""
    steps: list[Step] = []

    def times_of(step: Step, _enough: int) -> list[int]:
        steps.append(step)
        return [2_000_000, 1_000_000]

    monkeypatch.setattr(peaks, "times_of", times_of)
    return steps


def test_declared_rates_are_scaled_as_the_measured_ones_are() -> None:
    """Half as fast in arithmetic, twice in memory; Python has neither instructions nor threads."""
    known = [
        Description("fast", 0, ("cpu",), rates=Rates(100, 10, 1)),
        Description("other", 0, ("cpu",), rates=Rates(40, 8, 3)),
        Description("slow", 0, ("cpu",), rates=Rates(1, 4, 30), python=True),
    ]
    scaled = {"fast": Rates(50, 20, 1), "other": Rates(20, 16, 3), "slow": Rates(1, 4, 30)}
    assert calibrated(known, {"fast": Rates(50, 20, 1)}) == scaled
    assert calibrated(known, {}) == {library.name: library.rates for library in known}


def set_peak(file: Path, ns: int) -> None:
    with closing(sqlite3.connect(file)) as base, base:
        base.execute("UPDATE timings SET ns = ? WHERE call = 'peak copy'", [ns])


@pytest.mark.parametrize(
    "damage",
    [
        None,
        *[lambda file, ns=ns: set_peak(file, ns) for ns in (0, 1, 10**15)],
        lambda file: file.write_bytes(b"SQLite format 3\0 and no more"),
    ],
    ids=["none", "0", "1", "10**15", "broken"],
)
def test_speeds_are_measured_once_and_again_when_damaged(
    timed: list[Step],
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    damage: Callable[[Path], object] | None,
) -> None:
    first = speeds()
    products, nbytes = 2 * 512**3, 2 * calibration.COPY_BYTES
    assert first["onednn"].gflops == pytest.approx(products / 1e6, rel=1e-3)
    assert first["onednn"].gbytes == pytest.approx(nbytes / 1e6, rel=1e-3)
    assert "numpy" not in first
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    count = len(timed)
    assert speeds() == first
    if damage is not None:
        damage(folder / "timings.sqlite")
    monkeypatch.setattr(calibration, "_known", {})  # as in another process
    assert speeds() == first
    assert (len(timed) > count) == (damage is not None)


def test_file_of_times_stays_small(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timings, "MAX_ROWS", 3)
    for number in range(5):
        timings.Timings("old").put(f"call {number}", "way", 7)
    timings.Timings("new").put("call", "way", 8)
    assert timings.Timings("old").get("call 4", "way") is None
    assert timings.Timings("new").get("call", "way") == 8


@pytest.mark.parametrize("kinds", [(), ("product",)])
def test_speed_of_a_library_without_both_steps_is_as_declared(
    folder: Path, monkeypatch: pytest.MonkeyPatch, kinds: tuple[str, ...]
) -> None:
    def half(library: RegisteredLibrary, nbytes: int) -> Steps:
        del library, nbytes
        yield from ((kind, object(), 10**6) for kind in kinds)  # type: ignore[misc]

    monkeypatch.setattr(RegisteredLibrary, "peaks", half)
    monkeypatch.setattr(peaks, "times_of", lambda _step, _enough: [1_000_000])
    assert speeds() == {}


def test_handler_that_raises_does_not_end_planning(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def raising(library: RegisteredLibrary, nbytes: int) -> Steps:
        raise RuntimeError(f"no {nbytes} bytes for {library.name}")

    monkeypatch.setattr(RegisteredLibrary, "peaks", raising)
    assert speeds() == {}
    assert "onednn: its speed cannot be measured: no 16777216 bytes" in caplog.text


def test_certificate_says_what_costs_are() -> None:
    """Of means of an image that is laid out channels last: a Transform, or another library."""
    g = Graph("tail")
    x = g.input("x", {"N": 1, "C": 32, "H": 32, "W": 32})
    w = g.constant(np.ones((64, 32, 3, 3), np.float32), "O I h w")
    g.output(g.add(Mean(("H", "W")), g.add(Conv2D(), x, w), name="mean"), "y")
    resolved = extend(resolve(simplify(g.seal())))
    if not any(resolved.transforms()):
        pytest.skip("the first library takes the image in its layout here")
    asked = []

    def fixed() -> dict[str, Rates]:
        asked.append(1)
        return {"onednn": Rates(75, 6, 3)}

    for settings, costs in [
        (Settings(), "declared ns"),
        (Settings(speeds=fixed), "calibrated ns"),
        (Settings(speeds=dict), "declared ns"),
    ]:
        certificate = optimise(resolved, "all", settings).certificate
        assert certificate is not None
        assert certificate.costs == costs
    assert asked == [1], "once a plan"


def test_nothing_is_measured_when_nothing_is_estimated(
    timed: list[Step], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VTENSOR_COSTS", "calibrated")
    g = Graph("one")
    g.output(g.add(Relu(), g.input("x", {"N": 1, "C": 8})), "y")
    with Session(g.seal(), threads=1):
        assert timed == []


def test_variable_chooses_the_costs(monkeypatch: pytest.MonkeyPatch) -> None:
    for text, chosen in (("declared", None), ("calibrated", speeds), ("", speeds)):
        monkeypatch.setenv("VTENSOR_COSTS", text)
        assert speeds_asked_for() is chosen
    monkeypatch.setenv("VTENSOR_COSTS", "guessed")
    with pytest.raises(InputError, match="VTENSOR_COSTS='guessed' must be calibrated or declared"):
        speeds_asked_for()


def test_this_machine_has_speeds(folder: Path) -> None:
    """With real steps."""
    rates = speeds()["onednn"]
    assert 0.001 < rates.gflops < 10**6
    assert 0.001 < rates.gbytes < 10**6


@pytest.fixture
def offered(scratch: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[str, int, int]]]:
    """Let one library offer these steps: kind, count, nanoseconds."""
    rows: list[tuple[str, int, int]] = []

    def steps(_library: object, nbytes: int) -> Iterator[tuple[str, Any, int]]:
        assert nbytes >= peaks.MIN_COPY_BYTES
        yield from ((kind, ns, count) for kind, count, ns in rows)

    [_, *others] = registry().libraries
    for other in others:
        del registry().libraries[other]
    monkeypatch.setattr(RegisteredLibrary, "peaks", steps)
    monkeypatch.setattr(peaks, "times_of", lambda ns, _enough: [ns * 3, ns, ns * 2])
    peaks_of.cache_clear()
    yield rows
    peaks_of.cache_clear()


def test_peak_is_that_of_the_best_step_and_measured_once(
    offered: list[tuple[str, int, int]],
) -> None:
    offered += [("product", 1000, 10), ("product", 4000, 20), ("copy", 900, 30)]
    assert peaks_of(1) == Peaks(gflops=200, gbytes=30)
    offered.clear()
    assert peaks_of(1) == Peaks(gflops=200, gbytes=30)


@pytest.mark.parametrize("rows", [[], [("product", 1, 1)], [("copy", 1, 1)]])
def test_machine_has_no_peaks_without_both_steps(
    offered: list[tuple[str, int, int]],
    rows: list[tuple[str, int, int]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    offered += rows
    assert peaks_of(1) is None
    if ("copy", 1, 1) not in rows:  # memory is copied without a step for it
        monkeypatch.setattr(peaks, "MIN_COPY_BYTES", NBYTES)
        assert getattr(peaks.copying(NBYTES)(), "nbytes", 0) == NBYTES


def test_steps_are_timed_in_memory_of_their_own() -> None:
    offers = list(onednn_peaks(NBYTES))
    assert {kind for kind, _, _ in offers} == {"product", "copy"}
    assert offers[-1][2] == 2 * NBYTES
    for _, step, count in offers:
        times = list(peaks.times_of(step, 0))
        assert len(times) == 3
        assert count > 0 < min(times)
    assert peaks.copying(NBYTES)() is None  # by the first step for it


def test_library_without_steps_offers_none(scratch: None, tmp_path: Path) -> None:
    file = tmp_path / "bare.toml"
    file.write_text('[library]\nname = "bare"\npriority = 1\ndevices = ["cpu"]\n')
    with register(file):
        assert list(registry().libraries["bare"].peaks(NBYTES)) == []
