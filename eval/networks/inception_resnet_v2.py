"""Inception-ResNet v2.

Szegedy et al., "Inception-v4, Inception-ResNet and the Impact of Residual Connections on Learning",
AAAI 2017; as in Keras Applications' InceptionResNetV2.
"""

from __future__ import annotations

import numpy as np

from eval.networks.inception import Step, branches, halved_inside, module_a, stem
from eval.networks.layers import Net
from ops.binary import Mul
from vtensor.language.tensor import VTensor

Parts = tuple[tuple[Step, ...], ...]

BLOCK_35: Parts = (((32, 1),), ((32, 1), (32, 3)), ((32, 1), (48, 3), (64, 3)))
BLOCK_17: Parts = (((192, 1),), ((128, 1), (160, (1, 7)), (192, (7, 1))))
BLOCK_8: Parts = (((192, 1),), ((192, 1), (224, (1, 3)), (256, (3, 1))))

TO_17: Parts = (
    ((384, 3, 2, "valid"),),
    ((256, 1), (256, 3), (384, 3, 2, "valid")),
    (halved_inside,),
)
TO_8: Parts = (
    ((256, 1), (384, 3, 2, "valid")),
    ((256, 1), (288, 3, 2, "valid")),
    ((256, 1), (288, 3), (320, 3, 2, "valid")),
    (halved_inside,),
)


def inception_resnet_v2(net: Net) -> VTensor:
    """Return the features of the image: 1536 channels of 8 by 8."""
    x = module_a(net, stem(net, net.image), "mixed_5b", 96, 64)
    for index in range(1, 11):
        x = _residual(net, x, f"block35_{index}", BLOCK_35, 0.17)
    x = branches(net, x, "mixed_6a", *TO_17)
    for index in range(1, 21):
        x = _residual(net, x, f"block17_{index}", BLOCK_17, 0.1)
    x = branches(net, x, "mixed_7a", *TO_8)
    for index in range(1, 10):
        x = _residual(net, x, f"block8_{index}", BLOCK_8, 0.2)
    x = _residual(net, x, "block8_10", BLOCK_8, 1.0, rectify=False)
    return net.conv_bn_relu(x, "conv_7b", 1536, 1)


def _residual(
    net: Net, x: VTensor, name: str, parts: Parts, scale: float, *, rectify: bool = True
) -> VTensor:
    """Add x + scale * f(x); f concatenates the branches ``parts``, then convolves by 1 by 1.

    Section 3.3 has the reason for the scale: training is unstable without.

    Args:
        net: the network.
        x: the input.
        name: the scope of the names.
        parts: the branches.
        scale: the factor.
        rectify: add a ReLU to the sum.
    """
    mixed = branches(net, x, name, *parts)
    with net.scope(name):
        up = net.conv(mixed, "up", x.size("C"), 1, bias=True)
        factor = net.graph.constant(np.float32(scale), "", "factor")
        y = net.sum(x, net.add(Mul(), up, factor))
        return net.relu(y) if rectify else y
