"""Parts of an ONNX model: the nodes that compute some of its values."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path

import numpy as np
import onnx
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto, helper

from vtensor.errors import ModelError
from vtensor.storage.inputs import Array

#: The element types of ONNX that a float64 run replaces.
_FLOATS = (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16)
_DOUBLE = TensorProto.DOUBLE

#: Beginnings of the names of ONNX's operators that make a quantised value, and of the one that
#: makes a float of it.
_QUANTISING, _WIDENING = ("Quantize", "DynamicQuantize", "QLinear"), "Dequantize"


class Parts:
    """A model, of which parts are cut out.

    Args:
        file: the ONNX file.
        folder: the folder of its external data; None is the file's own.

    Raises:
        ModelError: the file cannot be read.
    """

    def __init__(self, file: Path, folder: Path | None = None) -> None:
        try:
            self.proto: ModelProto = onnx.load(file, load_external_data=False)
        except Exception as error:  # the protocol buffers' reader raises several kinds
            raise ModelError(f"{file}: cannot be read: {error}") from error
        self.folder = (folder or file.parent).resolve()
        graph = self.proto.graph
        self.constants = {tensor.name: tensor for tensor in graph.initializer}
        self.inputs = {port.name: port for port in graph.input}
        self.outputs = [port.name for port in graph.output]
        #: The node that computes a value, by the value's name.
        self.producers = {
            name: place for place, node in enumerate(graph.node) for name in node.output if name
        }
        self._known = {*self.constants, *self.inputs, *self.producers}
        sparse = {tensor.values.name for tensor in graph.sparse_initializer}
        self._known |= sparse

    def node(self, name: str) -> NodeProto:
        """Return the node that computes a value."""
        node: NodeProto = self.proto.graph.node[self.producers[name]]
        return node

    def reads(self, node: NodeProto) -> list[str]:
        """Return the values that a node reads, those that its subgraphs take from outside too."""
        inner = (name for graph in _graphs(node) for name in _read_in(graph))
        names = dict.fromkeys([*node.input, *inner])
        return [name for name in names if name in self._known]

    @cached_property
    def varying(self) -> frozenset[str]:
        """Names of the computed values that depend on an input."""
        varying = set(self.inputs) - self.constants.keys()
        for node in self.proto.graph.node:
            if any(name in varying for name in self.reads(node)):
                varying.update(filter(None, node.output))
        return frozenset(varying - self.inputs.keys())

    def above(self, names: Iterable[str], given: Collection[str] = ()) -> list[int]:
        """Return the places of the nodes that compute some values, in order.

        Args:
            names: the values.
            given: values that are known, whose nodes are left out.
        """
        places, waiting = set[int](), [*names]
        while waiting:
            name = waiting.pop()
            place = self.producers.get(name)
            if name in given or place is None or place in places:
                continue
            places.add(place)
            waiting += self.reads(self.proto.graph.node[place])
        return sorted(places)

    def cut(self, outputs: Sequence[str], given: Mapping[str, Array] | None = None) -> ModelProto:
        """Return a model that computes some values.

        Args:
            outputs: the names of the values.
            given: arrays of values that become inputs, by name. All else comes from the model's
                own inputs.
        """
        given, graph = given or {}, self.proto.graph
        nodes = [graph.node[place] for place in self.above(outputs, given)]
        read = dict.fromkeys(name for node in nodes for name in self.reads(node))
        ports = [_port(name, array) for name, array in given.items() if name in read]
        ports += [self.inputs[name] for name in read if name in self.inputs and name not in given]
        declared = {row.name: row for row in (*graph.output, *graph.value_info)}
        part = ModelProto()
        part.CopyFrom(
            helper.make_model(
                helper.make_graph(
                    nodes,
                    graph.name or "part",
                    ports,
                    [declared.get(name, ValueInfoProto(name=name)) for name in outputs],
                    [self.constants[name] for name in read if name in self.constants],
                    sparse_initializer=[
                        row for row in graph.sparse_initializer if row.values.name in read
                    ],
                ),
                functions=self.proto.functions,
                opset_imports=self.proto.opset_import,
                ir_version=self.proto.ir_version,
            )
        )
        return part

    def with_data(self, part: ModelProto) -> ModelProto:
        """Return a part whose constants no longer are in other files; ``part`` is changed."""
        onnx.load_external_data_for_model(part, str(self.folder))
        return part

    def step(self, name: str, array: object) -> float | None:
        """Return the distance of two neighbouring numbers of a quantised value.

        None if no quantised value is among those that the value is computed from. The scale is that
        of the DequantizeLinear that made a float; for other floats it is the range of ``array``,
        divided by 255.
        """
        places = self.above([name])
        nodes = [self.proto.graph.node[place] for place in places]
        if not isinstance(array, np.ndarray) or not any(
            node.op_type.startswith(_QUANTISING) or self._dequantises_input(node) for node in nodes
        ):
            return None
        if array.dtype.kind in "iu":
            return 1.0 if array.dtype.itemsize == 1 else None
        if array.dtype.kind != "f":
            return None
        node = self.node(name)
        if node.op_type.startswith(_WIDENING) and node.input[1] in self.constants:
            scale = onnx.numpy_helper.to_array(self.constants[node.input[1]], str(self.folder))
            return float(np.max(scale))
        finite = array[np.isfinite(array)].astype(np.float64)
        return float(np.ptp(finite)) / 255 or None if finite.size else None

    def _dequantises_input(self, node: NodeProto) -> bool:
        return node.op_type.startswith(_WIDENING) and node.input[0] in self.inputs


def _port(name: str, array: Array) -> ValueInfoProto:
    kind = helper.np_dtype_to_tensor_dtype(array.dtype)
    return helper.make_tensor_value_info(name, kind, array.shape)


def _graphs(node: NodeProto) -> Iterator[GraphProto]:
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs


def _read_in(graph: GraphProto) -> Iterator[str]:
    """Yield the names that the nodes of a subgraph read, its own among them."""
    for node in graph.node:
        yield from node.input
        for inner in _graphs(node):
            yield from _read_in(inner)
    yield from (port.name for port in graph.output)


def in_float64(model: ModelProto) -> ModelProto:
    """Return a copy of a model in which float64 takes the place of narrower floats.

    Its constants must be in the model itself.
    """
    wide = ModelProto()
    wide.CopyFrom(model)
    _widen_graph(wide.graph)
    for function in wide.functions:
        _widen_nodes(function.node)
    return wide


def _widen_graph(graph: GraphProto) -> None:
    for tensor in graph.initializer:
        _widen_tensor(tensor)
    del graph.value_info[:]
    for port in (*graph.input, *graph.output):
        kind = port.type.tensor_type
        if port.type.HasField("tensor_type") and kind.elem_type in _FLOATS:
            kind.elem_type = _DOUBLE
    _widen_nodes(graph.node)


def _widen_nodes(nodes: Iterable[NodeProto]) -> None:
    for node in nodes:
        for attribute in node.attribute:
            if attribute.HasField("t"):
                _widen_tensor(attribute.t)
            elif attribute.name in ("to", "dtype", "stash_type") and attribute.i in _FLOATS:
                attribute.i = _DOUBLE
            elif node.op_type == "Constant" and attribute.name in _CONSTANTS:
                tensor = onnx.numpy_helper.from_array(_CONSTANTS[attribute.name](attribute))
                attribute.CopyFrom(helper.make_attribute("value", tensor))
        for graph in _graphs(node):
            _widen_graph(graph)


#: Attributes of Constant that are floats outside of a tensor, and their arrays in float64.
_CONSTANTS: Mapping[str, Callable[[onnx.AttributeProto], Array]] = {
    "value_float": lambda attribute: np.array(attribute.f, np.float64),
    "value_floats": lambda attribute: np.array(attribute.floats, np.float64),
}


def _widen_tensor(tensor: TensorProto) -> None:
    if tensor.data_type in _FLOATS:
        array = onnx.numpy_helper.to_array(tensor).astype(np.float64)
        tensor.CopyFrom(onnx.numpy_helper.from_array(array, tensor.name))
