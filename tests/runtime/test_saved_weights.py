"""Weights of plans that were kept, packed by two threads: to the bit as the first plan's."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from tests.frontends.support import f32, model
from tests.runtime.packed_net import feeds, network
from tests.runtime.waiting import provisional
from vtensor import Session
from vtensor.errors import ModelError
from vtensor.runtime import _replay
from vtensor.runtime.recording import packing_table


@pytest.mark.parametrize("beside", [False, True])
@pytest.mark.parametrize("large", [False, True])
def test_a_kept_plan_packs_to_the_bit_as_the_first_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, beside: bool, large: bool
) -> None:
    if large:
        monkeypatch.setattr(packing_table, "LARGE_BYTES", 1 << 16)
    provisional(monkeypatch)
    path, reads = network(tmp_path, beside), Counter[str]()
    counting(monkeypatch, reads)

    def answer(threads: int) -> tuple[str, list[bytes]]:
        with Session(path, threads=threads, cache_dir=tmp_path / f"{threads}") as session:
            found = [one.tobytes() for one in session.run(None, feeds(2, 9))]
            return str(session.plan.origin), found

    first, expected = answer(2)
    assert first == "planned"
    reads.clear()
    assert answer(2) == ("specialised, read from the cache", expected)
    assert reads["read" if large else "run"] >= 2
    reads.clear()
    assert [answer(1)[0] for _ in range(2)] == ["planned", "specialised, read from the cache"]
    assert not reads


def counting(patch: pytest.MonkeyPatch, reads: Counter[str]) -> None:
    """Count what the threads of plans that were kept are given."""

    own = _replay.Aside

    class Counting:
        def __init__(self) -> None:
            self._own = own()

        def __getattr__(self, asked: str) -> Any:
            reads[asked] += 1
            return getattr(self._own, asked)

    patch.setattr(_replay, "Aside", Counting)


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
        monkeypatch.setattr(packing_table, "LARGE_BYTES", 1 << 16)
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
            kinds.append(str(session.plan.origin))
        y = y if kind == "packed" else y.T
        np.testing.assert_allclose(y, expected, rtol=1e-3, atol=1e-2)
    assert kinds == ["planned", "specialised, read from the cache"]
