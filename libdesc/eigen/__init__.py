"""Eigen as a library of VTensor: its description, its handlers, and its native kernels.

The calls here are what invokers make after their tagger. Importing them loads nothing native.
"""

from libdesc.eigen.kernels import (
    DTYPES,
    Groups,
    Slide,
    channels_last,
    concat,
    convolution,
    copy,
    depthwise,
    last,
    lrn,
    matmul,
    mean,
    pad,
    pointwise,
    pooling,
    softmax,
)

__all__ = [
    "DTYPES",
    "Groups",
    "Slide",
    "channels_last",
    "concat",
    "convolution",
    "copy",
    "depthwise",
    "last",
    "lrn",
    "matmul",
    "mean",
    "pad",
    "pointwise",
    "pooling",
    "softmax",
]
