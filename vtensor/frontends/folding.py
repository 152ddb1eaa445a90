"""Types of a node's outputs, and their values if these are known before a run.

A node whose inputs are all known is computed once, so that arithmetic on shapes adds nothing to the
graph. Types come from ONNX's own inference, one node at a time, with the values of known inputs.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from functools import cache, lru_cache
from math import prod
from typing import Any

import numpy as np
import onnx
import onnx.checker
import onnx.inliner
import onnx.shape_inference
from onnx import AttributeProto, TensorProto, TypeProto, helper, numpy_helper

from libdesc.onnx_reference.node import OneNode
from optimizer.constants.originals import Original, Originals
from vtensor.errors import BudgetError, ModelError
from vtensor.frontends.inference_limits import attribute_fault, bounded, unbounded
from vtensor.frontends.network import Network, NetworkNode
from vtensor.frontends.tensors import (
    Array,
    Sizes,
    check_rank,
    sizes_of,
    sparse_array,
    tensor_array,
    type_of_array,
)
from vtensor.language.dtype import from_numpy
from vtensor.language.operators import OPERATORS
from vtensor.language.process.interrupts import pass_signals
from vtensor.language.records import dataclass
from vtensor.storage.budget import REMEDY

#: Type inference gets the values of a constant only if it has at most so many elements, as shapes,
#: axes, pads and scales do.
_SHOWN_ELEMENTS = 4096

#: Operators whose outputs are the sizes of their input.
_SIZES = ("Shape", "Size")

#: Operators that this module computes itself, without VTensor's definitions or ONNX's evaluator.
OWN = (*_SIZES, "Constant", "ConstantOfShape")

#: Element types, and the largest number of bytes, of constants that are read without ONNX's checks.
_SIMPLE = frozenset(
    {TensorProto.FLOAT, TensorProto.INT64, TensorProto.INT32, TensorProto.BOOL, TensorProto.DOUBLE}
)
_MAX_SIMPLE_BYTES = 1 << 16

#: The fields of an attribute, and of its tensor, that are not the value.
_ATTRIBUTE_FIELDS = {"name", "type", "doc_string"}
_TENSOR_FIELDS = {"dims", "data_type", "name", "doc_string"}

#: By operator, the indices of the inputs of which it reads only the type.
_OF_TYPE = {"CastLike": (1,), **dict.fromkeys(_SIZES, (0,))}


class InputsRefused(ModelError):
    """Raised if ONNX's shape inference reports an error for the inputs of a node."""


#: Names of the model's inputs that a value depends on; None if it cannot be known before a run.
Leaves = tuple[str, ...] | None


@dataclass(eq=False)
class Facts:
    """The known types and values of a network, for particular sizes of its inputs.

    Attributes:
        types: ONNX type by the value's name; values of unknown type are absent.
        arrays: the elements of the constants, which are the values known before a run, by name.
        static: names of the values that are constants, or will be once symbolic sizes are known.
        nbytes: bytes of the arrays that were computed.
        leaves: for a value, by name, the model's inputs that it depends on; filled on demand.
        made: for a value, by name, the sizes that an operator of VTensor has computed; they
            overrule those in ``types``.
        differences: for a node, by name, a text that says how the sizes of its operator in VTensor
            differ from those of ONNX's inference.
        kept: names of loops that run turn by turn, because they would become too many nodes.
    """

    types: dict[str, TypeProto] = field(default_factory=dict)
    arrays: Originals = field(default_factory=Originals)
    static: set[str] = field(default_factory=set)
    nbytes: int = 0
    leaves: dict[str, Leaves] = field(default_factory=dict)
    made: dict[str, Sizes] = field(default_factory=dict)
    differences: dict[str, str] = field(default_factory=dict)
    kept: frozenset[str] = frozenset()
    _sizes: dict[str, tuple[TypeProto | None, Sizes | None]] = field(default_factory=dict)

    def sizes(self, name: str) -> Sizes | None:
        """Return the size of each axis of a value, None for an unknown one.

        None instead of a tuple if the rank is unknown.
        """
        if name in self.arrays:
            return tuple(self.arrays.origin(name).shape)
        if name in self.made:
            return self.made[name]
        kind = self.types.get(name)
        cached_type, sizes = self._sizes.get(name, (None, None))
        if kind is not cached_type:  # a protocol buffer is slow to read
            sizes = sizes_of(kind)
            self._sizes[name] = kind, sizes
        return sizes

    def know_types(self, types: Mapping[str, TypeProto]) -> None:
        """Set the types of values, given by name.

        If a value's rank is known already, a type without a rank does not replace its type.
        """
        for name, kind in types.items():
            if kind.tensor_type.HasField("shape") or self.sizes(name) is None:
                self.types[name] = kind

    def compare(self, node: NetworkNode, name: str, sizes: Sizes | None) -> None:
        """Add a node to ``differences`` if ``sizes`` contradict ONNX's inference for its output
        ``name``.

        ``sizes`` are those that the node's operator in VTensor has computed.
        """
        inferred = self.sizes(name)
        if inferred is not None and sizes is not None and differ(inferred, sizes):
            text = f"{node.described} gives {name!r} the sizes {sizes}, "
            self.differences[node.name] = f"{text}ONNX's shape inference {inferred}"

    def know(self, name: str, array: Array | Original) -> None:
        """Set a value as a constant with these elements."""
        self.arrays.put(name, array)
        self.types[name] = type_of_array(array)
        self.static.add(name)


def differ(inferred: Sizes, made: Sizes) -> bool:
    """Return whether two shapes differ in their ranks, or in a size that ``inferred`` knows.

    >>> differ((None, 3), (2, 3)), differ((1, 3), (2, 3)), differ((3,), (2, 3))
    (False, True, True)
    """
    return len(inferred) != len(made) or any(
        want not in (None, size) for want, size in zip(inferred, made, strict=True)
    )


#: Returns the output arrays of a node with known inputs; None if no operator of VTensor can compute
#: them.
Define = Callable[[Network, NetworkNode, Facts], list[Array] | None]


def schema_of(node: NetworkNode) -> onnx.defs.OpSchema | None:
    """Return ONNX's definition of a node's operator; None if the node's opset has none."""
    try:
        return _schema(node.proto.op_type, node.opsets[node.domain], node.domain)
    except onnx.defs.SchemaError:
        return None


_schema = cache(onnx.defs.get_schema)  # errors are not cached: a schema may be registered later


def folds(node: NetworkNode, facts: Facts) -> bool:
    """Return whether a node can be computed before a run.

    True if ONNX has the node's operator, the inputs whose elements the node reads are known before
    a run, its outputs are tensors, and it is neither random nor control flow. A ``Shape`` reads no
    elements. A node whose ``Spelling`` keeps it in the graph is not computed.
    """
    schema = schema_of(node)
    if (
        schema is None
        or has_graphs(node)
        or not all(name in facts.static for name in _value_inputs(node))
    ):
        return False
    if not _makes_tensors(schema):
        return False
    random: bool | None = getattr(schema, "non_deterministic", None)
    if random is None:  # onnx 1.17 lacks the field; its random operators have no inputs
        random = not node.inputs and node.proto.op_type != "Constant"
    return not random and not _is_kept(node, facts)


def _is_kept(node: NetworkNode, facts: Facts) -> bool:
    """Return whether a node stays in the graph although its inputs are constants."""
    spellings = OPERATORS.spellings(node.label, node.opsets[node.domain])
    kept = [spelling.kept for spelling in spellings if spelling.kept is not None]
    if not kept or any(name not in facts.arrays for name in node.inputs):
        return False
    origins = [facts.arrays.origin(name) for name in node.inputs]
    types = [from_numpy(origin.dtype) for origin in origins]
    return origins[0].size > 1 and any(keeps(types) for keeps in kept)


@cache
def _makes_tensors(schema: onnx.defs.OpSchema) -> bool:
    """Return whether each output of an operator may be a tensor.

    Some operators return sequences or optional values only.
    """
    return all(any(kind.startswith("tensor") for kind in each.types) for each in schema.outputs)


def _value_inputs(node: NetworkNode) -> list[str]:
    """Return the names of those inputs whose elements a node reads, not only their type and
    sizes.
    """
    type_only = () if node.domain else _OF_TYPE.get(node.proto.op_type, ())
    return [name for i, name in enumerate(node.proto.input) if name and i not in type_only]


def has_graphs(node: NetworkNode) -> bool:
    """Return whether a node is control flow, which holds graphs of its own."""
    return any(
        a.type in (AttributeProto.GRAPH, AttributeProto.GRAPHS) for a in node.proto.attribute
    )


def infer_node(network: Network, node: NetworkNode, facts: Facts, define: Define) -> None:
    """Set the types of a node's outputs, and their values if these are known before a run.

    An output that depends on initializers alone is kept in ``network.arrays`` for later graphs.

    Args:
        network: the network of the node.
        node: the node.
        facts: the known types and values, which are extended.
        define: computes the output arrays of a node; if it returns None, ONNX's reference evaluator
            computes them.

    Raises:
        ModelError: the node is not as ONNX defines it, or its inputs do not fit.
        BudgetError: a value takes more memory than the network may.
    """
    constant = _constant(network, node, facts.nbytes)
    if constant is None:
        constant = _sparse_constant(network, node, facts.nbytes)
    if constant is not None:
        facts.static.update(node.outputs)
        _keep_values(network, node, facts, [constant])
        return
    schema = schema_of(node)
    if schema is None or has_graphs(node):
        return  # inner graphs read outer values, which ONNX's check cannot see
    _check_node(network, node)
    static = folds(node, facts)
    if static:
        facts.static.update(node.outputs)
    if any(name not in facts.types for name in node.inputs):
        return
    types = _infer_types(network, node, schema, facts, static)
    facts.know_types(types)
    for name, kind in types.items():
        what = f"{network.label}: {node.described}: value {name!r}"
        check_rank(len(kind.tensor_type.shape.dim), what)
        check_budget(network, node.described, name, facts, facts.nbytes if static else 0)
    if schema.has_function or schema.has_context_dependent_function:  # type: ignore[attr-defined]
        facts.know_types(_infer_function(node, facts, types))
    if static:
        fold(network, node, facts, define)


def _check_node(network: Network, node: NetworkNode) -> None:
    """Check with ONNX's checker that a node is valid.

    Each of the model's own nodes is checked once.

    Raises:
        ModelError: the node is invalid.
    """
    if node.name in network.checked:
        return
    try:
        onnx.checker.check_node(node.proto, _checker(network.ir_version, *node.opsets.items()))
    except Exception as error:  # ValidationError, or any error of the bindings
        pass_signals(error)
        text = f"not as ONNX defines it: {error}{_later_attributes(node)}"
        raise node_error(network, node, text) from error
    if node.origin is None:
        network.checked.add(node.name)


def _later_attributes(node: NetworkNode) -> str:
    """Return a remedy for attributes that later opsets alone define; empty if there are none.

    ONNX Runtime's quantiser writes such nodes if it is given a network of an old opset.
    """
    domain, kind = node.proto.domain, node.proto.op_type
    every = [row for row in onnx.defs.get_all_schemas_with_history() if row.name == kind]
    for name in (attribute.name for attribute in node.proto.attribute):
        rows = [row for row in every if row.domain == domain and name in row.attributes]
        first = min((row.since_version for row in rows), default=0)
        if first > node.opsets.get(domain, first):
            return (
                f"\n  to fix: {kind} has the attribute {name} from opset {first} on; convert the"
                f" network to it by onnx.version_converter, then quantize or export it again"
            )
    return ""


@lru_cache(maxsize=64)
def _checker(ir_version: int, *opsets: tuple[str, int]) -> onnx.checker.C.CheckerContext:
    """Return the context of ONNX's checker for a model's IR version and opsets (domain,
    version).
    """
    context = onnx.checker.C.CheckerContext()
    context.ir_version = ir_version
    context.opset_imports = dict(opsets)
    return context


def _infer_types(
    network: Network, node: NetworkNode, schema: onnx.defs.OpSchema, facts: Facts, static: bool
) -> dict[str, TypeProto]:
    """Return the types that ONNX's inference gives for a node's outputs, by name.

    ONNX may have several definitions of the operator. Those of ``_inferring`` are tried in order,
    until one accepts the node.

    Args:
        network, node, facts: the arguments of ``infer_node``.
        schema: ONNX's definition of the operator.
        static: whether the node is computed before a run. If so, inference without the values of
            its inputs is tried last.

    Raises:
        InputsRefused: ONNX's inference reports an error for the shapes of the inputs. VTensor's
            operator may accept them.
        ModelError: the node is wrong in another way.
    """
    if attribute_error := attribute_fault(node.proto):
        raise node_error(network, node, attribute_error)
    shown = {
        name: numpy_helper.from_array(facts.arrays[name])
        for name in node.inputs
        if name in facts.arrays and facts.arrays.origin(name).size <= _SHOWN_ELEMENTS
    }
    tries = [(definition, shown) for definition in _inferring(schema)]
    if static:  # ONNX's own functions pass one element where its inference wants scalars
        tries.append((schema, {}))
    faults = []
    for candidate, values in tries:
        try:
            types = onnx.shape_inference.infer_node_outputs(
                candidate,
                _spelled_out(node.proto, schema),
                {name: bounded(facts.types[name]) for name in node.inputs},
                values,
                opset_imports=_imports(*node.opsets.items()),
                ir_version=network.ir_version,
            )
            return {name: unbounded(kind) for name, kind in types.items()}
        except Exception as error:  # InferenceError, or any error of the bindings
            pass_signals(error)
            faults.append(error)
    fault = faults[len(tries) - 1 - static]
    shapes = ", ".join(f"{name} {facts.sizes(name)}" for name in node.inputs)
    refusal = node_error(network, node, f"its inputs do not fit ({shapes}): {fault}")
    if "[ShapeInferenceError]" in str(fault):  # the operator may know the sizes better
        raise InputsRefused(str(refusal)) from fault
    raise refusal from fault


def _infer_function(
    node: NetworkNode, facts: Facts, types: Mapping[str, TypeProto]
) -> dict[str, TypeProto]:
    """Return the types of those outputs of a node that have no rank in ``types``, by name.

    ONNX defines the node's operator by a function, which consists of other operators; the types are
    inferred from these. Empty if inference fails.
    """
    unknown = [
        name
        for name in node.outputs
        if name not in types or not types[name].tensor_type.HasField("shape")
    ]
    if not unknown:
        return {}
    model = one_node(node, facts.types, unknown).model
    operator = [(node.proto.domain, node.proto.op_type)]
    try:
        model = onnx.inliner.inline_selected_functions(
            model, operator, inline_schema_functions=True
        )
        model = onnx.shape_inference.infer_shapes(model, data_prop=True)
    except Exception as error:  # the shape stays unknown
        pass_signals(error)
        return {}
    return {value.name: value.type for value in model.graph.output if value.name in unknown}


@lru_cache(maxsize=64)
def _imports(*opsets: tuple[str, int]) -> list[onnx.OperatorSetIdProto]:
    """Return the ``OperatorSetIdProto`` of each pair (domain, version)."""
    return [helper.make_opsetid(domain, version) for domain, version in opsets]


def _history(domain: str, name: str) -> Iterator[onnx.defs.OpSchema]:
    """Yield ONNX's definitions of an operator from all opsets, newest first, without deprecated
    ones.
    """
    until = sys.maxsize >> 32  # ONNX's versions are 32 bits
    while until:
        try:
            schema: Any = onnx.defs.get_schema(name, until, domain)  # ONNX's stubs lack this form
        except onnx.defs.SchemaError:
            return
        if not schema.deprecated:
            yield schema
        until = schema.since_version - 1


@cache
def _inferring(schema: onnx.defs.OpSchema) -> Sequence[onnx.defs.OpSchema]:
    """Return the definitions of an operator whose type inference is tried, in this order.

    The last is ``schema``. Before it comes the newest definition that has inference, the same
    inputs and at least the attributes of ``schema``. It is needed since some definitions have no
    inference, or one with a fault that a later opset corrected: for a window that begins in the
    pads, or for an axis that counts from the end.
    """
    for later in _history(schema.domain, schema.name):
        same = [x.name for x in later.inputs] == [x.name for x in schema.inputs]
        reads = same and later.attributes.keys() >= schema.attributes.keys()
        if reads and later.has_type_and_shape_inference_function:
            return later, schema
    return (schema,)


def _spelled_out(node: onnx.NodeProto, schema: onnx.defs.OpSchema) -> onnx.NodeProto:
    """Return a node in which absent attributes have their default values.

    ONNX's inference of some operators takes 0 for an absent attribute, whatever its default.
    """
    present = {attribute.name for attribute in node.attribute}
    defaults = [value for name, value in _defaults(schema).items() if name not in present]
    if not defaults:
        return node
    complete = onnx.NodeProto()
    complete.CopyFrom(node)
    complete.attribute.extend(defaults)
    return complete


@cache
def _defaults(schema: onnx.defs.OpSchema) -> Mapping[str, AttributeProto]:
    """Return the default value of each attribute of an operator that has one, by the attribute's
    name.
    """
    values = {name: attribute.default_value for name, attribute in schema.attributes.items()}
    return {name: value for name, value in values.items() if value.type}


def fold(network: Network, node: NetworkNode, facts: Facts, define: Define) -> None:
    """Compute the outputs of a node and set them in ``facts`` as constants.

    The types of the outputs are known. Nothing happens if an input whose elements the node reads is
    not known before a run, or if a ``Shape`` or ``Size`` has an input of unknown sizes.

    Args:
        network, node, facts, define: the arguments of ``infer_node``.

    Raises:
        ModelError: the outputs cannot be computed.
    """
    if node.label in _SIZES:
        sizes = facts.sizes(node.proto.input[0])
        if sizes is None or None in sizes:
            return  # symbolic sizes: the values are known once the inputs' sizes are
    elif not all(name in facts.arrays for name in _value_inputs(node)):
        return
    results: Sequence[Array | Original]
    try:
        turned = _transposed(node, facts)
        results = _evaluate(network, node, facts, define) if turned is None else [turned]
    except (ModelError, MemoryError):
        raise
    except Exception as error:  # the reference evaluator's own, of any kind
        pass_signals(error)
        raise node_error(network, node, f"this constant cannot be computed: {error}") from error
    _keep_values(network, node, facts, results)


def _constant(network: Network, node: NetworkNode, held: int) -> Array | None:
    """Return the value of a small ``Constant`` node without ONNX's checks, which are slow.

    Some models have hundreds of such nodes. None if ONNX has to check the node, or if the value and
    the ``held`` bytes in use together exceed ``network.max_bytes``.
    """
    proto = node.proto
    if proto.op_type != "Constant" or node.domain or proto.input or len(proto.output) != 1:
        return None
    if [(a.name, a.type) for a in proto.attribute] != [("value", AttributeProto.TENSOR)]:
        return None
    tensor = proto.attribute[0].t
    attribute_fields = {field.name for field, _ in proto.attribute[0].ListFields()}
    tensor_fields = {field.name for field, _ in tensor.ListFields()}
    if (
        attribute_fields - _ATTRIBUTE_FIELDS != {"t"}
        or len(tensor_fields - _TENSOR_FIELDS) > 1
        or node.domain not in node.opsets
    ):
        return None
    if tensor.data_type not in _SIMPLE:
        return None
    try:
        array = tensor_array(tensor, network.files)
    except ModelError:
        return None
    small = array.nbytes <= _MAX_SIMPLE_BYTES and array.nbytes + held <= network.max_bytes
    return array if small else None


def _sparse_constant(network: Network, node: NetworkNode, held: int) -> Array | None:
    """Return the value of a ``Constant`` that is a sparse tensor, or None for any other node.

    Raises:
        ModelError: its indices, values and sizes do not fit together.
        BudgetError: the value, in addition to ``held`` bytes in use, exceeds the network's budget.
    """
    proto = node.proto
    if proto.op_type != "Constant" or node.domain or proto.input or len(proto.output) != 1:
        return None
    if [(attribute.name, attribute.type) for attribute in proto.attribute] != [
        ("sparse_value", AttributeProto.SPARSE_TENSOR)
    ]:
        return None
    sparse = proto.attribute[0].sparse_tensor
    try:
        return sparse_array(sparse, network.files, network.max_bytes - held)
    except ModelError as error:
        raise node_error(network, node, str(error)) from error
    except BudgetError as error:
        raise BudgetError(f"{network.label}: {node.described}: {error}") from None


def _keep_values(
    network: Network, node: NetworkNode, facts: Facts, results: Sequence[Array | Original]
) -> None:
    """Set a node's outputs in ``facts`` as constants with the elements ``results``.

    If the node reads initializers alone, the network keeps ``results`` for later graphs, too.
    """
    # A value inside a function may have another name in the next graph.
    pure = node.origin is None and all(name in network.arrays for name in node.inputs)
    for name, array in zip(node.outputs, results, strict=True):
        facts.compare(node, name, array.shape)
        facts.know(name, array)
        is_owner = not _is_view(array, node, facts)
        facts.nbytes += array.nbytes * is_owner
        if pure:
            network.arrays.put(name, array if isinstance(array, Original) else Original(array))
            network.folded.update([name] * is_owner)


def _transposed(node: NetworkNode, facts: Facts) -> Original | None:
    """Return a Transpose's output, an ``Original``, if its input is a deferred array not read yet.

    The input stays unread. None for any other node.
    """
    if node.domain or node.proto.op_type != "Transpose":
        return None
    source = facts.arrays.origin(node.proto.input[0])
    if not isinstance(source, Original) or source.held or source.whole is not source:
        return None
    axes = [a.ints for a in node.proto.attribute if a.name == "perm"] or [range(source.ndim)[::-1]]
    is_permutation = len(axes) == 1 and sorted(axes[0]) == [*range(source.ndim)]
    return source.turned(tuple(axes[0])) if is_permutation else None


def _is_view(array: Array | Original, node: NetworkNode, facts: Facts) -> bool:
    """Return whether a node's output takes no memory of its own.

    True if the output repeats one element or shares an input's memory. False for an ``Original``.
    """
    if isinstance(array, Original):
        return False
    inputs = (facts.arrays[name] for name in node.inputs if name in facts.arrays)
    return 0 in array.strides or any(np.may_share_memory(array, known) for known in inputs)


@cache
def _itemsize(elem_type: int) -> int | None:
    """Return the number of bytes of an element of an ONNX type; None for a type that no tensor
    has.
    """
    if elem_type not in helper.get_all_tensor_dtypes():
        return None
    return np.dtype(helper.tensor_dtype_to_np_dtype(elem_type)).itemsize


def check_budget(network: Network, what: str, name: str, facts: Facts, held: int = 0) -> None:
    """Check that a value, together with ``held`` other bytes, takes at most ``network.max_bytes``.

    Args:
        network: the network.
        what: the node or input, for the error.
        name: the value; nothing is checked if its size is unknown.
        facts: the known types.
        held: bytes of other values, in use already.

    Raises:
        BudgetError: the value's bytes and ``held`` together exceed ``network.max_bytes``.
    """
    sizes, kind = facts.sizes(name), facts.types[name].tensor_type
    itemsize = _itemsize(kind.elem_type)
    if sizes is None or None in sizes or itemsize is None:
        return
    nbytes = prod(size or 0 for size in sizes) * itemsize
    if nbytes + held > network.max_bytes:
        taken = f" in addition to {held} in use" if held else ""
        raise BudgetError(
            f"{network.label}: {what}: {name!r} of sizes {sizes} takes {nbytes} bytes{taken}, "
            f"the budget is {network.max_bytes}\n  to fix: {REMEDY}"
        )


def _evaluate(network: Network, node: NetworkNode, facts: Facts, define: Define) -> list[Array]:
    """Return the output arrays of a node whose inputs are known.

    ``define`` is the argument of ``infer_node``.
    """
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
        return [tensor_array(attributes["value"].t, network.files)]
    if op_type == "ConstantOfShape":
        # A view that repeats one element: memory is only allocated when a library asks for a layout
        # of it.
        value = attributes.get("value")
        element = np.zeros(1, np.float32) if value is None else tensor_array(value.t, network.files)
        shape = [int(size) for size in np.atleast_1d(facts.arrays[node.proto.input[0]])]
        return [np.broadcast_to(element.reshape(()), shape)]
    known = all(name in facts.arrays for name in node.inputs)
    if known and op_type == "Range" and not attributes:  # ONNX's evaluator loads slowly
        start, limit, delta = (facts.arrays[name] for name in node.proto.input)
        return [np.arange(start.item(), limit.item(), delta.item()).astype(start.dtype)]
    if known and (defined := define(network, node, facts)) is not None:
        return defined
    inputs = [
        np.asarray(facts.arrays[name]) if name in facts.arrays else _example(facts.types[name])
        for name in dict.fromkeys(node.inputs)
    ]
    return one_node(node, facts.types, node.outputs).run(inputs)


def one_node(node: NetworkNode, types: Mapping[str, TypeProto], outputs: Sequence[str]) -> OneNode:
    """Return an ONNX model of one node, for ONNX's tools.

    Args:
        node: the node; each value that it reads is an input of the model once.
        types: the types of its inputs and outputs, as far as they are known.
        outputs: names of the model's outputs.
    """
    input_infos, output_infos = (
        [helper.make_value_info(name, types.get(name, TypeProto())) for name in names]
        for names in (dict.fromkeys(node.inputs), outputs)
    )
    graph = helper.make_graph([node.proto], "node", input_infos, output_infos)
    model = helper.make_model(graph, opset_imports=_imports(*node.opsets.items()))
    return OneNode(model.SerializeToString(deterministic=True))


def _example(kind: TypeProto) -> Array:
    """Return a scalar of a type's element type, for operators that read only the type of an
    input.
    """
    return np.zeros((), helper.tensor_dtype_to_np_dtype(kind.tensor_type.elem_type))


def node_error(network: Network, node: NetworkNode, text: str) -> ModelError:
    """Return the error ``text`` with the names of the model and the node."""
    return ModelError(f"{network.label}: {node.described}: {text}")
