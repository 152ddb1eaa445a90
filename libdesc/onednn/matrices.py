"""Calls that do the same to each row of an operand: its rows may lie in any order, in blocks too.

oneDNN has no descriptor for a tensor in such blocks, as an image has whose windows are dims of
their own. It needs none: one behind another, the rows are a matrix.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from libdesc.groups import side_by_side
from libdesc.onednn.routines import OneDnnRoutine, Row
from ptensor.evaluation import Decline
from ptensor.layout import Layout
from vtensor.language.cached import cached_property
from vtensor.language.tensor import VTensor

if TYPE_CHECKING:
    from libdesc.onednn._onednn import Primitive


class RowWise(OneDnnRoutine):
    """A routine that can be made on matrices where the rows of its operands lie in blocks.

    Attributes:
        row_dims: by number, the operands that have these rows, the first operand among them; for
            each the dim along which a row's elements lie side by side.
        always_flat: rows that lie in no blocks are made one matrix, too: matrices have the better
            kernel.
    """

    row_dims: Mapping[int, str]
    always_flat = False

    @cached_property
    def matrices(self) -> OneDnnRoutine | None:
        """The same call with all rows along one dim; None where that would be another call."""
        raise NotImplementedError

    def flat(self, row: Row) -> tuple[OneDnnRoutine, Row] | None:
        """The call on matrices, and their layouts; None where the first operand has no blocks, or
        its rows do not lie one behind another.

        Raises:
            Decline: the rows of other operands lie in another order than those of the first one.
        """
        lead = row[0]
        usual = lead.is_any or (lead.is_plain and not self.always_flat)
        if usual or not side_by_side(lead, self.tensors[0].dims, self.row_dims[0]):
            return None
        if self.matrices is None:
            return None
        made = [*row]
        for index in [index for index in self.row_dims if index < len(row)]:
            alike = self._alike(lead, index)
            if not (row[index].is_any or row[index].same(alike, self.tensors[index].dims)):
                raise Decline(f"{self.family}: rows lie in {lead} and in {row[index]}")
            made[index] = Layout.plain(self.matrices.tensors[index].dims)
        return self.matrices, made

    def primitive(self, row: Row) -> Primitive:
        """As usual, or on matrices."""
        found = self.flat(row)
        return super().primitive(row) if found is None else found[0].primitive(found[1])

    def taken(self, primitive: Primitive, row: Row) -> list[Layout]:
        """As usual; of matrices, all rows lie as those of the first operand do."""
        found = self.flat(row)
        if found is None:
            return super().taken(primitive, row)
        layouts = found[0].layouts(primitive)
        for index in self.row_dims:
            layouts[index] = self._alike(row[0], index)
        return layouts

    def _alike(self, lead: Layout, index: int) -> Layout:
        """The layout of an operand whose rows lie as in a layout of the first one."""
        return lead.rename({self.row_dims[0]: self.row_dims[index]})


def matrix(tensor: VTensor, rows: str, row_dim: str) -> VTensor:
    """A tensor with all dims but ``row_dim`` as one, which is called ``rows``."""
    size = tensor.size(row_dim)
    return VTensor(tensor.dtype, {rows: tensor.num_elements // size, row_dim: size})
