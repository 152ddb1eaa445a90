"""A small network."""

from __future__ import annotations

from eval.networks.layers import Net
from vtensor import Graph


def block() -> Graph:
    """Two convolutions, each with a bias, a batch norm and a rectifier behind it."""
    net = Net("block", 2, 16, 0)
    x = net.image
    for name in ("first", "second"):
        x = net.relu(net.batch_norm(net.conv(x, name, 32, 3, bias=True), f"{name}/bn"))
    net.graph.output(x)
    return net.graph.seal()
