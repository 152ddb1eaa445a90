"""Translation of VTensor's operators (named dims) into layout-aware ones (numbered axes)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from eval.layout_aware.base import Operator
from eval.layout_aware.batchnorm import BatchNorm
from eval.layout_aware.concat import Concat
from eval.layout_aware.convolution import Conv2D, DepthwiseConv2D
from eval.layout_aware.elementwise import Add, BiasAdd, Mul, Relu, Relu6
from eval.layout_aware.lrn import LRN
from eval.layout_aware.matmul import MatMul
from eval.layout_aware.mean import Mean
from eval.layout_aware.pad import Pad
from eval.layout_aware.pooling import AvgPool, MaxPool
from eval.layout_aware.reshape import Reshape
from eval.layout_aware.softmax import Softmax
from eval.layout_aware.tensor import Tensor, plain
from vtensor.errors import UnsupportedOperatorError
from vtensor.language.graph import Graph
from vtensor.language.node import Node
from vtensor.language.operators import info_of

#: For each input of an operator, the names of its axes.
Names = Sequence[Sequence[str]]


def _alike(operator: Callable[..., Operator]) -> Callable[[Any, Names], Operator]:
    """Return a function that makes ``operator`` with the parameters of VTensor's operator."""
    return lambda op, _: operator(**vars(op))


def _numbered(names: Sequence[str], dims: Sequence[str]) -> tuple[int, ...]:
    return tuple(names.index(dim) for dim in dims)


def _pad(op: Any, names: Names) -> Pad:
    half = len(op.axes)
    ends = (dict(zip(op.axes, pads, strict=True)) for pads in (op.pads[:half], op.pads[half:]))
    before, behind = (tuple(pads.get(dim, 0) for dim in names[0]) for pads in ends)
    return Pad(before, behind, op.mode, op.value)


def _matmul(op: Any, names: Names) -> MatMul:
    a, b = names
    return MatMul(transpose_a=a[-1] != op.over, transpose_b=b[-1] == op.over)


#: By name, the function that makes the layout-aware operator: its arguments are VTensor's operator
#: and the names of the axes of the inputs.
OPERATORS: dict[str, Callable[[Any, Names], Operator]] = {
    "Add": _alike(Add),
    "AvgPool": _alike(AvgPool),
    "BatchNorm": _alike(BatchNorm),
    "BiasAdd": _alike(BiasAdd),
    "Concat": lambda op, names: Concat(names[0].index(op.axis)),
    "Conv2D": _alike(Conv2D),
    "DepthwiseConv2D": _alike(DepthwiseConv2D),
    "LRN": _alike(LRN),
    "MatMul": _matmul,
    "MaxPool": _alike(MaxPool),
    "Mean": lambda op, names: Mean(_numbered(names[0], op.axes), op.keepdims),
    "Mul": _alike(Mul),
    "Pad": _pad,
    "Relu": _alike(Relu),
    "Relu6": _alike(Relu6),
    "Reshape": lambda op, _: Reshape(tuple(size for _, size in op.shape)),
    "Softmax": lambda op, names: Softmax(_numbered(names[0], op.axis)),
}


def operator_of(graph: Graph, node: Node) -> Operator:
    """Return the layout-aware operator of a node.

    Raises:
        UnsupportedOperatorError: there is none for the node's operator.
    """
    name = info_of(node.op).name
    if name not in OPERATORS:
        known = ", ".join(OPERATORS)
        raise UnsupportedOperatorError(f"{name} {node.name!r}: operators here are {known}")
    return OPERATORS[name](node.op, [list(graph.values[value].dims) for value in node.inputs])


def aligned(graph: Graph, node: Node, inputs: Sequence[Tensor]) -> list[Tensor]:
    """Return the inputs of a node; constant operands of Add and Mul get all axes of the result.

    Args:
        graph: the graph.
        node: the node.
        inputs: the tensors of its inputs.

    Raises:
        UnsupportedOperatorError: an operand of Add or Mul has its axes in another order than the
            result, or is no constant and lacks one.
    """
    if info_of(node.op).name not in ("Add", "Mul"):
        return list(inputs)
    names = list(graph.values[node.outputs[0]].dims)
    result = []
    for value, x in zip(node.inputs, inputs, strict=True):
        dims = graph.values[value].dims
        if [dim for dim in names if dim in dims] != list(dims) or (
            len(dims) < len(names) and not x.constant
        ):
            raise UnsupportedOperatorError(f"{node.op_name} {node.name!r}: {value!r} does not meet")
        sizes = tuple(dims.get(dim, 1) for dim in names)
        result.append(replace(x, desc=plain(sizes)) if len(dims) < len(names) else x)
    return result
