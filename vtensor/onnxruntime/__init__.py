"""ONNX Runtime's Python interface, with VTensor behind it.

``from vtensor import onnxruntime as ort`` has the names that programs use; ``install()`` and
``python -m vtensor.onnxruntime PROGRAM`` let unchanged programs import it as ``onnxruntime``. A
name's module is imported when the name is first used; ``__init__.pyi`` lists the names.

Source: ONNX Runtime's documentation of its Python interface.
"""

from typing import Any

from vtensor.language.public import names_of
from vtensor.onnxruntime.names import PASSED
from vtensor.onnxruntime.names import __version__ as __version__

_public, __dir__ = names_of(__name__, __file__)


def __getattr__(name: str) -> Any:
    """Import the module of a public name, and return the name's value.

    Raises:
        AttributeError: ONNX Runtime may have the name, and this package lacks it.
    """
    if name.startswith("__") and name != "__all__":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name in __dir__() or name == "__all__":
        value = globals()[name] = _public(name)
        return value
    if name in PASSED:
        from vtensor.onnxruntime.real_package import installed, passed

        if installed() is not None:
            return passed(name)
    from vtensor.onnxruntime.errors import missing

    raise missing("", name)
