"""The twelve networks of the paper's evaluation, built with the Python builder.

>>> graph = build("mobilenet_v1", batch=2, size=64)
>>> graph.values["image"].summary(), parameters(graph)
('f32 N=2 C=3 H=64 W=64', 4253864)

Source: the paper, section 6.1 and Table 1; each network's file names its own definition.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from eval.networks.densenet import densenet169
from eval.networks.googlenet import googlenet
from eval.networks.inception_resnet_v2 import inception_resnet_v2
from eval.networks.inception_v2 import inception_v2
from eval.networks.inception_v3 import inception_v3
from eval.networks.layers import Net
from eval.networks.mobilenet_v1 import mobilenet_v1
from eval.networks.mobilenet_v2 import mobilenet_v2
from eval.networks.nasnet import nasnet_large
from eval.networks.resnet import resnet50, resnet101, resnet152
from eval.networks.vgg19 import vgg19
from eval.networks.weights import CENTRED
from vtensor.language.graph import Graph
from vtensor.language.tensor import VTensor


class Network(NamedTuple):
    """The definition of a network.

    Attributes:
        features: adds the layers up to the classifier, and returns their result.
        size: height and width of an image, in pixels.
        centred: the parameter of ``Weights``, chosen so that the difference of two images neither
            grows nor fades by much until the logits, and logits correlate by less than 0.995.
    """

    features: Callable[[Net], VTensor]
    size: int
    centred: float = CENTRED


NETWORKS = {
    "googlenet": Network(googlenet, 224),
    "inception_resnet_v2": Network(inception_resnet_v2, 299, centred=0.75),
    "inception_v2": Network(inception_v2, 224),
    "inception_v3": Network(inception_v3, 299),
    "nasnet_large": Network(nasnet_large, 331, centred=0.75),
    "resnet101": Network(resnet101, 224),
    "resnet152": Network(resnet152, 224),
    "resnet50": Network(resnet50, 224),
    "vgg19": Network(vgg19, 224, centred=0.25),  # neither shortcuts nor batch norms
    "densenet169": Network(densenet169, 224),
    "mobilenet_v1": Network(mobilenet_v1, 224),
    "mobilenet_v2": Network(mobilenet_v2, 224),
}
NAMES = tuple(NETWORKS)
#: A small image size for each, in pixels: Inception v3 and Inception-ResNet v2 need 75.
SMALL = {name: 96 if network.size == 299 else 64 for name, network in NETWORKS.items()}


def build(name: str, batch: int | None = 1, *, size: int | None = None, seed: int = 0) -> Graph:
    """Return a network with seeded weights, sealed.

    Args:
        name: one of ``NAMES``.
        batch: images in a batch; None leaves it open. It changes no weight.
        size: height and width of an image, in pixels; Table 1's when not given.
        seed: any integer from 0 on.

    Returns:
        The graph; its input ``image`` is N C H W, its output ``probabilities`` N K, K = 1000.

    Raises:
        ValueError: there is no such network.
        DimError: the image is too small for it.
    """
    if name not in NETWORKS:
        raise ValueError(f"no network {name!r}; there are {', '.join(NAMES)}")
    network = NETWORKS[name]
    net = Net(name, batch, size or network.size, seed, network.centred)
    return net.classify(network.features(net))


def parameters(graph: Graph) -> int:
    """Return the number of elements of a network's weights, those of batch norms included."""
    return sum(array.size for array in graph.constants.values() if array.ndim)
