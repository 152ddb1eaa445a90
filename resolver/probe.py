"""What a node would decide if its inputs came in other layouts: the rows that it can run in.

A node is *open* when its decision follows what it is given: its invoker left ANY, or alternatives,
or its library's guideline looks at the layouts that come.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from libdesc.choice import Choice
from libdesc.dispatcher import DispatchContext
from ptensor.evaluation import Call, Decision, Way, installed
from ptensor.layout import Layout
from resolver.evaluate import PartialEvaluation, Resolution
from resolver.extended import OpNode
from vtensor.errors import VTensorError
from vtensor.operators import run_compute
from vtensor.tensor import VTensor


class Offer(NamedTuple):
    """The other ways in which a node's library can run it, and whether its arithmetic outweighs."""

    ways: tuple[Decision, ...] = ()
    heavy: bool = False


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

    def offer(self, node: OpNode) -> Offer:
        """What the node's library offers beside what it decided itself; each way as it confirms."""
        inputs = [_twin(self._values[name]) for name in node.inputs]
        asked = _Asking()
        made = _decision(node, inputs, asked)
        ways = (_in_way(made, way) for way in asked.ways)
        return Offer(tuple(way for way in ways if _holds(node, inputs, way)), asked.heavy)

    def _ask(
        self, node: OpNode, values: Sequence[VTensor], given: Sequence[Layout]
    ) -> Decision | None:
        inputs = [_twin(value, layout) for value, layout in zip(values, given, strict=True)]
        try:
            return _decision(node, inputs, PartialEvaluation())
        except VTensorError:  # NoInvokerError: it takes the call, but not so
            return None


def _twin(value: VTensor, layout: Layout | None = None) -> VTensor:
    """A value as an operand of its own, perhaps in another layout."""
    twin = VTensor(value.dtype, value.dims, value.option)
    if value.storage is not None:
        twin.storage = value.storage
    twin.produced_layout = layout or value.produced_layout
    return twin


class _Asking(PartialEvaluation):
    """Evaluation that asks the call's routine for its ways, too."""

    def __init__(self) -> None:
        self.ways: list[Way] = []
        self.heavy = False

    def decided(self, call: Call) -> None:
        """Keep what the routine says."""
        if call.routine is not None:
            self.ways, self.heavy = list(call.routine.ways()), call.routine.heavy


def _decision(
    node: OpNode,
    inputs: Sequence[VTensor],
    evaluation: PartialEvaluation,
    given: Decision | None = None,
) -> Decision:
    """What is decided for a node on its library; what is given if its invoker agrees."""
    own, followers = node.split(inputs)
    ctx = DispatchContext(
        node=node.name,
        names=node.outputs,
        decision=given,
        choice=Choice(nodes={node.name: node.decision.library}),
        followers=followers,
    )
    with installed(evaluation):
        run_compute(ctx, node.op, own)
    assert ctx.decision is not None, "it was decided once already"
    return ctx.decision


def _holds(node: OpNode, inputs: Sequence[VTensor], way: Decision) -> bool:
    """The node's invoker and its library agree to a way."""
    try:
        _decision(node, inputs, PartialEvaluation(), way)
    except VTensorError:  # the invoker asks for something else, or the library does not confirm
        return False
    return True


def _in_way(made: Decision, way: Way) -> Decision:
    """A decision in one of the ways; asked for is then what the way has."""
    pairs = zip(made.requirements, way.layouts, strict=True)
    asked = tuple(replace(one, layouts=(layout,)) if one.layouts else one for one, layout in pairs)
    return replace(made, layouts=way.layouts, requirements=asked, form=way.form)
