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
    """Register the operator Lonely."""

    @operator("Lonely", dims={"x": "*", "y": "*"})
    class Lonely:
        def compute(self, ctx: Context, x: VTensor) -> VTensor:
            return x


def content(held: Registry) -> tuple[object, ...]:
    """Return all that a registry holds, to compare."""
    problems, tables = list(held.problems), (held.operators, held.libraries, held.invokers)
    return problems, held.version, *(dict(table) for table in tables)


def test_a_fresh_registry_is_empty_and_takes_everything() -> None:
    before = content(registry())
    with installed(Registry()) as fresh:
        assert (dict(OPERATORS), dict(LIBRARIES), fresh.invokers) == ({}, {}, {})
        with pytest.raises(LibraryError, match="registered are none"):
            library("numpy")
        declare()
        assert OPERATORS.keys() == fresh.operators.keys() == {"Lonely"}
        assert "no library" not in dispatcher_source("Lonely")
    assert "Lonely" not in OPERATORS
    with pytest.raises(GraphError, match="no operator 'Lonely'"):
        dispatcher_source("Lonely")
    assert content(registry()) == before


def test_a_copy_has_all_and_gives_nothing_back(tmp_path: Path) -> None:
    (tmp_path / "invokers.py").write_text(MODULE, encoding="utf-8")
    text = '[library]\nname = "mine"\npriority = 99\ndevices = ["cpu"]\ninvokers = [".invokers"]\n'
    (tmp_path / "mine.toml").write_text(text, encoding="utf-8")
    before = content(registry())
    for _ in range(2):  # the module is imported and registers in each round
        with installed(registry().copy()) as copied:
            register(tmp_path / "mine.toml")
            declare()
            assert LIBRARIES["mine"] is copied.libraries["mine"]
            assert "mine" in dispatcher_source("Relu")
            assert {"Lonely", "Relu"} <= OPERATORS.keys()
        assert content(registry()) == before
        assert not any(name.startswith("vtensor_library_mine_") for name in sys.modules)
    assert "mine" not in dispatcher_source("Relu")


def test_a_registry_has_its_own_dispatchers() -> None:
    ours = dispatcher("Relu")
    with installed(registry().copy()) as copied, without_invoker("Relu", "numpy"):
        assert dispatcher("Relu") is not ours
        assert copied.dispatchers.keys() == {("Relu", "cpu")}
        assert "numpy" not in dispatcher_source("Relu")
    assert dispatcher("Relu") is ours


def test_versions_are_never_shared() -> None:
    copied, fresh = registry().copy(), Registry()
    assert len({registry().version, copied.version, fresh.version}) == 3
    copied.change(lambda: None)
    assert copied.version not in (registry().version, fresh.version)


def test_an_error_leaves_the_registry_as_it_was() -> None:
    before = content(registry())

    def fail() -> None:
        declare()
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), installed(registry().copy()):
        fail()
    assert content(registry()) == before
    assert OPERATORS.data is registry().operators
