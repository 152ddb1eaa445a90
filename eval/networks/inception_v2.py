"""Inception v2, or BN-Inception.

Ioffe and Szegedy, "Batch Normalization", ICML 2015, appendix; widths and the separable first layer
(each colour by eight kernels of 7 by 7, then 1 by 1) are those of TensorFlow-Slim's inception_v2,
the network of this name in tables of TensorFlow's time. Caffe's, the ``onnx`` package's
light_inception_v2, differs only in that layer, which is an ordinary 7 by 7.
"""

from __future__ import annotations

from eval.networks.inception import avg3, branches, chain, halved, max3
from eval.networks.layers import Net
from vtensor.language.tensor import VTensor

#: Numbers of filters in each module: of the 1 by 1 alone; of the 1 by 1 before the 3 by 3, and of
#: the 3 by 3; of the 1 by 1 before two 3 by 3, and of each of those; of the 1 by 1 after the pool.
#: A module with four numbers halves the image, and lacks the first and the last of these.
MODULES = {
    "3b": (64, 64, 64, 64, 96, 32),
    "3c": (64, 64, 96, 64, 96, 64),
    "4a": (128, 160, 64, 96),
    "4b": (224, 64, 96, 96, 128, 128),
    "4c": (192, 96, 128, 96, 128, 128),
    "4d": (160, 128, 160, 128, 160, 96),
    "4e": (96, 128, 192, 160, 192, 96),
    "5a": (128, 192, 192, 256),
    "5b": (352, 192, 320, 160, 224, 128),
    "5c": (352, 192, 320, 192, 224, 128),
}
POOLED_BY_MAXIMUM = "5c"


def inception_v2(net: Net) -> VTensor:
    """Return the features of the image: 1024 channels of 7 by 7."""
    with net.scope("stem"):
        x = net.depthwise(net.image, "depthwise", 7, 2, multiplier=8, rectified=False)
        x = net.conv(x, "pointwise", 64, 1, rectified=False)
        x = net.relu(net.batch_norm(x, "bn"))
    x = chain(net, x, "stem", halved, (64, 1), (192, 3), halved)
    for name, filters in MODULES.items():
        module = _halving if len(filters) == 4 else _module
        x = module(net, x, name, *filters)
    return x


def _module(net: Net, x: VTensor, name: str, *filters: int) -> VTensor:
    single, before_three, three, before_double, double, pooled = filters
    return branches(
        net,
        x,
        name,
        [(single, 1)],
        [(before_three, 1), (three, 3)],
        [(before_double, 1), (double, 3), (double, 3)],
        [max3 if name == POOLED_BY_MAXIMUM else avg3, (pooled, 1)],
    )


def _halving(net: Net, x: VTensor, name: str, *filters: int) -> VTensor:
    before_three, three, before_double, double = filters
    return branches(
        net,
        x,
        name,
        [(before_three, 1), (three, 3, 2)],
        [(before_double, 1), (double, 3), (double, 3, 2)],
        [halved],
    )
