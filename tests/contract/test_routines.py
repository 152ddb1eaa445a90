"""The short form of an invoker: it returns what it would call."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from libdesc import register
from libdesc.dispatcher import DispatchContext, dispatcher_source
from libdesc.preferences import Preferences
from libdesc.routine import Routine
from ops import Relu
from ptensor.evaluation import Call, Decline, installed
from ptensor.layout import Layout
from ptensor.tensor import PTensor
from resolver.evaluate import PartialEvaluation
from tests.libraries.bench import HERE, Bench, message, where
from tests.libraries.toy import handlers
from vtensor.errors import ContractError, InvokerError, NoInvokerError
from vtensor.language.operators import Follower
from vtensor.language.tensor import VTensor


def copy(src: PTensor, dst: PTensor) -> None:
    """dst = src, element by element as they lie."""
    dst.data()[...] = src.data()


def double(src: PTensor, dst: PTensor) -> None:
    """dst = 2 * dst; src says only how it lies."""
    dst.data()[...] *= 2


def test_what_a_routine_wants_is_required_at_the_invoker(bench: Bench) -> None:
    @bench.invoker()
    def described(ctx: Any, op: Any, x: Any, y: Any) -> Routine:
        return Routine([x, y], ["CN", Layout.ANY], run=copy)

    variant = bench.decide()
    assert [str(layout) for layout in variant.layouts] == ["CN", "CN"]
    asked, open_ = variant.requirements
    assert f"{asked.file}:{asked.line}" == where(described)
    assert open_.open
    assert bench.run().tolist() == [[0, 1, 2], [3, 4, 5]]


def test_what_it_does_not_want_is_asked_of_the_guideline(bench: Bench) -> None:
    seen: list[object] = []

    def answer(call: Call) -> Mapping[int, Layout]:
        seen.append(call.routine)
        return {1: Layout("CN")}

    handlers.answer = answer
    made: list[Routine] = []

    @bench.invoker()
    def described(ctx: Any, op: Any, x: Any, y: Any) -> Routine:
        made.append(Routine([x, y], ["NC"], run=copy))
        return made[-1]

    assert bench.layouts() == ["NC", "CN"]
    assert seen == made, "the guideline sees the routine, and is asked once"


class Liking(Routine):
    """A routine that says by itself what it would like, and what it refuses."""

    def preferred(self, call: Call) -> Mapping[int, Layout]:
        return {call.index(tensor): Layout("CN") for tensor in self.tensors}

    def confirm(self, call: Call, row: Sequence[Layout]) -> str | None:
        return None if row[0] == row[1] == Layout("CN") else "not so"


def test_a_library_without_handlers_asks_the_routine(bench: Bench) -> None:
    register(HERE / "other")

    @bench.invoker(library="other")
    def described(ctx: Any, op: Any, x: Any, y: Any) -> Routine:
        return Liking([x, y], run=copy)

    assert bench.layouts() == ["CN", "CN"]


def test_making_a_routine_has_no_effect(bench: Bench) -> None:
    @bench.invoker()
    def described(ctx: Any, op: Any, x: Any, y: Any) -> Routine:
        Routine([y], ["CN"], run=double)
        Routine([x, y], ["CN", "CN"], run=double)
        return Routine([x, y], ["NC", "NC"], run=copy)

    assert bench.layouts() == ["NC", "NC"]
    assert bench.run().tolist() == [[0, 1, 2], [3, 4, 5]]


def test_several_run_in_order(bench: Bench) -> None:
    """The first that has a say decides how an operand lies; later ones see it so."""

    @bench.invoker()
    def described(ctx: Any, op: Any, x: Any, y: Any) -> list[Routine]:
        return [Routine([x, y], [None, "CN"], run=copy), Routine([x, y], ["CN", "NC"], run=double)]

    assert bench.layouts() == ["CN", "CN"]
    assert bench.run().tolist() == [[0, 2, 4], [6, 8, 10]]


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


def test_a_routine_behind_the_tagger_is_refused(bench: Bench) -> None:
    from ptensor import lib_tagger

    @bench.invoker()
    def described(ctx: Any, op: Any, x: Any, y: Any) -> Routine:
        src, dst = PTensor(x).require("NC"), PTensor(y).require("NC")
        lib_tagger("toy", [src], [dst])
        return Routine([x, y], run=copy)

    assert "after lib_tagger" in message(ContractError, bench.resolve)


@pytest.mark.parametrize("missing", ["x", "y"])
def test_every_operand_is_named(bench: Bench, missing: str) -> None:
    @bench.invoker()
    def described(ctx: Any, op: Any, x: Any, y: Any) -> Routine:
        return Routine([y if missing == "x" else x], ["NC"], run=copy)

    text = message(ContractError, bench.resolve)
    assert f"lib_tagger is not given the PTensor of {missing}" in text


def test_a_stranger_is_no_operand(bench: Bench) -> None:
    @bench.invoker()
    def described(ctx: Any, op: Any, x: Any, y: Any) -> Routine:
        return Routine([x, y, VTensor("f32", {"N": 2})], run=copy)

    assert "is no operand of this call" in message(ContractError, bench.resolve)


def test_a_view_is_its_operand(bench: Bench) -> None:
    @bench.invoker()
    def described(ctx: Any, op: Any, x: Any, y: Any) -> Routine:
        split = {"C": 3, "c": 1}
        return Routine([x.split("C", split), y.split("C", split)], ["C c N", "C c N"], run=copy)

    assert bench.layouts() == ["CN", "CN"]
    assert bench.run().tolist() == [[0, 1, 2], [3, 4, 5]]


def test_a_routine_without_a_call_says_so(bench: Bench) -> None:
    @bench.invoker()
    def described(ctx: Any, op: Any, x: Any, y: Any) -> Routine:
        return Routine([x, y], ["NC", "NC"])

    bench.decide()
    assert "Routine has neither run nor __call__" in message(InvokerError, bench.run)


def follow(taken: Callable[[Sequence[Follower]], Sequence[Follower]]) -> list[object]:
    """What is decided for a node with two followers behind it, of which its routine takes some."""
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


def test_declining_in_a_constructor_declines_the_call(bench: Bench) -> None:
    class Choosy(Routine):
        def __init__(self, *tensors: VTensor) -> None:
            super().__init__(tensors)
            raise Decline("not today")

    @bench.invoker()
    def described(ctx: Any, op: Any, x: Any, y: Any) -> Routine:
        return Choosy(x, y)

    assert "toy : not today" in message(NoInvokerError, bench.resolve)


def test_the_dispatcher_shows_what_is_done_with_it(bench: Bench) -> None:
    bench.invoker()(lambda ctx, op, x, y: Routine([x, y], run=copy))
    text = dispatcher_source("Toy")
    for part in ("PTensor(tensor)", "tensor.require(wanted)", "lib_tagger(library,", "routine(*"):
        assert part in text


def test_the_result_is_that_of_the_long_form(bench: Bench) -> None:
    bench.invoker()(lambda ctx, op, x, y: Routine([x, y], ["CN", "CN"], run=copy))
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    assert np.array_equal(bench.run("Toy", x), x)
