"""The registry of operators, rules, libraries and invokers; dispatchers are generated from it.

The first use reads the descriptions of VTensor's own libraries, then imports the libraries and
operators of other distributions. A file with operators registers these by its ``@operator`` and
``@invoker`` lines when it is imported. VTensor's own files are imported only when one of their
operators is asked for. ``registry()`` imports all of these files, ``ready()`` none.
"""

from __future__ import annotations

import itertools
import sys
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import field
from functools import lru_cache, partial
from pathlib import Path
from typing import TypeVar, cast

from libdesc.installed import entry_points
from libdesc.invokers import First, InvokerFunction, InvokerInfo, When, fault_of, make_invoker
from libdesc.library import RegisteredLibrary, build_library
from libdesc.load import (
    description_file,
    foreign_descriptions,
    forget_modules,
    import_module,
    own_descriptions,
    own_operators,
)
from libdesc.schema import Description
from libdesc.unused import why_unused
from ptensor.libraries import LIBRARIES, Library
from vtensor.errors import LibraryError, VTensorError, did_you_mean
from vtensor.language.index import Index, importing
from vtensor.language.operators import OPERATORS
from vtensor.language.process.forks import process_lock
from vtensor.language.process.imported import logger
from vtensor.language.process.interrupts import pass_signals
from vtensor.language.records import dataclass
from vtensor.language.rules import Rule
from vtensor.language.table import OperatorInfo
from vtensor.language.tensor import CPU

T = TypeVar("T")

_log = logger("vtensor.libraries")

#: A compiled dispatcher.
Dispatcher = Callable[..., None]

#: Source of the numbers of versions. All registries of the process use it, so that no two have the
#: same version: what is cached for a version, such as a dispatcher, is never used for another
#: registry.
_versions = itertools.count()

#: The origin of VTensor's own libraries, see ``RegisteredLibrary.origin``.
OWN = "VTensor's own"


@dataclass(eq=False)
class Registry:
    """Operators by name, libraries by name, and invokers by (operator, library, device).

    Attributes:
        operators, libraries, invokers: what is registered; the keys are the names, for invokers
            (operator, library, device).
        problems: (origin, message) for each library, invoker, operator or rule that is broken:
            which one it is, and what is wrong.
        rules: the rewrite rules, by name.
        dispatchers: compiled dispatchers by operator and device, each with the ``version`` of the
            registry for which it was made.
        version: a number that changes with every change of libraries and invokers.
        filled: True if libraries and the operators of other distributions have been imported.
            VTensor's own operators may still be in ``index`` only.
        filler: id of the thread that is filling the registry, 0 if there is none. In a forked child
            this thread may not exist.
        settled: ``version`` right after the registry was filled. If ``version`` has changed,
            something was registered since.
        index: VTensor's own operators and rules, and which of their modules are not imported yet.
    """

    operators: dict[str, OperatorInfo] = field(default_factory=dict)
    libraries: dict[str, RegisteredLibrary] = field(default_factory=dict)
    invokers: dict[tuple[str, str, str], InvokerInfo] = field(default_factory=dict)
    problems: list[tuple[str, str]] = field(default_factory=list)
    rules: dict[str, Rule] = field(default_factory=dict)
    dispatchers: dict[tuple[str, str], tuple[int, Callable[..., None]]] = field(
        default_factory=dict
    )
    version: int = field(default_factory=lambda: next(_versions))
    filled: bool = True
    filler: int = 0
    settled: int = 0
    index: Index = field(default_factory=Index)

    def copy(self) -> Registry:
        """Import all operators and rules of the index, and return another registry with the same
        content.
        """
        self.index.load_all()
        tables = dict(self.operators), dict(self.libraries), dict(self.invokers)
        return Registry(*tables, list(self.problems), dict(self.rules))

    def change(self, work: Callable[[], T], known: bool = True) -> T:
        """Run ``work`` while no other thread changes the registry, and return its result. The
        registry gets a new version.

        Args:
            work: makes the change.
            known: False if the change only adds rules, or invokers of operators, that were not
                imported before. The version then stays, since nothing that was made for it becomes
                wrong.
        """
        with _changing:
            result = work()
            if known:
                self.version = next(_versions)
            return result

    def candidates(self, op: str, device: str) -> list[tuple[int, InvokerInfo]]:
        """Return (priority, invoker) for each invoker of an operator on a device.

        The highest priority comes first. Invokers of equal priority are in the order of their
        libraries' names.
        """
        rows = []
        self.index.load(op)
        for name, library in list(self.libraries.items()):
            info = self.invokers.get((op, name, device))
            if info is not None and device in library.devices:
                priority = library.priority if info.priority is None else info.priority
                rows.append((priority, info))
        return sorted(rows, key=lambda row: (-row[0], row[1].library))

    def rules_for(self, operators: Collection[str]) -> dict[str, Rule]:
        """Return the rewrite rules for a graph, by name, in the order of the index.

        It has all rules that can apply to a graph with these operators, and may have others.

        Args:
            operators: the names of the graph's operators.
        """
        self.index.load_rules(operators)
        last = len(self.index.rules)
        place = {name: at for at, name in enumerate(self.index.rules)}
        return dict(sorted(self.rules.items(), key=lambda row: place.get(row[0], last)))

    def why_unused(
        self, library: RegisteredLibrary, named: Collection[str] = (), owes_invokers: bool = True
    ) -> list[str]:
        """Return the reasons why a library would never be used; empty if it can be.

        Args:
            library: the library.
            named, owes_invokers: as for ``libdesc.unused.why_unused``.
        """
        pairs = {(info.library, info.device) for info in self.invokers.values()}
        return why_unused(library.name, library.devices, pairs, named, owes_invokers)

    def ties(self) -> list[str]:
        """Return a message for each pair of libraries that have the same priority. Their names
        decide which one is asked first.
        """
        pairs = itertools.combinations(sorted(self.libraries.items()), 2)
        return [
            f"{a} and {b} both have priority {library.priority}; the name decides"
            for (a, library), (b, other) in pairs
            if library.priority == other.priority
        ]

    def report(self, origin: str, error: BaseException) -> None:
        """Add a problem and log it.

        Args:
            origin: the library, invoker, operator or rule that is broken.
            error: what is wrong with it.
        """
        text = str(error) if isinstance(error, VTensorError) else f"{type(error).__name__}: {error}"
        self.problems.append((origin, text))
        _log.warning("problem with %s: %s", origin, text)

    def add(self, description: Description, origin: str) -> RegisteredLibrary:
        """Register a library with its invokers, and return it. If this fails, the library is not
        registered.

        Args:
            description: the library's description.
            origin: how the description was found.

        Raises:
            DescriptionError: a handler is wrong, or a key of ``[layout_names]`` is no layout.
            LibraryError: another library has this name, or a module with invokers cannot be
                imported.
        """
        library = build_library(description, origin)

        def register() -> None:
            present = self.libraries.setdefault(library.name, library)
            if present is not library:
                raise LibraryError(
                    f"{description.file}: library {library.name!r} is already registered "
                    f"by {present.description.file}"
                )

        self.change(register)
        try:
            named = {info.library for info in self.import_invokers(description)}
        except BaseException:
            self.remove(library)
            raise
        for reason in self.why_unused(library, named, owes_invokers=bool(description.invokers)):
            _log.warning("library %s (%s): %s", library.name, description.file, reason)
        return library

    def remove(self, library: RegisteredLibrary) -> None:
        """Unregister a library if it is still registered. Its invokers stay registered, but have no
        effect.
        """

        def remove() -> None:
            if self.libraries.get(library.name) is library:
                del self.libraries[library.name]

        self.change(remove)

    def import_invokers(self, description: Description) -> list[InvokerInfo]:
        """Import the modules of a library's invokers and return the newly registered invokers.

        After an error none of them stays registered, except those of VTensor's own modules.

        Raises:
            LibraryError: an invoker is registered already, or a module does not import.
        """
        before, modules = dict(self.invokers), set(sys.modules)
        try:
            for module in description.invokers:
                try:
                    import_module(module, description.file)
                except VTensorError:
                    raise
                except (Exception, SystemExit) as error:  # whatever importing a module raises
                    pass_signals(error)
                    text = f"{module!r} does not import: {type(error).__name__}: {error}"
                    raise LibraryError(f"{description.file}: library.invokers: {text}") from error
        except BaseException:
            new = {key: info for key, info in self.invokers.items() if key not in before}
            theirs = {key: info for key, info in new.items() if not _is_own(info)}

            def forget() -> None:
                forget_modules(modules, {info.function.__module__ for info in theirs.values()})
                self.invokers = {k: info for k, info in self.invokers.items() if k not in theirs}

            self.change(forget)
            raise
        return [info for key, info in self.invokers.items() if key not in before]

    @property
    def modules(self) -> set[str]:
        """Names of the modules that define the registry's invokers."""
        return {info.function.__module__ for info in self.invokers.values()}

    def fill(self) -> None:
        """Import libraries and the operators of other distributions, once.

        Other threads wait meanwhile. A nested call in the filling thread returns at once, with the
        registry half filled.
        """
        with importing:
            if self.filled or self.filler == threading.get_ident():
                return
            self.filler = threading.get_ident()
            try:
                self._fill()
                self.filled, self.settled = True, self.version
            finally:
                self.filler = 0

    def _fill(self) -> None:
        self.index = own_operators(self._check)
        if self is _installed:
            OPERATORS.index = self.index
        for file in own_descriptions():
            if file.parent.name not in self.libraries:
                self.add(Description.read(file), OWN)
        offered = entry_points("vtensor.libraries", "vtensor.operators")
        for origin, locate in foreign_descriptions(offered["vtensor.libraries"]):
            try:
                self.add(Description.read(description_file(locate())), origin)
            except (Exception, SystemExit) as error:  # whatever a third-party module raises
                pass_signals(error)
                self.report(origin, error)
        for entry in offered["vtensor.operators"]:
            try:
                entry.load()
            except (Exception, SystemExit) as error:
                pass_signals(error)
                self.report(f"entry point {entry.name} = {entry.value}", error)
        self._report_names()
        self._check([name for name in self.operators if name not in self.index.pending])

    def _report_names(self) -> None:
        """Report, as problems, the invokers and rules of operators that do not exist."""
        known = {*self.operators, *self.index.places}
        named = {info.op for info in self.invokers.values()}
        if not named <= known:
            self.index.load_all()  # the index may be out of date
            known = set(self.operators)
        for info in self.invokers.values():
            if info.op not in known:
                hint = did_you_mean(info.op, known)
                never = f"there is no operator {info.op!r}; it is never called{hint}"
                self.report(f"invoker {info.file}:{info.line}", LibraryError(never))
        for rule in self.rules.values():
            for op in sorted(rule.operators - known):
                hint = did_you_mean(op, known)
                self.report(f"rule {rule.name}", LibraryError(f"there is no operator {op!r}{hint}"))

    def _check(self, names: Sequence[str]) -> None:
        """Report, as problems, operators without a definition, and invokers that do not fit their
        operator.

        Args:
            names: the operators that are checked; all of them are imported.
        """
        rows = [info for info in self.invokers.values() if info.op in names]
        for info in rows:
            if fault := fault_of(info):  # it was registered before its operator, so unchecked
                self.report(f"invoker {info.file}:{info.line}", LibraryError(fault))
        have = {(info.op, info.library) for info in rows}
        for name in names:
            operator = self.operators.get(name)
            if operator is not None and (name, operator.definition) not in have:
                owed = f"{name} has no invoker on {operator.definition}, which must be its"
                place = f"operator {operator.file}:{operator.line}"
                self.report(place, LibraryError(f"{owed} definition"))


def no_plugins() -> bool:
    """Return whether all operators, libraries, invokers and rules that are registered so far are
    VTensor's own.
    """
    current = _installed
    counts = (
        *(len(current.libraries), len(current.invokers)),
        *(len(current.operators), len(current.rules)),
    )
    return _only_own(id(current), (current.version, current.settled, current.filled, *counts))


@lru_cache(maxsize=1)
def _only_own(which: int, state: tuple[int, ...]) -> bool:  # noqa: ARG001  # the cache's key
    """Compute ``no_plugins`` for the installed registry; the last result is cached.

    The key of the cache is the id of the registry, ``which``, and its ``state``, so that the cache
    keeps no registry alive.
    """
    current = _installed
    modules = {rule.module for rule in current.rules.values()}
    modules |= {info.cls.__module__ for info in current.operators.values()}
    return (
        all(library.origin == OWN for library in current.libraries.values())
        and all(map(_is_own, current.invokers.values()))
        and all(module.startswith(("ops.", "libdesc.")) for module in modules)
        and (not current.filled or current.version == current.settled)
    )


def _is_own(info: InvokerInfo) -> bool:
    """Return whether an invoker is defined in one of VTensor's own modules.

    That holds even if a third-party module was the first to import this module.
    """
    return info.function.__module__.startswith(("ops.", "libdesc."))


#: Lock that is held while a registry is changed; a fork waits for it. A thread that needs the lock
#: ``importing`` too takes that one first, since importing a module registers its content. It never
#: takes ``importing`` while it holds this lock.
_changing = process_lock()

#: The registry in use, with which ``@operator`` and ``@invoker`` register. A process has one, since
#: it imports modules once; a test may install its own.
_installed = Registry(OPERATORS.data, filled=False)


def registry(fill: bool = True) -> Registry:
    """Return the installed registry.

    Args:
        fill: import its libraries and all of its operators first.
    """
    if fill:
        ready().index.load_all()
    return _installed


def ready() -> Registry:
    """Return the installed registry with its libraries; operators are imported when asked for."""
    if not _installed.filled:
        _installed.fill()
    return _installed


@contextmanager
def installed(replacement: Registry) -> Iterator[Registry]:
    """Make ``replacement`` the registry in use inside the block, in all threads, and yield it.

    ``with installed(registry().copy()): ...`` leaves the registry unchanged.

    At the end, modules that registered invokers with it are removed from ``sys.modules``: a later
    import registers them again.
    """
    before = _installed
    before.index.load_all()
    modules = set(sys.modules)
    _install(replacement)
    try:
        yield replacement
    finally:
        _install(before)
        forget_modules(modules, replacement.modules - before.modules)


def _install(new: Registry) -> None:
    global _installed
    _installed, OPERATORS.data, OPERATORS.index = new, new.operators, new.index
    LIBRARIES.data = cast("dict[str, Library]", new.libraries)


_install(_installed)


class Registration:
    """A registered library that can be unregistered: by ``undo()``, or as a context manager."""

    def __init__(self, library: RegisteredLibrary) -> None:
        self.library = library

    def undo(self) -> None:
        """Unregister the library; further calls do nothing."""
        registry().remove(self.library)

    def __enter__(self) -> RegisteredLibrary:
        return self.library

    def __exit__(self, *raised: object) -> None:
        self.undo()


def register(source: str | Path | Description) -> Registration:
    """Register a library from a description file, a folder with one, or a Description.

    Raises:
        DescriptionError: the description is wrong or a handler does not import; nothing is
            registered.
        LibraryError: the name is taken, or an invoker is wrong; nothing is registered.

    ``with register("mylib.toml"): ...`` unregisters it at the end of the block.
    """
    current = registry()
    if not isinstance(source, Description):
        source = Description.read(description_file(Path(source)))
    return Registration(current.add(source, "libdesc.register"))


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
    first: First | None = None,
    before: Sequence[str] = (),
) -> Callable[[InvokerFunction], InvokerFunction]:
    """Return a decorator that registers a function as a library's invoker of an operator.

    Args:
        op: the operator's name.
        library: the library's name, as in its description.
        device: where it runs.
        dtypes: the element types that every operand may have, or those of each operand by role;
            None is any.
        when: called with ``(op, *inputs, *outputs)``. If it returns False or a text (the reason),
            the call is declined and the next library is asked.
        priority: overrides the library's priority for this operator.
        python: True if it computes in Python: a plan then calls it back in every run.
        inplace: roles of the inputs whose memory the first output may be written over, if both
            have the same layout and nothing reads the input later.
        first: called with ``(op, *inputs)``. If it returns True, the call goes to this library and
            not to those in ``before``, if this library takes the call together with all operators
            that may be fused. The order of libraries is unchanged if the session sets an order or a
            pin, or if another library of higher priority would be passed over. A choice that is
            reused for other sizes keeps its library, whatever ``first`` returns for these sizes.
        before: names of the libraries of higher priority that are slower where ``first`` holds.

    Raises:
        LibraryError: another function is registered for the same operator, library and device, or
            the arguments are wrong or do not fit the operator.
        DTypeError: ``dtypes`` names an element type that does not exist.

    Source: the paper, section 4.3, ``REGISTER`` and ``libraryInvoker``.
    """

    def add(function: InvokerFunction) -> InvokerFunction:
        info = make_invoker(
            op, library, device, function, dtypes, when, priority, python, inplace, first, before
        )
        key, current = (op, library, device), registry(fill=False)
        present = current.invokers.get(key)
        if current.filled:  # else the operator's import checks it later
            OPERATORS.find(op, wait=False)
        place = info.file, function.__qualname__
        if present is not None and (present.file, present.function.__qualname__) != place:
            raise LibraryError(
                f"{op} on {library}, {device} already has an invoker: {present.file}:{present.line}"
            )
        if fault := fault_of(info):
            raise LibraryError(f"invoker of {op} on {library} ({info.file}:{info.line}): {fault}")
        known = op not in current.index.pending
        current.change(partial(current.invokers.__setitem__, key, info), known)
        return function

    return add


@contextmanager
def without_invoker(op: str, library: str, device: str = CPU) -> Iterator[None]:
    """Unregister one invoker while the ``with`` block runs.

    Raises:
        LibraryError: there is no such invoker.
    """
    current = registry()
    key = (op, library, device)
    if key not in current.invokers:
        raise LibraryError(f"{op} has no invoker on {library}, {device}")
    info = current.change(partial(current.invokers.pop, key))
    try:
        yield
    finally:
        current.change(partial(current.invokers.__setitem__, key, info))


def invokers_of(library: str) -> list[InvokerInfo]:
    """Return the invokers of one library, sorted by operator."""
    rows = [info for info in registry().invokers.values() if info.library == library]
    return sorted(rows, key=lambda info: info.op)
