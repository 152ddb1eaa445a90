"""Races with made-up peers: who is timed, who is not, and that never two run at once."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from eval.tests.benchmark.fakes import HasNoLimits
from eval.tests.benchmark.support import SETTINGS, fakes, relu, task_of, worker
from vtensor.benchmark import process
from vtensor.benchmark import worker as worker_module
from vtensor.benchmark.messages import Finished, Loaded, Timed
from vtensor.benchmark.peer import Task
from vtensor.benchmark.process import Gone, Worker
from vtensor.benchmark.race import OURS, Contender, race
from vtensor.benchmark.worker import finished, side_by_side

#: Who is not timed, what became of it, and why.
LEFT = {
    "Disagrees": ("disagrees", "1.0e-02 of the largest apart from ours, and 0.0001 are allowed"),
    "IsNaN": ("disagrees", "nan of the largest apart"),
    "OtherSizes": ("disagrees", "its outputs are [(2, 4)], ours are [(3, 4)]"),
    "Absent": ("skipped", "no-such-distribution is not installed: pip install"),
    "Refuses": ("skipped", "it has no f32"),
    "Raises": ("failed", "ZeroDivisionError: one over nothing"),
    "Dies": ("failed", "its process died, exit code 3: my last word"),
}


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Contender]]:
    """The model's file, and what became of all of them in one race."""
    file = relu(tmp_path_factory.mktemp("model"))
    found = race(task_of(file), fakes("Agrees", *LEFT, "Hungry"), SETTINGS, lambda _: None)
    return file, {one.peer: one for one in found}


@pytest.mark.parametrize("peer", LEFT)
def test_who_leaves_says_why(ran: tuple[Path, dict[str, Contender]], peer: str) -> None:
    one, (status, reason) = ran[1][peer], LEFT[peer]
    assert one.status == status
    assert reason in one.reason
    assert one.worker is None


@pytest.mark.parametrize("peer", ["vtensor", "Agrees", "Hungry"])
def test_the_others_go_on(ran: tuple[Path, dict[str, Contender]], peer: str) -> None:
    one = ran[1][peer]
    assert (one.status, one.reason) == ("timed", "")
    assert len(one.rounds) == SETTINGS.rounds
    assert all(time > 0 for seconds in one.rounds for time in seconds)
    assert one.difference == 0
    assert one.loaded
    assert 0 < one.loaded.load_s < one.loaded.first_s


def test_who_disagrees_is_never_timed(ran: tuple[Path, dict[str, Contender]]) -> None:
    assert ran[1]["Disagrees"].rounds == []
    assert ran[1]["Disagrees"].difference == pytest.approx(0.01)


def test_what_a_peer_says_of_itself_is_asked_at_the_end(
    ran: tuple[Path, dict[str, Contender]],
) -> None:
    found = ran[1]["Agrees"].finished
    assert found
    assert (found.conversions, found.limits) == (7, {"warm": 0.25})


def test_memory_is_that_of_the_process_itself(ran: tuple[Path, dict[str, Contender]]) -> None:
    small, large = (ran[1][name].finished for name in ("Agrees", "Hungry"))
    assert small
    assert large
    assert small.peak_bytes
    assert large.peak_bytes
    assert large.peak_bytes - small.peak_bytes > 0.9 * (1 << 28)


def test_memory_of_who_starts_a_process_is_not_its_own(tmp_path: Path) -> None:
    mine = np.ones(1 << 29, np.uint8)
    with worker("Agrees") as one:
        one.ask(task_of(relu(tmp_path)), Loaded, 60)
        peak = one.ask(None, Finished, 60).peak_bytes
    assert peak
    assert peak < mine.nbytes


def intervals(log: Path) -> list[tuple[str, float, float]]:
    """Who ran when, by their begin."""
    rows = (line.split() for line in log.read_text().splitlines())
    return sorted(((who, float(a), float(b)) for who, a, b in rows), key=lambda row: row[1])


def overlaps(log: Path) -> list[tuple[str, str]]:
    """Who ran while another did."""
    return [(a, b) for (a, _, end), (b, begin, _) in pairwise(intervals(log)) if begin < end]


def test_never_two_run_at_once(ran: tuple[Path, dict[str, Contender]]) -> None:
    log = ran[0].with_suffix(".log")
    assert {"Agrees", "Hungry"} < {who for who, _, _ in intervals(log)}
    assert overlaps(log) == []


def test_two_at_once_would_be_seen(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("A 0.0 2.0\nB 1.0 3.0\nA 3.5 4.0\n")
    assert overlaps(log) == [("A", "B")]


def test_turns_are_alternating_in_a_seeded_order(tmp_path: Path) -> None:
    def turns(seed: int) -> list[str]:
        said = list[str]()
        settings = replace(SETTINGS, rounds=6, seed=seed)
        race(task_of(relu(tmp_path)), fakes("Agrees", "Hungry"), settings, said.append)
        return [what.rpartition(" ")[2] for what in said if what.startswith("round")]

    first, other = turns(0), turns(1)
    rounds = [tuple(first[i : i + 3]) for i in range(0, 18, 3)]
    assert all(sorted(one) == sorted(["vtensor", "Agrees", "Hungry"]) for one in rounds)
    assert len(set(rounds)) > 1
    assert first != other


def test_without_our_answer_nobody_is_timed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(OURS, "vtensor", fakes("Raises")["Raises"])
    ours, peer = race(task_of(relu(tmp_path)), fakes("Agrees"), SETTINGS, lambda _: None)
    assert ours.status == "failed"
    assert (peer.status, peer.rounds) == ("skipped", [])
    assert "vtensor has no answer to compare with" in peer.reason


def test_a_worker_that_hangs_is_given_up(tmp_path: Path) -> None:
    with worker("Hangs") as one:
        one.ask(task_of(relu(tmp_path)), Loaded, 60)
        with pytest.raises(Gone, match=r"no answer within 0\.2 s"):
            one.ask(0.0, Timed, 0.2)


def test_a_worker_that_is_never_imported_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "hangs.py").write_text("import time; time.sleep(3600)")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    task = Task(Path("large"), {"x": np.zeros(1 << 20)}, 1, "f32")  # more than a pipe holds
    begin = time.monotonic()
    with Worker("hangs:Peer", 1) as one, pytest.raises(Gone, match=r"no answer within 0\.2 s"):
        one.ask(task, Loaded, 0.2)
    assert time.monotonic() - begin < 60


def test_a_worker_that_closes_its_pipe_and_lives_on_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "REST_S", 0.1)
    with (
        worker("ClosesItsPipe") as one,
        pytest.raises(Gone, match="its process closed the pipe, and lives on"),
    ):
        one.ask(task_of(relu(tmp_path)), Loaded, 60)


def test_limits_that_cannot_be_measured_take_nothing_else_with_them() -> None:
    found = finished(HasNoLimits())
    assert (found.conversions, found.limits, found.no_limits) == (7, {}, "out of luck")


def test_a_worker_sleeps_when_it_has_answered(tmp_path: Path) -> None:
    with worker("Spins") as one:
        one.ask(task_of(relu(tmp_path)), Loaded, 60)
        assert not process.runs(one.process_id)
        one.ask(0.0, Timed, 60)
        assert not process.runs(one.process_id)


def test_a_worker_that_never_sleeps_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "REST_S", 0.1)
    with worker("SpinsOn") as one, pytest.raises(Gone, match=r"its threads still run 0\.1 s after"):
        one.ask(task_of(relu(tmp_path)), Loaded, 60)
    assert not process.runs(one.process_id)


def test_what_a_worker_has_started_ends_with_it(tmp_path: Path) -> None:
    file = relu(tmp_path)
    with worker("StartsAnother") as one:
        one.ask(task_of(file), Loaded, 60)
        child = int(file.with_suffix(".pid").read_text())
        assert lives(child)
    until = time.monotonic() + 10
    while lives(child):
        assert time.monotonic() < until


def lives(process: int) -> bool:
    """True for a process that has not ended; one that nobody has waited for has, too."""
    try:
        return ") Z " not in Path(f"/proc/{process}/stat").read_text()
    except OSError:
        return False


def test_callers_run_side_by_side() -> None:
    """Each waits for the other in every run, so that one alone would never end."""
    meet = threading.Barrier(2)

    def both() -> None:
        meet.wait(60)

    found = side_by_side([both, both], 0)
    assert len(found) == 1
    assert found[0] > 0


def test_as_many_runs_as_there_are_callers_are_one_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two callers, three runs each: what counts is when every second one is done."""
    now = iter([10.0, 10.0, *(10.0 + second for second in (1, 1, 3, 3, 6, 6))])
    lock, meet = threading.Lock(), threading.Barrier(2)

    def clock() -> float:
        with lock:
            return next(now)

    monkeypatch.setattr(worker_module, "perf_counter", clock)
    assert side_by_side([lambda: meet.wait(60)] * 2, 6) == [0.5, 1.0, 1.5]
