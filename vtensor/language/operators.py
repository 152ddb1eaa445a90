"""Operators: their declaration in files of ``ops/``, and the context of their ``compute``.

An operator is a frozen dataclass of parameters with one method, ``compute(ctx, *inputs)``: it makes
the output VTensors and calls ``ctx.dispatch``. All rules for parameters and dims are declared, and
the check is generated from the declaration (``vtensor/language/checks.py``).
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
from vtensor.language.dtype import ITEMSIZE
from vtensor.language.expression import Expression
from vtensor.language.failures import place_of, raised
from vtensor.language.process.interrupts import pass_signals
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
    """Declare a parameter of an operator, with rules that the generated check enforces.

    Args:
        default: the default value; without it, the parameter must be given.
        minimum, maximum: bounds of a number, or of each number in a tuple, both included.
        choices: the allowed values.
        dims_of: the role of an input. The parameter is then the name of one of that input's dims,
            or a tuple of different names.
    """
    rules = {"minimum": minimum, "maximum": maximum, "choices": choices, "dims_of": dims_of}
    return dataclasses.field(default=default, metadata=rules)


class Operator(Protocol):
    """An operator: an instance of a frozen dataclass with a method ``compute``, or the class."""

    compute: Callable[..., Any]


class OneOutput(Protocol):
    """An operator with one output."""

    @property
    def compute(self) -> Callable[..., VTensor]:
        """The method that returns the output."""


class SeveralOutputs(Protocol):
    """An operator with several outputs."""

    @property
    def compute(self) -> Callable[..., tuple[VTensor, ...]]:
        """The method that returns the outputs."""


#: The operators by name. The registry in use (``libdesc.registry``) shares its dict with this
#: table: a new registry replaces the attribute ``data`` here.
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
        name: the operator's name in graphs and plans.
        dims: a row of dim names for each operand, by its role (its name). Roles that are parameters
            of ``compute`` are inputs; all others are outputs. With ``compute(self, ctx, *x)`` or
            ``compute(self, ctx, x, *more)``, an operator has one input or more. A last role
            ``"*y"`` stands for any number of outputs.
        equal: pairs of products that must be equal, ``("x.C", "w.I * group")``.
        holds: further conditions on parameters and inputs, as pairs of a function and a message.
            Before ``compute``, each function is called in order with the instance and the inputs;
            if it returns False, an error is raised with its message, such as
            ``"{op.axis} must be a new dim"``.
        onnx: the operator's ONNX spelling; several if versions or names differ.
        traits: the operator's traits, at most one of each type.

    Raises:
        GraphError: the name is taken, ``dims`` and ``compute`` disagree, or a trait is there twice.

    Source: the paper, section 4.3.
    """

    def register(cls: type[T]) -> type[T]:
        if not callable(getattr(cls, "compute", None)):
            raise GraphError(f"operator {name}: {cls.__qualname__} has no compute(self, ctx, ...)")
        if "__dataclass_fields__" not in vars(cls):  # the fields of a base class do not count
            try:
                cls = dataclass(cls, frozen=True)
            except (TypeError, ValueError) as error:
                raise GraphError(f"operator {name}: {cls.__qualname__}: {error}") from None
        parameters = _parameters(cast(Operator, cls).compute)
        specs = parsed_dims(name, dims, [parameter.name for parameter in parameters])
        parameters = parameters[1:]
        inputs = tuple(p.name for p in parameters)
        variadic = bool(parameters) and parameters[-1].kind is inspect.Parameter.VAR_POSITIONAL
        outputs = tuple(role for role in specs if role not in inputs)
        many = frozenset(inputs[-1:] if variadic else ())
        many |= {role for role in outputs if f"*{role}" in dims}
        file, line = _place(cls)
        previous = OPERATORS.find(name, wait=False)
        if previous is not None and (previous.file, previous.cls.__qualname__) != (
            file,
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
            file,
            line,
        )
        _check_on_construction(cls, name)
        cls.__operator__ = name  # type: ignore[attr-defined]
        return cls

    return register


@lru_cache(maxsize=128)  # the operators of a family share one ``compute``
def _parameters(compute: Callable[..., Any]) -> Sequence[inspect.Parameter]:
    """Return the parameters of a ``compute`` without ``self``."""
    return list(inspect.signature(compute).parameters.values())[1:]


def _place(cls: type) -> tuple[str, int]:
    """Return the file and line of an operator's class, without reading its source.

    The line is ``__firstlineno__`` if the class has it. Otherwise the line of the decorator's call
    is searched in the call stack. If it is not found, or the class's own ``compute`` begins on an
    earlier line, the line is the first one of ``compute``.
    """
    file, _, text = place_of(cast(Operator, cls).compute).rpartition(":")
    line = int(text)
    if first := vars(cls).get("__firstlineno__"):
        return getattr(sys.modules.get(cls.__module__), "__file__", None) or file, first
    scope = cls.__qualname__.rpartition(".")[0].removesuffix(".<locals>") or "<module>"
    around: FrameType | None = sys._getframe(1)
    while around is not None:
        code, call_line = around.f_code, around.f_lineno
        if (around.f_globals.get("__name__"), code.co_qualname) == (cls.__module__, scope):
            has_compute = "compute" in vars(cls)
            return code.co_filename, min(call_line, line) if has_compute else call_line
        around = around.f_back
    return file, line


def _check_on_construction(cls: type, name: str) -> None:
    """Make a class check its parameters whenever an instance is constructed."""
    check = cache(lambda: parameter_check(name, cls))  # compiled for the first instance
    if checked(cls, lambda op: check()(op)):
        return
    construct = cls.__init__  # type: ignore[misc]  # of this class, not of a subclass

    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        construct(self, *args, **kwargs)
        check()(self)

    init.__wrapped__ = construct  # type: ignore[attr-defined]  # keeps signature and help
    cls.__init__ = init  # type: ignore[misc]


def info_of(op: object) -> OperatorInfo:
    """Return the declaration that is registered for an operator instance.

    Raises:
        GraphError: the object is no operator.
    """
    name = getattr(type(op), "__operator__", None)
    if name is None:
        raise GraphError(f"{op!r} is no operator; operators are registered with @operator")
    return OPERATORS.data.get(name) or OPERATORS[name]


def named(name: str) -> Any:
    """Return the class of the operator that is registered under a name.

    Files of operators do not import each other: an operator's spelling gets another operator from
    this function.

    Raises:
        KeyError: no operator has this name.
    """
    return OPERATORS[name].cls


def result_type(op: object, types: Sequence[str]) -> str:
    """Return the element type of an operator's first output, given the types of its inputs.

    It is the attribute ``to`` of the operator if that is an element type, else the type of the
    first input. A method ``result_type(types)`` of the operator overrules both.
    """
    if (own := getattr(op, "result_type", None)) is not None:
        return str(own(types))
    to = getattr(op, "to", None)
    return to if isinstance(to, str) and to in ITEMSIZE else types[0]


def label_of(op: object) -> str:
    """Return an operator instance's label in graphs and plans.

    It is the instance's attribute ``label``, or the operator's name if it has none.

    Raises:
        GraphError: the object is no operator.
    """
    return str(getattr(op, "label", info_of(op).name))


@dataclass
class Context:
    """The first argument of ``compute``: it gives names to outputs, and passes calls to libraries.

    This base class calls no library; it only checks parameters and dims. ``Graph.add`` uses it to
    infer the shapes of outputs.

    Attributes:
        node: the node's name, for errors and plans.
        device: the device that the node is placed on.
        op: the operator's name.
        names: the names of the outputs; empty for default names.
        followers: operators after this node that may be fused, that is, run inside this node's
            step, each with its further operands. The routine that an invoker returns takes all of
            them or none.
    """

    node: str = ""
    device: str = CPU
    op: str = ""
    names: tuple[str, ...] = ()
    followers: tuple[Follower, ...] = ()

    def output(self, index: int) -> Option:
        """Return the origin of output ``index``, which is the last argument of ``VTensor(...)``."""
        name = self.names[index] if index < len(self.names) else ""
        return Option(self.node, self.op, index, self.device, name)

    def dispatch(self, op: object, inputs: Sequence[VTensor], outputs: Sequence[VTensor]) -> None:
        """Check the parameters and the dims of all operands.

        Subclasses then call the first library that takes the call.

        Raises:
            ParameterError: a parameter breaks a rule.
            DimError: the dims or sizes of the operands break a rule.
        """
        compile_check(info_of(op).check)(self.node, op, inputs, outputs)


@dataclass(frozen=True)
class Follower:
    """A fused operator: it runs inside the step of the node before it, on that node's output.

    Attributes:
        op: the follower's operator.
        operands: the follower's inputs other than that output.
        places: the indices among all inputs of the follower at which it reads that output.
        takes: the element type of that output; empty if it is the type of the last follower's
            output.
    """

    op: object
    operands: tuple[VTensor, ...] = field(default=())
    places: tuple[int, ...] = (0,)
    takes: str = ""

    @property
    def gives(self) -> str:
        """The element type of the follower's output; empty if ``takes`` is."""
        types = self.inputs(self.takes, [operand.dtype for operand in self.operands])
        return result_type(self.op, types) if self.takes else ""

    def inputs(self, output: T, others: Sequence[T]) -> list[T]:
        """Return an object for each input of the follower, in the order of its inputs.

        Args:
            output: the object for the output that the follower reads; it is repeated if the
                follower reads that output several times.
            others: the object for each of ``operands``.
        """
        operands = iter(others)
        count = len(self.places) + len(others)
        return [output if place in self.places else next(operands) for place in range(count)]

    def expression(self, output: Expression, others: Sequence[Expression]) -> Expression | None:
        """Return the follower's expression; None if its operator is not point-wise.

        Args:
            output: the expression of the output that the follower reads.
            others: the expressions of ``operands``.
        """
        return expression_of(self.op, *self.inputs(output, others))


def expression_of(op: object, *inputs: Expression) -> Expression | None:
    """Return the expression of an operator on its inputs; None if it is not point-wise."""
    trait = info_of(op).trait(Pointwise)
    return trait.expression(op, *inputs) if trait else None


def _with_inputs(headline: str, info: OperatorInfo, inputs: Sequence[VTensor]) -> str:
    """Return ``headline``, and a line for each input: its role, dims and element type."""
    rows = zip(info.roles(len(inputs), 0), inputs, strict=True)
    return describe(headline, {role: (value.dtype, value.dims) for role, value in rows})


def run_compute(ctx: Context, op: object, inputs: Sequence[VTensor]) -> tuple[VTensor, ...]:
    """Run an operator's ``compute`` in a context and return its outputs.

    Args:
        ctx: the context; its ``op`` is set to the operator's name.
        op: the operator instance.
        inputs: the operands.

    Raises:
        GraphError: the number of inputs is wrong, or ``compute`` returns wrong outputs.
        DimError, DTypeError: the operator does not take these inputs. The message names the node
            and the operator, and has a line for each input.
        InvokerError: ``compute`` raised an error that is not VTensor's.
    """
    info = info_of(op)
    ctx.op = info.name
    variadic = not info.many.isdisjoint(info.inputs)
    minimum = max(len(info.inputs) - 1, 1) if variadic else len(info.inputs)
    if len(inputs) < minimum or (len(inputs) > minimum and not variadic):
        takes = f"at least {minimum}" if variadic else str(minimum)
        wanted = f"{takes} input{'s' * (minimum != 1)}"
        raise GraphError(f"{info.name} {ctx.node!r} takes {wanted}, {len(inputs)} given")
    try:
        if (check := input_check(info.check)) is not None:
            check(op, inputs)
        result = cast(Operator, op).compute(ctx, *inputs)
    except (DimError, DTypeError) as error:
        if "\n" in str(error):
            raise
        text = f"{info.name} {ctx.node!r}: {error}"
        raise type(error)(_with_inputs(text, info, inputs)) from None
    except (VTensorError, MemoryError):
        raise
    except Exception as error:  # from the operator author's code
        pass_signals(error)
        place = place_of(cast(Operator, op).compute)
        text = f"{info.name} {ctx.node!r}, compute ({place}): {raised(error, place)}"
        raise InvokerError(_with_inputs(text, info, inputs)) from error
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
