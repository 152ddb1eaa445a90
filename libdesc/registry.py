"""The registry: operators, rules, libraries, invokers; what the dispatchers are generated from.

When it is first asked, descriptions and others' operators are imported: VTensor's own, then
others'. A file of VTensor's own operators, whose ``@operator`` and ``@invoker`` lines register
themselves, is imported when one of them is asked for; ``registry()`` asks for all, ``ready()`` not.
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
from vtensor.language.forks import process_lock
from vtensor.language.imported import logger
from vtensor.language.index import Index, importing
from vtensor.language.interrupts import pass_signals
from vtensor.language.operators import OPERATORS
from vtensor.language.records import dataclass
from vtensor.language.rules import Rule
from vtensor.language.table import OperatorInfo
from vtensor.language.tensor import CPU

T = TypeVar("T")

_log = logger("vtensor.libraries")

#: A compiled dispatcher.
Dispatcher = Callable[..., None]

#: No two registries of a process ever have the same version: what is kept by version, such as
#: dispatchers and sessions, is never taken for another registry's.
_versions = itertools.count()

#: How the descriptions of VTensor's own libraries are found.
OWN = "VTensor's own"


@dataclass(eq=False)
class Registry:
    """Operators by name, libraries by name, and invokers by (operator, library, device).

    Attributes:
        rules: what the simplification that rewrites graphs may do, by name.
        problems: what is broken and skipped, and where it came from.
        dispatchers: compiled, by operator and device, each with the version that it was made for.
        version: another one after each change of libraries and invokers.
        settled: the version that it had then.
        filled: the libraries and the operators of others have been imported; VTensor's own
            operators are in the index until they are.
        filler: the thread that imports them now; in a forked child one that may not be there.
        index: where VTensor's own operators are.
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
        """Another registry with the same content, which is all there then."""
        self.index.load_all()
        tables = dict(self.operators), dict(self.libraries), dict(self.invokers)
        return Registry(*tables, list(self.problems), dict(self.rules))

    def change(self, work: Callable[[], T], known: bool = True) -> T:
        """Run ``work``, which changes libraries or invokers, and return its result; the version is
        another one afterwards.

        Args:
            work: makes the change.
            known: False where only an operator changes that nobody has been given yet: nothing was
                made with what it was before.
        """
        with _changing:
            result = work()
            if known:
                self.version = next(_versions)
            return result

    def candidates(self, op: str, device: str) -> list[tuple[int, InvokerInfo]]:
        """An operator's invokers on a device with their priorities, best first; ties by name."""
        rows = []
        self.index.load(op)
        for info in list(self.invokers.values()):
            library = self.libraries.get(info.library)
            if info.op == op and info.device == device and library and device in library.devices:
                priority = library.priority if info.priority is None else info.priority
                rows.append((priority, info))
        return sorted(rows, key=lambda row: (-row[0], row[1].library))

    def rules_for(self, operators: Collection[str]) -> dict[str, Rule]:
        """The rules, in order; at least those that can apply where a graph has these operators."""
        self.index.load_rules(operators)
        last = len(self.index.rules)
        place = {name: at for at, name in enumerate(self.index.rules)}
        return dict(sorted(self.rules.items(), key=lambda row: place.get(row[0], last)))

    def why_unused(
        self, library: RegisteredLibrary, own: Collection[str] = (), owes_invokers: bool = True
    ) -> list[str]:
        """Why a library would never be used here; see ``libdesc.unused``."""
        pairs = {(info.library, info.device) for info in self.invokers.values()}
        return why_unused(library.name, library.devices, pairs, own, owes_invokers)

    def ties(self) -> list[str]:
        """Pairs of libraries of the same priority, for a report: their names decide the order."""
        return [
            f"{a} and {b} both have priority {one.priority}; the name decides"
            for (a, one), (b, other) in itertools.combinations(sorted(self.libraries.items()), 2)
            if one.priority == other.priority
        ]

    def report(self, origin: str, error: BaseException) -> None:
        """Note that something is broken; what cannot be used is skipped."""
        text = str(error) if isinstance(error, VTensorError) else f"{type(error).__name__}: {error}"
        self.problems.append((origin, text))
        _log.warning("problem with %s: %s", origin, text)

    def add(self, description: Description, origin: str) -> RegisteredLibrary:
        """Register a library with its invokers; after an error nothing of it is registered."""
        library = build_library(description, origin)

        def register() -> None:
            have = self.libraries.setdefault(library.name, library)
            if have is not library:
                raise LibraryError(
                    f"{description.file}: library {library.name!r} is already registered "
                    f"by {have.description.file}"
                )

        self.change(register)
        try:
            own = {info.library for info in self.import_invokers(description)}
        except BaseException:
            self.remove(library)
            raise
        for reason in self.why_unused(library, own, owes_invokers=bool(description.invokers)):
            _log.warning("library %s (%s): %s", library.name, description.file, reason)
        return library

    def remove(self, library: RegisteredLibrary) -> None:
        """Undo ``add``, once or again; the library's invokers stay, without effect."""

        def remove() -> None:
            if self.libraries.get(library.name) is library:
                del self.libraries[library.name]

        self.change(remove)

    def import_invokers(self, description: Description) -> list[InvokerInfo]:
        """The invokers that come with a library, newly registered; none where one is wrong.

        Raises:
            LibraryError: one is registered already, or a module does not import.
        """
        before, modules = dict(self.invokers), set(sys.modules)
        try:
            for module in description.invokers:
                try:
                    import_module(module, description.file)
                except VTensorError:
                    raise
                except (Exception, SystemExit) as error:  # what a module raises as it is imported
                    pass_signals(error)
                    text = f"{module!r} does not import: {type(error).__name__}: {error}"
                    raise LibraryError(f"{description.file}: library.invokers: {text}") from error
        except BaseException:
            new = {key: info for key, info in self.invokers.items() if key not in before}
            theirs = {key: info for key, info in new.items() if not _is_own(info)}

            def forget() -> None:
                forget_modules(modules, {info.function.__module__ for info in theirs.values()})
                self.invokers = {k: one for k, one in self.invokers.items() if k not in theirs}

            self.change(forget)
            raise
        return [info for key, info in self.invokers.items() if key not in before]

    @property
    def modules(self) -> set[str]:
        """The names of the modules that its invokers stand in."""
        return {info.function.__module__ for info in self.invokers.values()}

    def fill(self) -> None:
        """Import libraries and others' operators; another thread waits, this one sees half."""
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
            except (Exception, SystemExit) as error:  # whatever a stranger's module raises
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
        """Report invokers and rules of operators that there are not."""
        known = {*self.operators, *self.index.places}
        named = {info.op for info in self.invokers.values()}
        if not named <= known:
            self.index.load_all()  # a file may have it, and the index not yet
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
        """Report what is wrong about operators that were imported, and their invokers."""
        rows = [info for info in self.invokers.values() if info.op in names]
        for info in rows:
            if fault := fault_of(info):  # it was registered before its operator
                self.report(f"invoker {info.file}:{info.line}", LibraryError(fault))
        have = {(info.op, info.library) for info in rows}
        for name in names:
            operator = self.operators.get(name)
            if operator is not None and (name, operator.definition) not in have:
                owed = f"{name} has no invoker on {operator.definition}, which must be its"
                place = f"operator {operator.file}:{operator.line}"
                self.report(place, LibraryError(f"{owed} definition"))


def no_plugins() -> bool:
    """Whether nothing is registered but what VTensor brings, as far as anybody has imported it."""
    found = _installed
    counts = len(found.libraries), len(found.invokers), len(found.operators), len(found.rules)
    return _only_own(id(found), (found.version, found.settled, found.filled, *counts))


@lru_cache(maxsize=1)
def _only_own(which: int, state: tuple[int, ...]) -> bool:  # noqa: ARG001  # asked again then
    """The same, as long as nothing is registered; the cache keeps no registry alive."""
    found = _installed
    modules = {rule.module for rule in found.rules.values()}
    modules |= {info.cls.__module__ for info in found.operators.values()}
    return (
        all(one.origin == OWN for one in found.libraries.values())
        and all(map(_is_own, found.invokers.values()))
        and all(one.startswith(("ops.", "libdesc.")) for one in modules)
        and (not found.filled or found.version == found.settled)
    )


def _is_own(info: InvokerInfo) -> bool:
    """It came with an operator of VTensor's, which somebody else's import has asked for."""
    return info.function.__module__.startswith(("ops.", "libdesc."))


#: Held while a registry is changed. Importing what registers itself changes it: ``importing`` is
#: never taken while this is held. It is the process's: a fork waits for it.
_changing = process_lock()

#: The registry that is installed. Modules are imported once a process, and ``@operator`` and
#: ``@invoker`` register with it; so the process has one, in whose place a test installs its own.
_installed = Registry(OPERATORS.data, filled=False)


def registry(fill: bool = True) -> Registry:
    """The installed registry with all that is in it; without ``fill``, as far as it is."""
    if fill:
        ready().index.load_all()
    return _installed


def ready() -> Registry:
    """The installed registry with its libraries; an operator is imported when it is asked for."""
    if not _installed.filled:
        _installed.fill()
    return _installed


@contextmanager
def installed(one: Registry) -> Iterator[Registry]:
    """Work with this registry inside the block, in all threads.

    ``with installed(registry().copy()): ...`` leaves the registry as it was.

    Modules that registered their invokers with it are forgotten at the end, so that whoever imports
    them later registers them again.
    """
    before = _installed
    before.index.load_all()
    modules = set(sys.modules)
    _install(one)
    try:
        yield one
    finally:
        _install(before)
        forget_modules(modules, one.modules - before.modules)


def _install(one: Registry) -> None:
    global _installed
    _installed, OPERATORS.data, OPERATORS.index = one, one.operators, one.index
    LIBRARIES.data = cast("dict[str, Library]", one.libraries)


_install(_installed)


class Registration:
    """A registration that can be undone: call ``undo()`` or use it as a context manager."""

    def __init__(self, library: RegisteredLibrary) -> None:
        self.library = library

    def undo(self) -> None:
        """Unregister the library; a second call does nothing."""
        registry().remove(self.library)

    def __enter__(self) -> RegisteredLibrary:
        return self.library

    def __exit__(self, *raised: object) -> None:
        self.undo()


def register(source: str | Path | Description) -> Registration:
    """Register a library from a description file, the folder with that file, or a Description.

    Raises:
        DescriptionError: the description is wrong or a handler does not import; nothing is
        registered.
        LibraryError: the name is taken.

    ``with register("mylib.toml"): ...`` unregisters it at the end of the block.
    """
    found = registry()
    if not isinstance(source, Description):
        source = Description.read(description_file(Path(source)))
    return Registration(found.add(source, "libdesc.register"))


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
    """Register a function as a library's invoker of an operator.

    Args:
        op: the operator's name.
        library: the library's name, as in its description.
        device: where it runs.
        dtypes: the element types that every operand may have, or those of each operand by role;
            None is any.
        when: called with ``(op, *inputs, *outputs)``. Where it returns False or a text (the
            reason), the call is declined and the next library is asked.
        priority: overrides the library's priority for this operator.
        python: True if it computes in Python: a plan then calls it back in every run.
        inplace: roles of the inputs whose memory the first output may be written over, if both
            have the same layout and nothing reads the input later.
        first: called with ``(op, *inputs)``. Where it returns True, this library is asked before
            those that ``before`` names, whether it takes the call with all that may be fused behind
            it; where it does not, the order is as ever. So it is, too, where the session names an
            order or a pin, and where another library of higher priority would be passed over. What
            is chosen for some sizes is taken over to others, whatever it returns there.
        before: the libraries of higher priority than which it is faster then, by name.

    Raises:
        LibraryError: another function is registered for the same operator, library and device, or
            these arguments do not fit the operator.
        DTypeError: ``dtypes`` names an element type that does not exist.

    Source: the paper, section 4.3, ``REGISTER`` and ``libraryInvoker``.
    """

    def add(function: InvokerFunction) -> InvokerFunction:
        info = make_invoker(
            op, library, device, function, dtypes, when, priority, python, inplace, first, before
        )
        key, found = (op, library, device), registry(fill=False)
        have = found.invokers.get(key)
        name = function.__qualname__
        if found.filled:  # before, its operator is looked at when that is imported
            OPERATORS.find(op, wait=False)
        if have is not None and (have.file, have.function.__qualname__) != (info.file, name):
            raise LibraryError(
                f"{op} on {library}, {device} already has an invoker: {have.file}:{have.line}"
            )
        if fault := fault_of(info):
            raise LibraryError(f"invoker of {op} on {library} ({info.file}:{info.line}): {fault}")
        known = op not in found.index.pending
        found.change(partial(found.invokers.__setitem__, key, info), known)
        return function

    return add


@contextmanager
def without_invoker(op: str, library: str, device: str = CPU) -> Iterator[None]:
    """Unregister one invoker while the ``with`` block runs.

    Raises:
        LibraryError: there is no such invoker.
    """
    found = registry()
    key = (op, library, device)
    if key not in found.invokers:
        raise LibraryError(f"{op} has no invoker on {library}, {device}")
    info = found.change(partial(found.invokers.pop, key))
    try:
        yield
    finally:
        found.change(partial(found.invokers.__setitem__, key, info))


def invokers_of(library: str) -> list[InvokerInfo]:
    """The invokers of one library, by operator."""
    rows = [info for info in registry().invokers.values() if info.library == library]
    return sorted(rows, key=lambda info: info.op)
