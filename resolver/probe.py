"""What a node would decide if its inputs came in other layouts: the variants that it has.

A node is *open* when its variant follows what it is given: its invoker left ANY, or alternatives,
or its library's guideline looks at the layouts that come.
"""

from __future__ import annotations

from collections.abc import Sequence

from libdesc.dispatcher import DispatchContext
from libdesc.preferences import Preferences
from ptensor.evaluation import Call, Variant, installed
from ptensor.layout import Layout
from resolver.calls import any_observed
from resolver.evaluate import PartialEvaluation
from resolver.lowered import LoweredGraph, OpNode
from vtensor.errors import VTensorError
from vtensor.language.exact import exact
from vtensor.language.operators import run_compute
from vtensor.language.records import replace
from vtensor.language.tensor import VTensor


class Prober:
    """Asks the nodes of a graph again, each on its own library; equal questions once.

    Only a node whose variant is inexact is answered with such.

    Args:
        graph: whose nodes are asked.
        earlier: has asked a graph of the same network, and lends its answers.
    """

    def __init__(self, graph: LoweredGraph, earlier: Prober | None = None) -> None:
        self._values = graph.bare.tensors
        self._answers: dict[object, Variant | None] = earlier._answers if earlier else {}
        self._taken: dict[object, bool] = earlier._taken if earlier else {}

    def decide(self, node: OpNode, given: Sequence[Layout]) -> Variant | None:
        """The variant for inputs in these layouts; None where its library declines them."""
        values = [self._values[name] for name in node.inputs]
        key = _question(node, values, given)
        if key not in self._answers:
            self._answers[key] = self._ask(node, values, given)
        found = self._answers[key]
        return found and replace(found, followers=node.variant.followers)

    def variants(self, node: OpNode) -> list[Variant]:
        """What the node's library has beside what it decided itself; each as it confirms."""
        inputs = self._operands(node)
        asked = _Asking(node.variant.inexact, listing=True)
        made = _decided(node, inputs, asked)
        others = (_asked_for(made, one) for one in asked.variants)
        return [one for one in others if _holds(node, inputs, one)]

    def heavy(self, node: OpNode) -> bool:
        """The node's library says that arithmetic outweighs the memory that it touches."""
        asked = _Asking(node.variant.inexact)
        _decided(node, self._operands(node), asked)
        return asked.heavy

    def takes(self, node: OpNode, variant: Variant) -> bool:
        """A library runs a node with operands that each lie as a variant says, ANY or not."""
        values = [self._values[name] for name in node.inputs]
        key = (_question(node, values, [one.produced_layout for one in values]), variant)
        if any_observed(values) or (found := self._taken.get(key)) is None:
            found = self._takes(node, variant)
            if not any_observed(values):
                self._taken[key] = found
        return found

    def _takes(self, node: OpNode, variant: Variant) -> bool:
        there, inputs = replace(node, variant=variant), self._operands(node)
        asked = _Asking(node.variant.inexact)
        try:
            _decided(there, inputs, asked)
        except VTensorError:
            return False
        return asked.each and _holds(there, inputs, variant)

    def _operands(self, node: OpNode) -> list[VTensor]:
        return [_twin(self._values[name]) for name in node.inputs]

    def _ask(
        self, node: OpNode, values: Sequence[VTensor], given: Sequence[Layout]
    ) -> Variant | None:
        return answered(node, [*map(_twin, values, given)])


def _question(node: OpNode, values: Sequence[VTensor], given: Sequence[Layout | None]) -> object:
    """All that an answer depends on, for inputs in these layouts."""
    rows = zip(values, given, strict=True)
    return (
        node.op_name,
        exact((node.op, *(follower.op for follower in node.followers))),
        node.variant.library,
        node.variant.inexact,
        tuple((tuple(v.dims.items()), v.dtype, v.constant, layout) for v, layout in rows),
    )


def answered(node: OpNode, inputs: Sequence[VTensor]) -> Variant | None:
    """The variant of a node whose inputs come so; None where its library declines them."""
    try:
        return _decided(node, inputs, PartialEvaluation(node.variant.inexact))
    except VTensorError:  # NoInvokerError: it takes the call, but not so
        return None


def _twin(value: VTensor, layout: Layout | None = None) -> VTensor:
    """A value as an operand of its own, perhaps in another layout."""
    twin = VTensor.as_known(value.dtype, dict(value.dims), value.option)
    if value.storage is not None:
        twin.storage = value.storage
    twin.produced_layout = layout or value.produced_layout
    return twin


class _Asking(PartialEvaluation):
    """Evaluation that asks the call's routine what it is like; and for its variants, if these are
    to be listed, which takes longer than all else.
    """

    def __init__(self, inexact: bool = False, listing: bool = False) -> None:
        super().__init__(inexact)
        self._listing = listing
        self.variants: list[Variant] = []
        self.heavy = self.each = False

    def decided(self, call: Call) -> None:
        """Keep what the routine says."""
        if call.routine is not None:
            self.heavy, self.each = call.routine.heavy, call.routine.each
            if self._listing:
                self.variants = list(call.routine.variants(call))


def _decided(
    node: OpNode,
    inputs: Sequence[VTensor],
    evaluation: PartialEvaluation,
    given: Variant | None = None,
) -> Variant:
    """What is decided for a node on its library; what is given if its invoker agrees."""
    own, followers = node.split(inputs)
    ctx = DispatchContext(
        node=node.name,
        names=node.outputs,
        variant=given,
        preferences=Preferences(nodes={node.name: node.variant.library}),
        followers=followers,
    )
    with installed(evaluation):
        run_compute(ctx, node.op, own)
    assert ctx.variant is not None, "it was decided once already"
    return replace(ctx.variant, followers=node.variant.followers)


class _Confirming(PartialEvaluation):
    """Evaluation of what was decided elsewhere: conditions and kernels are looked at once more."""

    confirming = True


def confirmed(node: OpNode, inputs: Sequence[VTensor]) -> None:
    """See that a node's library takes it in its variant.

    Args:
        node: with its variant.
        inputs: its operands, lying as the variant says.

    Raises:
        VTensorError: it does not, or its invoker asks for something else.
    """
    _decided(node, inputs, _Confirming(node.variant.inexact), node.variant)


def _holds(node: OpNode, inputs: Sequence[VTensor], one: Variant) -> bool:
    """The node's invoker and its library agree to a variant."""
    try:
        _decided(node, inputs, PartialEvaluation(node.variant.inexact), one)
    except VTensorError:  # the invoker asks for something else, or the library does not confirm
        return False
    return True


def _asked_for(made: Variant, one: Variant) -> Variant:
    """A variant of a library's, as if its invoker had asked for it where it was free."""
    pairs = zip(made.requirements, one.layouts, strict=True)
    asked = tuple(replace(one, layouts=(layout,)) if one.layouts else one for one, layout in pairs)
    return replace(made, forms=one.forms, requirements=asked, kernel=one.kernel)
