"""VTensor: operators on virtual tensors; layouts are resolved and optimised for them.

Importing this package loads neither a kernel library nor a solver nor ONNX: each name loads what it
needs when it is first used (SPEC 1); ``__init__.pyi`` says which name comes from where.
"""

from typing import Any

import vtensor.language.forks  # noqa: F401  # forks wait for imports of other threads from now on
from vtensor.language.public import names_of

__version__ = "0.1.0"

_public, __dir__ = names_of(__name__, __file__)


def __getattr__(name: str) -> Any:
    """Import a public name."""
    from vtensor.language.idle import rest

    rest()
    found = _public(name)
    rest()  # NumPy may have come with it
    return found
