"""CONTRIBUTING.md quotes files and counts their lines: both must be what is there."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from ops import Relu
from optimizer import pipeline
from vtensor import Graph, Session
from vtensor.errors import InputError

ROOT = Path(__file__).parents[1]
PLUGIN = ROOT / "tests" / "plugin"
PAGE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")


def not_in_their_files(page: str) -> Iterator[str]:
    """The excerpts of a page, ``...`` between them, that the file behind the language lacks."""
    for file, block in re.findall(r"^```\w+ (\S+)\n(.*?)^```$", page, re.DOTALL | re.MULTILINE):
        text = (ROOT / file).read_text(encoding="utf-8")
        yield from (
            part for part in re.split(r"^ *\.\.\.\n", block, flags=re.M) if part not in text
        )


def miscounted(page: str) -> Iterator[str]:
    """The rows ``| `file:name` | lines |`` that are wrong; without a name it is the whole file."""
    for where, said in re.findall(r"^\| `(\S+)` \| (\d+) \|", page, re.MULTILINE):
        file, _, name = where.partition(":")
        text = (ROOT / file).read_text(encoding="utf-8")
        found = lines_of(text, name) if name else len(text.splitlines())
        if found != int(said):
            yield f"{where} has {found} lines"


def lines_of(text: str, name: str) -> int:
    """The lines of a class or function, decorators included."""
    [node] = (n for n in ast.parse(text).body if getattr(n, "name", "") == name)
    assert isinstance(node, ast.FunctionDef | ast.ClassDef)
    assert node.end_lineno is not None
    return node.end_lineno - min(one.lineno for one in node.decorator_list) + 1


def test_contributing_quotes_and_counts_what_is_there() -> None:
    assert PAGE.count("```python ") >= 6
    assert list(not_in_their_files(PAGE)) == []
    assert PAGE.count("| `ops/") == 5
    assert list(miscounted(PAGE)) == []


def test_the_plugin_is_counted_whole() -> None:
    counted = re.findall(r"^\| `(tests/plugin/\S+)`", PAGE, re.MULTILINE)
    assert sorted(counted) == sorted(str(file.relative_to(ROOT)) for file in sources(PLUGIN))


def sources(folder: Path) -> Iterator[Path]:
    """The files that somebody has written: not what a build leaves there, nor empty ones."""
    for file in folder.rglob("*.*"):
        made = "build" in file.relative_to(folder).parts
        if not made and file.suffix in (".py", ".pyi", ".toml", ".c", ".h"):
            yield file


def relu() -> Graph:
    graph = Graph("relu")
    graph.output(graph.add(Relu(), graph.input("x", {"N": 3})), "y")
    return graph.seal()


def added(monkeypatch: pytest.MonkeyPatch, module: str, function: str) -> list[str]:
    """Add a module with a function that returns its graph; return what the function was given."""
    calls: list[str] = []

    def run(graph: Graph, settings: object) -> Graph:
        calls.append(f"{type(graph).__name__} {type(settings).__name__}")
        return graph

    file = ModuleType(module)
    setattr(file, function, run)
    monkeypatch.setitem(sys.modules, module, file)
    return calls


@pytest.mark.parametrize("optimize", ["all", ["all"]], ids=["level", "list"])
def test_a_pass_that_is_added_as_the_page_says_runs(
    monkeypatch: pytest.MonkeyPatch, optimize: str | list[str]
) -> None:
    calls = added(monkeypatch, "optimizer.example", "run")
    monkeypatch.setitem(pipeline.PASSES, "example", "optimizer.example:run")
    monkeypatch.setitem(pipeline.LEVELS, "all", (*pipeline.LEVELS["all"], "example"))
    with Session(relu(), optimize=optimize, deterministic=True) as session:
        [y] = session.run(None, {"x": np.array([-1, 0, 2], "f4")})
        assert session.plan.passes[-1] == "example"
    assert calls == ["LoweredGraph Settings"]
    assert y.tolist() == [0, 0, 2]


def test_a_simplification_that_is_added_as_the_page_says_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls = added(monkeypatch, "optimizer.example", "example")
    monkeypatch.setattr(pipeline, "SIMPLIFICATIONS", (*pipeline.SIMPLIFICATIONS, "example"))
    monkeypatch.setitem(pipeline.LEVELS, "all", ("example", *pipeline.LEVELS["all"]))
    with Session(relu(), deterministic=True) as session:
        assert "example" in session.plan.passes
    assert calls == ["Graph Preferences"]


@pytest.mark.parametrize("optimize", ["all", ["all"], ["none", "lost"]])
def test_a_name_that_no_table_has_is_an_error(
    monkeypatch: pytest.MonkeyPatch, optimize: str | list[str]
) -> None:
    monkeypatch.setitem(pipeline.LEVELS, "all", (*pipeline.LEVELS["all"], "lost"))
    with pytest.raises(InputError, match="optimize: no pass 'lost'; passes: "):
        Session(relu(), optimize=optimize)


def test_every_pass_of_the_table_is_a_function_of_its_file() -> None:
    names = {name: pipeline.pass_of(name) for name in pipeline.PASSES}
    assert {function.__name__ for function in names.values()} == {
        where.partition(":")[2] for where in pipeline.PASSES.values()
    }
    with pytest.raises(InputError, match="no pass 'lost'"):
        pipeline.pass_of("lost")
    with pytest.raises(InputError, match="-lho"):
        pipeline.pass_of("-lho")
