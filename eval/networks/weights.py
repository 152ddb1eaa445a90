"""Weights from a seed: neither the order of layers nor the size of a batch changes one.

Kernels are normal, scaled so that their outputs have variance 1 (He et al., "Delving Deep into
Rectifiers", ICCV 2015, section 2.2). Of the mean of rectified inputs a kernel passes on only a
part. If it passed on all, any two images would have nearly the same logits after fifty layers. If
it passed on nothing, as kernels that add up to 0, any difference would grow by a fifth at each
layer: errors of f32 would be 69 times as large after VGG19. Statistics of batch norms differ from
channel to channel, and keep a variance of 1 at 1.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from math import pi, prod, sqrt

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float32]

#: 1 / E[x**2] of a rectified normal x of variance 1, whose E[x]**2 is 1 / (2 * pi).
HE = 2.0

#: The part of the squared mean of rectified inputs that kernels remove, by default.
CENTRED = 0.5

#: The scale of batch norms with which a variance of 1 stays 1, that is, with which
#: ``scale**2 * E[1 / variance] * (1 + E[mean**2]) + E[shift**2]`` is 1.
KEEPING = 0.93


@dataclass(frozen=True)
class Weights:
    """A source of arrays in f32, each drawn from the network's name, its own name and a seed.

    Args:
        path: the network's name and the scopes, which precede the arrays' names.
        seed: any integer from 0 on.
        centred: the part of the squared mean of rectified inputs that kernels remove.

    >>> draw = Weights("tiny", seed=0)
    >>> bool((draw.kernel("a", (8, 3), rectified=True) == draw.kernel("b", (8, 3), True)).any())
    False
    """

    path: str
    seed: int
    centred: float = CENTRED

    def kernel(self, name: str, shape: tuple[int, ...], rectified: bool) -> Array:
        """Return a kernel; the mean of each output's weights is reduced as ``centred`` says.

        Args:
            name: the name of the array.
            shape: its sizes, the number of outputs first.
            rectified: whether the input comes from a rectifier; the scale depends on it.
        """
        array = self._normal(name, shape)
        mean = array.mean(axis=tuple(range(1, len(shape))), keepdims=True)
        array -= np.float32(1 - sqrt(1 - self.centred)) * mean
        gain = 1 / (1 / HE - self.centred / (2 * pi)) if rectified else 1.0
        return _scaled(array, gain, prod(shape[1:]))

    def taps(self, name: str, shape: tuple[int, ...], rectified: bool) -> Array:
        """Return a kernel for each channel, of the last two sizes of ``shape``.

        They are scaled as by ``kernel``, but keep their mean.
        """
        return _scaled(self._normal(name, shape), HE if rectified else 1.0, prod(shape[-2:]))

    def around(self, name: str, size: int, center: float, spread: float) -> Array:
        """Return ``size`` normal numbers of mean ``center`` and standard deviation ``spread``."""
        return np.float32(center) + np.float32(spread) * self._normal(name, (size,))

    def statistics(self, name: str, size: int, scale: float) -> dict[str, Array]:
        """Return the arrays of a batch norm over ``size`` channels, by role.

        ``scale`` is the standard deviation of its output.
        """
        variance = self._rng(f"{name}/var").uniform(0.5, 1.5, size).astype(np.float32)
        return {
            "scale": self.around(f"{name}/scale", size, KEEPING * scale, 0.1 * scale),
            "bias": self.around(f"{name}/bias", size, 0.0, 0.1 * scale),
            "mean": self.around(f"{name}/mean", size, 0.0, 0.2),
            "var": variance,
        }

    def _rng(self, name: str) -> np.random.Generator:
        return np.random.default_rng([self.seed, zlib.crc32(f"{self.path}/{name}".encode())])

    def _normal(self, name: str, shape: tuple[int, ...]) -> Array:
        return self._rng(name).standard_normal(shape, np.float32)


def _scaled(array: Array, gain: float, fan_in: int) -> Array:
    array *= np.float32(np.sqrt(gain / fan_in))  # in place: VGG19 has a matrix of 411 MB
    return array
