"""Generated code, whose text is what runs: the Dispatcher, and the check of what is declared."""

from __future__ import annotations

import linecache
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from libdesc import invoker, register, without_invoker
from libdesc.dispatcher import dispatcher, dispatcher_source
from libdesc.numpy import anyhow, definition
from libdesc.registry import invokers_of, registry
from libdesc.schema import Description
from ptensor import PTensor
from resolver.extend import extend
from tests.contract.invokers import copying, tagging
from tests.libraries.bench import HERE, Bench, message, unused, where
from tests.libraries.golden import Golden
from vtensor.errors import (
    DimError,
    GraphError,
    InvokerError,
    LibraryError,
    NoInvokerError,
    ParameterError,
)
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
from vtensor.runtime.execution.executor import Executor
from vtensor.runtime.recording.on_numbers import plan_on_numbers
from vtensor.runtime.recording.workspace import Workspace

pytestmark = pytest.mark.usefixtures("scratch")

FILE = "<generated dispatcher of Toy on cpu>"


def test_golden_text(bench: Bench, golden: Golden) -> None:
    """The whole text of one: checks, then attempts by priority."""

    @operator("Scale", dims={"x": "N C *", "w": "C", "y": "*"}, equal=[("x.C", "w.C * factor")])
    class Scale:
        factor: int = param(default=1, minimum=1, maximum=8)
        mode: str = param(default="up", choices=("up", "down"))

        def compute(self, ctx: Context, x: VTensor, w: VTensor) -> VTensor:
            y = VTensor(x.dtype, x.dims, ctx.output(0))
            ctx.dispatch(self, [x, w], [y])
            return y

    register(HERE / "other")
    bench.invoker("Scale", dtypes=["f32", "bf16"], python=False)(unused)
    bench.invoker("Scale", library="other", when=lambda op, *t: op.factor == 1)(unused)
    bench.invoker("Scale", library="numpy", priority=-1, dtypes={"w": ["f32"]})(unused)
    text = dispatcher_source("Scale")
    line = unused.__code__.co_firstlineno
    golden.check(text.replace(f"bench.py:{line}", "bench.py:LINE").rstrip())


def test_the_printed_text_is_the_compiled_text(bench: Bench) -> None:
    bench.invoker()(tagging)
    bench.resolve()
    text = dispatcher_source("Toy")
    parts = ["<generated check of Toy>", "<generated invoke>", FILE]
    assert "\n\n".join("".join(linecache.getlines(part)) for part in parts) == text
    function = dispatcher("Toy")
    assert function.__code__.co_filename == FILE
    first = linecache.getline(FILE, function.__code__.co_firstlineno).rstrip()
    assert first == "def dispatch_Toy(ctx, op, inputs, outputs):"


def test_tracebacks_show_its_lines(bench: Bench) -> None:
    @bench.invoker()
    def failing(ctx: Any, op: Any, x: Any, y: Any) -> None:
        raise ArithmeticError("a bug in an invoker")

    with pytest.raises(InvokerError, match=r"'toy', toy invoker .*: a bug in") as caught:
        bench.resolve()
    assert isinstance(caught.value.__cause__, ArithmeticError)
    frames = traceback.extract_tb(caught.tb)
    lines = [frame.line for frame in frames if frame.filename == FILE]
    assert lines == ["if attempt(ctx, op, inputs, outputs, refused, row, invoke):"]


def test_an_invoker_may_be_left_out_for_a_while(bench: Bench) -> None:
    bench.invoker()(tagging)
    whole = dispatcher_source("Toy")
    assert "library='toy'" in whole
    with without_invoker("Toy", "toy"):
        assert "library='toy'" not in dispatcher_source("Toy")
        message(NoInvokerError, bench.resolve)
    assert dispatcher_source("Toy") == whole
    with pytest.raises(ArithmeticError), without_invoker("Toy", "toy"):
        raise ArithmeticError
    assert bench.decide().library == "toy"
    message(LibraryError, lambda: without_invoker("Toy", "numpy").__enter__())


def test_a_session_outlives_its_invoker_no_longer(bench: Bench) -> None:
    """What was resolved to a library whose invoker is gone is an error that says so."""
    bench.invoker()(tagging)
    extended = extend(bench.resolve())
    with without_invoker("Toy", "toy"):
        workspace = Workspace(Executor.of(1), 1 << 20)
        text = message(NoInvokerError, lambda: plan_on_numbers(extended, {}, workspace))
    assert text.startswith("Toy 'toy': was resolved to toy, which has no invoker for it any more")
    assert text.endswith("to fix: make a new session")


def test_new_libraries_and_invokers_are_in_the_next_text(bench: Bench) -> None:
    before = dispatcher("Toy")
    assert dispatcher("Toy") is before
    bench.invoker()(tagging)
    assert dispatcher("Toy") is not before
    invoker("Toy", library="other")(unused)
    assert "other" not in dispatcher_source("Toy")
    with register(HERE / "other"):
        assert "library='other', priority=30" in dispatcher_source("Toy")
    assert "other" not in dispatcher_source("Toy")


def test_another_device_has_a_dispatcher_of_its_own(bench: Bench) -> None:
    bench.invoker(device="gpu")(unused)
    assert "Candidate" not in dispatcher_source("Toy", "cpu")
    assert "Candidate" not in dispatcher_source("Toy", "gpu")  # toy's devices: cpu


def test_an_unknown_operator_is_refused() -> None:
    assert message(GraphError, lambda: dispatcher_source("Nonsense")).startswith(
        "no operator 'Nonsense'; operators are "
    )


@pytest.mark.parametrize("name", ["check", "dispatch", "attempt", "one", "no_invoker"])
def test_a_librarys_name_meets_no_name_of_the_text(bench: Bench, name: str) -> None:
    register(Description(name, 90, ("cpu",), file=Path(f"{name}.toml")))
    bench.invoker(library=name)(copying(name))
    assert bench.decide().library == name


def test_two_functions_for_one_place_are_refused(bench: Bench) -> None:
    bench.invoker()(tagging)
    text = message(LibraryError, lambda: bench.invoker()(unused))
    assert text == f"Toy on toy, cpu already has an invoker: {where(tagging)}"
    bench.invoker(priority=7)(tagging)  # the same function again, as when a module is reloaded
    assert [info.priority for info in invokers_of("toy") if info.op == "Toy"] == [7]
    assert registry().candidates("Toy", "cpu")[0][0] == 7


# Rules of parameters and dims with their wording, and traits


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
    network = Graph("checks")
    return network, [network.input(name, dims) for name, dims in sizes.items()]


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
def test_dims_that_break_a_rule_are_refused(ruled: Any, x: Any, w: Any, what: str) -> None:
    network, inputs = graph(x=x, w=w)
    text = message(DimError, lambda: network.add(ruled(group=2), *inputs, name="conv1"))
    first, *rows = text.splitlines()
    assert first == f"Ruled 'conv1': {what}"
    sizes = [" ".join(f"{d}={s}" for d, s in dims.items()) for dims in (x, w, x)]
    width = max(map(len, sizes))
    assert rows == [
        f"  {role} : {text:<{width}}   f32" for role, text in zip("xwy", sizes, strict=True)
    ]
    assert network.nodes == {}  # nothing that failed is left
    assert set(network.values) == {"x", "w"}


@pytest.mark.parametrize("w", [{"O": 2, "I": 3}, {"I": 3, "O": 2}, {"G": 2, "O": 2, "I": 3}])
def test_parameters_and_dims_that_keep_the_rules_are_taken(ruled: Any, w: dict[str, int]) -> None:
    rest = ((3, 7), 2, 1, "down", True, (("a", "b"),), ("C", 2), (("C", 2),), object())
    network, inputs = graph(x=GOOD_X, w=w)
    network.add(ruled((2, 1), *rest), *inputs)
    ruled(group=8)


def test_open_dims_and_variadic_inputs_are_checked() -> None:
    @operator("Gathering", dims={"x": "C *", "y": "C *"})
    class Gathering:
        def compute(self, ctx: Context, *x: VTensor) -> VTensor:
            y = VTensor(x[0].dtype, x[0].dims, ctx.output(0))
            ctx.dispatch(self, list(x), [y])
            return y

    network, [a, b] = graph(a={"C": 3, "W": 2}, b={"W": 2})
    network.add(Gathering(), a, a, a)
    assert message(DimError, lambda: network.add(Gathering(), a, b, name="g")) == (
        "Gathering 'g': the dims of x must be C *\n"
        "  y  : C=3 W=2   f32\n"
        "  x0 : C=3 W=2   f32\n"
        "  x1 : W=2       f32"
    )
    assert message(GraphError, lambda: network.add(Gathering(), name="none")) == (
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

    network, [a, b] = graph(a={"C": 3}, b={"W": 2})
    assert [y.name for y in network.add(Dealing(2), a, name="two")] == ["two", "two:1"]
    op: object = Dealing(1)
    assert network.add(op, a, name="one").name == "one"
    assert OPERATORS["Dealing"].roles(1, 2) == ("x", "y0", "y1")
    assert message(DimError, lambda: network.add(Dealing(1), b, name="d")) == (
        "Dealing 'd': the dims of y must be C *\n  x  : W=2   f32\n  y0 : W=2   f32"
    )


def test_what_is_no_operator_or_has_other_inputs_is_refused(ruled: Any) -> None:
    network, [x] = graph(x=GOOD_X)
    assert message(GraphError, lambda: network.add(ruled(), x, name="conv1")) == (
        "Ruled 'conv1' takes 2 inputs, 1 given"
    )
    assert message(GraphError, lambda: network.add(object(), x)).endswith(
        "is no operator; operators are registered with @operator"
    )


def test_a_dim_that_is_not_there_is_refused() -> None:
    @operator("Asking", dims={"x": "*", "y": "*"})
    class Asking:
        def compute(self, ctx: Context, x: VTensor) -> VTensor:
            x.size("Q")
            raise AssertionError("size must raise")

    network, [x] = graph(x={"N": 2})
    assert message(DimError, lambda: network.add(Asking(), x, name="a")) == (
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
def test_a_parameter_of_dims_is_checked(axis: str, others: Any, fault: str) -> None:
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

    cls = declared(
        holds=[
            (noted("first", True), "unseen"),
            (noted("second", False), "{op.axis} must be shorter than {w.dims[K]}"),
            (never, "unseen"),
        ]
    )
    assert message(DimError, lambda: compute(cls())).startswith(
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

    cls = declared(
        traits=[Structural("bias")], onnx=Spelling("Along", 7, read, lambda _: None, until=12)
    )
    table = OperatorTable(info_of(cls()))
    assert [spelling.op_type for spelling in table.spellings("Along", 12)] == ["Along"]
    assert table.spellings("Along", 13) == table.spellings("Conv", 12) == []
    assert table.structural("bias").cls is cls
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
        operands[-1].data()[...] = sum(operand.data() for operand in operands[:-1])

    assert bench.layouts("Pair") == ["CN", "CN", "CN"]
    assert bench.run("Toy").tolist() == [[0, 1, 2], [3, 4, 5]]


def test_anyhow_is_one_layout_for_all(bench: Bench) -> None:
    @definition("Pair", order=anyhow)
    def pair(ctx: Context, op: Any, a: PTensor, b: PTensor, y: PTensor) -> None:
        y.data()[...] = a.data() * b.data()

    assert bench.layouts("Pair", x0="CN", x1="NC") == ["CN", "CN", "CN"]
