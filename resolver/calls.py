"""Partial evaluation of calls. Nodes of a network often make equal calls; of these, one is
evaluated.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from libdesc.dispatcher import DispatchContext
from ptensor.buffer import TensorStorage
from ptensor.evaluation import Variant
from resolver.canonical_dims import MADE_UP, Names, renamed
from vtensor.errors import ContractError
from vtensor.language.operators import info_of, run_compute
from vtensor.language.records import replace
from vtensor.language.tensor import VTensor

if TYPE_CHECKING:
    from vtensor.language.graph import Node


class _CallResult(NamedTuple):
    """The result of an evaluated call, for reuse by equal calls.

    Attributes:
        variant: the call's variant.
        outputs: element type and sizes by dim of each output.
        names: the made-up names of dims (such as ``D12``) in the call's key, in order.
        by_place: True if an equal call with other made-up names may use the result too. Each of
            ``names`` is then replaced by the other call's name at the same index.
    """

    variant: Variant
    outputs: tuple[tuple[str, Mapping[str, int]], ...]
    names: tuple[str, ...]
    by_place: bool

    @classmethod
    def of(
        cls, variant: Variant, outputs: Sequence[VTensor], names: tuple[str, ...]
    ) -> _CallResult:
        """Return the result of a call. ``names`` are the made-up names of dims in the call's key.

        Its ``by_place`` is True under three conditions: all made-up names in layouts and dims of
        the result are among ``names``; the kernel's name and the reasons of refusals have none; and
        the variant has no pieces.
        """
        required = [layout for each in variant.requirements for layout in each.layouts]
        dims = {dim for layout in (*variant.layouts, *required) for dim in layout.dims}
        dims.update(dim for value in outputs for dim in value.dims)
        texts = " ".join([variant.kernel, *(refusal.reason for refusal in variant.refused)])
        in_key = {dim for dim in dims if MADE_UP.fullmatch(dim)} <= {*names}
        by_place = in_key and not MADE_UP.search(texts) and not variant.pieces
        return cls(
            variant, tuple([(output.dtype, output.dims) for output in outputs]), names, by_place
        )

    def on(self, names: tuple[str, ...]) -> _CallResult | None:
        """Return this result with ``names`` in place of its own made-up names of dims.

        None if the result does not hold for other names. The call whose names they are then has to
        be evaluated.
        """
        pairs = tuple(pair for pair in zip(self.names, names, strict=True) if pair[0] != pair[1])
        if not pairs:
            return self
        if not self.by_place:
            return None
        new_names, variant = dict(pairs), self.variant
        forms = [replace(form, layout=renamed(form.layout, pairs)) for form in variant.forms]
        requirements = [
            replace(
                requirement,
                layouts=tuple([renamed(layout, pairs) for layout in requirement.layouts]),
            )
            for requirement in variant.requirements
        ]
        return _CallResult(
            replace(variant, forms=tuple(forms), requirements=tuple(requirements)),
            tuple(
                (dtype, {new_names.get(dim, dim): size for dim, size in dims.items()})
                for dtype, dims in self.outputs
            ),
            names,
            by_place=True,
        )


class EvaluatedCalls:
    """Results of calls, for reuse by equal calls of the same partial evaluation, with the same
    preferences.

    Two calls are equal if they have the same operators, the same pins to libraries, and the same
    dims, element types and layouts of operands. Made-up names of dims, such as ``D12``, may differ.
    The values of constants may differ too: a result is kept only if no constant of the call has
    been read.
    """

    def __init__(self) -> None:
        self._results: dict[object, _CallResult] = {}

    def evaluated(
        self,
        ctx: DispatchContext,
        nodes: Sequence[Node],
        names: Sequence[str],
        inputs: Sequence[VTensor],
        own_inputs: Sequence[VTensor],
    ) -> tuple[VTensor, ...]:
        """Evaluate a call up to its ``lib_tagger``, or take the result of an equal call.

        Args:
            ctx: context of the call; this method sets its ``variant``.
            nodes: the node, then the nodes that are fused with it.
            names, inputs: names and tensors of the inputs of all these nodes.
            own_inputs: inputs of the first node.

        Returns:
            The outputs of the call.

        Raises:
            NoInvokerError: no library takes the call.
            ContractError: its operator does not dispatch, or its invoker breaks the contract.
        """
        node = nodes[0]
        key, made_up = (None, ()) if any_observed(inputs) else _key(ctx, nodes, names, inputs)
        earlier = self._results.get(key)
        if earlier is not None and (result := earlier.on(made_up)) is not None:
            ctx.op, ctx.variant = info_of(node.op).name, result.variant
            rows = enumerate(result.outputs)
            return tuple(
                VTensor.as_known(dtype, dict(dims), ctx.output(index))
                for index, (dtype, dims) in rows
            )
        outputs = run_compute(ctx, node.op, own_inputs)
        if ctx.variant is None:
            raise ContractError(f"{node.op_name} {node.name!r}: compute did not call ctx.dispatch")
        if key is not None and not any_observed(inputs):
            self._results[key] = _CallResult.of(ctx.variant, outputs, made_up)
        return outputs


def _key(
    ctx: DispatchContext, nodes: Sequence[Node], names: Sequence[str], inputs: Sequence[VTensor]
) -> tuple[object, tuple[str, ...]]:
    """Return (key, names): all that a call depends on, as a key, and the made-up names of dims in
    it, in order.

    The key is None if a parameter of an operator cannot be hashed. Such a call equals no other
    call.

    Args:
        nodes: the node, then the nodes that are fused with it.
        names, inputs: names and tensors of the inputs of all these nodes.
    """
    pins = ctx.preferences.nodes
    inner_values = {name for node in nodes for name in node.outputs}
    places = Names()
    ops, kinds = _parts(nodes, inputs, places)
    if places.literal:
        places = Names(literal=True)
        ops, kinds = _parts(nodes, inputs, places)
    key = (
        ops,
        tuple(pins.get(node.name) for node in nodes),
        tuple(tuple(name in inner_values for name in node.inputs) for node in nodes),
        tuple(names.index(name) for name in names),
        kinds,
    )
    try:
        hash(key)
    except TypeError:
        return None, ()
    return key, tuple(places.made_up)


def _parts(
    nodes: Sequence[Node], inputs: Sequence[VTensor], places: Names
) -> tuple[Hashable, Hashable]:
    """Return two parts of a call's key: one for the operators of ``nodes``, one for the inputs.

    Args:
        places: replaces made-up names of dims by numbers, and keeps the names.
    """
    kinds = [places.kind(x.dtype, x.dims, x.produced_layout, x.constant) for x in inputs]
    return tuple([places.of(node.op) for node in nodes]), tuple(kinds)


def any_observed(operands: Sequence[VTensor]) -> bool:
    """Return whether a constant among ``operands`` has had its values read."""
    storages = (operand.storage for operand in operands)
    return any(isinstance(held, TensorStorage) and not held.untouched for held in storages)
