"""The check of a library's description, and of the modules that it names.

The check can run these modules or not. If it does not, none of them is imported: their source is
parsed and searched for the names in the description. What only running them could show is reported
as not checked.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import field
from importlib import metadata
from pathlib import Path

from libdesc.invokers import InvokerInfo
from libdesc.library import RegisteredLibrary, build_library, check_layout_names
from libdesc.load import (
    description_file,
    import_own_operators,
    listed_descriptions,
    own_descriptions,
)
from libdesc.registry import installed, registry
from libdesc.schema import ARGUMENTS, Description
from libdesc.unused import why_unused
from vtensor.commands.module_text import (
    Defined,
    InvokerLine,
    find_function,
    invoker_lines,
    module_file,
)
from vtensor.errors import DescriptionError, VTensorError, did_you_mean
from vtensor.language.dtype import ITEMSIZE
from vtensor.language.operators import OPERATORS
from vtensor.language.records import dataclass


@dataclass
class Checked:
    """The result of checking a description.

    Attributes:
        description: the description.
        invokers: the number of invokers in the modules that the description names.
        problems: faults that must be fixed before the library can be registered and used.
        unused: reasons why the library or its invokers would never be used.
        not_run: facts that only running the library's modules could show, a text for each.
        library: the library as it was built for the check; None if the modules were not run.
    """

    description: Description
    invokers: int = 0
    problems: list[str] = field(default_factory=list)
    unused: list[str] = field(default_factory=list)
    not_run: list[str] = field(default_factory=list)
    library: RegisteredLibrary | None = None


def validate(source: str | Path, run: bool = False) -> Checked:
    """Check a description, its handlers and its invokers, without registering anything.

    Args:
        source: the description's file, or its folder.
        run: whether to import handlers and invokers and call the library's probe as well, as
            ``libdesc.register`` does. This is not done if parsing has shown problems.

    Raises:
        DescriptionError: the file cannot be read, or its content is not allowed.
    """
    description = Description.read(description_file(Path(source)))
    checked = Checked(description)
    check_layout_names(description)
    other_file = _known_names().get(description.name)
    if other_file is not None and other_file.resolve() != description.file.resolve():
        checked.problems.append(f"name {description.name!r} is taken by {other_file}")
    import_own_operators()
    for key in description.handlers:
        _read_handler(checked, key)
    _read_invokers(checked)
    if run and not checked.problems:
        _try(checked)
    return checked


def _known_names() -> dict[str, Path]:
    """Return the description file of each known library, by the library's name.

    Known libraries are the registered ones, VTensor's own, and those in ``VTENSOR_LIBRARIES``. No
    code of other distributions runs.
    """
    libraries = registry(fill=False).libraries
    files = {name: library.description.file for name, library in libraries.items()}
    for path in [*own_descriptions(), *listed_descriptions()]:
        with suppress(DescriptionError):  # a broken description has no name
            description = Description.read(description_file(path))
            files.setdefault(description.name, description.file)
    return files


#: The errors that finding, reading or parsing a module may raise.
UNREADABLE = (VTensorError, SyntaxError, ValueError, OSError, RuntimeError)


def _read_handler(checked: Checked, key: str) -> None:
    description = checked.description
    text = description.handlers[key]
    module, _, function = text.partition(":")
    label = f"library.{key} = {text!r}"
    try:
        file = module_file(module, description.file)
        handler = None if file is None else find_function(file, function, module)
    except UNREADABLE as error:
        checked.problems.append(f"{label}: {_message(error, description)}")
        return
    if file is None:
        checked.not_run.append(f"{label}: the module is no Python text")
    elif handler is None:
        checked.problems.append(f"{label}: {file} has no function {function!r}")
    else:
        _check_handler(checked, key, label, handler)
    if key in ("probe", "version"):
        checked.not_run.append(f"{label}: what it answers here")


def _check_handler(checked: Checked, key: str, label: str, handler: Defined) -> None:
    arguments = ARGUMENTS[key]
    if handler.fault:
        checked.problems.append(f"{label}: {handler.place} {handler.fault}")
    elif not handler.takes(len(arguments)):
        called = f"is called with ({', '.join(arguments)})"
        takes = f"takes {handler.signature}"
        checked.problems.append(f"{label} ({handler.place}) {takes}, and {called}")
    elif handler.doubt:
        checked.not_run.append(f"{label}: {handler.doubt}")


def _message(error: Exception, description: Description) -> str:
    """Return the message of an error of a module, without the description's file at its start."""
    if isinstance(error, VTensorError):
        return str(error).removeprefix(f"{description.file}: ")
    return f"{type(error).__name__}: {error}"


def _read_invokers(checked: Checked) -> None:
    description, lines = checked.description, list[InvokerLine]()
    for module in description.invokers:
        label = f"library.invokers: {module!r}"
        try:
            file = module_file(module, description.file)
            module_lines = [] if file is None else invoker_lines(file)
        except UNREADABLE as error:
            checked.problems.append(f"{label}: {_message(error, description)}")
            continue
        if not module_lines:
            checked.not_run.append(f"{label}: its own text has no invoker")
        lines += module_lines
    for line in lines:
        _check_invoker(checked, line)
    checked.invokers = len(lines)
    named = {line.library for line in lines if line.library}
    certain = len(lines) > 0 and all(line.library for line in lines)
    pairs = {(line.library, line.device) for line in lines if line.library and line.device}
    pairs |= {(info.library, info.device) for info in registry(fill=False).invokers.values()}
    _note_unused(checked, pairs, named if certain else set(), certain or not description.invokers)


def _note_unused(
    checked: Checked, pairs: set[tuple[str, str]], named: set[str], owes_invokers: bool
) -> None:
    """Add the reasons why the library would never be used to the result of its check.

    Args:
        checked: the result; it is changed.
        pairs: (library, device) of every known invoker, also of those of other libraries.
        named: the libraries that the description's invokers name. If the description's own library
            is not among them, that is a problem.
        owes_invokers: whether to report a library that has neither invokers nor a transformer.
    """
    description = checked.description
    owes_invokers &= "transformer" not in description.handlers
    reasons = why_unused(description.name, description.devices, pairs, named, owes_invokers)
    if named and description.name not in named:
        checked.problems += reasons[:1]
        reasons = reasons[1:]
    checked.unused += reasons


def _check_invoker(checked: Checked, line: InvokerLine) -> None:
    if None in (line.op, line.library, line.device):
        checked.not_run.append(f"{line.place}: what this invoker is registered for")
    if line.op is not None and line.op not in OPERATORS:
        hint = did_you_mean(line.op, OPERATORS)
        text = f"{line.place}: there is no operator {line.op!r}{hint}"
        foreign = bool(metadata.entry_points(group="vtensor.operators"))
        (checked.not_run if foreign else checked.problems).append(text)
    operator = OPERATORS.get(line.op or "")
    if operator is not None and line.function is not None and not operator.many:
        wanted = ["ctx", "op", *operator.inputs, *operator.outputs]
        if not line.function.takes(len(wanted)):
            called = f"is called with ({', '.join(wanted)})"
            takes = line.function.signature
            checked.problems.append(f"{line.function.place} takes {takes}, and {called}")
    unknown = sorted(set(line.dtypes) - ITEMSIZE.keys())
    if unknown:
        names = ", ".join(map(repr, unknown))
        known_types = ", ".join(ITEMSIZE)
        checked.problems.append(
            f"{line.place}: dtypes {names} are unknown; there are {known_types}"
        )


def _try(checked: Checked) -> None:
    """Build the library as ``register`` does, and store what that shows in ``checked``.

    It replaces what parsing the modules has shown.
    """
    description = checked.description
    checked.not_run.clear()
    try:
        library, invokers = _trial(description)
    except VTensorError as error:
        checked.problems.append(str(error).removeprefix(f"{description.file}: "))
        return
    checked.library, checked.invokers = library, len(invokers)
    checked.unused.clear()
    known = registry(fill=False).invokers.values()
    pairs = {(info.library, info.device) for info in (*invokers, *known)}
    _note_unused(checked, pairs, {info.library for info in invokers}, True)


def _trial(description: Description) -> tuple[RegisteredLibrary, list[InvokerInfo]]:
    """Return (library, invokers) after a trial registration, in a copy of the registry.

    The library's probe has run.

    Raises:
        DescriptionError: the description is wrong, or a handler cannot be imported.
        LibraryError: an invoker is registered already, or its module cannot be imported.
    """
    with installed(registry().copy()) as tried:
        return build_library(description, "not registered"), tried.import_invokers(description)
