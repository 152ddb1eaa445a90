"""A choice by the names that people read: the content of a lock file.

A ``ChosenGraph`` is a whole lowered graph. ``Choices`` have only what a person may decide about: a
row for each node, with its library, kernel, layouts and fused nodes, and a row for each Transform.
A plan numbers its Transforms, so that an additional one would rename all after it. Here each
Transform is named by what it makes, such as ``conv1 in NHWC``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from libdesc.preferences import Preferences
from libdesc.registry import ready
from libdesc.transforms import LayoutChange, run_transform
from ptensor.evaluation import Decline, Variant
from ptensor.layout import Layout
from resolver.constants import stored
from resolver.evaluate import PartialEvaluation
from resolver.lowered import LoweredGraph, LoweredNode, OpNode, TransformNode, Value
from resolver.probe import confirmed
from vtensor.errors import VTensorError, did_you_mean
from vtensor.language.operators import info_of, label_of
from vtensor.language.process.interrupts import Unfit
from vtensor.language.records import dataclass, replace

if TYPE_CHECKING:
    from vtensor.language.graph import Graph


@dataclass(frozen=True)
class NodeChoice:
    """The choice for one node: all attributes of ``OpNode`` but op, followers and value."""

    name: str
    op_name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    roles: tuple[str, ...]
    variant: Variant


class LockChoiceRefused(Unfit):  # the lock file's reader adds line numbers to the faults
    """Raised if choices do not hold for a graph.

    Attributes:
        faults: a pair for each fault: the index of the row that it is about, or None; and the text.
    """

    def __init__(self, faults: Sequence[tuple[int | None, str]]) -> None:
        super().__init__("; ".join(text for _, text in faults))
        self.faults = tuple(faults)


@dataclass(frozen=True)
class Choices:
    """What was chosen for a network in one combination of sizes.

    Attributes:
        inputs: the inputs with their layouts, in the network's order.
        outputs: for each output name, the value that is delivered.
        rows: nodes and Transforms, in the order in which they run.
        layouts: layouts of the values; a value without one is a constant in its declared order.
    """

    inputs: Mapping[str, Value]
    outputs: Mapping[str, str]
    rows: tuple[NodeChoice | TransformNode, ...]
    layouts: Mapping[str, Layout]

    @classmethod
    def of(cls, graph: LoweredGraph) -> Choices:
        """Return the choices in a plan's lowered graph; a Transform is named after its output."""
        names = _names(graph)
        rows: list[NodeChoice | TransformNode] = []
        for node in graph.nodes:
            inputs = tuple(names.get(name, name) for name in node.inputs)
            if isinstance(node, TransformNode):
                target = names[node.output]
                rows.append(replace(node, name=target, input=inputs[0], output=target))
            else:
                fields = (node.outputs, node.roles, node.variant)
                rows.append(NodeChoice(node.name, node.op_name, inputs, *fields))
        return cls(
            {name: graph.values[name] for name in graph.inputs},
            {alias: names.get(name, name) for alias, name in graph.outputs.items()},
            tuple(rows),
            {
                names.get(name, name): value.layout
                for name, value in graph.values.items()
                if not value.constant or name in names
            },
        )

    def on(
        self, graph: Graph, preferences: Preferences, delivery: Mapping[str, Layout]
    ) -> LoweredGraph:
        """Return the lowered graph of these choices, still without passes and certificate.

        Each library is asked whether it takes its nodes in these variants. Whether the result
        computes the network is left to the checker.

        Args:
            graph: the network, simplified.
            preferences: libraries that may be used.
            delivery: layouts in which outputs are delivered, by name.

        Raises:
            LockChoiceRefused: some choices do not hold; the error lists all of them.
        """
        return _Binder(self, graph, preferences).bound(delivery)


def _names(graph: LoweredGraph) -> Mapping[str, str]:
    """Return for each Transform's output a name that adding other Transforms does not change.

    The keys are the outputs' names in the graph.
    """
    names: dict[str, str] = {}
    model_values = (name for name, source in graph.sources.items() if name == source)
    taken = {*model_values, *(node.name for node in graph.operators)}
    for node in graph.nodes:
        if isinstance(node, TransformNode):
            plain = name = f"{graph.sources[node.output]} in {graph.values[node.output].layout}"
            count = 1
            while name in taken:
                count += 1
                name = f"{plain} ({count})"
            taken.add(name)
            names[node.output] = name
    return names


class _Binder:
    """The application of choices to a graph: the values that exist so far, and the faults found so
    far.
    """

    def __init__(self, choices: Choices, graph: Graph, preferences: Preferences) -> None:
        self._choices = choices
        self._graph = graph
        self._preferences = preferences
        self._faults: list[tuple[int | None, str]] = []
        self._values = dict(self._inputs_and_constants())
        #: For each value, the network's value of which it is a copy, perhaps in another layout.
        self._origin = {name: name for name in self._values}
        self._constants = stored(graph, [name for name in self._values if name in graph.constants])
        self._fused: dict[str, str] = {}
        #: Values that were not made, because the nodes that make them have faults. Nodes that read
        #: them get no fault for that.
        self._lost: set[str] = set()

    def bound(self, delivery: Mapping[str, Layout]) -> LoweredGraph:
        """Return the lowered graph of the choices.

        Args:
            delivery: the layouts in which outputs are delivered, by name.

        Raises:
            LockChoiceRefused: a choice does not hold.
        """
        graph, choices = self._graph, self._choices
        nodes: list[LoweredNode] = []
        for place, row in enumerate(choices.rows):
            node, faults = self._row(row)
            self._faults += [(place, text) for text in faults]
            if node is not None:
                nodes.append(node)
        for alias, name in choices.outputs.items():
            lost = name in self._lost
            if not lost and self._origin.get(name) != graph.outputs.get(alias):
                self._faults.append((None, f"output {alias!r} is not made"))
        if self._faults:
            raise LockChoiceRefused(self._faults)
        return LoweredGraph(
            graph.name,
            values=self._values,
            nodes=nodes,
            inputs=tuple(graph.inputs),
            outputs=choices.outputs,
            merged={**graph.merged, **self._fused},
            constants=self._constants,
            delivery=delivery,
            preferences=self._preferences,
            rewritten=graph.rewritten,
            notes=graph.notes,
        )

    def _row(self, row: NodeChoice | TransformNode) -> tuple[LoweredNode | None, list[str]]:
        """Return the node that a row stands for, and the row's faults.

        The node is None if it cannot be made. If the row reads an output of a node with faults,
        there is no node, and no further fault.
        """
        node: LoweredNode | None = None
        faults: list[str] = []
        if self._lost.isdisjoint(row.inputs):
            faults = [*self._value_faults(row)]
            if not faults and isinstance(row, TransformNode):
                node, faults = row, [*self._transform(row)]
            elif not faults and isinstance(row, NodeChoice):
                node, faults = self._operator(row)
        if isinstance(row, NodeChoice):
            self._enter(name for name in row.outputs if name in self._graph.values)
        self._lost.update(name for name in row.outputs if name not in self._values)
        return node, faults

    def _enter(self, names: Iterable[str]) -> None:
        """Add values of the network, which a row makes, to the values so far, in their chosen
        layouts.
        """
        for name in names:
            if name not in self._values:
                value = self._graph.values[name]
                layout = self._choices.layouts.get(name, Layout.plain(value.dims))
                self._values[name] = Value(name, value.dtype, value.dims, layout)
                self._origin[name] = name

    def _inputs_and_constants(self) -> Iterator[tuple[str, Value]]:
        """Yield (name, value) for each input, and for each constant that is used."""
        graph, layouts = self._graph, self._choices.layouts
        read = {name for row in self._choices.rows for name in row.inputs}
        read |= {*self._choices.outputs.values(), *graph.inputs}
        for name, value in graph.values.items():
            constant = name in graph.constants
            if name in read and (constant or name in graph.inputs):
                layout = layouts.get(name, Layout.plain(value.dims))
                yield name, Value(name, value.dtype, value.dims, layout, constant)

    def _value_faults(self, row: NodeChoice | TransformNode) -> Iterator[str]:
        """Yield a fault for each value that a row reads although no row before it makes the value.

        Yield another fault if the row makes values that exist already.
        """
        for name in row.inputs:
            if name not in self._values:
                hint = did_you_mean(name, self._values)
                yield f"it reads {name!r}, which nothing before it makes{hint}"
        if repeated := [name for name in row.outputs if name in self._values]:
            yield f"it makes {', '.join(repeated)} a second time"

    def _transform(self, row: TransformNode) -> Iterator[str]:
        """Add the output of a Transform to the values so far, and yield the faults of the
        Transform.
        """
        source, target = self._values[row.input], self._choices.layouts[row.output]
        self._values[row.output] = replace(source, name=row.output, layout=target)
        self._origin[row.output] = self._origin[row.input]
        if not _holds(target, source):
            yield f"layout {target} does not hold {source.tensor().summary()}"
        elif fault := self._library_absence(row.library):
            yield fault
        elif not ready().libraries[row.library].transforms:
            yield f"{row.library} has no transformer"
        elif not self._preferences.allows(row.library):
            yield f"{row.library} is not among the libraries that may be used"
        else:
            change, x = LayoutChange(source.layout, target), source.tensor()
            y, asking = self._values[row.output].tensor(), PartialEvaluation()
            try:
                run_transform(row.name, row.library, x, y, change, asking, decided=False)
            except (Decline, VTensorError) as why:
                yield f"{row.library} declines: {_first_line(why)}"

    def _operator(self, row: NodeChoice) -> tuple[OpNode | None, list[str]]:
        """Add the outputs of a row to the values so far. Return the row's node, and its faults.

        The node is None if the row does not fit the graph.
        """
        original = self._graph.nodes.get(row.name)
        if original is None:
            into = self._graph.merged.get(row.name)
            hint = did_you_mean(row.name, self._graph.nodes)
            return None, [f"it is part of {into!r} now" if into else f"no such node{hint}"]
        variant, count = row.variant, len(row.variant.followers)
        followers = tuple(self._graph.offers.get(row.name, ()))[:count]
        if tuple(follower.name for follower in followers) != variant.followers:
            return None, [f"not all of {', '.join(variant.followers)} can be fused into it"]
        label = " + ".join([label_of(original.op), *(follower.op_name for follower in followers)])
        inputs, outputs = original.inputs, original.outputs
        for follower in followers:
            inputs = (*inputs, *(name for name in follower.inputs if name != outputs[0]))
            outputs = (*follower.outputs, *original.outputs[1:])
        layout_faults = [*self._enter_outputs(row, outputs)]
        faults = [f"it is {label} now, not {row.op_name}"] * (label != row.op_name)
        if tuple(self._origin[name] for name in row.inputs) != inputs:
            faults.append(f"it reads {', '.join(inputs) or 'nothing'} now")
        if row.outputs != outputs:
            faults.append(f"it makes {', '.join(outputs)} now")
        if faults or layout_faults:
            return None, [*faults, *layout_faults]
        value = original.outputs[0] if followers else ""
        fields = (row.inputs, outputs, row.roles, variant, followers, value)
        node = OpNode(row.name, original.op, label, *fields)
        self._fused |= dict.fromkeys(variant.followers, row.name)
        return node, [*self._library_faults(node)]

    def _enter_outputs(self, row: NodeChoice, outputs: Sequence[str]) -> Iterator[str]:
        """Add ``outputs`` to the values so far. Yield a fault for each operand of the row whose
        layout or device does not fit its value.
        """
        self._enter(outputs)
        names = (*row.inputs, *row.outputs)
        for name, form in zip(names, row.variant.forms, strict=True):
            value, layout = self._values.get(name), form.layout
            if value is None:
                continue  # another fault says so
            if form.device != value.tensor().device:
                yield f"{name} is on {value.tensor().device}, not on {form.device}"
            elif not _holds(layout, value):
                yield f"layout {layout} does not hold {value.tensor().summary()}"
            elif not value.layout.same(layout.normalized(value.dtype), value.dims):
                yield f"{name} is in {value.layout}, and it takes {layout}"

    def _library_faults(self, node: OpNode) -> Iterator[str]:
        """Yield the reason why a node's library does not take it, if it does not."""
        library, op = node.variant.library, info_of(node.op).name
        if fault := self._library_absence(library):
            yield fault
        elif fault := self._preferences.refusal(node.name, op, library):
            yield f"{library}: {fault}"
        else:
            values = []
            for name, layout in zip(node.inputs, node.variant.layouts, strict=False):
                values.append(self._values[name].tensor(self._constants.get(self._origin[name])))
                values[-1].produced_layout = layout
            try:
                confirmed(node, values)
            except VTensorError as why:
                yield f"{library} declines: {_first_line(why)}"

    def _library_absence(self, library: str) -> str:
        """Return why a library cannot be used, or an empty text if it can."""
        known = ready().libraries
        if library not in known:
            return f"library {library} is not registered; registered are {', '.join(sorted(known))}"
        absent = known[library].absent
        return f"library {library} cannot be used here: {absent}" if absent else ""


def _holds(layout: Layout, value: Value) -> bool:
    """Return whether a layout has exactly the dims of a value."""
    return not layout.is_any and set(layout.dims) == value.dims.keys()


def _first_line(why: Exception) -> str:
    return str(why).partition("\n")[0]
