"""Batch normalization, for inference."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from libdesc import eigen, invoker, onednn
from libdesc.numpy.arrays import FLOATS, aligned, finish, wide
from libdesc.routine import Routine
from ops._elementwise import Array
from ops._windows import image_names
from ops.add import Add
from ops.binary import Sub
from ops.mul import Mul
from ops.reduce import Mean
from ops.times import Times
from ptensor import Layout, PTensor, lib_tagger
from vtensor.operators import (
    Affine,
    Context,
    Cost,
    Elementwise,
    Naming,
    NodeReader,
    NodeWriter,
    Spelling,
    operator,
    param,
)
from vtensor.tensor import VTensor


def _names(node: Naming) -> None:
    for position in range(node.rank("x0")):
        node.same("x0", position, "y0", position)
    for role in ("x1", "x2", "x3", "x4", "y1", "y2"):
        node.same("x0", 1, role, 0)
    image_names(node)


def _read(node: NodeReader) -> Sequence[VTensor]:
    if node.opset < 7 and not node.attribute("is_test", 0):
        raise node.refuse("is_test 0, which updates its inputs")
    if not node.attribute("spatial", 1):
        raise node.refuse("spatial 0, statistics of each element, is not taken")
    x = node.input(0)
    if len(x.dims) < 2:
        raise node.refuse("an input without channels")
    names = list(x.dims)
    x = node.input(0, " ".join("C" if i == 1 else name for i, name in enumerate(names)))
    scale, bias, mean, var = (node.input(i, "C") for i in range(1, 5))
    op = BatchNorm(float(node.attribute("epsilon", 1e-5)))
    if not node.attribute("training_mode", 0):
        return [node.add(op, x, scale, bias, mean, var)]
    own = _statistics(node, x)
    rate = float(node.attribute("momentum", 0.9))
    running = (
        node.add(Add(), node.add(Times(rate), old), node.add(Times(1 - rate), new))
        for old, new in zip((mean, var), own, strict=True)
    )
    return [node.add(op, x, scale, bias, *own), *running]


def _statistics(node: NodeReader, x: VTensor) -> tuple[VTensor, VTensor]:
    """The mean and the variance of each channel."""
    average = Mean(tuple(dim for dim in x.dims if dim != "C"), keepdims=False)
    mean = node.add(average, x)
    distance = node.add(Sub(), x, mean)
    return mean, node.add(average, node.add(Mul(), distance, distance))


def _write(node: NodeWriter, op: BatchNorm) -> None:
    x, *vectors = node.inputs
    first, *rest = [dim for dim in x.dims if dim != "C"] or [""]
    if not first:
        raise node.refuse("an input without dims but C")
    order = (first, "C", *rest)
    operands = (node.operand(x, order), *map(node.operand, vectors))
    node.emit("BatchNormalization", *operands, order=order, epsilon=float(op.epsilon))


def _affine(op: BatchNorm, x: Array | None, *vectors: Array) -> tuple[Array, Array] | None:
    """The factor and the shift of x, where all the vectors are known."""
    if x is not None:
        return None
    scale, bias, mean, var = vectors
    factor = scale / np.sqrt(var + op.epsilon)
    return factor, bias - mean * factor


@operator(
    "BatchNorm",
    dims={"x": "* C", "scale": "C", "bias": "C", "mean": "C", "var": "C", "y": "* C"},
    equal=[("x.C", f"{role}.C") for role in ("scale", "bias", "mean", "var")],
    onnx=Spelling("BatchNormalization", 1, _read, _names, write=_write),
    traits=[Elementwise(), Cost(2), Affine(_affine)],
)
class BatchNorm:
    """Normalize each channel by statistics that are given.

    y = (x - mean[C]) / sqrt(var[C] + epsilon) * scale[C] + bias[C]

    Dims:
        x, y: C and any others, the same    scale, bias, mean, var: C
    Args:
        epsilon: added to the variance, at least 0.
    Raises:
        DimError: C is missing, or has two sizes.
    Cost:
        2 operations an element, a product and a sum; what each channel needs is not counted.

    >>> from vtensor.operators import Context
    >>> c = [VTensor("f32", {"C": 64}) for _ in range(4)]
    >>> BatchNorm().compute(Context(), VTensor("f32", {"N": 1, "C": 64, "H": 7}), *c).summary()
    'f32 N=1 C=64 H=7'

    Source: ONNX operator BatchNormalization, opset 15.
    """

    epsilon: float = param(default=1e-5, minimum=0)

    def compute(
        self,
        ctx: Context,
        x: VTensor,
        scale: VTensor,
        bias: VTensor,
        mean: VTensor,
        var: VTensor,
    ) -> VTensor:
        y = VTensor(x.dtype, x.dims, ctx.output(0))
        ctx.dispatch(self, [x, scale, bias, mean, var], [y])
        return y


_STATISTICS = {role: ["f32"] for role in ("scale", "bias", "mean", "var")}


@invoker(
    "BatchNorm", library="onednn", dtypes={"": ["f32", "bf16", "f16"], **_STATISTICS}, inplace=["x"]
)
def onednn_batchnorm(
    ctx: Context,
    op: BatchNorm,
    x: VTensor,
    scale: VTensor,
    bias: VTensor,
    mean: VTensor,
    var: VTensor,
    y: VTensor,
) -> Routine:
    return onednn.BatchNormalization(x, (scale, bias, mean, var), y, op.epsilon)


@invoker("BatchNorm", library="eigen", dtypes=eigen.DTYPES, inplace=["x"])
def eigen_batchnorm(
    ctx: Context,
    op: BatchNorm,
    x: VTensor,
    scale: VTensor,
    bias: VTensor,
    mean: VTensor,
    var: VTensor,
    y: VTensor,
) -> Routine:
    return eigen.pointwise(
        lambda x, s, b, m, v: (x - m) / (v + op.epsilon).sqrt() * s + b,
        [x, scale, bias, mean, var],
        y,
    )


@invoker("BatchNorm", library="numpy", dtypes=FLOATS, python=True)
def numpy_batchnorm(
    ctx: Context,
    op: BatchNorm,
    x: VTensor,
    scale: VTensor,
    bias: VTensor,
    mean: VTensor,
    var: VTensor,
    y: VTensor,
) -> None:
    ins, dst = [PTensor(t) for t in (x, scale, bias, mean, var)], PTensor(y)
    for tensor in (*ins, dst):
        tensor.require(Layout.ANY)
    if lib_tagger("numpy", ins, [dst]):
        return
    src, scales, biases, means, variances = (wide(aligned(tensor, dst)) for tensor in ins)
    with np.errstate(all="ignore"):  # pads of the variance are 0
        dst.data()[...] = (src - means) / np.sqrt(variances + op.epsilon) * scales + biases
    finish(dst)
