"""Registration of element-wise operators, with their NumPy, oneDNN, Eigen and ONNX definitions.

``unary`` and ``binary`` make and register the class of an operator without parameters;
``elementwise`` is a decorator that registers a class.
"""

from __future__ import annotations

import dataclasses
import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any, TypeVar, dataclass_transform

import numpy as np

import libdesc.eigen
import libdesc.numpy
import libdesc.onednn
from libdesc import invoker
from libdesc.eigen import TYPES
from libdesc.numpy.arrays import FLOATS, NUMBERS, Array
from libdesc.routine import Routine
from ops import _names as names
from ops._elements import AHEAD
from ops._places import one_output
from ops._writing import write_aligned
from ptensor.floats import grid
from vtensor.language.dims import broadcast
from vtensor.language.dtype import NARROW_FLOATS
from vtensor.language.operators import OPERATORS, result_type
from vtensor.language.traits import Trait
from vtensor.operators import (
    Context,
    Elementwise,
    Expression,
    NodeReader,
    Pointwise,
    Spelling,
    operator,
    param,
)
from vtensor.tensor import VTensor

__all__ = ["ALL", "FLOATS", "INTEGERS", "NUMBERS", "Array", "binary", "elementwise", "unary"]

T = TypeVar("T")
Types = Sequence[str] | Mapping[str, Sequence[str]]

#: The element types of numbers and truth values.
ALL = (*NUMBERS, "bool")
#: The element types without fractions.
INTEGERS = ("s64", "s32", "s16", "s8", "u64", "u32", "u16", "u8")
#: The element types that oneDNN's element-wise kernels take.
NATIVE = ("f32", "bf16", "f16")

#: By name of an operator, a pair: its NumPy function, which is called with ``(op, *inputs)``; and
#: that function's result if all inputs are 0, or a function from the operator to this result.
ROWS: dict[str, tuple[Callable[..., Any], float | Callable[[Any], float]]] = {}


def pointwise(op: object, ctx: Context, *operands: VTensor) -> VTensor:
    """Dispatch an element-wise operator and return its output; dims are matched by name."""
    dtype = result_type(op, [operand.dtype for operand in operands])
    return one_output(ctx, op, operands, broadcast(*(x.dims for x in operands)), dtype)


def narrowed(x: Expression, to: str, saturate: bool) -> Expression:
    """Return the value of ``x`` cast to an element type; the arguments are those of Cast."""
    if saturate and to in NARROW_FLOATS and to != "f8e8m0":
        largest = grid(to).largest
        x = x.max(-largest).min(largest)
    return x.to(to)


class Unary:
    """An operator on one operand.

    Dims:
        x, y: any, the same
    """

    def compute(self, ctx: Context, x: VTensor) -> VTensor:
        """Dispatch on x, and return the output."""
        return pointwise(self, ctx, x)


class Binary:
    """An operator on two operands.

    An operand is repeated along a dim that it lacks, or has with size 1, to the other's size.

    Dims:
        a, b: any    y: the dims of both
    Raises:
        DimError: a dim that both have has two sizes, and neither is 1.
    """

    def compute(self, ctx: Context, a: VTensor, b: VTensor) -> VTensor:
        """Dispatch on a and b, and return the output."""
        return pointwise(self, ctx, a, b)


def parameter_of(x: Array, number: float) -> Any:
    """Return ``number`` in the element type of ``x`` if that is an integer type.

    If it is not, or if ``number`` has a fraction or a magnitude from 2**63 on, ``number`` is
    returned unchanged.
    """
    whole = x.dtype.kind in "iu" and abs(number) < 2**63 and number == int(number)
    return np.asarray(int(number)).astype(x.dtype) if whole else number


def spelled(op_type: str, since: int, cls: type, many: bool = False) -> list[Spelling]:
    """Return the ONNX spellings of an operator, which say how it is read from and written to ONNX.

    The operator's parameters are ONNX's attributes of the same names.

    Args:
        op_type: the name of the ONNX operator.
        since: the first opset that has the ONNX operator. If it is 1 and the operator has two
            inputs, opsets up to 6 get a spelling of their own: there, attributes say how the second
            input is repeated.
        cls: the operator's class.
        many: True if an ONNX node may have any number of inputs. It is then read as a chain of
            operators with two inputs each.
    """

    def read(node: NodeReader) -> VTensor:
        op = names.from_attributes(node, cls)
        if many:
            return names.chained(node, op)
        return node.add(op, *([node.input(0)] if alone else names.broadcast_inputs(node)))

    def read_old(node: NodeReader) -> VTensor:
        op = names.from_attributes(node, cls)
        return node.add(op, names.broadcast_input(node, 0), names.old_broadcast_input(node))

    _, alone = _inputs(cls)
    known = names.same_names if alone else names.broadcast_names
    written = partial(
        Spelling,
        op_type,
        read=read,
        names=known,
        write=write_aligned(op_type),
        ahead=AHEAD.get(op_type),
    )
    if alone or since > 1:
        return [written(since)]
    return [Spelling(op_type, since, read_old, names.old_broadcast_names, until=6), written(7)]


@lru_cache(maxsize=128)  # most operators share one ``compute``
def _parameters(compute: Callable[..., Any]) -> Sequence[inspect.Parameter]:
    """Return the parameters of a ``compute`` method."""
    return [*inspect.signature(compute).parameters.values()]


def _inputs(cls: Any) -> tuple[list[str], bool]:
    """Return the names of the operator's inputs in ``compute``, and whether it has exactly one."""
    inputs = _parameters(cls.compute)[2:]
    alone = len(inputs) == 1 and inputs[0].kind is not inspect.Parameter.VAR_POSITIONAL
    return [parameter.name for parameter in inputs], alone


@dataclass_transform(frozen_default=True, field_specifiers=(param, dataclasses.field))
def elementwise(
    name: str,
    onnx: int | Spelling | Sequence[Spelling] | Callable[[type], Sequence[Spelling]],
    numpy: Callable[..., Any] | None,
    dtypes: Types | None = None,
    *,
    zero: float | Callable[[Any], float] = 0.0,
    widen: bool = True,
    onednn: str | tuple[Any, ...] | Callable[..., Routine] = (),
    when: Callable[..., bool | str] | None = None,
    expression: Callable[..., Any] | None = None,
    inplace: Sequence[str] | None = None,
    many: bool = False,
    traits: Sequence[Trait] = (),
    holds: Sequence[tuple[Callable[..., bool], str]] = (),
) -> Callable[[type[T]], type[T]]:
    """Return a decorator that registers a class as an element-wise operator, with its invokers.

    A role is the name of an input in ``compute``. ``numpy``, ``expression`` and a
    function ``onednn`` get the operator's instance as the first argument if the operator has
    parameters. No operator uses oneDNN's max and min, which lose a NaN, its log, which is
    inaccurate near 1, or its soft_relu, inaccurate for small results.

    Args:
        name: the operator's name.
        onnx: the first opset that has the operator, if ONNX has it under the same name with its
            parameters as attributes. Else its spellings, which say how it is read from and written
            to ONNX, or a function from the class to them.
        numpy: the definition, a function of the inputs' arrays; None if it is registered elsewhere.
        dtypes: the element types that the definition takes, for every input or by role; None means
            floats, and for several inputs integers too.
        zero: the result if every input is 0, or a function from the instance to that result.
        widen: True passes half floats to ``numpy`` as f32.
        onednn: oneDNN's algorithm, or a tuple of it and its constants, as numbers or names of
            parameters; or a function of the inputs and the output that returns the routine. Empty
            registers no oneDNN invoker.
        when: a function of ``(op, *operands)`` that returns True if oneDNN takes the call, else
            False or the reason.
        expression: a function from the inputs, as ``Expression``, to the expression of an output
            element. It becomes the trait ``Pointwise`` and Eigen's invoker. None registers neither.
        inplace: roles of the inputs that the output may overwrite in memory: on Eigen any of them,
            on oneDNN the first; None means all inputs.
        many: True if an ONNX node with more than two inputs is read as a chain of operators.
        traits: traits besides ``Elementwise``.
        holds: conditions on the operands, as for ``operator``.
    """

    def register(cls: type[T]) -> type[T]:
        roles, alone = _inputs(cls)
        spellings = spelled(name, onnx, cls, many) if isinstance(onnx, int) else onnx
        has_parameters = bool(inspect.get_annotations(cls))

        def called(function: Any, op: object, *operands: Any) -> Any:
            return function(op, *operands) if has_parameters else function(*operands)

        pointwise_trait = [Pointwise(partial(called, expression))] if expression else []
        registered = operator(
            name,
            dims=dict.fromkeys((*roles, "y"), "*"),
            holds=holds,
            onnx=spellings(cls) if callable(spellings) else spellings,
            traits=[Elementwise(), *pointwise_trait, *traits],
        )(cls)
        over = roles if inplace is None else inplace
        info = OPERATORS.data[name]  # not by lookup: its file is still being imported
        place = f"{info.file}:{info.line}"

        def keeps_zero(op: object) -> bool:
            return alone and (zero(op) if callable(zero) else zero) == 0

        on_onednn, on_eigen = _on_onednn(onednn, called, alone), _on_eigen()
        on_onednn.__dict__["__place__"] = on_eigen.__dict__["__place__"] = place
        types = (FLOATS if alone else NUMBERS) if dtypes is None else dtypes
        types = types if isinstance(types, Mapping) else dict.fromkeys(roles, types)
        if numpy:
            ROWS[name] = defined, _ = partial(called, numpy), zero
            define = libdesc.numpy.elementwise(name, types, widen, keeps_zero, place)
            define(defined)
        if onednn:
            invoker(name, library="onednn", dtypes=NATIVE, when=when, inplace=over[:1])(on_onednn)
        if expression:
            native = {role: [t for t in known if t in TYPES] for role, known in types.items()}
            result = vars(cls).get("to")  # the output's element type, whatever the inputs' are
            fits = [r for r in over if not isinstance(result, str) or result in native.get(r, ())]
            invoker(name, library="eigen", dtypes=native, inplace=fits)(on_eigen)
        return registered

    return register


def _on_onednn(
    onednn: str | tuple[Any, ...] | Callable[..., Routine], called: Callable[..., Any], alone: bool
) -> Callable[..., object]:
    """Return the oneDNN invoker of an element-wise operator.

    Args:
        onednn: the argument of ``elementwise`` with this name.
        called: takes a function, an instance of the operator and the operands. It calls the
            function with the operands; before them comes the instance if the operator has
            parameters.
        alone: True if the operator has exactly one input.
    """

    def on_onednn(ctx: Context, op: object, *operands: VTensor) -> object:
        if callable(onednn):
            return called(onednn, op, *operands)
        alg, *constants = (onednn,) if isinstance(onednn, str) else onednn
        numbers = (getattr(op, c) if isinstance(c, str) else c for c in constants)
        routine: Any = libdesc.onednn.Eltwise if alone else libdesc.onednn.Binary
        return routine(alg, *operands, *map(float, numbers))

    return on_onednn


def _on_eigen() -> Callable[..., object]:
    """Return an Eigen invoker for operators that are defined by an expression of their elements.

    Each call makes a new function: the caller stores the file and line of one operator in it.
    """

    def on_eigen(ctx: Context, op: object, *operands: VTensor) -> object:
        return libdesc.eigen.pointwise(op, operands[:-1], operands[-1], ctx.followers)

    return on_eigen


def _row(
    base: type[T],
    name: str,
    says: str,
    onnx: tuple[int, int],
    numpy: Callable[..., Any],
    dtypes: Sequence[str] = (),
    to: str = "",
    **row: Any,
) -> type[T]:
    """Make, register and return the class of an operator without parameters.

    Args:
        base: ``Unary`` or ``Binary``.
        name: the operator's name, here and in ONNX.
        says: the first line of the class's docstring, without the full stop.
        onnx: the first opset that has the operator, and the last opset that changed it.
        numpy, dtypes: arguments of ``elementwise``.
        row: further arguments of ``elementwise``, by name.
        to: the output's element type; empty means the first operand's.
    """
    caller, (since, latest) = sys._getframe(1), onnx
    dtype = next(d for d in ("f32", "s32", *dtypes) if d in (dtypes or NUMBERS))
    operands = "x" if base is Unary else f'x, VTensor("{dtype}", {{"C": 3}})'
    known = {
        "__module__": caller.f_globals["__name__"],
        "__firstlineno__": caller.f_lineno,
        "__doc__": f"{says}.\n{(base.__doc__ or '').partition(chr(10))[2]}"
        + _EXAMPLE.format(name, dtype, operands, to or dtype, latest),
    } | ({"to": to} if to else {})
    return elementwise(name, since, numpy, dtypes or None, **row)(type(name, (base,), known))


_EXAMPLE = """
    >>> from vtensor import VTensor
    >>> from vtensor.operators import Context
    >>> x = VTensor("{1}", {{"N": 2, "C": 3}})
    >>> {0}().compute(Context(), {2}).summary()
    '{3} N=2 C=3'

    Source: ONNX operator {0}, opset {4}.
    """

#: Make, register and return the class of an operator on one operand: see ``_row``.
unary = partial(_row, Unary)
#: Make, register and return the class of an operator on two operands: see ``_row``.
binary = partial(_row, Binary)
