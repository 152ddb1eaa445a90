"""The frameworks, those that are installed."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import pytest
from numpy.typing import NDArray

from eval.peers.walk import Framework
from vtensor import Graph

Array = NDArray[Any]


@dataclass(frozen=True)
class Emitting:
    """A framework, and its module."""

    name: str
    module: Any

    @property
    def framework(self) -> Framework:
        """What the walk is told of it."""
        made: Framework = self.module.FRAMEWORK
        return made

    def run(self, graph: Graph, feeds: Mapping[str, Array]) -> list[Array]:
        """Its outputs, axes as presented."""
        function = self.module.emit(graph)
        return self.framework.arrays(graph, function(self.framework.feeds(graph, feeds)))


@pytest.fixture(autouse=True, scope="session")
def triton_first() -> None:
    """TensorFlow and PyTorch's compiler both have LLVM: the compiler's aborts if it is second."""
    with suppress(ImportError):
        import_module("triton")


@pytest.fixture(scope="session", params=["pytorch", "tensorflow"])
def emitting(request: pytest.FixtureRequest) -> Emitting:
    """Each of them; skipped where it is not installed."""
    pytest.importorskip("torch" if request.param == "pytorch" else "tensorflow")
    return Emitting(request.param, import_module(f"eval.peers.{request.param}"))
