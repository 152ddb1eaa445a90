"""The routine of exact products of bytes."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from libdesc.groups import Groups
from libdesc.narrow import native
from libdesc.narrow.ending import Ending
from libdesc.routine import Routine, Wanted
from ptensor.encoding import Encoding
from ptensor.evaluation import Decline, emit
from ptensor.layout import Layout
from ptensor.tensor import PTensor
from ptensor.views import produced
from vtensor.language.operators import Follower
from vtensor.language.tensor import VTensor

#: Columns of a panel, and rows of one of its groups: ``kPanel`` and ``kGroup`` in
#: native/narrow/sums.h.
PANEL, GROUP = 16, 4


def panels(order: Sequence[str], column: str, row: str, dtype: str) -> Layout:
    """Return the layout in which a kernel reads bytes that it multiplies by.

    Args:
        order: the dims, slowest first; those of columns and rows have groups after all of them.
        column, row: the last dim of the columns, and that of the rows.
        dtype: the element type. Unsigned bytes are stored minus 128, as signed ones.

    >>> panels(["N", "K"], "N", "K", "u8")
    Layout('NK16n4k:s8(zero=-128)')
    """
    axes = [*((dim, 0) for dim in order), (column, PANEL), (row, GROUP)]
    return Layout.of_axes(axes, Encoding("s8", zero=-128) if dtype == "u8" else None)


class MatMul(Routine):
    """An exact product of bytes, summed over a dim, with what follows it.

    If the right factor is constant, it is stored in panels. Otherwise the kernel makes the panels
    in each run.

    Args:
        left, right: the factors. They are exchanged if only the left one is constant.
        zeros: none, or their zero points: scalars, or along all dims of a factor but ``over``.
        dst: the output, of the dims of both factors, without ``over``.
        over: the dim to sum over.
        follow: the fused followers, see ``Ending``.

    Raises:
        Decline: there is no kernel for these zero points or followers, or an operand has no
            elements.
    """

    heavy = True

    def __init__(
        self,
        left: VTensor,
        right: VTensor,
        zeros: Sequence[VTensor],
        dst: VTensor,
        over: str,
        follow: Sequence[Follower] = (),
    ) -> None:
        if left.constant and not right.constant:
            left, right, zeros = right, left, zeros[::-1]
        if not (left.num_elements and right.num_elements):
            raise Decline("an operand has no elements")
        self.over, self.zeros = over, len(zeros)
        self.groups = Groups.of(left, right, over)
        batch, columns = self.groups.batch, self.groups.columns
        for factor, zero in zip((left, right), zeros, strict=False):
            whole = {dim: size for dim, size in factor.dims.items() if dim != over}
            if zero.num_elements != 1 and dict(zero.dims) != whole:
                raise Decline("takes zero points that are scalars, or along all dims of a factor")
        self.ending = Ending(follow, dst, {dim: dst.size(dim) for dim in columns})
        lefts, by_rows, results = self.groups.orders
        by_columns = Layout.plain([*batch, *columns, over])
        wanted: Wanted = (by_rows, by_columns)
        if right.constant and columns:
            wanted = panels(by_columns.dims, columns[-1], over, right.dtype)
        elif produced(right) == by_columns:
            wanted = (by_columns, by_rows)
        self.packed = isinstance(wanted, Layout)
        points = [
            Layout.plain(dim for dim in order.dims if dim in zero.dims)
            for order, zero in zip((lefts, by_columns), zeros, strict=False)
        ]
        super().__init__(
            [left, right, *zeros, *self.ending.tensors, dst],
            [lefts, wanted, *points, *self.ending.layouts(results), results],
            follow,
        )

    def __call__(self, *tensors: PTensor) -> None:
        """Emit the call as one step."""
        batch, rows, columns, _ = self.groups
        left, right, dst = tensors[0], tensors[1], tensors[-1]
        zeros, others = tensors[2 : 2 + self.zeros], tensors[2 + self.zeros : -1]
        counts = [prod(zero.dims.values()) for zero in zeros] or [0, 0]
        by_columns = right.required_layout.dims[-1] == self.over
        step = native.load().product(
            native.instructions(),
            batch=[dst.size(dim) for dim in batch],
            left_steps=_steps(left, batch),
            right_steps=_steps(right, batch),
            rows=prod(map(left.size, rows)),
            columns=prod(map(right.size, columns)),
            depth=left.size(self.over),
            left_type=left.dtype,
            right_type=right.dtype,
            right="panels" if self.packed else "columns" if by_columns else "rows",
            left_zeros=counts[0],
            right_zeros=counts[1],
            **self.ending.arguments(others),
        )
        emit(step, [*tensors, *([step.scratch_bytes] if step.scratch_bytes else [])])


def _steps(factor: PTensor, batch: Sequence[str]) -> list[int]:
    """Return how many matrices follow one another along each batch dim; 0 if it has one alone."""
    sizes = [factor.size(dim) for dim in batch]
    return [prod(sizes[i + 1 :]) if size > 1 else 0 for i, size in enumerate(sizes)]
