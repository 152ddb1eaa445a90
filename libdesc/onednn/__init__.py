"""oneDNN as a library of VTensor: its description, its handlers, and its native binding.

The routines here are what invokers describe their calls with. Importing them loads nothing native;
each comes with its module when it is first asked for.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from libdesc.onednn.routines_matrix import MatMul
    from libdesc.onednn.routines_norm import BatchNormalization, LayerNormalization, Lrn, Softmax
    from libdesc.onednn.routines_pointwise import Binary, Clip, Eltwise, Prelu
    from libdesc.onednn.routines_recurrent import Recurrent
    from libdesc.onednn.routines_shape import Concat, Pad, Reduction, Slice
    from libdesc.onednn.routines_window import Convolution, Deconvolution, Pooling, Resampling
else:
    import lazy_loader

    __getattr__, _, _ = lazy_loader.attach(
        __name__,
        submod_attrs={
            "routines_matrix": ["MatMul"],
            "routines_norm": ["BatchNormalization", "LayerNormalization", "Lrn", "Softmax"],
            "routines_pointwise": ["Binary", "Clip", "Eltwise", "Prelu"],
            "routines_recurrent": ["Recurrent"],
            "routines_shape": ["Concat", "Pad", "Reduction", "Slice"],
            "routines_window": ["Convolution", "Deconvolution", "Pooling", "Resampling"],
        },
    )

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
