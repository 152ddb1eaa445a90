"""What libraries are asked while a call is recorded on traced sizes, noted on the sizes' tape.

Calls are made with the numbers of now; those that depend on a size are noted, with what they gave:
an object, a number, or an answer, which must be the same again. For other sizes the tape makes the
same calls once more.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from types import CodeType
from typing import Any

from libdesc.noted import Noting, noting
from ptensor.layout import Layout
from vtensor.language.tape import Tape, TracedSize

#: An integer in a line: no part of a name, for texts are never spelled out.
NUMBER = re.compile(r"(?<!\w)\d+(?!\w)")

#: What an answer may be that has to be the same for other sizes.
_ANSWERS = (str, bool, float, bytes, type(None), Layout)


class CallTape(Tape):
    """A tape of sizes and of native calls: one numbering for both.

    >>> from libdesc.noted import noted, noting
    >>> tape = CallTape()
    >>> n = tape.size(7)
    >>> with noting(tape):
    ...     larger = noted(max)(n, 3)
    >>> larger.value, tape.run([9]), tape.run([2])
    (7, [9, 9], [2, 3])
    """

    def __init__(self, further: Noting | None = None) -> None:
        """Begin a tape; ``further`` notes all calls as well, those too that depend on no size."""
        super().__init__()
        self._further = further
        self._told: dict[str, Any] = {}
        self._names: dict[int, str] = {}

    @property
    def numbers(self) -> list[Any]:
        """What ``run`` gives for the sizes of now."""
        return [one.value for one in self._sizes]

    def forget(self) -> None:
        """Let go of what was made with the sizes of now."""
        for one in self._sizes:
            if type(one.value) is not int:
                one.value = 0
        for answer in self._told.values():
            if type(answer) is Foreign:
                answer.own = None
        self._told.clear()

    def foreign(self, native: Any) -> Foreign:
        """What notes the calls of a native thing."""
        if self._further is not None:
            native = self._further.foreign(native)
        return Foreign(self, native, "")

    def remembered(
        self,
        function: Callable[..., Any],
        aside: Callable[..., Any],
        given: tuple[Any, ...],
        named: Mapping[str, Any],
    ) -> Any:
        """What a function gives that is remembered by its arguments: ``aside`` is, off the tape."""
        if _is_open([*given, *named.values()]):
            return function(*given, **named)
        if self._further is None:
            return self.call(self.foreign(aside), given, named)
        own, by_name = _real(given), {name: _real(one) for name, one in named.items()}
        with noting(self._further):
            return self._constant(self._further.remembered(function, aside, own, by_name))

    def attribute(self, of: Foreign, name: str) -> Any:
        """An attribute of what is native."""
        value = getattr(of.own, name)
        if isinstance(value, type) and issubclass(value, BaseException):
            return value
        if not of.text:
            return self._constant(value)
        text = f"{of.text}.{name}"
        return Foreign(self, value, text) if callable(value) else self._answer(text, value)

    def call(self, of: Foreign, given: tuple[Any, ...], named: Mapping[str, Any]) -> Any:
        """A native call."""
        try:
            result = of.own(*_real(given), **{name: _real(one) for name, one in named.items()})
        except Exception as error:
            self.failed = self.failed or f"a library refuses: {error}"
            raise
        if not (of.text or _is_open(given) or _is_open([*named.values()])):
            return self._constant(result)
        texts = [*map(self._spelled, given)]
        texts += [f"{name}={self._spelled(one)}" for name, one in named.items()]
        return self._answer(f"{self._spelled(of)}({', '.join(texts)})", result)

    def equal(self, one: Foreign, other: object) -> bool:
        """Whether two are equal, now and for other sizes."""
        same = bool(one.own == _real(other))
        if _is_open([one, other]):
            self._same(f"({self._spelled(one)} == {self._spelled(other)})", same)
        return same

    def _compiled(self, text: str) -> CodeType:
        """Layers differ in numbers: with these by name they are one text, and compiled once."""
        scope, names = self.scope, dict[str, str]()

        def named(found: re.Match[str]) -> str:
            name = names.setdefault(found[0], f"n{len(names)}")
            scope[name] = int(found[0])
            return name

        return _compiled(NUMBER.sub(named, text))

    def _constant(self, value: Any) -> Any:
        """What depends on no size."""
        if isinstance(value, (int, *_ANSWERS)):
            return value
        if type(value) is tuple:
            return tuple(map(self._constant, value))
        if type(value) is dict:
            return {name: self._constant(one) for name, one in value.items()}
        return Foreign(self, value, "")

    def _answer(self, text: str, value: Any) -> Any:
        """What an expression gives that depends on sizes; one of the same text gives the same."""
        if text not in self._told:
            self._told[text] = self._noted(text, value)
        return self._told[text]

    def _noted(self, text: str, value: Any) -> Any:
        if isinstance(value, _ANSWERS) or _is_words(value):
            self._same(text, value)
            return value
        made = self._new(value)
        name = f"v{made.place}"
        self._note(f"{name} = {text}")
        if type(value) is int:
            return made
        if type(value) is tuple:
            self._same(f"len({name})", len(value))
            return tuple([self._answer(f"{name}[{i}]", one) for i, one in enumerate(value)])
        if type(value) is dict:
            self._same(f"(*{name},)", tuple(value))
            return {
                key: self._answer(f"{name}[{self._kept(key)}]", one) for key, one in value.items()
            }
        return Foreign(self, value, name)

    def _same(self, text: str, value: object) -> None:
        self._note(f"if {text} != {self._kept(value)}: return None")

    def _kept(self, value: object) -> str:
        """How lines call what is no size."""
        if value is None or type(value) in (int, bool):
            return repr(value)
        name = self._names.setdefault(id(value), f"k{len(self.scope)}")
        self.scope.setdefault(name, value)  # and stays, so that no other has its id
        return name

    def _spelled(self, value: Any) -> str:
        """How lines call an argument."""
        if type(value) is TracedSize:
            return f"v{value.place}"
        if type(value) is Foreign and value.text:
            return value.text
        if isinstance(value, (list, tuple)) and _is_open(value):
            texts = ", ".join(map(self._spelled, value))
            return f"[{texts}]" if isinstance(value, list) else f"({texts},)"
        return self._kept(_real(value))


@lru_cache(maxsize=1024)
def _compiled(text: str) -> CodeType:
    return compile(text, "<calls>", "exec")


class Foreign:
    """A native thing on a tape.

    Attributes:
        own: itself.
        text: how lines call it; empty if it depends on no size.
    """

    __slots__ = ("own", "tape", "text")

    #: What is kept by it would be found by others.
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, tape: CallTape, own: Any, text: str) -> None:
        self.tape, self.own, self.text = tape, own, text

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self.tape.attribute(self, name)

    def __call__(self, *given: Any, **named: Any) -> Any:
        return self.tape.call(self, given, named)

    def __eq__(self, other: object) -> bool:
        return self.tape.equal(self, other)


def _is_words(value: object) -> bool:
    return type(value) is tuple and all(type(one) is str for one in value)


def _is_open(value: Any) -> bool:
    """Whether a size is in it."""
    if isinstance(value, (list, tuple)):
        return any(map(_is_open, value))
    return type(value) is TracedSize or (type(value) is Foreign and bool(value.text))


def _real(value: Any) -> Any:
    """What native code takes."""
    kind = type(value)
    if kind is TracedSize:
        return value.value
    if kind is Foreign:
        return value.own
    if isinstance(value, list):
        return [*map(_real, value)]
    return tuple(map(_real, value)) if isinstance(value, tuple) else value
