"""Chains of requests, each chosen by values that earlier ones have computed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from vtensor.runtime._replay import Chain

LANE = object()
X = np.arange(3.0)


class Twice:
    """A request that doubles ``x`` and says whether the sum is above 10."""

    def __init__(self, error: BaseException | None = None, answer: object = ...) -> None:
        self.error, self.answer, self.runs = error, answer, 0

    def run(self, names: object, arrays: dict[str, Any]) -> object:
        assert names == ["y", "large"]
        self.runs += 1
        if self.error is not None:
            raise self.error
        y = arrays["x"] * 2
        return [y, np.array(y.sum() > 10)] if self.answer is ... else self.answer


def chain_of(*requests: Twice) -> Chain:
    """Return links one after the other as long as sums are small, and an end."""
    chain = Chain(["x"], (ValueError,))
    at, source, asked, seen = 0, (-1, 0), [((-1, 0), False)], [X]
    for depth, request in enumerate(requests):
        feeds = [("x", source)]
        at = chain.link(at, asked, seen, {LANE: request}, ["y", "large"], feeds)
        source, asked, seen = (depth, 0), [((depth, 1), True)], [np.array(False)]
    chain.end(at, asked, seen, [(source, False), ((-1, 0), True)])
    return chain


def test_a_chain_runs_until_values_decide_otherwise() -> None:
    first, second = Twice(), Twice()
    chain = chain_of(first, second)
    assert len(chain) == 3
    x = np.array([0.0, 1.0, 0.5])
    links, values, outputs = chain.run({"x": x}, LANE)
    assert links == [1, 2]
    assert outputs is not None
    assert outputs[0] is values[1][0]
    assert outputs[1] is not x
    np.testing.assert_array_equal(outputs[1], x)
    np.testing.assert_array_equal(outputs[0], x * 4)
    links, values, outputs = chain.run({"x": x + 2}, LANE)  # large already after the first link
    assert (links, len(values), outputs) == ([1], 1, None)
    assert (first.runs, second.runs) == (2, 1)


@pytest.mark.parametrize(
    "arrays",
    [{}, {"x": X, "z": X}, {"z": X}, {"x": [1.0]}, {"x": X[:2]}, {"x": X[::2]}, {"x": X > 0}],
)
def test_other_inputs_run_nothing(arrays: dict[str, object]) -> None:
    request = Twice()
    assert chain_of(request).run(arrays, LANE) == ([], [], None)
    assert not request.runs


@pytest.mark.parametrize("answer", [None, False, (), [], [X]])
def test_a_request_that_answers_no_outputs_ends_the_run(answer: object) -> None:
    small = X / 8
    assert chain_of(Twice(), Twice(answer=answer)).run({"x": small}, LANE)[::2] == ([1], None)
    assert chain_of(Twice()).run({"x": small}, object()) == ([], [], None)  # another lane


def test_errors_of_requests() -> None:
    assert chain_of(Twice(ValueError("known"))).run({"x": X}, LANE) == ([], [], None)
    with pytest.raises(KeyboardInterrupt):
        chain_of(Twice(KeyboardInterrupt())).run({"x": X}, LANE)


def test_what_is_asked_may_change() -> None:
    chain = chain_of(Twice(), Twice())
    small = X / 8
    link = chain.link(1, [], [], {LANE: Twice()}, ["y", "large"], [("x", (0, 0))])
    assert chain.run({"x": small}, LANE)[0] == [1, link]  # the other link is forgotten
    assert chain.link(1, [], [], {}, [], []) > link
    assert chain.run({"x": small}, LANE)[0] == [1]


@pytest.mark.parametrize(
    ("after", "asked", "seen", "feeds"),
    [
        (9, [], [], []),
        (3, [], [], []),
        (0, [((0, 0), True)], [X], []),
        (2, [((2, 0), True)], [X], []),
        (2, [((1, 2), True)], [X], []),
        (2, [((-1, 1), True)], [X], []),
        (2, [((-2, 0), True)], [X], []),
        (2, [((1, 0), True)], [], []),
        (2, [((1, 0), True)], [X[::2]], []),
        (2, [((1, 0), True)], [[1.0]], []),
        (2, [], [], [("x", (2, 0))]),
        (2, [], [], [("x", (0, 2))]),
    ],
)
def test_refusals(after: int, asked: Any, seen: Any, feeds: Any) -> None:
    chain = chain_of(Twice(), Twice())
    with pytest.raises(ValueError, match=r"link|value"):
        chain.link(after, asked, seen, {}, [], feeds)
    with pytest.raises(ValueError, match=r"link|value"):
        chain.end(after, asked, seen, [(source, False) for _, source in feeds])
    assert len(chain) == 3
