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


def absent_excerpts(page: str) -> Iterator[str]:
    """Yield the excerpts of a page, ``...`` between them, that the named file lacks."""
    for file, block in re.findall(r"^```\w+ (\S+)\n(.*?)^```$", page, re.DOTALL | re.MULTILINE):
        text = (ROOT / file).read_text(encoding="utf-8")
        parts = re.split(r"^ *\.\.\.\n", block, flags=re.MULTILINE)
        yield from (part for part in parts if part not in text)


def test_excerpts_are_in_their_files() -> None:
    assert PAGE.count("```python ") >= 6
    assert list(absent_excerpts(PAGE)) == []
    [part] = absent_excerpts(PAGE.replace("sizes = broadcast(left", "sizes = broadcast(right"))
    assert "broadcast(right" in part


def sources(folder: Path) -> Iterator[Path]:
    """Yield the source files of a folder, without those that a build makes."""
    for file in folder.rglob("*.*"):
        built = "build" in file.relative_to(folder).parts
        if not built and file.suffix in (".py", ".pyi", ".toml", ".c", ".h"):
            yield file


def test_page_lists_the_files_of_the_plugin_and_names_files_that_exist() -> None:
    listed = re.findall(r"^\| `(tests/plugin/\S+)`", PAGE, re.MULTILINE)
    assert sorted(listed) == sorted(str(file.relative_to(ROOT)) for file in sources(PLUGIN))
    names = re.findall(r"`([\w/]+/[\w.]+\.(?:py|md|toml|txt|pyi|h))`", PAGE)
    assert [name for name in names if not (ROOT / name).exists()] == []


def relu() -> Graph:
    graph = Graph("relu")
    graph.output(graph.add(Relu(), graph.input("x", {"N": 3})), "y")
    return graph.seal()


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Add a module whose function ``run`` returns its graph; record the types it is given."""
    types: list[str] = []

    def run(graph: Graph, settings: object) -> Graph:
        types.append(f"{type(graph).__name__} {type(settings).__name__}")
        return graph

    module = ModuleType("optimizer.example")
    module.run = module.example = run  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "optimizer.example", module)
    return types


@pytest.mark.parametrize("optimize", ["all", ["all"]], ids=["level", "list"])
def test_pass_that_is_added_as_the_page_says_runs(
    calls: list[str], monkeypatch: pytest.MonkeyPatch, optimize: str | list[str]
) -> None:
    monkeypatch.setitem(pipeline.PASSES, "example", "optimizer.example:run")
    monkeypatch.setitem(pipeline.LEVELS, "all", (*pipeline.LEVELS["all"], "example"))
    with Session(relu(), optimize=optimize, deterministic=True) as session:
        [y] = session.run(None, {"x": np.array([-1, 0, 2], "f4")})
        assert session.plan.passes[-1] == "example"
    assert calls == ["LoweredGraph Settings"]
    assert y.tolist() == [0, 0, 2]


def test_simplification_that_is_added_as_the_page_says_runs(
    calls: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipeline, "SIMPLIFICATIONS", (*pipeline.SIMPLIFICATIONS, "example"))
    monkeypatch.setitem(pipeline.LEVELS, "all", ("example", *pipeline.LEVELS["all"]))
    with Session(relu(), deterministic=True) as session:
        assert "example" in session.plan.passes
    assert calls == ["Graph Preferences"]


@pytest.mark.parametrize("optimize", ["all", ["all"], ["none", "lost"]])
def test_pass_that_no_table_has_is_an_error(
    monkeypatch: pytest.MonkeyPatch, optimize: str | list[str]
) -> None:
    monkeypatch.setitem(pipeline.LEVELS, "all", (*pipeline.LEVELS["all"], "lost"))
    with pytest.raises(InputError, match="optimize: no pass 'lost'; passes: "):
        Session(relu(), optimize=optimize)


def test_every_pass_of_the_table_is_a_function_of_its_file() -> None:
    names = {pipeline.pass_of(name).__name__ for name in pipeline.PASSES}
    assert names == {where.partition(":")[2] for where in pipeline.PASSES.values()}
    for name in ("lost", "-lho"):
        with pytest.raises(InputError, match=f"no pass '{name}'"):
            pipeline.pass_of(name)
