"""What a picture shows of a lowered graph: boxes, arrows between them, and where they are."""

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

#: Pixels that a box and a bend of an arrow take of their row, with the gap to what is next.
BOX_SPACE = 212
BEND_SPACE = 14


@dataclass(frozen=True)
class Box:
    """A node that runs each time, or an end of the network.

    Attributes:
        kind: ``operator``, ``transform``, ``input`` or ``output``.
        name: the node's, or the input's or output's.
        title, note: its two lines.
        library: who runs it; empty for an end.
        form: what tells its arithmetic from the usual one: an inexact kernel, or the encodings of
            its operands; empty where nothing does.
        scope: ``a/b`` of a name ``a/b/c``; what has no such name stands where its last input does.
        hint: one sentence on it, of a Transform its reason.
        reads, makes: values that are no constants.
        details: what ``resolver.explain`` says of it.
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
    """A value on its way to one user.

    Attributes:
        source, target: positions of boxes.
        value, layout: its name and layout.
        hint: one sentence on it.
        bends: its abscissa in each row that it passes; empty if it goes across them.
    """

    source: int
    target: int
    value: str
    layout: str
    hint: str
    bends: tuple[float, ...]


@dataclass(frozen=True)
class Scene:
    """A picture's content; ``rows`` and ``x`` are those of the boxes, ``x`` in pixels."""

    title: str
    boxes: tuple[Box, ...]
    arrows: tuple[Arrow, ...]
    rows: tuple[int, ...]
    x: tuple[float, ...]

    @property
    def looks(self) -> object:
        """What two scenes have in common that look alike."""
        return self.arrows, [
            (box.kind, box.name, box.title, box.library, box.form) for box in self.boxes
        ]


def make_scene(
    title: str, graph: LoweredGraph, kernels: Mapping[str, Sequence[str]] | None = None
) -> Scene:
    """Draw a lowered graph. Constants, and what is done to them while loading, are left out.

    Args:
        title: what the picture is called.
        graph: nodes and values.
        kernels: what each node runs, by name, where that is known.
    """
    boxes = (*_inputs(graph), *_nodes(graph, kernels or {}), *_outputs(graph))
    users: dict[str, list[int]] = defaultdict(list)
    for index, box in enumerate(boxes):
        for value in dict.fromkeys(box.reads):
            users[value].append(index)
    made = [(i, value) for i, box in enumerate(boxes) for value in box.makes if value in users]
    wires = [Wire(source, tuple(users[value])) for source, value in made]
    arranged = arrange(len(boxes), wires, BOX_SPACE, BEND_SPACE)
    rows = {item: row for row, items in enumerate(arranged.rows) for item in items}
    arrows = (
        Arrow(
            wire.source,
            target,
            value,
            str(graph.values[value].layout),
            describe(graph.values[value]),
            tuple(arranged.bends(number, rows[wire.source], rows[target])),
        )
        for number, (wire, (_, value)) in enumerate(zip(wires, made, strict=True))
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
    """A value in a line: name, element type, sizes, layout.

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
    """An inexact kernel by its name; else how operands are stored, where it is not in the element
    types of their values.
    """
    variant = node.variant
    if variant.inexact:
        return variant.kernel or "inexact"
    names = (*node.inputs, *node.outputs)
    rows = zip(names, variant.layouts, strict=True)
    own = (layout.normalized(graph.values[name].dtype).encoding for name, layout in rows)
    return ", ".join(dict.fromkeys("+".join(_planes(one)) for one in own if one is not None))


def _planes(encoding: Encoding) -> Iterator[str]:
    yield encoding.dtype
    if encoding.rest is not None:
        yield from _planes(encoding.rest)


def _details(row: Mapping[str, Any]) -> dict[str, Any]:
    """What the page shows; paths have two parts: a page is passed on, the rest is private."""
    kept = ("dtype", "sizes", "value", "kernels", "declined")
    operands = [
        operand | {"at": operand["at"] and "/".join(Path(operand["at"]).parts[-2:])}
        for operand in row.get("operands", ())
    ]
    return {key: row[key] for key in kept if key in row} | {"operands": operands}


def _scopes(graph: LoweredGraph) -> dict[str, str]:
    """The scope of each node: by its name, its outputs', its constants', else its last input's."""
    found: dict[str, str] = {}
    made: dict[str, tuple[int, str]] = {}
    for index, node in enumerate(graph.nodes):
        constants = (name for name in node.inputs if graph.values[name].constant)
        own = filter(None, map(_scope, (node.name, *node.outputs, *constants)))
        _, last = max((made[name] for name in node.inputs if name in made), default=(0, ""))
        scope = found[node.name] = next(own, last)
        made.update((name, (index, scope)) for name in node.outputs)
    return found


def _scope(name: str) -> str:
    return "/".join([part for part in name.split("/") if part][:-1])
