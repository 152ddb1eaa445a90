"""Cases of the operators that pick, put together and sum up."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ops import (
    ArgMax,
    ArgMin,
    CumSum,
    DepthToSpace,
    Einsum,
    Expand,
    EyeLike,
    Gather,
    GatherElements,
    GatherND,
    OneHot,
    Pad,
    ReduceL1,
    ReduceL2,
    ReduceLogSum,
    ReduceLogSumExp,
    ReduceMax,
    ReduceMin,
    ReduceProd,
    ReduceSum,
    ReduceSumSquare,
    Resize,
    ScatterElements,
    ScatterND,
    Slice,
    SpaceToDepth,
    Tile,
    TopK,
    Trilu,
)
from tests.operators.cases import BOUNDS, CASES, Case

IMAGE = "N=2 C=17 H=5 W=6"


def _reductions(cls: Any, sign: str = "") -> Iterator[Case]:
    for channels in (3, 17, 32):
        for keep in (True, False):
            yield Case(cls(("H", "W"), keep), (f"{sign}N=2 C={channels} H=3 W=4",))
    yield Case(cls(("C",)), (f"{sign}{IMAGE}",))
    yield Case(cls(("feat",), keepdims=False), (f"{sign}batch=2 seq=7 feat=9",))
    yield Case(cls(("A", "B"), keepdims=False), (f"{sign}A=3 B=4",))
    yield Case(cls(()), (f"{sign}A=3 B=4",), refused=("onednn",))
    if cls in (ReduceSum, ReduceProd, ReduceL1):  # others are infinite: see the test of spellings
        yield Case(cls(("B",)), (f"{sign}A=3 B=0",), refused=("onednn",))


CASES.update(
    {
        "ArgMax": [Case(ArgMax("C"), (IMAGE,)), Case(ArgMax("H", False, True), (IMAGE,))],
        "ArgMin": [Case(ArgMin("C"), (IMAGE,)), Case(ArgMin("B", False, True), ("A=2 B=9",))],
        "CumSum": [Case(CumSum("H", e, r), (IMAGE,)) for e in (False, True) for r in (False, True)],
        "DepthToSpace": [
            Case(DepthToSpace(2, mode), ("N=2 C=12 H=3 W=2",)) for mode in ("DCR", "CRD")
        ],
        "Expand": [
            Case(Expand((("N", 2), ("C", 17), ("H", 3), ("W", 2))), ("C=17 H=1 W=1",)),
            Case(Expand((("H", 4),)), ("N=2 C=17 H=1 W=3",)),
            Case(Expand((("A", 4), ("B", 0))), ("B=1",)),
        ],
        "Einsum": [
            Case(Einsum(("O", "N")), ("N=8 C=20", "!O=10 C=20")),
            Case(Einsum(("B", "O", "N")), ("N=8 B=3 C=20", "!C=20 B=3 O=10")),
            Case(Einsum(("C", "A"), ()), ("A=4 B=3 C=5",), refused=("onednn",)),
            Case(Einsum(("B", "A")), ("A=4", "B=3"), refused=("onednn",)),
            Case(Einsum(("N", "O")), ("A=3 N=2 B=4", "O=5 B=4 A=3"), refused=("onednn",)),
            Case(Einsum(("N",)), ("N=2 A=3", "N=2 B=4"), refused=("eigen", "onednn")),
            Case(
                Einsum(("A",), (("B", "A"),)), ("A=4 B=4", "A=1 C=3"), refused=("eigen", "onednn")
            ),
            Case(Einsum(()), ("A=3 B=4", "B=4 A=3", "B=4"), refused=("eigen", "onednn")),
        ],
        "EyeLike": [Case(EyeLike("A", "B", k=k), ("A=3 B=4",)) for k in (-1, 0, 2)],
        "Gather": [
            Case(Gather("C"), (IMAGE, "n=2 m=3 <17")),
            Case(Gather("word"), ("word=9 feat=4", "! <9")),
            Case(Gather("B"), ("A=2 B=9", "B=3 <9")),
        ],
        "GatherElements": [
            Case(GatherElements("C"), (IMAGE, "N=1 C=30 H=2 W=6 <17")),
            Case(GatherElements("A"), ("A=2 B=9", "!A=5 B=9 <2")),
        ],
        "GatherND": [
            Case(GatherND(("C", "H"), "K"), (IMAGE, "n=7 K=2 <5")),
            Case(GatherND(("H", "C"), "K"), (IMAGE, "n=7 N=2 K=2 <5")),
            Case(GatherND(("A", "B"), "K"), ("A=3 B=4", "!K=2 <3")),
        ],
        "OneHot": [
            Case(OneHot("class", 4), ("N=3 <4", "class=2")),
            Case(OneHot("class", 4), (" <4", "!class=2")),
        ],
        "Pad": [
            Case(Pad(("W", "C"), (1, 2, 0, 3)), (IMAGE,)),
            Case(Pad((), ()), ("",)),
            Case(Pad(("H", "W"), (1, 1, 1, 1)), ("N=2 C=32 H=5 W=6",)),
            Case(Pad(("W", "C"), (1, 2, 0, 3), value=1.5), (IMAGE,), refused=("onednn",)),
            Case(Pad(("W", "C"), (-1, 2, -2, -3)), (IMAGE,), refused=("onednn",)),
            *(
                Case(Pad(("H", "W"), (1, 2, 3, 0), mode), (IMAGE,), refused=("onednn",))
                for mode in ("edge", "wrap", "reflect")
            ),
        ],
        "ReduceL1": list(_reductions(ReduceL1)),
        "ReduceL2": list(_reductions(ReduceL2)),
        "ReduceLogSum": list(_reductions(ReduceLogSum, "+")),
        "ReduceLogSumExp": list(_reductions(ReduceLogSumExp)),
        "ReduceMax": list(_reductions(ReduceMax)),
        "ReduceMin": list(_reductions(ReduceMin)),
        "ReduceProd": list(_reductions(ReduceProd, "+")),
        "ReduceSum": list(_reductions(ReduceSum)),
        "ReduceSumSquare": list(_reductions(ReduceSumSquare)),
        "Resize": [
            Case(Resize(("H", "W"), (10, 12), (2.0, 2.0)), (IMAGE,)),
            Case(
                Resize(("H", "W"), (10, 12), (2.0, 2.0), "nearest", "asymmetric", "floor"), (IMAGE,)
            ),
            *(
                Case(Resize(("H", "W"), sizes, tuple(n / 5 for n in sizes), "linear"), (image,))
                for sizes in ((10, 4), (10, 8))
                for image in ("N=2 C=3 H=5 W=5", "N=1 C=32 H=5 W=5", "N=1 C=17 H=5 W=5")
            ),
            Case(Resize(("W",), (9,), (1.5,), "linear"), ("N=2 C=17 W=6",)),
            Case(
                Resize(("D", "H", "W"), (4, 3, 8), (2.0, 0.75, 1.6), "linear"),
                ("N=1 C=17 D=2 H=4 W=5",),
            ),
            Case(Resize((), (), ()), (IMAGE,)),
            *(
                Case(op, (IMAGE,), refused=("onednn",))
                for op in (
                    Resize(("W", "C"), (3, 9), (0.5, 9 / 17), "linear", "align_corners"),
                    Resize(("H", "W"), (8, 12), (1.6, 2.0), "linear", "asymmetric"),
                    Resize(("H", "W"), (3, 12), (0.6, 2.0), "linear"),
                    Resize(("H", "W"), (10, 9), (2.0, 1.5)),
                    Resize(("H",), (8,), (1.6,), "cubic", exclude_outside=True),
                    Resize(("W",), (4,), (4 / 6,), "cubic", antialias=True),
                )
            ),
        ],
        "ScatterElements": [
            *(
                Case(ScatterElements("A", how), ("A=50 B=640", "A=40 B=640 <50", "A=40 B=640"))
                for how in ("none", "add")
            ),
            Case(ScatterElements("C"), (IMAGE, "N=2 C=1 H=5 W=3 <17", "N=2 C=1 H=5 W=3")),
            *(
                Case(ScatterElements("H", how), (IMAGE, "N=1 C=9 H=9 W=6 <5", "N=1 C=9 H=9 W=6"))
                for how in ("add", "mul", "max", "min")
            ),
        ],
        "ScatterND": [
            Case(ScatterND(("W", "C"), "K"), (IMAGE, "n=1 K=2 <6", "n=1 N=2 H=5")),
            *(
                Case(ScatterND(("A",), "K", how), ("A=3 B=4", "n=5 K=1 <3", "n=5 B=4"))
                for how in ("add", "mul", "max", "min")
            ),
        ],
        "Slice": [
            Case(Slice(("C", "W"), (3, -1), (99, -99), (2, -2)), (IMAGE,), refused=("onednn",)),
            Case(Slice(("H",), (3,), (3,), (1,)), (IMAGE,), refused=("onednn",)),
            Case(Slice(("W", "H", "C"), (1, -4, 8), (6, 99, 16), (2, 1, 1)), (IMAGE,)),
            Case(Slice(("H", "W", "N"), (0, 0, 0), (9, 9, 1), (2, 3, 2)), (IMAGE,)),
            Case(Slice(("C",), (0,), (99,), (2,)), (IMAGE,), refused=("onednn",)),
            Case(Slice(("C",), (0,), (99,), (4,)), ("N=2 C=16 H=5 W=6",)),
            Case(Slice(("C",), (1,), (99,), (4,)), ("N=2 C=16 H=5 W=6",)),
            Case(Slice(("H",), (1,), (9,), (2,)), (IMAGE,), refused=("onednn",)),
            Case(Slice(("A",), (1,), (3,), (1,)), ("A=3 B=4",)),
        ],
        "SpaceToDepth": [
            Case(SpaceToDepth(2, mode), ("N=2 C=3 H=4 W=6",)) for mode in ("DCR", "CRD")
        ],
        "Tile": [Case(Tile((("C", 2), ("W", 3))), (IMAGE,)), Case(Tile((("A", 0),)), ("A=2 B=3",))],
        "TopK": [Case(TopK("C", 3), (IMAGE,)), Case(TopK("H", 2, largest=False), (IMAGE,))],
        "Trilu": [
            Case(Trilu("H", "W", -1), (IMAGE,)),
            Case(Trilu("C", "N", 2, upper=False), (IMAGE,)),
        ],
    }
)
BOUNDS.update(dict.fromkeys(("ReduceProd", "ReduceL1", "ReduceL2", "ReduceSumSquare"), 5e-6))
BOUNDS.update(
    dict.fromkeys(("ReduceSum", "CumSum", "Einsum", "ReduceLogSumExp", "ReduceLogSum"), 5e-6)
)
