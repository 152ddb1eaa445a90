"""Small networks whose weights are packed, scaled, read in place, or small."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

import ops
from vtensor import Graph, save_onnx


class Net(Graph):
    """A graph with seeded constants."""

    def __init__(self) -> None:
        super().__init__("net")
        self.random = np.random.default_rng(0)

    def w(self, dims: str, *sizes: int, scale: float = 0.1) -> Any:
        array = self.random.standard_normal(sizes, np.float32) * np.float32(scale)
        return self.constant(np.abs(array) if dims == "C" else array, dims)

    def image(self, channels: int = 16, size: int = 8) -> Any:
        return self.input("x", {"N": 1, "C": channels, "H": size, "W": size})

    def conv(self, x: Any, out: int, kernel: int = 3) -> Any:
        w = self.w("O I h w", out, x.size("C"), kernel, kernel)
        return self.add(ops.Conv2D(pads=(kernel // 2,) * 4), x, w)

    def norm(self, x: Any) -> Any:
        return self.add(
            ops.BatchNorm(1e-3), x, *(self.w("C", x.size("C"), scale=1) for _ in range(4))
        )


def residual(g: Net) -> Any:
    x = g.image(64)
    for _ in range(3):
        x = g.add(ops.Relu(), g.add(ops.Add(), x, g.norm(g.conv(x, 64))))
    return g.add(ops.MaxPool(kernel_shape=(2, 2), strides=(2, 2)), x)


def grouped(g: Net) -> Any:
    x = g.norm(g.conv(g.image(64), 128, 1))
    w = g.w("G O I h w", 128, 1, 1, 3, 3)
    y = g.add(ops.Conv2D(pads=(1, 1, 1, 1), group=128), x, w)
    return g.conv(g.add(ops.Relu(), y), 256, 1)


def joined(g: Net) -> Any:
    x = g.image(64)
    parts = [g.add(ops.Relu(), g.conv(x, 64, kernel)) for kernel in (1, 3)]
    return g.add(ops.AvgPool(kernel_shape=(2, 2)), g.add(ops.Concat("C"), *parts))


def product(g: Net) -> Any:
    x = g.input("x", {"N": 4, "C": 256})
    y = g.add(ops.BiasAdd(), g.add(ops.MatMul("C"), x, g.w("C O", 256, 128)), g.w("O", 128))
    return g.add(ops.Softmax(("O",)), y)


def words(g: Net) -> Any:
    """Return rows of a large table, which is read in place."""
    table = g.w("word C", 600, 64)
    rows = g.add(ops.Gather("word"), table, g.input("x", {"N": 2, "T": 5}, "s64"))
    return g.add(ops.LayerNormalization(("C",)), rows, g.w("C", 64))[0]


def transformer(g: Net) -> Any:
    x = g.input("x", {"B": 2, "T": 7, "C": 128})
    y = g.add(ops.LayerNormalization(("C",)), x, g.w("C", 128))[0]
    y = g.add(ops.BiasAdd(), g.add(ops.MatMul("C"), y, g.w("C O", 128, 256)), g.w("O", 256))
    return g.add(ops.Add(), x, g.add(ops.MatMul("O"), g.add(ops.Tanh(), y), g.w("O C", 256, 128)))


NETS: Mapping[str, Callable[[Net], Any]] = {
    "relu": lambda g: g.add(ops.Relu(), g.image()),
    "plain": lambda g: g.add(ops.Relu(), g.conv(g.image(64), 64)),
    "folded": lambda g: g.add(ops.Relu(), g.norm(g.conv(g.image(64), 64))),
    "small": lambda g: g.add(ops.Relu(), g.norm(g.conv(g.image(), 16))),
    "residual": residual,
    "grouped": grouped,
    "joined": joined,
    "product": product,
    "words": words,
    "transformer": transformer,
    "scaled": lambda g: g.add(
        ops.Mul(), g.conv(g.image(64), 64), g.constant(np.array(0.5, np.float32), "")
    ),
}


def written(name: str, path: Path, seed: int = 0) -> Path:
    """Write a network's file."""
    g = Net()
    g.random = np.random.default_rng(seed)
    g.output(NETS[name](g), "y")
    save_onnx(g, path)
    return path
