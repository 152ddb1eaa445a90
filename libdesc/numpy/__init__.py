"""NumPy as a library of VTensor: it defines every operator and every Transform."""

from libdesc.numpy.definition import anyhow, declared, definition, elementwise

__all__ = ["anyhow", "declared", "definition", "elementwise"]
