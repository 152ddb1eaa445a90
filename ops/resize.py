"""An image, or any tensor, at other sizes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from libdesc import invoker, onednn
from libdesc.numpy.arrays import NUMBERS, wide
from libdesc.onednn.layouts import canonical_order
from libdesc.routine import Routine
from ops._names import same_names
from ops._sampling import cubic, linear, settled
from ops._writing import parameters
from ptensor import Layout, PTensor, lib_tagger
from vtensor.errors import DimError
from vtensor.operators import Context, NodeReader, NodeWriter, Spelling, operator, param
from vtensor.tensor import VTensor

Array = np.ndarray[Any, Any]

COORDINATES = (
    "half_pixel",
    "half_pixel_symmetric",
    "pytorch_half_pixel",
    "align_corners",
    "asymmetric",
    "tf_half_pixel_for_nn",
    "tf_crop_and_resize",
)
ROUNDINGS = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")


def _read(node: NodeReader) -> VTensor:
    x = node.input(0)
    axes = node.attribute("axes") or list(range(len(x.dims)))
    dims = tuple(node.axis(int(axis), x) for axis in axes)
    have = [x.size(dim) for dim in dims]
    scales = _row(node, 2, len(dims))
    sizes = [int(size) for size in _row(node, 3, len(dims))]
    policy = node.attribute("keep_aspect_ratio_policy", "stretch")
    if sizes and policy != "stretch":
        choose = min if policy == "not_larger" else max
        scale = choose(size / old for size, old in zip(sizes, have, strict=True))
        scales = [scale] * len(dims)
        sizes = [int(scale * old + 0.5) for old in have]
    elif sizes:
        scales = [size / old if old else 1.0 for size, old in zip(sizes, have, strict=True)]
    elif scales:
        sizes = [int(scale * old) for scale, old in zip(scales, have, strict=True)]
    else:
        raise node.refuse("neither scales nor sizes are given")
    roi = _row(node, 1, 2 * len(dims)) or [0.0] * len(dims) + [1.0] * len(dims)
    kept = [
        i
        for i in range(len(dims))
        if (scales[i], sizes[i]) != (1, have[i]) or (roi[i], roi[len(dims) + i]) != (0, 1)
    ]
    resize = Resize(
        tuple(dims[i] for i in kept),
        tuple(sizes[i] for i in kept),
        tuple(float(scales[i]) for i in kept),
        mode=node.attribute("mode", "nearest"),
        coordinates=node.attribute("coordinate_transformation_mode", "half_pixel"),
        nearest_mode=node.attribute("nearest_mode", "round_prefer_floor"),
        cubic_coeff_a=float(node.attribute("cubic_coeff_a", -0.75)),
        exclude_outside=bool(node.attribute("exclude_outside", 0)),
        antialias=bool(node.attribute("antialias", 0)),
        roi=tuple((float(roi[i]), float(roi[len(dims) + i])) for i in kept),
        extrapolation_value=float(node.attribute("extrapolation_value", 0.0)),
    )
    return node.add(resize, x)


def _write(node: NodeWriter, op: Resize) -> None:
    if op.roi and op.coordinates == "tf_crop_and_resize":
        raise node.refuse("a box that is cropped first is not written")
    [x] = node.inputs
    rows = {
        dim: (size, scale, x.size(dim))
        for dim, size, scale in zip(op.axes, op.sizes, op.scales, strict=True)
    }
    if all(old and scale == size / old for size, scale, old in rows.values()):
        told = ["", node.constant([rows.get(dim, (old,))[0] for dim, old in x.dims.items()])]
    else:
        told = [node.constant([rows.get(dim, (1, 1.0))[1] for dim in x.dims], "f32")]
    attributes = parameters(op)
    for name in ("axes", "sizes", "scales", "roi"):
        del attributes[name]
    attributes["coordinate_transformation_mode"] = attributes.pop("coordinates")
    node.emit("Resize", node.operand(x), "", *told, **attributes)


def _row(node: NodeReader, index: int, length: int) -> list[float]:
    """A constant input of so many numbers; none where it is absent or empty."""
    row = [float(value) for value in node.constant(index)] if node.has(index) else []
    if row and len(row) != length:
        raise node.refuse(f"input {index} has {len(row)} numbers, not {length}")
    return row


def _read_scales(node: NodeReader) -> VTensor:
    """Upsample, and Resize of opset 10: what became ``asymmetric`` and ``floor``."""
    x = node.input(0)
    scales = node.attribute("scales") if node.opset < 9 else node.constant(1).tolist()
    if len(scales) != len(x.dims):
        raise node.refuse(f"{len(scales)} scales of {len(x.dims)} dims")
    for grow in (True, False):  # what is nearest: the one before, where it shrinks the one behind
        pairs = zip(list(x.dims), scales, strict=True)
        rows = [(dim, float(scale)) for dim, scale in pairs if scale != 1 and (scale > 1) == grow]
        resize = Resize(
            tuple(dim for dim, _ in rows),
            tuple(int(x.size(dim) * scale) for dim, scale in rows),
            tuple(scale for _, scale in rows),
            mode=node.attribute("mode", "nearest"),
            coordinates="asymmetric",
            nearest_mode="floor" if grow else "ceil",
        )
        x = node.add(resize, x) if rows or not grow else x
    return x


@operator(
    "Resize",
    dims={"x": "*", "y": "*"},
    onnx=[
        Spelling("Resize", 10, _read_scales, same_names, until=10),
        Spelling("Resize", 11, _read, same_names, write=_write),
        Spelling("Upsample", 7, _read_scales, same_names, until=9),
    ],
)
class Resize:
    """Sample a tensor at other places along some dims, one dim after another.

    Each place of y is a place in x, between elements, by ``coordinates``; its value is the element
    nearest to it, or a sum of its neighbours by their distance. Beyond the border, x goes on with
    its border elements.

    Dims:
        x, y: any, the same; of y those along ``axes`` have ``sizes``
    Args:
        axes: the dims.
        sizes: of y along each of them.
        scales: by how much each grows; without rounding, ``sizes`` over x's.
        mode: ``nearest``, ``linear`` or ``cubic``.
        coordinates: how y's places lie over x's; ONNX's coordinate_transformation_mode.
        nearest_mode: which element is nearest.
        cubic_coeff_a: the slope of the cubic's ends.
        exclude_outside: neighbours beyond the border count nothing, the others more.
        antialias: where y is smaller, neighbours from a wider range, as many as are merged.
        roi: begin and end of x along each axis, as parts of it, for ``tf_crop_and_resize``.
        extrapolation_value: what that one puts outside x.
    Raises:
        DimError: x has no such dim, rows differ in length, or x has no elements to sample.

    >>> from vtensor.operators import Context
    >>> x = VTensor("f32", {"N": 1, "C": 3, "H": 7, "W": 7})
    >>> Resize(("H", "W"), (14, 9), (2.0, 9 / 7)).compute(Context(), x).summary()
    'f32 N=1 C=3 H=14 W=9'

    Source: ONNX operators Resize, opset 19, and Upsample, opset 9.
    """

    axes: tuple[str, ...] = param()
    sizes: tuple[int, ...] = param(minimum=0)
    scales: tuple[float, ...] = param()
    mode: str = param(default="nearest", choices=("nearest", "linear", "cubic"))
    coordinates: str = param(default="half_pixel", choices=COORDINATES)
    nearest_mode: str = param(default="round_prefer_floor", choices=ROUNDINGS)
    cubic_coeff_a: float = param(default=-0.75)
    exclude_outside: bool = param(default=False)
    antialias: bool = param(default=False)
    roi: tuple[tuple[float, float], ...] = param(default=())
    extrapolation_value: float = param(default=0.0)

    def compute(self, ctx: Context, x: VTensor) -> VTensor:
        rows = (self.sizes, self.scales, self.roi or self.scales)
        if any(len(row) != len(self.axes) for row in rows) or len(set(self.axes)) < len(self.axes):
            raise DimError("a size and a scale must be given for each axis, each axis once")
        if any(not 0 < scale < float("inf") for scale in self.scales):
            raise DimError(f"scales {self.scales} must be above 0")
        if any(x.size(d) == 0 and n for d, n in zip(self.axes, self.sizes, strict=True)):
            raise DimError("there are no elements to sample")
        sizes = {**x.dims, **dict(zip(self.axes, self.sizes, strict=True))}
        y = VTensor(x.dtype, sizes, ctx.output(0))
        ctx.dispatch(self, [x], [y])
        return y


def _places(op: Resize, index: int, length: int) -> Array:
    """The place in x of each place of y along an axis, where x has ``length`` elements."""
    size, scale = op.sizes[index], op.scales[index]
    y, exact = np.arange(size, dtype=np.float64), scale * length
    match op.coordinates:
        case "align_corners":
            return y * (length - 1) / (exact - 1) if exact != 1 else np.zeros(size)
        case "asymmetric":
            return y / scale
        case "tf_half_pixel_for_nn":
            return (y + 0.5) / scale
        case "tf_crop_and_resize":
            begin, end = op.roi[index] if op.roi else (0.0, 1.0)
            if exact == 1:
                return np.full(size, (begin + end) * (length - 1) / 2)
            return (begin + y * (end - begin) / (exact - 1)) * (length - 1)
        case "pytorch_half_pixel" if exact == 1:
            return np.full(size, -0.5)
        case "half_pixel_symmetric":
            return length / 2 * (1 - size / exact) + (y + 0.5) / scale - 0.5
    return (y + 0.5) / scale - 0.5


def _rounded(places: Array, mode: str) -> Array:
    """The nearest element of each place."""
    match mode:
        case "round_prefer_floor":
            return np.ceil(places - 0.5)
        case "round_prefer_ceil":
            return np.floor(places + 0.5)
        case "floor":
            return np.floor(places)
    return np.ceil(places)


def _nearest(op: Resize, index: int, length: int) -> Array:
    """The element of x for each place of y."""
    nearest = _rounded(_places(op, index, length), op.nearest_mode)
    return np.asarray(np.clip(nearest, 0, length - 1).astype(np.int64))


def _neighbours(op: Resize, index: int, length: int) -> tuple[Array, Array]:
    """Elements of x around each place of y, a row a place, and how much each counts."""
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


def _blend(x: Array, axis: int, near: Array, weights: Array) -> Array:
    """The weighted sum of neighbours along an axis; what counts nothing may be NaN."""
    shape = [-1 if other == axis else 1 for other in range(x.ndim)]
    result = np.zeros((), x.dtype)
    for tap in range(near.shape[1]):
        row = weights[:, tap].astype(x.dtype).reshape(shape)
        result = result + np.where(row != 0, np.take(x, near[:, tap], axis) * row, 0)
    return result


def _takes(op: Resize, x: VTensor, y: VTensor) -> bool | str:
    return op.mode == "nearest" or x.dtype != "bool" or "there is no truth between true and false"


@invoker("Resize", library="numpy", dtypes=(*NUMBERS, "bool"), when=_takes, python=True)
def numpy_resize(ctx: Context, op: Resize, x: VTensor, y: VTensor) -> None:
    order = Layout.plain(x.dims)
    src, dst = PTensor(x).require(order), PTensor(y).require(order)
    if lib_tagger("numpy", [src], [dst]):
        return
    value, outside = wide(src.data()), _outside(op, x, order.dims)
    if op.mode != "nearest" and value.dtype.kind in "iu":
        value = value.astype(np.float64)
    for index, dim in enumerate(op.axes):
        axis, length = order.dims.index(dim), x.size(dim)
        if op.mode == "nearest":
            value = np.take(value, _nearest(op, index, length), axis)
        else:
            value = _blend(value, axis, *_neighbours(op, index, length))
    value = settled(value, y.dtype)
    dst.data()[...] = np.where(outside, op.extrapolation_value, value) if outside.any() else value


def _samples_evenly(op: Resize, x: VTensor, y: VTensor) -> bool | str:
    """oneDNN takes every element at (y + 1/2) * length / size - 1/2, rounded half up.

    It blends with elements that count nothing, too, which is a NaN where one is infinite.
    """
    inner, axes = set(canonical_order(x.dims)[2:]), set(op.axes)
    if op.mode == "cubic" or not axes <= inner or (op.mode == "linear" and axes != inner):
        return "resamples to the nearest from the third dim on, or linearly all of these"
    scales = tuple(size / x.size(dim) for dim, size in zip(op.axes, op.sizes, strict=True))
    even = Resize(op.axes, op.sizes, scales, op.mode, "half_pixel", "round_prefer_ceil")
    around = _nearest if op.mode == "nearest" else _neighbours
    for index, dim in enumerate(op.axes):
        found, wanted = (np.asarray(around(one, index, x.size(dim))) for one in (even, op))
        if found.shape != wanted.shape or not np.allclose(found, wanted):
            return f"places elements along {dim} otherwise"
        if op.mode == "linear" and not wanted[1].all():
            return f"blends elements along {dim} that count nothing"
    return not _outside(op, x, tuple(x.dims)).any() or "has no value for what lies outside"


@invoker("Resize", library="onednn", dtypes=["f32", "bf16", "f16"], when=_samples_evenly)
def onednn_resize(ctx: Context, op: Resize, x: VTensor, y: VTensor) -> Routine:
    return onednn.Resampling(op.mode, x, y)


def _outside(op: Resize, x: VTensor, dims: Sequence[str]) -> Array:
    """Which places of y lie outside x, one axis a dim; only one way of placing them says so."""
    found: Array = np.zeros((1,) * len(dims), bool)
    if op.coordinates == "tf_crop_and_resize":
        for index, dim in enumerate(op.axes):
            places = _places(op, index, x.size(dim))
            shape = [-1 if other == dim else 1 for other in dims]
            found = found | ((places < 0) | (places > x.size(dim) - 1)).reshape(shape)
    return found
