"""Sessions that are subclassed, pickled, copied, shared between threads, and forked."""

from __future__ import annotations

import copy
import multiprocessing
import pickle
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest

from tests.onnxruntime.models import TINY, X
from vtensor import onnxruntime as ours

Z = X * 2 + np.maximum(X, 0)


def carrying(package: Any) -> Any:
    """Return a subclass as programs write it, which pickles the path of its model."""

    class Carrying(package.InferenceSession):  # type: ignore[misc]
        def __init__(self, path: str, **kwargs: Any) -> None:
            super().__init__(path, **kwargs)
            self.path = path

        def run(self, *arguments: Any, **named: Any) -> Any:
            return [array + 1 for array in super().run(*arguments, **named)]

        def __getstate__(self) -> dict[str, Any]:
            return {"path": self.path}

        def __setstate__(self, state: dict[str, Any]) -> None:
            self.__init__(state["path"])  # type: ignore[misc]

    return Carrying


RealCarrying, OurCarrying = carrying(onnxruntime), carrying(ours)
for _name, _cls in (("RealCarrying", RealCarrying), ("OurCarrying", OurCarrying)):
    _cls.__qualname__ = _name


@pytest.mark.parametrize("cls", [RealCarrying, OurCarrying])
def test_subclass(cls: Any, tmp_path: Path) -> None:
    (tmp_path / "tiny.onnx").write_bytes(TINY)
    session = cls(str(tmp_path / "tiny.onnx"), providers=["CPUExecutionProvider"])
    for each in (session, pickle.loads(pickle.dumps(session))):
        assert isinstance(each, cls)
        np.testing.assert_array_equal(each.run(["z"], {"x": X})[0], Z + 1)


@pytest.mark.parametrize("from_path", [True, False])
def test_pickled_session(from_path: bool, tmp_path: Path) -> None:
    (tmp_path / "tiny.onnx").write_bytes(TINY)
    options = ours.SessionOptions()
    options.intra_op_num_threads = 1
    session = ours.InferenceSession(
        tmp_path / "tiny.onnx" if from_path else TINY, options, ["CPUExecutionProvider"]
    )
    session.run(None, {"x": X})
    for each in (pickle.loads(pickle.dumps(session)), copy.deepcopy(session)):
        np.testing.assert_array_equal(each.run(["z"], {"x": X})[0], Z)
        assert each.get_providers() == ["CPUExecutionProvider"]
        assert each.get_session_options().intra_op_num_threads == 1
        assert each.get_inputs() == session.get_inputs()


def test_threads_share_a_session(ort: Any) -> None:
    session = ort.InferenceSession(TINY)

    def work(number: int) -> bool:
        x = np.full((1 + number % 3, 3), number, np.float32)
        [z] = session.run(["z"], {"x": x})
        return bool(np.array_equal(z, 3 * x))

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(work, range(40)))


def test_forked_child_runs_the_session() -> None:
    session = ours.InferenceSession(TINY)
    session.run(None, {"x": X})
    ours_, theirs = multiprocessing.Pipe()

    def child() -> None:
        theirs.send(session.run(["z"], {"x": X})[0])

    process = multiprocessing.get_context("fork").Process(target=child)
    process.start()
    np.testing.assert_array_equal(ours_.recv(), Z)
    process.join(60)
    assert process.exitcode == 0


def test_missing_names_say_so() -> None:
    session = ours.InferenceSession(TINY)
    owners = (ours, session, ours.SessionOptions(), ours.OrtValue.ortvalue_from_numpy(X))
    for owner in (*owners, session.io_binding()):
        assert not hasattr(owner, "get_tuning_results")
        with pytest.raises(
            AttributeError, match=r"vtensor\.onnxruntime does not have .*get_tuning"
        ):
            owner.get_tuning_results  # noqa: B018
