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

#: Peers that are not timed: status and reason.
LEFT = {
    "Disagrees": ("disagrees", "1.0e-02 of the largest apart from ours, and 0.0001 are allowed"),
    "IsNaN": ("disagrees", "nan of the largest apart"),
    "OtherSizes": ("disagrees", "its outputs are [(2, 4)], ours are [(3, 4)]"),
    "Absent": ("skipped", "no-such-distribution is not installed: pip install"),
    "Refuses": ("skipped", "it has no f32"),
    "Raises": ("failed", "ZeroDivisionError: one over nothing"),
    "Dies": ("failed", "its process died, exit code 3: my last word"),
}
Ran = tuple[Path, dict[str, Contender]]


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """Race all of them; return the model's file and the contenders."""
    file = relu(tmp_path_factory.mktemp("model"))
    contenders = race(task_of(file), fakes("Agrees", *LEFT, "Hungry"), SETTINGS, lambda _: None)
    return file, {contender.peer: contender for contender in contenders}


@pytest.mark.parametrize("peer", LEFT)
def test_a_peer_that_leaves_says_why(ran: Ran, peer: str) -> None:
    contender, (status, reason) = ran[1][peer], LEFT[peer]
    assert contender.status == status
    assert reason in contender.reason
    assert contender.worker is None


@pytest.mark.parametrize("peer", ["vtensor", "Agrees", "Hungry"])
def test_the_others_go_on(ran: Ran, peer: str) -> None:
    contender = ran[1][peer]
    assert (contender.status, contender.reason) == ("timed", "")
    assert len(contender.rounds) == SETTINGS.rounds
    assert all(time > 0 for seconds in contender.rounds for time in seconds)
    assert contender.difference == 0
    assert contender.loaded
    assert 0 < contender.loaded.load_s < contender.loaded.first_s


def test_a_peer_that_disagrees_is_never_timed(ran: Ran) -> None:
    assert ran[1]["Disagrees"].rounds == []
    assert ran[1]["Disagrees"].difference == pytest.approx(0.01)


def test_a_peers_own_numbers_and_memory_are_asked_at_the_end(ran: Ran) -> None:
    small, large = (ran[1][name].finished for name in ("Agrees", "Hungry"))
    assert small
    assert large
    assert (small.conversions, small.limits) == (7, {"warm": 0.25})
    assert small.peak_bytes
    assert large.peak_bytes
    assert large.peak_bytes - small.peak_bytes > 0.9 * (1 << 28)


def test_memory_of_the_parent_process_is_not_the_workers(tmp_path: Path) -> None:
    mine = np.ones(1 << 29, np.uint8)
    with worker("Agrees") as peer:
        peer.ask(task_of(relu(tmp_path)), Loaded, 60)
        peak = peer.ask(None, Finished, 60).peak_bytes
    assert peak
    assert peak < mine.nbytes


def overlaps(log: Path) -> list[tuple[str, str]]:
    """Return the peers that ran while another did."""
    rows = (line.split() for line in log.read_text().splitlines())
    runs = sorted((float(begin), float(end), peer) for peer, begin, end in rows)
    return [(a, b) for (_, end, a), (begin, _, b) in pairwise(runs) if begin < end]


def test_never_two_run_at_once(ran: Ran, tmp_path: Path) -> None:
    log = ran[0].with_suffix(".log")
    assert {"Agrees", "Hungry"} < {line.split()[0] for line in log.read_text().splitlines()}
    assert overlaps(log) == []
    twin = tmp_path / "log"
    twin.write_text("A 0.0 2.0\nB 1.0 3.0\nA 3.5 4.0\n")
    assert overlaps(twin) == [("A", "B")]


def test_turns_are_alternating_in_a_seeded_order(tmp_path: Path) -> None:
    def turns(seed: int) -> list[str]:
        notes = list[str]()
        settings = replace(SETTINGS, rounds=6, seed=seed)
        race(task_of(relu(tmp_path)), fakes("Agrees", "Hungry"), settings, notes.append)
        return [note.rpartition(" ")[2] for note in notes if note.startswith("round")]

    first, other = turns(0), turns(1)
    rounds = [tuple(first[i : i + 3]) for i in range(0, 18, 3)]
    assert all(sorted(turn) == sorted(["vtensor", "Agrees", "Hungry"]) for turn in rounds)
    assert len(set(rounds)) > 1
    assert first != other


def test_without_our_answer_no_peer_is_timed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(OURS, "vtensor", fakes("Raises")["Raises"])
    ours, peer = race(task_of(relu(tmp_path)), fakes("Agrees"), SETTINGS, lambda _: None)
    assert ours.status == "failed"
    assert (peer.status, peer.rounds) == ("skipped", [])
    assert "vtensor has no answer to compare with" in peer.reason


def test_a_worker_that_hangs_is_given_up(tmp_path: Path) -> None:
    with worker("Hangs") as peer:
        peer.ask(task_of(relu(tmp_path)), Loaded, 60)
        with pytest.raises(Gone, match=r"no answer within 0\.2 s"):
            peer.ask(0.0, Timed, 0.2)


def test_a_worker_that_is_never_imported_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "hangs.py").write_text("import time; time.sleep(3600)")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    task = Task(Path("large"), {"x": np.zeros(1 << 20)}, 1, "f32")  # more than a pipe holds
    begin = time.monotonic()
    with Worker("hangs:Peer", 1) as peer, pytest.raises(Gone, match=r"no answer within 0\.2 s"):
        peer.ask(task, Loaded, 0.2)
    assert time.monotonic() - begin < 60


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("ClosesItsPipe", "its process closed the pipe, and lives on"),
        ("SpinsOn", r"its threads still run 0\.1 s after"),
    ],
)
def test_a_worker_that_does_not_rest_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, reason: str
) -> None:
    monkeypatch.setattr(process, "REST_S", 0.1)
    with worker(name) as peer, pytest.raises(Gone, match=reason):
        peer.ask(task_of(relu(tmp_path)), Loaded, 60)
    assert not process.runs(peer.process_id)


def test_limits_that_cannot_be_measured_take_nothing_else_with_them() -> None:
    numbers = finished(HasNoLimits())
    assert (numbers.conversions, numbers.limits, numbers.no_limits) == (7, {}, "out of luck")


def test_a_worker_sleeps_when_it_has_answered(tmp_path: Path) -> None:
    with worker("Spins") as peer:
        peer.ask(task_of(relu(tmp_path)), Loaded, 60)
        assert not process.runs(peer.process_id)
        peer.ask(0.0, Timed, 60)
        assert not process.runs(peer.process_id)


def test_a_process_that_a_worker_has_started_ends_with_it(tmp_path: Path) -> None:
    file = relu(tmp_path)
    with worker("StartsAnother") as peer:
        peer.ask(task_of(file), Loaded, 60)
        child = int(file.with_suffix(".pid").read_text())
        assert lives(child)
    until = time.monotonic() + 10
    while lives(child):
        assert time.monotonic() < until


def lives(process: int) -> bool:
    """Return whether a process has not ended; one that was not waited for has ended, too."""
    try:
        return ") Z " not in Path(f"/proc/{process}/stat").read_text()
    except OSError:
        return False


def test_callers_run_side_by_side() -> None:
    """Each waits for the other in every run: a caller alone would never end."""
    meet = threading.Barrier(2)
    [seconds] = side_by_side([lambda: meet.wait(60)] * 2, 0)
    assert seconds > 0


def test_as_many_runs_as_there_are_callers_are_one_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two callers, three runs each: what counts is when every second one is done."""
    now = iter([10.0, 10.0, *(10.0 + second for second in (1, 1, 3, 3, 6, 6))])
    lock, meet = threading.Lock(), threading.Barrier(2)

    def clock() -> float:
        with lock:
            return next(now)

    monkeypatch.setattr(worker_module, "perf_counter", clock)
    assert side_by_side([lambda: meet.wait(60)] * 2, 6) == [0.5, 1.0, 1.5]
