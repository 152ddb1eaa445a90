"""Plans whose constants another thread reads and packs: to the bit those that are made without."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any
from weakref import ref

import numpy as np
import pytest

from ptensor.buffer import TensorStorage
from tests.runtime.packed_net import feeds, network
from vtensor import Session
from vtensor.errors import BudgetError, ModelError, NativeError
from vtensor.runtime import _replay
from vtensor.runtime.recording import packing_table, recorder
from vtensor.runtime.recording.packer import MAX_BYTES_TOUCHED, Expected, FileSlice, Packer
from vtensor.runtime.recording.packing_table import PackingStep
from vtensor.runtime.recording.weights import PlanWeights
from vtensor.runtime.recording.workspace import Workspace
from vtensor.storage.open_file import OpenFile

Array = np.ndarray[Any, Any]


def answers(path: Path, **options: Any) -> list[bytes]:
    with Session(path, cache_dir=None, deterministic=True, **options) as session:
        return [
            one.tobytes() for n, h in ((2, 9), (1, 12)) for one in session.run(None, feeds(n, h))
        ]


def are_parts_packed(path: Path) -> bool:
    with Session(path, cache_dir=None, deterministic=True, threads=2) as session:
        session.run(None, feeds(2, 9))
        return any(node.input.startswith("w[") for node in session.plan.graph.ahead())


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the thread was given: a constant that is there, one of a file, a large one, kernels."""
    seen, own = list[str](), _replay.Aside

    class Seeing:
        def __init__(self) -> None:
            self._own = own()

        def __getattr__(self, name: str) -> Any:
            return getattr(self._own, name)

        def run(self, pieces: Any, lost: Any = None, place: Any = None, times: Any = None) -> None:
            self._own.run(pieces, lost, place, times)
            part = "held" if place is None else "rows" if place[2] > 1 else "whole"
            [(_, slots)] = pieces
            seen.append(f"{part}{' times' * bool(times)}" if len(slots) else "kernel")

        def read(self, file: Any, offset: int, into: Array) -> None:
            seen.append("large")
            self._own.read(file, offset, into)

    monkeypatch.setattr(_replay, "Aside", Seeing)
    return seen


def alone(path: Path, monkeypatch: pytest.MonkeyPatch, **options: Any) -> list[bytes]:
    """What a plan for as many threads answers that is made on one."""
    with monkeypatch.context() as patch:
        patch.setattr(recorder, "Packer", lambda _: Packer(None))
        return answers(path, **options)


@pytest.mark.parametrize("beside", [False, True])
@pytest.mark.parametrize("optimize", ["none", "all"])
def test_the_answers_are_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ran: list[str], beside: bool, optimize: str
) -> None:
    path = network(tmp_path, beside)
    expected = alone(path, monkeypatch, threads=2, optimize=optimize)
    assert not ran
    assert answers(path, threads=2, optimize=optimize) == expected
    assert {"kernel", "whole"} <= {*ran}
    if optimize == "all":
        assert "whole times" in ran
        assert ("rows" in ran) == are_parts_packed(path)  # as this machine has products
    ran.clear()
    answers(path, threads=1, optimize=optimize)  # a budget of one thread is kept
    assert not ran


def test_large_ones_are_read_one_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ran: list[str]
) -> None:
    path = network(tmp_path, beside=False)
    expected = alone(path, monkeypatch, threads=2)
    monkeypatch.setattr(packing_table, "LARGE_BYTES", 1 << 16)
    assert answers(path, threads=2) == expected
    assert ran.count("large") >= 2


def test_from_memory_what_is_there_is_packed(ran: list[str], tmp_path: Path) -> None:
    path = network(tmp_path, beside=False)
    with Session(path.read_bytes(), cache_dir=None, deterministic=True, threads=2) as session:
        found = [one.tobytes() for one in session.run(None, feeds(2, 9))]
    assert "held" in ran
    assert found == answers(path, threads=2)[:2]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_a_session_that_was_opened_before_a_fork_runs_in_the_child(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vtensor.runtime.recording.packer.MIN_BYTES_TOUCHED", 1 << 18)
    path = network(tmp_path, beside=False)
    with Session(path, cache_dir=None, threads=2) as session:
        assert session._runner.workspace.expected
        if (pid := os.fork()) == 0:
            code = 1
            try:
                session.run(None, feeds(2, 9))
                code = 0
            finally:
                os._exit(code)
        assert os.waitpid(pid, 0)[1] == 0
        session.run(None, feeds(2, 9))


def test_what_failed_is_told_again_where_somebody_swallows_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a plan would run on weights that nobody has packed."""
    take, looked = recorder.Recorder._take, list[str]()

    def swallowed(self: recorder.Recorder, names: Any, found: Any) -> None:
        take(self, names, found)
        for name, storage in self.storages.items():
            if "@ahead" in name and storage.untouched:
                with suppress(ModelError):
                    storage.memory.any()
                looked.append(name)

    monkeypatch.setattr(recorder.Recorder, "_take", swallowed)
    path = network(tmp_path, beside=True)
    with Session(path, cache_dir=None, threads=2, optimize="none") as session:
        os.truncate(tmp_path / "data", 1000)
        with pytest.raises(ModelError, match="changed since it was opened"):
            session.run(None, feeds(2, 9))
    assert looked


def test_files_are_not_opened_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process may have few of them."""

    def descriptors() -> int:
        return sum(1 for _ in Path("/proc/self/fd").iterdir())

    most, pack = list[int](), Packer.pack

    def packed(self: Packer, *about: Any) -> TensorStorage:
        storage = pack(self, *about)
        most.append(descriptors())
        return storage

    monkeypatch.setattr(Packer, "pack", packed)
    path = network(tmp_path, beside=False)
    with Session(path, cache_dir=None, threads=2, deterministic=True) as session:
        before = descriptors()
        session.run(None, feeds(2, 9))
    assert max(most) <= before


def test_nothing_stays_of_a_plan_that_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No thread and no memory, though nobody collects circles."""
    path, seen = network(tmp_path, beside=False), list[Any]()

    def failing(self: Workspace, *about: Any) -> None:
        raise BudgetError("no more memory")

    def noted(self: PlanWeights, *about: Any) -> None:
        begin(self, *about)
        seen.append(ref(self))

    begin = PlanWeights.__init__
    with Session(path, cache_dir=None, threads=2, deterministic=True) as session:
        session.run(None, feeds(2, 9))  # what is made once is there
        with monkeypatch.context() as patch:
            patch.setattr(Workspace, "grow", failing)
            patch.setattr(PlanWeights, "__init__", noted)
            gc.collect()
            gc.disable()
            try:
                with pytest.raises(BudgetError):
                    session.run(None, feeds(3, 9))
                assert seen
                assert not any(one() for one in seen)
            finally:
                gc.enable()


@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize("how", ["changed", "cut"])
def test_a_file_that_was_changed_since_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ran: list[str], how: str, large: bool
) -> None:
    if large:
        monkeypatch.setattr(packing_table, "LARGE_BYTES", 1 << 16)
    path = network(tmp_path, beside=True)
    with Session(path, cache_dir=None, threads=2, optimize="none") as session:
        with (tmp_path / "data").open("r+b") as file:
            if how == "cut":
                file.truncate(1000)
            else:
                file.write(b"another")
        os.utime(tmp_path / "data", (1, 1))
        with pytest.raises(ModelError, match="changed since it was opened; load it again"):
            session.run(None, feeds(2, 9))
        with pytest.raises(ModelError, match="changed since it was opened; load it again"):
            session.run(None, feeds(2, 9))
    assert ran


def test_a_file_that_cannot_be_read_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ran: list[str]
) -> None:
    """Also where nobody can say that it was changed."""
    monkeypatch.setattr(OpenFile, "check", lambda self: None)
    path = network(tmp_path, beside=True)
    with Session(path, cache_dir=None, threads=2, optimize="none") as session:
        os.truncate(tmp_path / "data", 1000)
        with pytest.raises(ModelError, match="'data' is shorter than it was; load it again"):
            session.run(None, feeds(2, 9))
    assert "whole" in ran


def test_a_step_that_fails_names_the_transform(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tests.libraries.steps import READ, WRITE, FloatStep

    path = network(tmp_path, beside=False)
    steps: list[FloatStep] = []

    def packing(node: Any, row: Any, given: TensorStorage | None) -> PackingStep:
        step, nbytes = own(node, row, given), (row.step_input.nbytes, row.value.nbytes)
        sizes = [(nbytes[0] // 4, READ), (nbytes[1] // 4, WRITE)]
        steps.append(FloatStep("fail", sizes, lambda arrays: "it says no"))
        return step._replace(native=steps[-1], slots=["source", "target"])

    own = recorder.packing_step
    monkeypatch.setattr(recorder, "packing_step", packing)
    with (
        Session(path, cache_dir=None, threads=2, optimize="none") as session,
        pytest.raises(NativeError, match=r"step of 'ahead:\d+': fail: it says no"),
    ):
        session.run(None, feeds(2, 9))


def test_nobody_else_has_what_is_not_packed_yet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another thread's plan may want the same constant meanwhile."""
    path, shared = network(tmp_path, beside=False), list[tuple[int, int]]()
    wait, weights = Packer.wait, list[PlanWeights]()
    begin = PlanWeights.__init__

    def begun(self: PlanWeights, *about: Any) -> None:
        begin(self, *about)
        weights.append(self)

    def waited(self: Packer) -> None:
        before = len(weights[-1]._packed)
        wait(self)
        shared.append((before, len(weights[-1]._packed)))

    monkeypatch.setattr(PlanWeights, "__init__", begun)
    monkeypatch.setattr(Packer, "wait", waited)
    with Session(path, cache_dir=None, threads=2, deterministic=True) as session:
        session.run(None, feeds(2, 9))
        packed = len([*session.plan.graph.ahead()])
        session.run(None, feeds(1, 12))
    [(before, behind), *_] = shared
    assert behind - before == packed >= 3


def test_who_looks_at_a_constant_waits_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, seen = network(tmp_path, beside=False), list[bool]()
    take = recorder.Recorder._take

    def looked(self: recorder.Recorder, names: Any, found: Any) -> None:
        take(self, names, found)
        for name, storage in self.storages.items():
            if "@ahead" in name and storage.untouched:
                data = storage.memory.copy()
                self.packer.wait()
                seen.append(bool((data == storage.memory).all() and data.any()))

    monkeypatch.setattr(recorder.Recorder, "_take", looked)
    with Session(path, cache_dir=None, threads=2, deterministic=True) as session:
        session.run(None, feeds(2, 9))
    assert seen
    assert all(seen)


def test_pages_are_expected_of_models_with_much_to_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected, begin = list[int](), Expected.__init__

    def expecting(self: Expected, nbytes: int) -> None:
        expected.append(nbytes)
        begin(self, nbytes)

    monkeypatch.setattr(Expected, "__init__", expecting)
    monkeypatch.setattr("vtensor.runtime.recording.packer.MIN_BYTES_TOUCHED", 1 << 18)
    path = network(tmp_path, beside=False)
    with Session(path, cache_dir=None, threads=1) as session:
        session.run(None, feeds(2, 9))
    assert not expected
    with Session(path, cache_dir=None, threads=2, deterministic=True) as session:
        workspace: Workspace = session._runner.workspace
        assert len(workspace.expected) == 1
        session.run(None, feeds(2, 9))
        assert not workspace.expected
        session.run(None, feeds(1, 12))
    weights = 4 * (128 * 64 * 9 + 128 * 128 * 9 + 192 * 128 + 128 * 512 + 256 * 160)
    assert expected == [weights]
    with Session(path, cache_dir=None, threads=2, max_bytes=weights) as session:
        assert not session._runner.workspace.expected


@pytest.mark.parametrize("nbytes", [0, 1, 3 << 20, 5 << 20, 9 << 20])
def test_expected_memory_has_the_size_that_is_wanted(nbytes: int) -> None:
    expected = Expected(5 << 20)
    room = expected.room(nbytes)
    assert room.nbytes == nbytes
    room[:] = 3
    assert MAX_BYTES_TOUCHED >= 5 << 20


#: What is compared above is found out where it is wrong.
FAULTS: list[Callable[[FileSlice], FileSlice]] = [
    lambda one: one._replace(offset=one.offset + 4),
    lambda one: one._replace(factors=None),
]


@pytest.mark.parametrize("fault", FAULTS)
def test_wrong_rows_or_factors_are_found_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: Callable[[FileSlice], FileSlice]
) -> None:
    path, of = network(tmp_path, beside=False), FileSlice.of
    expected = alone(path, monkeypatch, threads=2)

    def wrong(*about: Any) -> FileSlice | None:
        found = of(*about)
        return found and fault(found)

    monkeypatch.setattr(FileSlice, "of", wrong)
    assert answers(path, threads=2) != expected


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="the system does not say it")
def test_the_thread_ends_with_the_plan_made(tmp_path: Path) -> None:
    """Also where call-backs live on, and what recorded them with them."""

    def threads() -> int:
        names = [one / "comm" for one in Path("/proc/self/task").iterdir()]
        return sum(one.read_text() == "vtensor-aside\n" for one in names if one.exists())

    path, before = network(tmp_path, beside=False), threads()
    pins = {"Softmax": "numpy", "Mul": "numpy", "Relu": "numpy"}
    options: dict[str, Any] = {"cache_dir": None, "threads": 2, "optimize": "none", "pin": pins}
    with Session(path, deterministic=True, **options) as session:
        session.run(None, feeds(2, 9))
        assert session._runner.open()
        assert any(step.callback is not None for step in session.plan.recorded)
        assert threads() == before
