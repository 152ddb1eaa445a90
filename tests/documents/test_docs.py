"""Documents that are made from what is registered."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pytest

from eval.documents import api_reference, operator_table, routine_table
from vtensor.language.operators import OPERATORS


def test_operators_are_those_that_are_registered() -> None:
    text = operator_table.FILE.read_text(encoding="utf-8")
    assert text == operator_table.table(), (
        "python -m eval.documents.operator_table rewrites the document"
    )


def test_routines_are_those_that_are_registered() -> None:
    text = routine_table.FILE.read_text(encoding="utf-8")
    assert text == routine_table.page(), (
        "python -m eval.documents.routine_table rewrites the document"
    )
    for library in routine_table.LIBRARIES:
        assert list(routine_table.routines(library)), library


def test_public_interface_is_what_is_public() -> None:
    """Python's versions print some signatures otherwise: the text is that of the oldest one."""
    text, page = api_reference.FILE.read_text(encoding="utf-8"), api_reference.page()
    headings = re.compile(r"^##+ .*$", re.MULTILINE)
    assert headings.findall(text) == headings.findall(page)
    if sys.version_info[:2] == (3, 11):
        assert text == page, "python -m eval.documents.api_reference rewrites the document"


def test_another_operator_would_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "| Softmax | from 1 | Softmax | eigen, numpy, onednn | Softmax |" in operator_table.own()
    monkeypatch.delitem(OPERATORS, "Softmax")
    assert not any(row.startswith("| Softmax |") for row in operator_table.own())


def test_expanded_is_what_vtensor_does_not_have(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "Softmax" not in operator_table.expanded()
    monkeypatch.delitem(OPERATORS, "Softmax")
    found = operator_table.expanded()
    assert found["Softmax"] == 13


ROOT = Path(__file__).parents[2]


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


def incomplete(text: str) -> list[str]:
    """Return the titles of decisions without a context, a decision or a consequence."""
    paragraphs = [part for part in text.split("\n\n") if part.startswith("**")]
    labels = ("Context:", "Decision:", "Consequence:")
    return [part.split("**")[1] for part in paragraphs if not all(x in part for x in labels)]


def test_decisions_have_context_decision_and_consequence() -> None:
    assert incomplete((ROOT / "docs" / "decisions.md").read_text(encoding="utf-8")) == []
    assert incomplete("**One.** Context: a. Decision: b.\n\n## Two") == ["One."]


def test_changelog_is_short() -> None:
    """The present version's part; what changes for users, and the rest is in the commits."""
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    _, version, *_ = text.split("\n## ")
    assert len(version.splitlines()) <= 150
