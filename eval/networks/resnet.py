"""ResNet-50, ResNet-101 and ResNet-152.

He et al., "Deep Residual Learning for Image Recognition", CVPR 2016, table 1; as in Keras
Applications' ResNet50, ResNet101 and ResNet152: a stage's stride is that of its first convolution,
1 by 1, and convolutions have biases though batch norms follow.
"""

from __future__ import annotations

from functools import partial

from eval.networks.layers import Net
from vtensor.language.tensor import VTensor

EPSILON = 1.001e-5


def resnet(net: Net, blocks: tuple[int, int, int, int]) -> VTensor:
    """Return the features of the image: 2048 channels of 7 by 7.

    Args:
        net: the network.
        blocks: the number of blocks of each stage.
    """
    with net.scope("conv1"):
        x = net.conv(net.image, "conv", 64, 7, 2, pad=3, bias=True)
        x = net.relu(net.batch_norm(x, "bn", epsilon=EPSILON))
        x = net.max_pool(x, 3, 2, pad=1)
    for stage, count in enumerate(blocks):
        for index in range(count):
            name, filters = f"conv{stage + 2}_block{index + 1}", 64 * 2**stage
            stride = 2 if stage and not index else 1
            x = _block(net, x, name, filters, stride, sum(blocks) ** -0.5)
    return x


def _block(net: Net, x: VTensor, name: str, filters: int, stride: int, scale: float) -> VTensor:
    """Add a block: the rectified sum of ``x`` and convolutions of 1 by 1, 3 by 3, 1 by 1.

    Args:
        net: the network.
        x: the input; a convolution adjusts it if the block has another number of channels.
        name: the scope of the names.
        filters: a quarter of the number of output channels.
        stride: the stride of the first convolution.
        scale: the scale of the convolutions' result, which keeps the sum over many blocks small.
    """

    def layer(x: VTensor, index: int, *shape: int, scale: float = 1.0) -> VTensor:
        x = net.conv(x, f"{index}_conv", *shape, bias=True)
        return net.batch_norm(x, f"{index}_bn", scale=scale, epsilon=EPSILON)

    with net.scope(name):
        widens = x.size("C") != 4 * filters
        shortcut = layer(x, 0, 4 * filters, 1, stride) if widens else x
        y = net.relu(layer(x, 1, filters, 1, stride))
        y = net.relu(layer(y, 2, filters, 3))
        return net.relu(net.sum(shortcut, layer(y, 3, 4 * filters, 1, scale=scale)))


resnet50 = partial(resnet, blocks=(3, 4, 6, 3))
resnet101 = partial(resnet, blocks=(3, 4, 23, 3))
resnet152 = partial(resnet, blocks=(3, 8, 36, 3))
