"""ParametersAndDimensionCheck, generated: every rule, with its wording."""

from __future__ import annotations

import linecache
from collections.abc import Iterator
from typing import Any

import pytest

from tests.libraries.bench import message
from vtensor.errors import DimError, GraphError, ParameterError
from vtensor.language.checks import check_source, compile_check
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
from vtensor.language.tensor import VTensor

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


@pytest.mark.parametrize(
    ("field", "value", "rule"),
    [
        ("strides", 2, "a tuple of 2 integers"),
        ("strides", [1, 1], "a tuple of 2 integers"),
        ("strides", (1, 1, 1), "a tuple of 2 integers"),
        ("strides", (1, 1.0), "a tuple of 2 integers"),
        ("strides", (1, True), "a tuple of 2 integers"),
        ("strides", (1, 0), "at least 1"),
        ("kernel", (3, "3"), "a tuple of integers"),
        ("kernel", (3, 8), "at most 7"),
        ("group", "2", "an integer"),
        ("group", True, "an integer"),
        ("group", 2.0, "an integer"),
        ("group", 0, "at least 1"),
        ("group", 9, "at most 8"),
        ("alpha", "half", "a number"),
        ("alpha", -0.25, "at least 0"),
        ("alpha", 1.5, "at most 1"),
        ("alpha", float("nan"), "at least 0"),
        ("mode", 3, "a string"),
        ("mode", "sideways", "one of ('up', 'down')"),
        ("flag", 1, "a truth value"),
        ("pairs", (("a",),), "a tuple of tuples of 2 strings"),
        ("row", ("a", "b"), "a row (string, integer)"),
        ("row", ("a", 1, 2), "a row (string, integer)"),
        ("rows", (("a", 1), (1, "a")), "a tuple of rows (string, integer)"),
    ],
)
def test_parameters(ruled: Any, field: str, value: Any, rule: str) -> None:
    text = message(ParameterError, lambda: ruled(**{field: value}))
    assert text == f"Ruled({field}={value!r}): {field} must be {rule}"


def test_good_parameters(ruled: Any) -> None:
    ruled((2, 1), (3, 7), 8, 1, "down", True, (("a", "b"),), ("C", 2), (("C", 2),), object())


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
def test_dims(ruled: Any, x: dict[str, int], w: dict[str, int], what: str) -> None:
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
def test_good_dims(ruled: Any, w: dict[str, int]) -> None:
    made, inputs = graph(x=GOOD_X, w=w)
    made.add(ruled(group=2), *inputs)


def test_open_dims_and_variadic_inputs() -> None:
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


def test_any_number_of_outputs() -> None:
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


def test_number_of_inputs(ruled: Any) -> None:
    made, [x] = graph(x=GOOD_X)
    assert message(GraphError, lambda: made.add(ruled(), x, name="conv1")) == (
        "Ruled 'conv1' takes 2 inputs, 1 given"
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


def test_the_text_is_what_runs(ruled: Any) -> None:
    """Two lines of the printed text, changed, change the check."""
    info = info_of(ruled())
    text = check_source(info.check)
    compile_check.cache_clear()
    check = compile_check(info.check)
    assert "".join(linecache.getlines("<generated check of Ruled>")) == text
    assert check.__code__.co_filename == "<generated check of Ruled>"


@pytest.mark.parametrize("text", ["N N", "N C-1", "1N", "N C?? H"])
def test_rows_of_dims_that_do_not_parse(text: str) -> None:
    from vtensor.language.dims import DimSpec

    assert message(DimError, lambda: DimSpec.parse(text)) == (
        f"{text!r} must be dim names, each an identifier and none twice"
    )


def test_operands_without_dims() -> None:
    def declare() -> None:
        @operator("Undeclared", dims={"y": "*"})
        class Undeclared:
            def compute(self, ctx: Context, x: VTensor) -> VTensor:
                raise AssertionError

    assert message(GraphError, declare) == "operator Undeclared: dims say nothing of {'x'}"
    assert "Undeclared" not in OPERATORS


def test_an_operators_name_is_taken_once(ruled: Any) -> None:
    def declare() -> None:
        @operator("Ruled", dims={"x": "*", "y": "*"})
        class Other:
            def compute(self, ctx: Context, x: VTensor) -> VTensor:
                raise AssertionError

    text = message(GraphError, declare)
    assert text == f"operator Ruled is already registered by {__file__}"
    assert OPERATORS["Ruled"].cls is ruled


def test_what_is_no_operator() -> None:
    made, [x] = graph(x={"N": 1})
    assert message(GraphError, lambda: made.add(object(), x)).endswith(
        "is no operator; operators are registered with @operator"
    )


def test_run_compute_names_its_node(ruled: Any) -> None:
    x, w = VTensor("f32", {"N": 1}), VTensor("f32", {"O": 1, "I": 1})
    with pytest.raises(DimError, match="Ruled 'here': the dims of x must be N C H W"):
        run_compute(Context(node="here"), ruled(), [x, w])
