"""Inputs of one kind share choices; a kind is more than names and ranks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.frontends.support import f32, model
from tests.planning.rows import Array, saved
from vtensor import Session
from vtensor.errors import BudgetError
from vtensor.language.graph import same_bytes
from vtensor.runtime.execution.origin import Origin
from vtensor.runtime.planning.choice import MOST_CHOICES, Choice, InputKind
from vtensor.runtime.planning.keys import PlanKey

Sessions = Callable[..., Iterator[Session]]


@pytest.fixture
def sessions(tmp_path: Path) -> Sessions:
    """Open sessions on a model in ONNX's text form: without cache, with an empty and a full one."""

    def opened(text: str, **options: Any) -> Iterator[Session]:
        path = saved(model(text), tmp_path / "net.onnx")
        for cache in (None, tmp_path, tmp_path):
            with Session(path, threads=1, cache_dir=cache, **options) as session:
                yield session

    return opened


def in_order(axes: Sequence[int], *shape: int) -> Array:
    """Return an array whose axes are in another order in memory."""
    array = f32(*shape, seed=sum(shape))
    return np.ascontiguousarray(array.transpose(axes)).transpose(np.argsort(axes))


#: Inputs of runs one after the other: orders of their axes in memory, and their first sizes.
RUNS: Sequence[Array] = [
    *(in_order((0, 1, 2), 4, 3, 8), in_order((1, 0, 2), 4, 3, 8), in_order((2, 1, 0), 5, 3, 8)),
    *(in_order((0, 1, 2), 5, 2, 8), in_order((1, 0, 2), 5, 2, 8), in_order((2, 1, 0), 5, 2, 8)),
    *(in_order((0, 2, 1), 7, 9, 8), in_order((1, 0, 2), 4, 3, 8)),
]


def check_runs(session: Session, arrays: Sequence[Array]) -> None:
    """Check the answers of runs, and which of them have a plan of their own."""
    seen: set[object] = set()
    for x in arrays:
        [y] = session.run(None, {"x": x})
        np.testing.assert_array_equal(y, -np.maximum(x, 0))
        assert (session.plan.origin.way == "in memory") == ((x.shape, x.strides) in seen)
        seen.add((x.shape, x.strides))


@pytest.mark.parametrize("optimize", ["all", "none"])
def test_an_input_in_another_order_has_another_plan(
    sessions: Sessions, tmp_path: Path, optimize: str
) -> None:
    """In the same session, and where a cache has plans for the other orders alone."""
    text = "g (float[a, b, 8] x) => (float[a, b, 8] y) { r = Relu(x) y = Neg(r) }"
    for session in sessions(text, optimize=optimize):
        check_runs(session, RUNS)
    for first in (0, 1, 2):
        for x in (RUNS[first], *RUNS):
            about: dict[str, Any] = {"cache_dir": tmp_path / str(first), "optimize": optimize}
            with Session(tmp_path / "net.onnx", threads=1, **about) as session:
                check_runs(session, [x])


def test_inner_values_are_part_of_it(sessions: Sessions) -> None:
    """Each run delivers what it asks for, whatever earlier ones in other sizes asked for."""
    text = "g (float[n, 8] x) => (float[n, 8] y) { h = Relu(x) i = Tanh(h) y = Neg(i) }"
    asked: list[list[str] | None] = [["y"], ["h", "y"], ["i"], None, ["h"], ["y", "i", "h"], ["y"]]
    for session in sessions(text, optimize="none"):
        for rows, names in enumerate(asked, 2):
            x = f32(rows, 8, seed=rows)
            h = np.maximum(x, 0)
            values = {"h": h, "i": np.tanh(h), "y": -np.tanh(h)}
            for name, value in zip(names or ["y"], session.run(names, {"x": x}), strict=True):
                np.testing.assert_allclose(value, values[name], 1e-5, 1e-5)


@pytest.mark.parametrize("deciding", [(4,), (3, 5, 3)])
def test_values_that_decide_are_part_of_it(sessions: Sessions, deciding: tuple[int, ...]) -> None:
    """They decide how much is added; shapes are equal, and nothing but values tells plans apart."""
    text = """g (float[n, 8] x, int64 k) => (float[n, 8] y) <int64 one = {1}, int64 zero = {0}> {
        r = Range(zero, k, one) s = ReduceSum<keepdims = 0>(r) f = Cast<to = 1>(s)
        y = Add(x, f) }"""
    for session in sessions(text):
        for rows in (2, 3, 5):
            for k in deciding:
                x = f32(rows, 8, seed=rows)
                [y] = session.run(None, {"x": x, "k": np.array(k)})
                np.testing.assert_array_equal(y, x + np.float32(k * (k - 1) // 2))


def test_the_budget_counts_for_every_size(sessions: Sessions) -> None:
    """Also where the plan for a size is a symbolic one's, and was prepared or cached."""
    text = "g (float[n, 64] x) => (float[n, 64] y) { a = Exp(x) b = Softmax(a) y = Softmax(b) }"
    small, large = {"x": f32(8, 64)}, {"x": f32(1 << 12, 64)}
    for session in sessions(text, max_bytes=1 << 20):
        [wanted] = session.run(None, small)
        for rows in (16, 8, 32):
            session.run(None, {"x": f32(rows, 64)})
        with pytest.raises(BudgetError):
            session.run(None, large)
        assert same_bytes(session.run(None, small)[0], wanted)


def test_choices_for_single_sizes_drop_none_that_serves_all() -> None:
    kind, general = InputKind(), Choice(PlanKey(()), False, frozenset())
    kind.add(general)
    for number in range(3 * MOST_CHOICES):
        kind.add(Choice(PlanKey((), (str(number),)), False, frozenset(), exact=True))
    assert general in kind.choices
    assert len(kind.choices) == 1 + MOST_CHOICES
    for number in range(2 * MOST_CHOICES):
        kind.add(Choice(PlanKey((), (str(number),)), False, frozenset()))
    assert len(kind.choices) == 2 * MOST_CHOICES


def test_of_a_model_from_memory_with_many_weights_the_choice_is_saved(tmp_path: Path) -> None:
    """Its weights are in no file that an entry could name, and too many for the entry itself."""
    text = "g (float[n, 1600] x) => (float[n, 1600] y) { y = MatMul(x, w) }"
    proto = model(text, w=f32(1600, 1600))
    origins, answers = [], set[bytes]()
    for source in (proto.SerializeToString(), proto):
        for _ in range(2):
            with Session(source, threads=1, cache_dir=tmp_path) as session:
                answers.add(session.run(None, {"x": f32(2, 1600)})[0].tobytes())
                origins.append(session.plan.origin)
    assert origins == [Origin("planned"), *[Origin("planned", cached=True)] * 3]
    assert len(answers) == 1
