"""Partial evaluation of calls, each of several equal ones once: networks repeat their blocks."""

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


class _Known(NamedTuple):
    """What a call came to: its variant, the element types and dims of its outputs, the made-up
    names of dims in its key, and whether it says the same of a call with other ones.
    """

    variant: Variant
    outputs: tuple[tuple[str, Mapping[str, int]], ...]
    names: tuple[str, ...]
    by_place: bool

    @classmethod
    def of(cls, variant: Variant, made: Sequence[VTensor], names: tuple[str, ...]) -> _Known:
        """What was found; others may have it if its made-up names are in the key and in no text."""
        asked = [layout for one in variant.requirements for layout in one.layouts]
        dims = {dim for layout in (*variant.layouts, *asked) for dim in layout.dims}
        dims.update(dim for value in made for dim in value.dims)
        texts = " ".join([variant.kernel, *(one.reason for one in variant.refused)])
        said = {dim for dim in dims if MADE_UP.fullmatch(dim)} <= {*names}
        by_place = said and not MADE_UP.search(texts) and not variant.pieces
        return cls(variant, tuple([(one.dtype, one.dims) for one in made]), names, by_place)

    def on(self, names: tuple[str, ...]) -> _Known | None:
        """The same of a call with these made-up names; None where it says it of its own alone."""
        pairs = tuple(pair for pair in zip(self.names, names, strict=True) if pair[0] != pair[1])
        if not pairs:
            return self
        if not self.by_place:
            return None
        instead, variant = dict(pairs), self.variant
        forms = [replace(form, layout=renamed(form.layout, pairs)) for form in variant.forms]
        asked = [
            replace(one, layouts=tuple([renamed(layout, pairs) for layout in one.layouts]))
            for one in variant.requirements
        ]
        return _Known(
            replace(variant, forms=tuple(forms), requirements=tuple(asked)),
            tuple(
                (dtype, {instead.get(dim, dim): size for dim, size in dims.items()})
                for dtype, dims in self.outputs
            ),
            names,
            by_place=True,
        )


class Calls:
    """What calls came to, under one partial evaluation and the same preferences.

    Calls are equal where their operators, their operands' dims, element types and layouts, and
    their pins are, made-up names of dims apart; values of constants may then differ, for a call is
    known only as long as nobody has looked at these.
    """

    def __init__(self) -> None:
        self._known: dict[object, _Known] = {}

    def evaluated(
        self,
        ctx: DispatchContext,
        nodes: Sequence[Node],
        names: Sequence[str],
        inputs: Sequence[VTensor],
        own: Sequence[VTensor],
    ) -> tuple[VTensor, ...]:
        """The outputs of a call up to its tagger; the context then has its variant.

        Args:
            ctx: of the call.
            nodes: the node, and those that are fused behind it.
            names, inputs: of all operands of these.
            own: the operands of the first.

        Raises:
            NoInvokerError: no library takes the call.
            ContractError: its operator does not dispatch, or its invoker breaks the contract.
        """
        node = nodes[0]
        key, made_up = (None, ()) if any_observed(inputs) else _key(ctx, nodes, names, inputs)
        found = self._known.get(key)
        if found is not None and (known := found.on(made_up)) is not None:
            ctx.op, ctx.variant = info_of(node.op).name, known.variant
            rows = enumerate(known.outputs)
            return tuple(
                VTensor.as_known(dtype, dict(dims), ctx.output(index))
                for index, (dtype, dims) in rows
            )
        made = run_compute(ctx, node.op, own)
        if ctx.variant is None:
            raise ContractError(f"{node.op_name} {node.name!r}: compute did not call ctx.dispatch")
        if key is not None and not any_observed(inputs):
            self._known[key] = _Known.of(ctx.variant, made, made_up)
        return made


def _key(
    ctx: DispatchContext, nodes: Sequence[Node], names: Sequence[str], inputs: Sequence[VTensor]
) -> tuple[object, tuple[str, ...]]:
    """All that a call depends on, and the made-up names in it; None where a parameter of an
    operator cannot be in a key.
    """
    pins, made = ctx.preferences.nodes, {name for one in nodes for name in one.outputs}
    places = Names()
    ops, kinds = _parts(nodes, inputs, places)
    if places.literal:
        places = Names(literal=True)
        ops, kinds = _parts(nodes, inputs, places)
    key = (
        ops,
        tuple(pins.get(one.name) for one in nodes),
        tuple(tuple(name in made for name in one.inputs) for one in nodes),
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
    kinds = [places.kind(one.dtype, one.dims, one.produced_layout, one.constant) for one in inputs]
    return tuple([places.of(one.op) for one in nodes]), tuple(kinds)


def any_observed(operands: Sequence[VTensor]) -> bool:
    """Somebody has looked at the values of a constant among these."""
    storages = (one.storage for one in operands)
    return any(isinstance(one, TensorStorage) and not one.untouched for one in storages)
