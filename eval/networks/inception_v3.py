"""Inception v3.

Szegedy et al., "Rethinking the Inception Architecture for Computer Vision", CVPR 2016; as in Keras
Applications' InceptionV3.
"""

from __future__ import annotations

from eval.networks.inception import avg3, branches, chain, halved_inside, module_a, stem
from eval.networks.layers import Net
from vtensor.language.tensor import VTensor


def inception_v3(net: Net) -> VTensor:
    """Return the features of the image: 2048 channels of 8 by 8."""
    x = stem(net, net.image)
    for index, pooled in enumerate((32, 64, 64)):
        x = module_a(net, x, f"mixed{index}", 64, pooled)
    to_17 = [(64, 1), (96, 3), (96, 3, 2, "valid")]
    x = branches(net, x, "mixed3", [(384, 3, 2, "valid")], to_17, [halved_inside])
    for index, width in enumerate((128, 160, 160, 192), 4):
        x = _module_b(net, x, f"mixed{index}", width)
    x = branches(
        net,
        x,
        "mixed8",
        [(192, 1), (320, 3, 2, "valid")],
        [(192, 1), (192, (1, 7)), (192, (7, 1)), (192, 3, 2, "valid")],
        [halved_inside],
    )
    return _module_c(net, _module_c(net, x, "mixed9"), "mixed10")


def _module_b(net: Net, x: VTensor, name: str, width: int) -> VTensor:
    """Add a module with branches of 1 by 1, 7 by 7, twice 7 by 7, and a mean.

    A pair of 1 by 7 and 7 by 1 replaces each 7 by 7. ``width`` is the number of filters of all but
    the last convolution of these branches.
    """
    row, column = (1, 7), (7, 1)
    return branches(
        net,
        x,
        name,
        [(192, 1)],
        [(width, 1), (width, row), (192, column)],
        [(width, 1), (width, column), (width, row), (width, column), (192, row)],
        [avg3, (192, 1)],
    )


def _module_c(net: Net, x: VTensor, name: str) -> VTensor:
    """Add a module, two branches of which end in 1 by 3 and 3 by 1 in parallel."""
    with net.scope(name):
        once = chain(net, x, "once", (384, 1))
        twice = chain(net, x, "twice", (448, 1), (384, 3))
        return net.concat(
            net.conv_bn_relu(x, "one", 320, 1),
            branches(net, once, "once/split", [(384, (1, 3))], [(384, (3, 1))]),
            branches(net, twice, "twice/split", [(384, (1, 3))], [(384, (3, 1))]),
            chain(net, x, "pool", avg3, (192, 1)),
        )
