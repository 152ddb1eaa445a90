"""What was asked becomes one layout an operand: ANY together, alternatives, guidelines, views."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations
from typing import Any

import numpy as np
import pytest

from libdesc import guideline
from ptensor import Layout, PTensor, lib_tagger
from resolver.evaluate import resolve
from resolver.lowered import LoweredGraph
from tests.libraries.bench import Bench, message, where
from tests.libraries.operators import logical, write
from tests.libraries.toy import handlers
from vtensor.errors import ContractError, LayoutError, NoInvokerError
from vtensor.language.graph import Graph
from vtensor.runtime.session import Session

NCHW = {"N": 2, "C": 8, "H": 3, "W": 5}
ROW = {"C": 8}
TOY = "Toy 'toy', toy invoker: "


def mix(bench: Bench, asks: Sequence[str], *inputs: tuple[dict[str, int], str]) -> LoweredGraph:
    """One Mix node on inputs of these sizes and entry layouts; ``const`` makes a constant."""
    graph, values, entry = Graph("mix"), [], {}
    for index, (dims, layout) in enumerate(inputs):
        if layout == "const":
            array = np.ones(list(dims.values()), np.float32)
            values.append(graph.constant(array, list(dims), f"x{index}"))
        else:
            values.append(graph.input(f"x{index}", dims))
            entry[f"x{index}"] = Layout(layout)
    graph.output(graph.add(bench.op("Mix", tuple(asks)), *values, name="mix"))
    return resolve(graph.seal(), entry)


def decided(resolution: LoweredGraph) -> list[str]:
    """The layouts of the only node."""
    return [str(layout) for layout in resolution.operators[0].variant.layouts]


def test_one_any_input_hands_its_layout_on(bench: Bench) -> None:
    """Algorithm 1, lines 10 to 15."""
    assert decided(mix(bench, ("ANY", "ANY"), (NCHW, "NCHW8c"))) == ["NCHW8c", "NCHW8c"]


def test_any_operands_take_one_joint_layout(bench: Bench) -> None:
    found = mix(bench, ("ANY",) * 3, (NCHW, "NHWC"), (NCHW, "NCHW"))
    assert decided(found) == ["NHWC"] * 3


def test_each_operand_is_restricted_to_its_own_dims(bench: Bench) -> None:
    for order in permutations([(NCHW, "NCHW4c"), (ROW, "C"), ({"C": 8, "W": 5}, "WC")]):
        found = decided(mix(bench, ("ANY",) * 4, *order))
        expected = {4: "NCHW4c", 1: "C4c", 2: "CW4c"}
        assert found == [*(expected[len(dims)] for dims, _ in order), "NCHW4c"]


def test_a_broadcast_dim_loses_its_blocks(bench: Bench) -> None:
    column = {"N": 2, "C": 1, "H": 3, "W": 5}
    found = mix(bench, ("ANY",) * 3, (NCHW, "NCHW4c"), (column, "NCHW"))
    assert decided(found) == ["NCHW4c", "NCHW", "NCHW4c"]


@pytest.mark.parametrize("swap", [False, True])
def test_constants_do_not_lead(bench: Bench, swap: bool) -> None:
    rows = [(NCHW, "const"), (NCHW, "NHWC")]
    found = mix(bench, ("ANY",) * 3, *(rows[::-1] if swap else rows))
    assert decided(found) == ["NHWC"] * 3


def test_only_an_operand_with_all_the_outputs_dims_leads(bench: Bench) -> None:
    found = mix(bench, ("ANY",) * 3, (ROW, "C"), (NCHW, "NHWC"))
    assert decided(found) == ["C", "NHWC", "NHWC"]


def test_a_broadcasting_operand_does_not_lead(bench: Bench) -> None:
    column = {"N": 2, "C": 1, "H": 3, "W": 5}
    found = mix(bench, ("ANY",) * 3, (column, "WHCN"), (NCHW, "NHWC"))
    assert decided(found) == ["NHWC"] * 3


def test_nobody_leads(bench: Bench) -> None:
    """Then it is the declared order, which is that of the operand with the most dims."""
    found = mix(bench, ("ANY",) * 3, ({"C": 8, "W": 5}, "WC"), ({"N": 2, "C": 8}, "CN"))
    assert [set(text) for text in decided(found)[:2]] == [{"C", "W"}, {"N", "C"}]
    assert decided(found)[2] == "CWN"


def test_a_fixed_input_leads_an_any_output(bench: Bench) -> None:
    assert decided(mix(bench, ("NHWC", "ANY"), (NCHW, "NCHW"))) == ["NHWC", "NHWC"]


def test_no_any_input(bench: Bench) -> None:
    found = mix(bench, ("NHWC", "CNHW", "WHCN"), (NCHW, "NCHW"), (NCHW, "NCHW"))
    assert decided(found) == ["NHWC", "CNHW", "WHCN"]


def test_confirm_leads_to_the_next_row(bench: Bench) -> None:
    rows: list[list[str]] = []

    def refusal(call: Any, row: Sequence[Layout]) -> str | None:
        rows.append([str(layout) for layout in row])
        return None if str(row[0]) == "NCHW" else "plain only"

    handlers.refusal = refusal
    found = mix(bench, ("ANY",) * 3, (NCHW, "NCHW8c"), (NCHW, "NHWC"))
    assert decided(found) == ["NCHW"] * 3
    assert rows == [["NCHW8c"] * 3, ["NHWC"] * 3, ["NCHW"] * 3]


def test_values_do_not_depend_on_operand_order(bench: Bench) -> None:
    rng = np.random.default_rng(7)
    sizes = [NCHW, ROW, {"C": 8, "W": 5}]
    arrays = [rng.standard_normal(list(s.values())).astype(np.float32) for s in sizes]

    @bench.invoker("Pair")
    def add(ctx: Any, op: Any, a: Any, b: Any, y: Any) -> None:
        from libdesc.numpy.arrays import aligned

        left, right, dst = (PTensor(t).require(Layout.ANY) for t in (a, b, y))
        if lib_tagger("toy", [left, right], [dst]):
            return
        np.add(aligned(left, dst), aligned(right, dst), out=dst.data())

    results = []
    for one, two in ((0, 1), (1, 0), (0, 2), (2, 0)):
        graph = Graph("order")
        inputs = [graph.input(f"x{i}", sizes[i]) for i in (one, two)]
        graph.output(graph.add(bench.op("Pair"), *inputs), "y")
        feeds = {f"x{i}": arrays[i] for i in (one, two)}
        with Session(graph, input_layouts={"x0": "NHWC"}) as session:
            results.append(session.run(None, feeds)[0])
            assert session.plan.graph.outputs["y"]
    np.testing.assert_array_equal(results[0], results[1])
    np.testing.assert_array_equal(results[2], results[3])
    np.testing.assert_array_equal(results[0], arrays[0] + arrays[1].reshape(1, 8, 1, 1))


def test_alternatives_prefer_what_is_there(bench: Bench) -> None:
    asks = ("NHWC|NCHW4c|NCHW", "NCHW4c|NHWC")
    assert decided(mix(bench, asks, (NCHW, "NCHW4c"))) == ["NCHW4c", "NCHW4c"]
    assert decided(mix(bench, asks, (NCHW, "NCHW"))) == ["NCHW", "NCHW4c"]
    assert decided(mix(bench, asks, (NCHW, "WHCN"))) == ["NHWC", "NCHW4c"]


def test_an_alternative_that_is_the_same_memory_will_do(bench: Bench) -> None:
    flat = {"N": 2, "C": 8, "H": 1, "W": 1}
    asks = ("CNHW|NHWC", "NCHW")
    assert decided(mix(bench, asks, (flat, "NCHW"))) == ["NHWC", "NCHW"]


def test_any_among_alternatives_is_any(bench: Bench) -> None:
    assert decided(mix(bench, ("NHWC|ANY", "ANY"), (NCHW, "WHCN"))) == ["WHCN", "WHCN"]


def test_a_ptensor_never_required_takes_the_guideline(bench: Bench) -> None:
    handlers.answer = lambda call: {0: Layout("NHWC"), 1: [Layout("NCHW8c"), Layout("NCHW")]}
    found = mix(bench, ("-", "-"), (NCHW, "NCHW"))
    assert decided(found) == ["NHWC", "NCHW8c"]
    assert len(handlers.asked) == 1


def test_without_guideline_it_takes_any(bench: Bench) -> None:
    assert decided(mix(bench, ("-", "-"), (NCHW, "NHWC"))) == ["NHWC", "NHWC"]
    handlers.answer = lambda call: {0: Layout.ANY}
    assert decided(mix(bench, ("-", "-"), (NCHW, "NHWC"))) == ["NHWC", "NHWC"]


def test_the_guideline_sees_the_whole_call(bench: Bench) -> None:
    def answer(call: Any) -> Any:
        assert call.op == bench.op("Mix", ("-", "-", "NCHW"))
        assert call.roles == ("x0", "x1", "y")
        assert [t.device for t in call.operands] == ["cpu"] * 3
        assert [t.dtype for t in call.operands] == ["f32"] * 3
        assert [str(t.produced_layout) for t in call.inputs] == ["NHWC", "C"]
        assert dict(call.operands[2].dims) == NCHW
        return {0: Layout("NCHW")}

    handlers.answer = answer
    found = mix(bench, ("-", "-", "NCHW"), (NCHW, "NHWC"), (ROW, "C"))
    assert decided(found) == ["NCHW", "C", "NCHW"]
    assert len(handlers.asked) == 1


@pytest.mark.parametrize(
    "answer",
    [
        {2: Layout("NC")},
        {-1: Layout("NC")},
        {0: []},
        {0: "NC"},
        {0: None},
        {0: Layout("NHWC")},
        {0: [Layout("NC"), Layout("N")]},
        None,
        [Layout("NC")],
    ],
)
def test_a_guideline_that_answers_nonsense(bench: Bench, answer: Any) -> None:
    handlers.answer = lambda call: answer

    @bench.invoker()
    def asking(ctx: Any, op: Any, x: Any, y: Any) -> None:
        PTensor(x).require(guideline("toy", PTensor(y)))

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
    six = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.testing.assert_array_equal(bench.run("Toy", six), six)
    assert produced == ["NK", "NK", "KN"]  # the last one is behind the Transform


def test_a_split_view_is_its_operand(bench: Bench) -> None:
    @bench.invoker()
    def splitting(ctx: Any, op: Any, x: Any, y: Any) -> None:
        src, dst = PTensor(x.split("C", {"G": 2, "C": 4})), PTensor(y)
        src.require("HGCNW")
        if lib_tagger("toy", [src], [dst.require("NCHW")]):
            return
        assert str(src.required_layout) == "HGCNW"
        write(dst, np.moveaxis(src.data(), 0, 2))

    assert bench.layouts("Toy", NCHW) == ["HCNW", "NCHW"]


@pytest.mark.parametrize("layout", ["GNCHW", "NCGHW", "NGHWC4c"])
def test_a_layout_that_tears_a_split_dim_apart(bench: Bench, layout: str) -> None:
    @bench.invoker()
    def splitting(ctx: Any, op: Any, x: Any, y: Any) -> None:
        PTensor(x.split("C", {"G": 2, "C": 4})).require(layout)

    assert message(LayoutError, lambda: bench.resolve("Toy", NCHW)) == (
        f"layout {layout} of a view tears C apart: G C must lie together"
    )


def test_any_of_a_split_view_avoids_blocks_on_the_split_dim(bench: Bench) -> None:
    @bench.invoker()
    def splitting(ctx: Any, op: Any, x: Any, y: Any) -> None:
        src, dst = PTensor(x.split("C", {"G": 2, "C": 4})), PTensor(y)
        lib_tagger("toy", [src.require(Layout.ANY)], [dst.require(Layout.ANY)])
        assert str(src.required_layout) == "NGCHW"

    assert bench.layouts("Toy", NCHW, x0="NCHW4c") == ["NCHW", "NCHW"]


def test_any_of_views_that_no_one_layout_suits(bench: Bench) -> None:
    """One splits C into P Q, the other into Q P: whatever the order, it tears one apart."""

    @bench.invoker("Pair")
    def splitting(ctx: Any, op: Any, a: Any, b: Any, y: Any) -> None:
        left, right = PTensor(a.split("C", {"P": 2, "Q": 4})), PTensor(b)
        dst = PTensor(y.split("C", {"Q": 4, "P": 2}))
        for tensor in (left, right, dst):
            tensor.require(Layout.ANY)
        lib_tagger("toy", [left, right], [dst])

    text = message(NoInvokerError, lambda: bench.resolve("Pair", {"C": 8}, {"C": 8}))
    assert "no one layout of its ANY operands suits all of its views" in text


def test_guideline_in_a_views_dims(bench: Bench) -> None:
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
    six = np.arange(6, dtype=np.float32).reshape(2, 3)
    with Session(graph) as session:
        [result] = session.run(None, {"x": six})
        assert [str(c.target) for c in session.conversions] == ["CN"]
    np.testing.assert_array_equal(result, 2 * six)


@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        (("CN", "NC"), ["CN", "CN", "NC"]),
        (("NC", "CN"), ["NC", "NC", "NC"]),
        (("CN4c", "NC"), ["NC", "NC", "NC"]),
    ],
)
def test_alternatives_of_operands_are_combined(
    bench: Bench, entries: tuple[str, str], expected: list[str]
) -> None:
    """A library that wants its inputs alike finds the row, what is produced first."""
    handlers.refusal = lambda call, row: None if row[0] == row[1] else "wants both alike"
    dims = {"N": 2, "C": 8}
    found = mix(bench, ("CN|NC", "CN|NC", "NC"), *((dims, entry) for entry in entries))
    assert decided(found) == expected


def test_any_combination_of_alternatives_is_found(bench: Bench) -> None:
    """The joint layout of what asks for ANY goes along."""
    dims = {"N": 2, "C": 8}
    wanted = ["CN4c", "CN", "NC", "CN4c"]
    tried = set()

    def refusal(call: Any, row: Sequence[Layout]) -> str | None:
        tried.add(row)
        return None if [str(layout) for layout in row] == wanted else "wants another"

    handlers.refusal = refusal
    asks = ("NC|CN|CN4c", "NC|CN", "NC|CN|CN4c", "ANY")
    assert decided(mix(bench, asks, (dims, "CN"), (dims, "CN"), (dims, "NC"))) == wanted
    assert len(tried) <= 3 * 2 * 3 * 4


def test_combinations_are_bounded(bench: Bench) -> None:
    """A hundred operands with alternatives: some rows are tried, then the library has declined."""
    tried = []

    def refusal(call: Any, row: Sequence[Layout]) -> str:
        tried.append(row)
        return "wants none"

    handlers.refusal = refusal
    count, dims = 1200, {"N": 2, "C": 8}
    text = message(
        NoInvokerError,
        lambda: mix(bench, ("CN|NC",) * (count + 1), *((dims, "NC"),) * count),
    )
    assert 3 <= len(tried) <= 64
    assert len(set(tried)) == len(tried)
    assert text.count("wants none") == 8
    assert "and 56 more combinations" in text
