"""Files that other programs write to, replace or name while a session has them open."""

from __future__ import annotations

import mmap
import os
import re
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from tests.frontends.support import f32, model
from tests.libraries.slow import slow_but
from vtensor import Session
from vtensor.errors import ModelError
from vtensor.storage.open_file import OpenFile, settled

Array = np.ndarray[Any, Any]

#: Weights of 256 KiB, which are read when a plan needs them, and small ones, read at once.
TEXT = """g (float[n, 256] x) => (float[n, 256] y) {
    a = MatMul(x, w) b = Add(a, s) c = Relu(b) d = MatMul(c, v) y = Add(d, t)
}"""
BATCHES = (3, 1, 200)


class Version:
    """One version of a model's weights: the bytes of its file, and its answers."""

    def __init__(self, seed: int, only: str = "wvst") -> None:
        sizes = {"w": (256, 256), "v": (256, 256), "s": (256,), "t": (256,)}
        first = {name: f32(*size, seed=ord(name)) / 8 for name, size in sizes.items()}
        self.weights = {
            name: array * (seed if name in only else 1) for name, array in first.items()
        }

    def save(self, folder: Path, beside: bool) -> Path:
        """Write the model; return the file of its weights."""
        proto, path = model(TEXT, 17, **self.weights), folder / "net.onnx"
        (folder / "data").unlink(missing_ok=True)
        onnx.save(proto, path, save_as_external_data=beside, location="data", size_threshold=0)
        return folder / "data" if beside else path

    def answer(self, x: Array) -> Array:
        w, v, s, t = (self.weights[name] for name in "wvst")
        return np.maximum(x @ w + s, 0) @ v + t

    def is_answer(self, y: Array, x: Array) -> bool:
        return np.allclose(y, self.answer(x), rtol=1e-3, atol=1e-3)


def in_place(file: Path, content: bytes) -> None:
    with file.open("r+b") as stream:
        stream.write(content)


def truncated(file: Path, content: bytes) -> None:
    file.write_bytes(content)


def replaced(file: Path, content: bytes) -> None:
    file.with_name("new").write_bytes(content)
    file.with_name("new").replace(file)


def mapped(file: Path, content: bytes) -> None:
    with file.open("r+b") as stream, mmap.mmap(stream.fileno(), 0) as memory:
        memory[:] = content


def in_place_and_removed(file: Path, content: bytes) -> None:
    """The time of the last change is then the removal's."""
    in_place(file, content)
    times = file.stat()
    os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))
    replaced(file, content)


CHANGES = [in_place, truncated, replaced, mapped, in_place_and_removed]


def rewrite(file: Path, content: bytes, change: Callable[[Path, bytes], None]) -> None:
    """Give a file other bytes, and the size and the time that it had."""
    before = file.stat()
    change(file, content)
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    after = file.stat()
    assert (after.st_size, after.st_mtime_ns) == (before.st_size, before.st_mtime_ns)


#: What each refusal says.
REFUSED = re.compile("was changed .*; load (it|the model) again")


def answers(session: Session, versions: list[Version], batches: tuple[int, ...]) -> set[int]:
    """The versions that runs answer with; none of a run that is refused."""
    seen = set[int]()
    for batch in batches:
        x = f32(batch, 256, seed=batch)
        try:
            [y] = session.run(None, {"x": x})
        except ModelError as error:
            if not REFUSED.search(str(error)):
                raise
            continue
        [which] = [at for at, version in enumerate(versions) if version.is_answer(y, x)]
        seen.add(which)
    return seen


@pytest.mark.parametrize(
    ("warm", "runs"), slow_but([(False, 1), (True, 0)], product((False, True), (0, 1)))
)
@pytest.mark.parametrize("beside", [False, True])
@pytest.mark.parametrize(
    ("change", "only"), [*((change, "wvst") for change in CHANGES), (in_place, "v")]
)
def test_no_answer_is_of_two_versions(
    tmp_path: Path, change: Any, only: str, beside: bool, runs: int, warm: bool
) -> None:
    """Each answer after the change is the old version's or none; a new session has the new one."""
    versions = [Version(1), Version(-2, only)]
    content = versions[1].save(tmp_path, beside).read_bytes()
    file, path = versions[0].save(tmp_path, beside), tmp_path / "net.onnx"
    options: dict[str, Any] = {"cache_dir": tmp_path / "cache" if warm else None, "threads": 1}
    if warm:
        with Session(path, **options) as session:
            assert answers(session, versions, BATCHES[:1]) == {0}
    with Session(path, **options) as session:
        assert answers(session, versions, BATCHES[:runs]) == ({0} if runs else set())
        rewrite(file, content, change)
        seen = answers(session, versions, BATCHES)
        assert seen <= {0}
        assert not seen or runs or change is replaced
        with Session(path, **options) as new:
            assert answers(new, versions, BATCHES[-1:]) == {1}
        assert answers(session, versions, BATCHES) == seen


@pytest.mark.parametrize("beside", [False, True])
def test_names_of_a_file_may_come_and_go(tmp_path: Path, beside: bool) -> None:
    """As where an installer links a file to another folder, or a temporary folder is removed."""
    old = Version(1)
    file = old.save(tmp_path, beside)
    with Session(tmp_path / "net.onnx", cache_dir=None) as session:
        os.link(file, tmp_path / "again")
        assert answers(session, [old], BATCHES[:1]) == {0}
        file.unlink()
        assert answers(session, [old], BATCHES) == {0}


def test_odd_bytes_that_change_while_they_are_read_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is left to ONNX's parser as a whole is of one version, too."""
    from vtensor.frontends.files import model_file as opened

    path = tmp_path / "net.onnx"
    path.write_bytes(model(TEXT, 17, **Version(1).weights).SerializeToString())

    def odd(_: OpenFile) -> None:
        rewrite(path, path.read_bytes()[::-1], in_place)

    monkeypatch.setattr(opened, "parts_of_file", odd)
    with pytest.raises(ModelError, match="was changed since it was opened; load it again"):
        Session(path)


@pytest.mark.parametrize("unit", [1, 10**9])
def test_a_write_in_the_tick_of_the_last_is_waited_for(
    monkeypatch: pytest.MonkeyPatch, unit: int
) -> None:
    """File clocks move in ticks: a state counts once the tick of the last change is over."""
    last = 1_700_000_000 * 10**9 + (unit == 1)
    facts = os.stat_result([0] * 10, {"st_ctime_ns": last})
    now, slept = [last], list[float]()

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        now[0] += unit // 4 + 1

    with monkeypatch.context() as patched:
        patched.setattr("os.fstat", lambda _: facts)
        patched.setattr("time.clock_gettime_ns", lambda _: now[0])
        patched.setattr("time.sleep", sleep)
        assert settled(0) is facts
        assert slept
        assert now[0] >= last + unit
        slept.clear()
        settled(0)
        now[0] = last - 10**10  # by the clock of another machine
        settled(0)
        assert not slept
