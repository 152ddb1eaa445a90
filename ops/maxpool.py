"""The largest of each window."""

from __future__ import annotations

from libdesc import eigen, invoker, onednn
from libdesc.numpy.arrays import NUMBERS, lowest, windows
from libdesc.routine import Routine
from ops._windows import (
    Sizes,
    counts,
    geometry,
    image_order,
    pool_cost,
    pool_names,
    read_image,
    read_pool,
    read_whole,
    refuse_empty,
    write_image,
)
from ops.maxpoolindices import MaxPoolIndices
from ptensor import PTensor, lib_tagger
from vtensor.operators import Context, Cost, Naming, NodeReader, Spelling, operator, param
from vtensor.tensor import VTensor


def _read(node: NodeReader) -> VTensor:
    x = read_image(node)
    if not node.output_names(1):
        return node.add(MaxPool(**read_pool(node, x)), x)
    columns = bool(node.attribute("storage_order", 0))
    return node.add(MaxPoolIndices(**read_pool(node, x), column_major=columns), x)


def _names(node: Naming) -> None:
    pool_names(node)
    for position in range(node.rank("y1")):
        node.same("y1", position, "y0", position)


def _read_whole(node: NodeReader) -> VTensor:
    x = read_image(node)
    return node.add(MaxPool(read_whole(node, x)), x)


@operator(
    "MaxPool",
    dims={"x": "N C D? H? W", "y": "N C D? H? W"},
    equal=[("x.N", "y.N"), ("x.C", "y.C")],
    onnx=[
        Spelling("MaxPool", 1, _read, _names, write=write_image("MaxPool")),
        Spelling("GlobalMaxPool", 1, _read_whole, pool_names),
    ],
    traits=[Cost(pool_cost)],
)
class MaxPool:
    """Slide a window over the image and take the largest element in it.

    y[N, C, H', W'] = max over h, w of x[N, C, H'*stride + h*dilation - pad, ...], pads left out.

    Dims:
        x, y: N C W, N C H W or N C D H W
        H' = (H + pads - dilation*(kernel - 1) - 1) // stride + 1, and likewise D' and W'.
    Args:
        kernel_shape: size of the window over D, H and W, as far as x has them, in elements.
        strides: step of the window along each, in elements, at least 1; none given: 1.
        pads: elements added at begin D, H, W, then at end D, H, W, fewer than the window spans;
            none given: 0.
        dilations: distance of neighbours in the window, in elements, at least 1; none given: 1.
        ceil_mode: divide by the stride rounding up: elements left over get a window too.
    Raises:
        DimError: the window does not fit, one would hold nothing but pads, or a dim is missing.
    Cost:
        One operation for each element of each window.

    >>> from vtensor.operators import Context
    >>> x = VTensor("f32", {"N": 1, "C": 64, "H": 112, "W": 112})
    >>> MaxPool((3, 3), strides=(2, 2), pads=(1, 1, 1, 1)).compute(Context(), x).summary()
    'f32 N=1 C=64 H=56 W=56'

    Source: ONNX operators MaxPool, opset 12, and GlobalMaxPool, opset 1.
    """

    kernel_shape: Sizes = param(minimum=1)
    strides: Sizes = param(default=(), minimum=1)
    pads: Sizes = param(default=(), minimum=0)
    dilations: Sizes = param(default=(), minimum=1)
    ceil_mode: bool = param(default=False)

    def compute(self, ctx: Context, x: VTensor) -> VTensor:
        sizes = counts(x, self.kernel_shape, self, self.ceil_mode)
        refuse_empty(x, self.kernel_shape, self, sizes)
        y = VTensor(x.dtype, {**x.dims, **sizes}, ctx.output(0))
        ctx.dispatch(self, [x], [y])
        return y


@invoker("MaxPool", library="onednn", dtypes=["f32", "bf16", "f16"])
def onednn_maxpool(ctx: Context, op: MaxPool, x: VTensor, y: VTensor) -> Routine:
    return onednn.Pooling("max", x, y, *geometry(x, y, op.kernel_shape, op))


@invoker("MaxPool", library="eigen", dtypes=eigen.DTYPES)
def eigen_maxpool(ctx: Context, op: MaxPool, x: VTensor, y: VTensor) -> Routine:
    return eigen.pooling("max", x, y, eigen.Slide(*geometry(x, y, op.kernel_shape, op)))


@invoker("MaxPool", library="numpy", dtypes=NUMBERS, python=True)
def numpy_maxpool(ctx: Context, op: MaxPool, x: VTensor, y: VTensor) -> None:
    src, dst = (PTensor(t).require(image_order(t)) for t in (x, y))
    if lib_tagger("numpy", [src], [dst]):
        return
    image, kernel = src.data(), op.kernel_shape
    view = windows(image, *geometry(x, y, kernel, op), fill=lowest(image.dtype))
    dst.data()[...] = view.max(axis=tuple(range(-len(kernel), 0)))
