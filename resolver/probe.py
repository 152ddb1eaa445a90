"""What a node would decide if its inputs came in other layouts: the rows that it can run in.

A node is *open* when its decision follows what it is given: its invoker left ANY, or alternatives,
or its library's guideline looks at the layouts that come.
"""

from __future__ import annotations

from collections.abc import Sequence

from libdesc.choice import Choice
from libdesc.dispatcher import DispatchContext
from ptensor.evaluation import Decision, installed
from ptensor.layout import Layout
from resolver.evaluate import PartialEvaluation, Resolution
from resolver.extended import OpNode
from vtensor.errors import VTensorError
from vtensor.operators import run_compute
from vtensor.tensor import VTensor


class Prober:
    """Asks the nodes of a resolution again, each on its own library; equal questions once."""

    def __init__(self, resolution: Resolution) -> None:
        self._values = resolution.values
        self._answers: dict[object, Decision | None] = {}

    def decide(self, node: OpNode, given: Sequence[Layout]) -> Decision | None:
        """The decision for inputs in these layouts; None where its library declines them."""
        values = [self._values[name] for name in node.inputs]
        rows = zip(values, given, strict=True)
        key = (
            node.op_name,
            repr([node.op, *(follower.op for follower in node.followers)]),
            node.decision.library,
            tuple((tuple(v.dims.items()), v.dtype, v.constant, layout) for v, layout in rows),
        )
        if key not in self._answers:
            self._answers[key] = self._ask(node, values, given)
        return self._answers[key]

    def _ask(
        self, node: OpNode, values: Sequence[VTensor], given: Sequence[Layout]
    ) -> Decision | None:
        inputs = []
        for value, layout in zip(values, given, strict=True):
            twin = VTensor(value.dtype, value.dims, value.option)
            if value.storage is not None:
                twin.storage = value.storage
            twin.produced_layout = layout
            inputs.append(twin)
        own, followers = node.split(inputs)
        ctx = DispatchContext(
            node=node.name,
            names=node.outputs,
            choice=Choice(nodes={node.name: node.decision.library}),
            followers=followers,
        )
        with installed(PartialEvaluation()):
            try:
                run_compute(ctx, node.op, own)
            except VTensorError:  # NoInvokerError: it takes the call, but not so
                return None
        return ctx.decision
