"""The frameworks that are installed, and a small network."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import pytest
from numpy.typing import NDArray

from eval.networks.layers import Net
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
        """What the walk is told of the framework."""
        framework: Framework = self.module.FRAMEWORK
        return framework

    def run(self, graph: Graph, feeds: Mapping[str, Array]) -> list[Array]:
        """Return a graph's outputs, axes as presented."""
        function = self.module.emit(graph)
        return self.framework.arrays(graph, function(self.framework.feeds(graph, feeds)))


def block() -> Graph:
    """Build two convolutions, each with a bias, a batch norm and a rectifier."""
    net = Net("block", 2, 16, 0)
    x = net.image
    for name in ("first", "second"):
        x = net.relu(net.batch_norm(net.conv(x, name, 32, 3, bias=True), f"{name}/bn"))
    net.graph.output(x)
    return net.graph.seal()


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
