"""The cut of a model into Python steps, a numeric model, and Python steps after it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import AttributeProto, ModelProto, NodeProto, TensorProto, TypeProto, helper, numpy_helper

from vtensor.errors import UnsupportedOperatorError
from vtensor.frontends.calls import domain_of, graphs_of
from vtensor.frontends.control import DECIDING
from vtensor.frontends.edges.kinds import (
    ML,
    array_of,
    attributes_of,
    is_array,
    is_constant,
    is_text,
    label_of,
    spelled,
    step_of,
    texts_of,
)
from vtensor.frontends.edges.sequences import Sequences
from vtensor.frontends.edges.steps import STEPS
from vtensor.frontends.edges.texts import number_of
from vtensor.frontends.network import reads_of
from vtensor.frontends.tensors import sizes_of
from vtensor.language.operators import OPERATORS
from vtensor.language.process.interrupts import pass_signals
from vtensor.language.records import dataclass
from vtensor.language.traits import Opaque

#: Operators without trait that pass texts as the numbers that stand for them, by domain.
_PASSING = {
    "": frozenset(["Shape", "Size", "Constant", "ConstantOfShape"]),
    ML: frozenset(["ArrayFeatureExtractor", "LabelEncoder", "OneHotEncoder", "CategoryMapper"]),
}

#: The version of ``ai.onnx.ml`` from which a LabelEncoder has keys and values.
_KEYS_SINCE = 2


@dataclass(frozen=True, eq=False)
class Cut:
    """A model in parts.

    Attributes:
        before: the nodes of the Python steps before the first part, in order.
        parts: for each part its numeric model, and the nodes of the Python steps after it. Inputs
            and outputs of numeric models have the names of the model's values.
        known: constants that Python steps read, by name.
        texts: all texts of the model.
        types: the types of values, as far as they are known.
    """

    before: Sequence[NodeProto]
    parts: Sequence[tuple[ModelProto, Sequence[NodeProto]]]
    known: Mapping[str, Any]
    texts: Collection[str]
    types: Mapping[str, TypeProto]


def cut(proto: ModelProto, label: str) -> Cut:
    """Cut a model.

    Args:
        proto: the model.
        label: its name in errors.

    Raises:
        ModelError: a numeric node computes with texts.
    """
    try:
        types = _types(onnx.shape_inference.infer_shapes(proto).graph)
    except Exception as error:  # of the bindings; some types stay unknown
        pass_signals(error)
        types = _types(proto.graph)
    graph = proto.graph
    opsets = {entry.domain: entry.version for entry in proto.opset_import}
    constants = {tensor.name: tensor for tensor in graph.initializer}
    taken = {name for node in graph.node for name in (*node.input, *node.output)} | {*constants}
    opset = opsets.get("", opsets.get("ai.onnx", 1))
    nodes = Sequences(opset, types, constants, taken).resolved(graph.node)
    nodes = _needed(nodes, [value.name for value in graph.output])
    before, parts = _parts(nodes, types)
    texts = [text for node in nodes for text in texts_of(node)]
    for tensor in constants.values():
        if tensor.data_type == TensorProto.STRING:
            texts += array_of(tensor).reshape(-1).tolist()
    steps = [*before, *(node for _, after in parts for node in after)]
    read = {name for node in steps for name in reads_of(node)}
    delivered = {value.name for value in graph.output}
    known = {name: array_of(t) for name, t in constants.items() if name in read | delivered}
    shared, cores = [node for node in nodes if is_constant(node)], list[ModelProto]()
    for middle, _ in reversed(parts):
        for node in middle:
            _check_passes(node, types, label)
        core = _core(proto, middle, shared, types, {*read, *delivered}, taken)
        read |= {value.name for value in core.graph.input}
        cores.insert(0, core)
    rows = [(core, after) for core, (_, after) in zip(cores, parts, strict=True)]
    return Cut(before, rows, known, texts, types)


def _types(graph: onnx.GraphProto) -> dict[str, TypeProto]:
    values = (*graph.value_info, *graph.input, *graph.output)
    types = {value.name: value.type for value in values if value.type.WhichOneof("value")}
    for tensor in graph.initializer:
        types[tensor.name] = helper.make_tensor_type_proto(tensor.data_type, list(tensor.dims))
    return types


def _needed(nodes: Sequence[NodeProto], outputs: Iterable[str]) -> list[NodeProto]:
    """Return the nodes that the values ``outputs`` need."""
    wanted, kept = {*outputs}, []
    for node in reversed(nodes):
        if wanted.intersection(node.output):
            wanted |= reads_of(node)
            kept.append(node)
    return kept[::-1]


def _is_step(node: NodeProto, types: Mapping[str, TypeProto]) -> bool:
    """Return whether a graph cannot have a node, since its values are no arrays of numbers."""
    label = label_of(node)
    if label == spelled("cast"):
        ends = types.get(node.input[0]), types.get(node.output[0])
        return is_text(ends[0]) != is_text(ends[1])
    if label == spelled("identity") or label in DECIDING:
        kinds = [types.get(name) for name in (*node.input, *node.output)]
        graphs = (graph for each in node.attribute for graph in graphs_of(each))
        kinds += [value.type for graph in graphs for value in (*graph.input, *graph.output)]
        return any(kind is not None and not is_array(kind) for kind in kinds)
    return label in STEPS


def _parts(
    nodes: Sequence[NodeProto], types: Mapping[str, TypeProto]
) -> tuple[list[NodeProto], list[tuple[list[NodeProto], list[NodeProto]]]]:
    """Return the steps before, and for each part the nodes of its numeric model and the steps after
    it.

    A numeric node that reads what a step computes belongs to a later part than the step. A node
    that may be either is a step if it reads what a step computes, and no later part needs it.
    """
    producer = {name: place for place, node in enumerate(nodes) for name in node.output}
    origins = [{producer[name] for name in reads_of(node) if name in producer} for node in nodes]
    able = list[bool]()
    for node, sources in zip(nodes, origins, strict=True):
        known = is_constant(node) or step_of(node) is not None
        able.append(known and all(able[source] for source in sources))
    first, ends = set[int](), [step_of(node) is not None for node in nodes]
    for place in reversed(range(len(nodes))):
        for source in origins[place]:
            ends[source] = ends[source] and ends[place]
        if able[place] and (place in first or _is_step(nodes[place], types)):
            first |= {place, *origins[place]}
    before, steps, levels = list[NodeProto](), set[int](), [0] * len(nodes)
    parts: list[tuple[list[NodeProto], list[NodeProto]]] = [([], [])]
    for place, (node, sources) in enumerate(zip(nodes, origins, strict=True)):
        if place in first:
            before.append(node)
            if is_constant(node):
                parts[0][0].append(node)
            continue
        is_after = _is_step(node, types) or (ends[place] and not steps.isdisjoint(sources))
        follow = (levels[at] + (at in steps and not is_after) for at in sources)
        levels[place] = level = max(follow, default=0)
        if is_after:
            steps.add(place)
        if level == len(parts):
            parts.append(([], []))
        parts[level][is_after].append(node)
    return before, parts


def _check_passes(node: NodeProto, types: Mapping[str, TypeProto], label: str) -> None:
    """Raise UnsupportedOperatorError if a numeric node computes with texts."""
    if not any(is_text(types.get(name)) for name in node.input):
        return
    passes = node.op_type in _PASSING.get(domain_of(node), ())
    if not passes and not any(info.trait(Opaque) for info in OPERATORS.spelled(label_of(node))):
        raise UnsupportedOperatorError(
            f"{label}: {label_of(node)} {node.name!r} computes with texts, which may only be "
            "passed, compared or looked up there\n  to fix: export the model without them"
        )


def _core(
    proto: ModelProto,
    nodes: Sequence[NodeProto],
    shared: Sequence[NodeProto],
    types: Mapping[str, TypeProto],
    read: set[str],
    taken: set[str],
) -> ModelProto:
    """Return the numeric model of a part.

    Args:
        proto: the model.
        nodes: the nodes of the part.
        shared: further nodes that it may have: the model's constants.
        types: the types of values.
        read: names of the values that Python steps, later parts and the caller read.
        taken: the names of all values; new ones are added.
    """
    own = {name for node in nodes for name in node.output if name}
    constants = [node for node in shared if own.isdisjoint(node.output)]
    nodes = _needed([*constants, *nodes], own & read)
    made = {name for node in nodes for name in node.output if name}
    needs = {name for node in nodes for name in node.input if name} - made
    tensors = [
        tensor if tensor.data_type != TensorProto.STRING else _numbered(tensor)
        for tensor in proto.graph.initializer
        if tensor.name in needs
    ]
    stored = {tensor.name for tensor in tensors}
    order = dict.fromkeys([*(value.name for value in proto.graph.input), *sorted(needs)])
    inputs = [_value(name, types.get(name)) for name in order if name in needs - stored]
    delivered = dict.fromkeys([*(v.name for v in proto.graph.output), *sorted(read)])
    outputs = [_value(name, types.get(name)) for name in delivered if name in own & made]
    numbered = [new for node in nodes for new in _numeric(node, types, taken)]
    if not outputs:  # all is done by Python steps
        value = numpy_helper.from_array(np.zeros((), np.float32))
        numbered.append(helper.make_node("Constant", [], ["nothing"], value=value))
        outputs.append(helper.make_tensor_value_info("nothing", TensorProto.FLOAT, []))
    core = ModelProto()
    core.CopyFrom(proto)
    for field in ("node", "initializer", "sparse_initializer", "input", "output", "value_info"):
        core.graph.ClearField(field)
    core.graph.node.extend(numbered)
    core.graph.initializer.extend(tensors)
    core.graph.input.extend(inputs)
    core.graph.output.extend(outputs)
    for entry in core.opset_import:
        if entry.domain == ML and entry.version < _KEYS_SINCE:
            entry.version = _KEYS_SINCE
    return core


def _value(name: str, kind: TypeProto | None) -> onnx.ValueInfoProto:
    """Return the type of a numeric model's input or output; texts are numbers there."""
    value = onnx.ValueInfoProto(name=name)
    if kind is not None and is_array(kind):
        value.type.CopyFrom(kind)
    if is_text(kind):
        value.type.tensor_type.elem_type = TensorProto.INT64
    sizes = sizes_of(kind)
    if sizes is not None and any(size is None for size in sizes):
        for dim in value.type.tensor_type.shape.dim:
            if dim.dim_param.startswith("unk__"):
                dim.ClearField("dim_param")
    return value


def _numbered(tensor: TensorProto) -> TensorProto:
    """Return a tensor of texts as one of the numbers that stand for them."""
    texts = array_of(tensor)
    numbers = np.array([number_of(text) for text in texts.reshape(-1)], np.int64)
    return numpy_helper.from_array(numbers.reshape(texts.shape), tensor.name)


def _numeric(node: NodeProto, types: Mapping[str, TypeProto], taken: set[str]) -> list[NodeProto]:
    """Return the nodes that compute with numbers what a node computes with texts."""
    attributes = attributes_of(node)
    if node.domain == ML and attributes.get("classlabels_strings"):
        return _classified(node, attributes, taken)
    if node.domain == ML and node.op_type in ("LabelEncoder", "CategoryMapper"):
        return [_encoder(node, attributes, types)]
    new, identity = NodeProto(), spelled("identity")
    new.CopyFrom(node)
    new.ClearField("attribute")
    for attribute in node.attribute:
        name, value = attribute.name, attributes[attribute.name]
        if attribute.type == AttributeProto.TENSOR and attribute.t.data_type == TensorProto.STRING:
            new.attribute.append(helper.make_attribute(name, _numbered(attribute.t)))
        elif name == "value_string":
            new.attribute.append(helper.make_attribute("value_int", number_of(value)))
        elif name == "value_strings":
            numbers = [*map(number_of, value)]
            new.attribute.append(helper.make_attribute("value_ints", numbers))
        elif name == "cats_strings" and value:
            new.attribute.append(helper.make_attribute("cats_int64s", [*map(number_of, value)]))
        elif name == "to" and value == TensorProto.STRING:
            new.op_type = identity
        else:
            new.attribute.append(attribute)
    if new.op_type == identity:
        new.ClearField("attribute")
    return [new]


def _classified(node: NodeProto, attributes: Mapping[str, Any], taken: set[str]) -> list[NodeProto]:
    """Return a classifier whose labels are indices, and a node that looks their texts up."""
    labels, name = attributes["classlabels_strings"], f"{node.output[0]}:index"
    while name in taken:
        name += "_"
    taken.add(name)
    new = NodeProto()
    new.CopyFrom(node)
    new.ClearField("attribute")
    new.attribute.extend(a for a in node.attribute if not a.name.startswith("classlabels_"))
    declared = onnx.defs.get_schema(node.op_type, domain=ML).attributes
    [integers] = [key for key in declared if key.startswith("classlabels_int")]
    indices = [*range(len(labels))]
    new.attribute.append(helper.make_attribute(integers, indices))
    if not node.output[0]:
        return [new]
    new.output[0] = name
    numbers = [*map(number_of, labels)]
    look_up = helper.make_node(
        "LabelEncoder",
        [name],
        [node.output[0]],
        domain=ML,
        keys_int64s=indices,
        values_int64s=numbers,
        default_int64=number_of(""),
    )
    return [new, look_up]


def _encoder(
    node: NodeProto, attributes: Mapping[str, Any], types: Mapping[str, TypeProto]
) -> NodeProto:
    """Return a LabelEncoder or CategoryMapper with numbers in place of texts."""
    given = dict(attributes)
    if "classes_strings" in given:
        _from_classes(given, is_text(types.get(node.input[0])))
    elif node.op_type == "CategoryMapper":
        ends = ("keys_strings", "values_int64s"), ("values_strings", "keys_int64s")
        names = ends[not is_text(types.get(node.input[0]))]
        given[names[0]], given[names[1]] = given.pop("cats_strings"), given.pop("cats_int64s")
    for part in ("keys", "values"):
        if f"{part}_strings" in given:
            given[f"{part}_int64s"] = [*map(number_of, given.pop(f"{part}_strings"))]
            if part == "values":
                given["default_int64"] = number_of(given.get("default_string", "_Unused"))
        elif isinstance(array := given.get(f"{part}_tensor"), np.ndarray) and array.dtype == object:
            numbers = [number_of(text) for text in array.reshape(-1)]
            given[f"{part}_tensor"] = np.array(numbers, np.int64)
            if part == "values":
                text = np.asarray(given.get("default_tensor", ["_Unused"]), object).reshape(-1)[0]
                given["default_tensor"] = np.array([number_of(text)], np.int64)
    given.pop("default_string", None)
    for name, value in given.items():
        if isinstance(value, np.ndarray):
            given[name] = numpy_helper.from_array(value, name)
    return helper.make_node(
        "LabelEncoder", node.input, node.output, name=node.name, domain=ML, **given
    )


def _from_classes(given: dict[str, Any], from_text: bool) -> None:
    """Replace the classes of a LabelEncoder of version 1 by keys and values."""
    classes = given.pop("classes_strings")
    places = [*range(len(classes))]
    if from_text:
        given["keys_strings"], given["values_int64s"] = classes, places
        given.setdefault("default_int64", -1)
    else:
        given["keys_int64s"], given["values_strings"] = places, classes
