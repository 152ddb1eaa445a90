"""Operators: what a file in ``ops/`` declares, and the context that its ``compute`` is given.

An operator is a frozen dataclass of parameters with one method, ``compute(ctx, *inputs)``: it makes
the output VTensors and calls ``ctx.dispatch``. Everything that must hold of parameters and dims is
declared, and the check is generated from the declaration (``vtensor/language/checks.py``).
"""

from __future__ import annotations

import dataclasses
import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from functools import cache, lru_cache
from types import FrameType
from typing import Any, Protocol, TypeVar, cast, dataclass_transform

from vtensor.errors import (
    DimError,
    DTypeError,
    GraphError,
    InvokerError,
    VTensorError,
    describe,
)
from vtensor.language.checks import CheckSource, compile_check, input_check, parameter_check
from vtensor.language.declaration import check_annotations, check_equal, parsed_dims
from vtensor.language.expression import Expression
from vtensor.language.failures import place_of, raised
from vtensor.language.interrupts import pass_signals
from vtensor.language.records import checked, dataclass
from vtensor.language.spelling import Spelling
from vtensor.language.table import OperatorInfo, OperatorTable
from vtensor.language.tensor import CPU, Option, VTensor
from vtensor.language.traits import (
    Pointwise,
    Trait,
)

T = TypeVar("T")

Pair = tuple[int, int]
Pads = tuple[int, int, int, int]


def param(
    *,
    default: Any = dataclasses.MISSING,
    minimum: float | None = None,
    maximum: float | None = None,
    choices: Sequence[object] | None = None,
    dims_of: str | None = None,
) -> Any:
    """A parameter of an operator, with what the generated check enforces.

    Args:
        default: its value where none is given.
        minimum, maximum: bounds of a number, or of each of several, both included.
        choices: the values that are allowed.
        dims_of: the role of an input. The parameter is then a name of one of its dims, or several
            names, none twice.
    """
    rules = {"minimum": minimum, "maximum": maximum, "choices": choices, "dims_of": dims_of}
    return dataclasses.field(default=default, metadata=rules)


class Operator(Protocol):
    """What every operator class is: a frozen dataclass with a ``compute``."""

    compute: Callable[..., Any]


class OneOutput(Protocol):
    """An operator that has one output."""

    @property
    def compute(self) -> Callable[..., VTensor]:
        """Makes it."""


class SeveralOutputs(Protocol):
    """An operator that has several outputs."""

    @property
    def compute(self) -> Callable[..., tuple[VTensor, ...]]:
        """Makes them."""


#: The operators by name of the registry that is installed, whose dict is its ``data``; until one is
#: there, those that ``@operator`` has registered.
OPERATORS = OperatorTable()


@dataclass_transform(frozen_default=True, field_specifiers=(param, dataclasses.field))
def operator(
    name: str,
    *,
    dims: Mapping[str, str],
    equal: Sequence[tuple[str, str]] = (),
    holds: Sequence[tuple[Callable[..., bool], str]] = (),
    onnx: Spelling | Sequence[Spelling] = (),
    traits: Sequence[Trait] = (),
) -> Callable[[type[T]], type[T]]:
    """Register a class as an operator.

    Args:
        name: the operator's name, as it stands in graphs and plans.
        dims: a row of dim names for each operand, by role; inputs are the parameters of
            ``compute``, the other roles are outputs. ``compute(self, ctx, *x)`` and
            ``compute(self, ctx, x, *more)`` take one input or more; a last output ``"*y"`` stands
            for any number of outputs.
        equal: pairs of products that must be equal, ``("x.C", "w.I * group")``.
        holds: further conditions on parameters and inputs, as pairs of a function and a message.
            Before ``compute``, each function is called in order with the instance and the inputs;
            where it returns False, the error has its message: ``"{op.axis} must be a new dim"``.
        onnx: how ONNX writes it; several spellings where versions or names differ.
        traits: what passes may know of it, at most one trait of each kind.

    Raises:
        GraphError: the name is taken, ``dims`` and ``compute`` disagree, or a trait is there twice.

    Source: the paper, section 4.3.
    """

    def register(cls: type[T]) -> type[T]:
        if not callable(getattr(cls, "compute", None)):
            raise GraphError(f"operator {name}: {cls.__qualname__} has no compute(self, ctx, ...)")
        if "__dataclass_fields__" not in vars(cls):  # those of a base are not all of its own
            try:
                cls = dataclass(cls, frozen=True)
            except (TypeError, ValueError) as error:
                raise GraphError(f"operator {name}: {cls.__qualname__}: {error}") from None
        parameters = _parameters(cast(Operator, cls).compute)
        specs = parsed_dims(name, dims, [one.name for one in parameters])
        parameters = parameters[1:]
        inputs = tuple(p.name for p in parameters)
        variadic = bool(parameters) and parameters[-1].kind is inspect.Parameter.VAR_POSITIONAL
        outputs = tuple(role for role in specs if role not in inputs)
        many = frozenset(inputs[-1:] if variadic else ())
        many |= {role for role in outputs if f"*{role}" in dims}
        here, line = _place(cls)
        previous = OPERATORS.find(name, wait=False)
        if previous is not None and (previous.file, previous.cls.__qualname__) != (
            here,
            cls.__qualname__,
        ):
            raise GraphError(f"operator {name} is already registered by {previous.file}")
        kinds = {type(trait): trait for trait in traits}
        if len(kinds) < len(traits) or not all(isinstance(trait, Trait) for trait in traits):
            raise GraphError(f"operator {name}: traits={traits!r} must be traits, each kind once")
        spellings = (onnx,) if isinstance(onnx, Spelling) else tuple(onnx)
        check_equal(name, cls, tuple(equal), specs)
        check_annotations(name, cls)
        source = CheckSource(name, cls, inputs, outputs, many, specs, tuple(equal), tuple(holds))
        OPERATORS[name] = OperatorInfo(
            name,
            cls,
            inputs,
            outputs,
            many,
            specs,
            spellings,
            source,
            kinds,
            here,
            line,
        )
        _check_on_construction(cls, name)
        cls.__operator__ = name  # type: ignore[attr-defined]
        return cls

    return register


@lru_cache(maxsize=128)  # rows of a family share one
def _parameters(compute: Callable[..., Any]) -> Sequence[inspect.Parameter]:
    """The parameters of a ``compute`` without ``self``."""
    return list(inspect.signature(compute).parameters.values())[1:]


def _place(cls: type) -> tuple[str, int]:
    """File and line of an operator's class, from code that has run: no source is read.

    The line is the class's own, if it says one; else that of the decorator, or of ``compute`` where
    the class was registered after it was made.
    """
    file, _, text = place_of(cast(Operator, cls).compute).rpartition(":")
    line = int(text)
    if first := vars(cls).get("__firstlineno__"):
        return getattr(sys.modules.get(cls.__module__), "__file__", None) or file, first
    scope = cls.__qualname__.rpartition(".")[0].removesuffix(".<locals>") or "<module>"
    around: FrameType | None = sys._getframe(1)
    while around is not None:
        code, here = around.f_code, around.f_lineno
        if (around.f_globals.get("__name__"), code.co_qualname) == (cls.__module__, scope):
            return code.co_filename, min(here, line) if "compute" in vars(cls) else here
        around = around.f_back
    return file, line


def _check_on_construction(cls: type, name: str) -> None:
    """Parameters are wrong from the moment they are given: say so then, not during a run."""
    check = cache(lambda: parameter_check(name, cls))  # compiled for the first one that is made
    if checked(cls, lambda one: check()(one)):
        return
    construct = cls.__init__  # type: ignore[misc]  # this very class is meant

    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        construct(self, *args, **kwargs)
        check()(self)

    init.__wrapped__ = construct  # type: ignore[attr-defined]  # keeps signature and help
    cls.__init__ = init  # type: ignore[misc]


def info_of(op: object) -> OperatorInfo:
    """What is registered of an operator instance.

    Raises:
        GraphError: it is no operator.
    """
    name = getattr(type(op), "__operator__", None)
    if name is None:
        raise GraphError(f"{op!r} is no operator; operators are registered with @operator")
    return OPERATORS.data.get(name) or OPERATORS[name]


def named(name: str) -> Any:
    """The class of the operator that is registered under a name.

    An operator's spelling asks for another operator by name: files of operators import none of
    each other.
    """
    return OPERATORS[name].cls


def label_of(op: object) -> str:
    """What graphs and plans call an operator instance: its ``label`` if it has one, or its name.

    Raises:
        GraphError: it is no operator.
    """
    return str(getattr(op, "label", info_of(op).name))


@dataclass
class Context:
    """The first argument of ``compute``: it says where outputs go, and dispatches to libraries.

    This base class calls no library and only checks: the graph builder infers shapes with it.

    Attributes:
        node: name of the node, for errors and plans.
        device: where the node is placed.
        followers: operators fused behind this one, each with its own VTensors; empty unless fusion
            offers some. The routine that an invoker returns says whether it does them as well.
    """

    node: str = ""
    device: str = CPU
    op: str = ""
    names: tuple[str, ...] = ()
    followers: tuple[Follower, ...] = ()

    def output(self, index: int) -> Option:
        """Where output ``index`` comes from: the last argument of a VTensor."""
        name = self.names[index] if index < len(self.names) else ""
        return Option(self.node, self.op, index, self.device, name)

    def dispatch(self, op: object, inputs: Sequence[VTensor], outputs: Sequence[VTensor]) -> None:
        """Check parameters and dims; then call the first library that takes the call."""
        compile_check(info_of(op).check)(self.node, op, inputs, outputs)


@dataclass(frozen=True)
class Follower:
    """An operator fused behind another: applied to the other's output before that is stored.

    ``operands`` are its inputs apart from that output, which stands at the inputs ``places``.
    """

    op: object
    operands: tuple[VTensor, ...] = field(default=())
    places: tuple[int, ...] = (0,)

    def inputs(self, output: T, others: Sequence[T]) -> list[T]:
        """All inputs in order: the output that it follows, and what stands for its operands."""
        rest = iter(others)
        count = len(self.places) + len(others)
        return [output if place in self.places else next(rest) for place in range(count)]

    def expression(self, output: Expression, others: Sequence[Expression]) -> Expression | None:
        """What it makes of the output and its operands; None where its operator does not say."""
        return expression_of(self.op, *self.inputs(output, others))


def expression_of(op: object, *inputs: Expression) -> Expression | None:
    """What a point-wise operator computes of its inputs; None of other operators."""
    found = info_of(op).trait(Pointwise)
    return found.expression(op, *inputs) if found else None


def _of_call(headline: str, info: OperatorInfo, inputs: Sequence[VTensor]) -> str:
    """A message with one line an input."""
    rows = zip(info.roles(len(inputs), 0), inputs, strict=True)
    return describe(headline, {role: (value.dtype, value.dims) for role, value in rows})


def run_compute(ctx: Context, op: object, inputs: Sequence[VTensor]) -> tuple[VTensor, ...]:
    """Run an operator's ``compute`` in a context and return its outputs.

    Errors that ``compute`` runs into get the node, the operator and one line an operand.
    """
    info = info_of(op)
    ctx.op = info.name
    variadic = not info.many.isdisjoint(info.inputs)
    least = max(len(info.inputs) - 1, 1) if variadic else len(info.inputs)
    if len(inputs) < least or (len(inputs) > least and not variadic):
        takes = f"at least {least}" if variadic else str(least)
        wanted = f"{takes} input{'s' * (least != 1)}"
        raise GraphError(f"{info.name} {ctx.node!r} takes {wanted}, {len(inputs)} given")
    try:
        if (check := input_check(info.check)) is not None:
            check(op, inputs)
        result = cast(Operator, op).compute(ctx, *inputs)
    except (DimError, DTypeError) as error:
        if "\n" in str(error):
            raise
        raise type(error)(_of_call(f"{info.name} {ctx.node!r}: {error}", info, inputs)) from None
    except (VTensorError, MemoryError):
        raise
    except Exception as error:  # an author's own
        pass_signals(error)
        place = place_of(cast(Operator, op).compute)
        text = f"{info.name} {ctx.node!r}, compute ({place}): {raised(error, place)}"
        raise InvokerError(_of_call(text, info, inputs)) from error
    outputs = result if isinstance(result, tuple) else (result,)
    for index, output in enumerate(outputs):
        if not isinstance(output, VTensor):
            raise GraphError(f"{info.name} {ctx.node!r}: compute returned {output!r}, no VTensor")
        if output.option != ctx.output(index):
            raise GraphError(
                f"{info.name} {ctx.node!r}: output {index} must be made with ctx.output({index}) "
                f"as its last argument, and be returned at place {index}"
            )
    return outputs
