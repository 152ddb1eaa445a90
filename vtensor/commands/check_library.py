"""Is a description right? Read, with what it names; or, if asked for, tried.

Reading imports nothing of the description's: modules are found, parsed and searched for what the
description names. What only running them would tell is said to be unknown.
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
    """What is known of a description.

    Attributes:
        invokers: how many come with it.
        problems: what must be changed before it can be registered and used.
        unused: why it would never be used here, or why its invokers would not be.
        not_run: what only running it would tell.
        library: the library, where it was tried; nothing of it is registered.
    """

    description: Description
    invokers: int = 0
    problems: list[str] = field(default_factory=list)
    unused: list[str] = field(default_factory=list)
    not_run: list[str] = field(default_factory=list)
    library: RegisteredLibrary | None = None


def validate(source: str | Path, run: bool = False) -> Checked:
    """Check a description and what it names; nothing is registered.

    Args:
        source: the file, or its folder.
        run: also do all that ``libdesc.register`` does: import handlers and invokers, and probe.

    Raises:
        DescriptionError: the file cannot be read, or says something that is not allowed.
    """
    description = Description.read(description_file(Path(source)))
    checked = Checked(description)
    check_layout_names(description)
    taken = _known_names().get(description.name)
    if taken is not None and taken.resolve() != description.file.resolve():
        checked.problems.append(f"name {description.name!r} is taken by {taken}")
    import_own_operators()
    for key in description.handlers:
        _read_handler(checked, key)
    _read_invokers(checked)
    if run and not checked.problems:
        _try(checked)
    return checked


def _known_names() -> dict[str, Path]:
    """The descriptions of libraries by name, as far as can be told without running others' code.

    Those that are registered; else VTensor's own, and those in ``VTENSOR_LIBRARIES``.
    """
    libraries = registry(fill=False).libraries
    found = {name: library.description.file for name, library in libraries.items()}
    for path in [*own_descriptions(), *listed_descriptions()]:
        with suppress(DescriptionError):  # a broken one takes no name
            read = Description.read(description_file(path))
            found.setdefault(read.name, read.file)
    return found


#: What reading a module may raise.
UNREADABLE = (VTensorError, SyntaxError, ValueError, OSError, RuntimeError)


def _read_handler(checked: Checked, key: str) -> None:
    description = checked.description
    text = description.handlers[key]
    module, _, function = text.partition(":")
    label = f"library.{key} = {text!r}"
    try:
        file = module_file(module, description.file)
        found = None if file is None else find_function(file, function, module)
    except UNREADABLE as error:
        checked.problems.append(f"{label}: {_said(error, description)}")
        return
    if file is None:
        checked.not_run.append(f"{label}: the module is no Python text")
    elif found is None:
        checked.problems.append(f"{label}: {file} has no function {function!r}")
    else:
        _judge(checked, key, label, found)
    if key in ("probe", "version"):
        checked.not_run.append(f"{label}: what it answers here")


def _judge(checked: Checked, key: str, label: str, found: Defined) -> None:
    given = ARGUMENTS[key]
    if found.fault:
        checked.problems.append(f"{label}: {found.place} {found.fault}")
    elif not found.takes(len(given)):
        called = f"is called with ({', '.join(given)})"
        checked.problems.append(f"{label} ({found.place}) takes {found.signature}, and {called}")
    elif found.doubt:
        checked.not_run.append(f"{label}: {found.doubt}")


def _said(error: Exception, description: Description) -> str:
    """What is wrong with a module; the description's name is not repeated."""
    if isinstance(error, VTensorError):
        return str(error).removeprefix(f"{description.file}: ")
    return f"{type(error).__name__}: {error}"


def _read_invokers(checked: Checked) -> None:
    description, lines = checked.description, list[InvokerLine]()
    for module in description.invokers:
        label = f"library.invokers: {module!r}"
        try:
            file = module_file(module, description.file)
            found = [] if file is None else invoker_lines(file)
        except UNREADABLE as error:
            checked.problems.append(f"{label}: {_said(error, description)}")
            continue
        if not found:
            checked.not_run.append(f"{label}: its own text has no invoker")
        lines += found
    for line in lines:
        _judge_invoker(checked, line)
    checked.invokers = len(lines)
    named = {line.library for line in lines if line.library}
    certain = len(lines) > 0 and all(line.library for line in lines)
    pairs = {(line.library, line.device) for line in lines if line.library and line.device}
    pairs |= {(info.library, info.device) for info in registry(fill=False).invokers.values()}
    _weigh(checked, pairs, named if certain else set(), certain or not description.invokers)


def _weigh(
    checked: Checked, pairs: set[tuple[str, str]], own: set[str], owes_invokers: bool
) -> None:
    """Note why nothing would use the library; own invokers that name only others are a mistake."""
    description = checked.description
    owes_invokers &= "transformer" not in description.handlers
    reasons = why_unused(description.name, description.devices, pairs, own, owes_invokers)
    if own and description.name not in own:
        checked.problems += reasons[:1]
        reasons = reasons[1:]
    checked.unused += reasons


def _judge_invoker(checked: Checked, line: InvokerLine) -> None:
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
    """Do what ``register`` does; what is known then takes the place of what was read."""
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
    _weigh(checked, pairs, {info.library for info in invokers}, True)


def _trial(description: Description) -> tuple[RegisteredLibrary, list[InvokerInfo]]:
    """The library, probed, and the invokers that come with it; nothing of them stays.

    Raises:
        DescriptionError: the description is wrong or a handler does not import.
        LibraryError: an invoker is registered already, or its module does not import.
    """
    with installed(registry().copy()) as tried:
        return build_library(description, "not registered"), tried.import_invokers(description)
