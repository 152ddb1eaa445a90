"""Plans whose constants another thread reads and packs: to the bit those that are made without."""

from __future__ import annotations

import gc
import os
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from math import prod
from pathlib import Path
from typing import Any
from weakref import ref

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from optimizer.computed import Made, cut, multiplied, times
from ptensor.buffer import TensorStorage
from tests.frontends.support import f32, model
from tests.runtime.test_short_processes import provisional
from vtensor import Session
from vtensor.errors import BudgetError, ModelError, NativeError
from vtensor.frontends.open_file import OpenFile, Stretch
from vtensor.runtime import _replay, kept_packing, record, weight_notes
from vtensor.runtime.aside import MOST, Aside, Expected
from vtensor.runtime.packed import PackedWeights
from vtensor.runtime.unread import LEAST_ROW, Unread
from vtensor.runtime.workspace import Workspace

Array = np.ndarray[Any, Any]

#: Weights that are packed as they are, a part of one, one with a factor, one that is turned.
NET = """net (float[n, 64, h, 12] x, float[n, 6, 128] p) => (float[n, 192, h, 12] y,
                                                          float[n, 6, 160] z) {
    a0 = Conv<pads = [1, 1, 1, 1]>(x, k0) a = Relu(a0)
    b0 = Conv(a, k1) b1 = Mul(b0, s) b = Add(b1, t) y = Relu(b)
    q = MatMul(p, w) q0, q1 = Split<axis = 2>(q, halves) r = Mul(q0, q1)
    z = Gemm<transB = 1>(r2, v) r2 = Reshape(r, rows)
}"""


def network(folder: Path, beside: bool) -> Path:
    """A file, its weights in another one if ``beside``."""
    text = NET.replace("z = Gemm<transB = 1>(r2, v) r2 = Reshape(r, rows)", "z = MatMul(r, v)")
    weights: dict[str, Array] = {
        "k0": f32(128, 64, 3, 3),
        "k1": f32(192, 128, 1, 1, seed=1),
        "s": 2 + f32(192, 1, 1, seed=2) / 9,
        "t": f32(192, 1, 1, seed=3),
        "w": f32(128, 512, seed=4),
        "v": f32(256, 160, seed=5),
        "halves": np.array([256, 256]),
    }
    proto, path = model(text, 17, **weights), folder / "net.onnx"
    data: dict[str, Any] = {"save_as_external_data": True, "location": "data", "size_threshold": 0}
    onnx.save(proto, path, **(data if beside else {}))
    return path


def feeds(n: int, h: int) -> dict[str, Array]:
    return {"x": f32(n, 64, h, 12, seed=n), "p": f32(n, 6, 128, seed=h)}


def answers(path: Path, **options: Any) -> list[bytes]:
    with Session(path, cache_dir=None, deterministic=True, **options) as session:
        return [
            one.tobytes() for n, h in ((2, 9), (1, 12)) for one in session.run(None, feeds(n, h))
        ]


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the thread was given: a constant that is there, one of a file, a large one, kernels."""
    seen, pack, read, compiled = list[str](), Aside.pack, Aside.read, Aside.compile

    def packed(self: Aside, steps: Any, source: Any, unread: Unread | None, *rest: Any) -> bool:
        done = pack(self, steps, source, unread, *rest)
        if done:
            part = unread and ("rows" if unread.rows > 1 else "part" if unread.offset else "whole")
            seen.append("held" if unread is None else f"{part}{' times' * bool(unread.factors)}")
        return done

    def reading(self: Aside, stretch: Stretch) -> Array:
        seen.append("large")
        return read(self, stretch)

    def compiling(self: Aside, step: Any) -> None:
        seen.append("kernel")
        compiled(self, step)

    monkeypatch.setattr(Aside, "pack", packed)
    monkeypatch.setattr(Aside, "read", reading)
    monkeypatch.setattr(Aside, "compile", compiling)
    return seen


def alone(path: Path, monkeypatch: pytest.MonkeyPatch, **options: Any) -> list[bytes]:
    """What a plan for as many threads answers that is made on one."""
    with monkeypatch.context() as patch:
        patch.setattr(record, "Aside", lambda *_: None)
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
        assert {"whole times", "rows"} <= {*ran}
    ran.clear()
    answers(path, threads=1, optimize=optimize)  # a budget of one thread is kept
    assert not ran


def test_large_ones_are_read_one_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ran: list[str]
) -> None:
    path = network(tmp_path, beside=False)
    expected = alone(path, monkeypatch, threads=2)
    monkeypatch.setattr(record, "LARGE", 1 << 16)
    assert answers(path, threads=2) == expected
    assert ran.count("large") >= 2


def test_from_memory_what_is_there_is_packed(ran: list[str], tmp_path: Path) -> None:
    path = network(tmp_path, beside=False)
    with Session(path.read_bytes(), cache_dir=None, deterministic=True, threads=2) as session:
        found = [one.tobytes() for one in session.run(None, feeds(2, 9))]
    assert "held" in ran
    assert found == answers(path, threads=2)[:2]


@pytest.mark.parametrize("beside", [False, True])
@pytest.mark.parametrize("large", [False, True])
def test_a_kept_plan_packs_to_the_bit_as_the_first_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, beside: bool, large: bool
) -> None:
    if large:
        monkeypatch.setattr(record, "LARGE", 1 << 16)
        monkeypatch.setattr(kept_packing, "LARGE", 1 << 16)
        monkeypatch.setattr(weight_notes, "LARGE", 1 << 16)
    provisional(monkeypatch)
    path, reads = network(tmp_path, beside), Counter[str]()
    counting(monkeypatch, reads)

    def answer(threads: int) -> tuple[str, list[bytes]]:
        with Session(path, threads=threads, cache_dir=tmp_path / f"{threads}") as session:
            found = [one.tobytes() for one in session.run(None, feeds(2, 9))]
            return type(session.plan).__name__, found

    first, expected = answer(2)
    assert first == "Plan"
    reads.clear()
    assert answer(2) == ("KeptPlan", expected)
    assert reads["read" if large else "run"] >= 2
    reads.clear()
    assert [answer(1)[0] for _ in range(2)] == ["Plan", "KeptPlan"]
    assert not reads


def counting(patch: pytest.MonkeyPatch, reads: Counter[str]) -> None:
    """Count what the threads of plans that were kept are given."""

    class Counting:
        def __init__(self) -> None:
            self._own = _replay.Aside()

        def __getattr__(self, asked: str) -> Any:
            reads[asked] += 1
            return getattr(self._own, asked)

    packing = kept_packing.KeptPacking.__init__

    def begin(self: Any, *about: Any) -> None:
        packing(self, *about)
        if self._aside is not None:
            self._aside = Counting()

    patch.setattr(kept_packing.KeptPacking, "__init__", begin)


def test_a_kept_plan_of_a_file_that_was_changed_is_not_taken(tmp_path: Path) -> None:
    path = network(tmp_path, beside=True)

    def answer() -> list[bytes]:
        with Session(path, threads=2, cache_dir=tmp_path / "cache") as session:
            return [one.tobytes() for one in session.run(None, feeds(2, 9))]

    first = answer()
    content = bytearray((tmp_path / "data").read_bytes())
    content[:4] = np.float32(100).tobytes()
    (tmp_path / "data").write_bytes(content)
    assert answer() != first
    (tmp_path / "data").write_bytes(content[:-9])
    with pytest.raises(ModelError):
        answer()


#: Parts of weights along their first axis, each of which is one row of the file: packed, and read
#: as it lies, with what is asked for that.
PARTS: dict[str, tuple[str, dict[str, Any]]] = {
    "packed": ("z = Gemm<transB = 1>(p, w) a, b = Split<axis = 1>(z, halves) y = Mul(a, b)", {}),
    "as it lies": (
        "z = MatMul(w, q) q = Transpose(p) a, b = Split<axis = 0>(z, halves) y = Mul(a, b)",
        {"libraries": ["eigen"]},
    ),
}


@pytest.mark.parametrize("kind", PARTS)
@pytest.mark.parametrize("large", [False, True])
def test_parts_along_the_first_axis(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, large: bool
) -> None:
    if large:
        for module in (record, kept_packing, weight_notes):
            monkeypatch.setattr(module, "LARGE", 1 << 16)
    provisional(monkeypatch)
    body, options = PARTS[kind]
    text, w = f"net (float[n, 256] p) => (float[a, b] y) {{ {body} }}", f32(512, 256)
    onnx.save(model(text, 17, w=w, halves=np.array([256, 256])), tmp_path / "net.onnx")
    p, kinds = f32(6, 256, seed=1), list[str]()
    product = p @ w.T
    expected = product[:, :256] * product[:, 256:]
    for _ in range(2):
        with Session(tmp_path / "net.onnx", threads=2, cache_dir=tmp_path, **options) as session:
            [y] = session.run(None, {"p": p})
            kinds.append(type(session.plan).__name__)
        y = y if kind == "packed" else y.T
        np.testing.assert_allclose(y, expected, rtol=1e-3, atol=1e-2)
    assert kinds == ["Plan", "KeptPlan"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_a_session_that_was_opened_before_a_fork_runs_in_the_child(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vtensor.runtime.aside.LEAST", 1 << 18)
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
    take, looked = record.Recorder._take, list[str]()

    def swallowed(self: record.Recorder, names: Any, found: Any) -> None:
        take(self, names, found)
        for name, storage in self.storages.items():
            if "@ahead" in name and storage.untouched:
                with suppress(ModelError):
                    storage.memory.any()
                looked.append(name)

    monkeypatch.setattr(record.Recorder, "_take", swallowed)
    path = network(tmp_path, beside=True)
    with Session(path, cache_dir=None, threads=2, optimize="none") as session:
        os.truncate(tmp_path / "data", 1000)
        with pytest.raises(ModelError, match="changed since it was opened"):
            session.run(None, feeds(2, 9))
    assert looked


def test_files_are_not_opened_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process may have few of them."""
    most, step = list[int](), Aside.pack

    def packed(self: Aside, *about: Any) -> bool:
        done = step(self, *about)
        most.append(len(os.listdir("/proc/self/fd")))  # noqa: PTH208
        return done

    monkeypatch.setattr(Aside, "pack", packed)
    path = network(tmp_path, beside=False)
    with Session(path, cache_dir=None, threads=2, deterministic=True) as session:
        before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
        session.run(None, feeds(2, 9))
    assert max(most) <= before + 1  # who lists them has one himself


def test_nothing_stays_of_a_plan_that_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No thread and no memory, though nobody collects circles."""
    path, seen = network(tmp_path, beside=False), list[Any]()

    def failing(self: Workspace, *about: Any) -> None:
        raise BudgetError("no more memory")

    def noted(self: PackedWeights, *about: Any) -> None:
        begin(self, *about)
        seen.append(ref(self))

    begin = PackedWeights.__init__
    with Session(path, cache_dir=None, threads=2, deterministic=True) as session:
        session.run(None, feeds(2, 9))  # what is made once is there
        with monkeypatch.context() as patch:
            patch.setattr(Workspace, "grow", failing)
            patch.setattr(PackedWeights, "__init__", noted)
            gc.collect()
            gc.disable()
            try:
                with pytest.raises(BudgetError):
                    session.run(None, feeds(3, 9))
                assert seen
                assert not any(one() for one in seen)
            finally:
                gc.enable()


@pytest.mark.parametrize("ends", ["closed", "looked at", "dropped"])
def test_what_was_chosen_is_written_down_though_nothing_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ends: str
) -> None:
    provisional(monkeypatch)
    text = "net (float[2, 64] x) => (float[2, 64] y) { y = MatMul(x, w) }"
    onnx.save(model(text, 17, w=f32(64, 64)), tmp_path / "net.onnx")
    cache = tmp_path / "cache"
    session = Session(tmp_path / "net.onnx", threads=2, cache_dir=cache)
    if ends == "closed":
        session.close()
    elif ends == "looked at":
        assert session.plan
    end = time.monotonic() + 30
    while not (found := [*cache.rglob("first-*")]) and time.monotonic() < end:
        time.sleep(0.02)
    assert found
    session.close()


@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize("how", ["changed", "cut"])
def test_a_file_that_was_changed_since_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ran: list[str], how: str, large: bool
) -> None:
    if large:
        monkeypatch.setattr(record, "LARGE", 1 << 16)
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

    def packing(node: Any, source: Any, target: Any, storage: TensorStorage) -> Any:
        made, [step] = own(node, source, target, storage)
        sizes = [(storage.nbytes // 4, READ), (made.nbytes // 4, WRITE)]
        steps.append(FloatStep("fail", sizes, lambda arrays: "it says no"))
        return made, [type(step)(**{**fields(step), "native": steps[-1], "slots": (storage, made)})]

    own = record.packing
    monkeypatch.setattr(record, "packing", packing)
    with (
        Session(path, cache_dir=None, threads=2, optimize="none") as session,
        pytest.raises(NativeError, match=r"step of 'ahead:\d+': fail: it says no"),
    ):
        session.run(None, feeds(2, 9))


def fields(step: Any) -> dict[str, Any]:
    return {name: getattr(step, name) for name in step.__dataclass_fields__}


def test_nobody_else_has_what_is_not_packed_yet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another thread's plan may want the same constant meanwhile."""
    path, shared = network(tmp_path, beside=False), list[tuple[int, int]]()
    settle = record.Recorder.settle

    def settled(self: record.Recorder) -> None:
        before = len(self.packed._packed)
        settle(self)
        shared.append((before, len(self.packed._packed)))

    monkeypatch.setattr(record.Recorder, "settle", settled)
    with Session(path, cache_dir=None, threads=2, deterministic=True) as session:
        session.run(None, feeds(2, 9))
        session.run(None, feeds(1, 12))
    [(before, behind), *_] = shared
    assert behind - before >= 4


def test_who_looks_at_a_constant_waits_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, seen = network(tmp_path, beside=False), list[bool]()
    take = record.Recorder._take

    def looked(self: record.Recorder, names: Any, found: Any) -> None:
        take(self, names, found)
        for name, storage in self.storages.items():
            if "@ahead" in name and storage.untouched:
                data = storage.memory.copy()
                self.settle()
                seen.append(bool((data == storage.memory).all() and data.any()))

    monkeypatch.setattr(record.Recorder, "_take", looked)
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
    monkeypatch.setattr("vtensor.runtime.aside.LEAST", 1 << 18)
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
    weights = 4 * (128 * 64 * 9 + 192 * 128 + 128 * 512 + 256 * 160)
    assert expected == [weights]
    with Session(path, cache_dir=None, threads=2, max_bytes=weights) as session:
        assert not session._runner.workspace.expected


@pytest.mark.parametrize("nbytes", [0, 1, 3 << 20, 5 << 20, 9 << 20])
def test_expected_memory_has_the_size_that_is_wanted(nbytes: int) -> None:
    expected = Expected(5 << 20)
    room = expected.room(nbytes)
    assert room.nbytes == nbytes
    room[:] = 3
    assert MOST >= 5 << 20


def read_of(unread: Unread, data: bytes, dtype: np.dtype[Any]) -> Array:
    """What native code reads, by its definition."""
    rows = [
        data[unread.stretch.offset + unread.offset + i * unread.step :][: unread.row]
        for i in range(unread.rows)
    ]
    found = np.frombuffer(b"".join(rows), dtype)
    if unread.factors is not None:
        along = np.resize(np.repeat(*unread.factors), found.size)
        found = (found.astype(np.float64) * along).astype(dtype)
    return found


@given(st.data())
def test_rows_and_factors_say_what_is_done_with_an_array(data: st.DataObject) -> None:
    shape = data.draw(st.lists(st.integers(1, 5), min_size=1, max_size=4))
    shape[-1] *= data.draw(st.sampled_from([1, LEAST_ROW]))
    dtype = np.dtype(data.draw(st.sampled_from(["f4", "f8", "i4"])))
    array = np.arange(prod(shape)).reshape(shape).astype(dtype)
    content, stretch = b"head" + array.tobytes(), Stretch(None, 4, array.nbytes)  # type: ignore[arg-type]
    made, wanted = list[Made](), array
    if data.draw(st.booleans()):
        axis = data.draw(st.integers(0, len(shape) - 1))
        begin = data.draw(st.integers(0, shape[axis] - 1))
        taken = axis, begin, data.draw(st.integers(begin + 1, shape[axis]))
        made.append(Made(lambda one: cut(one, taken), taken, taken=taken))
        wanted = cut(wanted, taken)
    if data.draw(st.booleans()):
        sizes = [size if data.draw(st.booleans()) else 1 for size in wanted.shape]
        factor = 1 + np.arange(prod(sizes)).reshape(sizes) / 7
        made.append(Made(lambda one: multiplied(one, factor), times(factor), factor))
        if dtype == np.float32:
            wanted = multiplied(wanted, factor)
    found = Unread.of(stretch, shape, dtype, made, wanted.shape)
    assert Unread.of(stretch, shape, dtype, made, (*wanted.shape, 1)) is None
    if found is None:
        assert made
        return
    assert found.nbytes == wanted.nbytes
    assert read_of(found, content, dtype).tobytes() == wanted.tobytes()
    assert found.as_it_is == (wanted.size == array.size and found.factors is None)


def test_what_rows_and_factors_cannot_say_is_left() -> None:
    stretch, f4 = Stretch(None, 0, 4 * 6 * 256), np.dtype("f4")  # type: ignore[arg-type]

    def of(*made: Made, dtype: np.dtype[Any] = f4, wanted: tuple[int, ...] = (6, 256)) -> bool:
        return Unread.of(stretch, (6, 256), dtype, made, wanted) is not None

    twice = Made(lambda one: one * 2, "twice")
    factor = Made(lambda one: one, "f", np.ones((6, 1)))
    assert of()
    assert of(factor)
    assert not of(twice)
    assert not of(factor, factor)
    assert not of(factor, dtype=np.dtype("f8"))
    assert of(Made(lambda one: one, "p", taken=(1, 0, 128)), wanted=(6, 128))
    assert not of(Made(lambda one: one, "p", taken=(1, 0, 127)), wanted=(6, 127))
    assert of(Made(lambda one: one, "p", taken=(0, 1, 2)), wanted=(1, 256))
    for part in ((0, -1, 2), (0, 5, 7), (0, 3, 3), (0, 4, 3), (2, 0, 1), (-1, 0, 128)):
        axis, begin, end = part
        wanted = tuple(end - begin if i == axis else size for i, size in enumerate((6, 256)))
        assert not of(Made(lambda one: one, "p", taken=part), wanted=wanted)
    for sizes in ((6,), (256,), (6, 1, 1), (5, 1), (6, 255)):
        assert not of(Made(lambda one: one, "f", np.ones(sizes)))


#: What is compared above is found out where it is wrong.
FAULTS: list[Callable[[Unread], Unread]] = [
    lambda one: one._replace(offset=one.offset + 4 if one.rows > 1 else one.offset),
    lambda one: one._replace(factors=None),
]


@pytest.mark.parametrize("fault", FAULTS)
def test_wrong_rows_or_factors_are_found_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: Callable[[Unread], Unread]
) -> None:
    path, of = network(tmp_path, beside=False), Unread.of
    expected = alone(path, monkeypatch, threads=2)

    def wrong(*about: Any) -> Unread | None:
        found = of(*about)
        return found and fault(found)

    monkeypatch.setattr(Unread, "of", wrong)
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
