"""DenseNet-169.

Huang et al., "Densely Connected Convolutional Networks", CVPR 2017, table 1; as in Keras
Applications' DenseNet169.
"""

from __future__ import annotations

from eval.networks.layers import Net
from vtensor.language.tensor import VTensor

BLOCKS = (6, 12, 32, 32)
GROWTH = 32
EPSILON = 1.001e-5


def densenet169(net: Net) -> VTensor:
    """Return the features of the image: 1664 channels of 7 by 7."""
    with net.scope("conv1"):
        x = net.conv(net.image, "conv", 64, 7, 2, pad=3)
        x = net.max_pool(_bn_relu(net, x, "bn"), 3, 2, pad=1)
    for block, layers in enumerate(BLOCKS, 2):
        if block > 2:
            x = _transition(net, x, f"pool{block - 1}")
        for index in range(1, layers + 1):
            x = _layer(net, x, f"conv{block}_block{index}")
    return _bn_relu(net, x, "bn")


def _transition(net: Net, x: VTensor, name: str) -> VTensor:
    """Add a transition, after which the channels, the height and the width are halved."""
    with net.scope(name):
        x = net.conv(_bn_relu(net, x, "bn"), "conv", x.size("C") // 2, 1)
        return net.avg_pool(x, 2, 2, "valid")


def _layer(net: Net, x: VTensor, name: str) -> VTensor:
    """Add a layer, and return the channels of ``x`` followed by its ``GROWTH`` new ones."""
    with net.scope(name):
        y = net.conv(_bn_relu(net, x, "0_bn"), "1_conv", 4 * GROWTH, 1)
        return net.concat(x, net.conv(_bn_relu(net, y, "1_bn"), "2_conv", GROWTH, 3))


def _bn_relu(net: Net, x: VTensor, name: str) -> VTensor:
    return net.relu(net.batch_norm(x, name, epsilon=EPSILON), f"{name}/relu")
