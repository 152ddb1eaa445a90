"""Batch normalization, for inference."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from libdesc import eigen, invoker, onednn
from libdesc.numpy import elementwise
from libdesc.numpy.arrays import FLOATS, Array
from libdesc.routine import Routine
from ops._names import same_names
from ops._normalizations import channels, epsilon
from ops._places import one_output
from ops._windows import image_names
from vtensor.language.spelling import Naming, NodeReader, NodeWriter, Spelling
from vtensor.operators import (
    Affine,
    Context,
    Cost,
    Elementwise,
    Expression,
    Pointwise,
    named,
    operator,
    param,
)
from vtensor.tensor import VTensor

#: The operands after x: vectors along C.
VECTORS = ("scale", "bias", "mean", "var")


def _names(node: Naming) -> None:
    same_names(node)
    for role in ("x1", "x2", "x3", "x4", "y1", "y2"):
        node.same("x0", 1, role, 0)
    image_names(node)


def _read(node: NodeReader) -> VTensor | Sequence[VTensor]:
    if node.opset < 7 and not node.attribute("is_test", 0):
        raise node.refuse("is_test 0, which updates its inputs")
    if not node.attribute("spatial", 1):
        raise node.refuse("spatial 0, statistics of each element, is not supported")
    x, op = channels(node), BatchNorm(epsilon(node))
    scale, bias, *running = (node.input(i, "C") for i in range(1, 5))
    if not node.attribute("training_mode", 0):
        return node.add(op, x, scale, bias, *running)
    statistics, rate = _statistics(node, x), float(node.attribute("momentum", 0.9))
    old_part, new_part, add = named("Times")(rate), named("Times")(1 - rate), named("Add")()
    pairs = zip(running, statistics, strict=True)
    updated = (
        node.add(add, node.add(old_part, old), node.add(new_part, new)) for old, new in pairs
    )
    return [node.add(op, x, scale, bias, *statistics), *updated]


def _statistics(node: NodeReader, x: VTensor) -> tuple[VTensor, VTensor]:
    """Add the mean and the variance of each channel of ``x`` to the graph, and return both."""
    average = named("Mean")(tuple(dim for dim in x.dims if dim != "C"), keepdims=False)
    mean = node.add(average, x)
    distance = node.add(named("Sub")(), x, mean)
    return mean, node.add(average, node.add(named("Mul")(), distance, distance))


def _write(node: NodeWriter, op: BatchNorm) -> None:
    x, *vectors = node.inputs
    if len(x.dims) < 2:
        raise node.refuse("an input with no dim but C")
    first, *others = (dim for dim in x.dims if dim != "C")
    order = (first, "C", *others)
    operands = (node.operand(x, order), *map(node.operand, vectors))
    node.emit("BatchNormalization", *operands, order=order, epsilon=float(op.epsilon))


def _affine(op: BatchNorm, x: Array | None, *vectors: Array) -> tuple[Array, Array] | None:
    """Return the factor and the shift with which y = factor * x + shift.

    The unknown input is None. The result is None unless x is the unknown one.
    """
    if x is not None:
        return None
    scale, bias, mean, var = vectors
    factor = scale / np.sqrt(var + op.epsilon)
    return factor, bias - mean * factor


def _normalized(op: BatchNorm, x: Expression, *vectors: Expression) -> Expression:
    scale, bias, mean, var = vectors
    return (x - mean) * (scale / (var + op.epsilon).sqrt()) + bias  # one quotient for each channel


@operator(
    "BatchNorm",
    dims={"x": "* C", **dict.fromkeys(VECTORS, "C"), "y": "* C"},
    equal=[("x.C", f"{role}.C") for role in VECTORS],
    onnx=Spelling("BatchNormalization", 1, _read, _names, write=_write),
    traits=[Elementwise(), Cost(2), Affine(_affine), Pointwise(_normalized)],
)
class BatchNorm:
    """Normalize each channel by given statistics.

    y = (x - mean[C]) / sqrt(var[C] + epsilon) * scale[C] + bias[C]

    Dims:
        x, y: C and any others, the same    scale, bias, mean, var: C
    Args:
        epsilon: added to the variance, at least 0.
    Raises:
        DimError: C is missing, or has two sizes.
    Cost:
        2 operations for each element, a product and a sum; those for each channel are not counted.

    >>> from vtensor.operators import Context
    >>> c = [VTensor("f32", {"C": 64}) for _ in range(4)]
    >>> BatchNorm().compute(Context(), VTensor("f32", {"N": 1, "C": 64, "H": 7}), *c).summary()
    'f32 N=1 C=64 H=7'

    Source: ONNX operator BatchNormalization, opset 15.
    """

    epsilon: float = param(default=1e-5, minimum=0)

    def compute(
        self, ctx: Context, x: VTensor, scale: VTensor, bias: VTensor, mean: VTensor, var: VTensor
    ) -> VTensor:
        return one_output(ctx, self, [x, scale, bias, mean, var], x.dims)


_TYPES = {"": ["f32", "bf16", "f16"], **dict.fromkeys(VECTORS, ("f32",))}


@invoker("BatchNorm", library="onednn", dtypes=_TYPES, inplace=["x"])
def onednn_batchnorm(ctx: Context, op: BatchNorm, x: VTensor, *rest: VTensor) -> Routine:
    return onednn.BatchNormalization(x, rest[:4], rest[4], op.epsilon)


@invoker("BatchNorm", library="eigen", dtypes=eigen.TYPES, inplace=["x"])
def eigen_batchnorm(ctx: Context, op: BatchNorm, *operands: VTensor) -> Routine:
    *sources, y = operands
    return eigen.pointwise(op, sources, y, ctx.followers)


@elementwise("BatchNorm", FLOATS)
def batchnorm(op: BatchNorm, x: Array, scale: Array, bias: Array, mean: Array, var: Array) -> Array:
    return (x - mean) / np.sqrt(var + op.epsilon) * scale + bias
