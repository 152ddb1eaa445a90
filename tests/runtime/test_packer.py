"""Constants that another thread reads and packs: plans to the bit as those made without it."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from math import prod
from pathlib import Path
from typing import Any
from weakref import ref

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from optimizer.constants.computed import Made, cut, multiplied, times
from optimizer.constants.originals import Original
from ptensor.buffer import TensorStorage
from ptensor.layout import Layout
from resolver.values import Value
from tests.libraries.steps import READ, WRITE, FloatStep
from tests.runtime.packed_net import feeds, network
from vtensor import Session
from vtensor.errors import BudgetError, ModelError, NativeError
from vtensor.language.dtype import from_numpy
from vtensor.runtime import _replay
from vtensor.runtime.recording import packing_table, recorder
from vtensor.runtime.recording.packer import (
    MAX_BYTES_TOUCHED,
    MIN_ROW_BYTES,
    Expected,
    FileSlice,
    Packer,
)
from vtensor.runtime.recording.packing_table import ConstantRow, PackingStep
from vtensor.runtime.recording.weights import PlanWeights
from vtensor.runtime.recording.workspace import Workspace
from vtensor.storage.open_file import OpenFile, Stretch

Array = np.ndarray[Any, Any]
Patch = pytest.MonkeyPatch
LEVELS = ("none", "all")


def opened(model: Path | bytes, **options: Any) -> Session:
    return Session(model, **{"cache_dir": None, "threads": 2, **options})


def run(session: Session, n: int = 2, h: int = 9) -> list[bytes]:
    return [array.tobytes() for array in session.run(None, feeds(n, h))]


def answers(path: Path, **options: Any) -> list[bytes]:
    with opened(path, deterministic=True, **options) as session:
        return run(session) + run(session, 1, 12)


def alone(path: Path, patch: Patch, **options: Any) -> list[bytes]:
    """Return the answers of plans for as many threads that are made on one."""
    with patch.context() as patched:
        patched.setattr(recorder, "Packer", lambda _: Packer(None))
        return answers(path, **options)


def watch(patch: Patch, owner: type, method: str, look: Callable[..., object]) -> None:
    """Call ``look`` with the arguments of each call of a method, after it."""
    real = getattr(owner, method)

    def watched(*args: Any) -> Any:
        result = real(*args)
        look(*args)
        return result

    patch.setattr(owner, method, watched)


def look_at_constants(patch: Patch, look: Callable[[Any, TensorStorage], object]) -> None:
    """Call ``look`` with the recorder and each constant while it is not packed yet."""

    def each(self: recorder.Recorder, *_: Any) -> None:
        for name, storage in self.storages.items():
            if "@ahead" in name and storage.untouched:
                look(self, storage)

    watch(patch, recorder.Recorder, "_take", each)


@pytest.fixture
def ran(monkeypatch: Patch) -> list[str]:
    """Kinds of work of the thread: a constant in memory, one of a file, a large one, kernels."""
    seen, real = list[str](), _replay.Aside

    class Seeing:
        def __init__(self) -> None:
            self._real = real()

        def __getattr__(self, name: str) -> Any:
            return getattr(self._real, name)

        def run(self, pieces: Any, lost: Any = None, place: Any = None, times: Any = None) -> None:
            self._real.run(pieces, lost, place, times)
            part = "held" if place is None else "rows" if place[2] > 1 else "whole"
            [(_, slots)] = pieces
            seen.append(f"{part}{' times' * bool(times)}" if len(slots) else "kernel")

        def read(self, file: Any, offset: int, into: Array) -> None:
            seen.append("large")
            self._real.read(file, offset, into)

    monkeypatch.setattr(_replay, "Aside", Seeing)
    return seen


@pytest.mark.parametrize(
    ("beside", "optimize", "large"),
    [
        *((beside, level, False) for beside in (False, True) for level in LEVELS),
        (False, "all", True),
    ],
)
def test_answers_are_those_of_plans_made_on_one_thread(
    tmp_path: Path, monkeypatch: Patch, ran: list[str], beside: bool, optimize: str, large: bool
) -> None:
    path = network(tmp_path, beside)
    expected = alone(path, monkeypatch, optimize=optimize)
    assert not ran
    if large:  # read one at a time
        monkeypatch.setattr(packing_table, "LARGE_BYTES", 1 << 16)
    assert answers(path, optimize=optimize) == expected
    assert "kernel" in ran
    assert ran.count("large") >= 2 if large else "whole" in ran
    if optimize == "all" and not large:
        assert "whole times" in ran
        with opened(path, deterministic=True) as session:
            run(session)
            parts = [node for node in session.plan.graph.ahead() if node.input.startswith("w[")]
        assert ("rows" in ran) == bool(parts)  # as this machine has products
    ran.clear()
    answers(path, threads=1, optimize=optimize)  # a budget of one thread is kept
    assert not ran


def test_constants_of_a_model_from_memory_are_packed(ran: list[str], tmp_path: Path) -> None:
    path = network(tmp_path, beside=False)
    with opened(path.read_bytes(), deterministic=True) as session:
        found = run(session)
    assert "held" in ran
    assert found == answers(path)[:2]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_a_session_that_was_opened_before_a_fork_runs_in_the_child(
    tmp_path: Path, monkeypatch: Patch
) -> None:
    monkeypatch.setattr("vtensor.runtime.recording.packer.MIN_BYTES_TOUCHED", 1 << 18)
    with opened(network(tmp_path, beside=False)) as session:
        assert session._runner.workspace.expected
        if (pid := os.fork()) == 0:
            code = 1
            try:
                run(session)
                code = 0
            finally:
                os._exit(code)
        assert os.waitpid(pid, 0)[1] == 0
        run(session)


def test_an_error_that_was_swallowed_is_raised_again(tmp_path: Path, monkeypatch: Patch) -> None:
    """Otherwise a plan would run on weights that are not packed."""
    looked = list[TensorStorage]()

    def swallows(_: object, storage: TensorStorage) -> None:
        with suppress(ModelError):
            storage.memory.any()
        looked.append(storage)

    look_at_constants(monkeypatch, swallows)
    with opened(network(tmp_path, beside=True), optimize="none") as session:
        os.truncate(tmp_path / "data", 1000)
        with pytest.raises(ModelError, match="changed since it was opened"):
            run(session)
    assert looked


def test_a_look_at_a_constant_waits_for_it(tmp_path: Path, monkeypatch: Patch) -> None:
    seen = list[bool]()

    def looks(recorder: Any, storage: TensorStorage) -> None:
        data = storage.memory.copy()
        recorder.packer.wait()
        seen.append(bool((data == storage.memory).all() and data.any()))

    look_at_constants(monkeypatch, looks)
    answers(network(tmp_path, beside=False))
    assert seen
    assert all(seen)


def test_files_are_not_opened_again(tmp_path: Path, monkeypatch: Patch) -> None:
    """A process may have few of them."""

    def descriptors() -> int:
        return len([*Path("/proc/self/fd").iterdir()])

    counts = list[int]()
    watch(monkeypatch, Packer, "pack", lambda *_: counts.append(descriptors()))
    with opened(network(tmp_path, beside=False), deterministic=True) as session:
        before = descriptors()
        run(session)
    assert max(counts) <= before


def test_nothing_stays_of_a_plan_that_fails(tmp_path: Path, monkeypatch: Patch) -> None:
    """Neither a thread nor memory, although no cycles are collected."""
    seen = list[Any]()

    def failing(self: Workspace, *about: Any) -> None:
        raise BudgetError("no more memory")

    with opened(network(tmp_path, beside=False), deterministic=True) as session:
        run(session)  # what is made once is there
        monkeypatch.setattr(Workspace, "grow", failing)
        watch(monkeypatch, PlanWeights, "__init__", lambda self, *_: seen.append(ref(self)))
        gc.collect()
        gc.disable()
        try:
            with pytest.raises(BudgetError):
                run(session, 3)
            assert seen
            assert not any(weights() for weights in seen)
        finally:
            gc.enable()


@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize("how", ["changed", "cut"])
def test_a_file_that_was_changed_since_is_refused(
    tmp_path: Path, monkeypatch: Patch, ran: list[str], how: str, large: bool
) -> None:
    if large:
        monkeypatch.setattr(packing_table, "LARGE_BYTES", 1 << 16)
    with opened(network(tmp_path, beside=True), optimize="none") as session:
        with (tmp_path / "data").open("r+b") as file:
            if how == "cut":
                file.truncate(1000)
            else:
                file.write(b"another")
        os.utime(tmp_path / "data", (1, 1))
        for _ in range(2):
            with pytest.raises(ModelError, match="changed since it was opened; load it again"):
                run(session)
    assert ran


def test_a_file_that_cannot_be_read_is_an_error(
    tmp_path: Path, monkeypatch: Patch, ran: list[str]
) -> None:
    """Also if it does not look changed."""
    monkeypatch.setattr(OpenFile, "check", lambda self: None)
    with opened(network(tmp_path, beside=True), optimize="none") as session:
        os.truncate(tmp_path / "data", 1000)
        with pytest.raises(ModelError, match="'data' is shorter than it was; load it again"):
            run(session)
    assert "whole" in ran


def test_a_step_that_fails_names_the_transform(tmp_path: Path, monkeypatch: Patch) -> None:
    steps, real = list[FloatStep](), recorder.packing_step

    def packing(node: Any, row: Any, storage: TensorStorage | None) -> PackingStep:
        sizes = [(row.step_input.nbytes // 4, READ), (row.value.nbytes // 4, WRITE)]
        steps.append(FloatStep("fail", sizes, lambda arrays: "it says no"))
        return real(node, row, storage)._replace(native=steps[-1], slots=["source", "target"])

    monkeypatch.setattr(recorder, "packing_step", packing)
    with (
        opened(network(tmp_path, beside=False), optimize="none") as session,
        pytest.raises(NativeError, match=r"step of 'ahead:\d+': fail: it says no"),
    ):
        run(session)


def test_no_constant_is_shared_before_it_is_packed(tmp_path: Path, monkeypatch: Patch) -> None:
    """Another thread's plan may want it meanwhile."""
    weights, shared, wait = list[PlanWeights](), list[tuple[int, int]](), Packer.wait

    def waited(self: Packer) -> None:
        before = len(weights[-1]._packed)
        wait(self)
        shared.append((before, len(weights[-1]._packed)))

    watch(monkeypatch, PlanWeights, "__init__", lambda self, *_: weights.append(self))
    monkeypatch.setattr(Packer, "wait", waited)
    with opened(network(tmp_path, beside=False), deterministic=True) as session:
        run(session)
        packed = len([*session.plan.graph.ahead()])
        run(session, 1, 12)
    [(before, after), *_] = shared
    assert after - before == packed >= 3


def test_pages_are_expected_of_models_with_much_to_read(tmp_path: Path, monkeypatch: Patch) -> None:
    expected = list[int]()
    watch(monkeypatch, Expected, "__init__", lambda _, nbytes: expected.append(nbytes))
    monkeypatch.setattr("vtensor.runtime.recording.packer.MIN_BYTES_TOUCHED", 1 << 18)
    path = network(tmp_path, beside=False)
    with opened(path, threads=1) as session:
        run(session)
    assert not expected
    with opened(path, deterministic=True) as session:
        workspace: Workspace = session._runner.workspace
        assert len(workspace.expected) == 1
        run(session)
        assert not workspace.expected
        run(session, 1, 12)
    weights = 4 * (128 * 64 * 9 + 128 * 128 * 9 + 192 * 128 + 128 * 512 + 256 * 160)
    assert expected == [weights]
    with opened(path, max_bytes=weights) as session:
        assert not session._runner.workspace.expected


@pytest.mark.parametrize("nbytes", [0, 1, 3 << 20, 5 << 20, 9 << 20])
def test_expected_memory_has_the_size_that_is_wanted(nbytes: int) -> None:
    assert MAX_BYTES_TOUCHED >= 5 << 20
    room = Expected(5 << 20).room(nbytes)
    assert room.nbytes == nbytes
    room[:] = 3


@pytest.mark.parametrize("wrong", [{"offset": 4}, {"factors": None}], ids=str)
def test_wrong_rows_or_factors_change_the_answers(
    tmp_path: Path, monkeypatch: Patch, wrong: dict[str, Any]
) -> None:
    path, of = network(tmp_path, beside=False), FileSlice.of
    expected = alone(path, monkeypatch)

    def wrong_slice(*about: Any) -> FileSlice | None:
        part = of(*about)
        if part and "offset" in wrong:
            return part._replace(offset=part.offset + wrong["offset"])
        return part and part._replace(**wrong)

    monkeypatch.setattr(FileSlice, "of", wrong_slice)
    assert answers(path) != expected


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="the system does not say it")
def test_the_thread_ends_with_the_planning(tmp_path: Path) -> None:
    """Also if call-backs live on, and with them the recorder."""

    def threads() -> int:
        names = [task / "comm" for task in Path("/proc/self/task").iterdir()]
        return sum(name.read_text() == "vtensor-aside\n" for name in names if name.exists())

    path, before = network(tmp_path, beside=False), threads()
    pins = {"Softmax": "numpy", "Mul": "numpy", "Relu": "numpy"}
    with opened(path, deterministic=True, optimize="none", pin=pins) as session:
        run(session)
        assert session._runner.open()
        assert any(step.callback is not None for step in session.plan.recorded)
        assert threads() == before


def stretch_of(offset: int, nbytes: int) -> Stretch:
    """Return bytes of some file, which is not read."""
    with Path(__file__).open("rb") as file:
        return OpenFile(file.fileno(), os.fstat(file.fileno()), "file").stretch(offset, nbytes)


def slice_of(
    stretch: Stretch,
    shape: Sequence[int],
    dtype: np.dtype[Any],
    changes: Sequence[Made],
    wanted: Sequence[int],
) -> FileSlice | None:
    """Return the slice for an array of a file, changed, of which a row wants these sizes."""
    dims = {f"D{axis}": size for axis, size in enumerate(wanted)}
    value = Value("w", from_numpy(dtype), dims, Layout.plain(dims), True)
    source = Original.deferred(tuple(shape), dtype, stretch)
    return FileSlice.of(ConstantRow(source, changes, value, value))


def read_of(part: FileSlice, data: bytes, dtype: np.dtype[Any]) -> Array:
    """Return what native code reads, by its definition."""
    begin = part.stretch.offset + part.offset
    rows = [data[begin + i * part.step :][: part.row] for i in range(part.rows)]
    array = np.frombuffer(b"".join(rows), dtype)
    if part.factors is None:
        return array
    along = np.resize(np.repeat(*part.factors), array.size)
    return (array.astype(np.float64) * along).astype(dtype)


@given(st.data())
def test_rows_and_factors_give_the_changed_array(data: st.DataObject) -> None:
    shape = data.draw(st.lists(st.integers(1, 5), min_size=1, max_size=4))
    shape[-1] *= data.draw(st.sampled_from([1, MIN_ROW_BYTES]))
    dtype = np.dtype(data.draw(st.sampled_from(["f4", "f8", "i4"])))
    array = np.arange(prod(shape)).reshape(shape).astype(dtype)
    content, stretch = b"head" + array.tobytes(), stretch_of(4, array.nbytes)
    changes, wanted = list[Made](), array
    if data.draw(st.booleans()):
        axis = data.draw(st.integers(0, len(shape) - 1))
        begin = data.draw(st.integers(0, shape[axis] - 1))
        taken = axis, begin, data.draw(st.integers(begin + 1, shape[axis]))
        changes.append(Made(lambda whole: cut(whole, taken), taken, taken=taken))
        wanted = cut(wanted, taken)
    if data.draw(st.booleans()):
        sizes = [size if data.draw(st.booleans()) else 1 for size in wanted.shape]
        factor = 1 + np.arange(prod(sizes)).reshape(sizes) / 7
        changes.append(Made(lambda whole: multiplied(whole, factor), times(factor), factor))
        if dtype == np.float32:
            wanted = multiplied(wanted, factor)
    part = slice_of(stretch, shape, dtype, changes, wanted.shape)
    assert slice_of(stretch, shape, dtype, changes, (*wanted.shape, 1)) is None
    if part is None:
        assert changes
        return
    assert part.nbytes == wanted.nbytes
    assert read_of(part, content, dtype).tobytes() == wanted.tobytes()
    assert part.is_whole == (wanted.size == array.size and part.factors is None)


def test_other_changes_are_not_expressed() -> None:
    stretch = stretch_of(0, 4 * 6 * 256)

    def expressed(*changes: Made, dtype: str = "f4", wanted: tuple[int, ...] = (6, 256)) -> bool:
        return slice_of(stretch, (6, 256), np.dtype(dtype), changes, wanted) is not None

    def part(*taken: int) -> Made:
        return Made(lambda whole: whole, "p", taken=taken)  # type: ignore[arg-type]

    def factor(*sizes: int) -> Made:
        return Made(lambda whole: whole, "f", np.ones(sizes))

    assert expressed()
    assert expressed(factor(6, 1))
    assert not expressed(Made(lambda whole: whole * 2, "twice"))
    assert not expressed(factor(6, 1), factor(6, 1))
    assert not expressed(factor(6, 1), dtype="f8")
    assert expressed(part(1, 0, 128), wanted=(6, 128))
    assert not expressed(part(1, 0, 127), wanted=(6, 127))
    assert expressed(part(0, 1, 2), wanted=(1, 256))
    for begin, end in ((-1, 2), (5, 7), (3, 3), (4, 3)):
        assert not expressed(part(0, begin, end), wanted=(end - begin, 256))
    for taken in ((2, 0, 1), (-1, 0, 128)):
        assert not expressed(part(*taken))
    for sizes in ((6,), (256,), (6, 1, 1), (5, 1), (6, 255)):
        assert not expressed(factor(*sizes))
