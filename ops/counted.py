"""Operators of which only a run knows how many elements they find.

Each writes the elements that it finds at the begin of an output of the largest size that the output
may have, zeros after them, and their number. A model that is read has a slice by that number after
the node.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from libdesc import Routine, eigen, invoker
from libdesc.numpy import definition
from libdesc.numpy.arrays import FLOATS, wide
from ptensor import Layout, PTensor
from vtensor.language.records import dataclass
from vtensor.language.spelling import NodeReader, counted
from vtensor.operators import Context, Cost, Opaque, operator, param
from vtensor.tensor import VTensor

Array = np.ndarray[Any, Any]

#: The number of coordinates of a box.
CORNERS = 4

#: A rule of operators that find elements in the order of all dims of x.
_ALL_DIMS = (lambda op, x, *_: len(op.order) == len(x.dims), "order must have all dims of x")


def _count(ctx: Context, place: int) -> VTensor:
    """Return the last output: the number of elements that are found."""
    return VTensor("s64", {"one": 1}, ctx.output(place))


def _in_order(op: Any, x: VTensor, *others: VTensor) -> list[Layout]:
    """Return layouts in which x has its dims in the order ``op.order``."""
    return [Layout.plain(op.order), *(Layout.plain(other.dims) for other in others)]


def _fill(output: PTensor, found: Array, axis: int = 0) -> None:
    """Write what was found at the begin of an output along an axis, and zeros after it."""
    data = output.data()
    data[...] = np.zeros((), data.dtype)
    data[(slice(None),) * axis + (slice(found.shape[axis]),)] = found


def _along(axis: Any) -> Callable[[Callable[[str, Any], Any]], Mapping[int, int]]:
    """Return a function of a node's attributes that returns ``axis(attribute axis, or 0)``."""
    return lambda attribute: axis(int(attribute("axis", 0) or 0))


def _read_nonzero(node: NodeReader) -> Sequence[VTensor]:
    x = node.input(0)
    outputs: Any = node.add(NonZero(tuple(x.dims)), x)
    return list(outputs)


@operator(
    "NonZero",
    dims={"x": "*", "indices": "rank n", "count": "one"},
    onnx=counted("NonZero", 9, _read_nonzero, lambda _: {0: 1}),
    traits=[Cost(1)],
    holds=[_ALL_DIMS],
)
@dataclass(frozen=True)
class NonZero:
    """Find the indices of the elements that are not 0, in row-major order.

    Dims:
        x: any    indices: rank n, where n is x's number of elements; s64    count: one
    Args:
        order: the dims of x, from slowest to fastest.
    Raises:
        DimError: x has other dims.

    >>> from vtensor.operators import Context
    >>> x = VTensor("f32", {"H": 2, "W": 3})
    >>> [y.summary() for y in NonZero(("H", "W")).compute(Context(), x)]
    ['s64 rank=2 n=6', 's64 one=1']

    Source: ONNX operator NonZero, opset 13.
    """

    order: tuple[str, ...] = param(dims_of="x")

    def compute(self, ctx: Context, x: VTensor) -> tuple[VTensor, VTensor]:
        sizes = {"rank": len(self.order), "n": x.num_elements}
        outputs = VTensor("s64", sizes, ctx.output(0)), _count(ctx, 1)
        ctx.dispatch(self, [x], [*outputs])
        return outputs


@invoker("NonZero", library="eigen", dtypes={"x": eigen.FOUND})
def eigen_nonzero(ctx: Context, op: NonZero, *tensors: VTensor) -> Routine:
    return eigen.nonzero(tensors, op.order)


@definition("NonZero", orders=_in_order)
def nonzero(ctx: Context, op: NonZero, x: PTensor, indices: PTensor, count: PTensor) -> None:
    data = x.data()
    found = np.argwhere(wide(data)).T if data.ndim else np.zeros((0, int(bool(data))), np.int64)
    _fill(indices, found, 1)
    count.data()[...] = found.shape[1]


def _read_compress(node: NodeReader) -> Sequence[VTensor]:
    x, condition = node.input(0), node.input(1, "k")
    axis = node.attribute("axis", None)
    op = Select(tuple(x.dims), "" if axis is None else node.axis(int(axis), x))
    outputs: Any = node.add(op, x, condition)
    return list(outputs)


@operator(
    "Select",
    dims={"x": "*", "condition": "k", "y": "*", "count": "one"},
    onnx=counted("Compress", 9, _read_compress, _along(lambda axis: {0: axis})),
    traits=[Cost(1), Opaque()],
    holds=[_ALL_DIMS],
)
@dataclass(frozen=True)
class Select:
    """Take the slices along a dim, or the elements, for which a condition is true.

    Dims:
        x: any    condition: k; bool    y: x's, or n, x's number of elements    count: one
    Args:
        order: the dims of x, from slowest to fastest.
        axis: the dim; empty takes elements of x in row-major order.
    Raises:
        DimError: x has other dims.

    >>> from vtensor.operators import Context
    >>> x, k = VTensor("f32", {"H": 2, "W": 3}), VTensor("bool", {"k": 2})
    >>> [y.summary() for y in Select(("H", "W"), "H").compute(Context(), x, k)]
    ['f32 H=2 W=3', 's64 one=1']

    Source: ONNX operator Compress, opset 11.
    """

    order: tuple[str, ...] = param(dims_of="x")
    axis: str = param(default="")

    def compute(self, ctx: Context, x: VTensor, condition: VTensor) -> tuple[VTensor, VTensor]:
        sizes = {dim: x.size(dim) for dim in self.order} if self.axis else {"n": x.num_elements}
        outputs = VTensor(x.dtype, sizes, ctx.output(0)), _count(ctx, 1)
        ctx.dispatch(self, [x, condition], [*outputs])
        return outputs


@invoker("Select", library="eigen", dtypes={"x": eigen.MOVED, "condition": ["bool"]})
def eigen_select(ctx: Context, op: Select, *tensors: VTensor) -> Routine:
    return eigen.select(tensors, op.order, op.axis)


@definition("Select", orders=_in_order, dtypes={"condition": ["bool"]})
def select(
    ctx: Context, op: Select, x: PTensor, condition: PTensor, y: PTensor, count: PTensor
) -> None:
    axis = op.order.index(op.axis) if op.axis else 0
    data = x.data() if op.axis else x.data().reshape(-1)
    places = np.flatnonzero(condition.data()[: data.shape[axis]])
    _fill(y, data.take(places, axis), axis)
    count.data()[...] = len(places)


def _read_unique(node: NodeReader) -> Sequence[VTensor]:
    x, axis = node.input(0), node.attribute("axis", None)
    along = "" if axis is None else node.axis(int(axis), x)
    op = Unique(tuple(x.dims), along, bool(node.attribute("sorted", 1)))
    outputs: Any = node.add(op, x)
    listed = node.output_count
    return [*outputs[: listed - 1], outputs[-1]]


@operator(
    "Unique",
    dims={"x": "*", "y": "*", "indices": "n", "inverse": "n", "counts": "n", "count": "one"},
    onnx=counted("Unique", 11, _read_unique, _along(lambda axis: {0: axis, 1: 0, 3: 0})),
    traits=[Cost(16)],
    holds=[_ALL_DIMS],
)
@dataclass(frozen=True)
class Unique:
    """Find the distinct elements, or the distinct slices along a dim.

    Dims:
        x: any    y: x's, or n    indices, inverse, counts: n; s64    count: one
        n is x's number of elements, or its size along ``axis``.
    Args:
        order: the dims of x, from slowest to fastest.
        axis: the dim; empty compares elements.
        sorted: True sorts what is found; False keeps the order of first occurrence.
    Raises:
        DimError: x has other dims.

    ``indices`` has the first occurrence of each distinct element, ``inverse`` the index in y of
    each element, and ``counts`` the number of its occurrences.

    >>> from vtensor.operators import Context
    >>> x = VTensor("f32", {"H": 2, "W": 3})
    >>> [y.summary() for y in Unique(("H", "W")).compute(Context(), x)][:2]
    ['f32 n=6', 's64 n=6']

    Source: ONNX operator Unique, opset 11.
    """

    order: tuple[str, ...] = param(dims_of="x")
    axis: str = param(default="")
    sorted: bool = param(default=True)

    def compute(self, ctx: Context, x: VTensor) -> tuple[VTensor, ...]:
        count = x.size(self.axis) if self.axis else x.num_elements
        sizes = {dim: x.size(dim) for dim in self.order} if self.axis else {"n": count}
        numbers = [VTensor("s64", {"n": count}, ctx.output(i)) for i in (1, 2, 3)]
        outputs = VTensor(x.dtype, sizes, ctx.output(0)), *numbers, _count(ctx, 4)
        ctx.dispatch(self, [x], [*outputs])
        return outputs


@invoker("Unique", library="eigen", dtypes={"x": eigen.FOUND})
def eigen_unique(ctx: Context, op: Unique, *tensors: VTensor) -> Routine:
    return eigen.unique(tensors, op.order, op.axis, op.sorted)


@definition("Unique", orders=_in_order)
def unique(ctx: Context, op: Unique, x: PTensor, y: PTensor, *numbers: PTensor) -> None:
    axis = op.order.index(op.axis) if op.axis else 0
    data = x.data() if op.axis else x.data().reshape(-1)
    _, first, inverse, counts = np.unique(
        wide(data), return_index=True, return_inverse=True, return_counts=True, axis=axis
    )
    ranks = np.arange(len(first)) if op.sorted else np.argsort(first, kind="stable")
    places = np.empty_like(ranks)
    places[ranks] = np.arange(len(ranks))
    _fill(y, data.take(first[ranks], axis), axis)
    rows = first[ranks], places[inverse.reshape(-1)], counts[ranks], np.array([len(first)])
    for tensor, row in zip(numbers, rows, strict=True):
        _fill(tensor, row)


def _read_suppression(node: NodeReader) -> Sequence[VTensor]:
    def scalar(index: int) -> Any:
        return node.constant(index).reshape(-1)[0].item() if node.has(index) else 0

    score = float(scalar(4)) if node.has(4) else -np.inf
    centered = bool(node.attribute("center_point_box", 0))
    op = NonMaxSuppression(max(int(scalar(2)), 0), float(scalar(3)), score, centered)
    outputs: Any = node.add(op, node.input(0, "B S corner"), node.input(1, "B C S"))
    return list(outputs)


@operator(
    "NonMaxSuppression",
    dims={"boxes": "B S corner", "scores": "B C S", "indices": "n three", "count": "one"},
    equal=[("boxes.corner", "4")],
    onnx=counted("NonMaxSuppression", 10, _read_suppression, lambda _: {0: 0}),
    traits=[Cost(64)],
)
@dataclass(frozen=True)
class NonMaxSuppression:
    """Choose, for each image and class, the boxes of the highest scores that overlap little.

    Boxes are taken by falling score; a box is left out if its intersection with a chosen box, as a
    part of their union, is more than ``iou_threshold``.

    Dims:
        boxes: B S corner    scores: B C S
        indices: n three: image, class and box; s64    count: one
        n = B*C * the smaller of S and ``most``
    Args:
        most: the most boxes of an image and class.
        iou_threshold: the largest overlap of two chosen boxes.
        score_threshold: a box is left out unless its score is larger.
        center_point_box: True if a box is x and y of its centre, width and height; False if it is
            y and x of two opposite corners.
    Raises:
        DimError: boxes and scores do not fit.

    >>> from vtensor.operators import Context
    >>> boxes = VTensor("f32", {"B": 1, "S": 9, "corner": 4})
    >>> scores = VTensor("f32", {"B": 1, "C": 2, "S": 9})
    >>> [y.summary() for y in NonMaxSuppression(3).compute(Context(), boxes, scores)]
    ['s64 n=6 three=3', 's64 one=1']

    Source: ONNX operator NonMaxSuppression, opset 11.
    """

    most: int = param(default=0, minimum=0)
    iou_threshold: float = param(default=0.0)
    score_threshold: float = param(default=-np.inf)
    center_point_box: bool = param(default=False)

    def compute(self, ctx: Context, boxes: VTensor, scores: VTensor) -> tuple[VTensor, VTensor]:
        count = min(self.most, scores.size("S"))
        sizes = {"n": scores.size("B") * scores.size("C") * count, "three": 3}
        outputs = VTensor("s64", sizes, ctx.output(0)), _count(ctx, 1)
        ctx.dispatch(self, [boxes, scores], [*outputs])
        return outputs


@invoker("NonMaxSuppression", library="eigen", dtypes={"boxes": ["f32"], "scores": ["f32"]})
def eigen_suppression(ctx: Context, op: NonMaxSuppression, *tensors: VTensor) -> Routine:
    numbers = op.most, op.iou_threshold, op.score_threshold, op.center_point_box
    return eigen.suppression(tensors, *numbers)


def _box_orders(op: object, *tensors: VTensor) -> list[Layout]:
    """Return layouts in which images come first, and coordinates and boxes last."""
    orders = ("B", "S", "corner"), ("B", "C", "S"), *(tensor.dims for tensor in tensors[2:])
    return [Layout.plain(order) for order in orders]


@definition("NonMaxSuppression", orders=_box_orders, dtypes={"boxes": FLOATS, "scores": FLOATS})
def suppression(
    ctx: Context,
    op: NonMaxSuppression,
    boxes: PTensor,
    scores: PTensor,
    indices: PTensor,
    count: PTensor,
) -> None:
    corners, numbers = wide(boxes.data()), wide(scores.data())
    rows = [
        (image, kind, place)
        for image, of_image in enumerate(numbers)
        for kind, of_class in enumerate(of_image)
        for place in _chosen(_corners(corners[image], op.center_point_box), of_class, op)
    ]
    _fill(indices, np.array(rows, np.int64).reshape(-1, 3))
    count.data()[...] = len(rows)


def _corners(boxes: Array, centered: bool) -> tuple[Array, Array]:
    """Return the low and the high corner of each box."""
    first, second = boxes[:, :2], boxes[:, 2:]
    if centered:
        return first - second / 2, first + second / 2
    return np.minimum(first, second), np.maximum(first, second)


def _chosen(corners: tuple[Array, Array], scores: Array, op: NonMaxSuppression) -> list[int]:
    """Return the indices of the chosen boxes of an image and class, by falling score."""
    low, high = corners
    areas = np.prod(high - low, axis=1)
    left = np.flatnonzero(scores > op.score_threshold)
    left = left[np.argsort(-scores[left], kind="stable")]
    chosen: list[int] = []
    while len(left) and len(chosen) < op.most:
        box, left = int(left[0]), left[1:]
        chosen.append(box)
        sides = np.minimum(high[box], high[left]) - np.maximum(low[box], low[left])
        common = np.prod(np.maximum(sides, 0), axis=1)
        overlap = common / (areas[box] + areas[left] - common)  # NaN for two empty boxes
        left = left[~((overlap > np.float32(op.iou_threshold)) & (common > 0))]
    return chosen
