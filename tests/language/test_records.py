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


def named(made: Callable[..., Any], **how: Any) -> Any:
    """A class with all that a dataclass of ours may have."""

    @made(**how)
    class One:
        """One."""

        shared: ClassVar[int] = 3
        first: int
        second: list[int] = field(default_factory=list)
        third: str = field(default="c", compare=False)
        fourth: int = field(default=4, repr=False, hash=False)
        late: int = field(default=0, kw_only=True)
        total: int = field(init=False, default=9)

        def __post_init__(self) -> None:
            object.__setattr__(self, "total", self.first + self.late)

    return One


def plain(made: Callable[..., Any], **how: Any) -> Any:
    @made(**how)
    class Two:
        only: Any

        def __repr__(self) -> str:
            return "as it says itself"

        def __hash__(self) -> int:
            return 7

    return Two


def empty(made: Callable[..., Any], **how: Any) -> Any:
    @made(**how)
    class Three:
        pass

    return Three


def told(action: Callable[[], Any]) -> object:
    """What an action returns, or the kind of its error and what it says."""
    try:
        return action()
    except (TypeError, AttributeError) as error:
        return type(error), str(error).replace("<lambda>", "")


@pytest.mark.parametrize("how", KINDS, ids=str)
def test_what_a_class_does_is_what_the_standard_one_does(how: dict[str, Any]) -> None:
    def seen(made: Callable[..., Any]) -> list[object]:
        one, two, three = named(made, **how), plain(made, **how), empty(made, **how)
        a, b = one(first=1), one(first=1, third="other")
        actions: list[Callable[[], object]] = [
            lambda: repr([one(first=1, second=[2], late=5), two(only=1), three()]),
            lambda: [a == b, a == one(first=2), a == 1, a != b, two(only=1) == two(only=1)],
            lambda: [three() == three(), three() == two(only=1), two(only=np.nan) == two(only=0)],
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
        return [told(action) for action in actions]

    ours, theirs = seen(records.dataclass), seen(dataclasses.dataclass)
    assert [_known(one) for one in ours] == [_known(one) for one in theirs]


def test_an_instance_with_slots_goes_to_another_process() -> None:
    for number in range(2 * records.INSTANCES_BEFORE_COMPILING):  # compiled meanwhile
        assert (Narrow(number).first, Narrow(number).total) == (number, 9)
    for one in (pickle.loads(pickle.dumps(Narrow(1, (2,)))), copy.copy(Narrow(1, (2,)))):
        assert (one, one.total) == (Narrow(1, (2,)), 9)
        with pytest.raises(FrozenInstanceError):
            one.unknown = 3  # type: ignore[union-attr]


def _known(one: object) -> str:
    """Without what the standard library's own marker of a factory is called, and addresses.

    Where a frozen instance with slots is given another attribute, Python 3.11 meets its old class.
    """
    if "super(type, obj)" in str(one):
        one = (FrozenInstanceError, "cannot assign to field 'unknown'")
    return re.sub(r"<\S+ object at 0x\w+>|<factory>|0x\w+", "-", str(one))


@pytest.mark.parametrize("made", [records.dataclass, dataclasses.dataclass])
def test_what_is_one_object_is_equal_whatever_it_says(made: Callable[..., Any]) -> None:
    two, value = plain(made), np.arange(3)
    assert two(value) == two(value)
    assert two(np.nan) == two(np.nan)


@records.dataclass(frozen=True, slots=True)
class Narrow:
    """What has slots, and is frozen."""

    first: int
    second: tuple[int, ...] = ()
    total: int = field(init=False, default=9)


@records.dataclass(frozen=True)
class Sent:
    """What another process may be given."""

    number: int


def test_an_instance_that_another_process_made_is_whole() -> None:
    given = pickle.loads(b"c%b\nSent\n)\x81}Vnumber\nI3\nsb." % __name__.encode())
    assert not inspect.isfunction(vars(Sent)["__init__"])  # nothing has called it
    assert repr(given) == "Sent(number=3)"
    with pytest.raises(FrozenInstanceError):
        given.number = 4
    assert (given, hash(given)) == (Sent(3), hash(Sent(3)))


@pytest.mark.parametrize("made", [records.dataclass, dataclasses.dataclass])
def test_a_dataclass_may_derive_from_one_of_ours(made: Callable[..., Any]) -> None:
    @records.dataclass(frozen=True)
    class Base:
        a: int

    class Derived(Base):
        b: int = 2

    more = made(frozen=True)(Derived)
    assert repr(more(1)).endswith("Derived(a=1, b=2)")
    assert more(1) == more(1, 2) != Base(1)
    with pytest.raises(FrozenInstanceError):
        more(1).a = 3
    with pytest.raises(TypeError, match="cannot inherit non-frozen"):
        made(type("Loose", (Base,), {}))


def test_what_derives_may_make_its_base_first() -> None:
    @records.dataclass
    class Base:
        a: int
        b: int = 2

    @dataclasses.dataclass(init=False)
    class More(Base):
        c: int = 3

        def __init__(self, a: int) -> None:
            super().__init__(a)

    for number in range(2 * records.INSTANCES_BEFORE_COMPILING):  # compiled meanwhile
        assert vars(More(number)) == {"a": number, "b": 2}


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


@pytest.mark.parametrize("made", [records.dataclass, dataclasses.dataclass])
def test_faults_of_a_class_are_told_where_it_is_made(made: Callable[..., Any]) -> None:
    notes = {"a": "int", "b": "int"}
    with pytest.raises(TypeError, match="non-default argument 'b' follows default argument"):
        made(type("Late", (), {"__annotations__": notes, "a": 1}))
    with pytest.raises(ValueError, match="mutable default"):
        made(type("Shared", (), {"__annotations__": notes, "b": []}))
    with pytest.raises(TypeError, match="Cannot overwrite attribute __setattr__"):
        made(frozen=True)(type("Own", (), {"__setattr__": lambda *_: None}))


def test_a_method_is_compiled_for_who_makes_many() -> None:
    one, told = named(records.dataclass, frozen=True), named(records.dataclass)
    for number in range(records.INSTANCES_BEFORE_COMPILING):
        assert (one(number).first, one(number, late=1).total)[number % 2] == number + number % 2
    assert inspect.isfunction(vars(one)["__init__"])
    few = named(records.dataclass, frozen=True)
    for number in range(records.INSTANCES_BEFORE_COMPILING):
        assert repr(few(number, late=1)) == repr(one(number, late=1))
        assert not inspect.isfunction(vars(few)["__init__"])
    assert few(1).total == 1
    assert inspect.isfunction(vars(few)["__init__"])
    assert str(inspect.signature(told)) == str(inspect.signature(one))
    assert inspect.isfunction(vars(told)["__init__"])


def test_what_derives_compiles_as_late() -> None:
    @records.dataclass(frozen=True)
    class Base:
        a: int

    @records.dataclass(frozen=True)
    class More(Base):
        b: int = 2

    for number in range(records.INSTANCES_BEFORE_COMPILING):
        assert (More(number), hash(More(number))) == (More(number, 2), hash(More(number, b=2)))
        if number < records.INSTANCES_BEFORE_COMPILING // 4:
            assert not inspect.isfunction(vars(More)["__init__"])
    assert inspect.isfunction(vars(More)["__init__"])


def test_every_instance_is_looked_at() -> None:
    @records.dataclass(frozen=True)
    class One:
        a: int

        def __post_init__(self) -> None:
            seen.append(-self.a)

    @dataclasses.dataclass
    class Theirs:
        a: int

    seen = list[int]()
    assert records.checked(One, lambda one: seen.append(one.a))
    for number in range(2 * records.INSTANCES_BEFORE_COMPILING):
        One(number)
    assert seen == [
        sign * number
        for number in range(2 * records.INSTANCES_BEFORE_COMPILING)
        for sign in (-1, 1)
    ]
    assert not records.checked(Theirs, print)


@pytest.mark.parametrize("made", [records.dataclass, dataclasses.dataclass])
def test_a_class_keeps_its_own_way_to_be_made(made: Callable[..., Any]) -> None:
    class One:
        a: int

        def __init__(self) -> None:
            self.a = 7

    assert made(One)().a == 7
