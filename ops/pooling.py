"""Pooling: one value for each window of an image."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import prod
from typing import Any

import numpy as np

from libdesc import eigen, invoker, onednn
from libdesc.numpy import definition
from libdesc.numpy.arrays import FLOATS, NUMBERS, lowest, wide, windows
from libdesc.routine import Routine
from ops._codes import MICROSOFT
from ops._microsoft import rank_of_x
from ops._places import one_output
from ops._sliding import Sizes, Tensor, Window, along, count, counts, geometry, spatial
from ops._windows import (
    IMAGES,
    image_order,
    pool_names,
    read_image,
    read_window,
    takes_pads,
    write_image,
)
from ops.reduce import Mean, ReduceL1, ReduceMax
from ptensor import PTensor
from vtensor.errors import DimError
from vtensor.language.records import dataclass
from vtensor.operators import (
    Context,
    Cost,
    Moves,
    Naming,
    NodeReader,
    Spelling,
    operator,
    param,
    written,
)
from vtensor.tensor import VTensor


@dataclass(frozen=True)
class Pool:
    """The shared parameters and ``compute`` of all pools."""

    kernel_shape: tuple[int, ...] = param(minimum=1)
    strides: tuple[int, ...] = param(default=(), minimum=1)
    pads: tuple[int, ...] = param(default=(), minimum=0)
    dilations: tuple[int, ...] = param(default=(), minimum=1)
    ceil_mode: bool = param(default=False)

    def compute(self, ctx: Context, x: VTensor) -> Any:
        """Dispatch on x; the output has one element for each window."""
        return one_output(ctx, self, [x], self.pooled(x))

    def pooled(self, x: VTensor) -> dict[str, int]:
        """Return the sizes, by dim, of the pool of ``x``."""
        return {**x.dims, **counts(x, self.kernel_shape, self, self.ceil_mode)}

    def slide(self, x: Tensor, y: Tensor) -> eigen.Slide:
        """Return the window's sizes, strides, pads and dilations, as Eigen's routines take them.

        With the returned pads at the ends, the window has exactly as many positions as the output
        ``y`` has elements.
        """
        return eigen.Slide(*geometry(x, y, self.kernel_shape, self))

    @property
    def inner(self) -> tuple[int, ...]:
        """The axes of the array that ``windows`` returns along which a window's elements are.

        They are the last axes, given by negative indices.
        """
        return tuple(range(-len(self.kernel_shape), 0))


def _spellings(
    op_type: str,
    pool: Callable[[], Any],
    empty: Callable[[tuple[str, ...]], Any],
    last: str = "",
    **own: Any,
) -> list[Spelling]:
    """Return how ONNX's pool is read and written, and how its pool over the whole image is read.

    Args:
        op_type: the name of the ONNX operator. The pool over the whole image has the name
            ``Global`` plus ``op_type``.
        pool: returns the operator's class, which is defined after this call.
        empty: takes the spatial dims, and makes the reduction over them. It replaces the pool over
            the whole image if the image has no elements.
        last: ONNX Runtime's name of the pool over images whose channels are last; empty if it has
            none.
        own: further parameters of the pool, which are ONNX's attributes: name and default.
    """

    def make(node: NodeReader, *window: Any, **parameters: Any) -> Any:
        more = {name: type(value)(node.attribute(name, value)) for name, value in own.items()}
        if not node.output_names(1):
            return pool()(*window, **parameters, **more)
        parameters["column_major"] = bool(node.attribute("storage_order", 0))
        return MaxPoolIndices(*window, **parameters)

    def read(node: NodeReader, last: bool = False) -> VTensor:
        x, kernel = read_image(node, last), tuple(node.attribute("kernel_shape") or ())
        ceil = bool(node.attribute("ceil_mode", 0))
        return node.add(make(node, kernel, **read_window(node, x, kernel), ceil_mode=ceil), x)

    def read_whole(node: NodeReader) -> VTensor:
        x = read_image(node)
        whole = tuple(x.size(dim) for dim in spatial(x.dims))
        if any(size < 1 for size in whole):  # each size by itself, not their product
            return node.add(empty(spatial(x.dims)), x)
        return node.add(make(node, whole), x)

    return [
        Spelling(op_type, 1, read, _names, write=write_image(op_type)),
        Spelling(f"Global{op_type}", 1, read_whole, pool_names),
        *(
            Spelling(MICROSOFT + name, 1, partial(read, last=True), names, rank=rank_of_x)
            for name, names in [(last, partial(pool_names, last=True))] * bool(last)
        ),
    ]


def _names(node: Naming) -> None:
    pool_names(node)
    for indices, like in (("y1", "y0"), ("x1", "x0")):
        for position in range(node.rank(indices)):
            node.same(indices, position, like, position)


def _cost(op: Pool, _x: VTensor, y: VTensor, *_indices: VTensor) -> int:
    return y.num_elements * prod(op.kernel_shape)


def _pads_are_smaller(op: Pool, x: VTensor) -> bool:
    rows = along(x, op.kernel_shape, op)
    return all(max(row.begin, row.end) < row.reach for row in rows)


def _holds_an_element(row: Window, place: int) -> bool:
    first = place * row.stride - row.begin
    return any(0 <= first + j * row.dilation < row.size for j in range(row.kernel))


def _no_window_is_empty(op: Pool, x: VTensor) -> bool:
    rows = (row for row in along(x, op.kernel_shape, op) if row.dilation > 1)
    return all(_holds_an_element(row, at) for row in rows for at in range(count(row, op.ceil_mode)))


_DIMS = {"x": "N C D? H? W", "y": "N C D? H? W"}
_EQUAL = [("x.N", "y.N"), ("x.C", "y.C")]
_SAME: dict[str, Any] = {"equal": _EQUAL, "traits": [Cost(_cost)]}
#: Conditions, for ``holds``, under which each position of the window has an element of the image:
#: pads alone have no maximum and no mean.
_HOLDS = [
    (
        _pads_are_smaller,
        "pads {op.pads} must be smaller than what a window {op.kernel_shape} spans",
    ),
    (_no_window_is_empty, "a window of elements {op.dilations} apart holds nothing but pads"),
]


@operator(
    "MaxPool",
    dims=_DIMS,
    holds=_HOLDS,
    onnx=_spellings("MaxPool", lambda: MaxPool, ReduceMax, "NhwcMaxPool"),
    equal=_EQUAL,
    traits=[Cost(_cost), Moves()],
)
class MaxPool(Pool):
    """Slide a window over the image and take the largest element in it.

    y[N, C, H', W'] = max over h, w of x[N, C, H'*stride + h*dilation - pad, ...], pads left out.

    Dims:
        x, y: N C W, N C H W or N C D H W
        H' = (H + pads - dilation*(kernel - 1) - 1) // stride + 1, and likewise D' and W'.
    Args:
        kernel_shape: size of the window over D, H and W, as far as x has them, in elements.
        strides: distance of neighbouring windows along each dim, in elements; empty means 1.
        pads: elements added at begin D, H, W, then at end D, H, W, fewer than the window spans;
            empty means 0.
        dilations: distance of neighbours in the window, in elements; empty means 1.
        ceil_mode: True rounds the quotient by the stride up: elements left over get a window too.
    Raises:
        DimError: the window does not fit, has nothing but pads at a position, or a dim is missing.
    Cost:
        One operation for each element of each window.

    >>> from vtensor.operators import Context
    >>> x = VTensor("f32", {"N": 1, "C": 64, "H": 112, "W": 112})
    >>> MaxPool((3, 3), strides=(2, 2), pads=(1, 1, 1, 1)).compute(Context(), x).summary()
    'f32 N=1 C=64 H=56 W=56'

    Source: ONNX operators MaxPool, opset 12, and GlobalMaxPool, opset 1; ONNX Runtime operator
    NhwcMaxPool.
    """

    kind = "max"


@operator(
    "AvgPool",
    dims=_DIMS,
    holds=_HOLDS,
    onnx=_spellings("AveragePool", lambda: AvgPool, Mean, count_include_pad=False),
    **_SAME,
)
class AvgPool(Pool):
    """Slide a window over the image and take the mean of the elements in it.

    y[N, C, H', W'] = mean over h, w of x[N, C, H'*stride + h*dilation - pad, ...]; pads are left
    out of the mean, or count as zeros.

    Dims:
        x, y: N C W, N C H W or N C D H W
        H' = (H + pads - dilation*(kernel - 1) - 1) // stride + 1, and likewise D' and W'.
    Args:
        kernel_shape: size of the window over D, H and W, as far as x has them, in elements.
        strides: distance of neighbouring windows along each dim, in elements; empty means 1.
        pads: elements added at begin D, H, W, then at end D, H, W, fewer than the window spans;
            empty means 0.
        dilations: distance of neighbours in the window, in elements; empty means 1.
        ceil_mode: True rounds the quotient by the stride up: elements left over get a window too.
        count_include_pad: True counts pads as zeros. Elements that ``ceil_mode`` adds after the
            pads do not count.
    Raises:
        DimError: the window does not fit, has nothing but pads at a position, or a dim is missing.
    Cost:
        One operation for each element of each window.

    >>> from vtensor.operators import Context
    >>> x = VTensor("f32", {"N": 1, "C": 2048, "H": 7, "W": 7})
    >>> AvgPool((7, 7)).compute(Context(), x).summary()
    'f32 N=1 C=2048 H=1 W=1'

    Source: ONNX operators AveragePool, opset 19, and GlobalAveragePool, opset 1.
    """

    count_include_pad: bool = param(default=False)

    @property
    def kind(self) -> str:
        """The name of this pool in the libraries: whether pads are included in the mean."""
        return f"avg_{'include' if self.count_include_pad else 'exclude'}_padding"


_WINDOW = "kernel_shape=kernel_shape, strides=strides, dilations=dilations"
takes_pads("MaxPool", "", _WINDOW, "N C H W", ", value=-1e999", kernel_shape=(3, 3), strides=(2, 1))
takes_pads(
    "AvgPool",
    "",
    _WINDOW,
    "N C H W",
    own=f"{_WINDOW}, count_include_pad=True",
    kernel_shape=(3, 3),
)


@operator("LpPool", dims=_DIMS, onnx=_spellings("LpPool", lambda: LpPool, ReduceL1, p=2), **_SAME)
class LpPool(Pool):
    """Slide a window over the image and take the norm of the elements in it.

    y[N, C, H', ...] = (sum over h, ... of |x[N, C, H'*stride + h*dilation - pad, ...]|^p)^(1/p)

    Dims:
        x, y: N C W, N C H W or N C D H W
        H' = (H + pads - dilation*(kernel - 1) - 1) // stride + 1, and likewise D' and W'.
    Args:
        kernel_shape: size of the window over D, H and W, as far as x has them, in elements.
        strides: distance of neighbouring windows along each dim, in elements; empty means 1.
        pads: zeros added at begin D, H, W, then at end D, H, W; empty means 0.
        dilations: distance of neighbours in the window, in elements; empty means 1.
        ceil_mode: True rounds the quotient by the stride up: elements left over get a window too.
        p: the norm, at least 1.
    Raises:
        DimError: the window does not fit, or a dim is missing.
    Cost:
        One operation for each element of each window.

    >>> from vtensor.operators import Context
    >>> x = VTensor("f32", {"N": 1, "C": 64, "H": 8, "W": 8})
    >>> LpPool((2, 2), strides=(2, 2)).compute(Context(), x).summary()
    'f32 N=1 C=64 H=4 W=4'

    Source: ONNX operators LpPool, opset 18, and GlobalLpPool, opset 2.
    """

    p: int = param(default=2, minimum=1)


@operator(
    "MaxPoolIndices",
    dims={**_DIMS, "indices": "N C D? H? W"},
    holds=_HOLDS,
    onnx=written("MaxPool", 8, write_image("MaxPool", column_major="storage_order")),
    **_SAME,
)
class MaxPoolIndices(Pool):
    """Slide a window over the image and take the largest element in it, with its index.

    y is that of MaxPool. indices counts the elements of x from 0, in the order N C D H W; of equal
    largest elements it is the first one's.

    Dims:
        x, y, indices: N C W, N C H W or N C D H W
        H' = (H + pads - dilation*(kernel - 1) - 1) // stride + 1, and likewise D' and W'.
    Args:
        kernel_shape, strides, pads, dilations, ceil_mode: as for MaxPool.
        column_major: True counts elements of D, H and W with D fastest, False with W fastest.
    Raises:
        DimError: the window does not fit, has nothing but pads at a position, or a dim is missing.
    Cost:
        One operation for each element of each window.

    >>> from vtensor.operators import Context
    >>> x = VTensor("f32", {"N": 1, "C": 64, "H": 8, "W": 8})
    >>> [t.summary() for t in MaxPoolIndices((2, 2), (2, 2)).compute(Context(), x)]
    ['f32 N=1 C=64 H=4 W=4', 's64 N=1 C=64 H=4 W=4']

    Source: ONNX operator MaxPool with two outputs, opset 12, read by MaxPool.
    """

    column_major: bool = param(default=False)

    def compute(self, ctx: Context, x: VTensor) -> tuple[VTensor, VTensor]:
        """Dispatch on x; the outputs have one element for each window."""
        y = VTensor(x.dtype, self.pooled(x), ctx.output(0))
        indices = VTensor("s64", y.dims, ctx.output(1))
        ctx.dispatch(self, [x], [y, indices])
        return y, indices


def _counts_only_pads(op: AvgPool, x: VTensor, y: VTensor) -> bool | str:
    pads = op.slide(x, y).pads
    if op.count_include_pad and pads != (op.pads or (0,) * len(pads)):
        return "counts what ceil_mode reaches beyond the pads"
    return True


@invoker("MaxPool", library="onednn", dtypes=["f32", "bf16", "f16", "s8", "u8"])
@invoker("AvgPool", library="onednn", dtypes=["f32", "bf16", "f16"], when=_counts_only_pads)
def onednn_pool(ctx: Context, op: MaxPool | AvgPool, x: VTensor, y: VTensor) -> Routine:
    return onednn.Pooling(op.kind, x, y, *op.slide(x, y))


def _is_mean(op: MaxPool | AvgPool, x: VTensor, y: VTensor) -> bool:
    slide = op.slide(x, y)
    sizes = zip(map(x.size, spatial(x.dims)), slide.kernel, strict=True)
    whole = all(size == window for size, window in sizes) and not any(slide.pads)
    return op.kind != "max" and whole


def _eigen_averages(op: AvgPool, x: VTensor, y: VTensor) -> bool | str:
    if x.dtype not in eigen.DTYPES and not _is_mean(op, x, y):
        return f"has no kernel for {x.dtype} but the mean of whole images"
    return _counts_only_pads(op, x, y)


@invoker("MaxPool", library="eigen", dtypes=eigen.DTYPES)
@invoker("AvgPool", library="eigen", dtypes=eigen.FRACTIONS, when=_eigen_averages)
def eigen_pool(ctx: Context, op: MaxPool | AvgPool, x: VTensor, y: VTensor) -> Routine:
    slide = op.slide(x, y)
    if _is_mean(op, x, y):
        return eigen.mean_of_images(x, y, slide)
    return eigen.pooling(op.kind, x, y, slide)


@invoker("LpPool", library="eigen", dtypes=eigen.DTYPES)
def eigen_lppool(ctx: Context, op: LpPool, x: VTensor, y: VTensor) -> Routine:
    return eigen.pooling("lp", x, y, op.slide(x, y), op.p)


@invoker("MaxPoolIndices", library="eigen", dtypes={"": eigen.DTYPES, "indices": ["s64"]})
def eigen_maxpoolindices(
    ctx: Context, op: MaxPoolIndices, x: VTensor, y: VTensor, indices: VTensor
) -> Routine:
    return eigen.largest_place(x, y, indices, op.slide(x, y), op.column_major)


@definition("MaxPool", dtypes=NUMBERS, order=image_order)
def maxpool(ctx: Context, op: MaxPool, x: PTensor, y: PTensor) -> None:
    image = x.data()
    y.data()[...] = windows(image, *op.slide(x, y), fill=lowest(image.dtype)).max(axis=op.inner)


@definition("AvgPool", dtypes=FLOATS, order=image_order)
def avgpool(ctx: Context, op: AvgPool, x: PTensor, y: PTensor) -> None:
    image, (kernel, strides, pads, dilations) = wide(x.data()), op.slide(x, y)
    zeros = (op.pads or (0,) * len(pads)) if op.count_include_pad else (0,) * len(pads)
    around = [(0, 0), (0, 0), *zip(zeros[: len(kernel)], zeros[len(kernel) :], strict=True)]
    counted = np.pad(np.ones((1, 1, *image.shape[2:]), image.dtype), around, constant_values=1)
    beyond = [pad - inner for pad, inner in zip(pads, zeros, strict=True)]
    total = windows(image, kernel, strides, pads, dilations).sum(axis=op.inner, dtype=np.float64)
    y.data()[...] = total / windows(counted, kernel, strides, beyond, dilations).sum(axis=op.inner)


@definition("LpPool", dtypes=FLOATS, order=image_order)
def lppool(ctx: Context, op: LpPool, x: PTensor, y: PTensor) -> None:
    powers = windows(np.abs(wide(x.data())) ** op.p, *op.slide(x, y))
    y.data()[...] = powers.sum(axis=op.inner, dtype=np.float64) ** (1 / op.p)


@definition("MaxPoolIndices", dtypes={"": NUMBERS, "indices": ["s64"]}, order=image_order)
def maxpoolindices(
    ctx: Context, op: MaxPoolIndices, x: PTensor, y: PTensor, indices: PTensor
) -> None:
    image, window = x.data(), op.slide(x, y)
    channels, shape = image.shape[:2], image.shape[2:]
    within = np.arange(prod(shape)).reshape(shape, order="F" if op.column_major else "C")
    image_start = np.arange(prod(channels)).reshape(*channels, *[1] * len(shape)) * within.size
    flat = (*y.data().shape, prod(op.kernel_shape))
    number = windows(image_start + within, *window).reshape(flat)
    view = windows(image, *window, fill=lowest(image.dtype)).reshape(flat)
    inside = windows(np.ones_like(image, bool), *window).reshape(flat)
    largest = view.max(axis=-1, keepdims=True)
    matches = inside & ((view == largest) | (view != view))  # a NaN is not equal to itself
    first = matches.argmax(axis=-1)[..., None]
    y.data()[...] = largest[..., 0]
    indices.data()[...] = np.take_along_axis(number, first, -1)[..., 0]


def _read_unpool(node: NodeReader) -> VTensor:
    x = read_image(node)
    indices = node.input(1, IMAGES[len(x.dims)])
    kernel = tuple(node.attribute("kernel_shape") or ())
    window = read_window(node, x, kernel)
    shape = tuple(int(size) for size in node.constant(2)[2:]) if node.has(2) else ()
    op = MaxUnpool(kernel, window["strides"], window["pads"], shape)
    return node.add(op, x, indices)


@operator(
    "MaxUnpool",
    dims={"x": "N C D? H? W", "indices": "N C D? H? W", "y": "N C D? H? W"},
    equal=[(f"x.{dim}", f"indices.{dim}") for dim in "NCDHW"],
    holds=[
        (lambda _, x, indices: x.dims.keys() == indices.dims.keys(), "indices need the dims of x")
    ],
    onnx=Spelling("MaxUnpool", 9, _read_unpool, _names),
)
class MaxUnpool:
    """Put each element of x at the place in an image that ``indices`` gives; other places are 0.

    ``indices`` counts the places of the image from 0, in the order N C D H W. The image's size
    along H is (x's H - 1)*stride + kernel - pads, likewise along D and W. An index outside the
    image is ignored.

    Dims:
        x, indices: N C W, N C H W or N C D H W, the same
        y: N C and the image's sizes, or those of ``output_shape``: zeros are added at the ends
    Args:
        kernel_shape, strides, pads: those of the MaxPool that made ``indices``.
        output_shape: sizes of y along D, H and W; empty means the image's.
    Raises:
        DimError: ``output_shape`` is smaller than the image, or the image has no elements.

    >>> from vtensor.operators import Context
    >>> x = VTensor("f32", {"N": 1, "C": 4, "H": 4, "W": 4})
    >>> indices = VTensor("s64", x.dims)
    >>> MaxUnpool((2, 2), (2, 2)).compute(Context(), x, indices).summary()
    'f32 N=1 C=4 H=8 W=8'

    Source: ONNX operator MaxUnpool, opset 11.
    """

    kernel_shape: Sizes = param(minimum=1)
    strides: Sizes = param(default=(), minimum=1)
    pads: Sizes = param(default=(), minimum=0)
    output_shape: Sizes = param(default=(), minimum=1)

    @property
    def dilations(self) -> Sizes:
        """Empty: ONNX's MaxUnpool has no dilations."""
        return ()

    def compute(self, ctx: Context, x: VTensor, indices: VTensor) -> VTensor:
        counted = self.counted(x)
        sizes = self.output_shape or tuple(counted.values())
        if len(sizes) != len(counted) or any(
            not 0 < have <= want for have, want in zip(counted.values(), sizes, strict=True)
        ):
            raise DimError(f"output_shape {sizes} does not hold {counted}")
        dims = {**x.dims, **dict(zip(counted, sizes, strict=True))}
        return one_output(ctx, self, [x, indices], dims)

    def counted(self, x: Tensor) -> dict[str, int]:
        """Return the sizes, by spatial dim, of the image whose elements ``indices`` count."""
        return {row.dim: row.spread for row in along(x, self.kernel_shape, self)}


#: The element types of MaxUnpool's elements and indices.
_UNPOOLED = {"": NUMBERS, "indices": ["s64"]}


@invoker("MaxUnpool", library="eigen", dtypes=_UNPOOLED)
def eigen_maxunpool(
    ctx: Context, op: MaxUnpool, x: VTensor, indices: VTensor, y: VTensor
) -> Routine:
    return eigen.unpool(x, indices, y, tuple(op.counted(x).values()))


@definition("MaxUnpool", dtypes=_UNPOOLED, order=image_order)
def maxunpool(ctx: Context, op: MaxUnpool, x: PTensor, indices: PTensor, y: PTensor) -> None:
    elements, places, counted = x.data(), indices.data(), op.counted(x).values()
    image = np.zeros((*elements.shape[:2], *counted), elements.dtype)
    within = (places >= 0) & (places < image.size)
    image.reshape(-1)[places[within]] = elements[within]
    y.data()[...] = 0
    y.data()[tuple(map(slice, image.shape))] = image
