"""What the Inception networks share: modules of branches side by side."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from eval.networks.layers import Net
from vtensor.language.tensor import VTensor

#: A convolution (filters, kernel, then stride and pad where they are not 1 and "same"), or a
#: function of the net and a value.
Step = tuple[Any, ...] | Callable[[Net, VTensor], VTensor]
Layer = Callable[..., VTensor]


def chain(
    net: Net, x: VTensor, name: str, *steps: Step, layer: Layer = Net.conv_bn_relu
) -> VTensor:
    """Steps one after another; ``layer`` is what a convolution stands in."""
    with net.scope(name):
        for index, step in enumerate(steps):
            x = step(net, x) if callable(step) else layer(net, x, str(index), *step)
    return x


def branches(
    net: Net,
    x: VTensor,
    name: str,
    *parts: Sequence[Step],
    layer: Layer = Net.conv_bn_relu,
) -> VTensor:
    """Return a module: a chain for each part, all from ``x``, with their channels concatenated."""
    with net.scope(name):
        ends = (chain(net, x, str(i), *part, layer=layer) for i, part in enumerate(parts))
        return net.concat(*ends)


def max3(net: Net, x: VTensor) -> VTensor:
    """Return the largest element of 3 by 3; the image keeps its size."""
    return net.max_pool(x, 3)


def avg3(net: Net, x: VTensor) -> VTensor:
    """Return the mean of 3 by 3; the image keeps its size."""
    return net.avg_pool(x, 3)


def halved(net: Net, x: VTensor) -> VTensor:
    """Return the largest element of 3 by 3, at every second place."""
    return net.max_pool(x, 3, 2)


def halved_inside(net: Net, x: VTensor) -> VTensor:
    """Return the same as ``halved``, without pads."""
    return net.max_pool(x, 3, 2, "valid")


def stem(net: Net, image: VTensor) -> VTensor:
    """Return 35 by 35 with 192 channels from 299 by 299 pixels, for v3 and Inception-ResNet v2."""
    first = ((32, 3, 2, "valid"), (32, 3, 1, "valid"), (64, 3), halved_inside)
    second = ((80, 1, 1, "valid"), (192, 3, 1, "valid"), halved_inside)
    return chain(net, image, "stem", *first, *second)


def module_a(net: Net, x: VTensor, name: str, first: int, pooled: int) -> VTensor:
    """Return a module of 1 by 1, 5 by 5, twice 3 by 3, pooled, for v3 and Inception-ResNet v2."""
    return branches(
        net,
        x,
        name,
        [(first, 1)],
        [(48, 1), (64, 5)],
        [(64, 1), (96, 3), (96, 3)],
        [avg3, (pooled, 1)],
    )
