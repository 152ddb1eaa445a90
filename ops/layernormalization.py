"""Normalization of each row of elements by its own mean and variance."""

from __future__ import annotations

from typing import Any

import numpy as np

from libdesc import invoker, onednn
from libdesc.numpy.arrays import FLOATS, wide
from libdesc.routine import Routine
from ops._names import same_names
from ops._normalizations import (
    average,
    parameter,
    positions,
    scale_order,
    spread,
    within,
    write_normalization,
)
from ops._windows import image_names
from ops.biasadd import BiasAdd
from ptensor import Layout, PTensor, lib_tagger
from vtensor.operators import Context, Cost, Naming, NodeReader, Spelling, operator, param
from vtensor.tensor import VTensor


def _names(node: Naming) -> None:
    same_names(node)
    for role in ("x1", "x2"):
        for back in range(1, node.rank(role) + 1):
            node.same(role, -back, "x0", -back)
    for role in ("y1", "y2"):
        for position in range(node.rank(role)):
            node.same(role, position, "x0", position)


def _read(node: NodeReader) -> list[VTensor]:
    x = node.input(0)
    names = list(x.dims)
    first = names.index(node.axis(int(node.attribute("axis", -1)), x))
    op = LayerNormalization(tuple(names[first:]), float(node.attribute("epsilon", 1e-5)))
    y, mean, inverse = _normalize(node, op, x, parameter(node, 1, x))
    return [node.add(BiasAdd(), y, parameter(node, 2, x)) if node.has(2) else y, mean, inverse]


_write = write_normalization("LayerNormalization")


def _normalize(node: NodeReader, op: object, x: VTensor, scale: VTensor) -> list[VTensor]:
    outputs: Any = node.add(op, x, scale)
    return list(outputs)


def _instance_names(node: Naming) -> None:
    image_names(node)
    same_names(node)
    for role in ("x1", "x2"):
        node.same("x0", 1, role, 0)


def _channels(node: NodeReader) -> VTensor:
    """The first input with its channels called C."""
    names = list(node.input(0).dims)
    if len(names) < 2:
        raise node.refuse("an input without channels")
    return node.input(0, " ".join("C" if i == 1 else name for i, name in enumerate(names)))


def _read_instance(node: NodeReader) -> VTensor:
    x = _channels(node)
    epsilon = float(node.attribute("epsilon", 1e-5))
    axes = tuple(x.dims)[2:]
    y = _normalize(node, LayerNormalization(axes, epsilon), x, node.input(1, "C"))[0]
    return node.add(BiasAdd(), y, node.input(2, "C"))


def _group_names(node: Naming) -> None:
    image_names(node)
    same_names(node)


def _read_group(node: NodeReader) -> VTensor:
    """The channels are two dims, of which the second is normalized over."""
    x, groups = node.input(0), int(node.attribute("num_groups", 0))
    sizes = list(x.dims.values())
    if len(sizes) < 2 or groups < 1 or sizes[1] % groups:
        raise node.refuse(f"num_groups {groups} of sizes {sizes}")
    names = list(x.dims)
    inner = {name: x.size(name) for name in names[2:]}
    parts = {"group": groups, "channel": sizes[1] // groups}
    parted = node.reshape(x, {names[0]: sizes[0], **parts, **inner})
    scale, bias = (node.reshape(node.input(i), parts) for i in (1, 2))
    op = LayerNormalization(("channel", *inner), float(node.attribute("epsilon", 1e-5)))
    y = _normalize(node, op, parted, scale)[0]
    return node.reshape(node.add(BiasAdd(), y, bias), dict(x.dims))


@operator(
    "LayerNormalization",
    dims={"x": "*", "scale": "*", "y": "*", "mean": "*", "inverse": "*"},
    onnx=[
        Spelling(
            "LayerNormalization", 17, _read, _names, write=write_normalization("LayerNormalization")
        ),
        Spelling("InstanceNormalization", 6, _read_instance, _instance_names),
        Spelling("GroupNormalization", 21, _read_group, _group_names),
    ],
    traits=[Cost(6)],
)
class LayerNormalization:
    """Normalize over some dims, by the mean and the variance of x itself there.

    y = (x - mean) * inverse * scale, where mean = E[x] and inverse = 1 / sqrt(E[(x - mean)^2] +
    epsilon), both over ``axes``. Over the spatial dims, with a scale along C, it is instance
    normalization.

    Dims:
        x, y: any, the same    scale: some of x's, of the same sizes
        mean, inverse: x's, of size 1 along ``axes``
    Args:
        axes: the dims that are normalized over.
        epsilon: added to the variance, at least 0.
    Raises:
        DimError: x has no such dim, or scale has a dim that x has not, or of another size.

    Sums are made in f32 where x is narrower; mean and inverse are f32 then.
    Cost:
        6 operations an element: two sums, difference, square, two products.

    >>> from vtensor.operators import Context
    >>> x, scale = VTensor("f32", {"N": 2, "T": 7, "F": 64}), VTensor("f32", {"F": 64})
    >>> [t.summary() for t in LayerNormalization(("F",)).compute(Context(), x, scale)[:2]]
    ['f32 N=2 T=7 F=64', 'f32 N=2 T=7 F=1']

    Source: ONNX operators LayerNormalization, opset 17, InstanceNormalization, opset 6, and
    GroupNormalization, opset 21.
    """

    axes: tuple[str, ...] = param()
    epsilon: float = param(default=1e-5, minimum=0)

    def compute(self, ctx: Context, x: VTensor, scale: VTensor) -> tuple[VTensor, VTensor, VTensor]:
        within(x, self.axes, scale)
        sizes = {dim: 1 if dim in self.axes else size for dim, size in x.dims.items()}
        dtype = "f64" if x.dtype == "f64" else "f32"
        y = VTensor(x.dtype, x.dims, ctx.output(0))
        mean, inverse = (VTensor(dtype, sizes, ctx.output(i)) for i in (1, 2))
        ctx.dispatch(self, [x, scale], [y, mean, inverse])
        return y, mean, inverse


def _one_axis(op: LayerNormalization, x: VTensor, scale: VTensor, *_: VTensor) -> bool | str:
    return (op.axes == tuple(scale.dims) and len(op.axes) == 1) or "scales along one dim, the axis"


@invoker(
    "LayerNormalization",
    library="onednn",
    dtypes={"": ["f32", "bf16", "f16"], "scale": ["f32"]},
    when=_one_axis,
)
def onednn_layernormalization(
    ctx: Context,
    op: LayerNormalization,
    x: VTensor,
    scale: VTensor,
    y: VTensor,
    mean: VTensor,
    inverse: VTensor,
) -> Routine:
    return onednn.LayerNormalization(x, scale, [y, mean, inverse], op.axes[0], op.epsilon)


@invoker("LayerNormalization", library="numpy", dtypes=FLOATS, python=True)
def numpy_layernormalization(
    ctx: Context,
    op: LayerNormalization,
    x: VTensor,
    scale: VTensor,
    y: VTensor,
    mean: VTensor,
    inverse: VTensor,
) -> None:
    src, dst, means, inverses = (
        PTensor(t).require(Layout.plain(x.dims)) for t in (x, y, mean, inverse)
    )
    factor = PTensor(scale).require(scale_order(scale, x))
    if lib_tagger("numpy", [src, factor], [dst, means, inverses]):
        return
    axes, values = positions(x, op.axes), wide(src.data())
    middle = average(values, axes)
    variance = average((values - middle) ** 2, axes)
    means.data()[...] = middle
    inverses.data()[...] = 1 / np.sqrt(variance + op.epsilon)
    dst.data()[...] = (values - middle) * inverses.data() * spread(factor, x)
