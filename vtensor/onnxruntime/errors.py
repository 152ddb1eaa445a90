"""The exception classes of ONNX Runtime, and the errors of VTensor as such exceptions.

Programs catch these classes and search their messages, so that messages begin as ONNX Runtime's do;
VTensor's own message follows, and its error is the ``__cause__``.
"""

from __future__ import annotations

from vtensor.errors import (
    BudgetError,
    InputError,
    ModelError,
    NativeError,
    NoInvokerError,
    UnsupportedOperatorError,
    VTensorError,
)


class Fail(Exception):
    """A run failed, or an option is not accepted."""


class InvalidArgument(Exception):
    """An input has a wrong name, rank, shape or element type, or an output a wrong name."""


class NoSuchFile(Exception):
    """The model's file does not exist."""


class NoModel(Exception):
    """No model is loaded; VTensor never raises it."""


class EngineError(Exception):
    """An execution provider failed; VTensor never raises it."""


class RuntimeException(Exception):
    """A library failed, or memory ran out."""


class InvalidProtobuf(Exception):
    """The model is no ONNX file, or is cut short."""


class ModelLoaded(Exception):
    """A model is loaded already; VTensor never raises it."""


class NotImplemented(Exception):  # noqa: A001  # ONNX Runtime's name
    """The model, or an option, needs something that VTensor lacks."""


class InvalidGraph(Exception):
    """The model's graph is inconsistent."""


class EPFail(Exception):
    """An execution provider failed; VTensor never raises it."""


class ModelLoadCanceled(Exception):
    """Loading was cancelled; VTensor never raises it."""


class ModelRequiresCompilation(Exception):
    """The model needs a compiled form; VTensor never raises it."""


class NotFound(Exception):
    """Something named does not exist; VTensor never raises it."""


#: The number and the name of the status that a message of each class begins with.
STATUS: dict[type[Exception], tuple[int, str]] = {
    Fail: (1, "FAIL"),
    InvalidArgument: (2, "INVALID_ARGUMENT"),
    NoSuchFile: (3, "NO_SUCHFILE"),
    NoModel: (4, "NO_MODEL"),
    EngineError: (5, "ENGINE_ERROR"),
    RuntimeException: (6, "RUNTIME_EXCEPTION"),
    InvalidProtobuf: (7, "INVALID_PROTOBUF"),
    ModelLoaded: (8, "MODEL_LOADED"),
    NotImplemented: (9, "NOT_IMPLEMENTED"),
    InvalidGraph: (10, "INVALID_GRAPH"),
    EPFail: (11, "EP_FAIL"),
    ModelLoadCanceled: (12, "MODEL_LOAD_CANCELED"),
    ModelRequiresCompilation: (13, "MODEL_REQUIRES_COMPILATION"),
    NotFound: (14, "NOT_FOUND"),
}

#: The class that stands for each kind of VTensor's errors; the first kind that fits counts.
_CLASSES: tuple[tuple[type[VTensorError], type[Exception]], ...] = (
    (UnsupportedOperatorError, NotImplemented),
    (NoInvokerError, NotImplemented),
    (ModelError, InvalidGraph),
    (InputError, InvalidArgument),
    (BudgetError, RuntimeException),
    (NativeError, RuntimeException),
    (VTensorError, Fail),
)


def status(kind: type[Exception], text: str) -> Exception:
    """Return an error of class ``kind`` whose message begins as ONNX Runtime's.

    >>> status(InvalidArgument, "Invalid output name:q")
    InvalidArgument('[ONNXRuntimeError] : 2 : INVALID_ARGUMENT : Invalid output name:q')
    """
    number, name = STATUS[kind]
    return kind(f"[ONNXRuntimeError] : {number} : {name} : {text}")


def class_of(error: VTensorError) -> type[Exception]:
    """Return the exception class of ONNX Runtime that stands for an error of VTensor."""
    return next(kind for own, kind in _CLASSES if isinstance(error, own))


def missing(owner: str, name: str) -> AttributeError:
    """Return the error for an attribute that ONNX Runtime may have and this package lacks.

    Args:
        owner: the class that was asked; empty for the package.
        name: the attribute's name.
    """
    path = f"{owner}.{name}" if owner else name
    return AttributeError(
        f"vtensor.onnxruntime does not have {path}: ONNX Runtime has no such name, or VTensor has "
        "nothing that does the same"
    )
