"""Calls that compute the same for each row of an operand, whatever the order in which rows are
stored.

A row is the elements along one dim. The layout of the rows may have blocks, as in an image that is
divided into windows. oneDNN has no descriptor of such a layout. It needs none, since rows that
follow one another in memory are a matrix.
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
    """A routine that treats each row of its operands in the same way. If their layouts have blocks,
    it runs on matrices.

    Attributes:
        row_dims: for each operand that is made of rows, by its index, the dim along which a row
            runs. The first operand is always made of rows.
        always_flat: True if operands without blocks are treated as matrices, too, because oneDNN
            has a better kernel for matrices.
    """

    row_dims: Mapping[int, str]
    always_flat = False

    @cached_property
    def matrices(self) -> OneDnnRoutine | None:
        """The same call on matrices: with all rows of an operand along one dim. None if that would
        compute something else.
        """
        raise NotImplementedError

    def flat(self, row: Row) -> tuple[OneDnnRoutine, Row] | None:
        """Return the call on matrices, and the layouts of its operands. Return None if the call is
        to run on the operands as they are.

        It is None if the first operand has no blocks (unless ``always_flat``), if the rows of this
        operand are not contiguous, or if ``matrices`` is None.

        Args:
            row: a layout per operand.

        Raises:
            Decline: the rows of another operand have another order than those of the first one.
        """
        lead = row[0]
        usual = lead.is_any or (lead.is_plain and not self.always_flat)
        if usual or not side_by_side(lead, self.tensors[0].dims, self.row_dims[0]):
            return None
        if self.matrices is None:
            return None
        layouts = [*row]
        for index in [index for index in self.row_dims if index < len(row)]:
            alike = self._alike(lead, index)
            if not (row[index].is_any or row[index].same(alike, self.tensors[index].dims)):
                raise Decline(f"{self.family}: rows are stored in {lead} and in {row[index]}")
            layouts[index] = Layout.plain(self.matrices.tensors[index].dims)
        return self.matrices, layouts

    def primitive(self, row: Row) -> Primitive:
        """Return the primitive for a layout per operand, on matrices if ``flat`` returns them."""
        flat = self.flat(row)
        return super().primitive(row) if flat is None else flat[0].primitive(flat[1])

    def taken(self, primitive: Primitive, row: Row) -> list[Layout]:
        """Return the layouts, one per operand, that a primitive made for ``row`` works in.

        If it works on matrices, all operands have their rows in the order of the first one.
        """
        flat = self.flat(row)
        if flat is None:
            return super().taken(primitive, row)
        layouts = flat[0].layouts(primitive)
        for index in self.row_dims:
            layouts[index] = self._alike(row[0], index)
        return layouts

    def _alike(self, lead: Layout, index: int) -> Layout:
        """Return the layout of operand ``index`` that has its rows in the order of those in
        ``lead``, the first operand's layout.
        """
        return lead.rename({self.row_dims[0]: self.row_dims[index]})


def matrix(tensor: VTensor, rows: str, row_dim: str) -> VTensor:
    """Return a tensor with the dims ``rows``, which merges all other dims, and ``row_dim``."""
    size = tensor.size(row_dim)
    return VTensor(tensor.dtype, {rows: tensor.num_elements // size, row_dim: size})
