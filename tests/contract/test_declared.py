"""What an operator declares beside its dims: what must hold of its inputs, and its traits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from libdesc.numpy import anyhow, definition
from libdesc.registry import registry
from ptensor import PTensor
from tests.libraries.bench import Bench, message, where
from vtensor.errors import DimError, GraphError
from vtensor.language.operators import (
    OPERATORS,
    Context,
    info_of,
    operator,
    param,
    run_compute,
)
from vtensor.language.spelling import Spelling
from vtensor.language.table import OperatorTable
from vtensor.language.tensor import VTensor
from vtensor.language.traits import Cost, DefinedBy, Elementwise, Structural, Trait

pytestmark = pytest.mark.usefixtures("scratch")


def declared(name: str = "Along", **options: Any) -> Any:
    """An operator over an axis and some others of x, with one more operand."""

    @operator(name, dims={"x": "*", "w": "*", "y": "*"}, **options)
    class Along:
        axis: str = param(default="C", dims_of="x")
        others: tuple[str, ...] = param(default=(), dims_of="w")

        def compute(self, ctx: Context, x: VTensor, w: VTensor) -> VTensor:
            y = VTensor(x.dtype, {self.axis: x.size(self.axis)}, ctx.output(0))
            ctx.dispatch(self, [x, w], [y])
            return y

    return Along


def compute(op: object) -> tuple[VTensor, ...]:
    """What it makes of x : N=2 C=3 and w : C=3 K=4."""
    x, w = VTensor("f32", {"N": 2, "C": 3}), VTensor("f32", {"C": 3, "K": 4})
    return run_compute(Context(node="a"), op, [x, w])


@pytest.mark.parametrize(
    ("axis", "others", "fault"),
    [
        ("H", (), "axis H must be a dim of x"),
        ("K", (), "axis K must be a dim of x"),
        ("C", ("N",), "others N must be dims of w, each once"),
        ("C", ("K", "K"), "others K K must be dims of w, each once"),
    ],
)
def test_parameters_that_name_dims(axis: str, others: tuple[str, ...], fault: str) -> None:
    op = declared()(axis, others)
    assert message(DimError, lambda: compute(op)) == (
        f"Along 'a': {fault}\n  x : N=2 C=3   f32\n  w : C=3 K=4   f32"
    )


def test_parameters_that_name_dims_which_are_there() -> None:
    [y] = compute(declared()("N", ("K", "C")))
    assert dict(y.dims) == {"N": 2}


def test_what_holds_is_asked_in_order_and_before_compute() -> None:
    asked: list[str] = []

    def noted(name: str, answer: bool) -> Any:
        def condition(op: Any, x: VTensor, w: VTensor) -> bool:
            asked.append(f"{name} {op.axis} {x.size('N')} {w.size('K')}")
            return answer

        return condition

    def never(op: Any, x: VTensor, w: VTensor) -> bool:
        raise AssertionError("what comes before it does not hold")

    made = declared(
        holds=[
            (noted("first", True), "unseen"),
            (noted("second", False), "{op.axis} must be shorter than {w.dims[K]}"),
            (never, "unseen"),
        ]
    )
    assert message(DimError, lambda: compute(made())).startswith(
        "Along 'a': C must be shorter than 4\n"
    )
    assert asked == ["first C 2 4", "second C 2 4"]


def test_what_holds_does_not_change_what_is_made() -> None:
    assert dict(compute(declared(holds=[(lambda op, x, w: True, "")])())[0].dims) == {"C": 3}


@pytest.mark.parametrize(
    "traits", [[Elementwise(), Elementwise()], [Cost(1), Cost(2)], ["elementwise"], [Elementwise]]
)
def test_traits_are_traits_of_different_kinds(traits: Sequence[Any]) -> None:
    text = message(GraphError, lambda: declared(traits=traits))
    assert text.startswith("operator Along: traits=")
    assert text.endswith("must be traits, each kind once")
    assert "Along" not in OPERATORS


def test_traits_are_found_by_kind() -> None:
    info = info_of(declared(traits=[Elementwise(), Cost(3), DefinedBy("toy")])())
    assert info.trait(Cost) == Cost(3)
    assert info.trait(Structural) is None
    assert (info.elementwise, info.structural, info.definition) == (True, "", "toy")


def test_a_trait_of_ones_own() -> None:
    class Ours(Trait):
        pass

    ours = Ours()
    assert info_of(declared(traits=[ours])()).trait(Ours) is ours


def test_there_are_only_so_many_structures() -> None:
    assert "Structural('twist'): none of rename, reshape" in message(
        GraphError, lambda: Structural("twist")
    )


def test_a_table_of_operators_is_what_a_test_makes_it() -> None:
    def read(node: Any) -> Any:
        raise AssertionError("nothing is read here")

    made = declared(
        traits=[Structural("bias")], onnx=Spelling("Along", 7, read, lambda _: None, until=12)
    )
    table = OperatorTable(info_of(made()))
    assert [one.op_type for one in table.spellings("Along", 12)] == ["Along"]
    assert table.spellings("Along", 13) == table.spellings("Conv", 12) == []
    assert table.structural("bias").cls is made
    del table["Along"]
    assert table.spellings("Along", 12) == []
    text = message(GraphError, lambda: table.structural("bias"))
    assert text == "no operator is registered with the trait Structural('bias')"


def test_a_definition_is_an_invoker_at_its_place(bench: Bench) -> None:
    orders: list[str] = []

    @definition("Toy", dtypes=["f32"], order=lambda x: "CN")
    def toy(ctx: Context, op: Any, x: PTensor, y: PTensor) -> None:
        orders.extend(str(tensor.required_layout) for tensor in (x, y))
        y.data()[...] = x.data() + 1

    assert bench.run().tolist() == [[1, 2, 3], [4, 5, 6]]
    assert orders == ["CN", "CN"]
    [asked, _] = bench.decide().requirements
    assert f"{asked.file}:{asked.line}" == where(toy)
    info = registry().invokers["Toy", "numpy", "cpu"]
    assert (info.python, dict(info.dtypes)) == (True, {"": frozenset({"f32"})})


def test_a_definition_of_several_asks_for_each_operand(bench: Bench) -> None:
    @definition("Toy", "Pair", orders=lambda op, *operands: ["CN"] * len(operands))
    def both(ctx: Context, op: Any, *operands: PTensor) -> None:
        operands[-1].data()[...] = sum(one.data() for one in operands[:-1])

    assert bench.layouts("Pair") == ["CN", "CN", "CN"]
    assert bench.run("Toy").tolist() == [[0, 1, 2], [3, 4, 5]]


def test_anyhow_is_one_layout_for_all(bench: Bench) -> None:
    @definition("Pair", order=anyhow)
    def pair(ctx: Context, op: Any, a: PTensor, b: PTensor, y: PTensor) -> None:
        y.data()[...] = a.data() * b.data()

    assert bench.layouts("Pair", x0="CN", x1="NC") == ["CN", "CN", "CN"]
