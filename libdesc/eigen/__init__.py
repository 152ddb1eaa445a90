"""Eigen as a library of VTensor: its description, its handlers, and its native kernels.

The routines here are what invokers return. Importing them loads nothing native; each
comes with its module when it is first asked for.
"""

from typing import TYPE_CHECKING

# A module of each name is there as well, so these cannot come later.
from libdesc.eigen.pointwise import (
    computed,
    pointwise,
)
from libdesc.eigen.recurrent import (
    recurrent,
)

if TYPE_CHECKING:
    from libdesc.eigen.attention import Attention, Numbers
    from libdesc.eigen.kernels import (
        DTYPES,
        MULTIPLIED,
        Slide,
        col2im,
        convolution,
        deformed,
        depthwise,
        determinant,
        dynamic_quantize,
        fourier,
        largest_place,
        lrn,
        matmul,
        pooling,
        softmax,
        unpool,
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
        overwritten,
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
else:
    import lazy_loader

    __getattr__, _, _ = lazy_loader.attach(
        __name__,
        submod_attrs={
            "attention": ["Attention", "Numbers"],
            "kernels": [
                "DTYPES",
                "MULTIPLIED",
                "Slide",
                "col2im",
                "convolution",
                "deformed",
                "depthwise",
                "determinant",
                "dynamic_quantize",
                "fourier",
                "largest_place",
                "lrn",
                "matmul",
                "pooling",
                "softmax",
                "unpool",
            ],
            "moves": [
                "COMPARED",
                "MOVED",
                "diagonal",
                "expanded",
                "extreme_place",
                "gather",
                "hardmax",
                "joined",
                "one_hot",
                "overwritten",
                "picked",
                "reverse_sequence",
                "running",
                "runs_of",
                "scatter",
                "squares",
                "top",
                "triangle",
            ],
            "normalizations": ["FRACTIONS", "normalization"],
            "program": ["TYPES"],
            "reductions": ["NUMBERS", "ORDERED", "reduction"],
            "samples": ["blended", "grid_sample", "roi_align"],
        },
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
    "col2im",
    "computed",
    "convolution",
    "deformed",
    "depthwise",
    "determinant",
    "diagonal",
    "dynamic_quantize",
    "expanded",
    "extreme_place",
    "fourier",
    "gather",
    "grid_sample",
    "hardmax",
    "joined",
    "largest_place",
    "lrn",
    "matmul",
    "normalization",
    "one_hot",
    "overwritten",
    "picked",
    "pointwise",
    "pooling",
    "recurrent",
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
    "unpool",
]
