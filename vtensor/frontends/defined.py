"""Outputs of nodes with known inputs, computed by VTensor's own operators.

ONNX's reference evaluator computes them too, but some of it is wrong: its GatherElements takes at
most 64 elements along an axis, and its LRN normalizes over other channels than ONNX's formula.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NoReturn

from onnx import AttributeProto

from libdesc.registry import ready
from optimizer.constants.originals import Original
from vtensor.errors import ModelError, UnsupportedOperatorError
from vtensor.frontends.builder import attributes_of, name_values
from vtensor.frontends.computing import run_definition
from vtensor.frontends.folding import Facts
from vtensor.frontends.functions import spellings_of
from vtensor.frontends.naming import Names, local_names
from vtensor.frontends.network import Network, NetworkNode
from vtensor.frontends.reader import Reader
from vtensor.frontends.tensors import Array, type_of_array
from vtensor.language.process.interrupts import pass_signals
from vtensor.language.records import dataclass
from vtensor.language.tensor import VTensor

#: A node's outputs are cached only if its inputs, and its outputs, have at most so many elements in
#: all. Arithmetic on shapes has no more, and is repeated in the layers of a network and in its
#: graphs for other sizes.
_MAX_CACHED_ELEMENTS = 64

#: Largest number of nodes whose outputs are cached: each combination of sizes adds some.
_MAX_CACHED_NODES = 4096

#: Types of attributes whose value is in their own bytes, not in a file.
_PLAIN_ATTRIBUTES = (
    *(AttributeProto.INT, AttributeProto.INTS, AttributeProto.FLOAT, AttributeProto.FLOATS),
    *(AttributeProto.STRING, AttributeProto.STRINGS),
)


def defined_outputs(network: Network, node: NetworkNode, facts: Facts) -> list[Array] | None:
    """Return the arrays of the outputs of a node whose inputs are known.

    None if no operator of VTensor computes them. Small results are cached in ``network.computed``.
    """
    key = _cache_key(node, facts)
    if key in network.computed:
        return network.computed[key]
    outputs = _compute_outputs(network, node, facts)
    if key is not None and sum(array.size for array in outputs or ()) <= _MAX_CACHED_ELEMENTS:
        if len(network.computed) >= _MAX_CACHED_NODES:
            network.computed.clear()
        network.computed[key] = outputs
    return outputs


def _cache_key(node: NetworkNode, facts: Facts) -> object:
    """Return a hashable key of all that a node's outputs depend on.

    None means that the outputs are not cached: the inputs are large or hold Python objects, or an
    attribute holds something other than numbers and text.
    """
    inputs = [facts.arrays.get(name) for name in node.proto.input]
    plain = all(attribute.type in _PLAIN_ATTRIBUTES for attribute in node.proto.attribute)
    count = sum(array.size for array in inputs if array is not None)
    if not plain or count > _MAX_CACHED_ELEMENTS:
        return None
    if any(array.dtype.hasobject for array in inputs if array is not None):
        return None
    return (
        node.label,
        tuple(node.opsets.items()),
        tuple(a.SerializeToString(deterministic=True) for a in node.proto.attribute),
        tuple(a if a is None else (a.dtype, a.shape, a.tobytes()) for a in inputs),
        tuple(_type_text(facts, name) for name in node.proto.output),
    )


def _type_text(facts: Facts, name: str) -> bytes | None:
    """Return the type of output ``name`` as bytes: empty if it is unknown, None if the name is
    empty.
    """
    if not name:
        return None
    kind = facts.types.get(name)
    return b"" if kind is None else kind.SerializeToString(deterministic=True)


def _compute_outputs(network: Network, node: NetworkNode, facts: Facts) -> list[Array] | None:
    """Return the arrays of a node's outputs, computed by operators of VTensor.

    The operators come from the first ``Spelling`` that can read the node and whose operators can be
    run and give the element types that ONNX infers. None if there is no such spelling.

    Raises:
        ModelError: the node is wrong, whatever would compute it.
    """
    ready()  # fills the registry, through which spellings are found
    spellings = spellings_of(node)
    if not spellings:
        return None
    try:
        local = local_of(network, node, facts)
    except ModelError:
        return None
    for spelling in spellings:
        reader = Reader(node, node.opset, local, _KnownInputs(facts), attributes_of(node, network))
        try:
            read = spelling.read(reader)
            values = [read] if isinstance(read, VTensor) else list(read)
            arrays = _run_added(reader, values)
        except Exception as error:  # another spelling may take the node, or these values
            pass_signals(error)
            if isinstance(error, ModelError) and not isinstance(error, UnsupportedOperatorError):
                raise  # the node is wrong, whatever computes it
            continue
        if all(
            name in arrays and _has_inferred_type(name, arrays[name], facts)
            for name in node.outputs
        ):
            return [arrays[name] for name in node.outputs]
    return None


def local_of(network: Network, node: NetworkNode, facts: Facts) -> dict[str, Names]:
    """Return the dim names of a node's operands, by the operand's role (``x0`` is input 0).

    The result is cached in ``network.local``, by the node's name, the ranks of its inputs and
    outputs and which inputs are constants.
    """
    ranks = (len(facts.sizes(name) or ()) for name in (*node.inputs, *node.outputs))
    key = (node.name, *ranks, *(name in facts.static for name in node.inputs))
    if (names := network.local.get(key)) is None:
        named = name_values(replace(network, nodes=[node], inputs={}), facts, every=True)
        names = local_names(named.nodes[0][1], named.names)
        if node.origin is None:
            network.local[key] = names
    return names


def _run_added(reader: Reader, values: Sequence[VTensor]) -> dict[str, Array]:
    """Run the operators that a reader has collected, and return the node's output arrays by name.

    Args:
        reader: the reader of the node.
        values: the VTensors of the node's outputs, as its ``Spelling`` has returned them.
    """
    results = {}
    for index, (name, value) in enumerate(zip(reader.node.proto.output, values, strict=False)):
        if name:
            order = reader.output_names(index)
            if len(order) != value.ndimensions():
                order = tuple(value.dims)  # ONNX's inference says another rank, or none
            results[name] = reader.ordered(value, order, order)
    arrays = {key: constant.array for key, constant in reader.constants.items()}
    for added in reader.added:
        operands = [(value, arrays[id(value)]) for value in added.inputs]
        computed = run_definition(reader.name, added.op, operands)
        arrays.update(zip(map(id, added.outputs), computed, strict=True))
    return {name: arrays[id(value)] for name, value in results.items()}


def _has_inferred_type(name: str, array: Array, facts: Facts) -> bool:
    """Return whether an array has the element type that ONNX infers; True if ONNX infers none."""
    kind, actual = facts.types.get(name), type_of_array(array)
    return kind is None or kind.tensor_type.elem_type in (0, actual.tensor_type.elem_type)


@dataclass(eq=False)
class _KnownInputs:
    """The ``Values`` of a node whose inputs are all known."""

    facts: Facts

    def origin(self, name: str) -> Array | Original | None:
        """Return constant ``name``: its array, or an ``Original``, which supplies it on demand."""
        return self.facts.arrays.origins().get(name)

    def data(self, name: str) -> NoReturn:
        """Raise ModelError: all inputs of the node are constants."""
        raise ModelError(f"value {name!r} is not known")

    def need(self, _name: str) -> None:
        """Do nothing: all values of the node are known."""

    def renamed(self, _value: VTensor, _names: Names) -> VTensor | None:
        """Return None: no Rename was added before this node."""
        return None
