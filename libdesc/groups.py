"""Tensors as matrices: which dims of a product are rows, columns or batch, and layouts with
contiguous rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ptensor.layout import Layout
from vtensor.language.tensor import VTensor


class Groups(NamedTuple):
    """The dims of the two factors of a product of matrices, by their role.

    Attributes:
        batch: dims of both factors that are not summed over.
        rows, columns: dims of the left factor only, and of the right factor only.
        over: the dims that are summed over.
    """

    batch: Sequence[str]
    rows: Sequence[str]
    columns: Sequence[str]
    over: Sequence[str]

    @classmethod
    def of(cls, a: VTensor, b: VTensor, *over: str) -> Groups:
        """Return the roles of the dims of ``a`` and ``b`` in their product, which is summed over
        the dims ``over``.
        """
        batch = [dim for dim in a.dims if dim in b.dims and dim not in over]
        rows, columns = ([dim for dim in t.dims if dim not in (*batch, *over)] for t in (a, b))
        return cls(batch, rows, columns, over)

    @property
    def orders(self) -> list[Layout]:
        """The plain layouts in which left factor, right factor and product are batches of matrices.

        The batch dims come first, then those of a row-major matrix.
        """
        batch, rows, columns, over = self
        parts = [*batch, *rows, *over], [*batch, *over, *columns], [*batch, *rows, *columns]
        return [Layout.plain(dims) for dims in parts]


def side_by_side(layout: Layout, extents: Mapping[str, int], dim: str) -> bool:
    """Return whether the elements along ``dim`` are next to one another in memory.

    True if ``dim`` is the last axis of the layout and has no blocks, no dim is padded, and the
    layout has no encoding.

    Args:
        layout: the layout of a tensor.
        extents: the tensor's sizes by dim.
        dim: the dim along which the rows of a matrix run.

    >>> sizes = {"B": 4, "N": 49, "C": 96}
    >>> [side_by_side(Layout(text), sizes, "C") for text in ("BNC", "BN2b7nC", "BCN", "BN5nC")]
    [True, True, False, False]
    """
    whole = all(size % layout.block(name) == 0 for name, size in extents.items())
    contiguous = layout.axes[-1:] == ((dim, 0),) and not layout.blocks(dim)
    return contiguous and whole and layout.encoding is None
