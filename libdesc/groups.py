"""The dims of a product of matrices, by what they are to it."""

from __future__ import annotations

from collections.abc import Sequence
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
