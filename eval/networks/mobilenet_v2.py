"""MobileNet v2, of width 1.4.

Sandler et al., "MobileNetV2: Inverted Residuals and Linear Bottlenecks", CVPR 2018, table 2; as in
Keras Applications' MobileNetV2(alpha=1.4). The width is that of VTensor's Table 1, which counts
6.13 million parameters: of width 1 it would be 3.5 million.
"""

from __future__ import annotations

from eval.networks.layers import Net
from eval.networks.mobilenet_v1 import bn_relu6
from vtensor.language.tensor import VTensor

WIDTH = 1.4

#: For each stage: expansion, filters at width 1, number of blocks, stride of the first block.
STAGES = (
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)

#: Standard deviation of a residual branch: the sum of many must not reach the rectifier's bound, 6.
RESIDUAL = 0.35


def mobilenet_v2(net: Net) -> VTensor:
    """Return the features of the image: 1792 channels of 7 by 7."""
    x = bn_relu6(net, net.conv(net.image, "conv1", _wide(32), 3, 2), "conv1")
    block = 0
    for expansion, filters, count, first_stride in STAGES:
        for index in range(count):
            stride = 1 if index else first_stride
            x = _block(net, x, f"block{block}", expansion, _wide(filters), stride)
            block += 1
    return bn_relu6(net, net.conv(x, "conv2", _wide(1280), 1, rectified=False), "conv2")


def _block(net: Net, x: VTensor, name: str, expansion: int, filters: int, stride: int) -> VTensor:
    """Add a block: 1 by 1 to more channels, 3 by 3 depthwise, 1 by 1 to fewer.

    If the result has the sizes of ``x``, their sum is returned.

    Args:
        net: the network.
        x: the input.
        name: the scope of the names.
        expansion: by how much the channels are multiplied first.
        filters: the number of output channels.
        stride: the stride of the depthwise convolution.
    """
    y = x
    with net.scope(name):
        if expansion > 1:
            y = net.conv(x, "expand", expansion * x.size("C"), 1, rectified=False)
            y = bn_relu6(net, y, "expand")
        y = bn_relu6(net, net.depthwise(y, "depthwise", 3, stride), "depthwise")
        y = net.conv(y, "project", filters, 1)
        adds = stride == 1 and x.size("C") == filters
        y = net.batch_norm(y, "project/bn", scale=RESIDUAL if adds else 1.0)
        return net.sum(x, y) if adds else y


def _wide(filters: int) -> int:
    """Return a number of filters times ``WIDTH``, rounded to a multiple of 8.

    >>> [_wide(filters) for filters in (16, 24, 32, 1280)]
    [24, 32, 48, 1792]
    """
    return int(filters * WIDTH + 4) // 8 * 8
