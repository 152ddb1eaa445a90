"""The content of a lowered graph's picture: boxes, arrows between them, and their places."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ptensor.encoding import Encoding
from resolver.explain import explain_nodes
from resolver.lowered import LoweredGraph, LoweredNode, OpNode, TransformNode, Value
from vtensor.language.records import dataclass
from vtensor.pictures.layered import Wire, arrange
from vtensor.report import MEGABYTE, why

#: The widths of a box and of an arrow's bend in a row, with the gap to the next, in pixels.
BOX_SPACE = 212
BEND_SPACE = 14


@dataclass(frozen=True)
class Box:
    """A node that runs each time, or an end of the network: an input or an output.

    Attributes:
        kind: ``operator``, ``transform``, ``input`` or ``output``.
        name: the name of the node, the input or the output.
        title, note: its two lines of text.
        library: the library that runs it; empty for an end of the network.
        form: an approximate kernel, or the encodings of its operands; empty for usual arithmetic.
        scope: ``a/b`` of a name ``a/b/c``: the node's name, or else that of an output or a
            constant. If none has a scope, that of the input that was made last. Empty for an end of
            the network.
        hint: a sentence that describes it; the reason of a Transform.
        reads, makes: the values that it reads and makes, without constants.
        details: the explanation of ``resolver.explain``.
    """

    kind: str
    name: str
    title: str
    note: str
    library: str
    form: str
    scope: str
    hint: str
    reads: tuple[str, ...]
    makes: tuple[str, ...]
    details: Mapping[str, Any]


@dataclass(frozen=True)
class Arrow:
    """The way of a value from the box that makes it to one box that reads it.

    Attributes:
        source, target: indices of boxes.
        value, layout: the value's name and layout.
        hint: a line that describes the value.
        bends: the arrow's abscissa, in pixels, in each row that it passes; empty if it is drawn
            straight.
    """

    source: int
    target: int
    value: str
    layout: str
    hint: str
    bends: tuple[float, ...]


@dataclass(frozen=True)
class Scene:
    """The content of a picture.

    Attributes:
        title: its title.
        boxes, arrows: its boxes and arrows.
        rows: the row of each box.
        x: the abscissa of each box's centre, in pixels.
    """

    title: str
    boxes: tuple[Box, ...]
    arrows: tuple[Arrow, ...]
    rows: tuple[int, ...]
    x: tuple[float, ...]

    @property
    def appearance(self) -> object:
        """An object that is equal for scenes that look alike."""
        return self.arrows, [
            (box.kind, box.name, box.title, box.library, box.form) for box in self.boxes
        ]


def make_scene(
    title: str, graph: LoweredGraph, kernels: Mapping[str, Sequence[str]] | None = None
) -> Scene:
    """Return the scene of a lowered graph.

    Constants, and nodes that run on constants only, are left out.

    Args:
        title: the picture's title.
        graph: the graph.
        kernels: the kernels of each node by its name, if they are known.
    """
    boxes = (*_inputs(graph), *_nodes(graph, kernels or {}), *_outputs(graph))
    users: dict[str, list[int]] = defaultdict(list)
    for index, box in enumerate(boxes):
        for value in dict.fromkeys(box.reads):
            users[value].append(index)
    used = [(i, value) for i, box in enumerate(boxes) for value in box.makes if value in users]
    wires = [Wire(source, tuple(users[value])) for source, value in used]
    arranged = arrange(len(boxes), wires, BOX_SPACE, BEND_SPACE)
    rows = {item: row for row, items in enumerate(arranged.rows) for item in items}
    arrows = (
        Arrow(
            wire.source,
            target,
            value,
            graph.values[value].stored_as,
            describe(graph.values[value]),
            tuple(arranged.bends(number, rows[wire.source], rows[target])),
        )
        for number, (wire, (_, value)) in enumerate(zip(wires, used, strict=True))
        for target in wire.targets
    )
    indices = range(len(boxes))
    return Scene(
        title,
        boxes,
        tuple(arrows),
        tuple(rows[index] for index in indices),
        tuple(arranged.x[index] for index in indices),
    )


def describe(value: Value) -> str:
    """Return a line that describes a value: name, element type, sizes, layout.

    >>> from ptensor.layout import Layout
    >>> describe(Value("x", "f32", {"N": 1, "C": 3}, Layout("CN")))
    'x: f32 N=1 C=3, CN'
    """
    sizes = " ".join(f"{dim}={size}" for dim, size in value.dims.items())
    return f"{value.name}: {value.dtype} {sizes or 'scalar'}, {value.layout}"


def _inputs(graph: LoweredGraph) -> Iterator[Box]:
    for name in graph.inputs:
        value = graph.values[name]
        note = f"input, {value.layout}"
        yield Box("input", name, name, note, "", "", "", describe(value), (), (name,), {})


def _outputs(graph: LoweredGraph) -> Iterator[Box]:
    for alias, name in graph.outputs.items():
        value = graph.values[name]
        note = f"output, {value.layout}"
        yield Box("output", alias, alias, note, "", "", "", describe(value), (name,), (), {})


def _nodes(graph: LoweredGraph, kernels: Mapping[str, Sequence[str]]) -> Iterator[Box]:
    ahead = {node.name for node in graph.ahead()}
    scopes = _scopes(graph)
    for node, row in zip(graph.nodes, explain_nodes(graph), strict=True):
        if node.name not in ahead:
            yield _box(
                graph, node, scopes[node.name], row | {"kernels": kernels.get(node.name, [])}
            )


def _box(graph: LoweredGraph, node: LoweredNode, scope: str, row: Mapping[str, Any]) -> Box:
    form = ""
    if isinstance(node, TransformNode):
        kind, title, hint = (
            "transform",
            f"{row['source']} → {row['target']}",
            "; ".join(map(why, node.reasons)),
        )
        note = f"{row['bytes'] / MEGABYTE:.2f} MB"
    else:
        kind, title, note = "operator", node.op_name, node.name
        form = form_of(graph, node)
        hint = f"{title} {note} on {row['library']}" + f", {form}" * bool(form)
    return Box(
        kind=kind,
        name=node.name,
        title=title,
        note=note,
        library=row["library"],
        form=form,
        scope=scope,
        hint=hint,
        reads=tuple(name for name in node.inputs if not graph.values[name].constant),
        makes=node.outputs,
        details=_details(row),
    )


def form_of(graph: LoweredGraph, node: OpNode) -> str:
    """Return how a node's arithmetic is special: the approximate kernel, or the operands'
    encodings.

    Encodings count if operands are stored in other element types than those of their values. Empty
    if neither is so.
    """
    variant = node.variant
    if variant.inexact:
        return variant.kernel or "inexact"
    names = (*node.inputs, *node.outputs)
    rows = zip(names, variant.layouts, strict=True)
    encodings = (layout.normalized(graph.values[name].dtype).encoding for name, layout in rows)
    texts = ("+".join(_planes(encoding)) for encoding in encodings if encoding is not None)
    return ", ".join(dict.fromkeys(texts))


def _planes(encoding: Encoding) -> Iterator[str]:
    yield encoding.dtype
    if encoding.rest is not None:
        yield from _planes(encoding.rest)


def _details(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the details of a node that the page shows; ``row`` is from ``resolver.explain``.

    Paths are cut to their last two parts: pages are passed on to others, and folders are private.
    """
    shown = ("dtype", "sizes", "value", "kernels", "declined")
    operands = [
        operand | {"at": operand["at"] and "/".join(Path(operand["at"]).parts[-2:])}
        for operand in row.get("operands", ())
    ]
    return {key: row[key] for key in shown if key in row} | {"operands": operands}


def _scopes(graph: LoweredGraph) -> dict[str, str]:
    """Return the scope of each node, by the node's name: ``a/b`` of a name ``a/b/c``.

    The name is that of the node, or else of one of its outputs or constants. If none has a scope,
    the node has the scope of the input that was made last.
    """
    scopes: dict[str, str] = {}
    makers: dict[str, tuple[int, str]] = {}
    for index, node in enumerate(graph.nodes):
        constants = (name for name in node.inputs if graph.values[name].constant)
        named = filter(None, map(_scope, (node.name, *node.outputs, *constants)))
        _, last = max((makers[name] for name in node.inputs if name in makers), default=(0, ""))
        scope = scopes[node.name] = next(named, last)
        makers.update((name, (index, scope)) for name in node.outputs)
    return scopes


def _scope(name: str) -> str:
    return "/".join([part for part in name.split("/") if part][:-1])
