"""Insertion of a Transform wherever the produced layout is not the required one.

Source: the paper, section 5.1, Fig. 7(c).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from types import MappingProxyType

from libdesc.transforms import LayoutChange, choose_library
from ptensor.evaluation import installed
from ptensor.layout import Layout
from resolver.evaluate import PartialEvaluation
from resolver.lowered import LoweredGraph, LoweredNode, OpNode, Reason, TransformNode, Value
from vtensor.errors import ResolutionError
from vtensor.language.records import replace

#: Called with the node that makes a value (None for an input or constant), a node that reads it,
#: and the value. Returns the layout in which the value passes between the two; None means the
#: layout in which it is made.
Passing = Callable[[OpNode | None, OpNode, Value], Layout | None]

#: Key of a Transform whose library is known: its reason, and the change of layout.
Known = tuple[Reason, LayoutChange]


def extend(
    graph: LoweredGraph,
    output_layouts: Mapping[str, Layout] | None = None,
    passing: Passing = lambda *_: None,
    known: Mapping[Known, str] = MappingProxyType({}),
) -> LoweredGraph:
    """Return the graph with a Transform on each edge where the producer's layout is not the one
    required.

    Args:
        graph: the resolver's result, without Transforms.
        output_layouts: layouts in which outputs are delivered, by name; by default the graph's own
            ``delivery``.
        passing: called for each edge. It may return a layout in which the value has to pass between
            the two nodes. The value is then transformed to this layout, and from there to the
            layout that the consumer requires. If it returns None, the value is transformed to the
            latter only.
        known: the libraries of Transforms for which they are decided already, by reason and change
            of layout.

    Raises:
        ResolutionError: an output layout does not fit its output, or rounds its values, or there is
            no such output.
        NoInvokerError: no library can change one layout into another.
    """
    delivery = graph.delivery if output_layouts is None else output_layouts
    unknown = [alias for alias in delivery if alias not in graph.outputs]
    if unknown:
        text = f"output layouts are given for {', '.join(unknown)}"
        raise ResolutionError(f"{text}; outputs are {', '.join(graph.outputs)}")
    insert = _Inserter(graph, passing, known)
    with installed(insert.evaluation):
        for node in graph.operators:
            inputs = tuple(insert.input(node, index) for index in range(len(node.inputs)))
            insert.nodes.append(replace(node, inputs=inputs))
        outputs = {
            alias: insert.output(alias, name, delivery.get(alias))
            for alias, name in graph.outputs.items()
        }
    return replace(
        graph, values=insert.values, nodes=insert.nodes, outputs=outputs, delivery=delivery
    )


class _Inserter:
    """The values and nodes of a graph while Transforms are inserted."""

    def __init__(self, graph: LoweredGraph, passing: Passing, known: Mapping[Known, str]) -> None:
        self.graph = graph
        self.passing = passing
        self.known = known
        self.values = dict(graph.values)
        self.nodes: list[LoweredNode] = []
        self.makers = {name: node for node in graph.operators for name in node.outputs}
        self.taken = {*graph.values, *(node.name for node in graph.nodes)}
        self.evaluation = PartialEvaluation()
        self.counts: Counter[str] = Counter()
        #: The libraries of Transforms found so far. A key has the element type, sizes and device of
        #: the value, the change of layout, and the libraries that are asked first.
        self.libraries: dict[object, str] = {}

    def input(self, node: OpNode, index: int) -> str:
        """Return the name of the value that an input of a node reads.

        It is the producer's value, or the output of a Transform, which is added if needed.

        Args:
            index: the index of the input among the node's operands.
        """
        name, required = node.inputs[index], node.variant.layouts[index]
        maker = self.makers.get(name)
        reason = Reason(
            node.name,
            name,
            node.roles[index],
            node.variant.library,
            node.op_name,
            maker.op_name if maker else "",
            node.variant.requirements[index],
        )
        passed = self.passing(maker, node, self.values[name])
        if passed is not None:
            name = self._transform(name, passed, reason)
        return self._transform(name, required, reason)

    def output(self, alias: str, name: str, layout: Layout | None) -> str:
        """Return the name of the value to deliver as an output: the producer's value, or the output
        of a Transform, which is added if needed.

        Args:
            alias: the name of the output.
            name: the name of the producer's value.
            layout: the wanted layout; None for the declared order, ANY for the producer's.

        Raises:
            ResolutionError: the layout does not fit the output, or rounds its values.
        """
        value = self.values[name]
        layout = layout or Layout.plain(value.dims)
        if layout.is_any:
            return name
        if set(layout.dims) != value.dims.keys():
            raise ResolutionError(
                f"output {alias!r}: layout {layout} does not hold its dims {' '.join(value.dims)}"
            )
        if not self.evaluation.rounding and layout.rounds(value.dtype):
            raise ResolutionError(
                f"output {alias!r}: layout {layout} rounds its {value.dtype}, and the session's "
                "tolerance is 0; deliver it in its own element type"
            )
        maker = self.makers.get(name)
        reason = Reason(alias, name, producer_op=maker.op_name if maker else "")
        return self._transform(name, layout, reason)

    def _transform(self, name: str, required: Layout, reason: Reason) -> str:
        """Return the name of a value in the required layout.

        It is ``name`` itself if the layouts agree, else the output of a Transform, which is added.
        """
        value = self.values[name]
        required = required.normalized(value.dtype)
        if value.layout.same(required, value.dims):
            return name
        change = LayoutChange(value.layout, required)
        library = self.known.get((reason, change)) or self._library(change, reason)
        node, target = self._names(value)
        self.values[target] = replace(value, name=target, layout=required)
        self.nodes.append(TransformNode(node, value.name, target, library, reason))
        return target

    def _library(self, change: LayoutChange, reason: Reason) -> str:
        """Return the library that runs a Transform: the consumer's, else the producer's, else
        another one that can.
        """
        maker = self.makers.get(reason.producer)
        preferred = (reason.library, maker.variant.library if maker else "")
        tensor = self.graph.tensors[reason.producer]
        call = (tensor.dtype, tuple(tensor.dims.items()), tensor.device, change, preferred)
        if (library := self.libraries.get(call)) is None:
            candidates = filter(None, preferred)
            library = choose_library(
                tensor, change, candidates, self.evaluation, self.graph.preferences
            )
            self.libraries[call] = library
        return library

    def _names(self, value: Value) -> tuple[str, str]:
        """Return unused names for a new Transform and its output."""
        kind = "ahead" if value.constant else "transform"  # constants are transformed at load
        while True:
            number = self.counts[kind]
            self.counts[kind] += 1
            node, target = f"{kind}:{number}", f"{value.name}@{number}"
            if value.constant:
                target = f"{value.name}@ahead:{number}"
            if self.taken.isdisjoint((node, target)):
                return node, target
