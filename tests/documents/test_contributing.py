"""CONTRIBUTING.md: its excerpts are in their files, and its recipes work."""

from __future__ import annotations

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

ROOT = Path(__file__).parents[2]
PLUGIN = ROOT / "tests" / "plugin"
PAGE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")


def not_in_their_files(page: str) -> Iterator[str]:
    """The excerpts of a page, ``...`` between them, that the file behind the language lacks."""
    for file, block in re.findall(r"^```\w+ (\S+)\n(.*?)^```$", page, re.DOTALL | re.MULTILINE):
        text = (ROOT / file).read_text(encoding="utf-8")
        yield from (
            part for part in re.split(r"^ *\.\.\.\n", block, flags=re.M) if part not in text
        )


def test_contributing_quotes_what_is_there() -> None:
    assert PAGE.count("```python ") >= 6
    assert list(not_in_their_files(PAGE)) == []


def test_wrong_excerpt_is_found() -> None:
    [part] = not_in_their_files(PAGE.replace("sizes = broadcast(left", "sizes = broadcast(right"))
    assert "broadcast(right" in part


def test_every_file_of_the_plugin_is_listed() -> None:
    listed = re.findall(r"^\| `(tests/plugin/\S+)`", PAGE, re.MULTILINE)
    assert sorted(listed) == sorted(str(file.relative_to(ROOT)) for file in sources(PLUGIN))


def test_files_of_the_page_exist() -> None:
    names = re.findall(r"`([\w/]+/[\w.]+\.(?:py|md|toml|txt|pyi|h))`", PAGE)
    assert [name for name in names if not (ROOT / name).exists()] == []


def sources(folder: Path) -> Iterator[Path]:
    """Yield the source files of a folder, without those that a build makes."""
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
