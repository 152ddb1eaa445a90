"""What ``require`` returns, and where no evaluation is installed."""

from __future__ import annotations

import threading
from typing import Any

from ptensor import Layout, PTensor, lib_tagger
from tests.libraries.bench import Bench, message, where
from vtensor.errors import ContractError
from vtensor.language.tensor import VTensor

TOY = "Toy 'toy', toy invoker: "


def test_require_returns_the_ptensor_and_parses_text(bench: Bench) -> None:
    @bench.invoker()
    def good(ctx: Any, op: Any, x: Any, y: Any) -> None:
        src = PTensor(x)
        assert src.require("CN") is src
        dst = PTensor(y).require(Layout("NC"))
        assert (src.size("C"), src.ndimensions(), src.dtype, src.role) == (3, 2, "f32", "x")
        lib_tagger("toy", [src], [dst])

    assert bench.layouts() == ["CN", "NC"]


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
