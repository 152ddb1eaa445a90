"""``vtensor libs``, ``ops`` and ``dispatcher``: what is registered, and what is made of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from libdesc.dispatcher import dispatcher_source
from libdesc.registry import registry, validate
from vtensor.commands.shared import DebugOption, JsonOption, errors, print_json, print_lines
from vtensor.dims import DimSpec
from vtensor.errors import LibraryError
from vtensor.operators import OPERATORS
from vtensor.report import Line

if TYPE_CHECKING:
    from libdesc.library import RegisteredLibrary

DeviceOption = Annotated[str, typer.Option(help="The device that calls are for.")]


def libs(
    check: Annotated[
        Path | None, typer.Option(help="Validate this description (or its folder), and no more.")
    ] = None,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Show the kernel libraries: where each comes from, its version, or why it is absent."""
    with errors(debug):
        if check is not None:
            library, invokers = validate(check)
            row = _library_dict(library, len(invokers))
            if as_json:
                print_json(row)
            else:
                print_lines(_checked_lines(row))
            return
        data = libraries_dict()
        if as_json:
            print_json(data)
        else:
            print_lines(_library_lines(data))


def ops(
    name: Annotated[str, typer.Argument(help="Only this operator.", metavar="OP")] = "",
    device: DeviceOption = "cpu",
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Show which libraries run each operator, in the order in which they are tried."""
    with errors(debug):
        if name:
            dispatcher_source(name, device)  # an unknown name is its error
        rows = operators_list(device)
        rows = [row for row in rows if name in ("", row["operator"])]
        if as_json:
            print_json({"device": device, "operators": rows})
        else:
            print_lines(_operator_lines(rows))


def dispatcher(
    name: Annotated[str, typer.Argument(help="An operator.", metavar="OP")],
    library: Annotated[
        str, typer.Option(help="Also what is generated from this library's description.")
    ] = "",
    device: DeviceOption = "cpu",
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Print the generated source that runs: an operator's checks and dispatcher."""
    with errors(debug):
        text = dispatcher_source(name, device)
        found = registry().libraries
        if library and library not in found:
            known = ", ".join(sorted(found))
            raise LibraryError(f"library {library!r} is not registered; there are {known}")
        look_ups = found[library].text if library else ""
        if as_json:
            data = {"operator": name, "device": device, "dispatcher": text}
            print_json(data | ({"library": library, "look_ups": look_ups} if library else {}))
        else:
            print("\n".join(filter(None, [text, look_ups])), end="")


def libraries_dict() -> dict[str, Any]:
    """All libraries, best first, with what is wrong: problems and ties."""
    found = registry()
    return {
        "libraries": [
            _library_dict(one, sum(info.library == one.name for info in found.invokers.values()))
            for one in sorted(found.libraries.values(), key=lambda one: (-one.priority, one.name))
        ],
        "problems": [{"origin": origin, "error": text} for origin, text in found.problems],
        "ties": found.ties(),
    }


def _library_dict(library: RegisteredLibrary, operators: int) -> dict[str, Any]:
    return {
        "name": library.name,
        "priority": library.priority,
        "devices": list(library.devices),
        "available": not library.absent,
        "absent": library.absent or None,
        "version": library.version() or None,
        "origin": library.origin,
        "description": str(library.description.file),
        "handlers": dict(library.description.handlers),
        "invokers": operators,
    }


def operators_list(device: str) -> list[dict[str, Any]]:
    """Every operator with its invokers on a device, best first."""
    found = registry()
    return [
        {
            "operator": name,
            "dims": {role: _dims_text(spec) for role, spec in OPERATORS[name].dims.items()},
            "onnx": [
                {"operator": one.op_type, "since": one.since, "until": one.until}
                for one in OPERATORS[name].read_as
            ],
            "invokers": [
                {
                    "library": info.library,
                    "priority": priority,
                    "dtypes": {role: sorted(types) for role, types in info.dtypes.items()},
                    "conditional": info.when is not None,
                    "python": info.python,
                    "at": f"{info.file}:{info.line}",
                    "absent": found.libraries[info.library].absent or None,
                }
                for priority, info in found.candidates(name, device)
            ],
        }
        for name in sorted(OPERATORS)
    ]


def _dims_text(spec: DimSpec) -> str:
    names = [*("*" for _ in range(spec.open)), *(f"{name}?" for name in spec.optional)]
    return " ".join([*names, *spec.required])


def dtypes_text(dtypes: dict[str, list[str]]) -> str:
    """Element types by role in one line.

    >>> dtypes_text({"": ["bf16", "f32"]}), dtypes_text({"x": ["f32"]}), dtypes_text({})
    ('bf16 f32', 'x: f32', 'any')
    """
    if not dtypes:
        return "any"
    return "; ".join(
        f"{role}: {' '.join(types)}" if role else " ".join(types) for role, types in dtypes.items()
    )


def _library_lines(data: dict[str, Any]) -> Iterator[Line]:
    for row in data["libraries"]:
        state = f"absent: {row['absent']}" if row["absent"] else row["version"] or "available"
        yield Line("head" if row["available"] else "ref", f"{row['name']}  {state}")
        devices = ", ".join(row["devices"])
        text = f"  priority {row['priority']}, on {devices}, {row['invokers']} invokers"
        yield Line("", text)
        yield Line("note", f"  {row['origin']}: {row['description']}")
    for problem in data["problems"]:
        yield Line("ref", f"problem with {problem['origin']}: {problem['error']}")
    for tie in data["ties"]:
        yield Line("ref", f"tie: {tie}")


def _checked_lines(row: dict[str, Any]) -> Iterator[Line]:
    yield Line("head", f"{row['description']}: library {row['name']} is well described")
    state = f"absent: {row['absent']}" if row["absent"] else row["version"] or "available"
    yield Line("ref" if row["absent"] else "", f"  here: {state}")
    handlers = ", ".join(row["handlers"]) or "none"
    yield Line("", f"  priority {row['priority']}, handlers: {handlers}")
    yield Line("", f"  {row['invokers']} invokers come with it; nothing was registered")


def _operator_lines(rows: list[dict[str, Any]]) -> Iterator[Line]:
    for row in rows:
        dims = ", ".join(f"{role}: {text or 'none'}" for role, text in row["dims"].items())
        yield Line("head", f"{row['operator']}  ({dims})")
        if not row["invokers"]:
            yield Line("ref", "  no library has an invoker")
        for one in row["invokers"]:
            marks = [" (in Python)"] * one["python"] + [" (on a condition)"] * one["conditional"]
            marks += [f" (absent: {one['absent']})"] * (one["absent"] is not None)
            text = f"  {one['priority']:>4} {one['library']:<10} {dtypes_text(one['dtypes'])}"
            yield Line("", text + "".join(marks))
