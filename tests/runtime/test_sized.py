"""A call recorded once on traced sizes comes to what recording it anew would, bit for bit."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from libdesc.calls import CallTape, Foreign
from libdesc.noted import noted, noting
from ops import Gather
from tests.operators.cases import CASES, Case
from tests.runtime.opened import NETWORKS
from tests.runtime.test_recipes import check, drawn, none_known, pairs, steps
from vtensor import Graph, Session
from vtensor.errors import InputError, VTensorError
from vtensor.language.dtype import from_numpy
from vtensor.language.tape import Tape
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


ASKED = Tape.asked


def unasked(self: Tape, sign: str, one: int, other: int) -> bool:
    """The answer, of which a tape of calls notes nothing."""
    before = [*self._lines]
    answer = ASKED(self, sign, one, other)
    if isinstance(self, CallTape):
        self._lines[:] = before
    return answer


def test_without_questions_it_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Tape, "asked", unasked)
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


class Library:
    """A library that takes numbers alone."""

    level = "some"

    def __init__(self, size: int = 0) -> None:
        assert type(size) is int
        self.size, self.kernel = size, "wide" if size % 8 == 0 else "narrow"
        self.slots = ("src", "dst")
        self.descs = {"src": (size, 2 * size), "dst": (size,) * (1 + size // 100)}

    def twice(self, sizes: list[int], other: Library) -> Library:
        assert all(type(size) is int for size in sizes)
        if sum(sizes) > 1000:
            raise RuntimeError("too large")
        return Library(sum(sizes) + other.size)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Library) and self.size == other.size

    __hash__ = None  # type: ignore[assignment]


def on_tape(function: Callable[[Any, Any], Any], size: int) -> tuple[CallTape, Any]:
    """What a function of a size and the library comes to, and the tape."""
    tape = CallTape()
    given = tape.size(size)
    with noting(tape):
        return tape, function(given, noted(Library))


def test_calls_are_made_again_with_other_numbers() -> None:
    tape, step = on_tape(lambda n, library: library(n).twice([n, 1], library(n + 3)), 16)
    assert isinstance(step, Foreign)
    assert step.own.size == 36
    numbers: Any = tape.run([40])
    assert numbers[int(step.text[1:])].size == 84


def test_what_is_no_call_of_a_size_is_itself() -> None:
    tape, (level, one) = on_tape(lambda n, library: (library.level, library(3)), 16)
    assert (level, one.own.size, one.text, tape.run([8])) == ("some", 3, "", [8])


def test_numbers_that_a_library_tells_are_sizes() -> None:
    tape, size = on_tape(lambda n, library: library(n).descs["src"][1] + 1, 16)
    numbers = tape.run([20])
    assert numbers is not None
    assert (size.value, numbers[size.place]) == (33, 41)


#: What is asked of a library, and a size for which the answer is another than for 16.
ANSWERS: dict[str, tuple[Callable[[Any, Any], Any], int]] = {
    "a text": (lambda n, library: library(n).kernel, 17),
    "how many numbers": (lambda n, library: library(n).descs["dst"], 100),
    "a number": (lambda n, library: library(n).size < 50, 50),
    "whether two are equal": (lambda n, library: library(n) == library(16), 24),
    "whether they differ": (lambda n, library: library(n) != library(24), 24),
}


@pytest.mark.parametrize("what", ANSWERS)
def test_another_answer_is_no_recipe(what: str) -> None:
    function, other = ANSWERS[what]
    tape, _ = on_tape(function, 16)
    assert tape.run([16]) is not None
    assert tape.run([other]) is None


def test_a_library_that_refuses_then_is_no_recipe() -> None:
    tape, _ = on_tape(lambda n, library: library(n).twice([n], library(8)), 16)
    with pytest.raises(RuntimeError, match="too large"):
        tape.run([1008])


def test_a_library_that_refuses_now_leaves_no_tape() -> None:
    tape = CallTape()
    given = tape.size(2000)
    with noting(tape), pytest.raises(RuntimeError):
        noted(Library)(3).twice([given], Library())
    assert tape.failed
