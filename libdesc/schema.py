"""The schema of library descriptions. Errors name the file, the key and the allowed values."""

from __future__ import annotations

from dataclasses import field, fields
from math import inf
from pathlib import Path
from typing import Any, NamedTuple

from vtensor.errors import DescriptionError
from vtensor.language.process.interrupts import pass_signals
from vtensor.language.records import dataclass
from vtensor.language.user_files import parse_toml, read_text
from vtensor.language.wording import reason

#: The keys of the table ``[library]``: for each, the types of its value, whether it is required,
#: and its meaning.
KEYS: dict[str, tuple[tuple[type, ...], bool, str]] = {
    "name": ((str,), True, "an identifier"),
    "priority": ((int,), True, "an integer; larger is tried first"),
    "devices": ((list,), True, 'a list of device names, such as ["cpu"]'),
    "probe": ((str,), False, '"module:function" -> None, or why the library is absent'),
    "layout_mapper": ((str,), False, '"module:function"(ptensor) -> the library\'s word'),
    "transformer": ((str,), False, '"module:function"(source, target, permutation)'),
    "guideline": ((str,), False, '"module:function"(call) -> layouts by operand index'),
    "confirm": ((str,), False, '"module:function"(call, row) -> None, or why not'),
    "version": ((str,), False, '"module:function" -> text: version, and where it was found'),
    "limit_isa": ((str,), False, '"module:function"(cap) caps the instruction set'),
    "computes": ((str,), False, '"module:function"(dtype) -> whether the processor has it'),
    "speeds": ((str,), False, '"module:function" -> {dtype: how fast it is beside f32}'),
    "peaks": ((str,), False, '"module:function"(nbytes) -> steps that measure peak speed'),
    "let_go": (
        (str,),
        False,
        '"module:function" releases kernels that planning made in vain',
    ),
    "python": ((bool,), False, "true when the transformer computes in Python"),
    "invokers": ((list,), False, "modules that hold the library's own invokers"),
}
#: The parameters of each handler.
ARGUMENTS: dict[str, tuple[str, ...]] = {
    "probe": (),
    "layout_mapper": ("ptensor",),
    "transformer": ("source", "target", "permutation"),
    "guideline": ("call",),
    "confirm": ("call", "row"),
    "version": (),
    "limit_isa": ("cap",),
    "computes": ("dtype",),
    "speeds": (),
    "peaks": ("nbytes",),
    "let_go": (),
}
HANDLERS = tuple(ARGUMENTS)


@dataclass(frozen=True)
class Rates:
    """The approximate speed of one thread of a library, from which kernels' times are estimated.

    Attributes:
        gflops: 10^9 floating-point operations per second, in a product of f32 matrices.
        gbytes: 10^9 bytes per second, read and written.
        call_us: overhead of a call, in microseconds.
    """

    gflops: float = 20.0
    gbytes: float = 10.0
    call_us: float = 2.0

    def ns(self, operations: int, nbytes: int) -> int:
        """Return the estimated time of a call in nanoseconds: arithmetic or memory, whichever takes
        longer, plus the overhead.

        Args:
            operations: floating-point operations of the call.
            nbytes: bytes that it reads and writes.

        >>> Rates(gflops=100, gbytes=10, call_us=1).ns(operations=100_000, nbytes=200)
        2000
        """
        return round(max(operations / self.gflops, nbytes / self.gbytes) + self.call_us * 1e3)

    def scaled(self, arithmetic: float, memory: float) -> Rates:
        """Return rates with ``gflops`` times ``arithmetic`` and ``gbytes`` times ``memory``."""
        return Rates(self.gflops * arithmetic, self.gbytes * memory, self.call_us)


class Speed(NamedTuple):
    """How fast the kernels of a library are in an element type, relative to f32.

    Attributes:
        instructions: the name of the processor's instructions for the type; may be empty.
        products: how many times as fast a large product is; below 1 if it is slower.
        nbytes: how many times as many bytes per second are read and written by a call whose speed
            memory limits. Kernels that convert each element reach less than 1.
    """

    instructions: str = ""
    products: float = 1.0
    nbytes: float = 1.0

    def ns(self, rates: Rates, operations: int, nbytes: int) -> int:
        """Return the estimated time of a call in nanoseconds, as ``Rates.ns`` does for f32.

        >>> Speed(products=0.5).ns(Rates(gflops=100, gbytes=10, call_us=1), 100_000, 200)
        3000
        """
        return rates.scaled(self.products, self.nbytes).ns(operations, nbytes)


@dataclass(frozen=True)
class Description:
    """A library as its file describes it; handlers are not imported yet.

    Attributes:
        name: the library's unique name, an identifier.
        priority: the library with the largest is tried first.
        devices: the devices on which its invokers may run.
        handlers: ``"module:function"`` by key; a module with a leading dot is a file next to the
            description.
        layout_names: the library's own name of each layout, if no handler ``layout_mapper`` returns
            it.
        python: True if its transformer computes in Python.
        invokers: modules to import for its invokers.
        file: the description file.
        rates: its approximate speed.

    Source: the paper, section 4.2.
    """

    name: str
    priority: int
    devices: tuple[str, ...]
    handlers: dict[str, str] = field(default_factory=dict)
    layout_names: dict[str, str] = field(default_factory=dict)
    python: bool = False
    invokers: tuple[str, ...] = ()
    file: Path = Path()
    rates: Rates = field(default_factory=Rates)

    @classmethod
    def read(cls, file: Path) -> Description:
        """Read, check and return a description file.

        Raises:
            DescriptionError: the file cannot be read, is no TOML, or breaks the schema.
        """
        try:
            table = parse_toml(read_text(file))
        except (OSError, UnicodeDecodeError) as error:
            pass_signals(error)
            raise DescriptionError(f"{file}: cannot be read: {reason(error)}") from error
        except ValueError as error:
            raise DescriptionError(f"{file}: is no TOML: {error}") from error
        return cls.from_table(table, file)

    @classmethod
    def from_table(cls, table: dict[str, Any], file: Path) -> Description:
        """Check a parsed file, key by key, and return the description.

        Args:
            table: the parsed TOML.
            file: its path, for messages and for modules next to it.

        Raises:
            DescriptionError: a key or value breaks the schema.
        """
        _check_keys(file, "", table, ("library", "layout_names", "rates"))
        if not isinstance(table.get("library"), dict):
            raise DescriptionError(f"{file}: a table [library] is missing")
        library = table["library"]
        _check_keys(file, "library.", library, tuple(KEYS))
        for key, (types, required, what) in KEYS.items():
            if key not in library:
                if required:
                    raise DescriptionError(f"{file}: library.{key} is missing: {what}")
            elif not isinstance(library[key], types) or (
                isinstance(library[key], bool) and bool not in types
            ):
                raise DescriptionError(f"{file}: library.{key} = {library[key]!r} must be {what}")
        if not library["name"].isidentifier():
            raise DescriptionError(
                f"{file}: library.name = {library['name']!r} must be an identifier"
            )
        names = table.get("layout_names", {})
        if not isinstance(names, dict) or not all(isinstance(v, str) for v in names.values()):
            raise DescriptionError(f"{file}: [layout_names] must map layouts to strings")
        if names and "layout_mapper" in library:
            raise DescriptionError(
                f"{file}: library.layout_mapper and [layout_names] say the same thing: keep one"
            )
        return cls(
            library["name"],
            library["priority"],
            _strings(file, "devices", library["devices"], least=1),
            {key: _handler(file, key, library[key]) for key in HANDLERS if key in library},
            dict(names),
            library.get("python", False),
            _modules(file, library.get("invokers", [])),
            file,
            _rates(file, table.get("rates", {})),
        )


def _rates(file: Path, table: object) -> Rates:
    """Return the rates of a table ``[rates]``; missing keys have their defaults."""
    known = [rate.name for rate in fields(Rates)]
    if not isinstance(table, dict):
        raise DescriptionError(f"{file}: rates = {table!r} must be a table [rates]")
    _check_keys(file, "rates.", table, tuple(known))
    for key, value in table.items():
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < inf:
            raise DescriptionError(f"{file}: rates.{key} = {value!r} must be a number above 0")
    return Rates(**table)


def _check_keys(file: Path, prefix: str, table: dict[str, Any], allowed: tuple[str, ...]) -> None:
    for key in table:
        if key not in allowed:
            raise DescriptionError(
                f"{file}: unknown key {prefix}{key}; allowed are {', '.join(sorted(allowed))}"
            )


def _strings(file: Path, key: str, value: list[Any], least: int = 0) -> tuple[str, ...]:
    if len(value) < least or not all(isinstance(item, str) and item for item in value):
        raise DescriptionError(f"{file}: library.{key} = {value!r} must be {KEYS[key][2]}")
    return tuple(value)


def _handler(file: Path, key: str, text: str) -> str:
    module, _, function = text.partition(":")
    if not module or not function.isidentifier():
        raise DescriptionError(f"{file}: library.{key} = {text!r} must be {KEYS[key][2]}")
    _check_module(file, key, text, module)
    return text


def _modules(file: Path, value: list[Any]) -> tuple[str, ...]:
    names = _strings(file, "invokers", value)
    for name in names:
        _check_module(file, "invokers", value, name)
    return names


def _check_module(file: Path, key: str, value: object, module: str) -> None:
    """Raise a DescriptionError unless a module is a dotted name, with at most one leading dot.

    Slashes or several leading dots would lead out of the description's folder.
    """
    if not all(part.isidentifier() for part in module.removeprefix(".").split(".")):
        raise DescriptionError(
            f"{file}: library.{key} = {value!r}: {module!r} must be a dotted name, or a dot and "
            'the name of a file next to the description: "package.module", ".handlers"'
        )
