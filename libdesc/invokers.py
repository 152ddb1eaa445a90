"""The record that ``@invoker`` registers, and its checks."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence

from vtensor.errors import DTypeError, LibraryError
from vtensor.language.dtype import ITEMSIZE
from vtensor.language.failures import place_of
from vtensor.language.operators import OPERATORS
from vtensor.language.records import dataclass
from vtensor.language.table import OperatorInfo

#: Takes ``(ctx, op, *operands)``. Returns the library call as a Routine, or several Routines in
#: order. Returns None if it has made the call itself.
InvokerFunction = Callable[..., object]
When = Callable[..., bool | str]
First = Callable[..., bool]


@dataclass(frozen=True, eq=False)
class InvokerInfo:
    """A registered invoker.

    Attributes:
        op, library, device: names of the operator, the library and the device.
        function: the invoker itself.
        dtypes: the accepted element types, by the operand's role, with or without its number. An
            operand whose role is no key has those under ``""``. Without the key ``""``, such an
            operand may have any type.
        when: a condition, called with ``(op, *operands)``. If it returns False or a text (the
            reason), the call is declined.
        priority: overrides the library's priority for this operator; None keeps it.
        python: True if it computes in Python and so becomes a call-back step.
        file, line: where the function is defined.
        inplace: roles of the inputs that the first output may overwrite.
        first: a condition, called with ``(op, *inputs)``. If it returns True, the library is asked
            before the libraries in ``before``, although these have higher priority. None if there
            is no condition.
        before: names of the libraries of higher priority that ``first`` is about; empty without
            ``first``.
    """

    op: str
    library: str
    device: str
    function: InvokerFunction
    dtypes: Mapping[str, frozenset[str]]
    when: When | None
    priority: int | None
    python: bool
    file: str
    line: int
    inplace: tuple[str, ...] = ()
    first: First | None = None
    before: tuple[str, ...] = ()


def make_invoker(
    op: str,
    library: str,
    device: str,
    function: InvokerFunction,
    dtypes: Sequence[str] | Mapping[str, Sequence[str]] | None,
    when: When | None,
    priority: int | None,
    python: bool,
    inplace: Sequence[str],
    first: First | None,
    before: Sequence[str],
) -> InvokerInfo:
    """Check the arguments of ``@invoker`` and return the record of the invoker.

    Raises:
        LibraryError: an argument has a wrong type, or only one of first and before is given.
        DTypeError: an element type does not exist.
    """
    subject = f"invoker of {op} on {library}"
    if not inspect.isfunction(function):
        raise LibraryError(
            f"{subject}: {function!r} is no function: write def ... below @invoker(...)"
        )
    place = place_of(function)
    for key, value in (("op", op), ("library", library), ("device", device)):
        if not isinstance(value, str):
            raise LibraryError(f"{subject}: {key}={value!r} must be a name ({place})")
    if priority is not None and (not isinstance(priority, int) or isinstance(priority, bool)):
        raise LibraryError(f"{subject}: priority={priority!r} must be an integer ({place})")
    conditions: dict[str, object] = {"when": when, "first": first}
    for key, condition in conditions.items():
        if condition is not None and not callable(condition):
            takes = "operands" if key == "when" else "inputs"
            text = f"{key}={condition!r} must be a function of (op, *{takes})"
            raise LibraryError(f"{subject}: {text} ({place})")
    if isinstance(before, str):
        raise LibraryError(f"{subject}: before={before!r} must be libraries in a list ({place})")
    if bool(before) != (first is not None):
        raise LibraryError(
            f"{subject}: first and before go together: give both or neither ({place})"
        )
    if isinstance(inplace, str):
        raise LibraryError(f"{subject}: inplace={inplace!r} must be roles in a list ({place})")
    file, _, line = place.rpartition(":")
    types, roles = _types(dtypes, subject, place), tuple(inplace)
    return InvokerInfo(
        *(op, library, device, function, types, when, priority, python, file, int(line), roles),
        first=first,
        before=tuple(before),
    )


def _types(
    dtypes: Sequence[str] | Mapping[str, Sequence[str]] | None, subject: str, place: str
) -> dict[str, frozenset[str]]:
    rows = dtypes if isinstance(dtypes, Mapping) else {} if dtypes is None else {"": dtypes}
    for row in rows.values():
        if isinstance(row, str):
            raise DTypeError(
                f"{subject}: dtypes: {row!r} must be element types in a list ({place})"
            )
    types = {role: frozenset(row) for role, row in rows.items()}
    unknown = sorted(frozenset().union(*types.values()) - ITEMSIZE.keys(), key=str)
    if unknown:
        raise DTypeError(
            f"{subject}: dtypes {', '.join(map(repr, unknown))} are unknown;"
            f" there are {', '.join(ITEMSIZE)} ({place})"
        )
    return types


def fault_of(info: InvokerInfo) -> str:
    """Return a text about what does not fit between an invoker and its operator.

    It is empty if all fits, or if the operator is not imported yet.
    """
    operator = OPERATORS.data.get(info.op)
    if operator is None:
        return ""
    roles = (*operator.inputs, *operator.outputs)
    wrong = sorted({*info.dtypes} - {"", "post", *roles}) + sorted(
        {*info.inplace} - {*operator.inputs}
    )
    if wrong:
        names = ", ".join(map(repr, wrong))
        where = "dtypes and inplace name" if len(wrong) > 1 else "dtypes or inplace names"
        return f"{where} {names}; the operands of {info.op} are {', '.join(roles)}"
    return _arity_fault(info, operator)


def _arity_fault(info: InvokerInfo, operator: OperatorInfo) -> str:
    code = inspect.unwrap(info.function).__code__
    if operator.many or code.co_flags & inspect.CO_VARARGS:
        return ""
    wanted = ["ctx", "op", *operator.inputs, *operator.outputs]
    least = code.co_argcount - len(info.function.__defaults__ or ())
    if least <= len(wanted) <= code.co_argcount:
        return ""
    takes = ", ".join(code.co_varnames[: code.co_argcount])
    return f"it takes ({takes}), and is called with ({', '.join(wanted)})"
