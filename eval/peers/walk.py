"""Translation of a graph into a framework's tensors: each node goes to its operator's emitter.

A framework's axes have no names, and dims have no order. So a tensor goes with the dims of its
axes, and an emitter asks for each operand in the order that the framework's operator takes.
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
Tensor = Any  # a framework's
Dims = tuple[str, ...]


class Placed(NamedTuple):
    """A tensor, or the array of a constant, and the dims of its axes."""

    tensor: Tensor | Array
    dims: Dims


@dataclass(frozen=True)
class Framework:
    """A framework's operators and preferences.

    Args:
        name: the framework's name in errors.
        channels: ``first`` or ``last``: the preferred place of an image's channels.
        constant: makes a tensor of an array.
        transpose, reshape: as NumPy's, of tensors.
        emitters: by operator, the function that expresses a node.
    """

    name: str
    channels: Literal["first", "last"]
    constant: Callable[[Array], Tensor]
    transpose: Callable[[Tensor, Sequence[int]], Tensor]
    reshape: Callable[[Tensor, Sequence[int]], Tensor]
    emitters: dict[str, Emitter] = field(default_factory=dict)

    def emits(self, *operators: str) -> Callable[[Emitter], Emitter]:
        """Register what says these operators."""

        def register(emitter: Emitter) -> Emitter:
            self.emitters.update(dict.fromkeys(operators, emitter))
            return emitter

        return register

    def order(self, value: VTensor) -> Dims:
        """Return the order of a value's dims that suits it best: as presented, but for images."""
        rest = spatial(value.dims)
        if not rest or value.dims.keys() != {"N", "C", *rest}:
            return tuple(value.dims)
        return ("N", "C", *rest) if self.channels == "first" else ("N", *rest, "C")

    def ordered(self, placed: Placed, sizes: Mapping[str, int], axes: Sequence[str]) -> Tensor:
        """Return a tensor with other axes: each a dim, or several as ``"G*O"``; a missing one has
        size 1.
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
        """Arrays of a graph's inputs, axes as presented, as tensors in the order that suits."""
        tensors = {}
        for name in graph.inputs:
            x, array = graph.values[name], np.asarray(arrays[name])
            tensors[name] = self.ordered(Placed(array, tuple(x.dims)), x.dims, self.order(x))
        return tensors

    def arrays(self, graph: Graph, outputs: Sequence[Tensor]) -> list[Array]:
        """Tensors of a graph's outputs, in the order that suits, as arrays, axes as presented."""
        values = [graph.values[name] for name in graph.outputs.values()]
        return [
            np.transpose(np.asarray(tensor), [self.order(y).index(dim) for dim in y.dims])
            for tensor, y in zip(outputs, values, strict=True)
        ]


@dataclass(frozen=True)
class Call:
    """A node with its operands."""

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
        """The order of the output's dims that suits the framework."""
        return self.framework.order(self.output)

    def operand(self, index: int, axes: Sequence[str]) -> Tensor:
        """Return an operand with these axes, as ``Framework.ordered`` does."""
        sizes = self.inputs[index].dims
        return self.framework.ordered(self.operands[index], sizes, axes)

    def image(self) -> Tensor:
        """Return the first operand in the order that suits the framework."""
        return self.operand(0, self.framework.order(self.inputs[0]))

    def refuse(self, reason: str) -> CannotBuild:
        """Return the error with a reason."""
        node, framework = self.node, self.framework.name
        return CannotBuild(f"{framework} cannot say {node.op_name} {node.name!r}: {reason}")


Emitter = Callable[[Call], Placed]


def walk(graph: Graph, framework: Framework, feeds: Mapping[str, Tensor]) -> list[Tensor]:
    """Return the outputs that a framework computes.

    Args:
        graph: all of its sizes are known, its values are f32.
        framework: the framework.
        feeds: a tensor for each input, its axes in the order of ``framework.order``; so are the
            outputs'.

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
