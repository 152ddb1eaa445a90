"""The stubs in the repository are what the modules are."""

from __future__ import annotations

import ast
import importlib
import inspect
from pathlib import Path

import pytest
from nanobind.stubgen import StubGen

ROOT = Path(__file__).parents[2]
MODULES = ["libdesc.onednn._onednn", "vtensor.runtime._replay"]


def normal(stub: str) -> str:
    """A stub without its formatting."""
    tree = ast.parse(stub)
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            node.value = inspect.cleandoc(node.value)
    return ast.unparse(tree)


def generated(name: str) -> str:
    generator = StubGen(module=importlib.import_module(name), quiet=True)
    generator.put(generator.module)
    return str(generator.get())


def in_repository(name: str) -> str:
    return (ROOT / f"{name.replace('.', '/')}.pyi").read_text()


@pytest.mark.parametrize("name", MODULES)
def test_stub_is_up_to_date(name: str) -> None:
    """If not: ``python -m nanobind.stubgen -m NAME -o PATH``, then ``ruff format PATH``."""
    assert normal(in_repository(name)) == normal(generated(name))


@pytest.mark.parametrize(
    ("old", "new"), [("threads: int = 0", "threads: int = 1"), ("Run a step once", "Run a step")]
)
def test_drift_is_seen(old: str, new: str) -> None:
    stub = in_repository(MODULES[1])
    assert old in stub
    assert normal(stub.replace(old, new)) != normal(generated(MODULES[1]))
