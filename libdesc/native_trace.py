"""Traces that record native calls, too, as rows between those of arithmetic on sizes.

A trace is a table; a row is a call, or an operation on sizes, with its result. While a trace is the
current tracer, each native call is made with the current sizes and recorded as a row.

Two traces are recorded. The *constant trace* has the calls that depend on no size; another process
that uses the trace repeats them. A *trace with symbols* has the calls that depend on one of its
symbols (open sizes). They are repeated for other sizes, where their plain results (texts, element
types, layouts) must be the same: these are guards.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from types import ModuleType
from typing import Any

import numpy as np

from libdesc.tracing import TRACER, pure, pure_function, pure_name, tracing
from ptensor.layout import Layout
from vtensor.language.symbolic.rows import CALL, COMPUTE, GET, ITEM, ONE, NotSaved, Rows
from vtensor.language.symbolic.symbolic_arrays import TRACED, Computes
from vtensor.language.symbolic.trace import SymbolicSize, Trace

for _function in TRACED:
    pure(_function)

#: Types of results for which a trace gets a guard: for other sizes the result must be the same.
_GUARDED_TYPES = (str, bool, float, bytes, type(None), Layout)

#: Types of constants that JSON can hold without conversion.
_PLAIN_TYPES = (str, int, float, bool, type(None))

#: Attributes in which a native module may describe its build.
_BUILD_ATTRIBUTES = ("level", "version", "isa", "library_path")

#: How a native object can be made or found again. A number is the index of the row that makes it
#: (see ``Row``). A tuple has the names that lead to it: a module, then attributes. None means that
#: data cannot express it.
Where = int | tuple[str, ...] | None


class NativeTrace(Trace):
    """A trace of sizes and of native calls.

    Args:
        outer: the constant trace that goes with this trace with symbols. None makes this the
            constant trace, which has no symbols.

    >>> from libdesc.tracing import traced
    >>> trace = NativeTrace(NativeTrace())
    >>> n = trace.size(7)
    >>> with tracing(trace):
    ...     larger = traced(max)(n, 3)
    >>> larger.value, trace.run([9])[:2], trace.run([2])[:2]
    (7, [9, 9], [2, 3])
    """

    def __init__(self, outer: NativeTrace | None = None) -> None:
        super().__init__()
        self.outer = outer
        self._proxies: list[Foreign] = []
        self._cached: dict[Any, Any] = {}

    def rows(self) -> Rows:
        """Return the rows of the trace. A trace with symbols is then closed; a constant trace stays
        open.
        """
        if self.outer is not None:
            return super().rows()
        parts = [*self._constants], [*self._rows], {**self._sources}
        return Rows([], len(self.values), *parts)

    def forget(self) -> None:
        """Release the native objects that were made for the current sizes. A constant trace also
        drops its rows.
        """
        self.values = [value if type(value) is int else 0 for value in self.values]
        self._cached.clear()
        if self.outer is None:
            self._rows, self._places, self.values = [], {}, []
            self._constants, self._sources = [], {}
        else:
            for proxy in self._proxies:
                proxy.own = None
        self._proxies.clear()

    def traced(self, native: Any) -> Any:
        """Return a proxy of a native module or of a function; the trace records its uses."""
        path = (native.__name__,) if isinstance(native, ModuleType) else None
        return Foreign(self.outer or self, native, path)

    def cached(
        self, function: Callable[..., Any], arguments: tuple[Any, ...], named: Mapping[str, Any]
    ) -> Any:
        """Return the result of a cached function, and record the native calls inside it."""
        if self.outer is not None:
            if self._is_open(arguments) or self._is_open((*named.values(),)):
                return function(*arguments, **named)
            with tracing(self.outer):
                return self.outer.cached(function, arguments, named)
        key = function, arguments, (*named.items(),)
        try:
            result = self._cached.get(key)
        except TypeError:  # a native object is among the arguments
            return function(*arguments, **named)
        if result is None:
            result = self._cached[key] = function(*arguments, **named)
        return result

    def attribute(self, of: Foreign, name: str) -> Any:
        """Return an attribute of a proxy's object, in the form of a result of ``called``.

        A row is recorded, except in three cases: the object is a module or was found in one, the
        attribute is a class of errors, or it is a plain value that depends on no size.

        Args:
            of: the proxy.
            name: the attribute's name.
        """
        if self.outer is not None and not self._is_open(of):
            return self.outer.attribute(of, name)
        value = getattr(of.own, name)
        if _is_error(value):
            return value
        if isinstance(of.where, tuple):
            return value if _is_plain(value) else Foreign(self, value, (*of.where, name))
        if self.outer is None and _is_plain(value):
            return value
        return self._answer(self._row((GET, name, self.place_of(of), None), value))

    def called(self, of: Foreign, arguments: Sequence[Any], named: Mapping[str, Any]) -> Any:
        """Call the object of a proxy, record the call as a row, and return its result.

        The result is a plain value, a symbolic size, a proxy, or a tuple or dict of these. No row
        is recorded for a class of errors, or for a plain value that depends on no size. If the call
        raises an exception, ``failed`` is set, and the exception passes unchanged.

        Args:
            of: the proxy that is called.
            arguments, named: its positional and its named arguments.
        """
        values = (*named.values(),)
        if self.outer is not None and not self._is_open((of, *arguments, *values)):
            try:
                return self.outer.called(of, arguments, named)
            except Exception as error:
                self._refused(error)
                raise
        kind = COMPUTE if self.outer is None else CALL
        try:
            by_name = {name: _unwrapped(value) for name, value in named.items()}
            result = of.own(*map(_unwrapped, arguments), **by_name)
        except Exception as error:
            self._refused(error)
            raise
        if _is_error(result) or (self.outer is None and _is_plain(result)):
            return result
        places = tuple(map(self.place_of, arguments))
        names = tuple(zip(named, map(self.place_of, values), strict=True))
        return self._answer(self._row((kind, self.place_of(of), places, names), result))

    def equal(self, of: Foreign, other: object) -> bool:
        """Return whether the object of a proxy equals another object.

        A guard is added if either of them depends on a symbol of this trace.
        """
        same = bool(of.own == _unwrapped(other))
        if self.outer is not None and self._is_open((of, other)):
            self.guard(same, "==", self.place_of(of), self.place_of(other))
        return same

    def place_of(self, value: Any) -> int:
        """Return the index by which rows refer to an argument.

        It is 0, 1, ... for a symbol or the result of a row, and -1, -2, ... for a constant.
        """
        if type(value) is not Foreign:
            return super().place_of(value if self.reads(value) else _unwrapped(value))
        if value.trace is self and type(value.where) is int:
            return value.where
        from_module, has_source = isinstance(value.where, tuple), value.where is not None
        key = (Foreign, 0 if from_module else id(value.trace), value.where) if has_source else None
        place = self.constant(value.own, key)
        self._sources.setdefault(-1 - place, value)
        return place

    def reads(self, value: Any) -> bool:
        """Return whether an argument is, or contains, a native object, the result of a row or a
        symbolic size.
        """
        return type(value) is Foreign or super().reads(value)

    def _is_open(self, value: Any) -> bool:
        """Return whether a value depends on a symbol of this trace."""
        if isinstance(value, (tuple, list)):
            return any(map(self._is_open, value))
        if type(value) is Foreign:
            return value.trace is self
        return type(value) is SymbolicSize and value.trace is self

    def _refused(self, error: Exception) -> None:
        self.failed = self.failed or f"a library refuses: {error}"

    def _answer(self, place: int) -> Any:
        """Return the result of a row in the form in which the traced code gets it.

        It is a plain value, a symbolic size, a proxy, or a tuple or dict of these. In a trace with
        symbols, guards are added for plain values, for the lengths of tuples and for the keys of
        dicts.

        Args:
            place: the index of the row.
        """
        value, symbolic = self.values[place], self.outer is not None
        if symbolic and type(value) is int:
            return self._symbol(place)
        if symbolic and (isinstance(value, _GUARDED_TYPES) or _is_text_tuple(value)):
            self._guard_same(place, value)
            return value
        if _is_error(value) or (not symbolic and _is_plain(value)):
            return value
        if type(value) is tuple:
            if symbolic:
                self._guard_same(self._row((ONE, 0, place, None), len(value)), len(value))
            return tuple([self._item(place, key, part) for key, part in enumerate(value)])
        if type(value) is dict:
            if symbolic:
                keys = tuple(value)
                self._guard_same(self._row((ONE, 1, place, None), keys), keys)
            return {key: self._item(place, key, part) for key, part in value.items()}
        proxy = Foreign(self, value, place)
        self._proxies.append(proxy)
        return proxy

    def _item(self, place: int, key: Any, part: Any) -> Any:
        if self.outer is None and _is_plain(part):
            return part
        return self._answer(self._row((ITEM, self.constant(key), place, None), part))

    def _guard_same(self, place: int, value: Any) -> None:
        self.guard(True, "==", place, self.constant(value))


class Foreign:
    """A proxy of a native object or a function. The current tracer records what is done with it.

    Attributes:
        trace: the trace that has the row which makes the object. It is the constant trace if the
            object depends on no size.
        own: the native object or function itself.
        where: how the object can be made or found again, see ``Where``.
    """

    __slots__ = ("own", "trace", "where")

    #: Not hashable: a cache with a proxy as key would be shared by traces.
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, trace: NativeTrace, own: Any, where: Where) -> None:
        self.trace, self.own, self.where = trace, own, where

    def __vtensor_step__(self) -> object:
        return self.own.__vtensor_step__()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        tracer = _tracer()
        return getattr(self.own, name) if tracer is None else tracer.attribute(self, name)

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        tracer = _tracer()
        if tracer is None:
            by_name = {name: _unwrapped(value) for name, value in named.items()}
            return self.own(*map(_unwrapped, arguments), **by_name)
        return tracer.called(self, arguments, named)

    def __eq__(self, other: object) -> bool:
        tracer = _tracer()
        return bool(self.own == _unwrapped(other)) if tracer is None else tracer.equal(self, other)


def _tracer() -> NativeTrace | None:
    return TRACER.get()  # type: ignore[return-value]


def _unwrapped(value: Any) -> Any:
    """Return an argument as a native call takes it.

    A symbolic size is replaced by its number, and a proxy by its object, also inside lists and
    tuples.
    """
    kind = type(value)
    if kind is SymbolicSize:
        return value.value
    if kind is Foreign:
        return value.own
    if isinstance(value, list):
        return [*map(_unwrapped, value)]
    return tuple(map(_unwrapped, value)) if isinstance(value, tuple) else value


def _is_error(value: Any) -> bool:
    return isinstance(value, type) and issubclass(value, BaseException)


def _is_text_tuple(value: Any) -> bool:
    return type(value) is tuple and all(type(word) is str for word in value)


def _is_plain(value: Any) -> bool:
    """Return whether a value is a number, a text, bytes, None, a layout or a class of errors.

    Tuples, lists and dicts of such values are plain, too.
    """
    if isinstance(value, (int, *_GUARDED_TYPES)) or _is_error(value):
        return True
    if type(value) in (tuple, list):
        return all(map(_is_plain, value))
    return type(value) is dict and all(map(_is_plain, value.values()))


class ConstantWriter:
    """Writes the constants of traces as data.

    Args:
        outer: the constant trace. Constants of other traces may be objects that its rows make.
        array: called with an array, or with a model's array (``StoredArray``); returns it as data,
            a dict with the key "array" or "bytes". None if arrays cannot be saved.

    Attributes:
        places: indices of the rows of the constant trace that make objects which the written
            constants need. They are the keys of a dict, which keeps their order.
        modules: names of the native modules which the written constants need.
    """

    def __init__(self, outer: NativeTrace, array: Callable[[Any], Any] | None = None) -> None:
        self.outer = outer
        self.places: dict[int, None] = {}
        self.modules: set[str] = set()
        self._array = array

    def rows(self, rows: Rows) -> dict[str, Any]:
        """Return the rows of a trace as plain data, see ``Rows.data``.

        Raises:
            NotSaved: a constant of the rows cannot be data.
        """

        def constant(value: Any, index: int) -> Any:
            source = rows.sources.get(index)
            return self._value(value) if source is None else self._native(source)

        return rows.data(constant)

    def outer_rows(self) -> dict[str, Any]:
        """Return as plain data the rows of the constant trace that are in ``places``, and all rows
        that these need.

        Raises:
            NotSaved: a constant of the rows cannot be data.
        """
        return self.rows(self.outer.rows().pruned(self.places))

    def place(self, step: Any) -> int:
        """Return the index of the row of the constant trace that makes an object, and add it to
        ``places``.

        Args:
            step: the proxy of the object, which is a step.

        Raises:
            NotSaved: ``step`` is no proxy of an object that a row of the constant trace makes.
        """
        has_row = type(step) is Foreign and step.trace is self.outer and type(step.where) is int
        if not has_row:
            raise NotSaved("a step was made without a trace")
        self.places[step.where] = None
        return step.where  # type: ignore[no-any-return]

    def _native(self, source: Foreign) -> Any:
        if isinstance(source.where, tuple):
            self.modules.add(source.where[0])
            return {"path": [*source.where]}
        return {"native": self.place(source)} if source.where is not None else self._value(source)

    def _value(self, value: Any) -> Any:
        value = value.own if type(value) is Foreign else value
        if isinstance(value, np.generic):
            value = value.item()
        if type(value) in _PLAIN_TYPES:
            return [value]
        if isinstance(value, Layout):
            return {"layout": str(value)}
        if type(value) in (tuple, list):
            return {type(value).__name__: [*map(self._value, value)]}
        if isinstance(value, Computes):
            return {"computes": [self._name(value.function), dict(value.attributes)]}
        if callable(value):
            return {"function": self._name(value)}
        if self._array is not None and (isinstance(value, np.ndarray) or hasattr(value, "now")):
            return self._array(value)
        raise NotSaved(f"a trace has a {type(value).__name__}: {value!r:.80}")

    @staticmethod
    def _name(function: Any) -> str:
        name = pure_name(function)
        if name is None:
            raise NotSaved(f"a trace calls {function!r:.80}")
        return name


class ConstantReader:
    """A reader of the constants of traces, from the data that ``ConstantWriter`` made.

    It is called with the data of a constant and returns the constant.

    Args:
        module: called with the name of a native module; returns the module.
        things: the objects that the rows of the constant trace made, by the row's index.
        array: called with the data of an array; returns the array. None if there are no arrays.

    Raises:
        ValueError: the data that the reader is called with are no constant. Exceptions of
            ``module`` and ``array`` pass unchanged.
    """

    def __init__(
        self,
        module: Callable[[str], ModuleType],
        things: Sequence[Any] = (),
        array: Callable[[Any], Any] | None = None,
    ) -> None:
        self._module, self._things, self._array = module, things, array

    def __call__(self, data: Any) -> Any:
        match data:
            case [value] if type(value) in _PLAIN_TYPES:
                return value
            case {"layout": str(text)}:
                return Layout(text)
            case {"tuple": list(parts)}:
                return tuple([self(part) for part in parts])
            case {"list": list(parts)}:
                return [self(part) for part in parts]
            case {"function": str(name)}:
                return pure_function(name, called=True)
            case {"computes": [str(name), dict(attributes)]}:
                return Computes(pure_function(name), attributes)
            case {"path": [str(name), *names]}:
                thing: Any = self._module(name)
                for part in names:
                    if type(part) is not str or part.startswith("_"):
                        raise ValueError(f"{part!r} is no name of a module")
                    thing = getattr(thing, part)
                return thing
            case {"native": int(place)} if 0 <= place < len(self._things):
                return self._things[place]
            case {"array": _} | {"bytes": _} if self._array is not None:
                return self._array(data)
        raise ValueError(f"no constant: {data!r:.80}")


def native_module(name: str) -> ModuleType:
    """Return the native module that one of VTensor's own libraries uses in this process.

    Args:
        name: the module's full name, such as ``libdesc.onednn._onednn``.

    Raises:
        ValueError: no library has this module, or the library uses another one.
    """
    package, library, *_ = [*name.split("."), ""]
    if package != "libdesc" or not library.isidentifier():
        raise ValueError(f"{name} is no module of a library")
    module = import_module(f"libdesc.{library}.native").load()
    if module.__name__ != name:
        raise ValueError(f"{module.__name__} is used here, not {name}")
    return module  # type: ignore[no-any-return]


def build_of(module: Any) -> list[str]:
    """Return texts that identify the build of a native module.

    They are its instruction set level, version, instruction set and file, as far as it has these
    attributes.
    """
    words = [getattr(module, name) for name in _BUILD_ATTRIBUTES if hasattr(module, name)]
    return [str(word() if callable(word) else word) for word in words]
