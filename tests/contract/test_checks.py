"""What an operator declares: rules of parameters and dims with their wording, and traits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from libdesc.numpy import anyhow, definition
from libdesc.registry import registry
from ptensor import PTensor
from tests.libraries.bench import Bench, message, where
from vtensor.errors import DimError, GraphError, ParameterError
from vtensor.language.dims import DimSpec
from vtensor.language.graph import Graph
from vtensor.language.operators import (
    OPERATORS,
    Context,
    Pair,
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


@pytest.fixture
def ruled(scratch: None) -> Iterator[Any]:
    """An operator with a parameter of every kind."""

    @operator(
        "Ruled", dims={"x": "N C H W", "w": "G? O I", "y": "*"}, equal=[("x.C", "w.I * group")]
    )
    class Ruled:
        strides: Pair = param(default=(1, 1), minimum=1)
        kernel: tuple[int, ...] = param(default=(), maximum=7)
        group: int = param(default=1, minimum=1, maximum=8)
        alpha: float = param(default=0.5, minimum=0, maximum=1)
        mode: str = param(default="up", choices=("up", "down"))
        flag: bool = param(default=False)
        pairs: tuple[tuple[str, str], ...] = param(default=())
        row: tuple[str, int] = param(default=("N", 1))
        rows: tuple[tuple[str, int], ...] = param(default=())
        anything: int | None = param(default=None)

        def compute(self, ctx: Context, x: VTensor, w: VTensor) -> VTensor:
            y = VTensor(x.dtype, x.dims, ctx.output(0))
            ctx.dispatch(self, [x, w], [y])
            return y

    yield Ruled
    assert OPERATORS["Ruled"].cls is Ruled


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


#: A parameter, the rule that it must keep, and values that break it.
BROKEN: list[tuple[Any, ...]] = [
    ("strides", "a tuple of 2 integers", 2, [1, 1], (1, 1, 1), (1, 1.0), (1, True)),
    ("strides", "at least 1", (1, 0)),
    ("kernel", "a tuple of integers", (3, "3")),
    ("kernel", "at most 7", (3, 8)),
    ("group", "an integer", "2", True, 2.0),
    ("group", "at least 1", 0),
    ("group", "at most 8", 9),
    ("alpha", "a number", "half"),
    ("alpha", "at least 0", -0.25, float("nan")),
    ("alpha", "at most 1", 1.5),
    ("mode", "a string", 3),
    ("mode", "one of ('up', 'down')", "sideways"),
    ("flag", "a truth value", 1),
    ("pairs", "a tuple of tuples of 2 strings", (("a",),)),
    ("row", "a row (string, integer)", ("a", "b"), ("a", 1, 2)),
    ("rows", "a tuple of rows (string, integer)", (("a", 1), (1, "a"))),
]


@pytest.mark.parametrize("case", BROKEN, ids=lambda case: f"{case[0]} must be {case[1]}")
def test_a_parameter_that_breaks_a_rule_is_refused(ruled: Any, case: tuple[Any, ...]) -> None:
    field, rule, *values = case
    for value in values:
        text = message(ParameterError, lambda value=value: ruled(**{field: value}))  # type: ignore[misc]
        assert text == f"Ruled({field}={value!r}): {field} must be {rule}"


def graph(**sizes: dict[str, int]) -> tuple[Graph, list[VTensor]]:
    """A graph with inputs of these sizes."""
    made = Graph("checks")
    return made, [made.input(name, dims) for name, dims in sizes.items()]


GOOD_X = {"N": 1, "C": 6, "H": 4, "W": 5}


@pytest.mark.parametrize(
    ("x", "w", "what"),
    [
        ({"N": 1, "C": 6, "H": 4}, {"O": 2, "I": 3}, "the dims of x must be N C H W"),
        (GOOD_X | {"D": 1}, {"O": 2, "I": 3}, "the dims of x must be N C H W"),
        (GOOD_X, {"I": 3}, "the dims of w must be G? O I"),
        (GOOD_X, {"G": 2, "K": 2, "I": 3}, "the dims of w must be G? O I"),
        (GOOD_X, {"O": 2, "I": 4}, "x.C = 6 must equal w.I * group = 8"),
    ],
)
def test_dims_that_break_a_rule_are_refused(
    ruled: Any, x: dict[str, int], w: dict[str, int], what: str
) -> None:
    made, inputs = graph(x=x, w=w)
    text = message(DimError, lambda: made.add(ruled(group=2), *inputs, name="conv1"))
    first, *rows = text.splitlines()
    assert first == f"Ruled 'conv1': {what}"
    sizes = [" ".join(f"{d}={s}" for d, s in dims.items()) for dims in (x, w, x)]
    width = max(map(len, sizes))
    assert rows == [
        f"  {role} : {text:<{width}}   f32" for role, text in zip("xwy", sizes, strict=True)
    ]
    assert made.nodes == {}  # nothing that failed is left
    assert set(made.values) == {"x", "w"}


@pytest.mark.parametrize("w", [{"O": 2, "I": 3}, {"I": 3, "O": 2}, {"G": 2, "O": 2, "I": 3}])
def test_parameters_and_dims_that_keep_the_rules_are_taken(ruled: Any, w: dict[str, int]) -> None:
    rest = ((3, 7), 2, 1, "down", True, (("a", "b"),), ("C", 2), (("C", 2),), object())
    made, inputs = graph(x=GOOD_X, w=w)
    made.add(ruled((2, 1), *rest), *inputs)
    ruled(group=8)


def test_open_dims_and_variadic_inputs_are_checked() -> None:
    @operator("Gathering", dims={"x": "C *", "y": "C *"})
    class Gathering:
        def compute(self, ctx: Context, *x: VTensor) -> VTensor:
            y = VTensor(x[0].dtype, x[0].dims, ctx.output(0))
            ctx.dispatch(self, list(x), [y])
            return y

    made, [a, b] = graph(a={"C": 3, "W": 2}, b={"W": 2})
    made.add(Gathering(), a, a, a)
    assert message(DimError, lambda: made.add(Gathering(), a, b, name="g")) == (
        "Gathering 'g': the dims of x must be C *\n"
        "  y  : C=3 W=2   f32\n"
        "  x0 : C=3 W=2   f32\n"
        "  x1 : W=2       f32"
    )
    assert message(GraphError, lambda: made.add(Gathering(), name="none")) == (
        "Gathering 'none' takes at least 1 input, 0 given"
    )


def test_any_number_of_outputs_is_checked() -> None:
    @operator("Dealing", dims={"x": "*", "*y": "C *"})
    class Dealing:
        count: int = param()

        def compute(self, ctx: Context, x: VTensor) -> tuple[VTensor, ...]:
            ys = tuple(VTensor(x.dtype, x.dims, ctx.output(i)) for i in range(self.count))
            ctx.dispatch(self, [x], ys)
            return ys

    made, [a, b] = graph(a={"C": 3}, b={"W": 2})
    assert [y.name for y in made.add(Dealing(2), a, name="two")] == ["two", "two:1"]
    one: object = Dealing(1)
    assert made.add(one, a, name="one").name == "one"
    assert OPERATORS["Dealing"].roles(1, 2) == ("x", "y0", "y1")
    assert message(DimError, lambda: made.add(Dealing(1), b, name="d")) == (
        "Dealing 'd': the dims of y must be C *\n  x  : W=2   f32\n  y0 : W=2   f32"
    )


def test_what_is_no_operator_or_has_other_inputs_is_refused(ruled: Any) -> None:
    made, [x] = graph(x=GOOD_X)
    assert message(GraphError, lambda: made.add(ruled(), x, name="conv1")) == (
        "Ruled 'conv1' takes 2 inputs, 1 given"
    )
    assert message(GraphError, lambda: made.add(object(), x)).endswith(
        "is no operator; operators are registered with @operator"
    )


def test_a_dim_that_compute_asks_for_in_vain() -> None:
    @operator("Asking", dims={"x": "*", "y": "*"})
    class Asking:
        def compute(self, ctx: Context, x: VTensor) -> VTensor:
            x.size("Q")
            raise AssertionError("size must raise")

    made, [x] = graph(x={"N": 2})
    assert message(DimError, lambda: made.add(Asking(), x, name="a")) == (
        "Asking 'a': x has no dim 'Q'; its dims are N\n  x : N=2   f32"
    )


@pytest.mark.parametrize("text", ["N N", "N C-1", "1N", "N C?? H"])
def test_rows_of_dims_that_do_not_parse_are_refused(text: str) -> None:
    assert message(DimError, lambda: DimSpec.parse(text)) == (
        f"{text!r} must be dim names, each an identifier and none twice"
    )


def declare_other(name: str, dims: dict[str, str]) -> None:
    @operator(name, dims=dims)
    class Other:
        def compute(self, ctx: Context, x: VTensor) -> VTensor:
            raise AssertionError


def test_a_declaration_without_dims_or_of_a_taken_name_is_refused(ruled: Any) -> None:
    text = message(GraphError, lambda: declare_other("Undeclared", {"y": "*"}))
    assert text == "operator Undeclared: dims say nothing of {'x'}"
    assert "Undeclared" not in OPERATORS
    text = message(GraphError, lambda: declare_other("Ruled", {"x": "*", "y": "*"}))
    assert text == f"operator Ruled is already registered by {__file__}"
    assert OPERATORS["Ruled"].cls is ruled


@pytest.mark.parametrize(
    ("axis", "others", "fault"),
    [
        ("H", (), "axis H must be a dim of x"),
        ("K", (), "axis K must be a dim of x"),
        ("C", ("N",), "others N must be dims of w, each once"),
        ("C", ("K", "K"), "others K K must be dims of w, each once"),
    ],
)
def test_a_parameter_that_names_dims_is_checked(
    axis: str, others: tuple[str, ...], fault: str
) -> None:
    op = declared()(axis, others)
    assert message(DimError, lambda: compute(op)) == (
        f"Along 'a': {fault}\n  x : N=2 C=3   f32\n  w : C=3 K=4   f32"
    )


def test_a_declaration_that_is_met_changes_nothing() -> None:
    [y] = compute(declared()("N", ("K", "C")))
    assert dict(y.dims) == {"N": 2}
    [y] = compute(declared("Held", holds=[(lambda op, x, w: True, "")])())
    assert dict(y.dims) == {"C": 3}


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


@pytest.mark.parametrize(
    "traits", [[Elementwise(), Elementwise()], [Cost(1), Cost(2)], ["elementwise"], [Elementwise]]
)
def test_traits_are_traits_of_different_kinds(traits: Sequence[Any]) -> None:
    text = message(GraphError, lambda: declared(traits=traits))
    assert text.startswith("operator Along: traits=")
    assert text.endswith("must be traits, each kind once")
    assert "Along" not in OPERATORS
    text = message(GraphError, lambda: Structural("twist"))
    assert "Structural('twist'): none of rename, reshape" in text


class Ours(Trait):
    """A trait of one's own."""


def test_traits_are_found_by_kind() -> None:
    info = info_of(declared(traits=[Elementwise(), Cost(3), DefinedBy("toy"), ours := Ours()])())
    assert info.trait(Ours) is ours
    assert info.trait(Cost) == Cost(3)
    assert info.trait(Structural) is None
    assert (info.elementwise, info.structural, info.definition) == (True, "", "toy")


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
