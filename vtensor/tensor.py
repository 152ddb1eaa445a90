"""The names for authors of operators and libraries: ``from vtensor.tensor import VTensor``."""

from vtensor.language.tensor import Option, VTensor

__all__ = ["Option", "VTensor"]
