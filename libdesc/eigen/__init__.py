"""Eigen as a library of VTensor: its description, its handlers, and its native kernels.

The routines here are what invokers return. Importing them loads nothing native.
"""

from libdesc.eigen.attention import Numbers, attention
from libdesc.eigen.kernels import (
    DTYPES,
    Slide,
    concat,
    convolution,
    depthwise,
    lrn,
    matmul,
    pad,
    pooling,
    softmax,
)
from libdesc.eigen.normalizations import FRACTIONS, normalization
from libdesc.eigen.pointwise import pointwise
from libdesc.eigen.program import TYPES
from libdesc.eigen.reductions import NUMBERS, ORDERED, reduction

__all__ = [
    "DTYPES",
    "FRACTIONS",
    "NUMBERS",
    "ORDERED",
    "TYPES",
    "Numbers",
    "Slide",
    "attention",
    "concat",
    "convolution",
    "depthwise",
    "lrn",
    "matmul",
    "normalization",
    "pad",
    "pointwise",
    "pooling",
    "reduction",
    "softmax",
]
