"""Normalizations: over a batch, over classes, over neighbouring channels."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from libdesc.onednn.layouts import Order, canonical_order
from libdesc.onednn.matrices import RowWise, matrix
from libdesc.onednn.native import dnnl
from libdesc.onednn.routines import (
    FollowingRoutine,
    OneDnnRoutine,
    Operand,
    Row,
    emit_on,
    layouts_of,
)
from libdesc.onednn.routines_pointwise import Function
from libdesc.patterns import OTHER, X, binary
from ptensor.evaluation import Decline
from ptensor.layout import Layout
from ptensor.tensor import PTensor
from ptensor.views import produced
from vtensor.language.cached import cached_property
from vtensor.language.operators import Follower, info_of
from vtensor.language.tensor import VTensor

if TYPE_CHECKING:
    from libdesc.onednn._onednn import Desc, Primitive


#: The longest row that is normalized, and the longest row of a softmax: oneDNN adds up a row in f32
#: in as few lanes as a vector has. Vocabularies are shorter.
LONG_NORM, LONG_SOFTMAX = 1 << 14, 1 << 18


class BatchNormalization(OneDnnRoutine):
    """Normalization of each channel by statistics that are given.

    Args:
        src, dst: C and any other dims.
        statistics: scale, shift, mean and variance, each C alone and f32.
        epsilon: added to the variance.
    """

    def __init__(
        self, src: VTensor, statistics: Sequence[VTensor], dst: VTensor, epsilon: float
    ) -> None:
        order = channels_second(src.dims)
        operands = [Operand("src", src, order), Operand("dst", dst, order)]
        names = ("scale", "shift", "mean", "variance")
        vectors = [Operand(k, t, ("C",)) for k, t in zip(names, statistics, strict=True)]
        super().__init__([*operands, *vectors], [*[Layout.ANY] * 2, *["C"] * len(vectors)])
        self.epsilon = epsilon

    def make(self, src: Desc, dst: Desc, *_: Desc) -> Primitive:
        """The primitive on src and dst; the statistics are vectors of their own element type."""
        return dnnl.batch_normalization(src, dst, self.epsilon)


class LayerNormalization(RowWise, FollowingRoutine):
    """Normalization over one dim by its own mean and variance.

    Args:
        src: any dims.
        scale: the dim alone, f32.
        results: dst, with src's dims; mean, and 1 / sqrt(variance + epsilon), of size 1 along the
            dim, both f32.
        axis: the dim.
        epsilon: added to the variance.
        follow: the sum with a shift, which is the dim alone and f32.

    Raises:
        Decline: as OneDnnRoutine, it takes no such follower, or rows are longer than ``LONG_NORM``.
    """

    def __init__(
        self,
        src: VTensor,
        scale: VTensor,
        results: Sequence[VTensor],
        axis: str,
        epsilon: float,
        follow: Sequence[Follower] = (),
    ) -> None:
        if src.size(axis) > LONG_NORM:
            raise Decline(f"adds up more than {LONG_NORM} elements in few lanes")
        others = [dim for dim in canonical_order(src.dims) if dim != axis]
        order = (*(others or [""]), axis)
        named = zip(("src", "dst", "mean", "variance"), (src, *results), strict=True)
        operands = [Operand(name, tensor, order) for name, tensor in named]
        if len(follow) > 1:
            raise Decline("adds one shift")
        shifts = [Operand("shift", _shift(one, scale), (axis,)) for one in follow]
        vectors = [Operand("scale", scale, (axis,)), *shifts]
        super().__init__([*operands, *vectors], follow=follow)
        self.axis, self.epsilon = axis, epsilon
        self.row_dims = dict.fromkeys(range(4), axis)

    @cached_property
    def matrices(self) -> LayerNormalization:
        """Each row is normalized by itself."""
        rows = f"{self.axis}_rows"
        src, *results = (matrix(one.tensor, rows, self.axis) for one in self.operands[:4])
        scale = self.operands[4].tensor
        return LayerNormalization(src, scale, results, self.axis, self.epsilon, self.follow)

    def rows(self) -> Iterator[Row]:
        """Whatever has the dim last and unblocked, which kernels are for."""
        own = produced(self.operands[0].tensor)
        if own is not None and own.axes[-1:] == ((self.axis, 0),):
            row = self.row(own)
            if own == Layout.plain(own.dims) or self.flat(row) is not None:
                yield row
        yield self.row(Layout.plain(dim for dim in self.operands[0].order if dim))

    def row(self, layout: Layout) -> Row:
        """Everything as src, scale and shift as they must be."""
        return [*[layout] * 4, *[Layout.plain(one.order) for one in self.operands[4:]]]

    def layouts(self, primitive: Primitive) -> list[Layout]:
        """That of src tells all: the statistics have one dim less for oneDNN."""
        return list(self.row(layouts_of(primitive, self.operands[:1])[0]))

    def make(self, src: Desc, dst: Desc, mean: Desc, inverse: Desc, *vectors: Desc) -> Primitive:
        """The primitive on src, dst and the form of both statistics."""
        if mean != inverse:
            raise Decline("has one form for mean and variance")
        stat = mean.reshape(mean.dims[:-1])
        return dnnl.layer_normalization(src, stat, dst, self.epsilon, True, len(vectors) > 1)

    def __call__(self, *tensors: PTensor) -> None:
        """The primitive gives the variance: two more steps make its inverse root of it."""
        super().__call__(*tensors)
        own: Row = [tensor.required_layout for tensor in tensors]
        routine, row = self.flat(own) or (self, own)
        pair, inverse = [routine.operands[3]] * 2, tensors[3]
        for function in (Function("linear", 1.0, self.epsilon), Function("pow", 1.0, -0.5)):
            primitive = routine.build(pair, [row[3]] * 2, function.primitive)
            emit_on(primitive, {"src": inverse, "dst": inverse})


def _shift(follower: Follower, scale: VTensor) -> VTensor:
    """The operand of a sum that lies as the scale does."""
    does, operands = follower.expression(X, [OTHER] * len(follower.operands)), follower.operands
    if does is not None and len(operands) == 1 and binary(does) == "add":
        [shift] = operands
        if (shift.dtype, shift.dims) == (scale.dtype, scale.dims):
            return shift
    raise Decline(f"does not take {info_of(follower.op).name} behind it so")


class Softmax(FollowingRoutine):
    """Exponentials divided by their sum over one dim.

    Args:
        src, dst: the same dims.
        axis: the dim.
        logarithm: of the result.

    Raises:
        Decline: as OneDnnRoutine, or rows are longer than ``LONG_SOFTMAX``.
    """

    def __init__(self, src: VTensor, dst: VTensor, axis: str, *, logarithm: bool = False) -> None:
        if src.size(axis) > LONG_SOFTMAX:
            raise Decline(f"adds up more than {LONG_SOFTMAX} elements in few lanes")
        order = canonical_order(src.dims)
        super().__init__([Operand("src", src, order), Operand("dst", dst, order)])
        self.axis, self.logarithm = order.index(axis), logarithm
        self.last = Layout.plain([*(dim for dim in order if dim != axis), axis])

    def rows(self) -> Iterator[Row]:
        """As for all that follow their input; and with the axis last, which kernels are for."""
        yield from super().rows()
        yield self.row(self.last)

    def make(self, src: Desc, dst: Desc) -> Primitive:
        """The primitive on src and dst."""
        return dnnl.softmax(src, dst, self.axis, self.logarithm)


class Lrn(FollowingRoutine):
    """Local response normalization across channels.

    Args:
        src, dst: N C and spatial dims.
        size: number of channels in a sum, odd.
        alpha, beta, k: x / (k + alpha / size * sum)**beta.
    """

    def __init__(
        self, src: VTensor, dst: VTensor, size: int, alpha: float, beta: float, k: float
    ) -> None:
        order = channels_second(src.dims)
        if len(order) == 3:  # the kernels are for images: a series is one of height 1
            order = (*order[:2], "", order[2])
        super().__init__([Operand("src", src, order), Operand("dst", dst, order)])
        self.numbers = (size, alpha, beta, k)

    def make(self, src: Desc, dst: Desc) -> Primitive:
        """The primitive on src and dst."""
        return dnnl.lrn("across_channels", src, dst, *self.numbers)


def channels_second(dims: Iterable[str]) -> Order:
    """The dims with C numbered 1, as oneDNN wants it; a batch that the tensor lacks is "".

    >>> channels_second(["H", "C"])
    ('', 'C', 'H')
    """
    order = canonical_order(list(dims))
    batch = "N" if "N" in order else ""
    return (batch, "C", *(dim for dim in order if dim not in ("N", "C")))
