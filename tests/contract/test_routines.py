"""The short form of an invoker: it returns what it would call."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from libdesc import register
from libdesc.dispatcher import DispatchContext, dispatcher_source
from libdesc.preferences import Preferences
from libdesc.routine import Routine
from ops import Relu
from ptensor.evaluation import Call, Decline, installed, lib_tagger
from ptensor.layout import Layout
from ptensor.tensor import PTensor
from resolver.evaluate import PartialEvaluation
from tests.libraries.bench import HERE, Bench, message, where
from tests.libraries.toy import handlers
from vtensor.errors import ContractError, InvokerError, NoInvokerError
from vtensor.language.operators import Follower
from vtensor.language.tensor import VTensor

SIX = [[0, 1, 2], [3, 4, 5]]
STRANGER = VTensor("f32", {"N": 2})
SPLIT = {"C": 3, "c": 1}


def copy(src: PTensor, dst: PTensor) -> None:
    """dst = src, element by element as they lie."""
    dst.data()[...] = src.data()


def double(src: PTensor, dst: PTensor) -> None:
    """dst = 2 * dst; src says only how it lies."""
    dst.data()[...] *= 2


class Liking(Routine):
    """A routine that says by itself what it would like, and what it refuses."""

    def preferred(self, call: Call) -> Mapping[int, Layout]:
        return {call.index(tensor): Layout("CN") for tensor in self.tensors}

    def confirm(self, call: Call, row: Sequence[Layout]) -> str | None:
        return None if row[0] == row[1] == Layout("CN") else "not so"


class Choosy(Routine):
    def __init__(self, *tensors: VTensor) -> None:
        super().__init__(tensors)
        raise Decline("not today")


def test_what_a_routine_wants_is_required_at_the_invoker(bench: Bench) -> None:
    @bench.invoker()
    def described(ctx: Any, op: Any, x: Any, y: Any) -> Routine:
        return Routine([x, y], ["CN", Layout.ANY], run=copy)

    variant = bench.decide()
    assert [str(layout) for layout in variant.layouts] == ["CN", "CN"]
    asked, open_ = variant.requirements
    assert f"{asked.file}:{asked.line}" == where(described)
    assert open_.open
    assert bench.run().tolist() == SIX
    text = dispatcher_source("Toy")
    for part in ("PTensor(tensor)", "tensor.require(wanted)", "lib_tagger(library,", "routine(*"):
        assert part in text


def test_what_it_does_not_want_is_asked_of_the_guideline(bench: Bench) -> None:
    seen: list[object] = []

    def answer(call: Call) -> Mapping[int, Layout]:
        seen.append(call.routine)
        return {1: Layout("CN")}

    handlers.answer = answer
    routines: list[Routine] = []

    @bench.invoker()
    def described(ctx: Any, op: Any, x: Any, y: Any) -> Routine:
        routines.append(Routine([x, y], ["NC"], run=copy))
        return routines[-1]

    assert bench.layouts() == ["NC", "CN"]
    assert seen == routines, "the guideline sees the routine, and is asked once"


def only_the_last(x: VTensor, y: VTensor) -> Routine:
    Routine([y], ["CN"], run=double)
    Routine([x, y], ["CN", "CN"], run=double)
    return Routine([x, y], ["NC", "NC"], run=copy)


def several(x: VTensor, y: VTensor) -> list[Routine]:
    """The first that has a say decides how an operand lies; later ones see it so."""
    return [Routine([x, y], [None, "CN"], run=copy), Routine([x, y], ["CN", "NC"], run=double)]


def of_views(x: VTensor, y: VTensor) -> Routine:
    return Routine([x.split("C", SPLIT), y.split("C", SPLIT)], ["C c N", "C c N"], run=copy)


#: What an invoker returns, what is decided, and what it computes of 0 to 5.
RETURNED: dict[str, tuple[Callable[..., Any], list[str], list[list[int]]]] = {
    "making a routine has no effect": (only_the_last, ["NC", "NC"], SIX),
    "several run in order": (several, ["CN", "CN"], [[0, 2, 4], [6, 8, 10]]),
    "a view is its operand": (of_views, ["CN", "CN"], SIX),
}


@pytest.mark.parametrize("case", RETURNED)
def test_what_an_invoker_returns_is_what_runs(bench: Bench, case: str) -> None:
    make, layouts, values = RETURNED[case]
    bench.invoker()(lambda ctx, op, x, y: make(x, y))
    assert bench.layouts() == layouts
    assert bench.run().tolist() == values


def test_a_library_without_handlers_asks_the_routine(bench: Bench) -> None:
    register(HERE / "other")
    bench.invoker(library="other")(lambda ctx, op, x, y: Liking([x, y], run=copy))
    assert bench.layouts() == ["CN", "CN"]


def test_each_of_several_confirms(bench: Bench) -> None:
    register(HERE / "other")

    @bench.invoker(library="other")
    def described(ctx: Any, op: Any, x: Any, y: Any) -> list[Routine]:
        return [Routine([x, y], ["NC", "NC"], run=copy), Liking([x, y], run=double)]

    assert "other : NC NC: not so" in message(NoInvokerError, bench.resolve)


@pytest.mark.parametrize("answer", [3, [], "copy", [None], True])
def test_what_is_no_routine_is_refused(bench: Bench, answer: object) -> None:
    @bench.invoker()
    def described(ctx: Any, op: Any, x: Any, y: Any) -> object:
        return answer

    text = message(ContractError, bench.resolve)
    assert f"returned {answer!r}, which is no Routine: return what it would call" in text
    assert where(described) in text


def after_the_tagger(x: VTensor, y: VTensor) -> Routine:
    lib_tagger("toy", [PTensor(x).require("NC")], [PTensor(y).require("NC")])
    return Routine([x, y], run=copy)


FAULTY: list[tuple[Callable[..., Any], type[Exception], str]] = [
    (after_the_tagger, ContractError, "after lib_tagger"),
    (lambda x, y: Routine([y], ["NC"]), ContractError, "is not given the PTensor of x"),
    (lambda x, y: Routine([x], ["NC"]), ContractError, "is not given the PTensor of y"),
    (lambda x, y: Routine([x, y, STRANGER]), ContractError, "is no operand of this call"),
    (lambda x, y: Choosy(x, y), NoInvokerError, "toy : not today"),
]


@pytest.mark.parametrize(("make", "error", "text"), FAULTY, ids=[row[-1] for row in FAULTY])
def test_a_routine_that_breaks_the_contract_is_refused(
    bench: Bench, make: Callable[..., Any], error: Any, text: str
) -> None:
    bench.invoker()(lambda ctx, op, x, y: make(x, y))
    assert text in message(error, bench.resolve)


def test_a_routine_without_a_call_says_so(bench: Bench) -> None:
    bench.invoker()(lambda ctx, op, x, y: Routine([x, y], ["NC", "NC"]))
    bench.decide()
    assert "Routine has neither run nor __call__" in message(InvokerError, bench.run)


def follow(taken: Callable[[Sequence[Follower]], Sequence[Follower]]) -> list[object]:
    """Return the layouts of a node whose routine takes some of the two followers behind it."""
    ctx = DispatchContext(
        node="toy",
        preferences=Preferences(nodes={"toy": "toy"}),
        followers=(Follower(Relu()), Follower(Relu())),
    )
    x, y = VTensor("f32", {"N": 2, "C": 3}), VTensor("f32", {"N": 2, "C": 3})
    bench = Bench()

    @bench.invoker()
    def described(ctx: Any, op: Any, x: Any, y: Any) -> Routine:
        list(ctx.followers)  # a look has no effect
        return Routine([x, y], ["NC", "NC"], taken(ctx.followers), run=copy)

    with installed(PartialEvaluation()):
        ctx.dispatch(bench.op("Toy"), [x], [y])
    assert ctx.variant is not None
    return list(ctx.variant.layouts)


def test_followers_are_taken_by_saying_so(scratch: None) -> None:
    assert follow(lambda offered: offered) == [Layout("NC"), Layout("NC")]


@pytest.mark.parametrize("count", [0, 1])
def test_looking_at_followers_takes_none(scratch: None, count: int) -> None:
    text = message(NoInvokerError, lambda: follow(lambda offered: offered[:count]))
    assert "its invoker does not fuse Relu, Relu" in text
