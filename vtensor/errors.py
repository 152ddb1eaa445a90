"""Every error that VTensor raises on purpose: one family, so that one ``except`` catches it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping


class VTensorError(Exception):
    """Base of the family."""


class DimError(VTensorError):
    """Dims are missing, unknown, repeated, or their sizes disagree."""


class DTypeError(VTensorError):
    """An element type is unknown, or not what was declared."""


class ParameterError(VTensorError):
    """A parameter of an operator has the wrong type or is out of range."""


class GraphError(VTensorError):
    """A graph is built or used in a way that it does not allow."""


class LayoutError(VTensorError):
    """A layout's text does not parse, or the layout cannot hold the tensor asked for."""


class LayoutNotSupported(LayoutError):
    """A library has no word for this layout."""


class ContractError(VTensorError):
    """An invoker breaks the contract (a second ``require``, ...). Names file and line."""


class NoInvokerError(VTensorError):
    """No library takes a call; lists which were tried and why each declined."""


class InvokerError(VTensorError):
    """An author's Python failed: an invoker or its condition, a handler, an operator's ``compute``.

    Its cause is the author's own error, or what the function was given.
    """


class NativeError(VTensorError):
    """A native library refused or failed a call."""


class DescriptionError(VTensorError):
    """A library description is wrong; names file, key and what is allowed."""


class LibraryError(VTensorError):
    """A library is not registered, not available, or registered twice."""


class ResolutionError(VTensorError):
    """A graph cannot be resolved into a plan."""


class UnsoundPlanError(ResolutionError):
    """The independent checker found a fault in a lowered graph: ours, not the model's."""


class ModelError(VTensorError):
    """A model file cannot be read, or is not what it says it is."""


class UnsupportedOperatorError(ModelError):
    """A model uses operators that VTensor does not have; lists all of them with their nodes."""


class InputError(VTensorError):
    """A run was given a wrong name, rank, shape, element type or option."""


class BudgetError(VTensorError):
    """More memory would be needed than the session may take; nothing of it was taken."""


class ValuesNeededError(InputError):
    """Values of inputs decide shapes, so they must be given when a graph is made.

    Attributes:
        names: the inputs.
    """

    def __init__(self, message: str, names: Iterable[str] = ()) -> None:
        super().__init__(message)
        self.names = tuple(names)


class DLPackError(InputError, BufferError):
    """Memory cannot be handed on or taken through DLPack as was asked."""


class SessionClosedError(VTensorError):
    """A session was used after ``close()``."""


class PickleError(VTensorError, TypeError):
    """A session, or what belongs to one, cannot be copied or sent to another process."""


class QueueFullError(VTensorError):
    """More runs of ``Session.run_async`` wait than the session allows."""


class NestedRunError(VTensorError):
    """A step that calls back into Python, or a progress callback, ran its own session."""


class LockError(VTensorError):
    """A plan that was written down cannot be read, is another model's, or no longer holds."""


class ConversionsError(VTensorError, AssertionError):
    """A run converts more than a test allows; lists what, and who asked for it."""


class PeerError(VTensorError):
    """A peer of the benchmark does not run a model, or not as it was asked to."""


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """A hint to put behind an unknown name; empty where nothing is near it.

    >>> did_you_mean("ReLU", ["Relu", "Relu6", "Add"]), did_you_mean("Frob", ["Relu"])
    ("; did you mean 'Relu'?", '')
    """
    import difflib  # an error's business

    names = {name.casefold(): name for name in known}
    near = difflib.get_close_matches(word.casefold(), names, 1)
    return f"; did you mean {names[near[0]]!r}?" if near else ""


def operand_lines(operands: Mapping[str, tuple[str, Mapping[str, int]]]) -> list[str]:
    """One line an operand, names aligned: ``x : N=8 C=3 H=224 W=224   f32``."""
    width = max((len(role) for role in operands), default=0)
    texts = {
        role: " ".join(f"{d}={s}" for d, s in dims.items()) or "scalar"
        for role, (_, dims) in operands.items()
    }
    column = max((len(text) for text in texts.values()), default=0)
    return [
        f"  {role:<{width}} : {texts[role]:<{column}}   {dtype}"
        for role, (dtype, _) in operands.items()
    ]


def describe(
    headline: str,
    operands: Mapping[str, tuple[str, Mapping[str, int]]] | None = None,
    tried: Iterable[tuple[int, str, str]] = (),
    remedy: str = "",
    order: str = "by priority",
) -> str:
    """The one format of a long message.

    ``tried`` holds (priority, library, reason) in the order of the attempts, which ``order`` names.
    """
    lines = [headline, *operand_lines(operands or {})]
    tried = list(tried)
    if tried:
        lines.append(f"  tried, {order}:")
        width = max(len(library) for _, library, _ in tried)
        lines += [
            f"    {priority:>3} {library:<{width}} : {reason}"
            for priority, library, reason in tried
        ]
    if remedy:
        lines.append(f"  to fix: {remedy}")
    return "\n".join(lines)
