"""Documents: generated tables, and the promises of the written pages."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from eval.documents import api_reference, operator_table, routine_table
from vtensor.language.operators import OPERATORS

ROOT = Path(__file__).parents[2]
PACKAGES = ("vtensor", "ptensor", "libdesc", "resolver", "optimizer", "ops", "native")


def page(name: str) -> str:
    """Return the text of a document."""
    return (ROOT / name).read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("file", "text"),
    [(operator_table.FILE, operator_table.table), (routine_table.FILE, routine_table.page)],
    ids=["operators", "routines"],
)
def test_table_has_what_is_registered(file: Path, text: Callable[[], str]) -> None:
    assert file.read_text(encoding="utf-8") == text(), f"python -m {text.__module__} rewrites it"
    for library in routine_table.LIBRARIES:
        assert list(routine_table.routines(library)), library


def test_public_interface_is_documented() -> None:
    """Python's versions print some signatures otherwise: the text is that of the oldest one."""
    text, generated = api_reference.FILE.read_text(encoding="utf-8"), api_reference.page()
    headings = re.compile(r"^##+ .*$", re.MULTILINE)
    assert headings.findall(text) == headings.findall(generated)
    if sys.version_info[:2] == (3, 11):
        assert text == generated, "python -m eval.documents.api_reference rewrites the document"


def test_table_changes_with_the_registered_operators(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "| Softmax | from 1 | Softmax | eigen, numpy, onednn | Softmax |" in operator_table.own()
    assert "Softmax" not in operator_table.expanded()
    monkeypatch.delitem(OPERATORS, "Softmax")
    assert not any(row.startswith("| Softmax |") for row in operator_table.own())
    assert operator_table.expanded()["Softmax"] == 13


def test_reasons_of_the_readme_are_at_their_lines() -> None:
    places = re.findall(r"requires this layout of .* \((ops/\w+\.py):(\d+)\)", page("README.md"))
    assert places
    for file, line in places:
        named = page(file).splitlines()[int(line) - 1]
        assert named.startswith(("@invoker(", "def onednn_"))


@pytest.mark.parametrize("name", ["architecture.md", "decisions.md", "guide.md"])
def test_files_of_a_page_exist(name: str) -> None:
    folders = [ROOT / folder for folder in (*PACKAGES, "tests", "eval")]
    files = [f"/{file.relative_to(ROOT)}" for folder in folders for file in folder.rglob("*.*")]
    named = re.findall(r"`([\w/]+\.(?:py|cpp|h|toml))`", page(f"docs/{name}"))
    absent = [path for path in named if not any(file.endswith(f"/{path}") for file in files)]
    assert absent == []


def test_convolution_of_the_architecture_runs() -> None:
    [code] = re.findall(r"```python\n(.*?)```", page("docs/architecture.md"), re.DOTALL)
    names: dict[str, Any] = {}
    exec(code, names)
    assert names["y"].shape == (1, 64, 112, 112)
    assert names["y"][0, 0, 50, 50] == 3 * 7 * 7
    names["session"].close()


def test_glossary_and_changelog_are_short() -> None:
    text = page("docs/architecture.md").partition("## Words")[2]
    head, *words = re.findall(r"^\| (\w[\w -]*) \| ", text, re.MULTILINE)
    assert head == "word"
    assert 20 <= len(words) <= 30
    _, version, *_ = page("CHANGELOG.md").split("\n## ")
    assert len(version.splitlines()) <= 150


def incomplete(text: str) -> list[str]:
    """Return the titles of decisions without a context, a decision or a consequence."""
    paragraphs = [part for part in text.split("\n\n") if part.startswith("**")]
    labels = ("Context:", "Decision:", "Consequence:")
    return [part.split("**")[1] for part in paragraphs if not all(x in part for x in labels)]


def test_decisions_have_context_decision_and_consequence() -> None:
    assert incomplete(page("docs/decisions.md")) == []
    assert incomplete("**One.** Context: a. Decision: b.\n\n## Two") == ["One."]
