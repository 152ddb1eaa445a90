"""Reductions over any dims, in any layouts of the operands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from typing import TYPE_CHECKING

from libdesc.eigen import native
from libdesc.eigen.memory import copied, cuts, pads, strided, too_many
from libdesc.routine import Routine
from ptensor.evaluation import Call, emit
from ptensor.layout import Layout
from ptensor.tensor import PTensor
from vtensor.language.tensor import VTensor

if TYPE_CHECKING:
    from libdesc.eigen._eigen import Box

#: The element types of sums, and those of maxima and minima.
NUMBERS = ("f32", "f16", "bf16", "f64", "s64", "s32", "s8", "u8")
ORDERED = (*NUMBERS, "bool")


def reduction(kind: str, src: VTensor, dst: VTensor, axes: tuple[str, ...]) -> Routine:
    """Return the routine of a reduction over some dims of src.

    Args:
        kind: ``sum``, ``mean``, ``max``, ...: the names are in ``_eigen.pyi``.
        src, dst: the operands.
        axes: the reduced dims, which dst lacks or has with size 1.
    """

    def run(x: PTensor, y: PTensor) -> None:
        many, few = (t.required_layout.num_elements(t.dims) for t in (x, y))
        kept = _boxes(x, y, {dim: n for dim, n in x.dims.items() if dim not in axes})
        reduced = _boxes(x, y, {dim: x.size(dim) for dim in axes})
        emit(native.load().reduction(kind, src.dtype, many, few, kept, reduced, pads(y)), [x, y])

    return _Reduction([src, dst], [Layout.ANY] * 2, run=run)


class _Reduction(Routine):
    """The routine of a reduction, whose operands may have different layouts."""

    each = True

    def confirm(self, call: Call, row: Sequence[Layout]) -> str | None:
        """Return None if ``MAX_BOXES`` boxes can cover all elements, else the reason why not."""
        have, want = (row[call.index(tensor)] for tensor in self.tensors)
        if too_many(have, want, self.tensors[0].dims):
            return "the blocks of both operands share too few boundaries"
        return None


def _boxes(x: PTensor, y: PTensor, dims: Mapping[str, int]) -> list[Box]:
    """Return boxes of memory that pair elements of x with the elements of y that have the same
    indices along ``dims``.

    y may lack some of ``dims``. The list is empty if y has no elements, or one of ``dims`` has size
    0.

    Args:
        x, y: the operands.
        dims: the dims along which elements are paired, with their sizes.
    """
    if 0 in dims.values() or 0 in y.dims.values():
        return []
    source = y if 0 in x.dims.values() else x  # nothing is read from an empty x
    have, want = source.required_layout, y.required_layout
    return [
        copied(0, strided(have, pieces, source.dims, dims), strided(want, pieces, y.dims, dims))
        for pieces in product(*cuts(have, want, dims))
    ]


__all__ = ["NUMBERS", "ORDERED", "reduction"]
