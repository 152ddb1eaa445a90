"""A registry is an object: a test has its own, and leaves the process's as it was."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from libdesc.dispatcher import dispatcher, dispatcher_source
from libdesc.registry import Registry, installed, register, registry, without_invoker
from ptensor.libraries import LIBRARIES, library
from vtensor.errors import GraphError, LibraryError
from vtensor.language.operators import OPERATORS, operator
from vtensor.operators import Context
from vtensor.tensor import VTensor

MODULE = """
from libdesc import invoker
from ptensor import PTensor, lib_tagger

@invoker("Relu", library="mine", python=True)
def mine_relu(ctx, op, x, y):
    src, dst = PTensor(x), PTensor(y)
    if lib_tagger("mine", [src], [dst]):
        return
"""


def declare() -> None:
    """Register an operator that nobody else has."""

    @operator("Lonely", dims={"x": "*", "y": "*"})
    class Lonely:
        def compute(self, ctx: Context, x: VTensor) -> VTensor:
            return x


def description(folder: Path) -> Path:
    """A library ``mine`` with its invoker in a module beside it."""
    (folder / "invokers.py").write_text(MODULE, encoding="utf-8")
    file = folder / "mine.toml"
    text = '[library]\nname = "mine"\npriority = 99\ndevices = ["cpu"]\ninvokers = [".invokers"]\n'
    file.write_text(text, encoding="utf-8")
    return file


def content(one: Registry) -> tuple[object, ...]:
    """All that a registry holds, to compare."""
    problems, tables = list(one.problems), (one.operators, one.libraries, one.invokers)
    return problems, one.version, *(dict(table) for table in tables)


def test_a_fresh_one_is_empty_and_takes_everything() -> None:
    before = content(registry())
    with installed(Registry()) as own:
        assert (dict(OPERATORS), dict(LIBRARIES), own.invokers) == ({}, {}, {})
        with pytest.raises(LibraryError, match="registered are none"):
            library("numpy")
        declare()
        assert OPERATORS.keys() == own.operators.keys() == {"Lonely"}
        assert "no library" not in dispatcher_source("Lonely")
    assert "Lonely" not in OPERATORS
    with pytest.raises(GraphError, match="no operator 'Lonely'"):
        dispatcher_source("Lonely")
    assert content(registry()) == before


def test_a_copy_has_all_and_gives_nothing_back(tmp_path: Path) -> None:
    file, found = description(tmp_path), registry()
    before = content(found)
    for _ in range(2):  # its module is imported anew, and registers again
        with installed(found.copy()) as own:
            register(file)
            declare()
            assert LIBRARIES["mine"] is own.libraries["mine"]
            assert "mine" in dispatcher_source("Relu")
            assert {"Lonely", "Relu"} <= OPERATORS.keys()
        assert content(found) == before
        assert not any(name.startswith("vtensor_library_mine_") for name in sys.modules)
    assert "mine" not in dispatcher_source("Relu")


def test_what_is_compiled_for_one_is_not_taken_for_another() -> None:
    ours = dispatcher("Relu")
    with installed(registry().copy()) as own, without_invoker("Relu", "numpy"):
        assert dispatcher("Relu") is not ours
        assert own.dispatchers.keys() == {("Relu", "cpu")}
        assert "numpy" not in dispatcher_source("Relu")
    assert dispatcher("Relu") is ours


def test_versions_are_never_shared() -> None:
    one, other = registry().copy(), Registry()
    assert len({registry().version, one.version, other.version}) == 3
    one.change(lambda: None)
    assert one.version not in (registry().version, other.version)


def test_what_an_error_leaves_is_what_was_there() -> None:
    before = content(registry())

    def fail() -> None:
        with installed(registry().copy()):
            declare()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert content(registry()) == before
    assert OPERATORS.data is registry().operators
