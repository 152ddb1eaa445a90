"""Small networks whose weights are packed, folded, read as they lie, or small."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper

from ops import (
    Add,
    AvgPool,
    BatchNorm,
    BiasAdd,
    Concat,
    Conv2D,
    Gather,
    LayerNormalization,
    MatMul,
    MaxPool,
    Mul,
    Relu,
    Softmax,
    Tanh,
)
from vtensor import Graph, save_onnx


class Net(Graph):
    """A graph with seeded constants."""

    def __init__(self) -> None:
        super().__init__("net")
        self.random = np.random.default_rng(0)

    def w(self, dims: str, *sizes: int, scale: float = 0.1) -> Any:
        """A constant."""
        array = self.random.standard_normal(sizes, np.float32) * np.float32(scale)
        return self.constant(np.abs(array) if dims == "C" else array, dims)

    def image(self, channels: int = 16, size: int = 8) -> Any:
        """The input."""
        return self.input("x", {"N": 1, "C": channels, "H": size, "W": size})

    def conv(self, x: Any, out: int, kernel: int = 3, **given: Any) -> Any:
        """A convolution."""
        pads = (kernel // 2,) * 4
        return self.add(
            Conv2D(pads=pads, **given), x, self.w("O I h w", out, x.size("C"), kernel, kernel)
        )

    def norm(self, x: Any) -> Any:
        """A batch normalization."""
        return self.add(BatchNorm(1e-3), x, *(self.w("C", x.size("C"), scale=1) for _ in range(4)))


def relu(g: Net) -> Any:
    return g.add(Relu(), g.image())


def plain(g: Net) -> Any:
    """A weight that is read when it is packed."""
    return g.add(Relu(), g.conv(g.image(64), 64))


def folded(g: Net) -> Any:
    """A weight of that kind that is scaled."""
    return g.add(Relu(), g.norm(g.conv(g.image(64), 64)))


def small(g: Net) -> Any:
    return g.add(Relu(), g.norm(g.conv(g.image(), 16)))


def residual(g: Net) -> Any:
    x = g.image(64)
    for _ in range(3):
        x = g.add(Relu(), g.add(Add(), x, g.norm(g.conv(x, 64))))
    return g.add(MaxPool(kernel_shape=(2, 2), strides=(2, 2)), x)


def grouped(g: Net) -> Any:
    x = g.norm(g.conv(g.image(64), 128, 1))
    w = g.w("G O I h w", 128, 1, 1, 3, 3)
    y = g.add(Conv2D(pads=(1, 1, 1, 1), group=128), x, w)
    return g.conv(g.add(Relu(), y), 256, 1)


def joined(g: Net) -> Any:
    x = g.image(64)
    parts = [g.add(Relu(), g.conv(x, 64, kernel)) for kernel in (1, 3)]
    return g.add(AvgPool(kernel_shape=(2, 2)), g.add(Concat("C"), *parts))


def product(g: Net) -> Any:
    x = g.input("x", {"N": 4, "C": 256})
    y = g.add(BiasAdd(), g.add(MatMul("C"), x, g.w("C O", 256, 128)), g.w("O", 128))
    return g.add(Softmax(("O",)), y)


def words(g: Net) -> Any:
    """A large table that is read as it lies."""
    table = g.w("word C", 600, 64)
    rows = g.add(Gather("word"), table, g.input("x", {"N": 2, "T": 5}, "s64"))
    return g.add(LayerNormalization(("C",)), rows, g.w("C", 64))[0]


def transformer(g: Net) -> Any:
    x = g.input("x", {"B": 2, "T": 7, "C": 128})
    y = g.add(LayerNormalization(("C",)), x, g.w("C", 128))[0]
    y = g.add(BiasAdd(), g.add(MatMul("C"), y, g.w("C O", 128, 256)), g.w("O", 256))
    return g.add(Add(), x, g.add(MatMul("O"), g.add(Tanh(), y), g.w("O C", 256, 128)))


def scaled(g: Net) -> Any:
    return g.add(Mul(), g.conv(g.image(64), 64), g.constant(np.array(0.5, np.float32), ""))


NETS: Mapping[str, Callable[[Net], Any]] = {
    one.__name__: one
    for one in (
        *(relu, plain, folded, small, residual, grouped, joined, product, words, transformer),
        scaled,
    )
}


def written(name: str, path: Path, seed: int = 0) -> Path:
    """A network's file."""
    g = Net()
    g.random = np.random.default_rng(seed)
    g.output(NETS[name](g), "y")
    write(g, path)
    return path


def with_weights_in_nodes(g: Graph, path: Path) -> None:
    """Write a graph as other exporters do: its weights are in ``Constant`` nodes."""
    save_onnx(g, path)
    model = onnx.load(path)
    weights = [*model.graph.initializer]
    del model.graph.initializer[:], model.metadata_props[:]
    for weight in reversed(weights):
        model.graph.node.insert(0, helper.make_node("Constant", [], [weight.name], value=weight))
    onnx.save(model, path)


#: How networks are written.
write: Callable[[Graph, Path], None] = save_onnx
