"""Cases of the operators that sample, transform, and go along sequences."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

from ops import (
    DFT,
    GRU,
    LSTM,
    RNN,
    STFT,
    Adagrad,
    Adam,
    Col2Im,
    Compress,
    CumProd,
    DeformConv,
    Det,
    GridSample,
    Momentum,
    ReverseSequence,
    RoiAlign,
    TensorScatter,
)
from tests.operators.cases import BOUNDS, CASES, Case

IMAGE = "N=2 C=17 H=5 W=6"
SEQUENCE = "T=5 N=3 F=4"
SIGMOID, TANH = ("sigmoid", 0.0, 0.0), ("tanh", 0.0, 0.0)


def _grids() -> Iterator[Case]:
    grid = "~N=2 H=3 W=4 axis=2"
    for mode, padding in product(("nearest", "linear", "cubic"), ("zeros", "border", "reflection")):
        for corners in (False, True):
            yield Case(GridSample(mode, padding, corners), (IMAGE, grid))
    yield Case(GridSample(padding_mode="reflection"), (IMAGE, grid.strip("~")))
    yield Case(GridSample("cubic", "border"), ("N=1 C=3 W=9", "N=1 W=5 axis=1"))
    yield Case(GridSample(), ("N=1 C=3 D=2 H=3 W=4", "~N=1 D=2 H=1 W=3 axis=3"))


def _bent() -> Iterator[Case]:
    yield Case(DeformConv(), ("N=2 C=4 H=5 W=6", "!O=3 I=4 h=2 w=3", "N=2 K=12 H=4 W=4"))
    yield Case(
        DeformConv((2, 1), (1, 0, 1, 2), (1, 2), group=2, offset_group=2),
        (
            "N=2 C=4 H=5 W=6",
            "!O=6 I=2 h=2 w=3",
            "N=2 K=24 H=3 W=4",
            "~N=2 K=12 H=3 W=4",
        ),
    )
    yield Case(DeformConv(), ("N=1 C=2 W=6", "O=3 I=2 w=3", "N=1 K=3 W=4"))
    same = (1, 1, 1, 1)
    yield Case(DeformConv(pads=same), ("N=2 C=3 H=5 W=6", "O=4 I=3 h=3 w=3", "N=2 K=18 H=5 W=6"))
    images = ("N=2 C=32 H=17 W=19", "!O=24 I=16 h=3 w=3", "N=2 K=72 H=17 W=19")
    op = DeformConv(pads=same, group=2, offset_group=4)
    yield Case(op, (*images, "~N=2 K=36 H=17 W=19"))
    volume = ("N=1 C=2 D=3 H=4 W=5", "O=3 I=2 d=2 h=2 w=2", "N=1 K=24 D=2 H=3 W=4")
    yield Case(DeformConv(), volume)


def _recurrent(cls: Any, gates: int, functions: tuple[Any, ...], **more: bool) -> Iterator[Case]:
    one, both = (
        tuple(f"~dir={n} gate={gates} unit=6 {dim}" for dim in ("F=4", "state=6")) for n in (1, 2)
    )
    rows = gates + ("linear_before_reset" in more)
    bias, lengths, hidden = f"~dir=2 row={rows} unit=6", "N=3 <6", "~dir=2 N=3 unit=6"
    yield Case(cls(functions), (SEQUENCE, *one), refused=("onednn",))
    many, biased = SEQUENCE.replace("N=3", "N=5"), cls(functions, "forward", 0.0, ("bias",))
    yield Case(biased, (many, *(f"!{w}" for w in one), f"!~dir=1 row={gates} unit=6"))
    short = cls(functions, "reverse", 0.5, ("lengths",))
    yield Case(short, (SEQUENCE, *one, lengths), refused=("onednn",))
    given = ("bias", "lengths", "hidden")
    op = cls(functions * 2, "bidirectional", 0.0, given, **more)
    yield Case(op, (SEQUENCE, *both, bias, lengths, hidden), refused=("onednn",))
    flags = {name: flag for name, flag in more.items() if name != "input_forget"}
    states = ("hidden", "cell") if cls is LSTM else ("hidden",)
    op = cls(functions * 2, "bidirectional", 0.0, ("bias", *states), **flags)
    yield Case(op, (SEQUENCE, *both, bias, *(hidden,) * len(states)))
    if cls is LSTM:
        peepholes, state = "~dir=1 peephole=3 unit=6", "~dir=1 N=3 unit=6"
        row = f"~dir=1 row={rows} unit=6"
        op = cls(functions, "reverse", 0.0, ("bias", "hidden", "cell", "peepholes"))
        yield Case(op, (SEQUENCE, *one, row, state, state, peepholes))
        op = cls(functions, "forward", 0.0, ("bias", "cell"))
        yield Case(op, (SEQUENCE, *one, row, state), refused=("onednn",))
    if cls is RNN:
        slopes = [("leakyrelu", slope, 0.0) for slope in (0.3, 0.0)]
        for function in (("relu", 0.0, 0.0), *slopes, SIGMOID):
            op = RNN((function,), "forward", 0.0, ("bias",))
            loses_nan = function[0].endswith("relu") and not function[1]
            refused = ("onednn",) if loses_nan else ()
            yield Case(op, (SEQUENCE, *one, "~dir=1 row=1 unit=6"), refused=refused)
        yield Case(RNN((("softsign", 0.0, 0.0),)), (SEQUENCE, *one), refused=("onednn",))
    if cls is GRU:
        yield Case(
            GRU(functions, "reverse", 0.0, ("bias",)), (SEQUENCE, *one, "~dir=1 row=3 unit=6")
        )


def _fourier() -> Iterator[Case]:
    for inverse, onesided in product((False, True), (False, True)):
        parts = 1 if onesided and not inverse else 2
        for length in (0, 4, 9, 20):
            op = DFT("T", "re", length, inverse, onesided)
            short = inverse and not onesided and length < 17
            yield Case(op, (f"N=2 T=7 F=3 re={parts}",), ("eigen",) if short else ())
    yield Case(DFT("T", "re"), ("T=8 re=1",))
    for sizes in ("N=20 T=480 re=2", "N=9 T=1009 re=1", "T=20000 re=1", "N=3 T=143 F=5 re=2"):
        yield Case(DFT("T", "re"), (sizes,))
    yield Case(DFT("T", "re", 0, True, True), ("N=9 T=505 re=2",))


def _steps(op: Any, states: int) -> list[Case]:
    many = ("+", " <9", *("N=200 C=300",) * 2, *("+N=200 C=300",) * states)
    tensors = ("N=2 C=3", "N=2 C=3", *("+N=2 C=3",) * states)
    return [*(Case(op, ("+", count, *tensors)) for count in (" <1", " <9")), Case(op, many)]


CASES.update(
    {
        "Adagrad": _steps(Adagrad(0.1, 0.1), 1),
        "Adam": _steps(Adam(0.1, norm_coefficient_post=0.2), 2),
        "Col2Im": [
            Case(Col2Im((5, 6), (2, 3)), ("N=2 K=18 L=16",)),
            Case(Col2Im((6, 5), (2, 2), (3, 2), (1, 0, 1, 1), (2, 1)), ("N=1 K=12 L=6",)),
            Case(Col2Im((7,), (3,)), ("N=1 K=3 L=5",)),
            Case(Col2Im((2, 3, 4), (1, 2, 2)), ("N=1 K=8 L=12",)),
            Case(Col2Im((48, 50), (3, 3), (2, 2), (1, 1, 1, 1)), ("N=2 K=72 L=600",)),
            Case(Col2Im((3, 1100), (1, 3)), ("N=1 K=3 L=3294",)),
        ],
        "Compress": [
            Case(Compress("C", (0, 3, 16)), (IMAGE,)),
            Case(Compress("A", ()), ("A=3 B=2",)),
        ],
        "CumProd": [
            Case(CumProd("H", e, r), (IMAGE,)) for e in (False, True) for r in (False, True)
        ],
        "DFT": list(_fourier()),
        "DeformConv": list(_bent()),
        "Det": [
            Case(Det("A", "B"), ("N=5 A=3 B=3",)),
            Case(Det("B", "A"), ("A=4 N=2 B=4",)),
            Case(Det("A", "B"), ("N=40 A=16 B=16",)),
        ],
        "GRU": list(_recurrent(GRU, 3, (SIGMOID, TANH), linear_before_reset=True)),
        "GridSample": list(_grids()),
        "LSTM": list(_recurrent(LSTM, 4, (SIGMOID, TANH, TANH), input_forget=True)),
        "Momentum": [*_steps(Momentum(0.1), 1), *_steps(Momentum(0.1, 0.8, 0.3, True), 1)],
        "RNN": list(_recurrent(RNN, 1, (TANH,))),
        "ReverseSequence": [
            Case(ReverseSequence("H", "N"), (IMAGE, "N=2 <6")),
            Case(ReverseSequence("T", "N"), ("T=4 N=3", "!N=3 <5")),
        ],
        "RoiAlign": [
            Case(RoiAlign((3, 2), mode, ratio, 3.0, half), (IMAGE, "+R=4 corner=4", "R=4 <2"))
            for mode in ("avg", "max")
            for ratio in (0, 2)
            for half in (True, False)
        ],
        "STFT": [
            Case(STFT(3, 6, onesided), ("N=2 T=20 part=1", "tap=6")) for onesided in (True, False)
        ]
        + [
            Case(STFT(1, 5, False), ("N=2 T=9 part=2",)),
            Case(STFT(160, 400), ("N=2 T=4000 part=1", "tap=400")),
        ],
        "TensorScatter": [
            Case(TensorScatter("H", "N", True), (IMAGE, "N=2 C=17 H=3 W=6", "N=2 <5")),
            Case(TensorScatter("T", "N"), ("T=9 N=3", "T=2 N=3", "N=3 <8")),
            Case(TensorScatter("T", "N"), ("T=9 N=3", "T=2 N=3")),
            Case(
                TensorScatter("T", "N", True),
                ("N=4 T=64 H=8 F=64", "N=4 T=16 H=8 F=64", "N=4 <64"),
            ),
            Case(TensorScatter("T", "N"), ("N=2 H=4 T=9 F=8", "N=2 H=4 T=3 F=8", "N=2 <7")),
        ],
    }
)
BOUNDS.update(dict.fromkeys(("CumProd", "DFT", "STFT", "DeformConv", "GridSample"), 5e-6))
BOUNDS.update(dict.fromkeys(("Det", "GRU", "LSTM", "RoiAlign"), 5e-6))
BOUNDS["RNN"] = 2e-5  # no gate damps what a step is off by, and there are 33 steps at most
