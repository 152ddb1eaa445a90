"""Our dataclasses are as the standard library's, method by method."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
import re
from collections.abc import Callable
from dataclasses import FrozenInstanceError, field, fields, replace
from typing import Any, ClassVar

import numpy as np
import pytest

from vtensor.language import records
from vtensor.language.records import INSTANCES_BEFORE_COMPILING

KINDS: list[dict[str, Any]] = [
    {},
    {"frozen": True},
    {"frozen": True, "eq": False},
    {"eq": False},
    {"repr": False},
    {"slots": True},
    {"frozen": True, "slots": True},
    {"order": True},
    {"kw_only": True},
]
both = pytest.mark.parametrize("dataclass", [records.dataclass, dataclasses.dataclass])


def full(dataclass: Callable[..., Any], **how: Any) -> Any:
    """Make a class with all that our dataclasses may have."""

    @dataclass(**how)
    class Full:
        shared: ClassVar[int] = 3
        first: int
        second: list[int] = field(default_factory=list)
        third: str = field(default="c", compare=False)
        fourth: int = field(default=4, repr=False, hash=False)
        late: int = field(default=0, kw_only=True)
        total: int = field(init=False, default=9)

        def __post_init__(self) -> None:
            object.__setattr__(self, "total", self.first + self.late)

    return Full


def small(dataclass: Callable[..., Any], **how: Any) -> list[Any]:
    """Make a class with methods of its own, and one without fields."""

    @dataclass(**how)
    class Own:
        only: Any

        def __repr__(self) -> str:
            return "its own text"

        def __hash__(self) -> int:
            return 7

    @dataclass(**how)
    class Empty:
        pass

    return [Own, Empty]


def outcome(action: Callable[[], Any]) -> object:
    """Return what an action returns, or the kind and text of its error."""
    try:
        return action()
    except (TypeError, AttributeError) as error:
        return type(error), str(error).replace("<lambda>", "")


def behaviour(dataclass: Callable[..., Any], how: dict[str, Any]) -> list[str]:
    """Return what instances of dataclasses do, without addresses."""
    one, (two, three), value = full(dataclass, **how), small(dataclass, **how), np.arange(3)
    a, b = one(first=1), one(first=1, third="other")
    actions: list[Callable[[], object]] = [
        lambda: repr([one(first=1, second=[2], late=5), two(only=1), three()]),
        lambda: [a == b, a == one(first=2), a == 1, a != b, two(only=1) == two(only=1)],
        lambda: [three() == three(), three() == two(only=1), two(only=np.nan) == two(only=0)],
        lambda: [two(only=value) == two(only=value), two(only=np.nan) == two(only=np.nan)],
        lambda: [hash(two(only=[])), hash(three()) == hash(three())],
        lambda: hash(one(first=1, second=())) == hash(one(first=1, second=(), fourth=5)),
        lambda: hash(a) == hash(b),
        lambda: setattr(a, "first", 3),
        lambda: setattr(a, "unknown", 3),
        lambda: delattr(a, "first"),
        lambda: a.first,
        lambda: one(),
        lambda: one(1, [2], "c", 4, 5),
        lambda: one(first=1, nonsense=2),
        lambda: [a.second is b.second, a.total, one(first=2, late=3).total],
        lambda: repr(replace(b, first=2, second=[9])),
        lambda: [(f.name, f.default, f.init, f.kw_only) for f in fields(one)],
        lambda: [one.__match_args__, dataclasses.is_dataclass(three)],
        lambda: str(inspect.signature(one)),
        lambda: repr(copy.deepcopy(a)) == repr(a),
        lambda: dataclasses.asdict(two(only=3)),
    ]
    return [_without_addresses(outcome(action)) for action in actions]


def _without_addresses(result: object) -> str:
    """Return a result as text, without addresses and the standard marker of a factory.

    Where a frozen instance with slots is given another attribute, Python 3.11 meets its old class.
    """
    if "super(type, obj)" in str(result):
        result = (FrozenInstanceError, "cannot assign to field 'unknown'")
    return re.sub(r"<\S+ object at 0x\w+>|<factory>|0x\w+", "-", str(result))


@pytest.mark.parametrize("how", KINDS, ids=str)
def test_a_class_behaves_as_a_standard_one(how: dict[str, Any]) -> None:
    assert behaviour(records.dataclass, how) == behaviour(dataclasses.dataclass, how)


@records.dataclass(frozen=True, slots=True)
class Narrow:
    """A frozen class with slots, for pickle."""

    first: int
    second: tuple[int, ...] = ()
    total: int = field(init=False, default=9)


@records.dataclass(frozen=True)
class Sent:
    """A class that only ``test_an_instance_of_another_process_is_whole`` makes instances of."""

    number: int


def test_an_instance_with_slots_goes_to_another_process() -> None:
    for number in range(2 * INSTANCES_BEFORE_COMPILING):  # compiled meanwhile
        assert (Narrow(number).first, Narrow(number).total) == (number, 9)
    for twin in (pickle.loads(pickle.dumps(Narrow(1, (2,)))), copy.copy(Narrow(1, (2,)))):
        assert (twin, twin.total) == (Narrow(1, (2,)), 9)
        with pytest.raises(FrozenInstanceError):
            twin.unknown = 3  # type: ignore[union-attr]


def test_an_instance_of_another_process_is_whole() -> None:
    sent = pickle.loads(b"c%b\nSent\n)\x81}Vnumber\nI3\nsb." % __name__.encode())
    assert not compiled(Sent), "nothing has called it"
    assert repr(sent) == "Sent(number=3)"
    with pytest.raises(FrozenInstanceError):
        sent.number = 4
    assert (sent, hash(sent)) == (Sent(3), hash(Sent(3)))


@both
def test_a_dataclass_may_derive_from_one_of_ours(dataclass: Callable[..., Any]) -> None:
    @records.dataclass(frozen=True)
    class Base:
        a: int

    class Derived(Base):
        b: int = 2

    derived = dataclass(frozen=True)(Derived)
    assert repr(derived(1)).endswith("Derived(a=1, b=2)")
    assert derived(1) == derived(1, 2) != Base(1)
    with pytest.raises(FrozenInstanceError):
        derived(1).a = 3
    with pytest.raises(TypeError, match="cannot inherit non-frozen"):
        dataclass(type("Loose", (Base,), {}))


def test_a_derived_class_may_call_the_method_of_its_base() -> None:
    @records.dataclass
    class Base:
        a: int
        b: int = 2

    @dataclasses.dataclass(init=False)
    class Derived(Base):
        c: int = 3

        def __init__(self, a: int) -> None:
            super().__init__(a)

    for number in range(2 * INSTANCES_BEFORE_COMPILING):  # compiled meanwhile
        assert vars(Derived(number)) == {"a": number, "b": 2}


def test_a_class_that_only_derives_keeps_the_methods_and_may_have_more() -> None:
    @records.dataclass(frozen=True)
    class Base:
        a: int

    class Free(Base):
        def __init__(self) -> None:
            super().__init__(5)
            self.b = 6

    assert (Free().a, Free().b, Free() == Free()) == (5, 6, True)
    with pytest.raises(FrozenInstanceError):
        Free().a = 1  # type: ignore[misc]


@both
def test_a_class_with_a_fault_is_refused_where_it_is_made(dataclass: Callable[..., Any]) -> None:
    notes = {"a": "int", "b": "int"}
    with pytest.raises(TypeError, match="non-default argument 'b' follows default argument"):
        dataclass(type("Late", (), {"__annotations__": notes, "a": 1}))
    with pytest.raises(ValueError, match="mutable default"):
        dataclass(type("Shared", (), {"__annotations__": notes, "b": []}))
    with pytest.raises(TypeError, match="Cannot overwrite attribute __setattr__"):
        dataclass(frozen=True)(type("Own", (), {"__setattr__": lambda *_: None}))


@both
def test_a_class_keeps_its_own_init(dataclass: Callable[..., Any]) -> None:
    class Own:
        a: int

        def __init__(self) -> None:
            self.a = 7

    assert dataclass(Own)().a == 7


def compiled(kind: type) -> bool:
    """Return whether the class's ``__init__`` was compiled."""
    return inspect.isfunction(vars(kind)["__init__"])


def test_init_is_compiled_after_several_instances_or_when_its_signature_is_read() -> None:
    @records.dataclass(frozen=True)
    class Base:
        a: int

    @records.dataclass(frozen=True)
    class Derived(Base):
        b: int = 2

    one, two, read = (full(records.dataclass, frozen=frozen) for frozen in (True, True, False))
    for number in range(INSTANCES_BEFORE_COMPILING):
        assert (one(number).first, one(number, late=1).total)[number % 2] == number + number % 2
        assert repr(two(number, late=1)) == repr(one(number, late=1))
        assert not compiled(two)
        assert (Derived(number), hash(Derived(number))) == (
            Derived(number, 2),
            hash(Derived(number, b=2)),
        )
        assert number >= INSTANCES_BEFORE_COMPILING // 4 or not compiled(Derived)
    assert two(1).total == 1
    assert compiled(one)
    assert compiled(two)
    assert compiled(Derived)
    assert str(inspect.signature(read)) == str(inspect.signature(one))
    assert compiled(read)


def test_a_check_sees_every_instance() -> None:
    @records.dataclass(frozen=True)
    class Ours:
        a: int

        def __post_init__(self) -> None:
            seen.append(-self.a)

    @dataclasses.dataclass
    class Theirs:
        a: int

    seen, count = list[int](), 2 * INSTANCES_BEFORE_COMPILING
    assert records.checked(Ours, lambda instance: seen.append(instance.a))
    for number in range(count):
        Ours(number)
    assert seen == [sign * number for number in range(count) for sign in (-1, 1)]
    assert not records.checked(Theirs, print)
