"""Matrices in tensors: the dims of a product by what they are to it, and rows as they lie."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ptensor.layout import Layout
from vtensor.language.tensor import VTensor


class Groups(NamedTuple):
    """The dims of a product of matrices: of both factors, of the left, of the right; summed."""

    batch: Sequence[str]
    rows: Sequence[str]
    columns: Sequence[str]
    over: Sequence[str]

    @classmethod
    def of(cls, a: VTensor, b: VTensor, *over: str) -> Groups:
        """The groups of the dims of a and b."""
        batch = [dim for dim in a.dims if dim in b.dims and dim not in over]
        rows, columns = ([dim for dim in t.dims if dim not in (*batch, *over)] for t in (a, b))
        return cls(batch, rows, columns, over)

    @property
    def orders(self) -> list[Layout]:
        """Of matrices side by side: of the left factor, the right one, and the product."""
        batch, rows, columns, over = self
        parts = [*batch, *rows, *over], [*batch, *over, *columns], [*batch, *rows, *columns]
        return [Layout.plain(dims) for dims in parts]


def side_by_side(layout: Layout, extents: Mapping[str, int], dim: str) -> bool:
    """Elements along a dim are neighbours, all of them, and nothing is padded: rows of a matrix.

    >>> sizes = {"B": 4, "N": 49, "C": 96}
    >>> [side_by_side(Layout(text), sizes, "C") for text in ("BNC", "BN2b7nC", "BCN", "BN5nC")]
    [True, True, False, False]
    """
    whole = all(size % layout.block(name) == 0 for name, size in extents.items())
    own = layout.axes[-1:] == ((dim, 0),) and not layout.blocks(dim)
    return own and whole and layout.encoding is None
