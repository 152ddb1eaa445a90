"""Reshape, which is not one of the sixteen operators, but VGG19 has one."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from math import prod

from eval.layout_aware.base import Operator, check
from eval.layout_aware.context import Context
from eval.layout_aware.tensor import Sizes, Tensor, plain


@dataclass(frozen=True)
class Reshape(Operator):
    """The elements in the order of the axes, with other sizes; it calls no library."""

    sizes: Sizes

    def run(self, ctx: Context, libraries: Iterable[str], *inputs: Tensor) -> Tensor:  # noqa: ARG002
        """Return the input's memory with other sizes, after a conversion to the plain layout."""
        [x] = inputs
        check(prod(x.dims) == prod(self.sizes), "another number of elements", x.dims, self.sizes)
        return replace(ctx.convert(x, plain(x.dims)), desc=plain(self.sizes))
