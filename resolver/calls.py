"""Partial evaluation of calls, each of several equal ones once: networks repeat their blocks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from libdesc.dispatcher import DispatchContext
from ptensor.buffer import TensorStorage
from ptensor.evaluation import Variant
from vtensor.errors import ContractError
from vtensor.language.exact import exact
from vtensor.language.operators import info_of, run_compute
from vtensor.language.tensor import VTensor

if TYPE_CHECKING:
    from vtensor.language.graph import Node


class _Known(NamedTuple):
    """What a call came to: its variant, and the element types and dims of its outputs."""

    variant: Variant
    outputs: tuple[tuple[str, Mapping[str, int]], ...]


class Calls:
    """What calls came to, under one partial evaluation and the same preferences.

    Calls are equal where their operators, their operands' dims, element types and layouts, and
    their pins are; values of constants may then differ, for a call is known only as long as nobody
    has looked at these.
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
        key = None if looked_at(inputs) else _key(ctx, nodes, names, inputs)
        if (known := self._known.get(key)) is not None:
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
            self._known[key] = _Known(ctx.variant, outputs)
        return made


def _key(
    ctx: DispatchContext, nodes: Sequence[Node], names: Sequence[str], inputs: Sequence[VTensor]
) -> object:
    """All that a call depends on; None where a parameter of an operator cannot be a key."""
    pins, made = ctx.preferences.nodes, {name for one in nodes for name in one.outputs}
    key = (
        exact(tuple(one.op for one in nodes)),
        tuple(pins.get(one.name) for one in nodes),
        tuple(tuple(name in made for name in one.inputs) for one in nodes),
        tuple(names.index(name) for name in names),
        tuple((v.dtype, tuple(v.dims.items()), v.constant, v.produced_layout) for v in inputs),
    )
    try:
        hash(key)
    except TypeError:
        return None
    return key


def looked_at(operands: Sequence[VTensor]) -> bool:
    """Somebody has looked at the values of a constant among these."""
    storages = (one.storage for one in operands)
    return any(isinstance(one, TensorStorage) and not one.untouched for one in storages)
