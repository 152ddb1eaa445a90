"""Read a layout problem from JSON, and check it; ``docs/layout-problem.md`` has the format."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any

from eval.gap.problem import Alternative, Node, Problem, Tensor
from vtensor.errors import VTensorError

#: The version of the format that this code reads.
VERSION = 1


class ProblemError(VTensorError):
    """A problem is no valid one; the message names the place in the file."""


def read(path: Path) -> Problem:
    """Return the problem in a file.

    Raises:
        ProblemError: the file cannot be read, or is no valid problem.
    """
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise ProblemError(f"{path}: cannot be read as JSON: {error}") from error
    try:
        return parse(data)
    except ProblemError as error:
        raise ProblemError(f"{path}: {error}") from error


def parse(data: Any) -> Problem:
    """Return the problem that plain data describes, its nodes in topological order.

    Raises:
        ProblemError: the data is no valid problem; the message names the place.
    """
    whole = _Place("the problem", data)
    if whole.entry("version").value != VERSION:
        raise ProblemError(f"version: {data['version']!r} is not {VERSION}, which this code reads")
    tensors = {name: _tensor(place) for name, place in whole.entry("tensors").entries()}
    values, given = dict[str, Tensor](), dict[str, str]()
    for name, place in whole.entry("values").entries():
        key = place.entry("tensor").text()
        if key not in tensors:
            raise ProblemError(f"{place.entry('tensor').where}: there is no tensor {key!r}")
        values[name] = tensors[key]
        if "given" in place.mapping():
            given[name] = _layout(place.entry("given"), values[name])
    nodes = [_node(place, values) for place in whole.entry("nodes").items()]
    outputs = []
    for place in whole.entry("outputs").items():
        [name] = _values([place.entry("value")], values)
        outputs.append((name, _layout(place.entry("layout"), values[name])))
    ordered = _ordered(nodes, values, given)
    about, optima = data.get("about", {}), data.get("optima", {})
    return Problem(ordered, values, given, outputs, about, optima)


class _Place:
    """A part of the data, with the text that tells where it is."""

    def __init__(self, where: str, value: Any) -> None:
        self.where, self.value = where, value

    def mapping(self) -> Mapping[str, Any]:
        if not isinstance(self.value, dict):
            raise ProblemError(f"{self.where}: {_shown(self.value)} is no mapping")
        return self.value

    def entry(self, name: str) -> _Place:
        where = f"{self.where}.{name}" if self.where != "the problem" else name
        if name not in self.mapping():
            raise ProblemError(f"{self.where}: {name!r} is missing")
        return _Place(where, self.value[name])

    def entries(self) -> Iterator[tuple[str, _Place]]:
        for name, value in self.mapping().items():
            yield name, _Place(f"{self.where}[{name!r}]", value)

    def items(self) -> list[_Place]:
        if not isinstance(self.value, list):
            raise ProblemError(f"{self.where}: {_shown(self.value)} is no list")
        return [_Place(f"{self.where}[{i}]", value) for i, value in enumerate(self.value)]

    def text(self) -> str:
        if not isinstance(self.value, str):
            raise ProblemError(f"{self.where}: {_shown(self.value)} is no text")
        return self.value

    def cost(self) -> float:
        value = self.value
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ProblemError(f"{self.where}: {_shown(value)} is no number")
        if not math.isfinite(value) or value < 0:
            raise ProblemError(f"{self.where}: a cost of {value} is not finite and at least 0")
        return value


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:40]}..."


def _tensor(place: _Place) -> Tensor:
    layouts = {name: size.cost() for name, size in place.entry("layouts").entries()}
    rows = place.entry("ns").items()
    ns = dict[tuple[str, str], float]()
    for source, row in zip(layouts, rows, strict=False):
        for target, cell in zip(layouts, row.items(), strict=False):
            ns[source, target] = cell.cost()
    if len(ns) != len(layouts) ** 2 or len(rows) != len(layouts) or _ragged(rows, len(layouts)):
        sizes = f"{len(layouts)} rows of {len(layouts)}"
        raise ProblemError(f"{place.entry('ns').where}: {sizes} costs are needed, one per layout")
    for name in ("plain", "channels_last"):
        if name in place.mapping():
            known = place.entry(name)
            if known.text() not in layouts:
                raise ProblemError(f"{known.where}: there is no layout {known.value!r}")
    return Tensor(layouts, ns, place.value.get("plain", ""), place.value.get("channels_last", ""))


def _ragged(rows: Sequence[_Place], length: int) -> bool:
    return any(len(row.items()) != length for row in rows)


def _node(place: _Place, values: Mapping[str, Tensor]) -> Node:
    name = place.entry("name").text()
    where = f"{place.where} {name!r}"
    place = _Place(where, place.value)
    reads = _values(place.entry("reads").items(), values)
    writes = _values(place.entry("writes").items(), values)
    rows = place.entry("alternatives").items()
    alternatives = [_alternative(row, reads, writes, values) for row in rows]
    if not alternatives:
        raise ProblemError(f"{where}.alternatives: a node needs at least one")
    kind = place.value.get("kind", "other")
    return Node(name, reads, writes, tuple(alternatives), str(place.value.get("op", "")), kind)


def _alternative(
    row: _Place, reads: Sequence[str], writes: Sequence[str], values: Mapping[str, Tensor]
) -> Alternative:
    read, written = (
        _layouts(row.entry(side), names, values)
        for side, names in (("reads", reads), ("writes", writes))
    )
    inside = {key: row.entry(key).cost() for key in ("bytes", "conversions") if key in row.value}
    return Alternative(
        read,
        written,
        ns=row.entry("ns").cost(),
        bytes=inside.get("bytes", 0),
        conversions=int(inside.get("conversions", 0)),
        library=str(row.value.get("library", "")),
        kernel=str(row.value.get("kernel", "")),
    )


def _layouts(place: _Place, names: Sequence[str], values: Mapping[str, Tensor]) -> tuple[str, ...]:
    places = place.items()
    if len(places) != len(names):
        raise ProblemError(f"{place.where}: {len(places)} layouts for {len(names)} values")
    return tuple(_layout(own, values[name]) for own, name in zip(places, names, strict=True))


def _values(places: Sequence[_Place], values: Mapping[str, Tensor]) -> tuple[str, ...]:
    for place in places:
        if place.text() not in values:
            raise ProblemError(f"{place.where}: there is no value {place.value!r}")
    return tuple(place.value for place in places)


def _layout(place: _Place, tensor: Tensor) -> str:
    if place.text() not in tensor.layouts:
        known = ", ".join(tensor.layouts)
        raise ProblemError(
            f"{place.where}: the value has no layout {place.value!r}; it has {known}"
        )
    return str(place.value)


def _ordered(
    nodes: Sequence[Node], values: Mapping[str, Tensor], given: Mapping[str, str]
) -> tuple[Node, ...]:
    """Return nodes in topological order; those that are already keep their order.

    Raises:
        ProblemError: there is a cycle; or a name, a maker of a value is missing or comes twice.
    """
    makers = dict.fromkeys(given, "an input")
    by_name = dict[str, Node]()
    for node in nodes:
        if node.name in by_name:
            raise ProblemError(f"nodes: the name {node.name!r} comes twice")
        by_name[node.name] = node
        for name in node.writes:
            if name in makers:
                raise ProblemError(f"node {node.name!r}: {name!r} is made by {makers[name]}, too")
            makers[name] = node.name
    if absent := [name for name in values if name not in makers]:
        raise ProblemError(f"values[{absent[0]!r}]: no node writes it, and it is not given")
    before = {n.name: [makers[v] for v in n.reads if v not in given] for n in nodes}
    try:
        order = list(TopologicalSorter(before).static_order())
    except CycleError as error:
        raise ProblemError(f"nodes: there is a cycle, {' -> '.join(error.args[1])}") from None
    place = {name: number for number, name in enumerate(order)}
    listed = {node.name: number for number, node in enumerate(nodes)}
    if all(listed[maker] < listed[name] for name, makers_ in before.items() for maker in makers_):
        return tuple(nodes)
    return tuple(sorted(nodes, key=lambda node: place[node.name]))
