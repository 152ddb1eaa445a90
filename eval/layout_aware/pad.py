"""Layout-aware pads: elements that are added around a tensor."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from eval.layout_aware import eigen
from eval.layout_aware.base import Operator, check
from eval.layout_aware.context import Array, Context, Unsupported
from eval.layout_aware.onednn import fastest, in_a_row, like, usual
from eval.layout_aware.tensor import Sizes, Tensor, channels_last
from libdesc.onednn.native import dnnl

if TYPE_CHECKING:
    from libdesc.onednn._onednn import Desc, Primitive


@dataclass(frozen=True)
class Pad(Operator):
    """A pad of elements along each axis.

    Attributes:
        before, behind: how many elements are added at the beginning and at the end of each axis; a
            negative number removes elements.
        mode: the source of the added elements: ``constant``, ``edge``, ``reflect`` or ``wrap``.
        value: the added element, in mode ``constant``.
    """

    before: Sizes
    behind: Sizes
    mode: str = "constant"
    value: float = 0.0

    def kept(self, x: Tensor) -> Sizes:
        """Return how many elements of ``x`` remain along each axis: negative pads remove some."""
        rows = zip(x.dims, self.before, self.behind, strict=True)
        return tuple(size + min(before, 0) + min(behind, 0) for size, before, behind in rows)

    def sizes(self, x: Tensor) -> Sizes:
        """Return the sizes of the padded ``x``.

        Raises:
            DimError: the pads do not fit the sizes.
        """
        ranks = {len(x.dims), len(self.before), len(self.behind)}
        check(len(ranks) == 1, "not two pads an axis", x.dims, self.before, self.behind)
        least = {"constant": 0, "reflect": 2}.get(self.mode, 1)
        rows = zip(self.kept(x), self.before, self.behind, strict=True)
        enough = all(kept >= (least if max(pads) > 0 else 0) for kept, *pads in rows)
        check(enough, f"{self} finds no elements", x.dims)
        return tuple(map(sum, zip(x.dims, self.before, self.behind, strict=True)))

    def onednn(self, ctx: Context, x: Tensor) -> Tensor:
        """Record oneDNN's kernels that fill the output with zeros, then copy ``x`` into it.

        The layout is that of ``x`` if oneDNN is fast in it.
        """
        dims = self.sizes(x)
        if self.mode != "constant" or self.value or np.signbit(self.value):
            raise Unsupported("puts zeros around only")
        if min(*self.before, *self.behind) < 0:
            raise Unsupported("takes no elements away")

        def make(desc: Desc) -> Primitive:
            return dnnl.reorder(desc, like(desc, dims).submemory(x.dims, self.before))

        kernel, desc = fastest(make, usual(x))
        src, dst = ctx.convert(x, desc), ctx.allocate(like(desc, dims))
        whole = in_a_row(dst.desc)  # y < y is 0 for any y, so dst needs no earlier value
        zero = dnnl.binary("lt", whole, whole, whole)
        ctx.call_onednn(zero, {"src0": dst, "src1": dst, "dst": dst})
        ctx.call_onednn(kernel, {"src": src, "dst": dst})
        return dst

    def eigen(self, ctx: Context, x: Tensor) -> Tensor:
        """Record Eigen's copy with channels last: it fills with the value, then copies ``x``."""
        if self.mode != "constant":
            raise Unsupported("puts constants around only")
        y, src = ctx.allocate(channels_last(self.sizes(x))), eigen.last(ctx, x)
        begin, place = (tuple(max(sign * n, 0) for n in self.before) for sign in (-1, 1))
        inner = eigen.box(0, src, begin, self.kept(x), y, place)
        eigen.copy(ctx, [src], y, [eigen.filled(y, self.value), inner])
        return y

    def numpy(self, ctx: Context, x: Tensor) -> Tensor:
        """Record a call of NumPy's definition, and return its output."""
        rows = [*zip(self.before, self.behind, strict=True)]
        more = [(max(before, 0), max(behind, 0)) for before, behind in rows]
        value = {"constant_values": self.value} if self.mode == "constant" else {}
        how: Any = {"mode": self.mode, **value}

        def compute(x: Array) -> Array:
            ends = zip(rows, x.shape, strict=True)
            kept = [slice(max(-a, 0), size - max(-b, 0)) for (a, b), size in ends]
            return np.asarray(np.pad(x[tuple(kept)], more, **how))

        return ctx.call_python(compute, self.sizes(x), x)
