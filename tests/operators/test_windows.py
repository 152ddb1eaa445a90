"""Windows of an image as dims of their own: rows lie in blocks, are taken so, and stay there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest

import ops
from libdesc import onednn
from ptensor.layout import Layout
from tests.operators.harness import (
    Behind,
    Given,
    check_outcome,
    decide,
    definition,
    run,
    variants,
)
from tests.operators.tables.cases import Case, bound, dims_of
from vtensor import Session
from vtensor.language.graph import Graph
from vtensor.language.operators import Follower
from vtensor.language.tensor import VTensor
from vtensor.testing import assert_conversions

#: 2 x 3 windows of 7 x 7 places in each of two images.
WINDOWS = "B/3 T/7 B%3 T%7"
ROWS = "B=12 T=49"


PRODUCT = Case(ops.MatMul("C"), (f"{ROWS} C=40", "!C=40 D=24"))


def lying(case: Case, *layouts: str) -> list[Given]:
    """Return a case's inputs, each in a layout, or in declared order where that is empty."""
    rows = zip(case.given(), layouts, strict=True)
    return [replace(given, layout=Layout(text)) if text else given for given, text in rows]


def check(
    library: str, case: Case, given: Sequence[Given], behind: Behind = ()
) -> tuple[Layout, ...]:
    """Check a call against the definition, and return the layouts of its variant."""
    outcome = run(library, case.op, given, behind)
    expected = definition(case.op, given, behind)
    check_outcome(outcome, expected, bound(type(case.op).__name__, "f32"))
    return outcome.variant.layouts


@pytest.mark.parametrize(
    ("rows", "taken"),
    [(WINDOWS, True), ("T/7 B T%7", True), ("B T", True), ("B/3 T/5 B%3 T%5", False)],
)
def test_a_product_takes_rows_where_they_lie(rows: str, taken: bool) -> None:
    layouts = check("onednn", PRODUCT, lying(PRODUCT, f"{rows} C", ""))
    rows = rows if taken else "B T"
    assert (layouts[0], layouts[2]) == (Layout(f"{rows} C"), Layout(f"{rows} D"))


@pytest.mark.parametrize("torn", ["B T/7 C T%7", "B T C/8 C%8"])
def test_rows_that_are_torn_are_not_taken(torn: str) -> None:
    assert decide("onednn", PRODUCT.op, lying(PRODUCT, torn, "")).layouts[0].is_plain


@pytest.mark.parametrize("text", ["C=40 D=24", "B=12 C=40 D=24"])
def test_two_computed_factors_agree_with_the_definition(text: str) -> None:
    case = Case(ops.MatMul("C"), (f"{ROWS} C=40", text))
    check("onednn", case, lying(case, f"{WINDOWS} C", ""))


def test_what_is_behind_a_product_lies_as_its_rows_do() -> None:
    case = replace(PRODUCT, inputs=(*PRODUCT.inputs, "!D=24", f"{ROWS} D=24"))
    given = lying(case, f"{WINDOWS} C", "", "", "")
    layouts = check("onednn", case, given, [(ops.BiasAdd(), 1), (ops.Add(), 1), (ops.Relu(), 0)])
    assert [layouts[i] for i in (0, 3, 4)] == [Layout(f"{WINDOWS} {dim}") for dim in "CDD"]


@pytest.mark.parametrize(
    ("operand", "one"),
    [({"D": 24}, True), ({"B": 12, "T": 49, "D": 24}, True), ({"T": 49, "D": 24}, False)],
)
def test_what_is_behind_has_all_rows_or_none(operand: dict[str, int], one: bool) -> None:
    """What has some dims of the rows has no place in a matrix."""
    x, w, y = (VTensor("f32", dims_of(text)) for text in (*PRODUCT.inputs, f"{ROWS} D=24"))
    product = onednn.MatMul(x, w, y, "C", [Follower(ops.Add(), (VTensor("f32", operand),))])
    assert (product.matrices is not None) == one


def test_kernels_that_are_measured_take_the_rows_too() -> None:
    given = lying(PRODUCT, f"{WINDOWS} C", "")
    blocked = [v for v in variants("onednn", PRODUCT.op, given) if not v.layouts[0].is_plain]
    assert blocked
    for variant in blocked:
        outcome = run("onednn", PRODUCT.op, given, variant=variant)
        check_outcome(outcome, definition(PRODUCT.op, given), bound("MatMul", "f32"))


def test_a_normalization_takes_rows_where_they_lie() -> None:
    case = Case(ops.LayerNormalization(("C",), 1e-5), (f"{ROWS} C=40", "!C=40"))
    layouts = check("onednn", case, lying(case, f"{WINDOWS} C", ""))
    assert [layouts[i] for i in (0, 2, 3, 4)] == [Layout(f"{WINDOWS} C")] * 4


@pytest.mark.parametrize(
    ("x", "taken"),
    [
        ("N H C%2 W C/128 C%64", True),  # squares of pixels whose channels become one row
        ("C N H W", False),  # one element here, one there
    ],
)
def test_a_normalization_reads_rows_in_pieces(x: str, taken: bool) -> None:
    case = Case(ops.LayerNormalization(("C",), 1e-5), ("N=2 H=3 W=5 C=256", "!C=256", "!C=256"))
    given = lying(case, x, "", "")
    outcome = run("eigen", case.op, given, [(ops.BiasAdd(), 1)])
    assert (outcome.variant.layouts[0] == Layout(x)) == taken
    expected = definition(case.op, given[:2])
    expected[0] = expected[0] + given[2].array
    check_outcome(outcome, expected, bound("LayerNormalization", "f32"))


@pytest.mark.parametrize(
    ("x", "dst"),
    [
        ("N G H W C", "N G H W C"),  # one row an image, whatever the order of its elements
        ("N G H W C", "N G C H W"),
        ("N G C/16 H W C%16", "N G C/16 H W C%16"),
    ],
)
def test_the_dims_of_a_row_come_in_any_order(x: str, dst: str) -> None:
    op = ops.LayerNormalization(("C", "H", "W"), 1e-5)
    given = lying(Case(op, ("N=2 G=1 C=32 H=3 W=5", "!C=32")), x, "")
    variant = decide("eigen", op, given)
    assert variant.layouts[0] == Layout(x)
    moved = variant.lying([*variant.layouts[:2], Layout(dst), *variant.layouts[3:]])
    outcome = run("eigen", op, given, variant=moved)
    check_outcome(outcome, definition(op, given), bound("LayerNormalization", "f32"))


QUERIES = ("B=12 H=2 T=49 F=8", "B=12 H=2 K=49 F=8", "B=12 H=2 K=49 V=20")
KEYS = "B/3 K/7 B%3 K%7"


@pytest.mark.parametrize("masks", [(), ("B=12 T=49 K=49", "H=2 T=49 K=49"), ("?T=49 K=49",)])
@pytest.mark.parametrize(
    ("layouts", "taken"),
    [
        ([f"{WINDOWS} H F", f"{KEYS} H F", f"{KEYS} H V"], [0, 1, 2]),
        (["", f"{KEYS} H F", f"H {KEYS} V"], [1, 2]),
        ([f"{WINDOWS} H F", "", ""], [0]),
        ([f"{WINDOWS} H F", "B/2 K/7 B%2 K%7 H F", f"{KEYS} H V"], []),  # no axes in common
        (["H B T F", "K B H F", f"{KEYS} V H"], [0, 1]),
    ],
)
def test_attention_reads_and_writes_windows(
    layouts: list[str], taken: list[int], masks: tuple[str, ...]
) -> None:
    case = Case(ops.Attention("F", "K", 0.3, masked=-1e4), (*QUERIES, *masks))
    chosen = check("eigen", case, lying(case, *layouts, *("" for _ in masks)))
    assert [chosen[i] for i in taken] == [Layout(layouts[i]) for i in taken]
    if "%" in layouts[0] and taken:
        assert chosen[-1] == Layout(f"{WINDOWS} H V")


IMAGE = {"N": 2, "H": 14, "W": 28, "C": 32}
PARTS = {"N": 2, "A": 2, "P": 7, "E": 4, "Q": 7}


def constant(g: Graph, dims: str, *sizes: int) -> VTensor:
    random = np.random.default_rng(len(g.constants))
    return g.constant(random.normal(size=sizes).astype("f4") / 4, dims)


def order(g: Graph, x: VTensor, dims: str) -> VTensor:
    return g.add(ops.Rename(tuple((dim, dim) for dim in dims.split())), x)


def counted(g: Graph, x: VTensor, **sizes: int) -> VTensor:
    return g.add(ops.Reshape(tuple(sizes.items())), x)


def normal(g: Graph, x: VTensor) -> VTensor:
    return g.add(ops.LayerNormalization(("C",), 1e-5), x, constant(g, "C", x.size("C")))[0]


def product(g: Graph, x: VTensor, activation: ops.Gelu | None = None) -> VTensor:
    y = g.add(ops.MatMul("C"), x, constant(g, "C O", 32, 32))
    y = g.add(ops.BiasAdd(), y, constant(g, "O", 32))
    y = g.add(activation, y) if activation else y
    return g.add(ops.Rename((("O", "C"),)), y)


def heads(g: Graph, x: VTensor, row: str, column: str) -> VTensor:
    """Return a product's columns as those of two heads."""
    y = counted(g, product(g, x), B=x.size("B"), T=x.size("T"), head=2, F=16)
    return g.add(ops.Rename((("B", "B"), ("head", "head"), ("T", row), ("F", column))), y)


def attended(g: Graph, x: VTensor, masked: bool) -> VTensor:
    """Return attention within each of the rows ``B``, as exporters write it out."""
    rows, places = x.size("B"), x.size("T")
    q, k, v = (heads(g, x, *last) for last in (("T", "F"), ("K", "F"), ("K", "V")))
    masks = [constant(g, "head T K", 2, places, places)]
    if masked:
        masks.append(constant(g, "B T K", rows, places, places))
    y = order(g, g.add(ops.Attention("F", "K", 0.25), q, k, v, *masks), "B T head V")
    return product(g, counted(g, y, B=rows, T=places, C=32))


def rolled(g: Graph, x: VTensor, by: int) -> VTensor:
    """Return an image whose rows and columns begin elsewhere."""
    for dim in "HW":
        places = range(IMAGE[dim])
        x = g.add(ops.Compress(dim, (*places[by:], *places[:by])), x)
    return x


def windows(g: Graph, x: VTensor, rolls: bool) -> VTensor:
    """Return a step of a network whose attention stays within the windows of an image."""
    y = normal(g, x)
    y = rolled(g, y, 3) if rolls else y
    y = order(g, counted(g, y, **PARTS, C=32), "N A E P Q C")
    y = attended(g, counted(g, y, B=16, T=49, C=32), rolls)
    y = counted(g, y, N=2, A=2, E=4, P=7, Q=7, C=32)
    y = counted(g, order(g, y, "N A P E Q C"), **IMAGE)
    return g.add(ops.Add(), x, rolled(g, y, -3) if rolls else y)


def patches(g: Graph, x: VTensor) -> VTensor:
    """Return attention among equal places of all patches, and what is before and behind it."""
    y = order(g, counted(g, x, **PARTS, C=32), "N P Q A E C")
    y = normal(g, counted(g, y, B=98, T=8, C=32))
    y = product(g, product(g, attended(g, y, False), ops.Gelu()))
    y = counted(g, y, N=2, P=7, Q=7, A=2, E=4, C=32)
    return counted(g, order(g, y, "N A P E Q C"), **IMAGE)


def merged(g: Graph, x: VTensor) -> VTensor:
    """Return squares of pixels, each as channels of one, which are normalized and multiplied."""
    y = order(g, counted(g, x, N=2, A=7, P=2, E=14, Q=2, C=32), "N A E Q P C")
    y = normal(g, counted(g, y, N=2, A=7, E=14, C=128))
    return g.add(ops.MatMul("C"), y, constant(g, "C O", 128, 64))


STEPS: dict[str, Callable[[Graph, VTensor], VTensor]] = {
    "windows": lambda g, x: windows(g, x, False),
    "rolled windows": lambda g, x: windows(g, x, True),
    "patches": patches,
    "squares": merged,
}


@pytest.mark.parametrize("step", STEPS)
def test_windows_of_an_image_need_no_transform(step: str) -> None:
    graph = Graph("windows")
    graph.output(STEPS[step](graph, graph.input("x", IMAGE)), "y")
    feed = {"x": np.random.default_rng(5).normal(size=[*IMAGE.values()]).astype("f4")}
    with Session(graph.seal()) as session:
        [y] = session.run(None, feed)
        assert_conversions(session, at_most=0)
    with Session(graph, optimize="none", libraries=["numpy"]) as definitions:
        [expected] = definitions.run(None, feed)
    np.testing.assert_allclose(y, expected, rtol=1e-4, atol=1e-5)
