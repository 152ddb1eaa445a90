"""Convolution whose windows are bent by data."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from libdesc import invoker
from libdesc.numpy.arrays import FLOATS, wide
from ops._sampling import sample
from ops._windows import (
    IMAGES,
    Sizes,
    Window,
    along,
    convolution_cost,
    counts,
    image_names,
    image_order,
    read_image,
    read_window,
    spatial,
)
from ops.biasadd import BiasAdd
from ops.conv2d import KERNELS
from ptensor import Layout, PTensor, lib_tagger
from vtensor.errors import DimError
from vtensor.operators import Context, Cost, Naming, NodeReader, Spelling, operator, param
from vtensor.tensor import VTensor

Array = np.ndarray[Any, Any]


def _names(node: Naming) -> None:
    image_names(node)
    node.same("x0", 0, "y0", 0)
    if (kernel := KERNELS.get(node.rank("x1"))) is not None:
        node.name("x1", kernel)
        for role in ("x2", "x4"):
            node.name(role, IMAGES[node.rank("x1")].replace("C", "K"))
    node.name("x3", "C")


def _read(node: NodeReader) -> VTensor:
    x = read_image(node)
    w = node.input(1, KERNELS[len(x.dims)])
    kernel = tuple(w.dims.values())[2:]
    if tuple(node.attribute("kernel_shape") or kernel) != kernel:
        raise node.refuse(f"kernel_shape {node.attribute('kernel_shape')}, the kernel is {kernel}")
    groups = (int(node.attribute(name, 1)) for name in ("group", "offset_group"))
    op = DeformConv(*read_window(node, x, kernel).values(), *groups)
    bends = IMAGES[len(x.dims)].replace("C", "K")
    rest = [node.input(index, bends) for index in (2, 4) if node.has(index)]
    y = node.add(op, x, w, *rest)
    return node.add(BiasAdd(), y, node.input(3, "C")) if node.has(3) else y


@operator(
    "DeformConv",
    dims={
        "x": "N C D? H? W",
        "w": "O I d? h? w",
        "offset": "N K D? H? W",
        "mask": "N K D? H? W",
        "y": "N C D? H? W",
    },
    equal=[("x.C", "w.I * group"), ("x.N", "offset.N"), ("y.C", "w.O")],
    onnx=Spelling("DeformConv", 19, _read, _names),
    traits=[Cost(convolution_cost)],
)
class DeformConv:
    """A convolution each of whose windows takes elements from places beside its own.

    As Conv2D, but x is sampled linearly at H'*stride + h*dilation - pad + offset, and likewise W',
    and what is taken there is multiplied by mask. x is 0 outside.

    Dims:
        x: N C W, N C H W or N C D H W    w: O I, and d h w as many    y: N C with C = O, and D H W
        offset: N, y's D H W, and K: offset_group, d h w, then one for each spatial dim, merged
        mask (or none, for 1): the same, with K: offset_group, d h w, merged
    Args:
        strides, pads, dilations: those of the window, in elements; none: 1, 0 and 1.
        group: number of parts that the channels fall into.
        offset_group: number of parts of the channels that have offsets of their own.
    Raises:
        DimError: sizes do not fit together.
    Cost:
        2 * N*O*H'*W' * I*h*w floating-point operations, those of sampling left out.

    >>> from vtensor.operators import Context
    >>> x = VTensor("f32", {"N": 1, "C": 3, "H": 9, "W": 9})
    >>> w = VTensor("f32", {"O": 8, "I": 3, "h": 2, "w": 2})
    >>> offset = VTensor("f32", {"N": 1, "K": 8, "H": 8, "W": 8})
    >>> DeformConv().compute(Context(), x, w, offset).summary()
    'f32 N=1 C=8 H=8 W=8'

    Source: ONNX operator DeformConv, opset 22.
    """

    strides: Sizes = param(default=(), minimum=1)
    pads: Sizes = param(default=(), minimum=0)
    dilations: Sizes = param(default=(), minimum=1)
    group: int = param(default=1, minimum=1)
    offset_group: int = param(default=1, minimum=1)

    def compute(
        self, ctx: Context, x: VTensor, w: VTensor, offset: VTensor, *mask: VTensor
    ) -> VTensor:
        kernel = kernel_sizes(w)
        sizes = counts(x, kernel, self)
        if x.size("C") % self.offset_group or w.size("O") % self.group or len(mask) > 1:
            raise DimError("groups must be equal parts of the channels; there may be one mask")
        places = self.offset_group * prod(kernel)
        for bends, many in zip((offset, *mask), (places * len(kernel), places), strict=False):
            if dict(bends.dims) != {"N": x.size("N"), "K": many, **sizes}:
                raise DimError(f"offsets and masks must have {many} numbers for each of {sizes}")
        y = VTensor(x.dtype, {**x.dims, "C": w.size("O"), **sizes}, ctx.output(0))
        ctx.dispatch(self, [x, w, offset, *mask], [y])
        return y


def kernel_sizes(w: VTensor) -> Sizes:
    """The sizes of a kernel along the spatial dims."""
    return tuple(w.size(dim) for dim in "dhw" if dim in w.dims)


def _along(row: Array, axis: int, rank: int) -> Array:
    return row.reshape([-1 if i == axis else 1 for i in range(rank)])


def _places(window: Window, axis: int, offset: Array) -> Array:
    """Where the windows take elements along a spatial dim: N, the kernel's dims, then y's."""
    rank = (offset.ndim - 1) // 2
    inside = np.arange(window.kernel) * window.dilation
    start = np.arange(offset.shape[1 + rank + axis]) * window.stride - window.begin
    both = _along(inside, 1 + axis, offset.ndim) + _along(start, 1 + rank + axis, offset.ndim)
    return np.asarray(both + offset)


@invoker("DeformConv", library="numpy", dtypes=FLOATS, python=True)
def numpy_deformconv(
    ctx: Context, op: DeformConv, x: VTensor, w: VTensor, offset: VTensor, *rest: VTensor
) -> None:
    y, bends = rest[-1], [offset, *rest[:-1]]
    src, dst = PTensor(x).require(image_order(x)), PTensor(y).require(image_order(y))
    weights = PTensor(w).require(Layout.plain(dim for dim in "OIdhw" if dim in w.dims))
    order = Layout.plain(("N", "K", *spatial(x.dims)))
    shifts = [PTensor(t).require(order) for t in bends]
    if lib_tagger("numpy", [src, weights, *shifts], [dst]):
        return
    kernel, (n, _, *out) = kernel_sizes(w), dst.data().shape
    parts = op.offset_group
    offsets = wide(shifts[0].data()).reshape(n, parts, *kernel, len(kernel), *out)
    masks = [wide(t.data()).reshape(n, parts, 1, *kernel, *out) for t in shifts[1:]]
    taken = []
    for part, channels in enumerate(np.split(src.data(), parts, axis=1)):
        shift = np.moveaxis(offsets[:, part], 1 + len(kernel), 0)
        rows = enumerate(along(x, kernel, op))
        places = [_places(row, axis, shift[axis]) for axis, row in rows]
        values = sample(channels, places, "linear", "zeros", corners=True)
        taken.append(values * masks[0][:, part] if masks else values)
    row = (op.group, w.size("I"), prod(kernel))
    columns = np.concatenate(taken, axis=1).reshape(n, *row, prod(out))
    factors = wide(weights.data()).reshape(op.group, w.size("O") // op.group, *row[1:])
    products = np.einsum("ngikp,goik->ngop", columns, factors, optimize=True)
    dst.data()[...] = products.reshape(dst.data().shape)
