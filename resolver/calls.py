"""Partial evaluation of calls, each of several equal ones once: networks repeat their blocks."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from libdesc.dispatcher import DispatchContext
from ptensor.buffer import TensorStorage
from ptensor.evaluation import Variant
from resolver.made_up import MADE_UP, Names, renamed
from vtensor.errors import ContractError
from vtensor.language.operators import info_of, run_compute
from vtensor.language.records import replace
from vtensor.language.tensor import VTensor

if TYPE_CHECKING:
    from vtensor.language.graph import Node


class _Known(NamedTuple):
    """What a call came to: its variant, the element types and dims of its outputs, and the made-up
    names of dims in its key.
    """

    variant: Variant
    outputs: tuple[tuple[str, Mapping[str, int]], ...]
    names: tuple[str, ...]

    def on(self, names: tuple[str, ...]) -> _Known:
        """The same of a call with other made-up names."""
        pairs = tuple(pair for pair in zip(self.names, names, strict=True) if pair[0] != pair[1])
        if not pairs:
            return self
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
        )

    @property
    def by_place(self) -> bool:
        """Its made-up names are all in its key, and in no text."""
        variant = self.variant
        layouts = [
            *variant.layouts,
            *(one for asked in variant.requirements for one in asked.layouts),
        ]
        found = {dim for layout in layouts for dim in layout.dims}
        found.update(dim for _, dims in self.outputs for dim in dims)
        texts = " ".join([variant.kernel, *(one.reason for one in variant.refused)])
        made_up = {dim for dim in found if MADE_UP.fullmatch(dim)}
        return made_up <= {*self.names} and not MADE_UP.search(texts) and not variant.apart


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
        key, made_up = (None, ()) if looked_at(inputs) else _key(ctx, nodes, names, inputs)
        if (known := self._known.get(key)) is not None:
            known = known.on(made_up)
            ctx.op, ctx.variant = info_of(node.op).name, known.variant
            rows = enumerate(known.outputs)
            return tuple(
                VTensor.as_known(dtype, dict(dims), ctx.output(index))
                for index, (dtype, dims) in rows
            )
        made = run_compute(ctx, node.op, own)
        if ctx.variant is None:
            raise ContractError(f"{node.op_name} {node.name!r}: compute did not call ctx.dispatch")
        if key is not None and not looked_at(inputs):
            outputs = tuple((value.dtype, value.dims) for value in made)
            known = _Known(ctx.variant, outputs, made_up)
            if known.by_place:
                self._known[key] = known
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


def looked_at(operands: Sequence[VTensor]) -> bool:
    """Somebody has looked at the values of a constant among these."""
    storages = (one.storage for one in operands)
    return any(isinstance(one, TensorStorage) and not one.untouched for one in storages)
