"""Native things as data: the calls that make them, written down once and made again elsewhere.

A script names native modules of libraries, what they offer, and plain arguments; native code checks
these as it checks any. It holds no code and no address.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from operator import index
from types import ModuleType
from typing import Any

from libdesc.noted import NOTING

#: What says of a module which build it is, as far as it has that.
_BUILDS = ("level", "version", "isa", "library_path")

#: What stands in an argument for the thing that an earlier line has made.
_MADE = "made"

#: What is handed over as it is.
_PLAIN = (str, int, float, bytes, type(None))

#: What makes a thing: a path, which is a module's name or the place of an earlier line, and names
#: that lead on from there; what is called there, if anything; and keys into what comes of it.
Line = list[Any]


class Script:
    """Notes the native calls of a block: what they give can say how it was made.

    What was made goes on to work afterwards, on other threads meanwhile, and in forked children:
    calls are noted of the block alone, until nobody asks any more (``forget``).

    Attributes:
        over: nobody asks any more.
    """

    def __init__(self) -> None:
        self.over = False
        self._lines: list[Line] = []
        self._places: dict[str, int] = {}
        self._remembered: dict[Any, Any] = {}

    @property
    def _silent(self) -> bool:
        """Nothing is noted here and now."""
        return self.over or NOTING.get() is None

    def foreign(self, native: Any) -> Any:
        """What notes the calls of a native module; Python's own functions stay what they are."""
        if self._silent or not isinstance(native, ModuleType):
            return native
        return _Noted(self, native, [native.__name__])

    def remembered(
        self,
        function: Callable[..., Any],
        aside: Callable[..., Any],
        given: tuple[Any, ...],
        named: Mapping[str, Any],
    ) -> Any:
        """What a function gives that is remembered by its arguments."""
        if self._silent:
            return aside(*given, **named)
        try:
            key = function, given, tuple(named.items())
            found = self._remembered.get(key)
        except TypeError:  # a native thing is among them
            return function(*given, **named)
        if found is None:
            found = self._remembered[key] = function(*given, **named)
        return found

    def attribute(self, of: _Noted, name: str) -> Any:
        """An attribute of what is noted."""
        if self._silent:
            return getattr(of.own, name)
        value, path = getattr(of.own, name), [*of.path, name]
        if isinstance(value, type) and issubclass(value, BaseException):
            return value
        return _Noted(self, value, path) if callable(value) else self._found(value, [path, None])

    def call(self, of: _Noted, given: tuple[Any, ...], named: Mapping[str, Any]) -> Any:
        """A native call."""
        result = of.own(*_real(given), **{name: _real(one) for name, one in named.items()})
        if self._silent:
            return result
        told = [[*map(_told, given)], {name: _told(one) for name, one in named.items()}]
        return self._found(result, [of.path, told])

    def _found(self, value: Any, line: Line) -> Any:
        """What a line gives: natives in it are noted, where the line can be written down."""
        if self._silent or isinstance(value, _PLAIN):
            return value
        if type(value) is tuple:
            return tuple([self._found(one, [*line, place]) for place, one in enumerate(value)])
        if type(value) is dict:
            return {key: self._found(one, [*line, key]) for key, one in value.items()}
        try:
            text = json.dumps(line)
        except TypeError:
            return value
        if text not in self._places:
            self._places[text] = len(self._lines)
            self._lines.append(line)
        return _Noted(self, value, [self._places[text]])

    def forget(self) -> None:
        """Let go of what was noted: nobody asks any more."""
        self.over = True
        self._lines.clear()
        self._places.clear()
        self._remembered.clear()

    def told(self, things: Sequence[Any]) -> tuple[list[Line], list[int]] | None:
        """The lines that make some things, and which of them makes each; None of what is not noted.

        >>> Script().told([]), Script().told([print])
        (([], []), None)
        """
        if any(type(one) is not _Noted or one.script is not self for one in things):
            return None
        return self.lines_at([one.path[0] for one in things])

    def lines_at(self, wanted: Sequence[int]) -> tuple[list[Line], list[int]]:
        """Return the lines at some places, with those that they need, and which of them is each."""
        places, lines = dict[int, int](), list[Line]()

        def placed(line: int) -> int:
            if line not in places:
                made = _moved(self._lines[line], placed)
                places[line] = len(lines)
                lines.append(made)
            return places[line]

        return lines, [*map(placed, wanted)]


class _Noted:
    """A native thing whose calls are noted.

    Attributes:
        own: itself.
        path: a module's name, or the line that makes it; and the names that lead to it from there.
    """

    __slots__ = ("own", "path", "script")

    #: What is kept by it would be found by others.
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, script: Script, own: Any, path: list[Any]) -> None:
        self.script, self.own, self.path = script, own, path

    def __vtensor_step__(self) -> object:
        return self.own.__vtensor_step__()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self.script.attribute(self, name)

    def __call__(self, *given: Any, **named: Any) -> Any:
        return self.script.call(self, given, named)

    def __eq__(self, other: object) -> bool:
        return bool(self.own == _real(other))


def noted_path(thing: Any) -> list[Any] | None:
    """A module's name, or the line that makes a thing, and what leads on from there; None of what
    no script notes.
    """
    return thing.path if type(thing) is _Noted else None


def made_by(lines: Sequence[Line], modules: Callable[[str], ModuleType]) -> list[Any]:
    """What the lines of a script make, in order.

    Args:
        lines: of ``told``, perhaps by way of a file.
        modules: gives a native module by its name.

    Raises:
        Exception: of any kind, where a line is none, or native code refuses it.
    """
    made = list[Any]()
    for (root, *names), called, *keys in lines:
        value: Any = made[root] if isinstance(root, int) else modules(root)
        for name in names:
            if name.startswith("_"):
                raise ValueError(f"{name} is nobody else's")
            value = getattr(value, name)
        if called is not None:
            given, named = called
            value = value(
                *_filled(given, made), **{key: _filled(named[key], made) for key in named}
            )
        for key in keys:
            value = value[key]
        made.append(value)
    return made


def native_module(name: str) -> ModuleType:
    """A native module of one of VTensor's own libraries, as this process uses it.

    Raises:
        ValueError: there is none of such a name, or the process uses another one.
    """
    package, library, *_ = [*name.split("."), ""]
    if package != "libdesc" or not library.isidentifier():
        raise ValueError(f"{name} is no module of a library")
    found = import_module(f"libdesc.{library}.native").load()
    if found.__name__ != name:
        raise ValueError(f"{found.__name__} is used here, not {name}")
    return found  # type: ignore[no-any-return]


def build_of(module: Any) -> list[str]:
    """Which build of a library a native module is, in its own words."""
    said = [getattr(module, name) for name in _BUILDS if hasattr(module, name)]
    return [str(one() if callable(one) else one) for one in said]


def _told(value: Any) -> Any:
    """An argument in a line."""
    if type(value) is _Noted:
        return {_MADE: value.path[0]}
    if isinstance(value, (list, tuple)):
        return [*map(_told, value)]
    return value if isinstance(value, _PLAIN) or not hasattr(value, "__index__") else index(value)


def _moved(line: Line, placed: Callable[[int], int]) -> Line:
    """A line whose things are made by other lines."""
    [root, *names], *rest = line
    root = placed(root) if isinstance(root, int) else root

    def moved(value: Any) -> Any:
        if isinstance(value, list):
            return [*map(moved, value)]
        if isinstance(value, dict):
            return {key: placed(one) if key == _MADE else moved(one) for key, one in value.items()}
        return value

    return [[root, *names], *map(moved, rest)]


def _filled(value: Any, made: Sequence[Any]) -> Any:
    """An argument of a line."""
    if isinstance(value, list):
        return [_filled(one, made) for one in value]
    return made[value[_MADE]] if isinstance(value, dict) else value


def _real(value: Any) -> Any:
    """What native code takes."""
    if type(value) is _Noted:
        return value.own
    if isinstance(value, list):
        return [*map(_real, value)]
    return tuple(map(_real, value)) if isinstance(value, tuple) else value
