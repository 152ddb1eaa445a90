"""Documents that are made from what is registered."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from eval import operator_table
from vtensor import call
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


ROOT = Path(__file__).parents[1]


def test_the_readmes_reasons_are_where_it_says() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    places = re.findall(r"requires it of .* at (ops/\w+\.py):(\d+)", text)
    assert places
    for file, line in places:
        named = (ROOT / file).read_text(encoding="utf-8").splitlines()[int(line) - 1]
        assert named.startswith(("@invoker(", "def onednn_"))


def missing(text: str) -> list[str]:
    """The files that a page names in backticks and that are not there."""
    known = {str(file.relative_to(ROOT)) for folder in FOLDERS for file in folder.rglob("*.*")}
    names = re.findall(r"`([\w/]+\.(?:py|cpp|h|toml))`", text)
    return [name for name in names if not any(f"/{one}".endswith(f"/{name}") for one in known)]


FOLDERS = [
    ROOT / name
    for name in (
        "vtensor",
        "ptensor",
        "libdesc",
        "resolver",
        "optimizer",
        "ops",
        "native",
        "tests",
        "eval",
    )
]


@pytest.mark.parametrize("page", ["architecture.md", "decisions.md", "guide.md"])
def test_pages_name_files_that_are_there(page: str) -> None:
    assert missing((ROOT / "docs" / page).read_text(encoding="utf-8")) == []


def test_the_convolution_of_the_architecture_runs() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    [code] = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    names: dict[str, Any] = {}
    exec(code, names)
    assert names["y"].shape == (1, 64, 112, 112)
    assert names["y"][0, 0, 50, 50] == 3 * 7 * 7
    names["session"].close()


def test_the_glossary_is_short() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    words = re.findall(r"^\| (\w[\w -]*) \| ", text.partition("## Words")[2], re.MULTILINE)
    assert words[0] == "word"
    assert 20 <= len(words) - 1 <= 30


@pytest.mark.usefixtures("scratch")
def test_the_readmes_operator_runs(tmp_path: Path) -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8").partition("## Write an operator")[2]
    [code] = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    file = tmp_path / "square.py"
    file.write_text(code, encoding="utf-8")
    names: dict[str, Any] = {"__name__": "square"}
    exec(compile(code, str(file), "exec"), names)
    x = np.array([[-2, 0, 3]], np.float32)
    for library in ("onednn", "numpy"):
        found = call(names["Square"](), x, pin=library)
        np.testing.assert_array_equal(found, [[4, 0, 9]])
