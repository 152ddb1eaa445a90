"""VTensor: operators on virtual tensors; layouts are resolved and optimised for them.

Importing this package loads neither a kernel library nor a solver nor ONNX: a name's module is
imported when the name is first used (Scientific Python's SPEC 1). ``__init__.pyi`` lists the names
and their modules.
"""

from typing import Any

import vtensor.language.process.forks  # noqa: F401  # from now on forks wait for imports
from vtensor.language.public import names_of

__version__ = "0.1.0"

_public, __dir__ = names_of(__name__, __file__)


def __getattr__(name: str) -> Any:
    """Import the module of a public name, and return the name's value."""
    from vtensor.language.process.idle import stop_blas_threads

    stop_blas_threads()
    value = _public(name)
    stop_blas_threads()  # NumPy may have been imported by the line above
    return value
