"""The layers of which networks are built; the weights of a layer depend on its name and a seed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Literal

from eval.networks.weights import CENTRED, Array, Weights
from ops.batchnorm import BatchNorm
from ops.binary import Add, BiasAdd
from ops.concat import Concat
from ops.convolution import Conv2D, DepthwiseConv2D
from ops.matmul import MatMul
from ops.pooling import AvgPool, MaxPool
from ops.reduce import Mean
from ops.relu import Relu, Relu6
from ops.softmax import Softmax
from vtensor.language.graph import Graph
from vtensor.language.tensor import VTensor

Kernel = int | tuple[int, int]
Pad = int | Literal["same", "valid"]

CLASSES = 1000


class Net:
    """A graph that grows by layers.

    Args:
        name: the graph's name, which also seeds the weights.
        batch: the number of images in a batch; None leaves it open.
        size: height and width of an image, in pixels.
        seed: the seed of the weights.
        centred: the parameter ``centred`` of ``Weights``, from which the weights are drawn.
    """

    def __init__(
        self, name: str, batch: int | None, size: int, seed: int, centred: float = CENTRED
    ) -> None:
        self.graph = Graph(name)
        self.image = self.graph.input("image", {"N": batch, "C": 3, "H": size, "W": size})
        self._draw = Weights(name, seed, centred)

    def add(self, op: object, *inputs: VTensor, name: str = "") -> VTensor:
        """Add an operator with one output, and return the output."""
        value: VTensor = self.graph.add(op, *inputs, name=name)
        return value

    @contextmanager
    def scope(self, name: str) -> Iterator[None]:
        """Put ``name`` in front of the names of all nodes and weights added during the block.

        The values of a weight depend on its whole name.
        """
        outer = self._draw
        self._draw = replace(outer, path=f"{outer.path}/{name}")
        try:
            with self.graph.scope(name):
                yield
        finally:
            self._draw = outer

    def conv(
        self,
        x: VTensor,
        name: str,
        filters: int,
        kernel: Kernel,
        stride: int = 1,
        pad: Pad = "same",
        *,
        bias: bool = False,
        rectified: bool = True,
    ) -> VTensor:
        """Add a convolution.

        Args:
            x: the image.
            name: the layer's name.
            filters: the number of output channels.
            kernel: height and width of the kernel, or one number for both.
            stride: the stride along H and W.
            pad: ``same``, ``valid`` (none), or a number of elements for each side.
            bias: True adds a bias, too.
            rectified: True if ``x`` is the output of a rectifier; the weights' scale depends on it.
        """
        window = _window(x, kernel, stride, pad)
        shape = (filters, x.size("C"), *window.pop("kernel_shape"))
        w = self._weights(name, self._draw.kernel(name, shape, rectified), "O I h w")
        y = self.add(Conv2D(**window), x, w, name=name)
        return self.bias_add(y, name) if bias else y

    def depthwise(
        self,
        x: VTensor,
        name: str,
        kernel: int,
        stride: int = 1,
        *,
        multiplier: int = 1,
        rectified: bool = True,
    ) -> VTensor:
        """Add a convolution of each channel by itself, with pads ``same``.

        Args:
            x: the image.
            name: the layer's name.
            kernel: height and width of the kernels.
            stride: the stride along H and W.
            multiplier: the number of kernels for each channel.
            rectified: as for ``conv``.
        """
        shape = (x.size("C"), multiplier, 1, kernel, kernel)
        w = self._weights(name, self._draw.taps(name, shape, rectified), "G O I h w")
        op = DepthwiseConv2D((stride, stride), pads(x, kernel, stride))
        return self.add(op, x, w, name=name)

    def dense(
        self, x: VTensor, name: str, units: int, out: str, *, rectified: bool = True
    ) -> VTensor:
        """Add a product of ``x`` and a matrix, and a bias; it sums over the dim of ``x`` besides N.

        Args:
            x: a value with two dims.
            name: the layer's name.
            units: the size of the result's dim.
            out: the name of the result's dim.
            rectified: as for ``conv``.
        """
        [over] = set(x.dims) - {"N"}
        drawn = self._draw.kernel(name, (units, x.size(over)), rectified)
        w = self._weights(name, drawn, f"{out} {over}")
        return self.bias_add(self.add(MatMul(over), x, w, name=name), name, out)

    def bias_add(self, x: VTensor, name: str, dim: str = "C") -> VTensor:
        """Add a bias along ``dim``."""
        bias = self._draw.around(f"{name}/bias", x.size(dim), 0.0, 0.1)
        b = self.graph.constant(bias, dim, f"{name}/bias")
        return self.add(BiasAdd(), x, b, name=f"{name}/biasadd")

    def batch_norm(
        self, x: VTensor, name: str, *, scale: float = 1.0, epsilon: float = 1e-3
    ) -> VTensor:
        """Add a batch norm over the channels.

        ``scale`` is the approximate standard deviation of its output.
        """
        drawn = self._draw.statistics(name, x.size("C"), scale)
        vectors = [
            self.graph.constant(array, "C", f"{name}/{role}") for role, array in drawn.items()
        ]
        return self.add(BatchNorm(epsilon), x, *vectors, name=name)

    def relu(self, x: VTensor, name: str = "") -> VTensor:
        """Add a rectifier."""
        return self.add(Relu(), x, name=name)

    def relu6(self, x: VTensor) -> VTensor:
        """Add a rectifier with the upper bound 6."""
        return self.add(Relu6(), x)

    def conv_relu(self, x: VTensor, name: str, *shape: Any) -> VTensor:
        """Add a convolution with bias and a rectifier; ``shape`` goes to ``conv``."""
        return self.relu(self.conv(x, name, *shape, bias=True), f"{name}/relu")

    def conv_bn_relu(self, x: VTensor, name: str, *shape: Any) -> VTensor:
        """Add a convolution, a batch norm and a rectifier; ``shape`` goes to ``conv``."""
        with self.scope(name):
            return self.relu(self.batch_norm(self.conv(x, "conv", *shape), "bn"))

    def max_pool(self, x: VTensor, kernel: int, stride: int = 1, pad: Pad = "same") -> VTensor:
        """Add the maximum of each window; ``pad`` as for ``conv``."""
        return self.add(MaxPool(**_window(x, kernel, stride, pad)), x)

    def avg_pool(self, x: VTensor, kernel: int, stride: int = 1, pad: Pad = "same") -> VTensor:
        """Add the mean of each window, in which pads do not count; ``pad`` as for ``conv``."""
        return self.add(AvgPool(**_window(x, kernel, stride, pad)), x)

    def concat(self, *parts: VTensor) -> VTensor:
        """Add a concatenation along the channels."""
        return self.add(Concat("C"), *parts)

    def sum(self, a: VTensor, b: VTensor) -> VTensor:
        """Add an operator that computes a + b."""
        return self.add(Add(), a, b)

    def classify(self, x: VTensor) -> Graph:
        """Add the end of every network, and return the sealed graph.

        The end is a mean over the image, a product that computes logits, and a Softmax.

        Args:
            x: the features.
        """
        if "H" in x.dims:
            x = self.add(Mean(("H", "W"), keepdims=False), x)
        logits = self.dense(x, "logits", CLASSES, "K", rectified=False)
        self.graph.output(self.add(Softmax(("K",)), logits, name="probabilities"))
        return self.graph.seal()

    def _weights(self, name: str, array: Array, dims: str) -> VTensor:
        return self.graph.constant(array, dims, f"{name}/weights")


def _pair(kernel: Kernel) -> tuple[int, int]:
    return (kernel, kernel) if isinstance(kernel, int) else kernel


def _window(x: VTensor, kernel: Kernel, stride: int, pad: Pad) -> dict[str, Any]:
    """Return, by name, the parameters of a window that slides over ``x``.

    They are ``kernel_shape``, ``strides`` and ``pads``.
    """
    return {
        "kernel_shape": _pair(kernel),
        "strides": (stride, stride),
        "pads": pads(x, kernel, stride, pad),
    }


def pads(x: VTensor, kernel: Kernel, stride: int, pad: Pad = "same") -> tuple[int, int, int, int]:
    """Return the pads in elements: begin H, begin W, end H, end W.

    Args:
        x: the image.
        kernel, stride: of the window.
        pad: ``same``, ``valid`` (none), or a number for each side.
    """
    if isinstance(pad, int):
        return (pad,) * 4
    if pad == "valid":
        return (0,) * 4
    (top, bottom), (left, right) = (
        same(x.size(dim), reach, stride) for dim, reach in zip("HW", _pair(kernel), strict=True)
    )
    return (top, left, bottom, right)


def same(size: int, kernel: int, stride: int) -> tuple[int, int]:
    """Return the fewest pads (before, after) with which ceil(size / stride) windows fit.

    If their sum is odd, there is one more after than before.

    Source: TensorFlow, tf.nn, "Notes on padding": SAME.

    >>> same(224, 7, 2), same(147, 3, 2), same(56, 3, 1)
    ((2, 3), (1, 1), (1, 1))
    """
    total = max((-(-size // stride) - 1) * stride + kernel - size, 0)
    return total // 2, total - total // 2
