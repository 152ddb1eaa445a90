"""A call recorded once on symbolic sizes comes to what recording it anew would, bit for bit."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from libdesc.native_trace import NativeTrace
from ops import Gather
from tests.operators.cases import CASES, Case
from tests.runtime.opened import NETWORKS
from tests.runtime.test_recipes import check, drawn, none_known, pairs, steps
from vtensor import Graph, Session
from vtensor.errors import InputError, VTensorError
from vtensor.language.dtype import from_numpy
from vtensor.language.trace import Trace
from vtensor.runtime.sized import SizedRecipe

Array = np.ndarray[Any, Any]
Feeds = dict[str, Array]

#: The third is the first that is traced, and what is repeated may be of one element then; later
#: ones are on borders of blocks.
SIZES = (4, 6, 1, 3, 17, 16)

#: What has no recipe without sizes here: it calls back into Python, takes sizes as parameters, or
#: its case is of one size.
NONE = {"Reshape", "DequantizeLinear", "Kept", "Adagrad", "Adam", "Momentum", "GatherElements"}

#: Of the operators' cases, how many each operator has here.
FEW = 2


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[SizedRecipe]:
    """The recipes that were used for other sizes, as often as they were."""
    used: list[SizedRecipe] = []
    at = SizedRecipe.at

    def counted(self: SizedRecipe, *given: Any) -> Any:
        recipe = at(self, *given)
        used.extend([self] if recipe is not None else [])
        return recipe

    monkeypatch.setattr(SizedRecipe, "at", counted)
    return used


def opened(case: Case) -> tuple[Graph, Callable[[int], Feeds]] | None:
    """A graph of the case's operator whose inputs have one open dim, and feeds by its size."""
    rows = case.given()
    known = {dim for one in rows if one.constant for dim in one.dims}
    free = [dim for one in rows if not one.constant for dim in one.dims if dim not in known]
    if not free:
        return None
    graph, inputs = Graph("one"), []
    fed = {f"x{i}": one for i, one in enumerate(rows) if not one.constant}
    try:
        for i, one in enumerate(rows):
            dims = {dim: None if dim == free[0] else n for dim, n in one.extents.items()}
            dtype = from_numpy(one.array.dtype)
            if one.constant:
                inputs.append(graph.constant(one.array, one.dims))
            else:
                inputs.append(graph.input(f"x{i}", dims, dtype))
        result = graph.add(case.op, *inputs)
        for i, value in enumerate(result if isinstance(result, tuple) else [result]):
            graph.output(value, f"y{i}")
        graph.seal()
    except VTensorError:
        return None  # it is for these sizes alone

    def feeds(size: int) -> Feeds:
        return {
            name: np.resize(one.array, [size if dim == free[0] else n for dim, n in row])
            for name, one in fed.items()
            if (row := [*one.extents.items()])
        }

    return graph, feeds


def run(session: Session, feeds: Feeds) -> list[Array] | None:
    """Results; None where the operator does not take these sizes."""
    try:
        return [np.asarray(one) for one in session.run(None, feeds)]
    except VTensorError:
        return None


def check_case(case: Case) -> None:
    found = opened(case)
    if found is None:
        return
    graph, feeds = found
    options: dict[str, Any] = {"threads": 1, "deterministic": True, "optimize": "none"}
    with Session(graph, **options) as session, Session(graph, **options) as other:
        for size in SIZES:
            fed = feeds(size)  # sums go by where it lies in memory, too
            one = run(session, fed)
            with none_known():
                wanted = run(other, fed)
            assert (one is None) == (wanted is None), size
            for result, expected in zip(one or [], wanted or [], strict=True):
                np.testing.assert_array_equal(result, expected)
            if one is not None:
                assert steps(session) == steps(other)
                scratch = [
                    [[s for s in step.slots if isinstance(s, int)] for step in plan.recorded]
                    for plan in (session.plan, other.plan)
                ]
                assert scratch[0] == scratch[1]


@pytest.mark.parametrize("name", [*CASES])
def test_each_operator(name: str, made: list[SizedRecipe]) -> None:
    for case in CASES[name][:FEW]:
        check_case(case)
    assert bool(made) == (name not in NONE)


@settings(max_examples=6, deadline=None)
@given(st.lists(st.sampled_from([1, 2, 3, 7, 8, 15, 16, 17, 31, 37]), min_size=5, max_size=8))
def test_any_sizes(sizes: list[int]) -> None:
    network = NETWORKS["transformer"]()
    drawn_ones = [network.draw(Random(size)) for size in sizes]
    check(network.proto, (network.feeds(*row) for row in drawn_ones))


def test_parameters_that_are_sizes_are_traced(made: list[SizedRecipe]) -> None:
    check(pairs(), drawn(3, 8))
    assert {one.recipe.recorded.division is None for one in made} == {True, False}


ASKED = Trace.asked


def unasked(self: Trace, sign: str, one: int, other: int) -> bool:
    """The answer, of which a trace of calls has no guard."""
    before = [*self._rows]
    answer = ASKED(self, sign, one, other)
    if isinstance(self, NativeTrace):
        self._rows[:] = before
    return answer


def test_without_questions_it_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Trace, "asked", unasked)
    network = NETWORKS["detector"]()
    with pytest.raises((AssertionError, VTensorError)):
        check(network.proto, (network.feeds(*sizes) for sizes in network.sizes(3, 40)))


def test_an_error_names_the_sizes_of_its_run(made: list[SizedRecipe]) -> None:
    graph = Graph("picks")
    x = graph.input("x", {"N": None, "C": 8})
    places = graph.input("i", {"K": 2}, "s64")
    graph.output(graph.add(Gather("C"), x, places), "y")
    graph.seal()
    with Session(graph, threads=1, deterministic=True) as session:
        for size in SIZES[:4]:
            session.run(None, {"x": np.ones((size, 8), np.float32), "i": np.array([0, 7])})
        bad = {"x": np.ones((5, 8), np.float32), "i": np.array([0, 99])}
        with pytest.raises(InputError, match="N=5"):
            session.run(None, bad)
    assert made
