"""The costs of plans: what libraries reach here, what they declare, and which of the two it was."""

from __future__ import annotations

import sqlite3
import stat
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from libdesc.library import RegisteredLibrary
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
from vtensor.runtime.tuning import calibration, timings
from vtensor.runtime.tuning.speeds import speeds, speeds_asked_for

Steps = Iterator[tuple[str, Step, int]]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, in a process that knows nothing yet."""
    monkeypatch.setenv("VTENSOR_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(calibration, "_known", {})
    return tmp_path / "cache"


@pytest.fixture
def timed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A step takes a millisecond; here are those that were timed, by what they count."""
    seen: list[int] = []
    steps = RegisteredLibrary.peaks

    def counted(library: RegisteredLibrary, nbytes: int) -> Steps:
        for kind, step, count in steps(library, nbytes):
            seen.append(count)
            yield kind, step, count

    monkeypatch.setattr(RegisteredLibrary, "peaks", counted)
    monkeypatch.setattr(
        "vtensor.runtime.tuning.peaks.times_of", lambda _step, _enough: [2_000_000, 1_000_000]
    )
    return seen


def known_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in another process."""
    monkeypatch.setattr(calibration, "_known", {})


def library(name: str, rates: Rates, *, python: bool = False) -> Description:
    """A description that declares so much."""
    return Description(name, 0, ("cpu",), rates=rates, python=python)


def test_what_is_only_declared_is_scaled_as_the_measured_ones_are() -> None:
    """Half as fast in arithmetic, twice in memory; Python has neither instructions nor threads."""
    known = [
        library("fast", Rates(100, 10, 1)),
        library("other", Rates(40, 8, 3)),
        library("slow", Rates(1, 4, 30), python=True),
    ]
    found = calibrated(known, {"fast": Rates(50, 20, 1)})
    assert found == {
        "fast": Rates(50, 20, 1),
        "other": Rates(20, 16, 3),
        "slow": Rates(1, 4, 30),
    }
    assert calibrated(known, {}) == {one.name: one.rates for one in known}


def test_measured_once_and_kept(timed: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    first = speeds()
    products, nbytes = 2 * 512**3, 2 * calibration.COPY_BYTES
    assert first["onednn"].gflops == pytest.approx(products / 1e6, rel=1e-3)
    assert first["onednn"].gbytes == pytest.approx(nbytes / 1e6, rel=1e-3)
    assert "numpy" not in first
    before = list(timed)
    assert speeds() == first
    known_anew(monkeypatch)
    assert speeds() == first
    assert timed == before, "neither in the process nor in the next one it is measured again"


@pytest.mark.parametrize("ns", [0, 1, 10**15])
def test_nonsense_on_the_disk_is_measured_anew(
    timed: list[int], folder: Path, monkeypatch: pytest.MonkeyPatch, ns: int
) -> None:
    first = speeds()
    with closing(sqlite3.connect(folder / "timings.sqlite")) as base, base:
        base.execute("UPDATE timings SET ns = ? WHERE call = 'peak copy'", [ns])
    count = len(timed)
    known_anew(monkeypatch)
    assert speeds() == first
    assert len(timed) > count


def test_a_broken_file_is_measured_anew(
    timed: list[int], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = speeds()
    (folder / "timings.sqlite").write_bytes(b"SQLite format 3\0 and no more")
    count = len(timed)
    known_anew(monkeypatch)
    assert speeds() == first
    assert len(timed) > count


def test_the_folder_is_the_users_alone(timed: list[int], folder: Path) -> None:
    speeds()
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_the_file_stays_small(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timings, "MAX_ROWS", 3)
    for number in range(5):
        timings.Timings("old").put(f"call {number}", "way", 7)
    timings.Timings("new").put("call", "way", 8)
    assert timings.Timings("old").get("call 4", "way") is None
    assert timings.Timings("new").get("call", "way") == 8


@pytest.mark.parametrize("kinds", [(), ("product",)])
def test_a_library_that_cannot_show_it_is_taken_by_its_word(
    folder: Path, monkeypatch: pytest.MonkeyPatch, kinds: tuple[str, ...]
) -> None:
    def half(library: RegisteredLibrary, nbytes: int) -> Steps:
        del library, nbytes
        yield from ((kind, object(), 10**6) for kind in kinds)  # type: ignore[misc]

    monkeypatch.setattr(RegisteredLibrary, "peaks", half)
    monkeypatch.setattr("vtensor.runtime.tuning.peaks.times_of", lambda _step, _enough: [1_000_000])
    assert speeds() == {}


def test_a_handler_that_raises_does_not_end_planning(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def raising(library: RegisteredLibrary, nbytes: int) -> Steps:
        raise RuntimeError(f"no {nbytes} bytes for {library.name}")

    monkeypatch.setattr(RegisteredLibrary, "peaks", raising)
    assert speeds() == {}
    assert "onednn: its speed cannot be measured: no 16777216 bytes" in caplog.text


def tail() -> Graph:
    """Means of an image that lies channels last: a Transform, or another library."""
    g = Graph("tail")
    x = g.input("x", {"N": 1, "C": 32, "H": 32, "W": 32})
    w = g.constant(np.ones((64, 32, 3, 3), np.float32), "O I h w")
    g.output(g.add(Mean(("H", "W")), g.add(Conv2D(), x, w), name="mean"), "y")
    return g.seal()


def test_the_certificate_says_what_costs_are() -> None:
    resolved = extend(resolve(simplify(tail())))
    if not any(resolved.transforms()):
        pytest.skip("the first library takes them as they lie here")
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


def test_nothing_is_measured_where_nothing_is_estimated(
    timed: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VTENSOR_COSTS", "calibrated")
    g = Graph("one")
    g.output(g.add(Relu(), g.input("x", {"N": 1, "C": 8})), "y")
    with Session(g.seal(), threads=1):
        assert timed == []


@pytest.mark.parametrize(
    ("chosen", "asked"), [("declared", None), ("calibrated", speeds), ("", speeds)]
)
def test_who_says_it(monkeypatch: pytest.MonkeyPatch, chosen: str, asked: object) -> None:
    monkeypatch.setenv("VTENSOR_COSTS", chosen)
    assert speeds_asked_for() is asked


def test_another_word_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VTENSOR_COSTS", "guessed")
    with pytest.raises(InputError, match="VTENSOR_COSTS='guessed' must be calibrated or declared"):
        speeds_asked_for()


def test_this_machine_is_measured(folder: Path) -> None:
    """With real steps: some speed of a machine, in one process as in the next."""
    found = speeds()["onednn"]
    assert 0.001 < found.gflops < 10**6
    assert 0.001 < found.gbytes < 10**6
