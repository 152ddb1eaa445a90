"""``vtensor plan --sizes``: the intervals of sizes that share a plan, and what changes between
them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from vtensor.commands.given import read_arrays
from vtensor.commands.shared import (
    LoadOptions,
    Mix,
    Passes,
    overriding,
    parse_shapes,
    print_json,
    print_lines,
    progress,
)
from vtensor.errors import InputError
from vtensor.isa import limit_isa
from vtensor.language.wording import counted
from vtensor.report import Line

if TYPE_CHECKING:
    from vtensor.language.graph import Graph

SizesOption = Annotated[
    str,
    typer.Option(
        "--sizes",
        help="Open sizes to plan for, by name or as INPUT[AXIS]: N=1..64,W=32..640:32.",
        metavar="NAME=FIRST..LAST[:STEP],...",
    ),
]

#: The most sizes in the range of one name. A plan is made for each of them.
MAX_SIZES = 2000

#: The most changed nodes that are shown between two intervals; --json has all.
SHOWN_NODES = 6

_RANGE = re.compile(r"(?P<name>.+)=(?P<first>\d+)\.\.(?P<last>\d+)(:(?P<step>\d+))?")

#: By name of the input, the sizes that a model declares: numbers, names, or None for an open size
#: without a name. None instead of a sequence if the model declares no rank.
Symbols = Mapping[str, Sequence[int | str | None] | None]


def parse_sizes(text: str) -> dict[str, range]:
    """Return a range of sizes for each name in a text such as ``N=1..64,W=32..640:32``.

    Raises:
        InputError: the text has another form or a name twice, or a range has no sizes or too many.

    >>> parse_sizes("N=1..4,x[3]=32..64:16")
    {'N': range(1, 5), 'x[3]': range(32, 65, 16)}
    """
    ranges: dict[str, range] = {}
    for part in text.split(","):
        match = _RANGE.fullmatch(part.strip())
        if match is None:
            raise InputError(f"--sizes {part}: write it as N=1..64, or N=32..640:32 with a step")
        name, step = match["name"].strip(), int(match["step"] or 1)
        if not step or int(match["first"]) > int(match["last"]) or name in ranges:
            raise InputError(f"--sizes {part}: it names no sizes, or a name comes twice")
        ranges[name] = range(int(match["first"]), int(match["last"]) + 1, step)
        if len(ranges[name]) > MAX_SIZES:
            text = f"--sizes {part}: {len(ranges[name])} sizes, each of which is planned"
            raise InputError(f"{text}; {MAX_SIZES} are the most: give a step, as in {part}:16")
    return ranges


def shapes_at(
    declared: Symbols, shapes: Mapping[str, tuple[int, ...]], sizes: Mapping[str, int]
) -> dict[str, tuple[int, ...]]:
    """Return the shapes of all inputs.

    Args:
        declared: the sizes that the model declares, by name of the input.
        shapes: shapes from the command line, by name of the input; they set sizes that the model
            leaves open.
        sizes: further sizes, by the name of an open size or ``INPUT[AXIS]``; they take precedence
            over ``shapes``.

    Raises:
        InputError: the model has no such name, ``sizes`` names a size that is a number in the
            model, or a size stays open.

    >>> shapes_at({"x": ("N", 3, None)}, {"x": (1, 3, 8)}, {"N": 2})
    {'x': (2, 3, 8)}
    """
    if unknown := [name for name in shapes if name not in declared]:
        have = ", ".join(declared) or "none"
        raise InputError(f"--shape {', '.join(unknown)}: inputs are {have}")
    if missing := [name for name, row in declared.items() if row is None and name not in shapes]:
        raise InputError(f"input {missing[0]!r} declares no rank: give its sizes by --shape")
    symbols = {
        name: (None,) * len(shapes[name]) if row is None else row for name, row in declared.items()
    }
    named = {
        symbol: size
        for name, shape in shapes.items()
        for symbol, size in zip(symbols.get(name, ()), shape, strict=False)
        if isinstance(symbol, str)
    }
    unused, result = dict(sizes), dict[str, tuple[int, ...]]()
    for name, declared_sizes in symbols.items():
        shape_now = list[int]()
        for axis, symbol in enumerate(declared_sizes):
            keys = (f"{name}[{axis}]", symbol)
            size = next((sizes[key] for key in keys if isinstance(key, str) and key in sizes), None)
            for key in keys:
                unused.pop(key if isinstance(key, str) else "", None)
            if isinstance(symbol, int):
                if size is not None:
                    raise InputError(f"--sizes: {name}[{axis}] is {symbol} in the model, not open")
                size = symbol
            if size is None:
                size = (*shapes.get(name, ()), *[None] * len(declared_sizes))[axis]
            size = named.get(str(symbol)) if size is None else size
            if size is None:
                label = symbol if isinstance(symbol, str) else f"{name}[{axis}]"
                text = f"--sizes: {label} of input {name!r} is open, too: give it in --sizes"
                raise InputError(f"{text}, or all sizes of {name} by --shape")
            shape_now.append(size)
        result[name] = tuple(shape_now)
    if unused:
        names = (size for row in symbols.values() for size in row if isinstance(size, str))
        have = ", ".join(dict.fromkeys(names)) or "none by name"
        raise InputError(
            f"--sizes: no open size {', '.join(unused)}; there are {have}, INPUT[AXIS]"
        )
    return result


class SizesArguments(NamedTuple):
    """The arguments of ``vtensor plan --sizes``.

    Attributes:
        model: the ONNX file.
        sizes, shape, value: texts of these options.
        threads: the number of kernel threads; None for all processors.
        isa: the limit of the instruction set; ``max`` for none.
        passes, limits, mix: further options.
    """

    model: Path
    sizes: str
    shape: Sequence[str] | None
    value: Sequence[str] | None
    threads: int | None
    passes: Passes
    isa: str
    limits: LoadOptions
    mix: Mix


def show(request: SizesArguments, as_json: bool) -> None:
    """Print the intervals of each open size in which one plan serves, as lines or JSON."""
    data = sizes_dict(request)
    if as_json:
        print_json(data)
    else:
        print_lines(sizes_lines(data))


def sizes_dict(request: SizesArguments) -> dict[str, Any]:
    """Return, for ``--json``, the intervals of each open size in which one plan serves.

    While one open size varies, each other one has the first number of its range.

    Raises:
        VTensorError: the model cannot be read, or an option is wrong.
    """
    from vtensor.frontends.onnx import Model
    from vtensor.runtime.execution.executor import Executor
    from vtensor.runtime.planning.intervals import intervals
    from vtensor.runtime.planning.keys import PlanKey
    from vtensor.runtime.planning.networks import Networks
    from vtensor.runtime.planning.options import Options
    from vtensor.runtime.planning.refine import SLACK
    from vtensor.runtime.planning.source import Source

    ranges, passes = parse_sizes(request.sizes), request.passes
    if request.isa != "max":
        limit_isa(request.isa)
    options = Options.of(
        Executor.of(request.threads),
        optimize=passes.optimize,
        objective=passes.objective,
        tune=passes.tune,
        **request.mix._asdict(),
        reference=request.limits.reference,
        progress=None,
        deterministic=True,
        precision=passes.precision,
    )
    limits = request.limits._asdict()
    model = Model(request.model, **limits)
    arrays, _ = read_arrays(model.inputs, None, request.value, model.overridable)
    shapes = {name: array.shape for name, array in arrays.items()} | parse_shapes(request.shape)
    model = overriding(model, shapes)
    source = Source(model, **limits)
    networks = Networks(source)
    known = {name: arrays[name] for name in model.deciding}
    firsts = {name: numbers.start for name, numbers in ranges.items()}
    shapes_at(model.symbols, shapes, firsts)  # raises errors in names before any plan is made

    def at(name: str, size: int) -> dict[str, tuple[int, ...]]:
        return shapes_at(model.symbols, shapes, {**firsts, name: size})

    def graph_at(name: str, size: int) -> Graph:
        key = PlanKey.of_shapes(source.inputs, at(name, size), known, options.entry)
        return networks.of(key, options, {}).graph

    rows = []
    with progress(f"planning {request.model.name}") as advance:
        for name, numbers in ranges.items():
            report = partial(_report, advance, name, numbers)
            parts = intervals(numbers, partial(graph_at, name), options, report)
            others = {other: size for other, size in firsts.items() if other != name}
            row = {"size": name, "first": numbers[0], "last": numbers[-1], "step": numbers.step}
            rows.append({**row, "others": others, "intervals": [*map(asdict, parts)]})
    return {"model": request.model.stem, "slack": SLACK, "sizes": rows}


def _report(advance: Callable[[str], None], name: str, numbers: range, size: int) -> None:
    advance(f"{name}={size} of {numbers.start}..{numbers[-1]}")


def sizes_lines(data: Mapping[str, Any]) -> Iterator[Line]:
    """Yield the lines that print the intervals; ``data`` is from ``sizes_dict``."""
    for row in data["sizes"]:
        others = ", ".join(f"{name}={size}" for name, size in row["others"].items())
        count = sum(1 for interval in row["intervals"] if not interval["error"])
        begin = f"{data['model']}: {row['size']}={row['first']}..{row['last']}"
        step = f" in steps of {row['step']}" * (row["step"] > 1)
        yield Line(
            "head", f"{begin}{step}{f' at {others}' * bool(others)}: {counted(count, 'plan')}"
        )
        for interval in row["intervals"]:
            yield from _interval_lines(row["size"], interval)


def _interval_lines(name: str, row: Mapping[str, Any]) -> Iterator[Line]:
    ends = f"{name}={row['first']}" + f"..{row['last']}" * (row["last"] > row["first"])
    if row["error"]:
        yield Line("ref", f"  {ends}: {row['error']}")
        return
    if row["why"]:
        yield Line("why", f"  from here on another plan: {row['why']}")
        nodes = dict.fromkeys(change["name"] for change in row["changes"])
        for node in list(nodes)[:SHOWN_NODES]:
            yield Line("note", f"      {_change_text(node, row['changes'])}")
        if len(nodes) > SHOWN_NODES:
            yield Line("note", f"      and {counted(len(nodes) - SHOWN_NODES, 'more node')}")
    if row["behind"] is None:
        proof = "how far from the best is not proven"
    elif row["behind"] <= 0:
        proof = "the least by estimate at each"
    else:
        proof = f"at most {row['behind']:.1%} above the least by estimate"
    planned = counted(row["looked"], "size")
    yield Line("", f"  {ends}: {planned}, {counted(row['transforms'], 'Transform')}, {proof}")


def _change_text(node: str, changes: Sequence[Mapping[str, Any]]) -> str:
    """Return a line with the changes of one node; ``changes`` are all that differs between two
    plans.
    """
    parts = []
    for change in changes:
        if change["name"] == node:
            field = f"{change['field']}: " if change["field"] else ""
            parts.append(f"{field}{change['a'] or '-'} -> {change['b'] or '-'}")
    return f"{node}: {'; '.join(parts)}"
