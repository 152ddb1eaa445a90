"""The errors that VTensor raises on purpose, with one base, and the format of their messages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any


class VTensorError(Exception):
    """The base of all errors that VTensor raises on purpose."""


class DimError(VTensorError):
    """Dims are missing, unknown, repeated, or their sizes disagree."""


class DTypeError(VTensorError):
    """An element type is unknown, or not the declared one."""


class ParameterError(VTensorError):
    """A parameter of an operator has the wrong type or is out of range."""


class GraphError(VTensorError):
    """A graph, an operator or a rewrite rule is built or used in a way that is not allowed."""


class LayoutError(VTensorError):
    """A layout's text cannot be parsed, or the layout cannot hold a tensor."""


class LayoutNotSupported(LayoutError):
    """A library cannot express a layout of VTensor, or VTensor cannot express a layout of a
    library.
    """


class ContractError(VTensorError):
    """An invoker breaks its contract (a second ``require``, ...); the message has file and line."""


class NoInvokerError(VTensorError):
    """No library takes a call; the message lists those that were tried, and why each declined."""


class InvokerError(VTensorError):
    """Code of an operator's or library's author failed: ``compute``, an invoker, a handler.

    The ``__cause__`` is the error that the author's code raised, if any.
    """


class NativeError(VTensorError):
    """A native library refused or failed a call."""


class DescriptionError(VTensorError):
    """A library description is wrong; the message has the file, the key and the allowed values."""


class LibraryError(VTensorError):
    """A library is not registered, not available, or registered twice."""


class ResolutionError(VTensorError):
    """A graph cannot be resolved into a plan."""


class UnsoundPlanError(ResolutionError):
    """The independent checker found a fault in a lowered graph, which is a bug in VTensor."""


class ModelError(VTensorError):
    """A model file cannot be read, or is malformed."""


class EdgesNeeded(ModelError):
    """A model has texts, sequences, optional values or maps, which are no values of a graph."""


class UnsupportedOperatorError(ModelError):
    """A model has operators that VTensor lacks; the message lists all of them with their nodes."""


class SegmentsNeededError(UnsupportedOperatorError):
    """Nodes of a model need to know values that only a run computes, so no one graph runs it.

    A Session runs such a model in segments, one after another.

    Attributes:
        nodes: for the model's own nodes that need to know such values, by name, True if a node
            inside of them needs the value.
        facts: the types and values that are known without a run.
    """

    def __init__(
        self, message: str, nodes: Mapping[str, bool] | None = None, facts: Any = None
    ) -> None:
        super().__init__(message)
        self.nodes, self.facts = dict(nodes or {}), facts


class InputError(VTensorError):
    """An input or an option has a wrong name, rank, shape, element type or value."""


class BudgetError(VTensorError):
    """A session needs more memory than its budget allows, or than the machine has."""


class ValuesNeededError(InputError):
    """Values of a model's inputs decide shapes, so they must be given when its graph is made.

    Attributes:
        names: the names of the inputs whose values are needed.
    """

    def __init__(self, message: str, names: Iterable[str] = ()) -> None:
        super().__init__(message)
        self.names = tuple(names)


class DLPackError(InputError, BufferError):
    """Memory cannot be exported or imported by DLPack as requested."""


class SessionClosedError(VTensorError):
    """A session was used after ``close()``."""


class PickleError(VTensorError, TypeError):
    """A session or a part of one cannot be copied or sent to another process."""


class QueueFullError(VTensorError):
    """More runs of ``Session.run_async`` would wait than the session allows."""


class NestedRunError(VTensorError):
    """A step that calls back into Python, or a progress callback, ran the session that runs it."""


class LockError(VTensorError):
    """A lock file cannot be read, belongs to another model, or has choices that no longer hold."""


class ConversionsError(VTensorError, AssertionError):
    """A run has more conversions than a test allows; the message lists each with its cause."""


class PeerError(VTensorError):
    """A peer of the benchmark cannot run a model, or not with the requested options."""


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return a hint to append to the message about an unknown name; empty if no name is similar.

    Args:
        word: the unknown name.
        known: the known names.

    >>> did_you_mean("ReLU", ["Relu", "Relu6", "Add"]), did_you_mean("Frob", ["Relu"])
    ("; did you mean 'Relu'?", '')
    """
    import difflib  # only errors need it

    names = {name.casefold(): name for name in known}
    near = difflib.get_close_matches(word.casefold(), names, 1)
    return f"; did you mean {names[near[0]]!r}?" if near else ""


def operand_lines(operands: Mapping[str, tuple[str, Mapping[str, int]]]) -> list[str]:
    """Return a line for each operand, aligned: ``x : N=8 C=3 H=224 W=224   f32``.

    Args:
        operands: by role, a pair of the element type and the sizes by dim.
    """
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
    """Return a message of several lines, in the format of all long messages.

    Args:
        headline: the first line.
        operands: by role, a pair of the element type and the sizes by dim.
        tried: the libraries that were tried, in order: priority, name, and why it declined.
        remedy: how to fix the error; empty if that is not known.
        order: words that say in which order ``tried`` is.
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
