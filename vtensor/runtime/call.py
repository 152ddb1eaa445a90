"""Execution of a single operator, through the same stages as a network."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any
from weakref import WeakKeyDictionary

from libdesc.registry import Registry, ready
from ptensor.layout import Layout
from vtensor.errors import DimError, InputError
from vtensor.frontends.arrays import from_array
from vtensor.language.dims import dim_names
from vtensor.language.exact import exact
from vtensor.language.graph import Graph
from vtensor.language.operators import info_of
from vtensor.language.process.forks import process_lock
from vtensor.language.table import OperatorInfo
from vtensor.language.tensor import VTensor
from vtensor.runtime.session import Session
from vtensor.storage.inputs import Array, as_array, dense_part

Names = str | Sequence[str]


class Calls:
    """A cache of sessions for single operators; the most recently used ones are kept.

    Args:
        most: the most sessions.
    """

    def __init__(self, most: int = 32) -> None:
        self.most = most
        self._sessions: dict[Hashable, Session] = {}  # the most recently used one is last

    def __len__(self) -> int:
        return len(self._sessions)

    def session(self, key: Hashable, make: Callable[[], Session]) -> Session:
        """Return the session kept under ``key``. If there is none, call ``make`` and keep its
        result.
        """
        with _lock:
            if (session := self._sessions.pop(key, None)) is not None:
                self._sessions[key] = session
                return session
        session = make()
        with _lock:
            self._sessions[key] = session
            while len(self._sessions) > self.most:
                del self._sessions[next(iter(self._sessions))]
        return session

    def clear(self) -> None:
        """Release all sessions with their plans and memory."""
        with _lock:
            self._sessions.clear()


#: The cached sessions of each registry, released with the registry. They are global because no
#: object lives from one call of ``call`` to the next.
_calls: WeakKeyDictionary[Registry, Calls] = WeakKeyDictionary()
_lock = process_lock()


def calls() -> Calls:
    """Return the cache of the sessions of earlier calls; ``calls().clear()`` releases memory."""
    registry = ready()
    with _lock:
        return _calls.setdefault(registry, Calls())


def call(
    op: object,
    *operands: object,
    dims: Names | Mapping[str, Names] | None = None,
    libraries: Sequence[str] | None = None,
    pin: str | None = None,
    threads: int | None = None,
    **named: object,
) -> Any:
    """Run one operator at once, through its dispatcher and the resolver.

    A call is planned at the level ``"none"``: nothing is measured, nothing is cached, and no work
    is left for the background.

    Args:
        op: an operator instance, ``AvgPool(kernel_shape=(2, 2))``.
        operands: its inputs: arrays, anything with ``__dlpack__`` or ``__array__``, VTensors.
        dims: the names of arrays' axes, by the input's role, or one text for the first input.
            Without it, an array's axes get the names that the operator declares, which must fit
            its rank. If it declares none, they get the last names of another operand; else D0,
            D1, ... counted so that the last axes of all operands have the same names, as NumPy
            broadcasts.
        libraries: the libraries that are tried, in order, and after them NumPy; None is all.
        pin: the only library that may run the operator; None lets the dispatcher choose.
        threads: the number of kernel threads; None is all processors.
        named: operands by role, after those by position: ``call(Conv2D(), x, w=kernel)``.

    Returns:
        The output, or a tuple of all outputs. They are VTensors, in the layout that the library
        produced, if an operand is a VTensor; else NumPy arrays in the order of the dims. The
        result of one call can be an operand of the next without a conversion.

    Raises:
        DimError: dims do not fit an array, or the operator does not take them.
        InputError: an operand is no array, is given twice, or has a name that no input has; or a
            library cannot be used.
        NoInvokerError: no library takes the call, or not the pinned one; lists why each declined.

    >>> import numpy as np
    >>> from ops import AvgPool
    >>> x = np.arange(16, dtype=np.float32).reshape(1, 1, 4, 4)
    >>> call(AvgPool((2, 2), strides=(2, 2)), x)[0, 0]
    array([[ 2.5,  4.5],
           [10.5, 12.5]], dtype=float32)
    """
    ready()
    info = info_of(op)
    operands = _in_order(info, operands, named)
    roles = info.roles(len(operands), 0)
    roles += tuple(f"extra{index}" for index in range(len(operands) - len(roles)))
    tensors = dict(zip(roles, _tensors(info, roles, operands, dims), strict=True))
    as_tensors = any(isinstance(operand, VTensor) for operand in operands)
    session = _session(op, tensors, libraries, pin, threads, as_tensors)
    run = session.run_tensors if as_tensors else session.run
    results: Sequence[Any] = run(None, tensors)
    return results[0] if len(results) == 1 else tuple(results)


def _in_order(
    info: OperatorInfo, operands: tuple[object, ...], named: Mapping[str, object]
) -> tuple[object, ...]:
    """Return all operands in the order of the operator's inputs.

    Args:
        info: the operator.
        operands: the operands given by position; they are those of the first inputs.
        named: the operands given by name, for the other inputs.

    Raises:
        InputError: a name is unknown, an operand is given by name and by position, or an operand is
            missing although a later one is given.
    """
    roles = info.roles(len(operands) + len(named), 0)
    wanted = roles[len(operands) :]
    if set(named) != set(wanted):
        takes, names = ", ".join(roles or info.inputs), ", ".join(named)
        raise InputError(
            f"{info.name} takes {takes}, in this order; {len(operands)} were given by position, "
            f"and by name {names}"
        )
    return (*operands, *(named[role] for role in wanted))


def _tensors(
    info: OperatorInfo,
    roles: Sequence[str],
    operands: Sequence[object],
    dims: Names | Mapping[str, Names] | None,
) -> list[VTensor]:
    """Return the operands as VTensors with named dims.

    Args:
        info: the operator.
        roles, operands: the roles of its inputs and the operands, in order.
        dims: as given to ``call``: the names of arrays' axes, by role or for the first input.

    Raises:
        DimError: the dims do not fit an array or name an unknown input.
    """
    if dims is None or isinstance(dims, Mapping):
        dims_of: Mapping[str, Names] = dims or {}
    else:
        dims_of = {roles[0]: dims} if roles else {}
    unknown = [role for role in dims_of if role not in roles]
    if unknown:
        text = f"dims of {', '.join(unknown)}; its inputs are {', '.join(roles)}"
        raise DimError(f"{info.name}: {text}")
    arrays = [
        operand if isinstance(operand, VTensor) else as_array(f"input {role!r}", operand)
        for role, operand in zip(roles, operands, strict=True)
    ]
    rows: list[Sequence[str] | None] = [
        tuple(operand.dims)
        if isinstance(operand, VTensor)
        else _axis_names(info, role, operand, dims_of)
        for role, operand in zip(roles, arrays, strict=True)
    ]
    known: Sequence[str] = max((row for row in rows if row is not None), key=len, default=())
    most = max((operand.ndim for operand in arrays if not isinstance(operand, VTensor)), default=0)
    shared = known if len(known) >= most else tuple(f"D{axis}" for axis in range(most))
    tensors = []
    for role, operand, row in zip(roles, arrays, rows, strict=True):
        if isinstance(operand, VTensor):
            tensors.append(operand)
            continue
        try:
            names = shared[len(shared) - operand.ndim :] if row is None else row
            tensors.append(from_array(operand, names))
        except DimError as error:
            raise DimError(f"{info.name}: {role}: {error}") from None
    return tensors


def _axis_names(
    info: OperatorInfo, role: str, array: Array, dims_of: Mapping[str, Names]
) -> Sequence[str] | None:
    """Return the names of an array's axes.

    The names in ``dims_of`` come first, then those that the operator declares. Returns None if
    there are neither.

    Args:
        info: the operator.
        role, array: an input's role, and its array.
        dims_of: the names that the caller gave, by role.

    Raises:
        DimError: the names that the operator declares do not tell which axis is which.
    """
    names = dims_of.get(role)
    if names is not None:
        return dim_names(names)
    spec = info.dims.get(role, info.dims.get(role.rstrip("0123456789")))
    if spec is None or (spec.open and not spec.required):
        return None
    row = spec.of_rank(array.ndim)
    if row is not None:
        return row
    have = " ".join(f"{name}?" if name in spec.optional else name for name in spec.names)
    have = f"{have} and any others" if spec.open else have
    raise DimError(
        f"{info.name}: {role} of shape {array.shape} has dims {have}; say which axis is which: "
        f"dims={{{role!r}: ...}}"
    )


def _session(
    op: object,
    tensors: Mapping[str, VTensor],
    libraries: Sequence[str] | None,
    pin: str | None,
    threads: int | None,
    as_tensors: bool,
) -> Session:
    """Return a session that runs a single node.

    Calls with equal arguments, and with tensors of equal element types and dims, return the same
    session while it is cached. It is not cached if an argument cannot be hashed.

    Args:
        op: the operator.
        tensors: the operands, by role.
        libraries, pin, threads: as given to ``call``.
        as_tensors: True if outputs are VTensors in any layout.
    """

    def make() -> Session:
        return _make(op, tensors, libraries, pin, threads, as_tensors)

    shapes = tuple(
        (role, tensor.dtype, tuple(tensor.dims.items())) for role, tensor in tensors.items()
    )
    try:
        among = None if libraries is None else tuple(libraries)
        key = (exact(op), threads, ready().version, among, pin, shapes, as_tensors)
        hash(key)
    except TypeError:  # a parameter that cannot be hashed, or wrong libraries
        return make()
    return calls().session(key, make)


def _make(
    op: object,
    tensors: Mapping[str, VTensor],
    libraries: Sequence[str] | None,
    pin: str | None,
    threads: int | None,
    as_tensors: bool,
) -> Session:
    graph = Graph("call")
    inputs = [graph.input(role, tensor.dims, tensor.dtype) for role, tensor in tensors.items()]
    results = graph.add(op, *inputs, name="call")
    for value in results if isinstance(results, tuple) else (results,):
        graph.output(value)
    layouts = {
        role: part.layout for role, tensor in tensors.items() if (part := dense_part(tensor))
    }
    return Session(  # one node: nothing to optimise, to measure or to cache
        graph,
        threads=threads,
        optimize="none",
        cache_dir=None,
        libraries=libraries,
        pin=None if pin is None else {info_of(op).name: pin},
        input_layouts=layouts,
        output_layouts=dict.fromkeys(graph.outputs, Layout.ANY) if as_tensors else None,
    )
