"""Documents that are made from what is registered."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from eval import operator_table
from vtensor.language.operators import OPERATORS


def test_operators_are_those_that_are_registered() -> None:
    text = operator_table.FILE.read_text(encoding="utf-8")
    assert text == operator_table.table(), "python -m eval.operator_table rewrites the document"


def test_another_operator_would_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "| Softmax | from 1 | Softmax | eigen, numpy, onednn | Softmax |" in operator_table.own()
    monkeypatch.delitem(OPERATORS, "Softmax")
    assert not any(row.startswith("| Softmax |") for row in operator_table.own())


def test_expanded_is_what_vtensor_does_not_have(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "Softmax" not in operator_table.expanded()
    monkeypatch.delitem(OPERATORS, "Softmax")
    found = operator_table.expanded()
    assert found["Softmax"] == 13


def test_the_readmes_reasons_are_where_it_says() -> None:
    root = Path(__file__).parents[1]
    places = re.findall(
        r"requires it of .* at (ops/\w+\.py):(\d+)", (root / "README.md").read_text()
    )
    assert places
    for file, line in places:
        assert ".require(" in (root / file).read_text().splitlines()[int(line) - 1]
