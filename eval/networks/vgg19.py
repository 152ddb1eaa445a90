"""VGG19.

Simonyan and Zisserman, "Very Deep Convolutional Networks for Large-Scale Image Recognition", 2014,
table 1, column E; as in Keras Applications' VGG19. Another image size is another number of
parameters: the first matrix takes the whole last image.
"""

from __future__ import annotations

from math import prod

from eval.networks.layers import Net
from ops.reshape import Reshape
from vtensor.language.tensor import VTensor

#: Filters and convolutions of each block.
BLOCKS = ((64, 2), (128, 2), (256, 4), (512, 4), (512, 4))


def vgg19(net: Net) -> VTensor:
    """Return the features of the image: 4096 numbers."""
    x = net.image
    for block, (filters, count) in enumerate(BLOCKS, 1):
        with net.scope(f"block{block}"):
            for index in range(1, count + 1):
                x = net.conv_relu(x, f"conv{index}", filters, 3)
            x = net.max_pool(x, 2, 2)
    flat = (("N", x.size("N")), ("F", prod(x.size(dim) for dim in "CHW")))
    x = net.relu(net.dense(net.add(Reshape(flat), x), "fc1", 4096, "A"), "fc1/relu")
    return net.relu(net.dense(x, "fc2", 4096, "B"), "fc2/relu")
