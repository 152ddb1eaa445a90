"""Normalizations: by statistics that are given, by those of each row, by sums over channels; and
softmax.
"""

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


#: The longest row of a normalization, and that of a softmax, in elements. oneDNN sums a row in f32,
#: in only as many partial sums as a vector has elements; longer sums would lose digits.
MAX_NORM, MAX_SOFTMAX = 1 << 14, 1 << 18


class BatchNormalization(OneDnnRoutine):
    """Normalization of each channel by given statistics.

    Args:
        src, dst: C and any other dims.
        statistics: scale, shift, mean and variance, each of dim C and f32.
        epsilon: the number that is added to the variance.
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
        """Return the primitive from the descriptors of src and dst; others are not needed."""
        return dnnl.batch_normalization(src, dst, self.epsilon)


class LayerNormalization(RowWise, FollowingRoutine):
    """Normalization of each row along a dim by the mean and the variance of the row.

    Args:
        src: any dims.
        scale: of dim ``axis``, f32.
        results: dst, with src's dims; the mean, and 1 / sqrt(variance + epsilon): both f32, with
            src's dims but size 1 along ``axis``.
        axis: the dim that is normalized over.
        epsilon: the number that is added to the variance.
        follow: at most one follower: the sum with a shift, of dim ``axis`` and f32.

    Raises:
        Decline: oneDNN does not run the call, it cannot fuse a follower, or rows are longer than
            ``MAX_NORM``.
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
        if src.size(axis) > MAX_NORM:
            raise Decline(f"adds up more than {MAX_NORM} elements in few lanes")
        others = [dim for dim in canonical_order(src.dims) if dim != axis]
        order = (*(others or [""]), axis)
        named = zip(("src", "dst", "mean", "variance"), (src, *results), strict=True)
        operands = [Operand(name, tensor, order) for name, tensor in named]
        if len(follow) > 1:
            raise Decline("adds one shift")
        shifts = [Operand("shift", _shift(follower, scale), (axis,)) for follower in follow]
        vectors = [Operand("scale", scale, (axis,)), *shifts]
        super().__init__([*operands, *vectors], follow=follow)
        self.axis, self.epsilon = axis, epsilon
        self.row_dims = dict.fromkeys(range(4), axis)

    @cached_property
    def matrices(self) -> LayerNormalization:
        """The same call with all rows along one dim: each row is normalized by itself."""
        rows = f"{self.axis}_rows"
        src, *results = (matrix(operand.tensor, rows, self.axis) for operand in self.operands[:4])
        scale = self.operands[4].tensor
        return LayerNormalization(src, scale, results, self.axis, self.epsilon, self.follow)

    def rows(self) -> Iterator[Row]:
        """Yield layouts to try, one per operand; in all of them ``axis`` is last and unblocked."""
        current = produced(self.operands[0].tensor)
        if current is not None and current.axes[-1:] == ((self.axis, 0),):
            row = self.row(current)
            if current == Layout.plain(current.dims) or self.flat(row) is not None:
                yield row
        yield self.row(Layout.plain(dim for dim in self.operands[0].order if dim))

    def row(self, layout: Layout) -> Row:
        """Return a layout per operand: ``layout``, except that scale and shift have their plain
        layout.
        """
        return [*[layout] * 4, *[Layout.plain(vector.order) for vector in self.operands[4:]]]

    def layouts(self, primitive: Primitive) -> list[Layout]:
        """Return the layouts that a primitive works in, one per operand.

        All are derived from the layout of src, since oneDNN's mean and variance lack the dim
        ``axis``.
        """
        return list(self.row(layouts_of(primitive, self.operands[:1])[0]))

    def make(self, src: Desc, dst: Desc, mean: Desc, inverse: Desc, *vectors: Desc) -> Primitive:
        """Return the layer normalization primitive.

        Args:
            src, dst, mean, inverse: descriptors of the first four operands; ``inverse`` is that of
                1 / sqrt(variance + epsilon).
            vectors: descriptors of the scale and perhaps the shift.

        Raises:
            Decline: mean and inverse have different layouts.
        """
        if mean != inverse:
            raise Decline("has one form for mean and variance")
        stat = mean.reshape(mean.dims[:-1])
        return dnnl.layer_normalization(src, stat, dst, self.epsilon, True, len(vectors) > 1)

    def __call__(self, *tensors: PTensor) -> None:
        """Emit three steps. The first is the primitive, which writes the variance into the third
        result.

        The other two replace the variance there by 1 / sqrt(variance + epsilon).
        """
        super().__call__(*tensors)
        layouts: Row = [tensor.required_layout for tensor in tensors]
        routine, row = self.flat(layouts) or (self, layouts)
        pair, inverse = [routine.operands[3]] * 2, tensors[3]
        for function in (Function("linear", 1.0, self.epsilon), Function("pow", 1.0, -0.5)):
            primitive = routine.build(pair, [row[3]] * 2, function.primitive)
            emit_on(primitive, {"src": inverse, "dst": inverse})


def _shift(follower: Follower, scale: VTensor) -> VTensor:
    """Return the shift that a follower adds.

    Raises:
        Decline: the follower is no sum with a tensor of the scale's dims and element type.
    """
    does, operands = follower.expression(X, [OTHER] * len(follower.operands)), follower.operands
    if does is not None and len(operands) == 1 and binary(does) == "add":
        [shift] = operands
        if (shift.dtype, shift.dims) == (scale.dtype, scale.dims):
            return shift
    raise Decline(f"cannot fuse {info_of(follower.op).name} here")


class Softmax(FollowingRoutine):
    """Exponentials divided by their sum over one dim.

    Args:
        src, dst: the same dims.
        axis: the dim.
        logarithm: True for the logarithm of the result.

    Raises:
        Decline: oneDNN does not run the call, or rows are longer than ``MAX_SOFTMAX``.
    """

    def __init__(self, src: VTensor, dst: VTensor, axis: str, *, logarithm: bool = False) -> None:
        if src.size(axis) > MAX_SOFTMAX:
            raise Decline(f"adds up more than {MAX_SOFTMAX} elements in few lanes")
        order = canonical_order(src.dims)
        super().__init__([Operand("src", src, order), Operand("dst", dst, order)])
        self.axis, self.logarithm = order.index(axis), logarithm
        self.last = Layout.plain([*(dim for dim in order if dim != axis), axis])

    def rows(self) -> Iterator[Row]:
        """Yield layouts to try: those of the base class, then one with ``axis`` last."""
        yield from super().rows()
        yield self.row(self.last)

    def make(self, src: Desc, dst: Desc) -> Primitive:
        """Return the softmax primitive for the descriptors of src and dst."""
        return dnnl.softmax(src, dst, self.axis, self.logarithm)


class Lrn(FollowingRoutine):
    """Local response normalization across channels.

    Args:
        src, dst: N C and spatial dims.
        size: number of neighbouring channels whose squares are added up; odd.
        alpha, beta, k: an element x becomes x / (k + alpha / size * sum)**beta, with the sum of the
            squares of its neighbours and itself.
    """

    def __init__(
        self, src: VTensor, dst: VTensor, size: int, alpha: float, beta: float, k: float
    ) -> None:
        order = channels_second(src.dims)
        if len(order) == 3:  # kernels need images: height 1 is added to a series
            order = (*order[:2], "", order[2])
        super().__init__([Operand("src", src, order), Operand("dst", dst, order)])
        self.numbers = (size, alpha, beta, k)

    def make(self, src: Desc, dst: Desc) -> Primitive:
        """Return the LRN primitive for the descriptors of src and dst."""
        return dnnl.lrn("across_channels", src, dst, *self.numbers)


def channels_second(dims: Iterable[str]) -> Order:
    """Return dims in an order with N first and C second, as oneDNN needs it.

    If there is no N, the first dim is "", which stands for a dim of size 1.

    >>> channels_second(["H", "C"])
    ('', 'C', 'H')
    """
    order = canonical_order(list(dims))
    batch = "N" if "N" in order else ""
    return (batch, "C", *(dim for dim in order if dim not in ("N", "C")))
