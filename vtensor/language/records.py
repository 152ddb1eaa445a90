"""Dataclasses whose methods cost nothing until they are called.

The standard decorator compiles about five methods for each class where its module is imported: of
the 140 classes that a session needs, half of them only in case, that took 50 ms of each start. Here
a class shares its methods with all others, apart from ``__init__``, which is compiled once several
instances were made. To a reader, to type checkers and to ``dataclasses`` itself it is a dataclass
like any other.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import MISSING, FrozenInstanceError
from functools import cache, partial
from operator import attrgetter
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from vtensor.language.cached import cached_property

T = TypeVar("T")

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
    from dataclasses import replace as replace
else:

    def replace(one, /, **changes):
        """As ``dataclasses.replace``, which looks at all that a class says of each field, each
        time: a plan is made of thousands.
        """
        for name in _given(type(one)):
            if name not in changes:
                changes[name] = getattr(one, name)
        return type(one)(**changes)

    @cache
    def _given(kind):
        """The fields that ``__init__`` takes."""
        return tuple(field.name for field in dataclasses.fields(kind) if field.init)

    def dataclass(cls=None, *, frozen=False, eq=True, repr=True, **others):  # noqa: A002
        """As ``dataclasses.dataclass``, which makes what has an order, or derives from another
        dataclass and has slots.
        """
        if cls is None:
            return lambda cls: dataclass(cls, frozen=frozen, eq=eq, repr=repr, **others)
        slots = others.get("slots", False)
        derives = any(map(dataclasses.is_dataclass, cls.__mro__[1:]))
        if others.keys() - {"slots"} or (slots and derives):
            return dataclasses.dataclass(cls, frozen=frozen, eq=eq, repr=repr, **others)
        return _with_methods(cls, frozen, eq, repr, slots, derives)


#: So many instances are made before ``__init__`` is compiled, which takes as long.
FEW = 16


def checked(cls: type[T], check: Callable[[T], None]) -> bool:
    """Have this called with each new instance; False where that must be seen to elsewhere."""
    init = vars(cls).get("__init__")
    if isinstance(init, _Init):
        init.check = check
    return isinstance(init, _Init)


def _with_methods(
    cls: type[T], frozen: bool, eq: bool, shown: bool, slots: bool, derives: bool
) -> type[T]:
    """The class with what the standard decorator would have given it."""
    has_eq = "__eq__" in vars(cls)
    own_hash = vars(cls).get("__hash__", MISSING)
    explicit = own_hash is not MISSING and not (own_hash is None and has_eq)
    refuses = frozen and derives  # the standard one then says whether it may be
    cls = dataclasses.dataclass(init=False, repr=False, eq=False, slots=slots, frozen=refuses)(cls)
    fields = dataclasses.fields(cls)  # type: ignore[arg-type]  # it is one now
    _check_order(fields)
    methods: dict[str, Any] = {"__init__": _Init(cls, frozen)}
    if shown:
        methods["__repr__"] = _repr_of([field.name for field in fields if field.repr])
    if eq:
        methods["__eq__"] = _eq_of(_reader([field.name for field in fields if field.compare]))
    if frozen and not refuses:
        methods |= _refusals(cls, frozenset(field.name for field in fields))
        if slots:
            methods |= _states(tuple(field.name for field in fields))
        if taken := methods.keys() & vars(cls).keys() & {"__setattr__", "__delattr__"}:
            raise TypeError(f"Cannot overwrite attribute {min(taken)} in class {cls.__name__}")
        vars(cls)["__dataclass_params__"].frozen = True  # for those that derive from it
    for name, method in methods.items():
        if name not in vars(cls):
            setattr(cls, name, method)
    if eq and not explicit:
        compared = [f.name for f in fields if (f.compare if f.hash is None else f.hash)]
        cls.__hash__ = _hash_of(_reader(compared)) if frozen else None  # type: ignore[assignment]
    return cls


def _check_order(fields: tuple[dataclasses.Field[Any], ...]) -> None:
    """As in a signature: what has a default comes last."""
    default = False
    for field in fields:
        if field.init and not field.kw_only:
            if not _optional(field) and default:
                raise TypeError(f"non-default argument {field.name!r} follows default argument")
            default = default or _optional(field)


def _optional(field: dataclasses.Field[Any]) -> bool:
    return field.default is not MISSING or field.default_factory is not MISSING


def _slotted(cls: type) -> bool:
    """The class itself cannot have what fields are by default."""
    return "__slots__" in vars(cls)


class _Init:
    """Stands for ``__init__``, until somebody looks at it or many instances were made."""

    def __init__(self, cls: type, frozen: bool) -> None:
        self._cls, self._frozen, self._left = cls, frozen, FEW
        self.check: Callable[[Any], None] | None = None
        self._set = object.__setattr__ if frozen else setattr

    def __get__(self, instance: object, owner: type | None = None) -> Callable[..., None]:
        if instance is not None and self._left > 0:
            self._left -= 1
            return partial(self._first, instance)
        return self._compiled(instance, owner)

    def _compiled(self, instance: object, owner: type | None = None) -> Callable[..., None]:
        made = vars(self._cls)["__init__"]
        if made is self:  # another thread may have been faster
            made = _init_of(self._cls, self._frozen, self.check)
            self._cls.__init__ = made
        bound: Callable[..., None] = made.__get__(instance, owner)
        return bound

    def _first(self, one: object, /, *args: Any, **given: Any) -> None:
        """What is compiled does the same; it is asked where arguments are wrong."""
        plain, own, needed, rest = self._fields
        if args:
            if len(args) > len(plain) or not given.keys().isdisjoint(plain[: len(args)]):
                return self._compiled(one)(*args, **given)
            given |= zip(plain, args, strict=False)
        if not needed <= given.keys() <= own:
            return self._compiled(one)(**given)
        for name, value in given.items():
            self._set(one, name, value)
        for name, make in rest:
            if name not in given:
                self._set(one, name, make())
        if (after := getattr(one, "__post_init__", None)) is not None:
            after()
        if self.check is not None:
            self.check(one)
        return None

    @cached_property
    def _fields(self) -> _Fields:
        fields = dataclasses.fields(self._cls)
        own = [field for field in fields if field.init]
        rest = list[tuple[str, Callable[[], Any]]]()
        for field in fields:
            if field.default_factory is not MISSING:
                rest.append((field.name, field.default_factory))
            elif field.default is not MISSING and (field.init or _slotted(self._cls)):
                rest.append((field.name, partial(_same, field.default)))
        return _Fields(
            tuple(field.name for field in own if not field.kw_only),
            frozenset(field.name for field in own),
            frozenset(field.name for field in own if not _optional(field)),
            rest,
        )


class _Fields(NamedTuple):
    """A class's fields: those that are given in order; all that are given; those that must be; and
    what makes those that are not.
    """

    plain: tuple[str, ...]
    own: frozenset[str]
    needed: frozenset[str]
    rest: list[tuple[str, Callable[[], Any]]]


def _same(value: Any) -> Any:
    return value


def _init_of(cls: type, frozen: bool, check: Callable[[Any], None] | None) -> Callable[..., None]:
    """Compile it."""
    known: dict[str, Any] = {"_set": object.__setattr__, "_MISSING": MISSING, "_check": check}
    plain, named, lines = list[str](), list[str](), list[str]()
    fields = dataclasses.fields(cls)
    for field in fields:
        name, value = field.name, field.name
        if field.default is not MISSING:
            known[f"_default_{name}"] = field.default
        if field.default_factory is not MISSING:
            known[f"_make_{name}"] = field.default_factory
            value = f"_make_{name}()"
            if field.init:
                value += f" if {name} is _MISSING else {name}"
        if field.init:
            default = "" if not _optional(field) else f"=_default_{name}"
            if field.default_factory is not MISSING:
                default = "=_MISSING"
            (named if field.kw_only else plain).append(name + default)
        elif field.default is not MISSING and _slotted(cls):
            value = f"_default_{name}"
        elif field.default_factory is MISSING:
            continue  # the class has its default, or the class sets it itself
        lines.append(f"_set(self, {name!r}, {value})" if frozen else f"self.{name} = {value}")
    if hasattr(cls, "__post_init__"):
        lines.append("self.__post_init__()")
    if check is not None:
        lines.append("_check(self)")
    signature = ", ".join(["self", *plain, *(["*", *named] if named else [])])
    body = "\n  ".join(lines or ["pass"])
    text = f"def make({', '.join(known)}):\n def __init__({signature}):\n  {body}\n return __init__"
    space: dict[str, Any] = {}
    exec(text, {"__name__": cls.__module__}, space)
    made: Callable[..., None] = space["make"](**known)
    made.__qualname__ = f"{cls.__qualname__}.__init__"
    made.__annotations__ = {field.name: field.type for field in fields if field.init}
    made.__annotations__["return"] = None
    return made


def _reader(names: list[str]) -> Callable[[Any], tuple[Any, ...]]:
    """What reads these attributes as a tuple."""
    if len(names) > 1:
        return attrgetter(*names)
    return (lambda one: (getattr(one, names[0]),)) if names else lambda _: ()


def _eq_of(values: Callable[[Any], tuple[Any, ...]]) -> Callable[[Any, object], Any]:
    def equal(self: Any, other: object) -> Any:
        if other.__class__ is self.__class__:
            return values(self) == values(other)
        return NotImplemented

    return equal


def _hash_of(values: Callable[[Any], tuple[Any, ...]]) -> Callable[[Any], int]:
    return lambda self: hash(values(self))


def _repr_of(names: list[str]) -> Callable[[Any], str]:
    @recursive_repr()
    def shown(self: Any) -> str:
        shown = ", ".join(f"{name}={getattr(self, name)!r}" for name in names)
        return f"{self.__class__.__qualname__}({shown})"

    return shown


def _refusals(cls: Any, names: frozenset[str]) -> dict[str, Callable[..., None]]:
    """What keeps a frozen instance as it is."""

    def refuse_set(self: Any, name: str, value: object) -> None:
        if type(self) is cls or name in names:
            raise FrozenInstanceError(f"cannot assign to field {name!r}")
        super(cls, self).__setattr__(name, value)

    def refuse_delete(self: Any, name: str) -> None:
        if type(self) is cls or name in names:
            raise FrozenInstanceError(f"cannot delete field {name!r}")
        super(cls, self).__delattr__(name)

    return {"__setattr__": refuse_set, "__delattr__": refuse_delete}


def _states(names: tuple[str, ...]) -> dict[str, Callable[..., Any]]:
    """What copies and pickles a frozen instance with slots, which cannot be set otherwise."""

    def state(self: Any) -> list[Any]:
        return [getattr(self, name) for name in names]

    def restore(self: Any, state: list[Any]) -> None:
        for name, value in zip(names, state, strict=True):
            object.__setattr__(self, name, value)

    return {"__getstate__": state, "__setstate__": restore}
