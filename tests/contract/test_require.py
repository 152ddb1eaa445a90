"""Misuse of ``PTensor``, ``require``, ``lib_tagger``: each a typed error that names its place."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from libdesc import guideline
from ptensor import Layout, PTensor, lib_tagger
from tests.libraries.bench import Bench, message, where
from vtensor.errors import ContractError, LayoutError
from vtensor.language.tensor import VTensor

TOY = "Toy 'toy', toy invoker: "


def test_second_require(bench: Bench) -> None:
    @bench.invoker()
    def twice(ctx: Any, op: Any, x: Any, y: Any) -> None:
        src, dst = PTensor(x), PTensor(y)
        src.require("NC")  # first
        src.require("NC")  # second
        lib_tagger("toy", [src], [dst])

    text = message(ContractError, bench.resolve)
    first, second = where(twice, "first"), where(twice, "second")
    assert text == f"{TOY}a second require on x; the first is at {first} ({second})"


def test_require_after_the_tagger(bench: Bench) -> None:
    @bench.invoker()
    def late(ctx: Any, op: Any, x: Any, y: Any) -> None:
        src, dst = PTensor(x), PTensor(y)
        lib_tagger("toy", [src], [dst])
        src.require("NC")  # here

    assert message(ContractError, bench.resolve) == (
        f"{TOY}require on x after lib_tagger ({where(late, 'here')})"
    )


def test_ptensor_after_the_tagger(bench: Bench) -> None:
    @bench.invoker()
    def late(ctx: Any, op: Any, x: Any, y: Any) -> None:
        lib_tagger("toy", [PTensor(x)], [PTensor(y)])
        PTensor(x)  # here

    assert message(ContractError, bench.resolve) == (
        f"{TOY}PTensor(<VTensor 'x0' f32 N=2 C=3>) after lib_tagger ({where(late, 'here')})"
    )


def test_require_on_another_calls_ptensor(bench: Bench) -> None:
    kept: list[PTensor] = []

    @bench.invoker()
    def hoard(ctx: Any, op: Any, x: Any, y: Any) -> None:
        kept.append(PTensor(x))
        if len(kept) > 1:
            kept[0].require("NC")  # here
        lib_tagger("toy", [kept[-1]], [PTensor(y)])

    bench.resolve()
    assert message(ContractError, bench.resolve) == (
        f"{TOY}require on the PTensor of x, which is of another call ({where(hoard, 'here')})"
    )


def test_tagger_with_another_calls_ptensor(bench: Bench) -> None:
    kept: list[PTensor] = []

    @bench.invoker()
    def hoard(ctx: Any, op: Any, x: Any, y: Any) -> None:
        kept.append(PTensor(x))
        lib_tagger("toy", kept[:1], [PTensor(y)])  # here

    bench.resolve()
    assert message(ContractError, bench.resolve) == (
        f"{TOY}lib_tagger is given <PTensor x f32 N=2 C=3 NC>, which is no PTensor of this call "
        f"({where(hoard, 'here')})"
    )


def test_tagger_with_a_vtensor(bench: Bench) -> None:
    @bench.invoker()
    def careless(ctx: Any, op: Any, x: Any, y: Any) -> None:
        PTensor(x)
        lib_tagger("toy", [x], [PTensor(y)])  # here

    assert message(ContractError, bench.resolve) == (
        f"{TOY}lib_tagger is given <VTensor 'x0' f32 N=2 C=3>, which is no PTensor of this call "
        f"({where(careless, 'here')})"
    )


def test_guideline_of_another_calls_ptensor(bench: Bench) -> None:
    kept: list[PTensor] = []

    @bench.invoker()
    def hoard(ctx: Any, op: Any, x: Any, y: Any) -> None:
        kept.append(PTensor(x))
        guideline("toy", kept[0])  # here
        lib_tagger("toy", [kept[-1]], [PTensor(y)])

    bench.resolve()
    assert message(ContractError, bench.resolve) == (
        f"{TOY}guideline of x, which is of another call ({where(hoard, 'here')})"
    )


def test_guideline_of_another_library(bench: Bench) -> None:
    @bench.invoker()
    def stranger(ctx: Any, op: Any, x: Any, y: Any) -> None:
        guideline("numpy", PTensor(x))  # here

    assert message(ContractError, bench.resolve) == (
        f"guideline('numpy') inside the invoker of 'toy' ({where(stranger, 'here')})"
    )


def test_forgotten_tagger(bench: Bench) -> None:
    @bench.invoker()
    def forgetful(ctx: Any, op: Any, x: Any, y: Any) -> None:
        PTensor(x).require("NC")

    assert message(ContractError, bench.resolve) == (
        f"{TOY}returned without calling lib_tagger ({where(forgetful)})"
    )


def test_second_tagger(bench: Bench) -> None:
    @bench.invoker()
    def twice(ctx: Any, op: Any, x: Any, y: Any) -> None:
        src, dst = PTensor(x), PTensor(y)
        lib_tagger("toy", [src], [dst])
        lib_tagger("toy", [src], [dst])  # here

    assert message(ContractError, bench.resolve) == (
        f"{TOY}lib_tagger is called a second time ({where(twice, 'here')})"
    )


def test_tagger_of_another_library(bench: Bench) -> None:
    @bench.invoker()
    def mistaken(ctx: Any, op: Any, x: Any, y: Any) -> None:
        lib_tagger("numpy", [PTensor(x)], [PTensor(y)])  # here

    assert message(ContractError, bench.resolve) == (
        f"{TOY}lib_tagger says 'numpy', the invoker is registered for 'toy' "
        f"({where(mistaken, 'here')})"
    )


def test_operands_missing_from_the_tagger(bench: Bench) -> None:
    @bench.invoker("Pair")
    def partial(ctx: Any, op: Any, a: Any, b: Any, y: Any) -> None:
        left, dst = PTensor(a), PTensor(y)
        PTensor(b)
        lib_tagger("toy", [left], [])  # here
        lib_tagger("toy", [left], [dst])

    assert message(ContractError, lambda: bench.resolve("Pair")) == (
        "Pair 'pair', toy invoker: lib_tagger is not given the PTensor of b, y "
        f"({where(partial, 'here')})"
    )


def test_require_with_foreign_dims(bench: Bench) -> None:
    @bench.invoker()
    def wrong(ctx: Any, op: Any, x: Any, y: Any) -> None:
        PTensor(x).require("NHWC")  # here

    assert message(ContractError, bench.resolve) == (
        f"{TOY}layout NHWC is not one of x, whose dims are N C ({where(wrong, 'here')})"
    )


def test_require_with_nothing(bench: Bench) -> None:
    @bench.invoker()
    def empty(ctx: Any, op: Any, x: Any, y: Any) -> None:
        PTensor(x).require([])  # here

    assert message(ContractError, bench.resolve) == (
        f"{TOY}require on x with no layout; ANY is Layout.ANY ({where(empty, 'here')})"
    )


def test_require_with_text_that_does_not_parse(bench: Bench) -> None:
    @bench.invoker()
    def garbled(ctx: Any, op: Any, x: Any, y: Any) -> None:
        PTensor(x).require("N?C")

    with pytest.raises(LayoutError, match=r"N\?C"):
        bench.resolve()


def test_require_returns_the_ptensor_and_parses_text(bench: Bench) -> None:
    @bench.invoker()
    def good(ctx: Any, op: Any, x: Any, y: Any) -> None:
        src = PTensor(x)
        assert src.require("CN") is src
        dst = PTensor(y).require(Layout("NC"))
        assert (src.size("C"), src.ndimensions(), src.dtype, src.role) == (3, 2, "f32", "x")
        lib_tagger("toy", [src], [dst])

    assert bench.layouts() == ["CN", "NC"]


def test_ptensor_of_a_foreign_vtensor(bench: Bench) -> None:
    @bench.invoker()
    def stranger(ctx: Any, op: Any, x: Any, y: Any) -> None:
        PTensor(VTensor("f32", {"N": 2, "C": 3}))  # here

    assert message(ContractError, bench.resolve) == (
        f"{TOY}<VTensor f32 N=2 C=3> is no operand of this call ({where(stranger, 'here')})"
    )


def test_second_ptensor_of_an_operand(bench: Bench) -> None:
    @bench.invoker()
    def twice(ctx: Any, op: Any, x: Any, y: Any) -> None:
        PTensor(x)
        PTensor(x)  # here

    assert message(ContractError, bench.resolve) == (
        f"{TOY}operand x already has its PTensor ({where(twice, 'here')})"
    )


def test_outside_an_invoker() -> None:
    x = VTensor("f32", {"N": 2})
    assert message(ContractError, lambda: PTensor(x)).startswith(  # here
        "PTensor(<VTensor f32 N=2>) outside an invoker ("
    )
    place = where(test_outside_an_invoker, "here")
    assert message(ContractError, lambda: PTensor(x)).split("(")[-1].split(":")[0] in place
    assert message(ContractError, lambda: lib_tagger("toy", [], [])).startswith(
        "lib_tagger('toy') outside a call ("
    )


def test_a_new_thread_sees_an_empty_context(bench: Bench) -> None:
    errors: list[Exception] = []

    def elsewhere(x: VTensor) -> None:
        try:
            PTensor(x)  # here
        except ContractError as error:
            errors.append(error)

    def dispatching(ctx: Any, op: Any, x: VTensor, y: VTensor) -> None:
        try:
            ctx.dispatch(op, [x], [y])
        except ContractError as error:
            errors.append(error)

    @bench.invoker()
    def threaded(ctx: Any, op: Any, x: Any, y: Any) -> None:
        for target, args in ((elsewhere, (x,)), (dispatching, (ctx, op, x, y))):
            thread = threading.Thread(target=target, args=args)
            thread.start()
            thread.join()
        lib_tagger("toy", [PTensor(x)], [PTensor(y)])

    bench.resolve()
    assert [str(error) for error in errors] == [
        f"PTensor(<VTensor 'x0' f32 N=2 C=3>) outside an invoker ({where(elsewhere, 'here')})",
        "no evaluation is installed here: operators run through a Session",
    ]


def test_compute_that_forgets_to_dispatch(bench: Bench) -> None:
    from vtensor.language.operators import Context, operator

    @operator("Idle", dims={"x": "*", "y": "*"})
    class Idle:
        def compute(self, ctx: Context, x: VTensor) -> VTensor:
            return VTensor(x.dtype, x.dims, ctx.output(0))

    assert message(ContractError, lambda: bench.resolve("Idle")) == (
        "Idle 'idle': compute did not call ctx.dispatch"
    )
