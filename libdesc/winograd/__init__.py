"""Winograd's algorithm as a library of VTensor: its description, its handlers, and its kernels.

The routine here is what invokers return. Importing it loads nothing native.
"""

from libdesc.winograd.depthwise import Depthwise
from libdesc.winograd.routine import Convolution

__all__ = ["Convolution", "Depthwise"]
