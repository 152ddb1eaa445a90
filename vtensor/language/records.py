"""Dataclasses that compile no methods when they are defined.

The standard decorator compiles about five methods for each class, which takes a large part of the
time of an import. The decorator of this module compiles none of them at first: the methods are
closures, and ``__init__`` is compiled after several instances were made. To readers, type checkers
and ``dataclasses`` itself the classes are ordinary dataclasses.
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

    def replace(instance, /, **changes):
        """Return a copy of a dataclass instance with changed fields.

        Faster than ``dataclasses.replace``, which inspects every field in each call.
        """
        for name in _init_fields(type(instance)):
            if name not in changes:
                changes[name] = getattr(instance, name)
        return type(instance)(**changes)

    @cache
    def _init_fields(kind):
        """Return the names of the fields that ``__init__`` takes."""
        return tuple(field.name for field in dataclasses.fields(kind) if field.init)

    def dataclass(cls=None, *, frozen=False, eq=True, repr=True, **others):  # noqa: A002
        """Make ``cls`` a dataclass; without ``cls``, return a decorator that does.

        Classes with further options, such as ``order``, and classes that have slots and derive from
        another dataclass are made by ``dataclasses.dataclass``.

        Args:
            frozen, eq, repr, others: as for ``dataclasses.dataclass``.
        """
        if cls is None:
            return lambda cls: dataclass(cls, frozen=frozen, eq=eq, repr=repr, **others)
        slots = others.get("slots", False)
        derives = any(map(dataclasses.is_dataclass, cls.__mro__[1:]))
        if others.keys() - {"slots"} or (slots and derives):
            return dataclasses.dataclass(cls, frozen=frozen, eq=eq, repr=repr, **others)
        return _with_methods(cls, frozen, eq, repr, slots, derives)


#: The number of instances that are made before ``__init__`` is compiled. Without a compiled
#: ``__init__``, making so many takes about as long as compiling.
INSTANCES_BEFORE_COMPILING = 16


def checked(cls: type[T], check: Callable[[T], None]) -> bool:
    """Make a dataclass call ``check`` with each new instance, and return True.

    If the ``__init__`` of ``cls`` was not made by this module, do nothing and return False; the
    caller must then add the check.
    """
    init = vars(cls).get("__init__")
    if isinstance(init, _Init):
        init.check = check
    return isinstance(init, _Init)


def _with_methods(
    cls: type[T], frozen: bool, eq: bool, shown: bool, slots: bool, derives: bool
) -> type[T]:
    """Return the class as a dataclass with the methods that the standard decorator would add.

    Args:
        cls: the class.
        frozen, eq, shown, slots: the options of ``dataclass``; ``shown`` is ``repr``.
        derives: True if a base of the class is a dataclass.
    """
    has_eq = "__eq__" in vars(cls)
    own_hash = vars(cls).get("__hash__", MISSING)
    explicit = own_hash is not MISSING and not (own_hash is None and has_eq)
    inherit = frozen and derives  # the standard decorator then checks that the bases are frozen
    cls = dataclasses.dataclass(init=False, repr=False, eq=False, slots=slots, frozen=inherit)(cls)
    fields = dataclasses.fields(cls)  # type: ignore[arg-type]  # the class is a dataclass now
    _check_order(fields)
    methods: dict[str, Any] = {"__init__": _Init(cls, frozen)}
    if shown:
        methods["__repr__"] = _repr_of([field.name for field in fields if field.repr])
    if eq:
        methods["__eq__"] = _eq_of(_reader([field.name for field in fields if field.compare]))
    if frozen and not inherit:
        methods |= _refusals(cls, frozenset(field.name for field in fields))
        if slots:
            methods |= _states(tuple(field.name for field in fields))
        if taken := methods.keys() & vars(cls).keys() & {"__setattr__", "__delattr__"}:
            raise TypeError(f"Cannot overwrite attribute {min(taken)} in class {cls.__name__}")
        vars(cls)["__dataclass_params__"].frozen = True  # for classes that derive from it
    for name, method in methods.items():
        if name not in vars(cls):
            setattr(cls, name, method)
    if eq and not explicit:
        compared = [f.name for f in fields if (f.compare if f.hash is None else f.hash)]
        cls.__hash__ = _hash_of(_reader(compared)) if frozen else None  # type: ignore[assignment]
    return cls


def _check_order(fields: tuple[dataclasses.Field[Any], ...]) -> None:
    """Check that fields with a default come last, as arguments with a default do.

    Raises:
        TypeError: a field without a default comes after one that has a default.
    """
    default = False
    for field in fields:
        if field.init and not field.kw_only:
            if not _optional(field) and default:
                raise TypeError(f"non-default argument {field.name!r} follows default argument")
            default = default or _optional(field)


def _optional(field: dataclasses.Field[Any]) -> bool:
    return field.default is not MISSING or field.default_factory is not MISSING


def _slotted(cls: type) -> bool:
    """Return whether a class has slots, so that it cannot hold its fields' defaults itself."""
    return "__slots__" in vars(cls)


class _Init:
    """A stand-in for the ``__init__`` of a dataclass, until the real one is compiled.

    The real one is compiled when its signature is read, or after ``INSTANCES_BEFORE_COMPILING``
    instances were made.

    Args:
        cls: the dataclass.
        frozen: True if instances of the class are frozen.

    Attributes:
        check: called with each new instance; None if there is no check.
    """

    def __init__(self, cls: type, frozen: bool) -> None:
        self._cls, self._frozen, self._left = cls, frozen, INSTANCES_BEFORE_COMPILING
        self.check: Callable[[Any], None] | None = None
        self._set = object.__setattr__ if frozen else setattr

    def __get__(self, instance: object, owner: type | None = None) -> Callable[..., None]:
        if instance is not None and self._left > 0:
            self._left -= 1
            return partial(self._initialise, instance)
        return self._compiled(instance, owner)

    def _compiled(self, instance: object, owner: type | None = None) -> Callable[..., None]:
        init = vars(self._cls)["__init__"]
        if init is self:  # another thread may have compiled it
            init = _init_of(self._cls, self._frozen, self.check)
            self._cls.__init__ = init
        bound: Callable[..., None] = init.__get__(instance, owner)
        return bound

    def _initialise(self, instance: object, /, *args: Any, **values: Any) -> None:
        """Set an instance's fields, as the compiled ``__init__`` does.

        If the arguments are wrong, the compiled ``__init__`` is called to raise its error.
        """
        positional, accepted, required, defaults = self._fields
        if args:
            if len(args) > len(positional) or not values.keys().isdisjoint(positional[: len(args)]):
                return self._compiled(instance)(*args, **values)
            values |= zip(positional, args, strict=False)
        if not required <= values.keys() <= accepted:
            return self._compiled(instance)(**values)
        for name, value in values.items():
            self._set(instance, name, value)
        for name, default in defaults:
            if name not in values:
                self._set(instance, name, default())
        if (after := getattr(instance, "__post_init__", None)) is not None:
            after()
        if self.check is not None:
            self.check(instance)
        return None

    @cached_property
    def _fields(self) -> _InitFields:
        fields = dataclasses.fields(self._cls)
        accepted = [field for field in fields if field.init]
        defaults = list[tuple[str, Callable[[], Any]]]()
        for field in fields:
            if field.default_factory is not MISSING:
                defaults.append((field.name, field.default_factory))
            elif field.default is not MISSING and (field.init or _slotted(self._cls)):
                defaults.append((field.name, partial(_same, field.default)))
        return _InitFields(
            tuple(field.name for field in accepted if not field.kw_only),
            frozenset(field.name for field in accepted),
            frozenset(field.name for field in accepted if not _optional(field)),
            defaults,
        )


class _InitFields(NamedTuple):
    """The fields of a class, as ``__init__`` takes them.

    Attributes:
        positional: the names of the arguments that may be given without a name, in order.
        accepted: all names that may be given.
        required: the names that must be given.
        defaults: pairs of a field's name and a function that returns the field's default.
    """

    positional: tuple[str, ...]
    accepted: frozenset[str]
    required: frozenset[str]
    defaults: list[tuple[str, Callable[[], Any]]]


def _same(value: Any) -> Any:
    return value


def _init_of(cls: type, frozen: bool, check: Callable[[Any], None] | None) -> Callable[..., None]:
    """Compile and return the ``__init__`` of a class.

    Args:
        cls: the dataclass.
        frozen: True if instances of the class are frozen.
        check: called with each new instance; None if there is no check.
    """
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
            continue  # the default is an attribute of the class, or the class's code sets the field
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
    init: Callable[..., None] = space["make"](**known)
    init.__qualname__ = f"{cls.__qualname__}.__init__"
    init.__annotations__ = {field.name: field.type for field in fields if field.init}
    init.__annotations__["return"] = None
    return init


def _reader(names: list[str]) -> Callable[[Any], tuple[Any, ...]]:
    """Return a function that returns an instance's attributes of these names as a tuple."""
    if len(names) > 1:
        return attrgetter(*names)
    return (lambda instance: (getattr(instance, names[0]),)) if names else lambda _: ()


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
    """Return ``__setattr__`` and ``__delattr__`` by name; both refuse to change a frozen instance.

    Args:
        cls: the frozen class.
        names: the names of its fields.
    """

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
    """Return ``__getstate__`` and ``__setstate__``, by name, for copying and pickling instances.

    Args:
        names: the names of the fields of a frozen class with slots.
    """

    def state(self: Any) -> list[Any]:
        return [getattr(self, name) for name in names]

    def restore(self: Any, state: list[Any]) -> None:
        for name, value in zip(names, state, strict=True):
            object.__setattr__(self, name, value)

    return {"__getstate__": state, "__setstate__": restore}
