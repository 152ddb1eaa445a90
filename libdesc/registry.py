"""The registry: libraries and invokers; what the dispatchers are generated from.

It is filled when it is first asked: VTensor's own descriptions, then others', then the operators'
files, whose ``@invoker`` lines register themselves.
"""

from __future__ import annotations

import importlib
import logging
import pkgutil
import sys
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from types import TracebackType
from typing import Any

from libdesc.invokers import InvokerFunction, InvokerInfo, When, fault_of, make_invoker
from libdesc.library import RegisteredLibrary, build_library
from libdesc.load import (
    description_file,
    foreign_descriptions,
    import_module,
    listed_descriptions,
    own_descriptions,
)
from libdesc.schema import Description
from libdesc.unused import why_unused
from ptensor.libraries import LIBRARIES
from vtensor.errors import DescriptionError, LibraryError, VTensorError, did_you_mean
from vtensor.language.forks import process_lock
from vtensor.language.operators import OPERATORS
from vtensor.language.tensor import CPU

_log = logging.getLogger("vtensor.libraries")


@dataclass
class Registry:
    """Libraries by name and invokers by (operator, library, device); ``version`` counts changes."""

    libraries: dict[str, RegisteredLibrary] = field(default_factory=dict)
    invokers: dict[tuple[str, str, str], InvokerInfo] = field(default_factory=dict)
    problems: list[tuple[str, str]] = field(default_factory=list)
    version: int = 0
    filled: bool = False
    lock: threading.RLock = field(default_factory=process_lock)
    #: Held while the registry is filled, which imports modules: never taken while ``lock`` is held.
    filling: threading.RLock = field(default_factory=lambda: process_lock(0))

    def add_library(self, library: RegisteredLibrary) -> None:
        """Register; the name must be free."""
        with self.lock:
            have = self.libraries.get(library.name)
            if have is not None:
                raise LibraryError(
                    f"{library.description.file}: library {library.name!r} is already registered "
                    f"by {have.description.file}"
                )
            self.libraries[library.name] = library
            LIBRARIES[library.name] = library
            self.version += 1

    def remove_library(self, name: str) -> None:
        """Undo ``add_library``; the library's invokers stay, without effect."""
        with self.lock:
            self.libraries.pop(name, None)
            LIBRARIES.pop(name, None)
            self.version += 1

    def candidates(self, op: str, device: str) -> list[tuple[int, InvokerInfo]]:
        """An operator's invokers on a device with their priorities, best first; ties by name."""
        rows = []
        for info in self.invokers.values():
            library = self.libraries.get(info.library)
            if info.op == op and info.device == device and library and device in library.devices:
                priority = library.priority if info.priority is None else info.priority
                rows.append((priority, info))
        return sorted(rows, key=lambda row: (-row[0], row[1].library))

    def why_unused(
        self, library: RegisteredLibrary, own: Collection[str] = (), owes_invokers: bool = True
    ) -> list[str]:
        """Why a library would never be used here; see ``libdesc.unused``."""
        pairs = {(info.library, info.device) for info in self.invokers.values()}
        return why_unused(library.name, library.devices, pairs, own, owes_invokers)

    def ties(self) -> list[str]:
        """Pairs of libraries of the same priority: the name decides, which is worth a word."""
        names = sorted(self.libraries)
        return [
            f"{a} and {b} both have priority {self.libraries[a].priority}; the name decides"
            for i, a in enumerate(names)
            for b in names[i + 1 :]
            if self.libraries[a].priority == self.libraries[b].priority
        ]


_registry = Registry()


#: The thread that fills the registry; in a forked child it may be one that is not there.
_filler = 0


def registry() -> Registry:
    """The registry, filled; another thread waits until it is, what fills it sees it half full."""
    global _filler
    if not _registry.filled:
        with _registry.filling:
            if not _registry.filled and _filler != threading.get_ident():
                _filler = threading.get_ident()
                try:
                    _fill()
                    _registry.filled = True
                finally:
                    _filler = 0
    return _registry


def _fill() -> None:
    for file in own_descriptions():
        if file.parent.name not in _registry.libraries:
            _add(Description.read(file), "VTensor's own")
    for origin, locate in foreign_descriptions():
        try:
            _add(Description.read(description_file(locate())), origin)
        except (Exception, SystemExit) as error:  # whatever a stranger's module raises
            report(origin, error)
    import_operators()
    _report_what_does_not_match()


def _report_what_does_not_match() -> None:
    """Invokers without an operator, and operators without a definition."""
    have = {(info.op, info.library) for info in _registry.invokers.values()}
    for info in _registry.invokers.values():
        if info.op not in OPERATORS:
            hint = did_you_mean(info.op, OPERATORS)
            never = LibraryError(f"there is no operator {info.op!r}; it is never called{hint}")
            report(f"invoker {info.file}:{info.line}", never)
        elif fault := fault_of(info):  # it was registered before its operator
            report(f"invoker {info.file}:{info.line}", LibraryError(fault))
    for name, operator in OPERATORS.items():
        if (name, operator.definition) not in have:
            owed = f"{name} has no invoker on {operator.definition}, which is to be its definition"
            report(f"operator {operator.file}:{operator.line}", LibraryError(owed))


def report(origin: str, error: BaseException) -> None:
    """Note that something is broken; what cannot be used is skipped."""
    text = str(error) if isinstance(error, VTensorError) else f"{type(error).__name__}: {error}"
    _registry.problems.append((origin, text))
    _log.warning("problem with %s: %s", origin, text)


def import_own_operators() -> None:
    """Import every operator file of ours."""
    ops = importlib.import_module("ops")
    for module in pkgutil.iter_modules(ops.__path__):
        importlib.import_module(f"ops.{module.name}")


def import_operators() -> None:
    """Import every operator file: ours, then those of the entry points ``vtensor.operators``."""
    import_own_operators()
    for entry in metadata.entry_points(group="vtensor.operators"):
        try:
            entry.load()
        except (Exception, SystemExit) as error:
            report(f"entry point {entry.name} = {entry.value}", error)


def _add(description: Description, origin: str) -> RegisteredLibrary:
    library = build_library(description, origin)
    _registry.add_library(library)
    invokers, modules = dict(_registry.invokers), set(sys.modules)
    try:
        _import_invokers(description)
    except BaseException:
        _registry.remove_library(library.name)
        _forget(invokers, modules)
        raise
    own = {info.library for key, info in _registry.invokers.items() if key not in invokers}
    for reason in _registry.why_unused(library, own, owes_invokers=bool(description.invokers)):
        _log.warning("library %s (%s): %s", library.name, description.file, reason)
    return library


def _import_invokers(description: Description) -> None:
    for module in description.invokers:
        try:
            import_module(module, description.file)
        except VTensorError:
            raise
        except (Exception, SystemExit) as error:  # what a module raises while it is imported
            text = f"{module!r} does not import: {type(error).__name__}: {error}"
            raise LibraryError(f"{description.file}: library.invokers: {text}") from error


def trial(description: Description) -> tuple[RegisteredLibrary, list[InvokerInfo]]:
    """Do all that ``register`` does with a description but register it; nothing of it stays.

    Returns:
        The library, probed, and the invokers that come with it.

    Raises:
        DescriptionError: the description is wrong or a handler does not import.
        LibraryError: an invoker is registered already, or its module does not import.
    """
    found = registry()
    invokers, modules = dict(found.invokers), set(sys.modules)
    library = build_library(description, "not registered")
    try:
        _import_invokers(description)
        return library, [info for key, info in found.invokers.items() if key not in invokers]
    finally:
        _forget(invokers, modules)


def known_names() -> dict[str, Path]:
    """The descriptions of libraries by name, as far as can be told without running others' code.

    Those that are registered; else VTensor's own, and those in ``VTENSOR_LIBRARIES``.
    """
    found = {name: library.description.file for name, library in _registry.libraries.items()}
    for path in [*own_descriptions(), *listed_descriptions()]:
        with suppress(DescriptionError):  # a broken one takes no name
            read = Description.read(description_file(path))
            found.setdefault(read.name, read.file)
    return found


def known_invokers() -> list[InvokerInfo]:
    """The invokers that are registered by now; nothing is imported for it."""
    return list(_registry.invokers.values())


def _forget(invokers: dict[tuple[str, str, str], InvokerInfo], modules: set[str]) -> None:
    """Take out the invokers, and the modules that hold them, which were not there before."""
    with _registry.lock:
        for key, info in list(_registry.invokers.items()):
            if key not in invokers:
                module = info.function.__module__
                if module not in modules:
                    sys.modules.pop(module, None)  # a later try must run its @invoker lines again
                del _registry.invokers[key]
        _registry.version += 1


class Registration:
    """A registration that can be undone: call ``undo()`` or use it as a context manager."""

    def __init__(self, library: RegisteredLibrary) -> None:
        self.library = library

    def undo(self) -> None:
        """Take the library out again; a second call does nothing."""
        if _registry.libraries.get(self.library.name) is self.library:
            _registry.remove_library(self.library.name)

    def __enter__(self) -> RegisteredLibrary:
        return self.library

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.undo()


def register(source: str | Path | Description) -> Registration:
    """Register a library from a description file, its folder, or a Description.

    Raises:
        DescriptionError: the description is wrong or a handler does not import; nothing is
        registered.
        LibraryError: the name is taken.

    ``with register("mylib.toml"): ...`` takes it out again at the end.
    """
    registry()
    if not isinstance(source, Description):
        source = Description.read(description_file(Path(source)))
    return Registration(_add(source, "libdesc.register"))


def invoker(
    op: str,
    *,
    library: str,
    device: str = CPU,
    dtypes: Sequence[str] | Mapping[str, Sequence[str]] | None = None,
    when: When | None = None,
    priority: int | None = None,
    python: bool = False,
    inplace: Sequence[str] = (),
) -> Callable[[InvokerFunction], InvokerFunction]:
    """Register a function as a library's invoker of an operator.

    Args:
        op: the operator's name.
        library: the library's name, as in its description.
        device: where it runs.
        dtypes: element types that every operand may have, or a row of them by role; None is any.
        when: called with ``(op, *inputs, *outputs)``; False or a reason declines.
        priority: overrides the library's priority for this operator.
        python: it computes in Python; it becomes a call-back step of a plan.
        inplace: roles of inputs that its native step may write its first output over, where both
            lie alike and nobody else reads the input any more.

    Raises:
        LibraryError: another function is registered for the same operator, library and device, or
            what is said of this one does not fit its operator.
        DTypeError: ``dtypes`` names an element type that does not exist.

    Source: the paper, section 4.3, ``REGISTER`` and ``libraryInvoker``.
    """

    def add(function: InvokerFunction) -> InvokerFunction:
        info = make_invoker(op, library, device, function, dtypes, when, priority, python, inplace)
        key = (op, library, device)
        have = _registry.invokers.get(key)
        name = function.__qualname__
        if have is not None and (have.file, have.function.__qualname__) != (info.file, name):
            raise LibraryError(
                f"{op} on {library}, {device} already has an invoker: {have.file}:{have.line}"
            )
        if fault := fault_of(info):
            raise LibraryError(f"invoker of {op} on {library} ({info.file}:{info.line}): {fault}")
        with _registry.lock:
            _registry.invokers[key] = info
            _registry.version += 1
        return function

    return add


@contextmanager
def without_invoker(op: str, library: str, device: str = CPU) -> Iterator[None]:
    """Take one invoker out inside the block.

    Raises:
        LibraryError: there is no such invoker.
    """
    found = registry()
    key = (op, library, device)
    if key not in found.invokers:
        raise LibraryError(f"{op} has no invoker on {library}, {device}")
    info = found.invokers.pop(key)
    found.version += 1
    try:
        yield
    finally:
        found.invokers[key] = info
        found.version += 1


def invokers_of(library: str) -> list[InvokerInfo]:
    """The invokers of one library, by operator."""
    rows: list[Any] = [info for info in registry().invokers.values() if info.library == library]
    return sorted(rows, key=lambda info: info.op)
