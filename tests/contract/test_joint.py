"""What was asked becomes one layout an operand, in no type that rounds its values."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations
from typing import Any

import numpy as np
import pytest

from libdesc import guideline, register
from libdesc.numpy.arrays import aligned
from ptensor import Layout, PTensor, lib_tagger
from ptensor.evaluation import Evaluation
from resolver.evaluate import resolve
from resolver.extend import extend
from resolver.lowered import LoweredGraph
from tests.contract.invokers import calling, copying, requiring, tagging
from tests.libraries.bench import HERE, Bench, message, where
from tests.libraries.operators import logical, write
from tests.libraries.toy import handlers
from tests.resolver.networks import checked
from vtensor.errors import ContractError, InputError, LayoutError, NoInvokerError, ResolutionError
from vtensor.language.graph import Graph
from vtensor.runtime.session import Session

SIZES = {"N": 2, "C": 8, "H": 3, "W": 5}
SIX = np.arange(6, dtype=np.float32).reshape(2, 3)
TOY = "Toy 'toy', toy invoker: "


def mix(bench: Bench, asks: str, inputs: str) -> LoweredGraph:
    """One Mix node on inputs in these layouts; ``C=1`` is a size, ``const`` says a constant."""
    graph, values, entry = Graph("mix"), [], {}
    for index, text in enumerate(inputs.split(", ")):
        layout, *more = text.split()
        dims = {dim: size for dim, size in SIZES.items() if dim in layout}
        dims |= {word[0]: int(word[2:]) for word in more if word != "const"}
        if "const" in more:
            array = np.ones(list(dims.values()), np.float32)
            values.append(graph.constant(array, list(dims), f"x{index}"))
        else:
            values.append(graph.input(f"x{index}", dims))
            entry[f"x{index}"] = Layout(layout)
    graph.output(graph.add(bench.op("Mix", tuple(asks.split())), *values, name="mix"))
    return resolve(graph.seal(), entry)


def decided(resolution: LoweredGraph) -> str:
    return " ".join(str(layout) for layout in resolution.operators[0].variant.layouts)


ALTERNATIVES = "NHWC|NCHW4c|NCHW NCHW4c|NHWC"
#: What a node asks for, the layouts of its inputs, and what is decided.
DECIDED = {
    "one ANY input hands its layout on": ("ANY ANY", "NCHW8c", "NCHW8c NCHW8c"),
    "one joint layout": ("ANY ANY ANY", "NHWC, NCHW", "NHWC NHWC NHWC"),
    "a broadcast dim has no blocks": ("ANY ANY ANY", "NCHW4c, NCHW C=1", "NCHW4c NCHW NCHW4c"),
    "a constant does not lead": ("ANY ANY ANY", "NCHW const, NHWC", "NHWC NHWC NHWC"),
    "nor as the second": ("ANY ANY ANY", "NHWC, NCHW const", "NHWC NHWC NHWC"),
    "nor do fewer dims": ("ANY ANY ANY", "C, NHWC", "C NHWC NHWC"),
    "nor does a broadcast": ("ANY ANY ANY", "WHCN C=1, NHWC", "NHWC NHWC NHWC"),
    "no operand leads": ("ANY ANY ANY", "WC, CN", "CW CN CWN"),
    "a fixed input leads an ANY output": ("NHWC ANY", "NCHW", "NHWC NHWC"),
    "no ANY input": ("NHWC CNHW WHCN", "NCHW, NCHW", "NHWC CNHW WHCN"),
    "the alternative that is there": (ALTERNATIVES, "NCHW4c", "NCHW4c NCHW4c"),
    "the last alternative": (ALTERNATIVES, "NCHW", "NCHW NCHW4c"),
    "no alternative is there": (ALTERNATIVES, "WHCN", "NHWC NCHW4c"),
    "one that is the same memory": ("CNHW|NHWC NCHW", "NCHW H=1 W=1", "NHWC NCHW"),
    "ANY among alternatives": ("NHWC|ANY ANY", "WHCN", "WHCN WHCN"),
    "no guideline": ("- -", "NHWC", "NHWC NHWC"),
}


@pytest.mark.parametrize("case", DECIDED)
def test_requirements_become_one_layout_an_operand(bench: Bench, case: str) -> None:
    asks, inputs, layouts = DECIDED[case]
    assert decided(mix(bench, asks, inputs)) == layouts


def test_each_operand_is_restricted_to_its_own_dims(bench: Bench) -> None:
    expected = {"NCHW4c": "NCHW4c", "C": "C4c", "WC": "CW4c"}
    for order in permutations(expected):
        layouts = decided(mix(bench, "ANY ANY ANY ANY", ", ".join(order)))
        assert layouts == " ".join([*map(expected.__getitem__, order), "NCHW4c"])


def test_confirm_leads_to_the_next_row(bench: Bench) -> None:
    rows: list[list[str]] = []

    def refusal(call: Any, row: Sequence[Layout]) -> str | None:
        rows.append([str(layout) for layout in row])
        return None if str(row[0]) == "NCHW" else "plain only"

    handlers.refusal = refusal
    resolution = mix(bench, "ANY ANY ANY", "NCHW8c, NHWC")
    assert decided(resolution) == "NCHW NCHW NCHW"
    assert rows == [["NCHW8c"] * 3, ["NHWC"] * 3, ["NCHW"] * 3]


def test_values_do_not_depend_on_operand_order(bench: Bench) -> None:
    rng = np.random.default_rng(7)
    shapes = [SIZES, {"C": 8}, {"C": 8, "W": 5}]
    arrays = [rng.standard_normal(list(dims.values())).astype(np.float32) for dims in shapes]

    def add(left: PTensor, right: PTensor, dst: PTensor) -> None:
        np.add(aligned(left, dst), aligned(right, dst), out=dst.data())

    bench.invoker("Pair")(calling(requiring("ANY", "ANY", "ANY"), add))
    results = []
    for pair in ((0, 1), (1, 0), (0, 2), (2, 0)):
        graph = Graph("order")
        inputs = [graph.input(f"x{i}", shapes[i]) for i in pair]
        graph.output(graph.add(bench.op("Pair"), *inputs), "y")
        with Session(graph, input_layouts={"x0": "NHWC"}) as session:
            results += session.run(None, {f"x{i}": arrays[i] for i in pair})
    np.testing.assert_array_equal(results[0], results[1])
    np.testing.assert_array_equal(results[2], results[3])
    np.testing.assert_array_equal(results[0], arrays[0] + arrays[1].reshape(1, 8, 1, 1))


@pytest.mark.parametrize(
    ("answer", "layouts"),
    [
        ({0: Layout("NHWC"), 1: [Layout("NCHW8c"), Layout("NCHW")]}, "NHWC NCHW8c"),
        ({0: Layout.ANY}, "NCHW NCHW"),
    ],
)
def test_what_is_never_required_takes_the_guideline(
    bench: Bench, answer: Any, layouts: str
) -> None:
    handlers.answer = lambda call: answer
    assert decided(mix(bench, "- -", "NCHW")) == layouts
    assert len(handlers.asked) == 1


def test_the_guideline_sees_the_whole_call(bench: Bench) -> None:
    def answer(call: Any) -> Any:
        assert call.op == bench.op("Mix", ("-", "-", "NCHW"))
        assert call.roles == ("x0", "x1", "y")
        assert [t.device for t in call.operands] == ["cpu"] * 3
        assert [t.dtype for t in call.operands] == ["f32"] * 3
        assert [str(t.produced_layout) for t in call.inputs] == ["NHWC", "C"]
        assert dict(call.operands[2].dims) == SIZES
        return {0: Layout("NCHW")}

    handlers.answer = answer
    assert decided(mix(bench, "- - NCHW", "NHWC, C")) == "NCHW C NCHW"
    assert len(handlers.asked) == 1


NONSENSE: list[Any] = [
    *({2: Layout("NC")}, {-1: Layout("NC")}, {0: []}, {0: "NC"}, {0: None}, {0: Layout("NHWC")}),
    *({0: [Layout("NC"), Layout("N")]}, None, [Layout("NC")]),
]


@pytest.mark.parametrize("answer", NONSENSE)
def test_a_guideline_that_answers_nonsense_is_refused(bench: Bench, answer: Any) -> None:
    handlers.answer = lambda call: answer
    bench.invoker()(lambda ctx, op, x, y: PTensor(x).require(guideline("toy", PTensor(y))))
    text = message(ContractError, bench.resolve)
    assert text.startswith(f"{TOY}the guideline of toy answers ")
    assert text.endswith(f"({where(handlers.guideline)})")


def test_a_renamed_view_is_its_operand(bench: Bench) -> None:
    produced = []

    @bench.invoker()
    def renaming(ctx: Any, op: Any, x: Any, y: Any) -> None:
        src, dst = PTensor(x.rename({"C": "K"})), PTensor(y)
        produced.append(str(src.produced_layout))
        src.require("KN")
        assert str(src.required_layout) == "KN"
        if lib_tagger("toy", [src], [dst.require("NC")]):
            return
        assert str(src.required_layout) == "KN"
        dst.data()[...] = src.data().T

    assert bench.layouts() == ["CN", "NC"]
    np.testing.assert_array_equal(bench.run("Toy", SIX), SIX)
    assert produced == ["NK", "NK", "KN"]  # the last one is behind the Transform


def split_view(layout: Any) -> Any:
    """An invoker that requires a layout of a view whose channels are in groups, and of y."""

    def invoke(ctx: Any, op: Any, x: Any, y: Any) -> None:
        src, dst = PTensor(x.split("C", {"G": 2, "C": 4})), PTensor(y)
        src.require(layout)
        if lib_tagger("toy", [src], [dst.require("NCHW" if layout != "ANY" else layout)]):
            assert layout != "ANY" or str(src.required_layout) == "NGCHW"
            return
        assert str(src.required_layout) == layout
        write(dst, np.moveaxis(src.data(), 0, 2))

    return invoke


@pytest.mark.parametrize(
    ("asked", "entry", "decision"),
    [("HGCNW", "NCHW", "HCNW NCHW"), ("ANY", "NCHW4c", "NCHW NCHW")],
)
def test_a_split_view_is_its_operand(bench: Bench, asked: str, entry: str, decision: str) -> None:
    """ANY of it avoids blocks on the split dim."""
    bench.invoker()(split_view(asked))
    assert bench.layouts("Toy", SIZES, x0=entry) == decision.split()


@pytest.mark.parametrize("layout", ["GNCHW", "NCGHW", "NGHWC4c"])
def test_a_layout_that_tears_a_split_dim_apart_is_refused(bench: Bench, layout: str) -> None:
    bench.invoker()(split_view(layout))
    assert message(LayoutError, lambda: bench.resolve("Toy", SIZES)) == (
        f"layout {layout} of a view tears C apart: G C must lie together"
    )


def test_any_of_views_that_no_one_layout_suits_is_declined(bench: Bench) -> None:
    """One splits C into P Q, the other into Q P: whatever the order, it tears one apart."""

    @bench.invoker("Pair")
    def splitting(ctx: Any, op: Any, a: Any, b: Any, y: Any) -> None:
        views = (a.split("C", {"P": 2, "Q": 4}), b, y.split("C", {"Q": 4, "P": 2}))
        left, right, dst = (PTensor(view).require(Layout.ANY) for view in views)
        lib_tagger("toy", [left, right], [dst])

    text = message(NoInvokerError, lambda: bench.resolve("Pair", {"C": 8}, {"C": 8}))
    assert "no one layout of its ANY operands suits all of its views" in text


def test_a_guideline_is_in_a_views_dims(bench: Bench) -> None:
    handlers.answer = lambda call: {0: [Layout("CN"), Layout.ANY], 1: Layout("NC")}

    @bench.invoker()
    def renaming(ctx: Any, op: Any, x: Any, y: Any) -> None:
        src, dst = PTensor(x.rename({"C": "K"})), PTensor(y)
        assert guideline("toy", src) == [Layout("KN"), Layout.ANY]
        assert guideline("toy", dst) == Layout("NC")
        lib_tagger("toy", [src.require("KN")], [dst])

    assert bench.layouts() == ["CN", "NC"]
    assert len(handlers.asked) == 1


def test_the_same_value_twice_is_two_operands(bench: Bench) -> None:
    @bench.invoker("Pair")
    def subtract(ctx: Any, op: Any, a: Any, b: Any, y: Any) -> None:
        right, left = PTensor(b).require("CN"), PTensor(a).require("NC")  # the second one first
        assert (left.role, right.role) == ("a", "b")
        dst = PTensor(y).require("NC")
        if lib_tagger("toy", [left, right], [dst]):
            return
        write(dst, 3 * logical(left) - logical(right))

    graph = Graph("twice")
    x = graph.input("x", {"N": 2, "C": 3})
    graph.output(graph.add(bench.op("Pair"), x, x), "y")
    with Session(graph) as session:
        [result] = session.run(None, {"x": SIX})
        assert [str(c.target) for c in session.conversions] == ["CN"]
    np.testing.assert_array_equal(result, 2 * SIX)


@pytest.mark.parametrize(
    ("entries", "expected"),
    [("CN, NC", "CN CN NC"), ("NC, CN", "NC NC NC"), ("CN4c, NC", "NC NC NC")],
)
def test_alternatives_of_operands_are_combined(bench: Bench, entries: str, expected: str) -> None:
    """A library that wants its inputs alike finds the row, what is produced first."""
    handlers.refusal = lambda call, row: None if row[0] == row[1] else "wants both alike"
    assert decided(mix(bench, "CN|NC CN|NC NC", entries)) == expected


def test_any_combination_of_alternatives_is_found(bench: Bench) -> None:
    """The joint layout of what asks for ANY goes along."""
    wanted = ["CN4c", "CN", "NC", "CN4c"]
    tried = set()

    def refusal(call: Any, row: Sequence[Layout]) -> str | None:
        tried.add(row)
        return None if [str(layout) for layout in row] == wanted else "wants another"

    handlers.refusal = refusal
    asks = "NC|CN|CN4c NC|CN NC|CN|CN4c ANY"
    assert decided(mix(bench, asks, "CN, CN, NC")) == " ".join(wanted)
    assert len(tried) <= 3 * 2 * 3 * 4


def test_combinations_are_bounded(bench: Bench) -> None:
    """Of more than a thousand operands with alternatives, a few rows are tried."""
    tried = []

    def refusal(call: Any, row: Sequence[Layout]) -> str:
        tried.append(row)
        return "wants none"

    handlers.refusal = refusal
    asks, inputs = "CN|NC " * 1201, ", ".join(["NC"] * 1200)
    text = message(NoInvokerError, lambda: mix(bench, asks, inputs))
    assert 3 <= len(tried) <= 64
    assert len(set(tried)) == len(tried)
    assert text.count("wants none") == 8
    assert "and 56 more combinations" in text


# Tolerance 0, which every session has

NUMBERS = np.array([[1.001, 2.002, 3.003], [4.004, 5.005, 6.006]], np.float32)  # none is a bf16


def transforms(bench: Bench, **entry: str) -> int:
    layouts = {name: Layout(text) for name, text in entry.items()}
    graph = bench.graph()
    return len(list(checked(extend(resolve(graph, layouts)), graph, layouts).transforms()))


@pytest.mark.parametrize(
    ("source", "target", "reason"),
    [
        ("NC:bf16", "NC", "NC:bf16 NC: x in NC:bf16 rounds f32"),
        ("NC", "NC:f16", "NC NC:f16: y in NC:f16 rounds f32"),
        ("NC:s8(scale=0.5)", "NC", "NC:s8(scale=0.5) NC: x in NC:s8(scale=0.5) rounds f32"),
    ],
)
def test_a_rounding_type_is_declined(bench: Bench, source: str, target: str, reason: str) -> None:
    """Without another library it is an error."""
    bench.invoker()(copying("toy", source, target))
    reason += "; the session's tolerance is 0"
    assert f"50 toy : {reason}" in message(NoInvokerError, bench.resolve)
    register(HERE / "other")
    bench.invoker(library="other")(copying("other"))
    decision = bench.decide()
    assert decision.library == "other"
    assert [r.reason for r in decision.refused] == [reason]
    assert np.array_equal(bench.run("Toy", NUMBERS), NUMBERS)


def test_above_tolerance_0_a_type_may_round(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Evaluation, "rounding", True)
    bench.invoker()(copying("toy", "NC:bf16"))
    assert bench.layouts() == ["NC:bf16", "NC"]


@pytest.mark.parametrize(
    ("source", "target", "layouts", "conversions"),
    [
        ("NC:f64", "NC:f64", ["NC:f64", "NC:f64"], 2),  # a wider type does not round
        ("NC:f32", "NC:f32", ["NC", "NC"], 0),  # a tensor's own type is no encoding
        ("NC", "NC:f32", ["NC", "NC"], 0),
    ],
)
def test_a_type_that_does_not_round_is_taken(
    bench: Bench, source: str, target: str, layouts: list[str], conversions: int
) -> None:
    bench.invoker()(copying("toy", source, target))
    assert bench.layouts() == layouts
    assert transforms(bench) == conversions
    assert np.array_equal(bench.run("Toy", NUMBERS), NUMBERS)


def test_any_does_not_take_over_a_type_that_rounds(bench: Bench) -> None:
    """The input comes in bf16; what is made of it is f32 all the same."""
    bench.invoker()(copying("toy", "ANY", "ANY"))
    assert bench.layouts("Toy", x0="CN:bf16") == ["NC", "NC"]
    assert transforms(bench, x0="CN:bf16") == 1  # widening


def test_the_own_type_may_be_said_in_a_guideline_and_an_entry(bench: Bench) -> None:
    handlers.answer = lambda call: {0: Layout("NC:f32"), 1: [Layout("NC:f32"), Layout("CN")]}
    bench.invoker()(tagging)
    assert bench.layouts() == ["NC", "NC"]
    assert transforms(bench, x0="NC:f32") == 0


def test_the_own_type_may_be_said_of_inputs_and_outputs(bench: Bench) -> None:
    bench.invoker()(copying("toy", "ANY", "ANY"))
    there, here = {"x0": "CN:f32"}, {"y": "CN:f32"}
    with Session(bench.graph(), input_layouts=there, output_layouts=here) as session:
        [result] = session.run(None, {"x0": np.asfortranarray(NUMBERS)})
        assert session.conversions == []
    assert np.array_equal(result, NUMBERS)
    with pytest.raises(InputError, match="its own element type"):
        Session(bench.graph(), output_layouts={"y": "CN:bf16"})
    assert message(ResolutionError, lambda: extend(bench.resolve(), {"y": Layout("NC:bf16")})) == (
        "output 'y': layout NC:bf16 rounds its f32, and the session's tolerance is 0; "
        "deliver it in its own element type"
    )
