"""``vtensor plan --sizes``: for which sizes one plan is good, and what changes at each border."""

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
    Limits,
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
        help="Open sizes to go through, each by its name or as INPUT[AXIS]: N=1..64,W=32..640:32.",
        metavar="NAME=FIRST..LAST[:STEP],...",
    ),
]

#: The most sizes of one name: each is planned.
MOST = 2000

#: How many changes are named at a border, beside the --json.
SHOWN = 6

_RANGE = re.compile(r"(?P<name>.+)=(?P<first>\d+)\.\.(?P<last>\d+)(:(?P<step>\d+))?")

#: Sizes of each input as a model declares them: numbers, names, None without a name; None for all
#: where it declares no rank.
Symbols = Mapping[str, Sequence[int | str | None] | None]


def parse_sizes(text: str) -> dict[str, range]:
    """``N=1..64,W=32..640:32`` as numbers for each name.

    Raises:
        InputError: it is not of that form, says nothing, or too much.

    >>> parse_sizes("N=1..4,x[3]=32..64:16")
    {'N': range(1, 5), 'x[3]': range(32, 65, 16)}
    """
    found: dict[str, range] = {}
    for part in text.split(","):
        match = _RANGE.fullmatch(part.strip())
        if match is None:
            raise InputError(f"--sizes {part}: write it as N=1..64, or N=32..640:32 with a step")
        name, step = match["name"].strip(), int(match["step"] or 1)
        if not step or int(match["first"]) > int(match["last"]) or name in found:
            raise InputError(f"--sizes {part}: it names no sizes, or a name comes twice")
        found[name] = range(int(match["first"]), int(match["last"]) + 1, step)
        if len(found[name]) > MOST:
            text = f"--sizes {part}: {len(found[name])} sizes, each of which is planned"
            raise InputError(f"{text}; {MOST} are the most: give a step, as in {part}:16")
    return found


def shapes_at(
    declared: Symbols, given: Mapping[str, tuple[int, ...]], sizes: Mapping[str, int]
) -> dict[str, tuple[int, ...]]:
    """The shapes of inputs: what ``sizes`` says, else what is given, else what is declared.

    Raises:
        InputError: a name is none of the model's, or a size stays open.

    >>> shapes_at({"x": ("N", 3, None)}, {"x": (1, 3, 8)}, {"N": 2})
    {'x': (2, 3, 8)}
    """
    if unknown := [name for name in given if name not in declared]:
        have = ", ".join(declared) or "none"
        raise InputError(f"--shape {', '.join(unknown)}: inputs are {have}")
    if missing := [name for name, one in declared.items() if one is None and name not in given]:
        raise InputError(f"input {missing[0]!r} declares no rank: give its sizes by --shape")
    symbols = {
        name: (None,) * len(given[name]) if one is None else one for name, one in declared.items()
    }
    named = {
        symbol: size
        for name, shape in given.items()
        for symbol, size in zip(symbols.get(name, ()), shape, strict=False)
        if isinstance(symbol, str)
    }
    unused, found = dict(sizes), dict[str, tuple[int, ...]]()
    for name, own in symbols.items():
        row = list[int]()
        for axis, symbol in enumerate(own):
            keys = (f"{name}[{axis}]", symbol)
            size = next((sizes[key] for key in keys if isinstance(key, str) and key in sizes), None)
            for key in keys:
                unused.pop(key if isinstance(key, str) else "", None)
            if isinstance(symbol, int):
                if size is not None:
                    raise InputError(f"--sizes: {name}[{axis}] is {symbol} in the model, not open")
                size = symbol
            if size is None:
                size = (*given.get(name, ()), *[None] * len(own))[axis]
            size = named.get(str(symbol)) if size is None else size
            if size is None:
                open_one = symbol if isinstance(symbol, str) else f"{name}[{axis}]"
                text = f"--sizes: {open_one} of input {name!r} is open, too: give it in --sizes"
                raise InputError(f"{text}, or all sizes of {name} by --shape")
            row.append(size)
        found[name] = tuple(row)
    if unused:
        names = (one for row in symbols.values() for one in row if isinstance(one, str))
        have = ", ".join(dict.fromkeys(names)) or "none by name"
        raise InputError(
            f"--sizes: no open size {', '.join(unused)}; there are {have}, INPUT[AXIS]"
        )
    return found


class Wanted(NamedTuple):
    """What the command was told."""

    model: Path
    sizes: str
    shape: Sequence[str] | None
    value: Sequence[str] | None
    threads: int | None
    passes: Passes
    isa: str
    limits: Limits
    mix: Mix


def show(wanted: Wanted, as_json: bool) -> None:
    """Print the intervals of each size."""
    found = sizes_dict(wanted)
    if as_json:
        print_json(found)
    else:
        print_lines(sizes_lines(found))


def sizes_dict(wanted: Wanted) -> dict[str, Any]:
    """The intervals of each size, the others at their first, as data.

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

    ranges, passes = parse_sizes(wanted.sizes), wanted.passes
    if wanted.isa != "max":
        limit_isa(wanted.isa)
    options = Options.of(
        Executor.of(wanted.threads),
        optimize=passes.optimize,
        objective=passes.objective,
        tune=passes.tune,
        **wanted.mix._asdict(),
        reference=wanted.limits.reference,
        progress=None,
        deterministic=True,
    )
    limits = wanted.limits._asdict()
    model = Model(wanted.model, **limits)
    arrays, _ = read_arrays(model.inputs, None, wanted.value, model.overridable)
    given = {name: one.shape for name, one in arrays.items()} | parse_shapes(wanted.shape)
    model = overriding(model, given)
    source = Source(model, **limits)
    networks = Networks(source)
    known = {name: arrays[name] for name in model.deciding}
    firsts = {name: one.start for name, one in ranges.items()}
    shapes_at(model.symbols, given, firsts)  # names and open sizes are told of before any plan

    def at(name: str, size: int) -> dict[str, tuple[int, ...]]:
        return shapes_at(model.symbols, given, {**firsts, name: size})

    def graph_at(name: str, size: int) -> Graph:
        key = PlanKey.of_shapes(source.inputs, at(name, size), known, options.entry)
        return networks.of(key, options, {}).graph

    rows = []
    with progress(f"planning {wanted.model.name}") as advance:
        for name, numbers in ranges.items():
            report = partial(_tell, advance, name, numbers)
            found = intervals(numbers, partial(graph_at, name), options, report)
            others = {other: one for other, one in firsts.items() if other != name}
            row = {"size": name, "first": numbers[0], "last": numbers[-1], "step": numbers.step}
            rows.append({**row, "others": others, "intervals": [asdict(one) for one in found]})
    return {"model": wanted.model.stem, "slack": SLACK, "sizes": rows}


def _tell(advance: Callable[[str], None], name: str, numbers: range, size: int) -> None:
    advance(f"{name}={size} of {numbers.start}..{numbers[-1]}")


def sizes_lines(data: Mapping[str, Any]) -> Iterator[Line]:
    """The same as a person reads it."""
    for row in data["sizes"]:
        others = ", ".join(f"{name}={size}" for name, size in row["others"].items())
        count = sum(1 for one in row["intervals"] if not one["error"])
        begin = f"{data['model']}: {row['size']}={row['first']}..{row['last']}"
        step = f" in steps of {row['step']}" * (row["step"] > 1)
        yield Line(
            "head", f"{begin}{step}{f' at {others}' * bool(others)}: {counted(count, 'plan')}"
        )
        for one in row["intervals"]:
            yield from _interval_lines(row["size"], one)


def _interval_lines(name: str, one: Mapping[str, Any]) -> Iterator[Line]:
    ends = f"{name}={one['first']}" + f"..{one['last']}" * (one["last"] > one["first"])
    if one["error"]:
        yield Line("ref", f"  {ends}: {one['error']}")
        return
    if one["why"]:
        yield Line("why", f"  from here on another plan: {one['why']}")
        nodes = dict.fromkeys(change["name"] for change in one["changes"])
        for node in list(nodes)[:SHOWN]:
            yield Line("note", f"      {_change(node, one['changes'])}")
        if len(nodes) > SHOWN:
            yield Line("note", f"      and {counted(len(nodes) - SHOWN, 'more node')}")
    if one["behind"] is None:
        proof = "how far from the best is not proven"
    elif one["behind"] <= 0:
        proof = "the least by estimate at each"
    else:
        proof = f"at most {one['behind']:.1%} above the least by estimate"
    looked = counted(one["looked"], "size")
    yield Line("", f"  {ends}: {looked}, {counted(one['transforms'], 'Transform')}, {proof}")


def _change(node: str, changes: Sequence[Mapping[str, Any]]) -> str:
    """What changes about a node, in a line."""
    parts = []
    for one in changes:
        if one["name"] == node:
            what = f"{one['field']}: " if one["field"] else ""
            parts.append(f"{what}{one['a'] or '-'} -> {one['b'] or '-'}")
    return f"{node}: {'; '.join(parts)}"
