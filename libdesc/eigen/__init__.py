"""Eigen as a library of VTensor: its description, its handlers, and its native kernels.

The routines here are what invokers return. Importing them loads nothing native.
"""

from libdesc.eigen.attention import Attention, Numbers
from libdesc.eigen.kernels import (
    DTYPES,
    MULTIPLIED,
    Slide,
    convolution,
    depthwise,
    dynamic_quantize,
    largest_place,
    lrn,
    matmul,
    pooling,
    softmax,
)
from libdesc.eigen.moves import (
    COMPARED,
    MOVED,
    diagonal,
    expanded,
    extreme_place,
    gather,
    hardmax,
    joined,
    one_hot,
    picked,
    reverse_sequence,
    running,
    runs_of,
    scatter,
    squares,
    top,
    triangle,
)
from libdesc.eigen.normalizations import (
    FRACTIONS,
    normalization,
)
from libdesc.eigen.pointwise import (
    pointwise,
)
from libdesc.eigen.program import (
    TYPES,
)
from libdesc.eigen.reductions import (
    NUMBERS,
    ORDERED,
    reduction,
)
from libdesc.eigen.samples import (
    blended,
    grid_sample,
    roi_align,
)

__all__ = [
    "COMPARED",
    "DTYPES",
    "FRACTIONS",
    "MOVED",
    "MULTIPLIED",
    "NUMBERS",
    "ORDERED",
    "TYPES",
    "Attention",
    "Numbers",
    "Slide",
    "blended",
    "convolution",
    "depthwise",
    "diagonal",
    "dynamic_quantize",
    "expanded",
    "extreme_place",
    "gather",
    "grid_sample",
    "hardmax",
    "joined",
    "largest_place",
    "lrn",
    "matmul",
    "normalization",
    "one_hot",
    "picked",
    "pointwise",
    "pooling",
    "reduction",
    "reverse_sequence",
    "roi_align",
    "running",
    "runs_of",
    "scatter",
    "softmax",
    "squares",
    "top",
    "triangle",
]
