"""The types of a node's outputs, and their values where these are known before a run.

A node whose inputs are all known is computed here, once, so that arithmetic on shapes leaves
nothing behind in the graph. Types come from ONNX's own inference, a node at a time, with the known
inputs' values at hand.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod

import numpy as np
import onnx
import onnx.checker
import onnx.inliner
import onnx.shape_inference
from onnx import AttributeProto, TypeProto, helper, numpy_helper

from libdesc.onnx_reference.node import OneNode
from vtensor.errors import ModelError
from vtensor.frontends.network import Network, NetworkNode
from vtensor.frontends.tensors import Array, sizes_of, tensor_array, type_of_array

#: A value computed at load may take this many bytes, no more.
FOLD_LIMIT_BYTES = 2 << 30

#: Inference is shown the values of constants up to this size: shapes, axes, pads, scales.
_SHOWN_ELEMENTS = 4096

#: Operators whose values are the sizes of their input.
_SIZES = ("Shape", "Size")

#: Operators that are computed here; all others that fold are left to ONNX's reference evaluator.
OWN = (*_SIZES, "Constant", "ConstantOfShape")

#: The inputs of which operators read nothing but the type, by position.
_OF_TYPE = {"CastLike": (1,), **dict.fromkeys(_SIZES, (0,))}


@dataclass(eq=False)
class Facts:
    """What is known of a network's values once the inputs' sizes are.

    Attributes:
        types: by value; absent where nothing is known.
        arrays: values known before a run.
        static: names of values that do not depend on data, known or (with symbolic sizes) not yet.
    """

    types: dict[str, TypeProto] = field(default_factory=dict)
    arrays: dict[str, Array] = field(default_factory=dict)
    static: set[str] = field(default_factory=set)

    def sizes(self, name: str) -> tuple[int | None, ...] | None:
        """A value's sizes, None where unknown."""
        if name in self.arrays:
            return tuple(self.arrays[name].shape)
        return sizes_of(self.types.get(name))

    def know_types(self, types: Mapping[str, TypeProto]) -> None:
        """Types of values; one without a rank takes no place of one that was there."""
        for name, kind in types.items():
            if sizes_of(kind) is not None or sizes_of(self.types.get(name)) is None:
                self.types[name] = kind

    def know(self, name: str, array: Array) -> None:
        """A value is a constant."""
        self.arrays[name] = array
        self.types[name] = type_of_array(array)
        self.static.add(name)


def schema_of(node: NetworkNode) -> onnx.defs.OpSchema | None:
    """ONNX's definition of a node's operator; None when ONNX has none in this opset."""
    try:
        return onnx.defs.get_schema(node.proto.op_type, node.opsets[node.domain], node.domain)
    except onnx.defs.SchemaError:
        return None


def folds(node: NetworkNode, facts: Facts) -> bool:
    """True when a node's outputs are known before a run, whatever its operator is."""
    schema = schema_of(node)
    if schema is None or has_graphs(node) or not all(name in facts.static for name in _data(node)):
        return False
    random: bool | None = getattr(schema, "non_deterministic", None)
    if random is None:  # onnx 1.17 does not say; what draws random numbers there has no inputs
        random = not node.inputs and node.proto.op_type != "Constant"
    return not random


def _data(node: NetworkNode) -> list[str]:
    """The inputs of which a node reads more than the type."""
    unread = () if node.domain else _OF_TYPE.get(node.proto.op_type, ())
    return [name for i, name in enumerate(node.proto.input) if name and i not in unread]


def has_graphs(node: NetworkNode) -> bool:
    """True for control flow, which holds graphs of its own."""
    return any(
        a.type in (AttributeProto.GRAPH, AttributeProto.GRAPHS) for a in node.proto.attribute
    )


def infer_node(network: Network, node: NetworkNode, facts: Facts) -> None:
    """Note the types of a node's outputs, and their values where these are known before a run.

    What was folded from initializers alone is kept in ``network.arrays`` for the next time.

    Raises:
        ModelError: the node is not as ONNX defines it, its inputs do not fit, or a constant is too
        large.
    """
    schema = schema_of(node)
    if schema is None or has_graphs(node):
        return  # what is inside reads values from outside, which ONNX's check cannot see
    context = onnx.checker.C.CheckerContext()
    context.ir_version = network.ir_version
    context.opset_imports = dict(node.opsets)
    try:
        onnx.checker.check_node(node.proto, context)
    except Exception as error:  # ValidationError, and what bindings raise at foreign bytes
        raise node_error(network, node, f"not as ONNX defines it: {error}") from error
    static = folds(node, facts)
    if static:
        facts.static.update(node.outputs)
    if any(name not in facts.types for name in node.inputs):
        return
    shown = {
        name: numpy_helper.from_array(facts.arrays[name])
        for name in node.inputs
        if name in facts.arrays and facts.arrays[name].size <= _SHOWN_ELEMENTS
    }
    try:
        types = _infer(network, node, schema, facts, shown)
    except Exception as error:  # InferenceError, and what bindings raise at malformed attributes
        if not static:
            raise _unfit(network, node, facts, error) from error
        try:  # ONNX's own functions hand on one element where its inference of values wants scalars
            types = _infer(network, node, schema, facts, {})
        except Exception:
            raise _unfit(network, node, facts, error) from error
    facts.know_types(types)
    if schema.has_function or schema.has_context_dependent_function:  # type: ignore[attr-defined]
        facts.know_types(_infer_function(node, facts, types))
    if static:
        _fold(network, node, facts)


def _infer(
    network: Network,
    node: NetworkNode,
    schema: onnx.defs.OpSchema,
    facts: Facts,
    shown: dict[str, onnx.TensorProto],
) -> dict[str, TypeProto]:
    """ONNX's own inference, with the values of some inputs at hand."""
    types: dict[str, TypeProto] = onnx.shape_inference.infer_node_outputs(
        _inferring(schema),
        node.proto,
        {name: facts.types[name] for name in node.inputs},
        shown,
        opset_imports=_imports(node),
        ir_version=network.ir_version,
    )
    return types


def _unfit(network: Network, node: NetworkNode, facts: Facts, error: Exception) -> ModelError:
    shapes = ", ".join(f"{name} {facts.sizes(name)}" for name in node.inputs)
    return node_error(network, node, f"its inputs do not fit ({shapes}): {error}")


def _infer_function(
    node: NetworkNode, facts: Facts, types: Mapping[str, TypeProto]
) -> dict[str, TypeProto]:
    """The types of outputs whose rank ONNX knows only of the function that defines the operator."""
    unknown = [
        name
        for name in node.outputs
        if name not in types or not types[name].tensor_type.HasField("shape")
    ]
    if not unknown:
        return {}
    model = one_node(node, facts.types, unknown).model
    own = [(node.proto.domain, node.proto.op_type)]
    try:
        model = onnx.inliner.inline_selected_functions(model, own, inline_schema_functions=True)
        model = onnx.shape_inference.infer_shapes(model, data_prop=True)
    except Exception:  # whatever it met: the shape stays unknown, and who needs it says so
        return {}
    return {value.name: value.type for value in model.graph.output if value.name in unknown}


def _imports(node: NetworkNode) -> list[onnx.OperatorSetIdProto]:
    return [helper.make_opsetid(domain, version) for domain, version in node.opsets.items()]


def _inferring(schema: onnx.defs.OpSchema) -> onnx.defs.OpSchema:
    """The definition that can infer; some came without inference and got it in a later opset."""
    if schema.has_type_and_shape_inference_function:
        return schema
    latest = onnx.defs.get_schema(schema.name, schema.domain)
    return latest if latest.has_type_and_shape_inference_function else schema


def _fold(network: Network, node: NetworkNode, facts: Facts) -> None:
    for name in node.outputs:
        _check_budget(network, node, name, facts)
    if node.label in _SIZES:
        sizes = facts.sizes(node.proto.input[0])
        if sizes is None or None in sizes:
            return  # symbolic: known once the inputs' sizes are
    elif not all(name in facts.arrays for name in _data(node)):
        return
    try:
        results = _evaluate(network, node, facts)
    except ModelError:
        raise
    except Exception as error:  # the reference evaluator's own, of any kind
        raise node_error(network, node, f"this constant cannot be computed: {error}") from error
    # A value inside of a function may have another name next time.
    pure = node.origin is None and all(name in network.arrays for name in node.inputs)
    for name, array in zip(node.outputs, results, strict=True):
        facts.know(name, array)
        if pure:
            network.arrays[name] = array


def _check_budget(network: Network, node: NetworkNode, name: str, facts: Facts) -> None:
    sizes = facts.sizes(name)
    kind = facts.types.get(name)
    if sizes is None or None in sizes or kind is None:
        return
    itemsize = np.dtype(helper.tensor_dtype_to_np_dtype(kind.tensor_type.elem_type)).itemsize
    nbytes = prod(size or 0 for size in sizes) * itemsize
    if nbytes > FOLD_LIMIT_BYTES:
        raise node_error(
            network,
            node,
            f"constant {name!r} of sizes {sizes} would take {nbytes} bytes, "
            f"more than {FOLD_LIMIT_BYTES}",
        )


def _evaluate(network: Network, node: NetworkNode, facts: Facts) -> list[Array]:
    """The outputs of a node whose inputs are known."""
    attributes = {a.name: a for a in node.proto.attribute}
    op_type = "" if node.domain else node.proto.op_type
    if op_type in _SIZES:
        sizes = facts.sizes(node.proto.input[0]) or ()
        if op_type == "Size":
            return [np.asarray(prod(s or 0 for s in sizes), np.int64)]
        first = attributes["start"].i if "start" in attributes else None
        last = attributes["end"].i if "end" in attributes else None
        return [np.asarray(sizes[first:last], np.int64)]
    if op_type == "Constant" and "value" in attributes:
        return [tensor_array(attributes["value"].t, network.folder)]
    if op_type == "ConstantOfShape":
        # A view of one element: the memory is taken once, in the layout that a library asks for.
        value = attributes.get("value")
        element = (
            np.zeros(1, np.float32) if value is None else tensor_array(value.t, network.folder)
        )
        shape = [int(size) for size in np.atleast_1d(facts.arrays[node.proto.input[0]])]
        return [np.broadcast_to(element.reshape(()), shape)]
    given = [
        np.asarray(facts.arrays[name]) if name in facts.arrays else _example(facts.types[name])
        for name in dict.fromkeys(node.inputs)
    ]
    return one_node(node, facts.types, node.outputs).run(given)


def one_node(node: NetworkNode, types: Mapping[str, TypeProto], outputs: Sequence[str]) -> OneNode:
    """A model of one node, which ONNX's tools take: its inputs, each once, and these outputs."""
    given, made = (
        [helper.make_value_info(name, types.get(name, TypeProto())) for name in names]
        for names in (dict.fromkeys(node.inputs), outputs)
    )
    graph = helper.make_graph([node.proto], "node", given, made)
    model = helper.make_model(graph, opset_imports=_imports(node))
    return OneNode(model.SerializeToString(deterministic=True))


def _example(kind: TypeProto) -> Array:
    """An array of an element type, for who reads nothing else of it."""
    return np.zeros((), helper.tensor_dtype_to_np_dtype(kind.tensor_type.elem_type))


def node_error(network: Network, node: NetworkNode, text: str) -> ModelError:
    """The error that says what is wrong with a node."""
    return ModelError(f"{network.label}: {node.described}: {text}")
