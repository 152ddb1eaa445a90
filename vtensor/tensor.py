"""``from vtensor.tensor import VTensor``, as authors of operators and libraries write it."""

from vtensor.language.tensor import Option, VTensor

__all__ = ["Option", "VTensor"]
