"""Inception v2, or BN-Inception.

Ioffe and Szegedy, "Batch Normalization", ICML 2015, appendix; widths and the separable first layer
(each colour by eight kernels of 7 by 7, then 1 by 1) are those of TensorFlow-Slim's inception_v2,
which the tables of TensorFlow's time call by this name. Caffe's, the ``onnx`` package's
light_inception_v2, differs in that layer alone, an ordinary 7 by 7.
"""

from __future__ import annotations

from eval.networks.inception import Step, avg3, branches, chain, halved, max3
from eval.networks.layers import Net
from vtensor.tensor import VTensor

#: Filters: 1 by 1; 3 by 3 and in front of it; twice 3 by 3 and in front of it; behind the pool.
#: None ends a stage: stride 2, no 1 by 1, and nothing behind the pool.
MODULES = {
    "3b": (64, 64, 64, 64, 96, 32),
    "3c": (64, 64, 96, 64, 96, 64),
    "4a": (None, 128, 160, 64, 96, None),
    "4b": (224, 64, 96, 96, 128, 128),
    "4c": (192, 96, 128, 96, 128, 128),
    "4d": (160, 128, 160, 128, 160, 96),
    "4e": (96, 128, 192, 160, 192, 96),
    "5a": (None, 128, 192, 192, 256, None),
    "5b": (352, 192, 320, 160, 224, 128),
    "5c": (352, 192, 320, 192, 224, 128),
}
POOLED_BY_MAXIMUM = "5c"


def inception_v2(net: Net) -> VTensor:
    """The image to 1024 channels of 7 by 7."""
    x = net.depthwise(net.image, "stem/depthwise", 7, 2, multiplier=8, rectified=False)
    x = net.conv(x, "stem/pointwise", 64, 1, rectified=False)
    x = net.relu(net.batch_norm(x, "stem/bn"))
    x = chain(net, x, "stem", halved, (64, 1), (192, 3), halved)
    for name, (one, before_three, three, before_double, double, pooled) in MODULES.items():
        stride = 2 if one is None else 1
        parts: list[list[Step]] = [
            [(before_three, 1), (three, 3, stride)],
            [(before_double, 1), (double, 3), (double, 3, stride)],
        ]
        if one is None:
            parts = [*parts, [halved]]
        else:
            pool = max3 if name == POOLED_BY_MAXIMUM else avg3
            parts = [[(one, 1)], *parts, [pool, (pooled, 1)]]
        x = branches(net, x, name, *parts)
    return x
