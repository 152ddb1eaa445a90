"""Partial evaluation of calls; equal calls of a network are evaluated once."""

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
    """Result of an evaluated call.

    Attributes:
        variant: its variant.
        outputs: element type and dims of each output.
        names: the made-up names of dims in the call's key, in order.
        by_place: whether the result holds under other made-up names, put in the places of these.
    """

    variant: Variant
    outputs: tuple[tuple[str, Mapping[str, int]], ...]
    names: tuple[str, ...]
    by_place: bool

    @classmethod
    def of(
        cls, variant: Variant, outputs: Sequence[VTensor], names: tuple[str, ...]
    ) -> _CallResult:
        """Return the result of a call.

        It holds under other made-up names if every made-up name of its layouts and dims is in the
        key, and none is in its texts.
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
        """Return the result for a call with these made-up names, or None if it does not
        hold there.
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
    """Results of calls, under one partial evaluation and the same preferences.

    Calls are equal if their operators, their operands' dims, element types and layouts, and their
    pins are, apart from made-up names of dims. The values of constants may differ: a result is kept
    only for calls whose constants have not been read.
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
        """Evaluate a call up to its tagger, or take the result of an equal call.

        Args:
            ctx: context of the call; it gets the variant.
            nodes: the node, then the nodes that are fused with it.
            names, inputs: all operands of these nodes.
            own_inputs: operands of the first node.

        Returns:
            The outputs.

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
    """Return all that a call depends on, as a key, and the made-up names of dims in it.

    The key is None if a parameter of an operator cannot be hashed.
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
    """Return the key parts of the operators and of the inputs; ``places`` gathers made-up names."""
    kinds = [places.kind(x.dtype, x.dims, x.produced_layout, x.constant) for x in inputs]
    return tuple([places.of(node.op) for node in nodes]), tuple(kinds)


def any_observed(operands: Sequence[VTensor]) -> bool:
    """Return whether the values of a constant among these operands have been read."""
    storages = (operand.storage for operand in operands)
    return any(isinstance(held, TensorStorage) and not held.untouched for held in storages)
