"""Rebuilding a model's graph for other sizes, with the dim names of an earlier graph.

Nodes are read again, but types are not inferred. The earlier graph has shown what holds for all
sizes: that nodes are as ONNX defines them, which of them are known before a run, and the names of
dims. Sizes come from VTensor's operators. They must agree with ONNX's inference for open sizes; if
the facts of this inference are not kept, the operators agreed with it for other sizes. Only values
that are known before a run are inferred and computed again. If anything differs from the earlier
graph, an error is raised; the caller then reads the model from scratch and reports what is wrong.
"""

from __future__ import annotations

from collections.abc import Mapping

from onnx import TypeProto, helper

from ptensor.background_work import checkpoint
from vtensor.errors import ModelError
from vtensor.frontends.builder import Builder, NamedNetwork
from vtensor.frontends.defined import defined_outputs
from vtensor.frontends.expansion import facts_of
from vtensor.frontends.folding import Facts, infer_node
from vtensor.frontends.naming import Names
from vtensor.frontends.network import NetworkNode
from vtensor.frontends.tensors import Array, Sizes
from vtensor.language.dtype import numpy_dtype
from vtensor.language.graph import Graph
from vtensor.language.records import replace
from vtensor.language.tensor import VTensor


def rebuilt(
    earlier: NamedNetwork,
    sizes: Mapping[str, Sizes],
    values: Mapping[str, Array],
    reference: bool,
    outputs: Mapping[str, Names],
) -> Graph:
    """Return the graph of a network for given sizes, with the dim names of an earlier graph.

    Args:
        earlier: the network with its dim names, in which no function call and no control flow was
            replaced. Its facts are those found for open sizes, or empty.
        sizes: sizes of every input.
        values: values of the inputs that had values when ``earlier`` was made.
        reference: whether nodes whose operators VTensor lacks may run on ONNX's reference
            evaluator.
        outputs: dim names of the graph's outputs, by the output's name.

    Raises:
        Exception: of any kind, if something differs from ``earlier``.
    """
    facts = facts_of(earlier.network, sizes, values)
    return Rebuilder(replace(earlier, facts=facts), reference, earlier.facts).build(outputs)


class Rebuilder(Builder):
    """A builder that takes each value's sizes from the operator that computes the value.

    Args:
        named: the network with its names.
        reference: whether nodes whose operators VTensor lacks may run on ONNX's reference
            evaluator.
        before: the facts found for open sizes; the operators' sizes must not contradict them.
    """

    def __init__(self, named: NamedNetwork, reference: bool, before: Facts) -> None:
        super().__init__(named, reference)
        self._before = before
        self._namings = {node.name: naming for node, naming in named.nodes}

    def _nodes(self) -> None:
        """Add every node to the graph, or compute it if the earlier graph knew it before a run.

        Raises:
            ModelError: a node is not read as in the earlier graph.
        """
        for node in self._network.nodes:
            checkpoint()
            if any(name in self._facts.arrays for name in node.outputs):
                continue  # an earlier graph has folded it, from initializers alone
            if (naming := self._namings.get(node.name)) is None:
                self._fold(node)
                continue
            self._node(node, naming)
            if self._problems or self._needed:
                raise ModelError(f"{node.described}: is not read as it was")
            for name in node.outputs:
                if (value := self._data.get(name)) is not None:
                    self._know(name, value)

    def _know(self, name: str, value: VTensor) -> None:
        """Set the sizes of value ``name`` to those of ``value``, as its operator has computed it.

        Raises:
            ModelError: the value takes more than the network's ``max_bytes``, or its sizes
                contradict those that ONNX's inference gave for open sizes.
        """
        if value.nbytes > self._network.max_bytes:
            raise ModelError(f"{name} is larger than the budget")
        sizes = self._facts.made[name] = tuple(value.dims.values())
        expected = self._before.sizes(name)
        expected = sizes if expected is None else expected
        if any(want not in (None, size) for want, size in zip(expected, sizes, strict=True)):
            raise ModelError(f"{name} has other sizes than ONNX's inference says")

    def _fold(self, node: NetworkNode) -> None:
        """Compute a node that was known before a run in the earlier graph.

        Raises:
            ModelError: the node is not known before a run for these sizes.
        """
        for name in node.inputs:
            if name not in self._facts.types:
                self._facts.types[name] = _type(self.data(name))
        infer_node(self._network, node, self._facts, defined_outputs)
        if not all(name in self._facts.arrays for name in node.outputs):
            raise ModelError(f"{node.described}: is not known before a run any more")


def _type(value: VTensor) -> TypeProto:
    """Return the ONNX type of a value."""
    kind = helper.np_dtype_to_tensor_dtype(numpy_dtype(value.dtype))
    return helper.make_tensor_type_proto(kind, tuple(value.dims.values()))
