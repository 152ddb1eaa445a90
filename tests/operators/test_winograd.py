"""Winograd's algorithm as a library: its forms, what it takes, and what becomes of the weights."""

from __future__ import annotations

import re
from functools import partial
from itertools import islice
from typing import Any

import numpy as np
import pytest

from libdesc.winograd import native
from libdesc.winograd.routine import TileSize, tiles
from ops import Add, BiasAdd, Clip, Conv2D, DepthwiseConv2D, Mul, Relu, Sigmoid
from ptensor import Layout
from ptensor.evaluation import Evaluation
from resolver.check import check
from tests.operators.cases import Case, bound
from tests.operators.harness import (
    Deciding,
    Given,
    check_outcome,
    decide,
    definition,
    prober,
    run,
)
from vtensor import Graph, Session
from vtensor.errors import NoInvokerError
from vtensor.runtime.planning import choosing

SAME = Case(Conv2D(pads=(1, 1, 1, 1)), ("N=1 C=32 H=14 W=13", "!O=40 I=32 h=3 w=3"))
PARTS = Case(Conv2D(pads=(1, 1, 1, 1), group=8), ("N=1 C=32 H=14 W=13", "!G=8 O=4 I=4 h=3 w=3"))
ROW = Case(Conv2D(pads=(0, 3, 0, 3)), ("N=1 C=32 H=5 W=17", "!O=48 I=32 h=1 w=7"))

STEM = Case(Conv2D((2, 2), (2, 2, 3, 3)), ("N=1 C=3 H=37 W=30", "!O=40 I=3 h=7 w=7"))
STEP = Case(Conv2D((2, 2), (1, 2, 2, 1)), ("N=2 C=9 H=22 W=17", "!O=24 I=9 h=5 w=5"))

POINTS = Case(Conv2D(), ("N=1 C=64 H=14 W=14", "!O=96 I=64 h=1 w=1"))
ODD = Case(Conv2D(), ("N=2 C=19 H=5 W=7", "!O=37 I=19 h=1 w=1"))


@pytest.fixture(autouse=True)
def inexact(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plans may be inexact."""
    monkeypatch.setattr(Evaluation, "tolerance", 1e-3)


@pytest.mark.parametrize("case", [SAME, PARTS, ROW], ids=["3x3", "groups", "1x7"])
def test_every_form_in_every_layout(case: Case) -> None:
    given = case.given()
    asking, node = prober("winograd", case.op, given)
    found = asking.variants(node)
    taps = (given[1].extents["h"], given[1].extents["w"])
    images = {str(one.layouts[0]) for one in found}
    assert {one.kernel for one in found} == {str(tile) for tile in tiles(taps)}
    assert len(found) == len(images) * len(tiles(taps))
    assert {"NHWC", "NCHW16c"} <= images
    for variant in found:
        made = run("winograd", case.op, given, variant=variant)
        down, across = (int(n) for n in variant.kernel[2 : variant.kernel.index(",")].split("x"))
        parts = f"{groups} of " if (groups := given[1].extents.get("G", 1)) > 1 else ""
        assert made.kernels == [f"winograd:{native.load().level}:{parts}{word(down, across, taps)}"]
        check_outcome(made, definition(case.op, given), bound("Conv2D", "f32", "winograd"))


@pytest.mark.parametrize("case", [STEM, STEP], ids=["7x7", "5x5"])
def test_every_form_of_a_filter_that_steps_by_two(case: Case) -> None:
    given = case.given()
    asking, node = prober("winograd", case.op, given)
    found = asking.variants(node)
    taps = (given[1].extents["h"], given[1].extents["w"])
    images = {(str(one.layouts[0]), str(one.layouts[-1])) for one in found}
    assert {one.kernel for one in found} == {str(tile) for tile in tiles(taps, 2)}
    assert {("NCHW", "NHWC"), ("NCHW", "NCHW16c"), ("NHWC", "NHWC")} <= images
    for variant in found:
        made = run("winograd", case.op, given, variant=variant)
        count, half = variant.kernel[2], (taps[0] + 1) // 2
        form = f"F({count},{half})x({count},{half})/2"
        assert made.kernels == [f"winograd:{native.load().level}:{form}"]
        check_outcome(made, definition(case.op, given), bound("Conv2D", "f32", "winograd"))


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_what_is_fused_behind_a_filter_that_steps_by_two(layout: str) -> None:
    given = STEM.given(layout)
    [value] = definition(STEM.op, given)
    largest, other = float(np.abs(value).max()), whole(value.shape)
    behind: Any = [(Add(), 1), (BiasAdd(), 1), (Clip(-0.5, 2.0), 0)]
    made = run("winograd", STEM.op, [*given, other, BIAS], behind)
    rest = iter([other, BIAS])
    for op, count in behind:
        [value] = definition(op, [whole_of(value), *islice(rest, count)])
    check_outcome(made, [value], bound("Conv2D", "f32", "winograd"), largest)
    assert str(made.variant.layouts[0]) == layout


@pytest.mark.parametrize(
    ("op", "weights", "reason"),
    [
        (Conv2D((2, 2)), "!O=16 I=16 h=3 w=3", "no form saves products for 3x3"),
        (Conv2D((2, 2)), "!O=16 I=16 h=5 w=7", "no form saves products for 5x7"),
        (Conv2D((2, 1)), "!O=16 I=16 h=7 w=7", "steps are 1, or 2"),
        (Conv2D((3, 3)), "!O=16 I=16 h=7 w=7", "steps are 1, or 2"),
        (Conv2D((2, 2), dilations=(2, 2)), "!O=16 I=16 h=7 w=7", "steps are 1, or 2"),
    ],
)
def test_what_it_does_not_take_in_steps(op: Conv2D, weights: str, reason: str) -> None:
    with pytest.raises(NoInvokerError, match=reason):
        decide("winograd", op, Case(op, ("N=1 C=16 H=29 W=29", weights)).given())


def word(down: int, across: int, taps: tuple[int, int]) -> str:
    return f"F({down},{taps[0]})x({across},{taps[1]})"


def whole(like: tuple[int, ...], scale: float = 3.0) -> Given:
    """An operand of an image's dims."""
    values = np.random.default_rng(3).normal(size=like) * scale
    return Given(values.astype(np.float32), tuple("NCHW"), Layout("NCHW"))


BIAS = Given(np.linspace(-3, 3, 40, dtype=np.float32), ("C",), Layout("C"), True)
OTHER = whole((1, 40, 14, 13))


@pytest.mark.parametrize(
    ("behind", "more"),
    [
        ([(BiasAdd(), 1)], [BIAS]),
        ([(BiasAdd(), 1), (Relu(), 0)], [BIAS]),
        ([(Add(), 1), (BiasAdd(), 1), (Clip(-0.5, 2.0), 0)], [OTHER, BIAS]),
        ([(Relu(), 0)], []),
    ],
)
@pytest.mark.parametrize("layout", ["NCHW", "NHWC", "NCHW16c"])
def test_what_is_fused_behind_it(layout: str, behind: Any, more: list[Given]) -> None:
    given = SAME.given(layout)
    made = run("winograd", SAME.op, [*given, *more], behind)
    [value] = definition(SAME.op, given)
    largest, rest = float(np.abs(value).max()), iter(more)  # bounds cut sums, not their errors
    for op, count in behind:
        [value] = definition(op, [whole_of(value), *islice(rest, count)])
    check_outcome(made, [value], bound("Conv2D", "f32", "winograd"), largest)
    assert str(made.variant.layouts[-1]) == (layout if layout != "NCHW" else "NHWC")


def whole_of(value: np.ndarray[Any, Any]) -> Given:
    return Given(value, tuple("NCHW"), Layout("NCHW"))


@pytest.mark.parametrize(
    "behind",
    [[(Sigmoid(), 0)], [(Mul(), 1)], [(Add(), 1), (Add(), 1)], [(Relu(), 0), (Add(), 1)]],
)
def test_what_it_does_not_take_behind_it(behind: Any) -> None:
    more = [OTHER] * sum(count for _, count in behind)
    with pytest.raises(NoInvokerError, match=r"cannot fuse \w+ here"):
        decide("winograd", SAME.op, [*SAME.given(), *more], behind)


@pytest.mark.parametrize("behind", [[], [(BiasAdd(), 1), (Add(), 1), (Relu(), 0)]])
@pytest.mark.parametrize("case", [POINTS, ODD], ids=["whole", "odd"])
@pytest.mark.parametrize("layout", ["NHWC", "NCHW16c"])
def test_a_filter_of_one_element_is_exact(
    layout: str, case: Case, behind: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Deciding, "tolerance", 0.0)
    given = case.given(layout)
    [value] = definition(case.op, given)
    largest = float(np.abs(value).max())
    count = value.shape[1]
    bias = Given(np.linspace(-3, 3, count, dtype=np.float32), ("C",), Layout("C"), True)
    more = [bias, whole(value.shape)] if behind else []
    made = run("winograd", case.op, [*given, *more], behind)
    assert made.kernels == [f"winograd:{native.load().level}:F(1,1)x(1,1)"]
    assert [str(layout) for layout in made.variant.layouts[:2]] == [layout, "hwOI32o"]
    rest = iter(more)
    for op, operands in behind:
        [value] = definition(op, [whole_of(value), *islice(rest, operands)])
    check_outcome(made, [value], bound("Conv2D", "f32"), largest)


@pytest.mark.parametrize(
    "case",
    [
        Case(Conv2D(pads=(0, 0, 1, 0)), ("N=1 C=16 H=5 W=4", "!O=16 I=16 h=1 w=1")),
        Case(Conv2D((2, 2)), ("N=1 C=16 H=5 W=4", "!O=16 I=16 h=1 w=1")),
    ],
    ids=["pads", "strides"],
)
def test_a_filter_of_one_element_keeps_the_image(case: Case) -> None:
    with pytest.raises(NoInvokerError, match=r"takes no pads|steps are 1"):
        decide("winograd", case.op, case.given())


DEEP = Case(DepthwiseConv2D((2, 2), (1, 0, 1, 2)), ("N=2 C=40 H=13 W=31", "!G=40 O=1 I=1 h=3 w=5"))


@pytest.mark.parametrize("behind", [[], [(BiasAdd(), 1), (Add(), 1), (Clip(-0.5, 2.0), 0)]])
@pytest.mark.parametrize("layout", ["NHWC", "NCHW16c"])
def test_each_channel_by_itself_is_exact(
    layout: str, behind: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Deciding, "tolerance", 0.0)
    given = DEEP.given(layout)
    [value] = definition(DEEP.op, given)
    more = [BIAS, whole(value.shape)] if behind else []
    made = run("winograd", DEEP.op, [*given, *more], behind)
    assert made.kernels == [f"winograd:{native.load().level}:depthwise 3x5"]
    lanes = native.load().lanes
    assert [str(one) for one in made.variant.layouts[:2]] == [layout, f"GOIhw{lanes}g"]
    rest = iter(more)
    for op, operands in behind:
        [value] = definition(op, [whole_of(value), *islice(rest, operands)])
    check_outcome(made, [value], bound("DepthwiseConv2D", "f32"))


def test_each_channel_by_itself_in_every_layout() -> None:
    asking, node = prober("winograd", DEEP.op, DEEP.given())
    found = asking.variants(node)
    rows = [(str(one.layouts[0]), str(one.layouts[-1])) for one in found]
    assert {("NHWC", "NHWC"), ("NCHW16c", "NCHW16c")} <= {*rows}
    assert all(src == dst for src, dst in rows)
    assert {one.kernel for one in found} == {"depthwise 3x5"}


@pytest.mark.parametrize(
    ("op", "weights", "reason"),
    [
        (DepthwiseConv2D(), "!G=16 O=2 I=1 h=3 w=3", "one filter a channel"),
        (DepthwiseConv2D(dilations=(2, 1)), "!G=16 O=1 I=1 h=3 w=3", "neighbours"),
        (DepthwiseConv2D(), "!G=16 O=1 I=1 h=3 w=4", "elements across"),
        (DepthwiseConv2D((1, 3)), "!G=16 O=1 I=1 h=3 w=3", "steps of"),
        (DepthwiseConv2D(pads=(0, 0, 0, 3)), "!G=16 O=1 I=1 h=3 w=3", "each see something"),
    ],
)
def test_what_it_does_not_take_of_each_channel(op: Any, weights: str, reason: str) -> None:
    with pytest.raises(NoInvokerError, match=reason):
        decide("winograd", op, Case(op, ("N=1 C=16 H=9 W=9", weights)).given())


FIRST = Case(Conv2D((2, 2), (1, 0, 1, 2)), ("N=2 C=3 H=13 W=41", "!O=40 I=3 h=3 w=5"))


@pytest.mark.parametrize("behind", [[], [(BiasAdd(), 1), (Add(), 1), (Clip(-0.5, 2.0), 0)]])
def test_few_channels_are_read_as_they_lie(behind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Deciding, "tolerance", 0.0)
    given = FIRST.given()
    [value] = definition(FIRST.op, given)
    largest = float(np.abs(value).max())
    more = [BIAS, whole(value.shape)] if behind else []
    made = run("winograd", FIRST.op, [*given, *more], behind)
    assert made.kernels == [f"winograd:{native.load().level}:direct 3x5"]
    lanes = native.load().lanes
    assert [str(one) for one in made.variant.layouts[:2]] == ["NCHW", f"OIhw{lanes}o"]
    assert str(made.variant.layouts[-1]) == "NHWC"
    rest = iter(more)
    for op, operands in behind:
        [value] = definition(op, [whole_of(value), *islice(rest, operands)])
    check_outcome(made, [value], bound("Conv2D", "f32"), largest)


def test_few_channels_give_every_layout() -> None:
    asking, node = prober("winograd", FIRST.op, FIRST.given())
    found = asking.variants(node)
    assert {str(one.layouts[0]) for one in found} == {"NCHW"}
    assert {"NHWC", "NCHW16c"} <= {str(one.layouts[-1]) for one in found}
    for variant in found:
        made = run("winograd", FIRST.op, FIRST.given(), variant=variant)
        check_outcome(made, definition(FIRST.op, FIRST.given()), bound("Conv2D", "f32"))


@pytest.mark.parametrize(
    ("op", "sizes", "weights", "reason"),
    [
        (Conv2D((2, 2)), "N=1 C=1 H=19 W=19", "!O=16 I=1 h=13 w=13", "12 elements"),
        (Conv2D((3, 3)), "N=1 C=3 H=9 W=9", "!O=16 I=3 h=3 w=3", "steps across of"),
        (Conv2D((1, 1), dilations=(2, 2)), "N=1 C=3 H=9 W=9", "!O=16 I=3 h=3 w=3", "neighbours"),
        (Conv2D((2, 2), (3, 0, 0, 0)), "N=1 C=3 H=9 W=9", "!O=16 I=3 h=3 w=3", "each see"),
        (Conv2D((2, 2), group=2), "N=1 C=2 H=9 W=9", "!G=2 O=8 I=1 h=3 w=3", "of one group"),
        (Conv2D((2, 2)), "N=1 C=5 H=9 W=9", "!O=16 I=5 h=3 w=3", "3x3 on 4x4$"),
    ],
)
def test_what_it_does_not_take_of_few_channels(
    op: Conv2D, sizes: str, weights: str, reason: str
) -> None:
    with pytest.raises(NoInvokerError, match=re.compile(reason, re.MULTILINE)):
        decide("winograd", op, Case(op, (sizes, weights)).given())


def test_at_tolerance_0_it_declines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Deciding, "tolerance", 0.0)
    with pytest.raises(NoInvokerError, match="tolerance is 0"):
        decide("winograd", SAME.op, SAME.given())


def test_no_form_saves_products() -> None:
    case = Case(Conv2D(), ("N=1 C=16 H=3 W=3", "!O=16 I=16 h=3 w=3"))
    with pytest.raises(NoInvokerError, match="no form saves products for 3x3 on 1x1"):
        decide("winograd", case.op, case.given())


def test_the_weights_are_transformed_once_and_their_bytes_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(choosing, "check", partial(check, tolerance=1e-3))
    random = np.random.default_rng(0)
    weights = (random.normal(size=(64, 32, 3, 3)) / 17).astype(np.float32)
    image = random.normal(size=(1, 32, 20, 20)).astype(np.float32)
    graph = Graph("one")
    x = graph.input("x", {"N": 1, "C": 32, "H": 20, "W": 20})
    w = graph.constant(weights, "O I h w")
    graph.output(graph.add(Relu(), graph.add(Conv2D(pads=(1, 1, 1, 1)), x, w)), "y")
    with Session(graph, libraries=["onednn"]) as session:
        [wanted] = session.run(None, {"x": image})
    with Session(graph, libraries=["winograd", "onednn"]) as session:
        [found] = session.run(None, {"x": image})
        [kernel] = [k for s in session.plan.steps for k in s.kernels if k.startswith("winograd")]
        assert all("tile" not in str(one.target) for one in session.conversions)
    assert kernel.startswith(f"winograd:{native.load().level}:F(")
    assert np.abs(found - wanted).max() <= 2e-5 * np.abs(wanted).max()
    sizes = {"O": 64, "I": 32, "h": 3, "w": 3}
    assert TileSize((4, 4), (3, 3)).weights.nbytes(sizes, "f32") == 4 * weights.nbytes


def test_a_nan_stays_within_its_tiles() -> None:
    """What it reaches beyond the window of a direct sum is accepted, not more."""
    given = SAME.given()
    given[0].array[0, 3, 0, 0] = np.nan
    [found] = run("winograd", SAME.op, given, [(Relu(), 0)]).values
    [wanted] = definition(SAME.op, given)
    assert np.isnan(found[np.isnan(wanted)]).all()
    assert not np.isnan(found[:, :, 8:]).any()
    assert not np.isnan(found[:, :, :, 8:]).any()
