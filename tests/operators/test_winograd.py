"""Winograd's algorithm as a library: its forms, what it takes, and what becomes of the weights."""

from __future__ import annotations

import re
from functools import partial
from typing import Any

import numpy as np
import pytest

from libdesc.winograd import native
from libdesc.winograd.routine import TileSize, tiles
from ops import Add, BiasAdd, Clip, Conv2D, DepthwiseConv2D, Mul, Relu, Sigmoid
from ptensor.evaluation import Evaluation, Variant
from resolver.check import check
from tests.operators.harness import (
    Behind,
    Deciding,
    Given,
    Outcome,
    check_outcome,
    decide,
    definition,
    plain,
    prober,
    run,
)
from tests.operators.tables.cases import Case, bound
from vtensor import Graph, Session
from vtensor.errors import NoInvokerError
from vtensor.runtime.planning import choosing

SAME = Case(Conv2D(pads=(1, 1, 1, 1)), ("N=1 C=32 H=14 W=13", "!O=40 I=32 h=3 w=3"))
PARTS = Case(Conv2D(pads=(1, 1, 1, 1), group=8), ("N=1 C=32 H=14 W=13", "!G=8 O=4 I=4 h=3 w=3"))
ROW = Case(Conv2D(pads=(0, 3, 0, 3)), ("N=1 C=32 H=5 W=17", "!O=48 I=32 h=1 w=7"))

STEM = Case(Conv2D((2, 2), (2, 2, 3, 3)), ("N=1 C=3 H=37 W=30", "!O=40 I=3 h=7 w=7"))
STEP = Case(Conv2D((2, 2), (1, 2, 2, 1)), ("N=2 C=9 H=22 W=17", "!O=24 I=9 h=5 w=5"))
#: Its first pair of columns is half outside the image.
CENTRED = Case(Conv2D((2, 2), (3, 3, 3, 3)), ("N=1 C=3 H=37 W=30", "!O=40 I=3 h=7 w=7"))

POINTS = Case(Conv2D(), ("N=1 C=64 H=14 W=14", "!O=96 I=64 h=1 w=1"))
ODD = Case(Conv2D(), ("N=2 C=19 H=5 W=7", "!O=37 I=19 h=1 w=1"))
DEEP = Case(DepthwiseConv2D((2, 2), (1, 0, 1, 2)), ("N=2 C=40 H=13 W=31", "!G=40 O=1 I=1 h=3 w=5"))
FIRST = Case(Conv2D((2, 2), (1, 0, 1, 2)), ("N=2 C=3 H=13 W=41", "!O=40 I=3 h=3 w=5"))

BIAS, SUM, RELU, CLIP = (BiasAdd(), 1), (Add(), 1), (Relu(), 0), (Clip(-0.5, 2.0), 0)


@pytest.fixture(autouse=True)
def inexact(monkeypatch: pytest.MonkeyPatch) -> None:
    """Allow inexact plans."""
    monkeypatch.setattr(Evaluation, "tolerance", 1e-3)


def kernel(form: str) -> str:
    """Return the name of a kernel of the level that this machine has."""
    return f"winograd:{native.load().level}:{form}"


def forms(case: Case) -> tuple[list[Variant], set[str], set[tuple[str, str]]]:
    """Return all variants of a case, their kernels, and the layouts of their images."""
    asking, node = prober("winograd", case.op, case.given())
    ways = asking.variants(node)
    images = {(str(variant.layouts[0]), str(variant.layouts[-1])) for variant in ways}
    return ways, {variant.kernel for variant in ways}, images


def fused(case: Case, layout: str, behind: Behind, exact: bool = False) -> Outcome:
    """Run a case and its followers, and check the result against the definition."""
    given = case.given(layout)
    [sums] = definition(case.op, given)
    random, channels = np.random.default_rng(3), sums.shape[1]
    bias = plain(np.linspace(-3, 3, channels, dtype=np.float32), "C", constant=True)
    whole = plain(np.asarray(random.normal(size=sums.shape) * 3, np.float32), "N C H W")
    more = [bias if isinstance(op, BiasAdd) else whole for op, count in behind if count]
    outcome = run("winograd", case.op, [*given, *more], behind)
    allowed = bound(type(case.op).__name__, "f32", "" if exact else "winograd")
    # bounds cut sums, not their errors
    largest = 0.0 if case is DEEP else float(np.abs(sums).max())
    check_outcome(outcome, definition(case.op, [*given, *more], behind), allowed, largest)
    return outcome


@pytest.mark.parametrize("case", [SAME, PARTS, ROW], ids=["3x3", "groups", "1x7"])
def test_every_form_in_every_layout(case: Case) -> None:
    given = case.given()
    ways, kernels, images = forms(case)
    taps, groups = [given[1].extents[dim] for dim in "hw"], given[1].extents.get("G", 1)
    assert kernels == {str(tile) for tile in tiles((taps[0], taps[1]))}
    assert len(ways) == len({src for src, _ in images}) * len(kernels)
    assert {"NHWC", "NCHW16c"} <= {src for src, _ in images}
    for variant in ways:
        outcome = run("winograd", case.op, given, variant=variant)
        down, across = variant.kernel[2 : variant.kernel.index(",")].split("x")
        parts = f"{groups} of " if groups > 1 else ""
        assert outcome.kernels == [kernel(f"{parts}F({down},{taps[0]})x({across},{taps[1]})")]
        check_outcome(outcome, definition(case.op, given), bound("Conv2D", "f32", "winograd"))


@pytest.mark.parametrize("case", [STEM, STEP, CENTRED], ids=["7x7", "5x5", "odd pads"])
def test_every_form_of_a_filter_that_steps_by_two(case: Case) -> None:
    given = case.given()
    ways, kernels, images = forms(case)
    taps = given[1].extents["h"]
    assert kernels == {str(tile) for tile in tiles((taps, taps), 2)}
    assert {("NCHW", "NHWC"), ("NCHW", "NCHW16c"), ("NHWC", "NHWC")} <= images
    for variant in ways:
        outcome = run("winograd", case.op, given, variant=variant)
        part = f"({variant.kernel[2]},{(taps + 1) // 2})"
        assert outcome.kernels == [kernel(f"F{part}x{part}/2")]
        check_outcome(outcome, definition(case.op, given), bound("Conv2D", "f32", "winograd"))


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_what_is_fused_behind_a_filter_that_steps_by_two(layout: str) -> None:
    assert str(fused(STEM, layout, [SUM, BIAS, CLIP]).variant.layouts[0]) == layout


@pytest.mark.parametrize("behind", [[BIAS], [BIAS, RELU], [SUM, BIAS, CLIP], [RELU]])
@pytest.mark.parametrize("layout", ["NCHW", "NHWC", "NCHW16c"])
def test_what_is_fused_behind_a_filter(layout: str, behind: Behind) -> None:
    dst = fused(SAME, layout, behind).variant.layouts[-1]
    assert str(dst) == (layout if layout != "NCHW" else "NHWC")


@pytest.mark.parametrize("behind", [[(Sigmoid(), 0)], [(Mul(), 1)], [SUM, SUM], [RELU, SUM]])
def test_what_it_does_not_take_behind_a_filter(behind: Behind) -> None:
    with pytest.raises(NoInvokerError, match=r"cannot fuse \w+ here"):
        fused(SAME, "", behind)


LANES = native.load().lanes


@pytest.mark.parametrize("behind", [[], [BIAS, SUM, RELU], [BIAS, SUM, CLIP]])
@pytest.mark.parametrize(
    ("case", "src", "weights", "dst", "form"),
    [
        *(
            (case, layout, "hwOI32o", layout, "F(1,1)x(1,1)")
            for case in (POINTS, ODD)
            for layout in ("NHWC", "NCHW16c")
        ),
        *(
            (DEEP, layout, f"GOIhw{LANES}g", layout, "depthwise 3x5")
            for layout in ("NHWC", "NCHW16c")
        ),
        (FIRST, "NCHW", f"OIhw{LANES}o", "NHWC", "direct 3x5"),
    ],
    ids=str,
)
def test_direct_sums_are_exact(
    case: Case,
    src: str,
    weights: str,
    dst: str,
    form: str,
    behind: Behind,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Deciding, "tolerance", 0.0)
    outcome = fused(case, src, behind, exact=True)
    assert outcome.kernels == [kernel(form)]
    layouts = [str(layout) for layout in outcome.variant.layouts]
    assert (*layouts[:2], layouts[-1]) == (src, weights, dst)


def test_each_channel_by_itself_in_every_layout() -> None:
    _, kernels, images = forms(DEEP)
    assert {("NHWC", "NHWC"), ("NCHW16c", "NCHW16c")} <= images
    assert all(src == dst for src, dst in images)
    assert kernels == {"depthwise 3x5"}


def test_few_channels_give_every_layout() -> None:
    ways, _, images = forms(FIRST)
    assert {src for src, _ in images} == {"NCHW"}
    assert {"NHWC", "NCHW16c"} <= {dst for _, dst in images}
    for variant in ways:
        outcome = run("winograd", FIRST.op, FIRST.given(), variant=variant)
        check_outcome(outcome, definition(FIRST.op, FIRST.given()), bound("Conv2D", "f32"))


STEPS, TWO = "N=1 C=16 H=29 W=29", (2, 2)
POINT, SMALL = "N=1 C=16 H=5 W=4", "N=1 C=16 H=9 W=9"
COLOURS = "N=1 C=3 H=9 W=9"
DECLINED: list[tuple[Any, str, str, str]] = [
    (Conv2D(), "N=1 C=16 H=3 W=3", "O=16 I=16 h=3 w=3", "no form saves products for 3x3 on 1x1"),
    (Conv2D(TWO), STEPS, "O=16 I=16 h=3 w=3", "no form saves products for 3x3"),
    (Conv2D(TWO), STEPS, "O=16 I=16 h=5 w=7", "no form saves products for 5x7"),
    (Conv2D((2, 1)), STEPS, "O=16 I=16 h=7 w=7", "steps are 1, or 2"),
    (Conv2D((3, 3)), STEPS, "O=16 I=16 h=7 w=7", "steps are 1, or 2"),
    (Conv2D(TWO, dilations=TWO), STEPS, "O=16 I=16 h=7 w=7", "steps are 1, or 2"),
    (Conv2D(pads=(0, 0, 1, 0)), POINT, "O=16 I=16 h=1 w=1", "takes no pads|steps are 1"),
    (Conv2D(TWO), POINT, "O=16 I=16 h=1 w=1", "takes no pads|steps are 1"),
    (DepthwiseConv2D(), SMALL, "G=16 O=2 I=1 h=3 w=3", "one filter a channel"),
    (DepthwiseConv2D(dilations=(2, 1)), SMALL, "G=16 O=1 I=1 h=3 w=3", "neighbours"),
    (DepthwiseConv2D(), SMALL, "G=16 O=1 I=1 h=3 w=4", "elements across"),
    (DepthwiseConv2D((1, 3)), SMALL, "G=16 O=1 I=1 h=3 w=3", "steps of"),
    (DepthwiseConv2D(pads=(0, 0, 0, 3)), SMALL, "G=16 O=1 I=1 h=3 w=3", "each see something"),
    (Conv2D(TWO), "N=1 C=1 H=19 W=19", "O=16 I=1 h=13 w=13", "12 elements"),
    (Conv2D((3, 3)), COLOURS, "O=16 I=3 h=3 w=3", "steps across of"),
    (Conv2D((1, 1), dilations=TWO), COLOURS, "O=16 I=3 h=3 w=3", "neighbours"),
    (Conv2D(TWO, (3, 0, 0, 0)), COLOURS, "O=16 I=3 h=3 w=3", "each see"),
    (Conv2D(TWO, group=2), "N=1 C=2 H=9 W=9", "G=2 O=8 I=1 h=3 w=3", "of one group"),
    (Conv2D(TWO), "N=1 C=5 H=9 W=9", "O=16 I=5 h=3 w=3", "3x3 on 4x4$"),
]


@pytest.mark.parametrize(("op", "image", "weights", "reason"), DECLINED, ids=str)
def test_what_it_does_not_take(op: Any, image: str, weights: str, reason: str) -> None:
    with pytest.raises(NoInvokerError, match=re.compile(reason, re.MULTILINE)):
        decide("winograd", op, Case(op, (image, f"!{weights}")).given())


def test_at_tolerance_0_it_declines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Deciding, "tolerance", 0.0)
    with pytest.raises(NoInvokerError, match="tolerance is 0"):
        decide("winograd", SAME.op, SAME.given())


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
        [y] = session.run(None, {"x": image})
        [used] = [k for s in session.plan.steps for k in s.kernels if k.startswith("winograd")]
        assert all("tile" not in str(change.target) for change in session.conversions)
    assert used.startswith(kernel("F("))
    assert np.abs(y - wanted).max() <= 2e-5 * np.abs(wanted).max()
    sizes = {"O": 64, "I": 32, "h": 3, "w": 3}
    assert TileSize((4, 4), (3, 3)).weights.nbytes(sizes, "f32") == 4 * weights.nbytes


def test_a_nan_stays_within_its_tiles() -> None:
    """What it reaches beyond the window of a direct sum is accepted, not more."""
    given: list[Given] = SAME.given()
    given[0].array[0, 3, 0, 0] = np.nan
    [y] = run("winograd", SAME.op, given, [RELU]).values
    [wanted] = definition(SAME.op, given)
    assert np.isnan(y[np.isnan(wanted)]).all()
    assert not np.isnan(y[:, :, 8:]).any()
    assert not np.isnan(y[:, :, :, 8:]).any()
