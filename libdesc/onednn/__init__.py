"""oneDNN as a library of VTensor: its description, its handlers, and its native binding.

The routines here are what invokers describe their calls with. Importing them loads nothing native.
"""

from libdesc.onednn.routines_matrix import MatMul
from libdesc.onednn.routines_norm import BatchNormalization, Lrn, Softmax
from libdesc.onednn.routines_pointwise import Binary, Eltwise
from libdesc.onednn.routines_shape import Concat, Reduction
from libdesc.onednn.routines_window import Convolution, Pooling

__all__ = [
    "BatchNormalization",
    "Binary",
    "Concat",
    "Convolution",
    "Eltwise",
    "Lrn",
    "MatMul",
    "Pooling",
    "Reduction",
    "Softmax",
]
