"""Evaluation of nodes for other input layouts than those for which they were resolved.

A node is *open* if its variant depends on the layouts of its inputs. Then its invoker required ANY
of an operand, or one of several layouts; or its library's guideline looks at the layouts of the
inputs.
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
    """Evaluates nodes of a graph for other layouts, each node on its own library. Equal calls are
    evaluated once.

    Only a node whose present variant is approximate gets other approximate variants.

    Args:
        graph: the graph whose nodes are probed.
        earlier: the Prober of another graph of the same network. Its results are reused.
    """

    def __init__(self, graph: LoweredGraph, earlier: Prober | None = None) -> None:
        self._values = graph.bare.tensors
        self._answers: dict[object, Variant | None] = earlier._answers if earlier else {}
        self._taken: dict[object, bool] = earlier._taken if earlier else {}

    def decide(self, node: OpNode, layouts: Sequence[Layout]) -> Variant | None:
        """Return the variant of a node for inputs in these layouts, or None if its library declines
        them.
        """
        values = [self._values[name] for name in node.inputs]
        key = _call_key(node, values, layouts)
        if key not in self._answers:
            self._answers[key] = self._ask(node, values, layouts)
        variant = self._answers[key]
        return variant and replace(variant, followers=node.variant.followers)

    def variants(self, node: OpNode) -> list[Variant]:
        """Return the variants that the node's library describes as worth measuring, as far as it
        confirms them.
        """
        inputs = self._operands(node)
        evaluation = _Asking(node.variant.inexact, listing=True)
        decided = _decided(node, inputs, evaluation)
        others = (_as_required(decided, offered) for offered in evaluation.variants)
        return [variant for variant in others if _is_confirmed(node, inputs, variant)]

    def heavy(self, node: OpNode) -> bool:
        """Return whether, according to the node's library, the node's arithmetic takes longer than
        its memory accesses.
        """
        evaluation = _Asking(node.variant.inexact)
        _decided(node, self._operands(node), evaluation)
        return evaluation.heavy

    def takes(self, node: OpNode, variant: Variant) -> bool:
        """Return whether the node's library can run the node with its operands in the layouts of
        ``variant``.

        These layouts may differ from one operand to the next. So the result is False if all
        operands for which the invoker asks for ANY need the same layout (``Routine.each`` is
        False).
        """
        values = [self._values[name] for name in node.inputs]
        key = (_call_key(node, values, [value.produced_layout for value in values]), variant)
        if any_observed(values) or (taken := self._taken.get(key)) is None:
            taken = self._takes(node, variant)
            if not any_observed(values):
                self._taken[key] = taken
        return taken

    def _takes(self, node: OpNode, variant: Variant) -> bool:
        probed, inputs = replace(node, variant=variant), self._operands(node)
        evaluation = _Asking(node.variant.inexact)
        try:
            _decided(probed, inputs, evaluation)
        except VTensorError:
            return False
        return evaluation.each and _is_confirmed(probed, inputs, variant)

    def _operands(self, node: OpNode) -> list[VTensor]:
        """Return new VTensors for a node's inputs, in the layouts that the values have in the
        graph.
        """
        return [_twin(self._values[name]) for name in node.inputs]

    def _ask(
        self, node: OpNode, values: Sequence[VTensor], layouts: Sequence[Layout]
    ) -> Variant | None:
        return answered(node, [*map(_twin, values, layouts)])


def _call_key(node: OpNode, values: Sequence[VTensor], layouts: Sequence[Layout | None]) -> object:
    """Return the key of a call: all on which its variant depends, for inputs in the layouts
    ``layouts``.
    """
    rows = zip(values, layouts, strict=True)
    return (
        node.op_name,
        exact((node.op, *(follower.op for follower in node.followers))),
        node.variant.library,
        node.variant.inexact,
        tuple((tuple(v.dims.items()), v.dtype, v.constant, layout) for v, layout in rows),
    )


def answered(node: OpNode, inputs: Sequence[VTensor]) -> Variant | None:
    """Evaluate a node on its library for these inputs. Return its variant, or None if the library
    declines them.
    """
    try:
        return _decided(node, inputs, PartialEvaluation(node.variant.inexact))
    except VTensorError:  # the library declines the call in these layouts
        return None


def _twin(value: VTensor, layout: Layout | None = None) -> VTensor:
    """Return a new VTensor like ``value``, produced in ``layout`` if one is given."""
    twin = VTensor.as_known(value.dtype, dict(value.dims), value.option)
    if value.storage is not None:
        twin.storage = value.storage
    twin.produced_layout = layout or value.produced_layout
    return twin


class _Asking(PartialEvaluation):
    """Partial evaluation that also keeps what the routine of the call says about itself.

    Args:
        inexact: True accepts approximate routines.
        listing: True keeps the routine's variants, too; to list them takes longer than all else.
    """

    def __init__(self, inexact: bool = False, listing: bool = False) -> None:
        super().__init__(inexact)
        self._listing = listing
        self.variants: list[Variant] = []
        self.heavy = self.each = False

    def decided(self, call: Call) -> None:
        """Keep what the routine says: ``heavy``, ``each`` and, with ``listing``, its variants."""
        if call.routine is not None:
            self.heavy, self.each = call.routine.heavy, call.routine.each
            if self._listing:
                self.variants = list(call.routine.variants(call))


def _decided(
    node: OpNode,
    inputs: Sequence[VTensor],
    evaluation: PartialEvaluation,
    settled: Variant | None = None,
) -> Variant:
    """Evaluate a node on its library, and return its variant.

    Args:
        node: the node, whose library and followers stay.
        inputs: operands of the node and of its followers.
        evaluation: the evaluation to install.
        settled: the variant that the invoker has to agree with; None lets it decide.

    Raises:
        VTensorError: the library declines, or the invoker asks for other layouts than the given
            ones.
    """
    own_inputs, followers = node.split(inputs)
    ctx = DispatchContext(
        node=node.name,
        names=node.outputs,
        variant=settled,
        preferences=Preferences(nodes={node.name: node.variant.library}),
        followers=followers,
    )
    with installed(evaluation):
        run_compute(ctx, node.op, own_inputs)
    assert ctx.variant is not None, "it was decided once already"
    return replace(ctx.variant, followers=node.variant.followers)


class _Confirming(PartialEvaluation):
    """Partial evaluation of calls whose variant is given: conditions of invokers are checked again,
    and libraries are asked about kernels again.
    """

    confirming = True


def confirmed(node: OpNode, inputs: Sequence[VTensor]) -> None:
    """Check that a node's library takes the node in its variant.

    Args:
        node: the node with its variant.
        inputs: its operands, in the layouts of the variant.

    Raises:
        VTensorError: the library declines, or the node's invoker asks for other layouts.
    """
    _decided(node, inputs, _Confirming(node.variant.inexact), node.variant)


def _is_confirmed(node: OpNode, inputs: Sequence[VTensor], variant: Variant) -> bool:
    """Return whether the node's invoker and its library agree to ``variant`` for the node."""
    try:
        _decided(node, inputs, PartialEvaluation(node.variant.inexact), variant)
    except VTensorError:  # the invoker asks for something else, or the library does not confirm
        return False
    return True


def _as_required(decided: Variant, offered: Variant) -> Variant:
    """Return ``decided`` with the layouts and the kernel of ``offered``, as if the invoker had
    required these layouts.

    Where the invoker required one of several layouts, the layout of ``offered`` becomes the only
    one. Where it required ANY, ANY stays.
    """
    requirements = tuple(
        replace(requirement, layouts=(layout,)) if requirement.layouts else requirement
        for requirement, layout in zip(decided.requirements, offered.layouts, strict=True)
    )
    return replace(
        decided,
        forms=offered.forms,
        requirements=requirements,
        kernel=offered.kernel,
        inexact=decided.inexact or offered.inexact,
    )
