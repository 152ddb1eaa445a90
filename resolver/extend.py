"""Insert a Transform node wherever what is produced is not what is required.

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

#: In which layout a value passes from its maker (None: an input, a constant) to a node; None is as
#: it lies.
Passing = Callable[[OpNode | None, OpNode, Value], Layout | None]

#: A Transform that exists already: why, and what it changes.
Known = tuple[Reason, LayoutChange]


def extend(
    graph: LoweredGraph,
    output_layouts: Mapping[str, Layout] | None = None,
    passing: Passing = lambda *_: None,
    known: Mapping[Known, str] = MappingProxyType({}),
) -> LoweredGraph:
    """Put a Transform on each edge that needs one.

    Args:
        graph: what the resolver decided; it has no Transforms.
        output_layouts: how outputs are delivered, by name, where the graph does not say it yet.
        passing: an edge has a Transform to this layout first, where it is another.
        known: libraries that are known to run Transforms.

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
    """Collects the nodes and values of a graph that is being extended."""

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
        #: Who runs Transforms, by all that libraries are told of one.
        self.libraries: dict[object, str] = {}

    def input(self, node: OpNode, index: int) -> str:
        """The value that a node's input reads: the producer's, or a Transform's of it."""
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
        """The value that is delivered under a name."""
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
        """The value itself if it lies as required, else a Transform's of it."""
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
        """Who runs a Transform: the consumer's library, the producer's, or another that can."""
        maker = self.makers.get(reason.producer)
        preferred = (reason.library, maker.variant.library if maker else "")
        tensor = self.graph.tensors[reason.producer]
        call = (tensor.dtype, tuple(tensor.dims.items()), tensor.device, change, preferred)
        if (found := self.libraries.get(call)) is None:
            asked = filter(None, preferred)
            found = choose_library(tensor, change, asked, self.evaluation, self.graph.preferences)
            self.libraries[call] = found
        return found

    def _names(self, value: Value) -> tuple[str, str]:
        """Names of a new Transform and its output; a model may use such names itself."""
        kind = "ahead" if value.constant else "transform"  # constants are changed while loading
        while True:
            number = self.counts[kind]
            self.counts[kind] += 1
            node, target = f"{kind}:{number}", f"{value.name}@{number}"
            if value.constant:
                target = f"{value.name}@ahead:{number}"
            if self.taken.isdisjoint((node, target)):
                return node, target
