"""Trees of requests, each chosen by values that earlier ones have computed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from vtensor.runtime._replay import RequestTree

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


def tree_of(*requests: Twice) -> RequestTree:
    """Return requests one after the other as long as sums are small, and an end."""
    tree = RequestTree(["x"], (ValueError,), np.ndarray)
    at, source, asked, seen = 0, (-1, 0), [((-1, 0), False)], [X]
    for depth, request in enumerate(requests):
        feeds = [("x", source)]
        at = tree.add_request(
            at, asked, seen, {LANE: request}, ["y", "large"], feeds, f"part {depth}"
        )
        source, asked, seen = (depth, 0), [((depth, 1), True)], [np.array(False)]
    tree.add_end(at, asked, seen, [(source, False), ((-1, 0), True)])
    return tree


def ran(tree: RequestTree, arrays: dict[str, object], lane: object = LANE) -> tuple[list[int], Any]:
    """Return the places of the requests that run, and the outputs of the tree."""
    done, outputs = tree.run(arrays, lane)
    return [place for place, _, _ in done], outputs


def test_requests_run_until_values_decide_otherwise() -> None:
    first, second = Twice(), Twice()
    tree = tree_of(first, second)
    assert len(tree) == 3
    x = np.array([0.0, 1.0, 0.5])
    done, outputs = tree.run({"x": x}, LANE)
    assert [owner for _, owner, _ in done] == ["part 0", "part 1"]
    assert outputs is not None
    assert outputs[0] is done[1][2][0]
    assert outputs[1] is not x
    np.testing.assert_array_equal(outputs[1], x)
    np.testing.assert_array_equal(outputs[0], x * 4)
    done, outputs = tree.run({"x": x + 2}, LANE)  # large already after the first request
    assert (len(done), outputs) == (1, None)
    assert (first.runs, second.runs) == (2, 1)


@pytest.mark.parametrize(
    "arrays",
    [
        {},
        {"x": X, "z": X},
        {"z": X},
        {"x": [1.0]},
        {"x": X[:2]},
        {"x": X[::2]},
        {"x": X > 0},
        {"x": X.astype(">f8")},
        {"x": X.view(np.recarray)},
        {"x": np.float64(1)},
    ],
)
def test_other_inputs_run_nothing(arrays: dict[str, object]) -> None:
    request = Twice()
    assert tree_of(request).run(arrays, LANE) == ([], None)
    assert not request.runs


@pytest.mark.parametrize("answer", [None, False, (), [], [X]])
def test_a_request_that_answers_no_outputs_ends_the_run(answer: object) -> None:
    small = X / 8
    first, second = Twice(), Twice(answer=answer)
    done, outputs = tree_of(first, second).run({"x": small}, LANE)
    assert (len(done), outputs) == (1, None)
    assert tree_of(Twice()).run({"x": small}, object()) == ([], None)  # another lane


def test_errors_of_requests() -> None:
    assert tree_of(Twice(ValueError("known"))).run({"x": X}, LANE) == ([], None)
    with pytest.raises(KeyboardInterrupt):
        tree_of(Twice(KeyboardInterrupt())).run({"x": X}, LANE)


def test_what_is_asked_may_change() -> None:
    tree, small = tree_of(Twice(), Twice()), X / 8
    [first, second], _ = ran(tree, {"x": small})
    requests, feeds = {LANE: Twice()}, [("x", (0, 0))]
    third = tree.add_request(first, [], [], requests, ["y", "large"], feeds, None)
    assert ran(tree, {"x": small}) == ([first, third], None)  # the second one is removed
    assert (
        tree.add_request(first, [], [], requests, ["y", "large"], feeds, None) == third
    )  # the tree has it
    other = tree.add_request(first, [], [], {}, [], [], None)
    assert other not in (first, second, third)
    assert ran(tree, {"x": small}) == ([first], None)


def test_each_value_decides_by_itself() -> None:
    tree, source = RequestTree(["a", "b"], (), np.ndarray), [(-1, 0), (-1, 1)]
    yes, no = np.array(True), np.array(False)
    for a, b in ((yes, yes), (yes, no)):
        asked = [(each, True) for each in source]
        tree.add_end(0, asked, [a, b], [((-1, int(b.item())), False)])
    tree.add_end(0, [(source[0], True)], [no], [((-1, 0), True)])  # b does not count here
    for a, b in ((yes, yes), (yes, no), (no, yes), (no, no)):
        _, outputs = tree.run({"a": a, "b": b}, LANE)
        assert outputs is not None
        assert outputs[0] is (b if a is yes and b is yes else a) or a is no
    assert len(tree) == 3


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
        (2, [((1, 0), True)] * 2, [X, X[::2]], []),
        (2, [], [], [("x", (2, 0))]),
        (2, [], [], [("x", (0, 2))]),
    ],
)
def test_refusals(after: int, asked: Any, seen: Any, feeds: Any) -> None:
    tree = tree_of(Twice(), Twice())
    with pytest.raises(ValueError, match=r"request|value"):
        tree.add_request(after, asked, seen, {}, [], feeds, None)
    with pytest.raises(ValueError, match=r"request|value"):
        tree.add_end(after, asked, seen, [(source, False) for _, source in feeds])
    assert len(tree) == 3
