"""GoogLeNet, or Inception v1.

Szegedy et al., "Going Deeper with Convolutions", CVPR 2015, table 1, without the auxiliary
classifiers, which serve training. Of the definitions that go by the name this is the first one:
biases, no batch norm, and local response normalization after the first and the third convolution
(section 5; parameters as in Caffe's bvlc_googlenet, the ``onnx`` package's light_inception_v1). It
is the only one of the twelve networks with LRN, one of the paper's sixteen operators.
"""

from __future__ import annotations

from eval.networks.inception import branches, chain, halved, max3
from eval.networks.layers import Net
from ops.lrn import LRN
from vtensor.language.tensor import VTensor

#: Numbers of filters in each module: of the 1 by 1 alone; of the 1 by 1 before the 3 by 3, and of
#: the 3 by 3; of the 1 by 1 before the 5 by 5, and of the 5 by 5; of the 1 by 1 after the pool.
MODULES = {
    "3a": (64, 96, 128, 16, 32, 32),
    "3b": (128, 128, 192, 32, 96, 64),
    "4a": (192, 96, 208, 16, 48, 64),
    "4b": (160, 112, 224, 24, 64, 64),
    "4c": (128, 128, 256, 24, 64, 64),
    "4d": (112, 144, 288, 32, 64, 64),
    "4e": (256, 160, 320, 32, 128, 128),
    "5a": (256, 160, 320, 32, 128, 128),
    "5b": (384, 192, 384, 48, 128, 128),
}
POOLED_BEFORE = ("3a", "4a", "5a")


def _normalize(net: Net, x: VTensor) -> VTensor:
    return net.add(LRN(5), x)


def googlenet(net: Net) -> VTensor:
    """Return the features of the image: 1024 channels of 7 by 7."""
    steps = ((64, 7, 2), halved, _normalize, (64, 1), (192, 3), _normalize)
    x = chain(net, net.image, "stem", *steps, layer=Net.conv_relu)
    for name, (single, before_three, three, before_five, five, pooled) in MODULES.items():
        x = branches(
            net,
            chain(net, x, name, halved) if name in POOLED_BEFORE else x,
            name,
            [(single, 1)],
            [(before_three, 1), (three, 3)],
            [(before_five, 1), (five, 5)],
            [max3, (pooled, 1)],
            layer=Net.conv_relu,
        )
    return x
