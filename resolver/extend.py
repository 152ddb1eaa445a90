"""Insert a Transform node wherever what is produced is not what is required.

Source: the paper, section 5.1, Fig. 7(c).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace

from libdesc.preferences import EVERY, Preferences
from libdesc.transforms import LayoutChange, choose_library
from ptensor.evaluation import installed
from ptensor.layout import Layout
from resolver.evaluate import PartialEvaluation, Resolution
from resolver.extended import ExtendedGraph, OpNode, Origin, Reason, TransformNode, Value
from vtensor.errors import ResolutionError
from vtensor.language.tensor import VTensor

#: In which layout a value passes from its maker (None: an input, a constant) to a node; None is as
#: it lies.
Passing = Callable[[OpNode | None, OpNode, VTensor], Layout | None]


def extend(
    resolution: Resolution,
    output_layouts: Mapping[str, Layout] | None = None,
    preferences: Preferences = EVERY,
    passing: Passing = lambda *_: None,
) -> ExtendedGraph:
    """Make the extended graph of a resolution: one Transform an edge that needs one.

    Args:
        resolution: what the resolver decided.
        output_layouts: how outputs are delivered, by name; declared order where nothing is said, as
            their producers leave them where ANY is.
        preferences: which libraries may run Transforms, and their order.
        passing: an edge has a Transform to this layout first, where it is another.

    Raises:
        ResolutionError: an output layout does not fit its output, or rounds its values, or there is
            no such output.
        NoInvokerError: no library can change one layout into another.
    """
    unknown = [alias for alias in output_layouts or () if alias not in resolution.outputs]
    if unknown:
        known = ", ".join(resolution.outputs)
        raise ResolutionError(
            f"output layouts are given for {', '.join(unknown)}; outputs are {known}"
        )
    graph = ExtendedGraph(
        resolution.name,
        inputs=resolution.inputs,
        outputs=dict(resolution.outputs),
        merged=resolution.merged,
        passes=resolution.passes,
        origin=Origin(resolution, dict(output_layouts or {}), preferences),
    )
    for value in resolution.values.values():
        layout = resolution.layout(value.name)
        graph.values[value.name] = Value(
            value.name, value.dtype, value.dims, layout, value.constant
        )
    makers = {name: node for node in resolution.nodes for name in node.outputs}
    insert = _Inserter(graph, resolution, makers, preferences, passing)
    with installed(insert.evaluation):
        for node in resolution.nodes:
            inputs = tuple(insert.input(node, index) for index in range(len(node.inputs)))
            graph.nodes.append(replace(node, inputs=inputs))
        for alias, name in resolution.outputs.items():
            layout = (output_layouts or {}).get(alias, Layout.plain(graph.values[name].dims))
            graph.outputs[alias] = insert.output(alias, name, layout)
    return graph


class _Inserter:
    """Adds Transforms to a graph that is being made."""

    def __init__(
        self,
        graph: ExtendedGraph,
        resolution: Resolution,
        makers: Mapping[str, OpNode],
        preferences: Preferences,
        passing: Passing,
    ) -> None:
        self.graph = graph
        self.resolution = resolution
        self.makers = makers
        self.preferences = preferences
        self.passing = passing
        self.taken = {*resolution.values, *(node.name for node in resolution.nodes)}
        self.evaluation = PartialEvaluation()
        self.counts: Counter[str] = Counter()

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
        passed = self.passing(maker, node, self.resolution.values[name])
        if passed is not None:
            name = self._transform(name, passed, reason)
        return self._transform(name, required, reason)

    def output(self, alias: str, name: str, layout: Layout) -> str:
        """The value that is delivered under a name."""
        value = self.graph.values[name]
        if layout.is_any:
            return name
        if set(layout.dims) != value.dims.keys():
            raise ResolutionError(
                f"output {alias!r}: layout {layout} does not hold its dims {' '.join(value.dims)}"
            )
        if not self.evaluation.tolerance and layout.rounds(value.dtype):
            raise ResolutionError(
                f"output {alias!r}: layout {layout} rounds its {value.dtype}, and the session's "
                "tolerance is 0; deliver it in its own element type"
            )
        maker = self.makers.get(name)
        reason = Reason(alias, name, producer_op=maker.op_name if maker else "")
        return self._transform(name, layout, reason)

    def _transform(self, name: str, required: Layout, reason: Reason) -> str:
        """The value itself if it lies as required, else a Transform's of it."""
        value = self.graph.values[name]
        required = required.normalized(value.dtype)
        if value.layout.same(required, value.dims):
            return name
        maker = self.makers.get(reason.producer)
        preferred = [reason.library, maker.variant.library if maker else ""]
        change = LayoutChange(value.layout, required)
        library = choose_library(
            self.resolution.values[reason.producer],
            change,
            filter(None, preferred),
            self.evaluation,
            self.preferences,
        )
        node, target = self._names(value)
        self.graph.values[target] = Value(target, value.dtype, value.dims, required, value.constant)
        self.graph.nodes.append(TransformNode(node, value.name, target, library, reason))
        return target

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
