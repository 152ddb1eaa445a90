"""MobileNet v1, of width 1.

Howard et al., "MobileNets: Efficient Convolutional Neural Networks for Mobile Vision Applications",
2017, table 1; as in Keras Applications' MobileNet, whose last convolution, on an image of 1 by 1,
is a matrix product here.
"""

from __future__ import annotations

from eval.networks.layers import Net
from vtensor.language.tensor import VTensor

#: Filters and stride of each pair of a depthwise convolution and one of 1 by 1.
PAIRS = (
    *((64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2)),
    *[(512, 1)] * 5,
    *((1024, 2), (1024, 1)),
)


def mobilenet_v1(net: Net) -> VTensor:
    """Return the features of the image: 1024 channels of 7 by 7."""
    x = bn_relu6(net, net.conv(net.image, "conv1", 32, 3, 2), "conv1")
    for index, (filters, stride) in enumerate(PAIRS, 1):
        depthwise, pointwise = f"depthwise{index}", f"pointwise{index}"
        x = bn_relu6(net, net.depthwise(x, depthwise, 3, stride), depthwise)
        x = bn_relu6(net, net.conv(x, pointwise, filters, 1), pointwise)
    return x


def bn_relu6(net: Net, x: VTensor, name: str) -> VTensor:
    """Add a batch norm and a rectifier with the upper bound 6; ``name`` is the norm's scope."""
    with net.scope(name):
        return net.relu6(net.batch_norm(x, "bn"))
