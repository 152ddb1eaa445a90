"""Translation of a graph into a framework's tensors: an emitter for each operator translates nodes.

A framework's axes have no names, and dims have no order. So each tensor comes with the dims of its
axes, and an emitter gets each operand in the order of axes that the framework's operator needs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from eval.peers import CannotBuild
from ops._sliding import spatial
from vtensor.language.graph import Graph, Node
from vtensor.language.tensor import VTensor

Array = NDArray[Any]
Tensor = Any  # the class of a framework
Dims = tuple[str, ...]


class Placed(NamedTuple):
    """A framework's tensor, or the array of a constant, and the dims of its axes, in order."""

    tensor: Tensor | Array
    dims: Dims


@dataclass(frozen=True)
class Framework:
    """A framework's operators and preferences.

    Args:
        name: the framework's name in errors.
        channels: ``first`` or ``last``: whether images preferably have channels first or last.
        constant: makes a tensor from an array.
        transpose, reshape: the framework's counterparts of NumPy's functions.
        emitters: by the name of an operator, the function that translates its nodes.
    """

    name: str
    channels: Literal["first", "last"]
    constant: Callable[[Array], Tensor]
    transpose: Callable[[Tensor, Sequence[int]], Tensor]
    reshape: Callable[[Tensor, Sequence[int]], Tensor]
    emitters: dict[str, Emitter] = field(default_factory=dict)

    def emits(self, *operators: str) -> Callable[[Emitter], Emitter]:
        """Return a decorator that registers a function as the emitter of these operators."""

        def register(emitter: Emitter) -> Emitter:
            self.emitters.update(dict.fromkeys(operators, emitter))
            return emitter

        return register

    def order(self, value: VTensor) -> Dims:
        """Return a value's dims in the order that the framework prefers.

        It is that of the graph, except for images, in which ``channels`` decides.
        """
        rest = spatial(value.dims)
        if not rest or value.dims.keys() != {"N", "C", *rest}:
            return tuple(value.dims)
        return ("N", "C", *rest) if self.channels == "first" else ("N", *rest, "C")

    def ordered(self, placed: Placed, sizes: Mapping[str, int], axes: Sequence[str]) -> Tensor:
        """Return a tensor with other axes.

        Args:
            placed: the tensor.
            sizes: the sizes of its dims.
            axes: for each axis of the result a dim, or several merged, as ``"G*O"``; an axis of
                dims that the tensor lacks has size 1.
        """
        tensor, dims = placed
        merged = [[dim for dim in axis.split("*") if dim in dims] for axis in axes]
        order = [dim for axis in merged for dim in axis]
        known = isinstance(tensor, np.ndarray)
        transpose, reshape = (np.transpose, np.reshape) if known else (self.transpose, self.reshape)
        if order != list(dims):
            tensor = transpose(tensor, [dims.index(dim) for dim in order])
        if any(len(axis) != 1 for axis in merged):
            tensor = reshape(tensor, [prod(sizes[dim] for dim in axis) for axis in merged])
        return self.constant(tensor) if known else tensor

    def feeds(self, graph: Graph, arrays: Mapping[str, Array]) -> dict[str, Tensor]:
        """Return a graph's inputs as tensors, their axes in the framework's ``order``.

        Args:
            graph: the graph.
            arrays: the inputs by name, their axes in the graph's order.
        """
        tensors = {}
        for name in graph.inputs:
            x, array = graph.values[name], np.asarray(arrays[name])
            tensors[name] = self.ordered(Placed(array, tuple(x.dims)), x.dims, self.order(x))
        return tensors

    def arrays(self, graph: Graph, outputs: Sequence[Tensor]) -> list[Array]:
        """Return a graph's outputs as arrays, their axes in the graph's order.

        Args:
            graph: the graph.
            outputs: tensors, their axes in the framework's ``order``.
        """
        values = [graph.values[name] for name in graph.outputs.values()]
        return [
            np.transpose(np.asarray(tensor), [self.order(y).index(dim) for dim in y.dims])
            for tensor, y in zip(outputs, values, strict=True)
        ]


@dataclass(frozen=True)
class Call:
    """A node that an emitter translates.

    Attributes:
        framework: the framework.
        node: the node of the graph.
        operands: the node's operands as tensors.
        inputs: the same operands as VTensors.
        output: the result as a VTensor.
    """

    framework: Framework
    node: Node
    operands: Sequence[Placed]
    inputs: Sequence[VTensor]
    output: VTensor

    @property
    def op(self) -> Any:
        """The operator, with its parameters."""
        return self.node.op

    @property
    def order(self) -> Dims:
        """The output's dims in the order that the framework prefers."""
        return self.framework.order(self.output)

    def operand(self, index: int, axes: Sequence[str]) -> Tensor:
        """Return an operand, given by its index, with these axes, as ``Framework.ordered`` does."""
        sizes = self.inputs[index].dims
        return self.framework.ordered(self.operands[index], sizes, axes)

    def image(self) -> Tensor:
        """Return the first operand, with its axes in the order that the framework prefers."""
        return self.operand(0, self.framework.order(self.inputs[0]))

    def refuse(self, reason: str) -> CannotBuild:
        """Return the error that the framework cannot express the node, with a reason."""
        node, framework = self.node, self.framework.name
        return CannotBuild(f"{framework} cannot say {node.op_name} {node.name!r}: {reason}")


Emitter = Callable[[Call], Placed]


def walk(graph: Graph, framework: Framework, feeds: Mapping[str, Tensor]) -> list[Tensor]:
    """Translate a graph, node by node, and return its outputs as the framework's tensors.

    Args:
        graph: all of its sizes are known, its values are f32.
        framework: the framework.
        feeds: a tensor for each input, by name; its axes, as those of the outputs, are in the order
            of ``framework.order``.

    Raises:
        CannotBuild: the framework cannot express a node.
    """
    values = {
        name: Placed(array, tuple(graph.values[name].dims))
        for name, array in graph.constants.items()
    }
    for name in graph.inputs:
        values[name] = Placed(feeds[name], framework.order(graph.values[name]))
    for node in graph.nodes.values():
        values[node.outputs[0]] = _said(framework, graph, node, values)
    outputs = [graph.values[name] for name in graph.outputs.values()]
    return [framework.ordered(values[y.name], y.dims, framework.order(y)) for y in outputs]


def _said(framework: Framework, graph: Graph, node: Node, values: Mapping[str, Placed]) -> Placed:
    inputs = [graph.values[name] for name in node.inputs]
    operands = [values[name] for name in node.inputs]
    call = Call(framework, node, operands, inputs, graph.values[node.outputs[0]])
    if (emitter := framework.emitters.get(node.op_name)) is None:
        raise call.refuse("no function here says this operator")
    if other := {value.dtype for value in (*inputs, call.output)} - {"f32"}:
        raise call.refuse(f"{', '.join(sorted(other))} among its operands, f32 is taken")
    return emitter(call)
