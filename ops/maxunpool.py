"""Elements back at the places that a MaxPool took them from."""

from __future__ import annotations

import numpy as np

from libdesc import invoker
from libdesc.numpy.arrays import NUMBERS
from ops._windows import IMAGES, Sizes, along, image_order, pool_names, read_image, read_window
from ptensor import PTensor, lib_tagger
from vtensor.errors import DimError
from vtensor.operators import Context, Naming, NodeReader, Spelling, operator, param
from vtensor.tensor import VTensor


def _names(node: Naming) -> None:
    pool_names(node)
    for position in range(node.rank("x1")):
        node.same("x1", position, "x0", position)


def _read(node: NodeReader) -> VTensor:
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
    onnx=Spelling("MaxUnpool", 9, _read, _names),
)
class MaxUnpool:
    """Put each element at the place that ``indices`` says; all else is 0.

    indices counts places from 0, in the order N C D H W of an image whose H is
    (H - 1)*stride + kernel - pads, likewise D and W; one outside is ignored.

    Dims:
        x, indices: N C W, N C H W or N C D H W, the same
        y: N C and the sizes above, or those of ``output_shape``: zeros are added at the ends
    Args:
        kernel_shape, strides, pads: those of the MaxPool.
        output_shape: sizes of y along D, H and W; none given: those above.
    Raises:
        DimError: a size is smaller than the image that indices count in, or nothing is left.

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
        """A MaxPool whose elements go back has none."""
        return ()

    def compute(self, ctx: Context, x: VTensor, indices: VTensor) -> VTensor:
        counted = self.counted(x)
        sizes = self.output_shape or tuple(counted.values())
        if len(sizes) != len(counted) or any(
            not 0 < have <= want for have, want in zip(counted.values(), sizes, strict=True)
        ):
            raise DimError(f"output_shape {sizes} does not hold {counted}")
        dims = {**x.dims, **dict(zip(counted, sizes, strict=True))}
        y = VTensor(x.dtype, dims, ctx.output(0))
        ctx.dispatch(self, [x, indices], [y])
        return y

    def counted(self, x: VTensor) -> dict[str, int]:
        """The spatial sizes of the image that indices count in."""
        return {
            row.dim: (row.size - 1) * row.stride + row.kernel - row.begin - row.end
            for row in along(x, self.kernel_shape, self)
        }


@invoker("MaxUnpool", library="numpy", dtypes={"": NUMBERS, "indices": ["s64"]}, python=True)
def numpy_maxunpool(
    ctx: Context,
    op: MaxUnpool,
    x: VTensor,
    indices: VTensor,
    y: VTensor,
) -> None:
    src, where, dst = (PTensor(t).require(image_order(t)) for t in (x, indices, y))
    if lib_tagger("numpy", [src, where], [dst]):
        return
    counted = tuple(op.counted(x).values())
    image = np.zeros((x.size("N"), x.size("C"), *counted), src.data().dtype)
    places = where.data()
    within = (places >= 0) & (places < image.size)
    image.reshape(-1)[places[within]] = src.data()[within]
    dst.data()[...] = 0
    dst.data()[(slice(None), slice(None), *map(slice, counted))] = image
