"""Cases of the operators that sample, transform, and go along sequences."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import ops
from tests.operators.tables.cases import BOUNDS, CASES, IMAGE, SAME, Case, by_operator, case

GRID = "~N=2 H=3 W=4 axis=2"
BENT = ops.DeformConv((2, 1), (1, 0, 1, 2), (1, 2), group=2, offset_group=2)
LARGE = ("N=2 C=32 H=17 W=19", "!O=24 I=16 h=3 w=3", "N=2 K=72 H=17 W=19")
LINES = ("N=4 T=64 H=8 F=64", "N=4 T=16 H=8 F=64")
FOREST = ("N=70 F=4", "!&node=5 word=4", "!$tree=9 <5", "!$vote=1 <1")
SEQUENCE = "T=5 N=3 F=4"
SIGMOID, TANH = ("sigmoid", 0.0, 0.0), ("tanh", 0.0, 0.0)


def _recurrent(cls: Any, gates: int, functions: tuple[Any, ...], **more: bool) -> Iterator[Case]:
    one, both = (
        tuple(f"~dir={n} gate={gates} unit=6 {dim}" for dim in ("F=4", "state=6")) for n in (1, 2)
    )
    rows = gates + ("linear_before_reset" in more)
    bias, lengths, hidden = f"~dir=2 row={rows} unit=6", "N=3 <6", "~dir=2 N=3 unit=6"
    yield case(cls(functions), SEQUENCE, *one, refused="onednn")
    many, biased = SEQUENCE.replace("N=3", "N=5"), cls(functions, "forward", 0.0, ("bias",))
    yield case(biased, many, *(f"!{w}" for w in one), f"!~dir=1 row={gates} unit=6")
    short = cls(functions, "reverse", 0.5, ("lengths",))
    yield case(short, SEQUENCE, *one, lengths, refused="onednn")
    given = ("bias", "lengths", "hidden")
    op = cls(functions * 2, "bidirectional", 0.0, given, **more)
    yield case(op, SEQUENCE, *both, bias, lengths, hidden, refused="onednn")
    flags = {name: flag for name, flag in more.items() if name != "input_forget"}
    states = ("hidden", "cell") if cls is ops.LSTM else ("hidden",)
    op = cls(functions * 2, "bidirectional", 0.0, ("bias", *states), **flags)
    yield case(op, SEQUENCE, *both, bias, *(hidden,) * len(states))
    if cls is ops.LSTM:
        peepholes, state = "~dir=1 peephole=3 unit=6", "~dir=1 N=3 unit=6"
        row = f"~dir=1 row={rows} unit=6"
        op = cls(functions, "reverse", 0.0, ("bias", "hidden", "cell", "peepholes"))
        yield case(op, SEQUENCE, *one, row, state, state, peepholes)
        op = cls(functions, "forward", 0.0, ("bias", "cell"))
        yield case(op, SEQUENCE, *one, row, state, refused="onednn")
    if cls is ops.RNN:
        slopes = [("leakyrelu", slope, 0.0) for slope in (0.3, 0.0)]
        for function in (("relu", 0.0, 0.0), *slopes, SIGMOID):
            op = ops.RNN((function,), "forward", 0.0, ("bias",))
            loses_nan = function[0].endswith("relu") and not function[1]
            no = "onednn" if loses_nan else ""
            yield case(op, SEQUENCE, *one, "~dir=1 row=1 unit=6", refused=no)
        yield case(ops.RNN((("softsign", 0.0, 0.0),)), SEQUENCE, *one, refused="onednn")
    if cls is ops.GRU:
        op = ops.GRU(functions, "reverse", 0.0, ("bias",))
        yield case(op, SEQUENCE, *one, "~dir=1 row=3 unit=6")


def _quantized() -> Iterator[Case]:
    functions = (SIGMOID, TANH, TANH)
    for dirs in (1, 2):
        rows = f"dir={dirs} gate=4 unit=6"
        weights = (f"@{rows} F=4", f"@{rows} state=6", *[f"%{rows}"] * 2, *[f"@{rows}"] * 2)
        state, direction = f"~dir={dirs} N=3 unit=6", ("reverse", "bidirectional")[dirs - 1]
        op = ops.DynamicQuantizeLSTM(functions * dirs, direction, 0.5, ("lengths",))
        yield case(op, SEQUENCE, *weights, "N=3 <6")
        given = ("bias", "hidden", "cell", "peepholes")
        op = ops.DynamicQuantizeLSTM(functions * dirs, direction, 0.0, given, input_forget=True)
        more = f"~dir={dirs} row=4 unit=6", state, state, f"~dir={dirs} peephole=3 unit=6"
        yield case(op, SEQUENCE, *weights, *more)


def _fourier() -> Iterator[Case]:
    for inverse, onesided in product((False, True), (False, True)):
        parts = 1 if onesided and not inverse else 2
        for length in (0, 4, 9, 20):
            op = ops.DFT("T", "re", length, inverse, onesided)
            short = inverse and not onesided and length < 17
            yield case(op, f"N=2 T=7 F=3 re={parts}", refused="eigen" if short else "")
    for sizes in ("T=8 re=1", "N=20 T=480 re=2", "N=9 T=1009 re=1", "T=20000 re=1"):
        yield case(ops.DFT("T", "re"), sizes)
    yield case(ops.DFT("T", "re"), "N=3 T=143 F=5 re=2")
    yield case(ops.DFT("T", "re", 0, True, True), "N=9 T=505 re=2")
    for length, inverse in product((18, 31, 64, 97, 1000), (False, True)):  # primes, and not
        yield case(ops.DFT("T", "re", inverse=inverse), f"N=9 T={length} re=2")


def _steps(op: Any, states: int) -> list[Case]:
    few, many = (["N=2 C=3"] * 2, ["N=200 C=300"] * 2)
    return [
        case(op, "+", count, *tensors, *(f"+{tensors[0]}",) * states)
        for count, tensors in ((" <1", few), (" <9", few), (" <9", many))
    ]


ROWS = [
    *(
        case(ops.GridSample(mode, padding, corners), IMAGE, GRID)
        for mode in ("nearest", "linear", "cubic")
        for padding in ("zeros", "border", "reflection")
        for corners in (False, True)
    ),
    case(ops.GridSample(padding_mode="reflection"), IMAGE, GRID.strip("~")),
    case(ops.GridSample("cubic", "border"), "N=1 C=3 W=9", "N=1 W=5 axis=1"),
    case(ops.GridSample(), "N=1 C=3 D=2 H=3 W=4", "~N=1 D=2 H=1 W=3 axis=3"),
    case(ops.DeformConv(), "N=2 C=4 H=5 W=6", "!O=3 I=4 h=2 w=3", "N=2 K=12 H=4 W=4"),
    case(BENT, "N=2 C=4 H=5 W=6", "!O=6 I=2 h=2 w=3", "N=2 K=24 H=3 W=4", "~N=2 K=12 H=3 W=4"),
    case(ops.DeformConv(), "N=1 C=2 W=6", "O=3 I=2 w=3", "N=1 K=3 W=4"),
    case(ops.DeformConv(pads=SAME), "N=2 C=3 H=5 W=6", "O=4 I=3 h=3 w=3", "N=2 K=18 H=5 W=6"),
    case(ops.DeformConv(pads=SAME, group=2, offset_group=4), *LARGE, "~N=2 K=36 H=17 W=19"),
    case(ops.DeformConv(), "N=1 C=2 D=3 H=4 W=5", "O=3 I=2 d=2 h=2 w=2", "N=1 K=24 D=2 H=3 W=4"),
    *_steps(ops.Adagrad(0.1, 0.1), 1),
    *_steps(ops.Adam(0.1, norm_coefficient_post=0.2), 2),
    case(ops.Col2Im((5, 6), (2, 3)), "N=2 K=18 L=16"),
    case(ops.Col2Im((6, 5), (2, 2), (3, 2), (1, 0, 1, 1), (2, 1)), "N=1 K=12 L=6"),
    case(ops.Col2Im((7,), (3,)), "N=1 K=3 L=5"),
    case(ops.Col2Im((2, 3, 4), (1, 2, 2)), "N=1 K=8 L=12"),
    case(ops.Col2Im((48, 50), (3, 3), (2, 2), (1, 1, 1, 1)), "N=2 K=72 L=600"),
    case(ops.Col2Im((3, 1100), (1, 3)), "N=1 K=3 L=3294"),
    case(ops.Compress("C", (0, 3, 16)), IMAGE),
    case(ops.Compress("A", ()), "A=3 B=2"),
    *(case(ops.CumProd("H", e, r), IMAGE) for e in (False, True) for r in (False, True)),
    *_fourier(),
    case(ops.Det("A", "B"), "N=5 A=3 B=3"),
    case(ops.Det("B", "A"), "A=4 N=2 B=4"),
    case(ops.Det("A", "B"), "N=40 A=16 B=16"),
    *_quantized(),
    *_recurrent(ops.GRU, 3, (SIGMOID, TANH), linear_before_reset=True),
    *_recurrent(ops.LSTM, 4, (SIGMOID, TANH, TANH), input_forget=True),
    *_steps(ops.Momentum(0.1), 1),
    *_steps(ops.Momentum(0.1, 0.8, 0.3, True), 1),
    *_recurrent(ops.RNN, 1, (TANH,)),
    case(ops.ReverseSequence("H", "N"), IMAGE, "N=2 <6"),
    case(ops.ReverseSequence("T", "N"), "T=4 N=3", "!N=3 <5"),
    *(
        case(ops.RoiAlign((3, 2), mode, ratio, 3.0, half), IMAGE, "+R=4 corner=4", "R=4 <2")
        for mode, ratio, half in product(("avg", "max"), (0, 2), (True, False))
    ),
    *(case(ops.STFT(3, 6, onesided), "N=2 T=20 part=1", "tap=6") for onesided in (True, False)),
    case(ops.STFT(1, 5, False), "N=2 T=9 part=2"),
    *(case(ops.Lookup(), text, "!^key=5", "!value=6") for text in ("N=2 C=9", "")),
    *(case(ops.PairwiseProbabilities(n), f"%N=5 pair={p}") for n, p in ((2, 1), (4, 6))),
    case(ops.TreeEnsemble(), *FOREST, "!vote=1", "!base=1"),
    case(ops.TreeEnsemble("AVERAGE", plain=True), *FOREST, "!vote=1", "!base=3"),
    case(ops.TreeEnsembleClassifier(), *FOREST, "!vote=1", "!base=0", "!label=5 <9"),
    case(ops.TreeEnsembleClassifier(True), *FOREST, "!vote=1", "!base=1", "!label=4 <9"),
    case(ops.STFT(160, 400), "N=2 T=4000 part=1", "tap=400"),
    case(ops.TensorScatter("H", "N", True), IMAGE, "N=2 C=17 H=3 W=6", "N=2 <5"),
    case(ops.TensorScatter("T", "N"), "T=9 N=3", "T=2 N=3", "N=3 <8"),
    case(ops.TensorScatter("T", "N"), "T=9 N=3", "T=2 N=3"),
    case(ops.TensorScatter("T", "N", True), *LINES, "N=4 <64"),
    case(ops.TensorScatter("T", "N"), "N=2 H=4 T=9 F=8", "N=2 H=4 T=3 F=8", "N=2 <7"),
]

CASES.update(by_operator(ROWS))
BOUNDS.update(dict.fromkeys(("CumProd", "DFT", "STFT", "DeformConv", "GridSample"), 5e-6))
BOUNDS.update(dict.fromkeys(("Det", "GRU", "LSTM", "RoiAlign"), 5e-6))
BOUNDS["DynamicQuantizeLSTM"] = 2e-3  # a state is rounded otherwise
BOUNDS["RNN"] = 2e-5  # no gate damps what a step is off by, and there are 33 steps at most
