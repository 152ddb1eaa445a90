"""``definition``: NumPy's invoker of an operator, written as what it computes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial, wraps
from typing import Any

from libdesc.invokers import When
from libdesc.registry import invoker
from libdesc.routine import Routine, Wanted
from ptensor.layout import Layout
from vtensor.operators import Context
from vtensor.tensor import VTensor

#: Writes the outputs: called as an invoker is, with a PTensor for each operand.
Compute = Callable[..., None]


def declared(tensor: VTensor) -> Layout:
    """The order in which an operand's dims are declared."""
    return Layout.plain(tensor.dims)


def anyhow(tensor: VTensor) -> Layout:  # noqa: ARG001  # an order is asked of each operand
    """All operands in one layout, whichever it is."""
    return Layout.ANY


def definition(
    *ops: str,
    dtypes: Sequence[str] | Mapping[str, Sequence[str]] | None = None,
    order: Callable[[VTensor], Wanted] = declared,
    orders: Callable[..., Sequence[Wanted]] | None = None,
    when: When | None = None,
) -> Callable[[Compute], Compute]:
    """Register a function as NumPy's invoker of operators: what their values are.

    Args:
        ops: the operators' names.
        dtypes, when: as for ``invoker``.
        order: the layout in which the function wants an operand.
        orders: the layouts of all operands, from the instance and the operands, where they depend
            on more than the operand itself.

    The function is called with the context, the instance and the operands as PTensors, once their
    layouts are decided; it writes every output.
    """

    def register(compute: Compute) -> Compute:
        @wraps(compute)
        def describe(ctx: Context, op: Any, *operands: VTensor) -> Routine:
            wants = orders(op, *operands) if orders else [order(tensor) for tensor in operands]
            return Routine(operands, wants, run=partial(compute, ctx, op))

        for name in ops:
            invoker(name, library="numpy", dtypes=dtypes, when=when, python=True)(describe)
        return compute

    return register
