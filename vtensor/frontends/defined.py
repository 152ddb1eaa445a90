"""The outputs of a node whose inputs are all known, as VTensor's own operators define them.

ONNX's reference evaluator has them too, but is wrong about some: its GatherElements takes at most
64 elements along an axis, and its LRN normalizes over other channels than ONNX's own formula.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NoReturn

from onnx import AttributeProto

from libdesc.registry import ready
from optimizer.originals import Original
from vtensor.errors import ModelError, UnsupportedOperatorError
from vtensor.frontends.builder import attributes_of, name_values
from vtensor.frontends.computing import run_definition
from vtensor.frontends.folding import Facts
from vtensor.frontends.functions import spellings_of
from vtensor.frontends.naming import Names, local_names
from vtensor.frontends.network import Network, NetworkNode
from vtensor.frontends.reader import Reader
from vtensor.frontends.tensors import Array, type_of_array
from vtensor.language.interrupts import pass_signals
from vtensor.language.records import dataclass
from vtensor.language.tensor import VTensor

#: Outputs are kept where inputs have no more elements than this, as in arithmetic on shapes: every
#: layer of a network has the same, and every choice of sizes.
_FEW = 64

#: And so many of them: each further choice of sizes adds some.
_MOST = 4096

#: Attributes whose bytes say all of them.
_PLAIN = (
    *(AttributeProto.INT, AttributeProto.INTS, AttributeProto.FLOAT, AttributeProto.FLOATS),
    *(AttributeProto.STRING, AttributeProto.STRINGS),
)


def defined_outputs(network: Network, node: NetworkNode, facts: Facts) -> list[Array] | None:
    """The values of a node's outputs; None where no operator here takes the node."""
    key = _key(node, facts)
    if key in network.computed:
        return network.computed[key]
    found = _defined(network, node, facts)
    if key is not None and sum(array.size for array in found or ()) <= _FEW:
        if len(network.computed) >= _MOST:
            network.computed.clear()
        network.computed[key] = found
    return found


def _key(node: NetworkNode, facts: Facts) -> object:
    """All that a node's outputs depend on; None where that is much."""
    given = [facts.arrays.get(name) for name in node.proto.input]
    plain = all(attribute.type in _PLAIN for attribute in node.proto.attribute)
    if not plain or sum(array.size for array in given if array is not None) > _FEW:
        return None
    if any(array.dtype.hasobject for array in given if array is not None):
        return None
    return (
        node.label,
        tuple(node.opsets.items()),
        tuple(one.SerializeToString(deterministic=True) for one in node.proto.attribute),
        tuple(a if a is None else (a.dtype, a.shape, a.tobytes()) for a in given),
        tuple(_type_text(facts, name) for name in node.proto.output),
    )


def _type_text(facts: Facts, name: str) -> bytes | None:
    """What is known of an output's type; None of one that nobody reads."""
    if not name:
        return None
    kind = facts.types.get(name)
    return b"" if kind is None else kind.SerializeToString(deterministic=True)


def _defined(network: Network, node: NetworkNode, facts: Facts) -> list[Array] | None:
    ready()  # the operators' spellings
    spellings = spellings_of(node)
    if not spellings:
        return None
    try:
        local = local_of(network, node, facts)
    except ModelError:
        return None
    for spelling in spellings:
        reader = Reader(node, node.opset, local, _Known(facts), attributes_of(node, network))
        try:
            given = spelling.read(reader)
            values = [given] if isinstance(given, VTensor) else list(given)
            found = _computed(reader, values)
        except Exception as error:  # it does not take the node, or not these values: another may
            pass_signals(error)
            if isinstance(error, ModelError) and not isinstance(error, UnsupportedOperatorError):
                raise  # the node is wrong, whatever computes it
            continue
        if all(name in found and _fits(name, found[name], facts) for name in node.outputs):
            return [found[name] for name in node.outputs]
    return None


def local_of(network: Network, node: NetworkNode, facts: Facts) -> dict[str, Names]:
    """The names under which a node sees its operands; they go by ranks, and stay if those do."""
    ranks = (len(facts.sizes(name) or ()) for name in (*node.inputs, *node.outputs))
    key = (node.name, *ranks, *(name in facts.static for name in node.inputs))
    if (found := network.local.get(key)) is None:
        named = name_values(replace(network, nodes=[node], inputs={}), facts, every=True)
        found = local_names(named.nodes[0][1], named.names)
        if node.origin is None:
            network.local[key] = found
    return found


def _computed(reader: Reader, values: Sequence[VTensor]) -> dict[str, Array]:
    """The outputs by name: what a spelling has added, run an operator at a time."""
    results = {}
    for index, (name, value) in enumerate(zip(reader.node.proto.output, values, strict=False)):
        if name:
            order = reader.output_names(index)
            if len(order) != value.ndimensions():
                order = tuple(value.dims)  # ONNX's inference has another rank, or none
            results[name] = reader.ordered(value, order, order)
    arrays = {key: constant.array for key, constant in reader.constants.items()}
    for added in reader.added:
        operands = [(value, arrays[id(value)]) for value in added.inputs]
        made = run_definition(reader.name, added.op, operands)
        arrays.update(zip(map(id, added.outputs), made, strict=True))
    return {name: arrays[id(value)] for name, value in results.items()}


def _fits(name: str, array: Array, facts: Facts) -> bool:
    """True when a value is of the element type that ONNX's inference has, so far as it has one."""
    kind, made = facts.types.get(name), type_of_array(array)
    return kind is None or kind.tensor_type.elem_type in (0, made.tensor_type.elem_type)


@dataclass(eq=False)
class _Known:
    """The inputs of a node, all of which are known (``Values``)."""

    facts: Facts

    def origin(self, name: str) -> Array | Original | None:
        """The array of a constant, or what holds it."""
        return self.facts.arrays.origins().get(name)

    def data(self, name: str) -> NoReturn:
        """Nothing is computed from data here."""
        raise ModelError(f"value {name!r} is not known")

    def need(self, _name: str) -> None:
        """Nobody can be asked here."""

    def renamed(self, _value: VTensor, _names: Names) -> VTensor | None:
        """Nothing was renamed before."""
        return None
