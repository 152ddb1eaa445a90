"""NumPy: the definition of every operator, and of every transform."""

from libdesc.numpy.definition import anyhow, declared, definition, elementwise

__all__ = ["anyhow", "declared", "definition", "elementwise"]
