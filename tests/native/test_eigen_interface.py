"""The declared interface of Eigen's modules is what each of them says of itself."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import libdesc.eigen
from libdesc.eigen import native
from tests.native.test_stubs import generated

LEVELS = native.LEVELS[: native.LEVELS.index(native.load_baseline().machine_level()) + 1]


def said(members: Any) -> Iterator[tuple[str, object]]:
    """Of each function: its parameters, what it gives, its documentation without line ends."""
    for name, function in vars(members).items():
        if not inspect.isfunction(function) or name.startswith("_"):
            continue
        signature = inspect.signature(function, eval_str=True)
        parameters = [(p.name, p.annotation) for p in signature.parameters.values()]
        result = getattr(signature.return_annotation, "__name__", "")
        yield (
            name,
            ([p for p in parameters if p[0] != "self"], result, str(function.__doc__).split()),
        )


def of_module(level: str) -> SimpleNamespace:
    """The generated stub of a level's module, run as the Python that it is."""
    stub = SimpleNamespace()
    exec(generated(f"libdesc.eigen._eigen_{level}"), vars(stub))
    return stub


def declared() -> SimpleNamespace:
    """The stub that is written by hand, run as the Python that it is."""
    stub = SimpleNamespace()
    file = Path(str(libdesc.eigen.__file__)).with_name("_eigen.pyi")
    exec(file.read_text(encoding="utf-8"), vars(stub))
    return stub


@pytest.mark.parametrize("level", LEVELS)
def test_interface_is_the_modules(level: str) -> None:
    module, interface = of_module(level), declared()
    assert module.level == level
    assert dict(said(module)) == dict(said(interface.Kernels))
    assert set(vars(interface.Kernel)) >= {"kernel", "scratch_bytes", "__vtensor_step__"}
    assert isinstance(module.Kernel.kernel, property)


def test_drift_is_seen() -> None:
    interface = declared()
    softmax = interface.Kernels.softmax
    assert dict(said(of_module("baseline"))) == dict(said(interface.Kernels))
    softmax.__annotations__["length"] = "float"
    assert dict(said(of_module("baseline"))) != dict(said(interface.Kernels))
