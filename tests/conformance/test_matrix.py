"""The matrix finds nothing, and finds what is broken on purpose."""

from __future__ import annotations

import importlib
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from random import Random

import pytest
import typer
from typer.testing import CliRunner

import libdesc.eigen
from libdesc.eigen import pointwise
from libdesc.registry import registry
from ops import Clip
from tests.conformance import __main__ as command
from tests.conformance.draw import Undrawable, draw
from tests.conformance.matrix import KINDS, Cell, case_of, cells, drawn, operands, run_all
from tests.libraries.slow import ALL
from tests.operators.tables.cases import INEXACT
from vtensor.language.operators import OPERATORS

SEED = 1
MORE_SEEDS = (2, 3) if ALL else ()
COUNT = 200 if ALL else 40

CELLS = [(cell.operator, cell.library) for cell in cells()]
NATIVE = [pair for pair in CELLS if pair[1] != "numpy"]
#: The operators that every native library has.
EVERYWHERE = sorted(op for op, count in Counter(op for op, _ in NATIVE).items() if count > 1)


def ran(operator: str, library: str, count: int = COUNT, seed: int = SEED) -> Cell:
    """Return a cell of the matrix, run now."""
    [cell] = cells([operator], [library])
    *_, last = run_all([cell], seed, range(count))
    return last


#: Runs a cell once.
cell_of = cache(ran)


@pytest.mark.parametrize(("operator", "library"), CELLS)
def test_nothing_fails(operator: str, library: str) -> None:
    check_nothing_failed(cell_of(operator, library))
    for seed in MORE_SEEDS:
        check_nothing_failed(ran(operator, library, COUNT // 2, seed))


def check_nothing_failed(cell: Cell) -> None:
    """No case of a cell failed; each that did is named with the command that repeats it."""
    assert not cell.failed, "\n".join(["", *(f"{t}\n  {c}" for c, t in cell.failed.items())])


@pytest.mark.parametrize(("operator", "library"), NATIVE)
def test_calls_are_taken(operator: str, library: str) -> None:
    # a form of another arithmetic is for few windows
    few = operator not in EVERYWHERE or library in INEXACT
    least, cell = 2 if few else 4, cell_of(operator, library)
    if cell.taken < least and cell.lacking:  # of the few that suit it, some lack instructions here
        cell = ran(operator, library, 2 * COUNT)
    check_taken(cell, least)


def check_taken(cell: Cell, least: int) -> None:
    """An invoker that always declines is none."""
    assert cell.taken >= least, f"{cell.operator} on {cell.library}: {cell.declined.most_common()}"


def test_the_matrix_is_as_large_as_it_says() -> None:
    assert len(EVERYWHERE) >= 16
    assert len(CELLS) * 200 >= 5000


@pytest.mark.parametrize("operator", EVERYWHERE)
def test_every_kind_of_case_is_met(operator: str) -> None:
    row = [cell_of(operator, library) for op, library in CELLS if op == operator]
    for seed in (SEED + 1, SEED + 2):  # a kind is rare among few cases
        for cell in list(row):
            if not set(KINDS) <= set().union(*(each.met for each in row)):
                row.append(ran(operator, cell.library, COUNT, seed))
    check_every_kind(row)


def check_every_kind(row: Sequence[Cell]) -> None:
    """Every kind was met; a narrow type was met, or refused for want of instructions."""
    met = sum((cell.met for cell in row), Counter[str]())
    lacking = sum((cell.lacking for cell in row), Counter[str]())
    assert set(KINDS) | {"blocked", "f32"} <= met.keys()
    assert "bf16" in met or "bf16" in lacking


def test_a_kind_that_is_never_met_is_seen() -> None:
    """The twin: without bf16 and without a refusal, and without extents of 1."""
    cell = cell_of("Relu", "onednn")
    whole = replace(cell, met=Counter(dict.fromkeys((*KINDS, "blocked", "f32"), 1)))
    for lacking in ({}, {"f16": 1}):
        with pytest.raises(AssertionError, match="bf16"):
            check_every_kind([replace(whole, lacking=Counter(lacking))])
    check_every_kind([replace(whole, lacking=Counter({"bf16": 1}))])
    with pytest.raises(AssertionError, match="one"):
        check_every_kind([replace(whole, met=whole.met - Counter({"one": 1}))])


def test_a_number_is_a_case() -> None:
    for operator, library in NATIVE[::7]:
        one = case_of(operator, library, 5, 3)
        drawn.cache_clear()
        assert case_of(operator, library, 5, 3) == one
        first, second = (operands(*one, 5, 3) for _ in range(2))
        assert [x.array.tolist() for x in first] == [x.array.tolist() for x in second]
        assert len({str(case_of(operator, library, 5, i)[0]) for i in range(20)}) > 5


def test_an_operator_from_which_nothing_can_be_drawn_is_seen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tests.conformance.draw._accepted", lambda op, inputs: False)
    with pytest.raises(Undrawable, match="Relu"):
        draw(OPERATORS["Relu"], Random(1))


@pytest.mark.parametrize(
    ("library", "zeroing"),
    [("eigen", "libdesc.eigen.elementwise pads"), ("numpy", "libdesc.numpy.definition finish")],
)
def test_pads_that_are_left_are_seen(
    library: str, zeroing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    module, name = zeroing.split()
    monkeypatch.setattr(importlib.import_module(module), name, lambda tensor: [])
    cell = ran("BiasAdd", library, 40)
    assert any("are not zero" in text for text in cell.failed.values())
    with pytest.raises(AssertionError, match=r"python -m tests\.conformance --operator BiasAdd"):
        check_nothing_failed(cell)


def test_an_invoker_that_always_declines_is_seen(scratch: None) -> None:
    key = ("Relu", "eigen", "cpu")
    never = replace(registry().invokers[key], when=lambda *call: "not today")
    registry().change(lambda: registry().invokers.update({key: never}))
    cell = ran("Relu", "eigen", 20)
    assert (cell.run, cell.taken, cell.declined) == (20, 0, {"not today": 20})
    with pytest.raises(AssertionError, match="not today"):
        check_taken(cell, 1)


def application() -> typer.Typer:
    """Return the command."""
    app = typer.Typer()
    app.command()(command.main)
    return app


def test_figures_are_printed_as_json() -> None:
    arguments = ["--operator", "Pad", "--library", "onednn", "--count", "9", "--json"]
    [cell] = json.loads(CliRunner().invoke(application(), arguments).stdout)["cells"]
    assert (cell["operator"], cell["library"], cell["run"]) == ("Pad", "onednn", 9)
    assert cell["failed"] == {}
    assert cell["taken"] + sum(cell["declined"].values()) == 9


def test_a_wrong_result_is_seen_and_repeated_by_its_command(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    app, runner = application(), CliRunner()
    with monkeypatch.context() as patch:
        patch.setattr(libdesc.eigen, "pointwise", lambda op, *rest: pointwise(Clip(0.1), *rest))
        result = runner.invoke(app, ["--operator", "Relu", "--library", "eigen", "--count", "9"])
        assert result.exit_code == 1
        assert "9 cases, " in result.output
        line = result.output.partition("python -m tests.conformance ")[2].splitlines()[0]
        assert runner.invoke(app, line.split()).exit_code == 1
    assert runner.invoke(app, line.split()).exit_code == 0
