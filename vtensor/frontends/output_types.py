"""Types of a node's outputs that ONNX's inference does not know, from the node's operator."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from onnx import TypeProto, helper

from optimizer.constants.originals import Original
from vtensor.frontends.builder import name_values
from vtensor.frontends.folding import Facts
from vtensor.frontends.functions import spellings_of
from vtensor.frontends.naming import Names, local_names
from vtensor.frontends.network import Network, NetworkNode
from vtensor.frontends.reader import Reader
from vtensor.frontends.tensors import Array, element_type
from vtensor.language.dtype import numpy_dtype
from vtensor.language.process.interrupts import pass_signals
from vtensor.language.records import dataclass
from vtensor.language.tensor import VTensor


def made_types(network: Network, node: NetworkNode, facts: Facts) -> dict[str, TypeProto]:
    """Return the types of a node's outputs, by name, as VTensor's operators compute them.

    The sizes of the node's inputs must be known. The first ``Spelling`` that can read the node
    decides the operators. If none can, the result is empty; the builder reads the node again later
    and reports why.
    """
    named = name_values(replace(network, nodes=[node], inputs={}), facts)
    for _, naming in named.nodes:
        local = local_names(naming, named.names)
        for spelling in spellings_of(node):
            values = _Inputs(node, facts, local)
            reader = Reader(node, naming.opset, local, values, naming.read_attribute)
            try:
                read = spelling.read(reader)
            except Exception as error:  # the builder reports it
                pass_signals(error)
                continue
            outputs = [read] if isinstance(read, VTensor) else list(read)
            orders = [reader.output_names(index) for index in range(len(outputs))]
            rows = zip(node.proto.output, outputs, orders, strict=False)
            return {name: _type(value, order) for name, value, order in rows if name}
    return {}


def _type(value: VTensor, order: Names) -> TypeProto:
    """Return the ONNX type of a value whose axes are its dims in the order ``order``.

    If ``order`` has other dims than the value, the axes are ``value.dims``.
    """
    dims = order if set(order) == set(value.dims) else tuple(value.dims)
    kind = helper.np_dtype_to_tensor_dtype(numpy_dtype(value.dtype))
    return helper.make_tensor_type_proto(kind, [value.size(dim) for dim in dims])


@dataclass(eq=False)
class _Inputs:
    """The ``Values`` of one node; each of its inputs is a constant or has known sizes."""

    node: NetworkNode
    facts: Facts
    local: Mapping[str, Names]

    def origin(self, name: str) -> Array | Original | None:
        """Return constant ``name``: its array, or an ``Original``, which supplies it on demand.

        None if value ``name`` is no constant: a run computes it, or takes it as an input.
        """
        return self.facts.arrays.origins().get(name)

    def data(self, name: str) -> VTensor:
        """Return a VTensor with the type and dims of input ``name``, which is no constant."""
        names = self.local[f"x{list(self.node.proto.input).index(name)}"]
        kind = element_type(self.facts.types[name].tensor_type.elem_type, f"value {name!r}")
        sizes = self.facts.sizes(name) or ()
        return VTensor(kind, {d: size or 0 for d, size in zip(names, sizes, strict=True)})

    def need(self, _name: str) -> None:
        """Do nothing: while types are inferred, no values of inputs are asked for."""

    def renamed(self, _value: VTensor, _names: Names) -> VTensor | None:
        """Return None: no Rename was added before this node."""
        return None
