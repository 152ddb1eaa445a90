"""The baseline: layout-aware operators, on the kernels that VTensor's operators run on."""

from eval.layout_aware.network import Conversions, Network

__all__ = ["Conversions", "Network"]
