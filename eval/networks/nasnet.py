"""NasNet-Large: NASNet-A (6 @ 4032).

Zoph et al., "Learning Transferable Architectures for Scalable Image Recognition", CVPR 2018,
figures 2 and 4; as in Keras Applications' NASNetLarge.
"""

from __future__ import annotations

from eval.networks.layers import Net, pads
from ops.concat import Pad
from vtensor.language.tensor import VTensor

FILTERS = 168  # 4032 penultimate channels are 24 times as many
REPEATS = 6

#: Standard deviation after the batch norms of a cell; the sum of two has about 1 again.
SCALE = 0.75


def nasnet_large(net: Net) -> VTensor:
    """Return the features of the image: 4032 channels of 11 by 11."""
    with net.scope("stem"):
        x = net.batch_norm(net.conv(net.image, "conv", 96, 3, 2, "valid"), "bn")
    before = x  # of a cell's two inputs the older one
    for stem, filters in (("stem1", FILTERS // 4), ("stem2", FILTERS // 2)):
        x, before = _reduction(net, x, before, stem, filters), x
    for stage in range(3):
        filters = FILTERS * 2**stage
        if stage:
            x = _reduction(net, x, before, f"reduce{stage}", filters)
        for index in range(REPEATS):
            x, before = _normal(net, x, before, f"cell{stage}_{index}", filters), x
    return net.relu(x)


def _normal(net: Net, x: VTensor, before: VTensor, name: str, filters: int) -> VTensor:
    """Add a cell that keeps the image's size; ``before`` is the older of its two inputs."""

    def separable(x: VTensor, kernel: int, branch: str) -> VTensor:
        return _separable(net, x, branch, filters, kernel)

    with net.scope(name):
        p = _fitted(net, before, x, filters)
        h = _projected(net, x, "h", filters)
        return net.concat(
            p,
            net.sum(separable(h, 5, "left1"), separable(p, 3, "right1")),
            net.sum(separable(p, 5, "left2"), separable(p, 3, "right2")),
            net.sum(net.avg_pool(h, 3), p),
            net.sum(net.avg_pool(p, 3), net.avg_pool(p, 3)),
            net.sum(separable(h, 3, "left5"), h),
        )


def _reduction(net: Net, x: VTensor, before: VTensor, name: str, filters: int) -> VTensor:
    """Add a cell that halves the image's size; ``before`` is the older of its two inputs."""

    def separable(x: VTensor, kernel: int, branch: str, stride: int = 2) -> VTensor:
        return _separable(net, x, branch, filters, kernel, stride)

    with net.scope(name):
        p = before if before is x else _fitted(net, before, x, filters)
        h = _projected(net, x, "h", filters)
        # As in Keras, the zeros of this pad are part of the maxima and means.
        padded = net.add(Pad(("H", "W"), pads(h, 3, 2)), h)
        first = net.sum(separable(h, 5, "left1"), separable(p, 7, "right1"))
        second = net.sum(net.max_pool(padded, 3, 2, "valid"), separable(p, 7, "right2"))
        third = net.sum(net.avg_pool(padded, 3, 2, "valid"), separable(p, 5, "right3"))
        fourth = net.sum(second, net.avg_pool(first, 3))
        fifth = net.sum(separable(first, 3, "left5", 1), net.max_pool(padded, 3, 2, "valid"))
        return net.concat(second, third, fourth, fifth)


def _fitted(net: Net, before: VTensor, x: VTensor, filters: int) -> VTensor:
    """Return the older input, ``before``, with ``filters`` channels and the size of ``x``."""
    if before.size("H") == x.size("H"):
        if before.size("C") == filters:
            return before
        return _projected(net, before, "before", filters)
    p = net.relu(before)
    shifted = net.add(Pad(("H", "W"), (-1, -1, 1, 1)), p)  # stride 2 starts at the second pixel
    halves = (
        net.conv(net.avg_pool(half, 1, 2, "valid"), f"before{i}", filters // 2, 1)
        for i, half in enumerate((p, shifted))
    )
    return net.batch_norm(net.concat(*halves), "before/bn", scale=SCALE)


def _projected(net: Net, x: VTensor, name: str, filters: int) -> VTensor:
    """Add a rectifier, a convolution of 1 by 1 and a batch norm."""
    with net.scope(name):
        return net.batch_norm(net.conv(net.relu(x), "conv", filters, 1), "bn", scale=SCALE)


def _separable(
    net: Net, x: VTensor, name: str, filters: int, kernel: int, stride: int = 1
) -> VTensor:
    """Add twice a rectifier, a depthwise convolution, one of 1 by 1 and a batch norm.

    Both depthwise kernels have size ``kernel``; the first has ``stride``, the second stride 1.
    """
    with net.scope(name):
        for index, step in enumerate((stride, 1)):
            x = net.depthwise(net.relu(x), f"depthwise{index}", kernel, step)
            x = net.conv(x, f"pointwise{index}", filters, 1, rectified=False)
            x = net.batch_norm(x, f"bn{index}", scale=SCALE if index else 1.0)
    return x
