"""Layers that the Inception networks share: modules of parallel branches."""

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
    """Add steps one after another, and return the last one's result.

    Args:
        net: the network.
        x: the input of the first step.
        name: the scope of the steps' names.
        steps: the steps.
        layer: adds the layer of a step that gives a convolution.
    """
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
    """Add a module: chains of ``parts``, all from ``x``, with their channels concatenated.

    ``name`` and ``layer`` are those of ``chain``.
    """
    with net.scope(name):
        ends = (chain(net, x, str(i), *part, layer=layer) for i, part in enumerate(parts))
        return net.concat(*ends)


def max3(net: Net, x: VTensor) -> VTensor:
    """Add a maximum over windows of 3 by 3; the image keeps its size."""
    return net.max_pool(x, 3)


def avg3(net: Net, x: VTensor) -> VTensor:
    """Add a mean over windows of 3 by 3; the image keeps its size."""
    return net.avg_pool(x, 3)


def halved(net: Net, x: VTensor) -> VTensor:
    """Add a maximum over windows of 3 by 3 with stride 2, with pads ``same``."""
    return net.max_pool(x, 3, 2)


def halved_inside(net: Net, x: VTensor) -> VTensor:
    """Add a maximum over windows of 3 by 3 with stride 2, without pads."""
    return net.max_pool(x, 3, 2, "valid")


def stem(net: Net, image: VTensor) -> VTensor:
    """Add the first layers of Inception v3 and Inception-ResNet v2.

    From 299 by 299 pixels they compute 192 channels of 35 by 35.
    """
    first = ((32, 3, 2, "valid"), (32, 3, 1, "valid"), (64, 3), halved_inside)
    second = ((80, 1, 1, "valid"), (192, 3, 1, "valid"), halved_inside)
    return chain(net, image, "stem", *first, *second)


def module_a(net: Net, x: VTensor, name: str, first: int, pooled: int) -> VTensor:
    """Add a module that Inception v3 and Inception-ResNet v2 share.

    Its branches are 1 by 1, 5 by 5, twice 3 by 3, and a mean.

    Args:
        net: the network.
        x: the input.
        name: the scope of the module's names.
        first: the number of filters of the first branch.
        pooled: the number of filters of the branch with the mean.
    """
    return branches(
        net,
        x,
        name,
        [(first, 1)],
        [(48, 1), (64, 5)],
        [(64, 1), (96, 3), (96, 3)],
        [avg3, (pooled, 1)],
    )
