"""Networks in every mix of libraries under each cap on instruction sets, against ONNX Runtime."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

import pytest
import typer

from eval.compare import TOLERANCE
from eval.figures.capped import BUILT, FOREIGN
from eval.figures.mixing import main, table
from eval.mixes import elementwise, mixes
from eval.processes import CAPS, chosen, measure
from tests.libraries.slow import slow

#: What ``make test`` runs, of networks that take two seconds: each mix under one cap.
DRAWN = [
    ("sse41", "shufflenet", ("onednn", "elementwise")),
    ("max", "keras", ("tensorflow", "eigen", "numpy")),
]

#: What oneDNN declines, so that NumPy runs it where Eigen is not listed: NasNet's shift by a pixel
#: takes elements away.
DECLINED = {("built/nasnet_large", "Pad")}


def wrong(row: dict[str, Any]) -> list[str]:
    """Return what is wrong with a row: a large error, and each operator on a foreign library."""
    mix = mixes()[row["mix"]]
    faults = [] if row["difference"] <= TOLERANCE else [f"difference {row['difference']}"]
    for op, libraries in row["libraries"].items():
        allowed = [mix.pin[op]] if op in mix.pin else [*(mix.libraries or [])]
        if (row["network"], op) in DECLINED and op not in mix.pin:
            allowed.append("numpy")
        faults += [f"{op} on {library}" for library in libraries if library not in allowed]
    return faults


def check(cap: str, name: str, sharing: Sequence[str]) -> None:
    """Check that every mix is right, and is the mix that it says."""
    rows: list[dict[str, Any]] = []
    measure("eval.figures.capped", [cap, name, ",".join(sharing), "1"], rows.append)
    assert [row["mix"] for row in rows] == list(sharing)
    assert {row["mix"]: wrong(row) for row in rows} == {mix: [] for mix in sharing}


@pytest.mark.parametrize(("cap", "name", "sharing"), DRAWN)
def test_mixes_under_the_ends_of_the_caps(cap: str, name: str, sharing: Sequence[str]) -> None:
    check(cap, name, sharing)


def test_every_mix_is_drawn() -> None:
    assert {mix for _, _, sharing in DRAWN for mix in sharing} == set(mixes())


@slow
@pytest.mark.parametrize(
    ("cap", "name"), sorted({*product(CAPS, FOREIGN), *product(["max"], BUILT)})
)
def test_every_network_under_every_cap(cap: str, name: str) -> None:
    check(cap, name, list(mixes()))


ROW = {
    "network": "keras",
    "cap": "max",
    "mix": "tensorflow",
    "difference": 1e-6,
    "libraries": {"Conv2D": ["onednn"], "Mean": ["eigen"]},
}


def test_a_wrong_row_is_seen() -> None:
    assert wrong(ROW) == []
    assert wrong(ROW | {"difference": 2e-4}) == ["difference 0.0002"]
    assert wrong(ROW | {"difference": float("nan")}) == ["difference nan"]
    moved = {"Conv2D": ["onednn", "numpy"], "Mean": ["onednn"]}
    assert wrong(ROW | {"libraries": moved}) == ["Conv2D on numpy", "Mean on onednn"]
    shift = {"network": "built/nasnet_large", "libraries": {"Pad": ["onednn", "numpy"]}}
    assert wrong(ROW | shift) == ["Pad on onednn", "Pad on numpy"]  # it is pinned to Eigen
    assert wrong(ROW | shift | {"mix": "onednn"}) == []


def test_element_wise_operators_are_those_with_the_trait() -> None:
    pinned = elementwise("eigen")
    assert {"Add", "BatchNorm", "Relu"} <= set(pinned)
    assert {"Conv2D", "Softmax", "Pad", "BitCast"}.isdisjoint(pinned)  # Eigen has no BitCast
    assert elementwise("onnx_reference") == []


def test_the_table() -> None:
    errors = {"avx2": 1e-6, "max": 3e-7}
    rows = [ROW | {"cap": cap, "difference": error} for cap, error in errors.items()]
    cells = [list(column.cells) for column in table(rows, ["tensorflow"]).columns]
    assert cells == [["keras", "keras"], ["avx2", "max"], ["1.0e-06", "3.0e-07"]]


def test_names_are_checked_and_unique() -> None:
    assert chosen("max,avx2,max", CAPS) == ["max", "avx2"]
    with pytest.raises(typer.BadParameter, match="no mmx; there are sse41, avx2, avx512, max"):
        chosen("mmx,max", CAPS)


def test_a_large_error_ends_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    def planted(module: str, arguments: list[str], done: Any) -> None:
        cap, _, sharing, _ = arguments
        for mix in sharing.split(","):
            done(ROW | {"cap": cap, "mix": mix, "difference": 1e-3})

    monkeypatch.setattr("eval.processes.measure", planted)
    with pytest.raises(SystemExit, match=r"an error of 1\.0e-03 is above 1e-04"):
        main("sse41", "keras")


def test_a_process_that_fails_is_seen(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match=r"eval\.figures\.capped sse41 nothing onednn 1 failed"):
        measure("eval.figures.capped", ["sse41", "nothing", "onednn", "1"], lambda row: None)
    assert "KeyError: 'nothing'" in capfd.readouterr().err
