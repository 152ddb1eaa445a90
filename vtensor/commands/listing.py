"""``vtensor libs``, ``ops`` and ``dispatcher``: list what is registered, print generated source."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from libdesc.dispatcher import dispatcher_source
from libdesc.registry import registry
from vtensor.commands.check_library import Checked, validate
from vtensor.commands.shared import DebugOption, JsonOption, errors, print_json, print_lines
from vtensor.errors import InputError, LibraryError, VTensorError
from vtensor.language.dims import DimSpec
from vtensor.language.operators import OPERATORS
from vtensor.language.spelling import Refusal
from vtensor.language.tensor import CPU
from vtensor.language.wording import counted
from vtensor.report import Line

if TYPE_CHECKING:
    from libdesc.library import RegisteredLibrary
    from libdesc.schema import Description

DeviceOption = Annotated[str, typer.Option(help="The device that the libraries run on.")]


def libs(
    check: Annotated[
        Path | None, typer.Option(help="Check this description (or its folder) and its modules.")
    ] = None,
    run: Annotated[
        bool,
        typer.Option("--import", help="With --check: also import its modules, and probe."),
    ] = False,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """List the kernel libraries: where each comes from, its version, or why it is absent.

    With --check, read a description and parse its modules, without running them. The exit code is 1
    if there are problems.
    """
    with errors(debug):
        if run and check is None:
            raise InputError("--import belongs to --check FILE")
        data = libraries_dict() if check is None else checked_dict(validate(check, run))
        if as_json:
            print_json(data)
        else:
            print_lines(_library_lines(data) if check is None else _checked_lines(data))
        if data["problems"]:
            raise typer.Exit(1)


def ops(
    name: Annotated[str, typer.Argument(help="List only this operator.", metavar="OP")] = "",
    domain: Annotated[
        str,
        typer.Option(
            help="List ONNX's operators of this domain, such as ai.onnx or com.microsoft."
        ),
    ] = "",
    device: DeviceOption = CPU,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """List the libraries that run each operator, in the order in which they are tried.

    With --domain, list the operators of ONNX that are read, and what each is read as.
    """
    with errors(debug):
        if name:
            dispatcher_source(name, device)  # raises if the name is unknown
        rows = [row for row in operators_list(device) if name in ("", row["operator"])]
        domains = _by_domain(rows)
        if domain and domain not in domains:
            raise InputError(f"no operator of domain {domain!r} is read; there are {[*domains]}")
        if domain:
            domains = {domain: domains[domain]}
            readers = {name for names in domains[domain].values() for name in names}
            rows = [row for row in rows if row["operator"] in readers]
        if as_json:
            print_json({"device": device, "operators": rows, "domains": domains})
        else:
            print_lines(_domain_lines(domains) if domain else _operator_lines(rows))


def dispatcher(
    name: Annotated[str, typer.Argument(help="An operator.", metavar="OP")],
    library: Annotated[
        str, typer.Option(help="Also print the source generated from this library's description.")
    ] = "",
    device: DeviceOption = CPU,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Print the generated source of an operator's checks and dispatcher."""
    with errors(debug):
        text = dispatcher_source(name, device)
        registered = registry().libraries
        if library and library not in registered:
            known = ", ".join(sorted(registered))
            raise LibraryError(f"library {library!r} is not registered; there are {known}")
        look_ups = registered[library].text if library else ""
        if as_json:
            data = {"operator": name, "device": device, "dispatcher": text}
            print_json(data | ({"library": library, "look_ups": look_ups} if library else {}))
        else:
            print("\n".join(filter(None, [text, look_ups])), end="")


def libraries_dict() -> dict[str, Any]:
    """Return, for ``--json``, all libraries, the highest priority first.

    The data also has the faults found in libraries, and the pairs of libraries with equal priority.
    """
    registered = registry()
    problems, rows = list(registered.problems), []
    libraries = registered.libraries.values()
    for library in sorted(libraries, key=lambda each: (-each.priority, each.name)):
        version, fault = _version(library)
        problems += [(library.origin, fault)] * bool(fault)
        row = _library_dict(library.description, library, version)
        row["invokers"] = sum(info.library == library.name for info in registered.invokers.values())
        unused = registered.why_unused(library, owes_invokers=not library.transforms)
        rows.append(row | {"unused": unused})
    faster = {
        dtype: {"instructions": instructions, "times": times, "library": library.name}
        for library in libraries
        for dtype, (instructions, times, _) in library.faster().items()
    }
    return {
        "libraries": rows,
        "faster_than_f32": faster,
        "problems": [{"origin": origin, "error": text} for origin, text in problems],
        "ties": registered.ties(),
    }


def checked_dict(checked: Checked) -> dict[str, Any]:
    """Return the result of checking a library's description, for ``--json``.

    Facts that only running the library's modules shows are None if they did not run.
    """
    version, fault = _version(checked.library)
    row = _library_dict(checked.description, checked.library, version)
    return row | {
        "invokers": checked.invokers,
        "imported": checked.library is not None,
        "problems": [*checked.problems, *[fault] * bool(fault)],
        "unused": checked.unused,
        "not_run": checked.not_run,
    }


def _version(library: RegisteredLibrary | None) -> tuple[str, str]:
    """Return (version, error): the version that a library reports, or its error; one or both are
    empty.
    """
    try:
        return (library.version() if library else ""), ""
    except VTensorError as error:
        return "", str(error)


def _library_dict(
    description: Description, library: RegisteredLibrary | None, version: str
) -> dict[str, Any]:
    absent = library.absent if library else ""
    return {
        "name": description.name,
        "priority": description.priority,
        "devices": list(description.devices),
        "available": not absent if library else None,
        "absent": absent or None,
        "version": version or None,
        "origin": library.origin if library else "not registered",
        "description": str(description.file),
        "handlers": dict(description.handlers),
    }


def operators_list(device: str) -> list[dict[str, Any]]:
    """Return all operators with their invokers on a device, the highest priority first."""
    registered = registry()
    return [
        {
            "operator": name,
            "dims": {role: _dims_text(spec) for role, spec in OPERATORS[name].dims.items()},
            "onnx": [
                {"operator": spelling.op_type, "since": spelling.since, "until": spelling.until}
                for spelling in OPERATORS[name].read_as
                if not isinstance(spelling.read, Refusal)
            ],
            "invokers": [
                {
                    "library": info.library,
                    "priority": priority,
                    "dtypes": {role: sorted(types) for role, types in info.dtypes.items()},
                    "conditional": info.when is not None,
                    "before": list(info.before),
                    "python": info.python,
                    "at": f"{info.file}:{info.line}",
                    "absent": registered.libraries[info.library].absent or None,
                }
                for priority, info in registered.candidates(name, device)
            ],
        }
        for name in sorted(OPERATORS)
    ]


def _by_domain(rows: list[dict[str, Any]]) -> dict[str, dict[str, list[str]]]:
    """Return, by domain and name of an ONNX operator, the operators that read it, of those in
    ``rows``.
    """
    domains: dict[str, dict[str, list[str]]] = {}
    for row in rows:
        for spelling in row["onnx"]:
            *domain, op_type = spelling["operator"].split("::")
            readers = domains.setdefault((domain or ["ai.onnx"])[0], {}).setdefault(op_type, [])
            if row["operator"] not in readers:
                readers.append(row["operator"])
    return {name: dict(sorted(domains[name].items())) for name in sorted(domains)}


def _domain_lines(domains: dict[str, dict[str, list[str]]]) -> Iterator[Line]:
    for domain, operators in domains.items():
        yield Line("head", f"{domain}  ({counted(len(operators), 'operator')})")
        for op_type, readers in operators.items():
            yield Line("", f"  {op_type}: {', '.join(readers)}")


def _dims_text(spec: DimSpec) -> str:
    names = [*("*" for _ in range(spec.open)), *(f"{name}?" for name in spec.optional)]
    return " ".join([*names, *spec.required])


def dtypes_text(dtypes: dict[str, list[str]]) -> str:
    """Return element types by role as one line.

    >>> dtypes_text({"": ["bf16", "f32"]}), dtypes_text({"x": ["f32"]}), dtypes_text({})
    ('bf16 f32', 'x: f32', 'any')
    """
    if not dtypes:
        return "any"
    return "; ".join(
        f"{role}: {' '.join(types)}" if role else " ".join(types) for role, types in dtypes.items()
    )


def _library_lines(data: dict[str, Any]) -> Iterator[Line]:
    types = [
        f"{dtype} by {row['instructions']} (up to {row['times']:g} times, {row['library']})"
        for dtype, row in data["faster_than_f32"].items()
    ]
    text = ", ".join(types) or "none; it has neither VNNI nor bf16 nor AMX, or a cap hides them"
    yield Line("note", f"types multiplied faster than f32 on this processor: {text}")
    for row in data["libraries"]:
        state = f"absent: {row['absent']}" if row["absent"] else row["version"] or "available"
        yield Line("head" if row["available"] else "ref", f"{row['name']}  {state}")
        devices = ", ".join(row["devices"])
        invokers = counted(row["invokers"], "invoker")
        text = f"  priority {row['priority']}, on {devices}, {invokers}"
        yield Line("", text)
        yield Line("note", f"  {row['origin']}: {row['description']}")
        for reason in row["unused"]:
            yield Line("ref", f"  never used: {reason}")
    for problem in data["problems"]:
        yield Line("ref", f"problem with {problem['origin']}: {problem['error']}")
    for tie in data["ties"]:
        yield Line("ref", f"tie: {tie}")


def _checked_lines(row: dict[str, Any]) -> Iterator[Line]:
    count = len(row["problems"])
    state = f"has {count} problem{'s' * (count > 1)}" if count else "is well described"
    yield Line("head", f"{row['description']}: library {row['name']} {state}")
    for problem in row["problems"]:
        yield Line("ref", f"  problem: {problem}")
    for reason in row["unused"]:
        yield Line("ref", f"  never used: {reason}")
    if row["imported"]:
        state = f"absent: {row['absent']}" if row["absent"] else row["version"] or "available"
        yield Line("ref" if row["absent"] else "", f"  here: {state}")
    handlers = ", ".join(row["handlers"]) or "none"
    yield Line("", f"  priority {row['priority']}, handlers: {handlers}")
    did = "registered" if row["imported"] else "imported"
    invokers = counted(row["invokers"], "invoker")
    yield Line("", f"  with {invokers}; nothing was {did}")
    for text in row["not_run"]:
        yield Line("note", f"  not run: {text}")
    if row["not_run"]:
        yield Line("note", "  --import runs it" + " once there are no problems" * (count > 0))


def _operator_lines(rows: list[dict[str, Any]]) -> Iterator[Line]:
    for row in rows:
        dims = ", ".join(f"{role}: {text or 'none'}" for role, text in row["dims"].items())
        yield Line("head", f"{row['operator']}  ({dims})")
        if not row["invokers"]:
            yield Line("ref", "  no library has an invoker")
        for invoker in row["invokers"]:
            yield Line("", _invoker_text(invoker))


def _invoker_text(row: dict[str, Any]) -> str:
    marks = [" (in Python)"] * row["python"] + [" (on a condition)"] * row["conditional"]
    marks += [f" (for some calls before {', '.join(row['before'])})"] * bool(row["before"])
    marks += [f" (absent: {row['absent']})"] * (row["absent"] is not None)
    text = f"  {row['priority']:>4} {row['library']:<10} {dtypes_text(row['dtypes'])}"
    return text + "".join(marks)
