"""What planning does with sizes, written down while it does it: so it need not be done again.

A graph is made once of sizes that keep a tape (``TracedSize``): each operation on one gives another
and is noted; each question about one, such as ``size > 1`` or ``size == other``, is answered with
the number that it has now, and is noted with its answer. For other numbers all operations are done
again at once, by a function that is compiled from the notes. Where every question has the answer
that it had, Python would have taken the same way with them, and what was made then is right for
them, once its sizes are put in. Otherwise nothing is said.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from functools import cached_property
from numbers import Integral
from types import CodeType
from typing import TYPE_CHECKING, Any, Protocol, cast

from vtensor.errors import VTensorError

if TYPE_CHECKING:
    _Integer = int
else:  # C code takes the value of a subclass of int without asking
    _Integer = object

#: What the text of a traced size begins and ends with.
MARK = "\ue000"

#: More notes than a function of a model has; beyond it nothing is traced.
MOST = 200_000


class Told(Protocol):
    """What is at the places of a tape."""

    def __getitem__(self, place: int, /) -> Any:
        """What is there."""


class TapeClosedError(VTensorError):
    """A traced size is used where sizes are numbers."""


class Tape:
    """Sizes, what was computed with them, and what was asked.

    >>> tape = Tape()
    >>> n, c = tape.size(6), tape.size(3)
    >>> (n * c + 1).value, n > c
    (19, True)
    >>> tape.run([8, 3]), tape.run([2, 3]) is None
    ([8, 3, 24, 25], True)
    """

    def __init__(self) -> None:
        self._sizes: list[TracedSize] = []
        self._inputs: list[str] = []
        self._made: dict[tuple[str, str, str], TracedSize] = {}
        self._lines: list[str] = []
        self._asked: set[str] = set()
        self._closed = False
        #: What lines call by name, beside sizes.
        self.scope: dict[str, Any] = {}
        #: The very number of a size was needed: it says nothing of others.
        self.pinned = False
        #: Why it says nothing, if so.
        self.failed = ""

    def size(self, value: int) -> TracedSize:
        """A size that is given, the next in order."""
        made = self._new(value)
        self._inputs.append(f"v{made.place}")
        return made

    @property
    def count(self) -> int:
        """How many sizes there are, or other things in their places."""
        return len(self._sizes)

    @property
    def given(self) -> list[int]:
        """The places of those that are given, in order."""
        return [int(name[1:]) for name in self._inputs]

    @property
    def lines(self) -> Sequence[str]:
        """What is computed and asked, in order, as it is compiled."""
        return self._lines

    def run(self, given: Sequence[int]) -> list[int] | None:
        """All sizes for other given ones; None where a question has another answer then.

        From now on nothing may be computed with traced sizes: it would hold for the first ones.
        """
        return self._function(given)

    def computed(self, sign: str, one: int, other: int) -> TracedSize | int:
        """The result of an operation on two sizes, of which one at least is traced."""
        key = (sign, _text(one), _text(other))
        self._check_open()
        if (known := self._made.get(key)) is None:
            value = _SIGNS[sign](_value(one), _value(other))
            known = self._made[key] = self._new(value)
            self._note(f"v{known.place} = {key[1]} {sign} {key[2]}")
        return known

    def asked(self, sign: str, one: int, other: int) -> bool:
        """The answer to a question about two sizes."""
        self._check_open()
        answer = bool(_SIGNS[sign](_value(one), _value(other)))
        question = f"{_text(one)} {sign} {_text(other)}"
        if question not in self._asked:
            self._asked.add(question)
            self._note(f"if {'not ' * answer}({question}): return None")
        return answer

    def _check_open(self) -> None:
        if self._closed:
            raise TapeClosedError("a size was traced for other sizes, and is used for these")

    def _new(self, value: int) -> TracedSize:
        made = TracedSize()
        made.tape, made.place, made.value, made.known = self, len(self._sizes), value, {}
        self._sizes.append(made)
        return made

    def _note(self, line: str) -> None:
        if len(self._lines) > MOST:
            self.failed = "too much is computed"
        else:
            self._lines.append(line)

    def _compiled(self, text: str) -> CodeType:
        return compile(text, "<sizes>", "exec")

    @cached_property
    def _function(self) -> Callable[[Sequence[int]], list[int] | None]:
        names = [f"v{place}" for place in range(len(self._sizes))]
        unpack = f"{', '.join(self._inputs)}, = given" if self._inputs else "pass"
        lines = ["def sizes(given):", unpack, *self._lines, f"return [{', '.join(names)}]"]
        made: dict[str, Any] = {}
        exec(self._compiled("\n ".join(lines)), self.scope, made)
        self._closed = True
        self._made.clear()
        self._asked.clear()
        for size in self._sizes:
            size.known.clear()
        return cast("Callable[[Sequence[int]], list[int] | None]", made["sizes"])


class TracedSize(_Integer):
    """A size on a tape. It is no ``int``, but says that it is one.

    Whatever needs the very number (an index) has it, and that is a question, too: whether the size
    is that number. Its text is not the number's, but has a mark (``MARK``) that no name has: sizes
    of one text are equal, and who keeps such text can be found.
    """

    tape: Tape
    place: int
    value: int
    #: What was computed with it and asked about it, by the sign and the other's number or place.
    known: dict[tuple[str, int], Any]

    #: NumPy's numbers and arrays leave arithmetic to it.
    __array_ufunc__ = None

    #: What is kept by size would be found by later sizes.
    __hash__ = None  # type: ignore[assignment]

    if not TYPE_CHECKING:

        @property
        def __class__(self) -> type:
            return int

    def pinned(self) -> int:
        """The number; what is made of it holds for no other."""
        self.tape.pinned = True
        self.tape.asked("==", self, self.value)
        return self.value

    def __getattr__(self, name: str) -> Any:
        """What else integers have: ``n.real``, ``n.bit_length()``."""
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.pinned(), name)

    def __repr__(self) -> str:
        return f"{MARK}{self.place}{MARK}"

    __str__ = __repr__

    def __format__(self, spec: str) -> str:
        """As text is formatted; it is for messages that nobody reads."""
        return format(repr(self), spec)

    def __bool__(self) -> bool:
        return self.tape.asked("!=", self, 0)

    def __neg__(self) -> Any:
        return self.tape.computed("-", 0, self)

    def __pos__(self) -> Any:
        return self

    def __abs__(self) -> Any:
        return self if self >= 0 else -self

    def __divmod__(self, other: Any) -> Any:
        return self // other, self % other

    def __rdivmod__(self, other: Any) -> Any:
        return other // self, other % self

    def __round__(self, ndigits: Any = None) -> Any:
        return self if ndigits is None else round(self.pinned(), ndigits)


def _is_plain(value: object) -> bool:
    return type(value) is TracedSize or type(value) is int or isinstance(value, Integral)


def _value(size: int) -> int:
    return size.value if type(size) is TracedSize else int(size)


def _text(size: int) -> str:
    return f"v{size.place}" if type(size) is TracedSize else f"({int(size)})"


_SIGNS: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "//": operator.floordiv,
    "%": operator.mod,
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}

#: What leaves a size as it is, by operation: the other operand, on the right; on the left.
_SAME = {"+": (0, 0), "-": (0, None), "*": (1, 1), "//": (1, None)}


def _computing(sign: str, turned: bool) -> Callable[[Any, Any], Any]:
    same = _SAME.get(sign, (None, None))[turned]

    word = f"{turned}{sign}"
    traced = f"{word} traced"

    def compute(self: TracedSize, other: Any) -> Any:
        if type(other) is int:
            key = (word, other)
        elif type(other) is TracedSize and other.tape is self.tape:
            key = (traced, other.place)
        else:
            return anew(self, other)
        if (found := self.known.get(key)) is None:
            found = self.known[key] = anew(self, other)
        return found

    def anew(self: TracedSize, other: Any) -> Any:
        if not _is_plain(other):
            return NotImplemented if not isinstance(other, float) else _as_float(self, other)
        if same is not None and type(other) is not TracedSize and other == same:
            return self
        one, two = (other, self) if turned else (self, other)
        if sign in ("//", "%") and two == 0:
            raise ZeroDivisionError("division by zero")
        return self.tape.computed(sign, one, two)

    def _as_float(self: TracedSize, other: float) -> Any:
        one, two = (other, self.pinned()) if turned else (self.pinned(), other)
        return _SIGNS[sign](one, two)

    return compute


def _asking(sign: str) -> Callable[[Any, Any], Any]:
    on_itself = _SIGNS[sign](0, 0)

    traced = f"{sign} traced"

    def ask(self: TracedSize, other: Any) -> Any:
        if type(other) is int:
            key = (sign, other)
        elif other is self:
            return on_itself
        elif type(other) is TracedSize and other.tape is self.tape:
            key = (traced, other.place)
        elif not _is_plain(other):
            return NotImplemented if not isinstance(other, float) else compare(self, other)
        else:
            return self.tape.asked(sign, self, other)
        if (answer := self.known.get(key)) is None:
            answer = self.known[key] = self.tape.asked(sign, self, other)
        return answer

    def compare(self: TracedSize, other: float) -> Any:
        return _SIGNS[sign](self.pinned(), other)

    return ask


def _number(name: str) -> Callable[..., Any]:
    return lambda self, *rest: getattr(self.pinned(), name)(*rest)


for _name, _sign in {"add": "+", "sub": "-", "mul": "*", "floordiv": "//", "mod": "%"}.items():
    setattr(TracedSize, f"__{_name}__", _computing(_sign, False))
    setattr(TracedSize, f"__r{_name}__", _computing(_sign, True))
for _name, _sign in {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}.items():
    setattr(TracedSize, f"__{_name}__", _asking(_sign))
for _name in (
    *("index", "int", "float", "complex", "invert", "truediv", "rtruediv", "pow", "rpow"),
    *("and", "rand", "or", "ror", "xor", "rxor", "lshift", "rlshift", "rshift", "rrshift"),
    *("trunc", "floor", "ceil"),
):
    setattr(TracedSize, f"__{_name}__", _number(f"__{_name}__"))
