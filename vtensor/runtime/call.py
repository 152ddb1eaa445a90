"""Running one operator by itself, through the same stages as a network."""

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
from vtensor.language.forks import process_lock
from vtensor.language.graph import Graph
from vtensor.language.operators import info_of
from vtensor.language.table import OperatorInfo
from vtensor.language.tensor import VTensor
from vtensor.runtime.session import Session
from vtensor.storage.inputs import Array, as_array, dense_part

Names = str | Sequence[str]


class Calls:
    """The sessions of calls, of which the last used ones are kept for calls like them.

    Args:
        most: how many.
    """

    def __init__(self, most: int = 32) -> None:
        self.most = most
        self._sessions: dict[Hashable, Session] = {}  # the last used one is last

    def __len__(self) -> int:
        return len(self._sessions)

    def session(self, key: Hashable, make: Callable[[], Session]) -> Session:
        """The session that is kept under a key, else a new one."""
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
        """Let go of all sessions, with their plans and memory."""
        with _lock:
            self._sessions.clear()


#: The calls of each registry, which go with it: ``call`` is a function, so that between two calls
#: nothing else lives that could keep them.
_calls: WeakKeyDictionary[Registry, Calls] = WeakKeyDictionary()
_lock = process_lock()


def calls() -> Calls:
    """What is kept of calls: ``calls().clear()`` gives its memory back."""
    found = ready()
    with _lock:
        return _calls.setdefault(found, Calls())


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
            Without it, an array's axes get the names that the operator declares, if it declares
            one row of names; else the last names of another operand; else D0, D1, ... counted
            so that the last axes of all operands have the same names, as NumPy broadcasts.
        libraries: the libraries that are tried, in order, and after them NumPy; None is all.
        pin: the one library that must run it.
        threads: kernel threads; None is all processors.
        named: operands by role, after those by position: ``call(Conv2D(), x, w=kernel)``.

    Returns:
        The output, or a tuple of them: VTensors if an operand is one, in the layout that the
        library produced; else NumPy arrays in the order of the dims. A VTensor is not
        converted first, so the result of one call is an operand of the next as it is.

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
    as_tensors = any(isinstance(one, VTensor) for one in operands)
    session = _session(op, tensors, libraries, pin, threads, as_tensors)
    run = session.run_tensors if as_tensors else session.run
    results: Sequence[Any] = run(None, tensors)
    return results[0] if len(results) == 1 else tuple(results)


def _in_order(
    info: OperatorInfo, operands: tuple[object, ...], named: Mapping[str, object]
) -> tuple[object, ...]:
    """All operands by position.

    Raises:
        InputError: a name is unknown or taken by position, or one before it is left out.
    """
    roles = info.roles(len(operands) + len(named), 0)
    wanted = roles[len(operands) :]
    if set(named) != set(wanted):
        takes, given = ", ".join(roles or info.inputs), ", ".join(named)
        raise InputError(
            f"{info.name} takes {takes}, in this order; {len(operands)} were given by position, "
            f"and by name {given}"
        )
    return (*operands, *(named[role] for role in wanted))


def _tensors(
    info: OperatorInfo,
    roles: Sequence[str],
    operands: Sequence[object],
    dims: Names | Mapping[str, Names] | None,
) -> list[VTensor]:
    """The operands under names."""
    if dims is None or isinstance(dims, Mapping):
        given: Mapping[str, Names] = dims or {}
    else:
        given = {roles[0]: dims} if roles else {}
    unknown = [role for role in given if role not in roles]
    if unknown:
        text = f"dims of {', '.join(unknown)}; its inputs are {', '.join(roles)}"
        raise DimError(f"{info.name}: {text}")
    arrays = [
        one if isinstance(one, VTensor) else as_array(f"input {role!r}", one)
        for role, one in zip(roles, operands, strict=True)
    ]
    rows: list[Sequence[str] | None] = [
        tuple(one.dims) if isinstance(one, VTensor) else _given(info, role, one, given)
        for role, one in zip(roles, arrays, strict=True)
    ]
    known: Sequence[str] = max((row for row in rows if row is not None), key=len, default=())
    most = max((one.ndim for one in arrays if not isinstance(one, VTensor)), default=0)
    shared = known if len(known) >= most else tuple(f"D{axis}" for axis in range(most))
    tensors = []
    for role, one, row in zip(roles, arrays, rows, strict=True):
        if isinstance(one, VTensor):
            tensors.append(one)
            continue
        try:
            names = shared[len(shared) - one.ndim :] if row is None else row
            tensors.append(from_array(one, names))
        except DimError as error:
            raise DimError(f"{info.name}: {role}: {error}") from None
    return tensors


def _given(
    info: OperatorInfo, role: str, array: Array, given: Mapping[str, Names]
) -> Sequence[str] | None:
    """What was said of an array's axes, or what the operator declares; None for neither."""
    names = given.get(role)
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
    """A session of one node; kept by operator, dims, element types and what is to come out."""

    def make() -> Session:
        return _make(op, tensors, libraries, pin, threads, as_tensors)

    shapes = tuple((role, one.dtype, tuple(one.dims.items())) for role, one in tensors.items())
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
    inputs = [graph.input(role, one.dims, one.dtype) for role, one in tensors.items()]
    results = graph.add(op, *inputs, name="call")
    for value in results if isinstance(results, tuple) else (results,):
        graph.output(value)
    lying = {role: part.layout for role, one in tensors.items() if (part := dense_part(one))}
    return Session(  # of one node: there is nothing to optimise, to measure or to cache
        graph,
        threads=threads,
        optimize="none",
        cache_dir=None,
        libraries=libraries,
        pin=None if pin is None else {info_of(op).name: pin},
        input_layouts=lying,
        output_layouts=dict.fromkeys(graph.outputs, Layout.ANY) if as_tensors else None,
    )
