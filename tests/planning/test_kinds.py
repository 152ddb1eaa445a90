"""Inputs of one kind share choices; a kind is more than names and ranks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from tests.frontends.support import f32, model
from tests.planning.rows import Array, Feeds, saved
from vtensor import Session
from vtensor.errors import BudgetError
from vtensor.language.graph import same_bytes
from vtensor.runtime.execution.origin import Origin
from vtensor.runtime.planning.choice import MOST_CHOICES, Choice, InputKind
from vtensor.runtime.planning.keys import PlanKey

Model = Callable[[str], Path]


@pytest.fixture
def file(tmp_path: Path) -> Model:
    """Write a model in ONNX's text form; return its path."""
    return lambda text: saved(model(text), tmp_path / "net.onnx")


def in_order(axes: Sequence[int], *shape: int) -> Array:
    """Return an array whose axes are in another order in memory."""
    array = f32(*shape, seed=sum(shape))
    back = np.argsort(axes)
    return np.ascontiguousarray(array.transpose(axes)).transpose(back)


#: Orders of an input's axes in memory, and its first sizes, of runs one after the other.
RUNS: Sequence[tuple[tuple[int, ...], tuple[int, int]]] = [
    *(((0, 1, 2), (4, 3)), ((1, 0, 2), (4, 3)), ((2, 1, 0), (5, 3)), ((0, 1, 2), (5, 2))),
    *(((1, 0, 2), (5, 2)), ((2, 1, 0), (5, 2)), ((0, 2, 1), (7, 9)), ((1, 0, 2), (4, 3))),
]


def runs(path: Path, cache: Path | None, given: Sequence[Feeds], **options: object) -> list[Array]:
    """Return the first output of runs in one session, and check which have a plan of their own."""
    found = []
    with Session(path, threads=1, cache_dir=cache, **options) as session:  # type: ignore[arg-type]
        seen: set[object] = set()
        for feeds in given:
            [answer, *_] = session.run(None, feeds)
            key = repr([(name, one.shape, one.strides) for name, one in feeds.items()])
            assert (session.plan.origin.way == "in memory") == (key in seen)
            seen.add(key)
            found.append(np.array(answer))
    return found


@pytest.mark.parametrize("optimize", ["all", "none"])
def test_an_input_in_another_order_has_another_plan(
    file: Model, tmp_path: Path, optimize: str
) -> None:
    """In the same session, and where a cache has plans for the other orders alone."""
    path = file("g (float[a, b, 8] x) => (float[a, b, 8] y) { r = Relu(x) y = Neg(r) }")
    given = [{"x": in_order(axes, *sizes, 8)} for axes, sizes in RUNS]
    wanted = [-np.maximum(feeds["x"], 0) for feeds in given]
    for cache in (None, tmp_path, tmp_path):
        for found, want in zip(runs(path, cache, given, optimize=optimize), wanted, strict=True):
            np.testing.assert_array_equal(found, want)
    for first in (0, 1, 2):
        shared = tmp_path / str(first)
        runs(path, shared, given[first : first + 1], optimize=optimize)
        for feeds, want in zip(given, wanted, strict=True):
            [found] = runs(path, shared, [feeds], optimize=optimize)
            np.testing.assert_array_equal(found, want)


def test_inner_values_are_part_of_it(file: Model, tmp_path: Path) -> None:
    """Each run delivers what it asks for, whatever earlier ones in other sizes asked for."""
    path = file("g (float[n, 8] x) => (float[n, 8] y) { h = Relu(x) i = Tanh(h) y = Neg(i) }")
    asked: list[list[str] | None] = [["y"], ["h", "y"], ["i"], None, ["h"], ["y", "i", "h"], ["y"]]
    for cache in (None, tmp_path, tmp_path):
        with Session(path, threads=1, cache_dir=cache, optimize="none") as session:
            for rows, names in enumerate(asked, 2):
                x = f32(rows, 8, seed=rows)
                h = np.maximum(x, 0)
                values = {"h": h, "i": np.tanh(h), "y": -np.tanh(h)}
                found = session.run(names, {"x": x})
                for name, one in zip(names or ["y"], found, strict=True):
                    np.testing.assert_allclose(one, values[name], 1e-5, 1e-5)


def test_values_that_decide_are_part_of_it(file: Model, tmp_path: Path) -> None:
    """Open sizes beside them change as well."""
    path = file(
        "g (float[n, 6] x, int64[2] s) => (float[a, b] y) { z = Reshape(x, s) y = Relu(z) }"
    )
    shapes = [(2, (4, 3)), (4, (4, 6)), (4, (6, 4)), (2, (3, 4)), (6, (4, 9)), (6, (9, 4))]
    given = [{"x": f32(n, 6, seed=n), "s": np.array(shape)} for n, shape in shapes]
    for order in (given, given[::-1]):
        for cache in (None, tmp_path, tmp_path):
            with Session(path, threads=1, cache_dir=cache) as session:
                for feeds in order:
                    [found] = session.run(None, feeds)
                    wanted = np.maximum(feeds["x"], 0).reshape(feeds["s"])
                    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("deciding", [False, True])
def test_values_that_decide_how_much_is_added(file: Model, tmp_path: Path, deciding: bool) -> None:
    """Shapes are equal, whatever the values are: nothing but them tells plans apart."""
    path = file(
        """g (float[n, 8] x, int64 k) => (float[n, 8] y) {
        one = Constant<value_int = 1>() zero = Constant<value_int = 0>()
        r = Range(zero, k, one) s = ReduceSum<keepdims = 0>(r) f = Cast<to = 1>(s)
        y = Add(x, f) }"""
    )
    for cache in (None, tmp_path, tmp_path):
        with Session(path, threads=1, cache_dir=cache) as session:
            for rows in (2, 3, 5):
                for k in (3, 5, 3) if deciding else (4,):
                    x = f32(rows, 8, seed=rows)
                    [found] = session.run(None, {"x": x, "k": np.array(k)})
                    np.testing.assert_array_equal(found, x + np.float32(k * (k - 1) // 2))


def test_the_budget_counts_for_every_size(file: Model, tmp_path: Path) -> None:
    """Also where the plan for a size is a symbolic one's, and was prepared or cached."""
    path = file(
        "g (float[n, 64] x) => (float[n, 64] y) { a = Exp(x) b = Softmax(a) y = Softmax(b) }"
    )
    small, large = {"x": f32(8, 64)}, {"x": f32(1 << 12, 64)}
    for cache in (None, tmp_path, tmp_path):
        with Session(path, threads=1, cache_dir=cache, max_bytes=1 << 20) as session:
            wanted = session.run(None, small)
            for rows in (16, 8, 32):
                session.run(None, {"x": f32(rows, 64)})
            with pytest.raises(BudgetError):
                session.run(None, large)
            assert same_bytes(session.run(None, small)[0], wanted[0])


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
    origins, answers = [], []
    for given in (proto.SerializeToString(), proto):
        for _ in range(2):
            with Session(given, threads=1, cache_dir=tmp_path) as session:
                answers.append(session.run(None, {"x": f32(2, 1600)})[0].tobytes())
                origins.append(session.plan.origin)
    assert origins == [Origin("planned"), *[Origin("planned", cached=True)] * 3]
    assert len({*answers}) == 1
