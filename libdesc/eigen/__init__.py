"""Eigen as a library of VTensor: its description, its handlers, and its native kernels.

The routines here are what invokers return. Importing them loads nothing native.
"""

from libdesc.eigen.kernels import (
    DTYPES,
    Slide,
    concat,
    convolution,
    depthwise,
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
    "Slide",
    "concat",
    "convolution",
    "depthwise",
    "lrn",
    "matmul",
    "mean",
    "pad",
    "pointwise",
    "pooling",
    "softmax",
]
