"""Cases of the operators that pick, put together and sum up."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import ops
from tests.operators.tables.cases import BOUNDS, CASES, IMAGE, Case, by_operator, case

HW = ("H", "W")
SUMS = [f"Reduce{name}" for name in ("L1", "L2", "LogSum", "LogSumExp", "Prod", "Sum", "SumSquare")]
NOT_ONEDNN = (
    ops.Resize(("W", "C"), (3, 9), (0.5, 9 / 17), "linear", "align_corners"),
    ops.Resize(HW, (8, 12), (1.6, 2.0), "linear", "asymmetric"),
    ops.Resize(HW, (3, 12), (0.6, 2.0), "linear"),
    ops.Resize(HW, (10, 9), (2.0, 1.5)),
    ops.Resize(("H",), (8,), (1.6,), "cubic", exclude_outside=True),
    ops.Resize(("W",), (4,), (4 / 6,), "cubic", antialias=True),
)


#: The bits of a code, bytes of a block, blocks and codes of an output.
BLOCKS = ((4, 8, 3, 40), (4, 16, 2, 64), (2, 4, 9, 130), (8, 256, 1, 200), (8, 16, 20, 320))
BLOCK = ("K", "b", "byte")


def _packed() -> Iterator[Case]:
    """Weights in blocks: multiplied by few and by many rows, looked up, and made numbers."""
    for bits, size, blocks, depth in BLOCKS:
        scales = f"N=33 b={blocks}"
        w = f"#{scales} byte={size}", f"+{scales}"
        for zeros in ((), (f"#{scales}",), (scales,)):
            for rows in ("A=2 K", "K", "A=3 B=5 K"):
                yield case(ops.MatMulNBits(*BLOCK, bits), f"{rows}={depth}", *w, *zeros)
            yield case(ops.DequantizeBlocks(depth, *BLOCK, bits), *w, *zeros)
            for outside in ("zeros", "error"):
                op = ops.GatherBlockQuantized("N", depth, *BLOCK, bits, outside)
                yield case(op, "n=2 m=3 <33", *w, *zeros)
        rounded = ops.MatMulNBits(*BLOCK, bits, accuracy_level=4)
        yield case(rounded, f"A=2 K={depth}", *w)
        yield case(rounded, f"A=20 K={depth}", *w, f"#{scales}")
    yield case(
        ops.GatherBlockQuantized("V", 40, *BLOCK),
        "n=5 <6",
        "#V=6 R=3 b=3 byte=8",
        "+V=6 R=3 b=3",
    )


def _reductions(cls: Any) -> Iterator[Case]:
    sign = "+" if cls in (ops.ReduceLogSum, ops.ReduceProd) else ""
    for channels in (3, 17, 32):
        for keep in (True, False):
            yield case(cls(HW, keep), f"{sign}N=2 C={channels} H=3 W=4")
    yield case(cls(("C",)), f"{sign}{IMAGE}")
    yield case(cls(("feat",), keepdims=False), f"{sign}batch=2 seq=7 feat=9")
    yield case(cls(("A", "B"), keepdims=False), f"{sign}A=3 B=4")
    yield case(cls(()), f"{sign}A=3 B=4", refused="onednn")
    if cls in (ops.ReduceSum, ops.ReduceProd, ops.ReduceL1):  # others are infinite: see test_edges
        yield case(cls(("B",)), f"{sign}A=3 B=0", refused="onednn")


ROWS = [
    *_packed(),
    *(row for name in (*SUMS, "ReduceMax", "ReduceMin") for row in _reductions(getattr(ops, name))),
    case(ops.ArgMax("C"), IMAGE),
    case(ops.ArgMax("H", False, True), IMAGE),
    case(ops.ArgMin("C"), IMAGE),
    case(ops.ArgMin("B", False, True), "A=2 B=9"),
    *(case(ops.CumSum("H", e, r), IMAGE) for e in (False, True) for r in (False, True)),
    *(case(ops.DepthToSpace(2, mode), "N=2 C=12 H=3 W=2") for mode in ("DCR", "CRD")),
    case(ops.Expand((("N", 2), ("C", 17), ("H", 3), ("W", 2))), "C=17 H=1 W=1"),
    case(ops.Expand((("H", 4),)), "N=2 C=17 H=1 W=3"),
    case(ops.Expand((("A", 4), ("B", 0))), "B=1"),
    case(ops.Einsum(("O", "N")), "N=8 C=20", "!O=10 C=20"),
    case(ops.Einsum(("B", "O", "N")), "N=8 B=3 C=20", "!C=20 B=3 O=10"),
    case(ops.Einsum(("C", "A"), ()), "A=4 B=3 C=5", refused="onednn"),
    case(ops.Einsum(("B", "A")), "A=4", "B=3", refused="onednn"),
    case(ops.Einsum(("N", "O")), "A=3 N=2 B=4", "O=5 B=4 A=3", refused="onednn"),
    case(ops.Einsum(("N",)), "N=2 A=3", "N=2 B=4", refused="eigen onednn"),
    case(ops.Einsum(("A",), (("B", "A"),)), "A=4 B=4", "A=1 C=3", refused="eigen onednn"),
    case(ops.Einsum(()), "A=3 B=4", "B=4 A=3", "B=4", refused="eigen onednn"),
    *(case(ops.EyeLike("A", "B", k=k), "A=3 B=4") for k in (-1, 0, 2)),
    case(ops.Gather("C"), IMAGE, "n=2 m=3 <17"),
    case(ops.Gather("word"), "word=9 feat=4", "! <9"),
    case(ops.Gather("B"), "A=2 B=9", "B=3 <9"),
    case(ops.GatherElements("C"), IMAGE, "N=1 C=30 H=2 W=6 <17"),
    case(ops.GatherElements("A"), "A=2 B=9", "!A=5 B=9 <2"),
    case(ops.GatherND(("C", "H"), "K"), IMAGE, "n=7 K=2 <5"),
    case(ops.GatherND(("H", "C"), "K"), IMAGE, "n=7 N=2 K=2 <5"),
    case(ops.GatherND(("A", "B"), "K"), "A=3 B=4", "!K=2 <3"),
    case(ops.OneHot("class", 4), "N=3 <4", "class=2"),
    case(ops.OneHot("class", 4), " <4", "!class=2"),
    case(ops.Pad(("W", "C"), (1, 2, 0, 3)), IMAGE),
    case(ops.Pad((), ()), ""),
    case(ops.Pad(HW, (1, 1, 1, 1)), "N=2 C=32 H=5 W=6"),
    case(ops.Pad(("W", "C"), (1, 2, 0, 3), value=1.5), IMAGE, refused="onednn"),
    case(ops.Pad(("W", "C"), (-1, 2, -2, -3)), IMAGE, refused="onednn"),
    *(
        case(ops.Pad(HW, (1, 2, 3, 0), mode), IMAGE, refused="onednn")
        for mode in ("edge", "wrap", "reflect")
    ),
    case(ops.Resize(HW, (10, 12), (2.0, 2.0)), IMAGE),
    case(ops.Resize(HW, (10, 12), (2.0, 2.0), "nearest", "asymmetric", "floor"), IMAGE),
    *(
        case(ops.Resize(HW, sizes, tuple(n / 5 for n in sizes), "linear"), image, refused="onednn")
        for sizes in ((10, 4), (10, 8))
        for image in ("+N=2 C=3 H=5 W=5", "+N=1 C=32 H=5 W=5", "+N=1 C=17 H=5 W=5")
    ),
    case(ops.Resize(("W",), (9,), (1.5,), "linear"), "N=2 C=17 W=6"),
    case(ops.Resize((*"DHW",), (4, 3, 8), (2.0, 0.75, 1.6), "linear"), "N=1 C=17 D=2 H=4 W=5"),
    case(ops.Resize((), (), ()), IMAGE),
    *(case(op, IMAGE, refused="onednn") for op in NOT_ONEDNN),
    *(
        case(ops.ScatterElements("A", how), "A=50 B=640", "A=40 B=640 <50", "A=40 B=640")
        for how in ("none", "add")
    ),
    case(ops.ScatterElements("C"), IMAGE, "N=2 C=1 H=5 W=3 <17", "N=2 C=1 H=5 W=3"),
    *(
        case(ops.ScatterElements("H", how), IMAGE, "N=1 C=9 H=9 W=6 <5", "N=1 C=9 H=9 W=6")
        for how in ("add", "mul", "max", "min")
    ),
    case(ops.ScatterND(("W", "C"), "K"), IMAGE, "n=1 K=2 <6", "n=1 N=2 H=5"),
    *(
        case(ops.ScatterND(("A",), "K", how), "A=3 B=4", "n=5 K=1 <3", "n=5 B=4")
        for how in ("add", "mul", "max", "min")
    ),
    case(ops.Slice(("C", "W"), (3, -1), (99, -99), (2, -2)), IMAGE, refused="onednn"),
    case(ops.Slice(("H",), (3,), (3,), (1,)), IMAGE, refused="onednn"),
    case(ops.Slice(("W", "H", "C"), (1, -4, 8), (6, 99, 16), (2, 1, 1)), IMAGE),
    case(ops.Slice(("H", "W", "N"), (0, 0, 0), (9, 9, 1), (2, 3, 2)), IMAGE),
    case(ops.Slice(("C",), (0,), (99,), (2,)), IMAGE, refused="onednn"),
    case(ops.Slice(("C",), (0,), (99,), (4,)), "N=2 C=16 H=5 W=6"),
    case(ops.Slice(("C",), (1,), (99,), (4,)), "N=2 C=16 H=5 W=6"),
    case(ops.Slice(("H",), (1,), (9,), (2,)), IMAGE, refused="onednn"),
    case(ops.Slice(("A",), (1,), (3,), (1,)), "A=3 B=4"),
    *(case(ops.SpaceToDepth(2, mode), "N=2 C=3 H=4 W=6") for mode in ("DCR", "CRD")),
    case(ops.Tile((("C", 2), ("W", 3))), IMAGE),
    case(ops.Tile((("A", 0),)), "A=2 B=3"),
    case(ops.TopK("C", 3), IMAGE),
    case(ops.TopK("H", 2, largest=False), IMAGE),
    case(ops.NonZero(("N", "C", "H", "W")), IMAGE),
    case(ops.Select(("A", "B"), "B"), "A=3 B=4", "?k=4"),
    case(ops.Select(("A", "B")), "A=3 B=4", "?k=9"),
    case(ops.Unique(("A", "B")), "A=3 B=4"),
    case(ops.Unique(("A", "B"), "A", sorted=False), "A=3 B=4"),
    case(ops.NonMaxSuppression(3, 0.5), "B=2 S=9 corner=4", "B=2 C=3 S=9"),
    case(ops.Trilu("H", "W", -1), IMAGE),
    case(ops.Trilu("C", "N", 2, upper=False), IMAGE),
]

CASES.update(by_operator(ROWS))
BOUNDS.update(dict.fromkeys((*SUMS, "CumSum", "Einsum"), 5e-6))
BOUNDS["MatMulNBits"] = 1e-5
