"""Resize: sampling of an image, or any tensor, at other sizes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import inf
from typing import Any

import numpy as np

from libdesc import eigen, invoker, onednn
from libdesc.numpy import definition
from libdesc.numpy.arrays import NUMBERS, Array, wide
from libdesc.numpy.casts import stored
from libdesc.routine import Routine
from libdesc.tracing import pure, traced
from ops._names import from_attributes, same_names
from ops._places import one_output
from ops._sampling import cubic, linear, shaped
from ops._sliding import Tensor
from ops._writing import parameters
from ptensor import PTensor
from vtensor.errors import ModelError
from vtensor.operators import Context, Moves, NodeReader, NodeWriter, Spelling, operator, param
from vtensor.tensor import VTensor

Box = tuple[float, float]


def _half_pixel(y: Array, scale: float, *_: object) -> Array:
    return (y + 0.5) / scale - 0.5


def _symmetric(y: Array, scale: float, exact: float, length: int, _box: Box) -> Array:
    return length / 2 * (1 - y.size / exact) + (y + 0.5) / scale - 0.5


def _aligned(y: Array, exact: float, length: int) -> Array:
    return 0 * y if y.size == 1 or exact == 1 else y * (length - 1) / (exact - 1)


def _cropped(y: Array, _scale: float, exact: float, length: int, box: Box) -> Array:
    begin, end = box
    if y.size == 1 or exact == 1:
        return 0 * y + (begin + end) * (length - 1) / 2
    return begin * (length - 1) + y * (end - begin) * (length - 1) / (exact - 1)


#: By ``coordinates``, a function that maps the elements of y, along one dim, to coordinates in x.
#: Its arguments are the indices of y's elements, the scale, y's size before it was rounded, x's
#: size, and the begin and end of the box that is cropped out of x. The coordinates have the element
#: type of the indices.
COORDINATES: dict[str, Callable[[Array, float, float, int, Box], Array]] = {
    "half_pixel": _half_pixel,
    "half_pixel_symmetric": _symmetric,
    "pytorch_half_pixel": lambda y, scale, *_: _half_pixel(y, scale) if y.size != 1 else 0 * y,
    "align_corners": lambda y, _, exact, n, __: _aligned(y, exact, n),
    "asymmetric": lambda y, scale, *_: y / scale,
    "tf_half_pixel_for_nn": lambda y, scale, *_: (y + 0.5) / scale,
    "tf_crop_and_resize": _cropped,
}
#: Half the distance of two elements, plus a tolerance: f32 coordinates halfway between two elements
#: are inexact.
HALF_STEP = 0.5 + 1e-6
#: By ``nearest_mode``, the function that rounds coordinates to indices of elements.
ROUNDINGS: dict[str, Callable[[Array], Array]] = {
    "round_prefer_floor": lambda places: np.ceil(places - HALF_STEP),
    "round_prefer_ceil": lambda places: np.floor(places + HALF_STEP),
    "floor": np.floor,
    "ceil": np.ceil,
}
#: By ``coordinates``, the values of ``nearest_mode`` with which a whole scale s repeats each
#: element of x s times.
REPEATING = {
    "asymmetric": ("floor",),
    "half_pixel": ("round_prefer_floor", "round_prefer_ceil"),
    "pytorch_half_pixel": ("round_prefer_floor", "round_prefer_ceil"),
}
#: An f32 scale is read as an exact quotient if its numerator is below this: no other quotient of
#: sizes below 2**14 rounds to the same f32.
EXACT_NUMERATOR = 1 << 10
#: The size from which on coordinates are computed in f64: f32 is spaced by 1/2 there, and cannot
#: hold coordinates in between.
F64_SIZE = 1 << 22

#: The parameters that are no attributes of the same name in ONNX. The others are, with the same
#: defaults.
_CONVERTED = ("axes", "sizes", "scales", "roi", "coordinates")


def _read(node: NodeReader) -> VTensor:
    x = node.input(0)
    axes = node.attribute("axes") or list(range(len(x.dims)))
    dims = [node.axis(int(axis), x) for axis in axes]
    have = [x.size(dim) for dim in dims]
    scales = [*map(float, _constant_row(node, 2, len(dims)))]
    sizes = _constant_row(node, 3, len(dims))
    policy = node.attribute("keep_aspect_ratio_policy", "stretch")
    if sizes and policy != "stretch":
        choose = min if policy == "not_larger" else max
        scale = choose(size / old for size, old in zip(sizes, have, strict=True))
        scales = [scale] * len(dims)
        sizes = [int(scale * old + 0.5) for old in have]
    elif sizes:
        rows = zip(sizes, have, strict=True)
        scales = [1.0 if size == old or not old else float(size) / float(old) for size, old in rows]
    elif scales:
        grown = [scaled(node, *row) for row in zip(have, scales, strict=True)]
        sizes, scales = map(list, zip(*grown, strict=True))
    else:
        raise node.refuse("neither scales nor sizes are given")
    corners = [*map(float, _constant_row(node, 1, 2 * len(dims)))] or [0.0] * len(dims) + [
        1.0
    ] * len(dims)
    boxes = zip(corners[: len(dims)], corners[len(dims) :], strict=True)
    sampled = zip(dims, sizes, scales, boxes, have, strict=True)
    kept = [row[:4] for row in sampled if row[1:4] != (row[4], 1, (0, 1))]
    converted: dict[str, Any] = dict(
        zip(_CONVERTED[:4], zip(*kept, strict=True) if kept else [()] * 4, strict=True)
    )
    converted["coordinates"] = node.attribute("coordinate_transformation_mode", "half_pixel")
    return node.add(from_attributes(node, Resize, **converted), x)


def scaled(node: NodeReader, old: int, scale: float) -> tuple[int, float]:
    """Return a dim's new size, ``old`` times ``scale``, and the exact scale.

    Exporters divide two sizes and round the quotient to the f32 ``scale``. If the nearest whole
    size divided by ``old`` rounds to ``scale``, this size and the unrounded quotient are returned.
    Otherwise the product in f32 is rounded down, as in ONNX Runtime, and ``scale`` is returned.
    """
    if not 0 < scale < inf:
        text = f"Resize {node.name!r}: a scale of {scale}, which must be above 0 and finite"
        raise ModelError(f"{text}; to fix: give sizes, or other scales")
    above, below = scale.as_integer_ratio()
    if above < EXACT_NUMERATOR:  # integer arithmetic: sizes may be symbolic
        return above * old // below, scale
    size = round(scale * old)
    if old and np.float32(size / old) == np.float32(scale):
        return size, size / old
    return int(np.float32(scale) * np.float32(old)), scale


def _write(node: NodeWriter, op: Resize) -> None:
    if op.roi and op.coordinates == "tf_crop_and_resize":
        raise node.refuse("a box that is cropped first is not written")
    [x] = node.inputs
    scales = dict(zip(op.axes, op.scales, strict=True))
    sizes = dict(zip(op.axes, op.sizes, strict=True))
    if all(x.size(dim) and scales[dim] == size / x.size(dim) for dim, size in sizes.items()):
        told = ["", node.constant([*{**x.dims, **sizes}.values()])]
    else:
        told = [node.constant([scales.get(dim, 1.0) for dim in x.dims], "f32")]
    same = {name: value for name, value in parameters(op).items() if name not in _CONVERTED}
    same["coordinate_transformation_mode"] = op.coordinates
    node.emit("Resize", node.operand(x), "", *told, **same)


def _constant_row(node: NodeReader, index: int, length: int) -> list[Any]:
    """Return the ``length`` numbers in a node's constant input ``index``.

    If the input is absent or empty, the list is empty. If it has another number of elements, an
    error says that the node is not supported.
    """
    row: list[Any] = node.constant(index).tolist() if node.has(index) else []
    if row and len(row) != length:
        raise node.refuse(f"input {index} has {len(row)} numbers, not {length}")
    return row


def _read_scales(node: NodeReader) -> VTensor:
    """Read ONNX's Upsample, or its Resize of opset 10, as one Resize or two; return the output.

    Coordinates are ``asymmetric``. The first Resize is along dims that grow, and rounds coordinates
    down. The second is along dims that shrink, and rounds them up.
    """
    x = node.input(0)
    scales = node.attribute("scales") if node.opset < 9 else node.constant(1).tolist()
    if len(scales) != len(x.dims):
        raise node.refuse(f"{len(scales)} scales of {len(x.dims)} dims")
    for grow in (True, False):
        rows = zip(x.dims.items(), scales, strict=True)
        kept = [
            (dim, *scaled(node, size, float(scale)))
            for (dim, size), scale in rows
            if scale != 1 and (scale > 1) == grow
        ]
        axes, sizes, factors = zip(*kept, strict=True) if kept else ((), (), ())
        mode, nearest = node.attribute("mode", "nearest"), "floor" if grow else "ceil"
        if kept or not grow:
            x = node.add(Resize(axes, sizes, factors, mode, "asymmetric", nearest), x)
    return x


def _rows_agree(op: Resize, x: VTensor) -> bool:
    return {len(op.sizes), len(op.scales), len(op.roi or op.axes)} == {len(op.axes)}


def _has_elements(op: Resize, x: VTensor) -> bool:
    return not any(x.size(d) == 0 and n for d, n in zip(op.axes, op.sizes, strict=True))


def _takes_elements(op: Resize) -> bool:
    """Return whether each element of the output is an element of the input."""
    return op.mode == "nearest" and op.coordinates != "tf_crop_and_resize"


@operator(
    "Resize",
    dims={"x": "*", "y": "*"},
    holds=[
        (_rows_agree, "a size and a scale must be given for each axis, each axis once"),
        (
            lambda op, _: all(0 < scale < inf for scale in op.scales),
            "scales {op.scales} must be above 0",
        ),
        (_has_elements, "there are no elements to sample"),
    ],
    onnx=[
        Spelling("Resize", 10, _read_scales, same_names, until=10),
        Spelling("Resize", 11, _read, same_names, write=_write),
        Spelling("Upsample", 7, _read_scales, same_names, until=9),
    ],
    traits=[Moves(made=lambda op, _: op if _takes_elements(op) else None)],
)
class Resize:
    """Sample a tensor at other coordinates along some dims, one dim after another.

    ``coordinates`` maps each index of y to a coordinate in x, between elements. The value there is
    the nearest element, or a sum of the neighbours weighted by distance. Beyond the border, x
    continues with its border elements.

    Dims:
        x: any
        y: x's dims, with ``sizes`` along ``axes``
    Args:
        axes: the dims that are resized.
        sizes: sizes of y along these dims.
        scales: factor from x's size to y's along each of these dims, before y's size was rounded.
        mode: ``nearest``, ``linear`` or ``cubic``.
        coordinates: the map of coordinates, ONNX's coordinate_transformation_mode.
        nearest_mode: how ``nearest`` rounds a coordinate to an element.
        cubic_coeff_a: slope of the cubic at distance 1.
        exclude_outside: True gives neighbours beyond the border the weight 0, and scales the other
            weights so that they add up to 1.
        antialias: True blends elements, where y is smaller than x, from a range that is wider by
            the factor 1 / scale.
        roi: begin and end along each axis, as fractions of x's size, for ``tf_crop_and_resize``.
        extrapolation_value: value outside x, for ``tf_crop_and_resize``.
    Raises:
        DimError: x has no such dim, axes, sizes and scales are not equally many, or x has no
            elements to sample.

    >>> from vtensor.operators import Context
    >>> x = VTensor("f32", {"N": 1, "C": 3, "H": 7, "W": 7})
    >>> Resize(("H", "W"), (14, 9), (2.0, 9 / 7)).compute(Context(), x).summary()
    'f32 N=1 C=3 H=14 W=9'

    Source: ONNX operators Resize, opset 19, and Upsample, opset 9.
    """

    axes: tuple[str, ...] = param(dims_of="x")
    sizes: tuple[int, ...] = param(minimum=0)
    scales: tuple[float, ...] = param()
    mode: str = param(default="nearest", choices=("nearest", "linear", "cubic"))
    coordinates: str = param(default="half_pixel", choices=tuple(COORDINATES))
    nearest_mode: str = param(default="round_prefer_floor", choices=tuple(ROUNDINGS))
    cubic_coeff_a: float = param(default=-0.75)
    exclude_outside: bool = param(default=False)
    antialias: bool = param(default=False)
    roi: tuple[tuple[float, float], ...] = param(default=())
    extrapolation_value: float = param(default=0.0)

    def compute(self, ctx: Context, x: VTensor) -> VTensor:
        sizes = dict(zip(self.axes, self.sizes, strict=True))
        return one_output(ctx, self, [x], {**x.dims, **sizes})


def _places(op: Resize, index: int, length: int, precision: type = np.float64) -> Array:
    """Return the coordinate in x, in elements, of each element of y along one dim.

    Args:
        op: the Resize.
        index: the index of the dim in ``op.axes``.
        length: x's size along the dim.
        precision: the type in which coordinates are computed, and returned.
    """
    scale, box = op.scales[index], op.roi[index] if op.roi else (0.0, 1.0)
    size = op.sizes[index]
    exact = size if length and scale == size / length else scale * length
    y: Array = np.arange(size, dtype=precision)
    return COORDINATES[op.coordinates](y, scale, exact, length, box)


def _nearest(op: Resize, index: int, length: int) -> Array:
    """Return, for each element of y along a dim, the index of the nearest element of x.

    ``index`` is the dim's index in ``op.axes``, ``length`` is x's size along it. Coordinates are
    computed in f32, as in ONNX Runtime, if both sizes are below ``F64_SIZE``.
    """
    precision = np.float32 if max(length, op.sizes[index]) < F64_SIZE else np.float64
    places = _places(op, index, length, precision).astype(np.float64)
    nearest = ROUNDINGS[op.nearest_mode](places)
    return np.asarray(np.clip(nearest, 0, length - 1).astype(np.int64))


def _onednn_nearest(size: int, length: int) -> Array:
    """Return, for each element of y along a dim, the index in x of the element that oneDNN takes.

    For index y, oneDNN computes (y + 1/2) * length / size - 1/2 in f32, in this order, and rounds
    to the nearest, halves up. ``size`` and ``length`` are the sizes of y and of x.
    """
    y = np.arange(size, dtype=np.float32)
    places = (y + np.float32(0.5)) * np.float32(length) / np.float32(size) - np.float32(0.5)
    return np.floor(places.astype(np.float64) + 0.5).astype(np.int64)


def _neighbours(op: Resize, index: int, length: int) -> tuple[Array, Array]:
    """Return the elements of x that are blended to each element of y along a dim.

    ``index`` is the dim's index in ``op.axes``, ``length`` is x's size along it.

    Returns:
        Two arrays with a row for each element of y: the indices of the elements of x, and their
        weights, which add up to 1 unless all are 0.
    """
    places = _places(op, index, length).reshape(-1, 1)
    shrink = min(op.scales[index], 1.0) if op.antialias else 1.0
    reach = int(np.ceil((1 if op.mode == "linear" else 2) / shrink))
    near = np.floor(places).astype(np.int64) + np.arange(1 - reach, reach + 1)
    distance = (near - places) * shrink
    weights = linear(distance) if op.mode == "linear" else cubic(distance, op.cubic_coeff_a)
    if op.exclude_outside:
        weights = np.where((near >= 0) & (near < length), weights, 0)
    total = weights.sum(1, keepdims=True)
    return np.clip(near, 0, length - 1), weights / np.where(total == 0, 1, total)


def _is_bilinear(op: Resize, x: Tensor) -> bool:
    """Return whether ``op`` blends along two dims that are neighbours among x's dims, and no more
    than two elements along each.
    """
    places = sorted(map(list(x.dims).index, op.axes))
    neighbours = len(places) == 2 and places[1] == places[0] + 1
    return neighbours and op.mode == "linear" and not (op.antialias or op.exclude_outside)


@pure
def between(
    coordinates: str, size: int, scale: float, length: int, begin: float, end: float
) -> list[Any]:
    """Return between which elements of x each element of y lies along a dim, and their weights.

    Coordinates and weights are computed as in ONNX Runtime, in f32 if both sizes are below
    ``F64_SIZE``.

    Args:
        coordinates, scale: as in a Resize.
        size, length: sizes of y and of x along the dim.
        begin, end: the range of ``roi`` along the dim.

    Returns:
        ``length``; for each element of y the indices of the elements below and above it; and their
        weights.
    """
    op = Resize(("x",), (size,), (scale,), "linear", coordinates, roi=((begin, end),))
    precision = np.float32 if max(length, size) < F64_SIZE else np.float64
    places = np.clip(_places(op, 0, length, precision), 0, length - 1)
    below = places.astype(np.int64)
    above = np.minimum(below + 1, length - 1)
    far = (np.abs(places - near.astype(precision)) for near in (above, below))
    weights = (np.where(above == below, 0.5, row).astype(np.float32) for row in far)
    return [length, *(row.tolist() for row in (below, above, *weights))]


def _between(op: Resize, x: Tensor, dim: str) -> list[Any]:
    """Return the result of ``between`` along a dim of x."""
    index = op.axes.index(dim)
    box = op.roi[index] if op.roi else (0.0, 1.0)
    return traced(between)(op.coordinates, op.sizes[index], op.scales[index], x.size(dim), *box)


def _bilinear(op: Resize, x: Tensor, value: Array) -> Array:
    """Return ``value``, the elements of ``x``, resized along two dims: four elements times their
    weights, added in ONNX Runtime's order.
    """
    row_axis, column_axis = sorted(map(list(x.dims).index, op.axes))
    rows, columns = (_between(op, x, list(x.dims)[axis])[1:] for axis in (row_axis, column_axis))
    result = np.zeros((), value.dtype)
    for row, column in np.ndindex(2, 2):
        low = shaped(np.asarray(rows[2 + row], np.float32), row_axis, value.ndim)
        high = shaped(np.asarray(columns[2 + column], np.float32), column_axis, value.ndim)
        weight = (low * high).astype(value.dtype)
        above = np.take(value, np.asarray(rows[row], np.int64), row_axis)
        taken = np.take(above, np.asarray(columns[column], np.int64), column_axis)
        result = result + np.where(weight != 0, taken * weight, 0)
    return np.asarray(result)


def _blend(x: Array, axis: int, near: Array, weights: Array) -> Array:
    """Return ``x`` resized along the axis with the index ``axis``, by weighted sums of elements.

    ``near`` and ``weights`` are the results of ``_neighbours``. An element with weight 0 is left
    out, even if it is NaN.
    """
    result = np.zeros((), x.dtype)
    for tap in range(near.shape[1]):
        row = shaped(weights[:, tap].astype(x.dtype), axis, x.ndim)
        result = result + np.where(row != 0, np.take(x, near[:, tap], axis) * row, 0)
    return result


def _outside(op: Resize, x: Tensor) -> Array:
    """Return an array that is True where an element of y is sampled outside of x.

    It broadcasts to the shape of y. Only coordinates ``tf_crop_and_resize`` can be outside.
    """
    outside: Array = np.zeros((1,) * len(x.dims), bool)
    if op.coordinates == "tf_crop_and_resize":
        for index, dim in enumerate(op.axes):
            places, axis = _places(op, index, x.size(dim)), list(x.dims).index(dim)
            beyond = (places < 0) | (places > x.size(dim) - 1)
            outside = outside | shaped(beyond, axis, len(x.dims))
    return outside


def _can_interpolate(op: Resize, x: VTensor, y: VTensor) -> bool | str:
    return op.mode == "nearest" or x.dtype != "bool" or "bool values cannot be interpolated"


@definition("Resize", dtypes=(*NUMBERS, "bool"), when=_can_interpolate)
def resize(ctx: Context, op: Resize, x: PTensor, y: PTensor) -> None:
    value, outside = wide(x.data()), _outside(op, x)
    if op.mode != "nearest" and value.dtype.kind in "iu":
        value = value.astype(np.float64)
    bilinear = _is_bilinear(op, x)
    if bilinear:
        value = _bilinear(op, x, value)
    for index, dim in enumerate(() if bilinear else op.axes):
        axis, length = list(x.dims).index(dim), x.size(dim)
        if op.mode == "nearest":
            value = np.take(value, _nearest(op, index, length), axis)
        else:
            value = _blend(value, axis, *_neighbours(op, index, length))
    value = stored(value, y.dtype)
    beyond = stored(np.asarray(op.extrapolation_value), y.dtype).astype(value.dtype)
    y.data()[...] = np.where(outside, beyond, value) if outside.any() else value


def _repeats(op: Resize, index: int, length: int) -> bool:
    """Return whether y repeats each element of x ``scale`` times along a dim, for any size of x.

    ``index`` is the dim's index in ``op.axes``, ``length`` is x's size along it. If so, the element
    with index y takes the element of x at y / scale or (y + 1/2) / scale, rounded down. The second
    quotient is never whole.
    """
    scale = op.scales[index]
    if op.mode != "nearest" or not float(scale).is_integer():
        return False
    ways = REPEATING.get(op.coordinates, ())
    return op.nearest_mode in ways and op.sizes[index] == int(scale) * length


def _samples_evenly(op: Resize, x: VTensor, y: VTensor) -> bool | str:
    """Return True if oneDNN computes the same output, else the reason why not, as text.

    oneDNN samples at even distances. In linear mode it also adds elements of weight 0, which gives
    NaN if one is infinite; so a Resize with such elements is declined. So is one in f32 along two
    dims: oneDNN adds in an order that rounds otherwise than ONNX Runtime's.
    """
    if _is_bilinear(op, x) and x.dtype == "f32":
        return "adds four products in another order"
    if op.mode == "cubic":
        return "resamples to the nearest, or linearly"
    for index, (dim, size) in enumerate(zip(op.axes, op.sizes, strict=True)):
        length = x.size(dim)
        if _repeats(op, index, length):
            continue
        if op.mode == "nearest":
            if not np.array_equal(_onednn_nearest(size, length), _nearest(op, index, length)):
                return f"places elements along {dim} otherwise"
            continue
        even = Resize((dim,), (size,), (size / length,), op.mode, "half_pixel")
        onednn_terms = np.asarray(_neighbours(even, 0, length))
        wanted = np.asarray(_neighbours(op, index, length))
        if onednn_terms.shape != wanted.shape or not np.allclose(onednn_terms, wanted):
            return f"places elements along {dim} otherwise"
        if not wanted[1].all():
            return f"blends elements along {dim} that count nothing"
    return not _outside(op, x).any() or "has no value for what lies outside"


@invoker("Resize", library="onednn", dtypes=["f32", "bf16", "f16"], when=_samples_evenly)
def onednn_resize(ctx: Context, op: Resize, x: VTensor, y: VTensor) -> Routine:
    return onednn.Resampling(op.mode, x, y)


def _stays_inside(op: Resize, x: VTensor, y: VTensor) -> bool | str:
    if _outside(op, x).any():
        return "has no value for what lies outside"
    if op.mode == "nearest" or not op.axes:
        return True
    return x.dtype in ("f32", "f16", "bf16") or f"blends f32, f16 and bf16, not {x.dtype}"


@invoker("Resize", library="eigen", dtypes=eigen.MOVED, when=_stays_inside)
def eigen_resize(ctx: Context, op: Resize, x: VTensor, y: VTensor) -> Routine:
    lengths = [(dim, index, x.size(dim)) for index, dim in enumerate(op.axes)]
    if op.mode == "nearest" or not op.axes:  # or no size changes
        rows = {dim: _nearest(op, index, size).tolist() for dim, index, size in lengths}
        return eigen.picked(x, y, {dim: eigen.runs_of(row) for dim, row in rows.items()})
    if _is_bilinear(op, x):
        dims = sorted(op.axes, key=list(x.dims).index)
        return eigen.bilinear(x, y, {dim: partial(_between, op, x, dim) for dim in dims})
    return eigen.blended(x, y, {dim: _neighbours(op, i, size) for dim, i, size in lengths})
