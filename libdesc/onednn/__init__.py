"""oneDNN as a library of VTensor: its description, its handlers, and its native binding.

The routines here are what invokers describe their calls with. Importing them loads nothing native.
"""

from libdesc.onednn.routines_matrix import MatMul
from libdesc.onednn.routines_norm import BatchNormalization, LayerNormalization, Lrn, Softmax
from libdesc.onednn.routines_pointwise import Binary, Clip, Eltwise, Prelu
from libdesc.onednn.routines_recurrent import Recurrent
from libdesc.onednn.routines_shape import Concat, Pad, Reduction, Slice
from libdesc.onednn.routines_window import Convolution, Deconvolution, Pooling, Resampling

__all__ = [
    "BatchNormalization",
    "Binary",
    "Clip",
    "Concat",
    "Convolution",
    "Deconvolution",
    "Eltwise",
    "LayerNormalization",
    "Lrn",
    "MatMul",
    "Pad",
    "Pooling",
    "Prelu",
    "Recurrent",
    "Reduction",
    "Resampling",
    "Slice",
    "Softmax",
]
