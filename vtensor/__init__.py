"""VTensor: operators on virtual tensors; layouts are resolved and optimised for them.

Importing this package loads neither a kernel library nor a solver nor ONNX: each name loads what it
needs when it is first used (SPEC 1); ``__init__.pyi`` says which name comes from where.
"""

import gc as _gc

import lazy_loader as _lazy

__version__ = "0.1.0"

_named, __dir__, __all__ = _lazy.attach_stub(__name__, __file__)


def __getattr__(name: str) -> object:
    """What has a name; the garbage collector waits for what is imported, which stays."""
    waits = _gc.isenabled()
    _gc.disable()
    try:
        return _named(name)
    finally:
        if waits:
            _gc.enable()
