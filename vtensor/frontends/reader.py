"""Reader of one ONNX node, for an operator's ``Spelling``, which turns the node into operators.

A reader changes nothing in the graph. It collects the operators that the spelling adds, and returns
for each one VTensors that describe its outputs. The builder adds the operators to the graph only
once the spelling has read the whole node. So a spelling that refuses the node half-way leaves
nothing behind.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from math import prod
from typing import Any, Protocol

from onnx import AttributeProto, helper

from optimizer.constants.originals import Original, array_of
from vtensor.errors import DimError, GraphError, ModelError, UnsupportedOperatorError
from vtensor.frontends.computing import run_definition
from vtensor.frontends.files.external import DataFiles
from vtensor.frontends.folding import schema_of
from vtensor.frontends.naming import Names
from vtensor.frontends.network import NetworkNode
from vtensor.frontends.tensors import Array, element_type, tensor_array
from vtensor.language.dtype import from_numpy
from vtensor.language.operators import OPERATORS, Context, run_compute
from vtensor.language.records import dataclass
from vtensor.language.tensor import Option, VTensor


class NodeRefused(UnsupportedOperatorError):
    """Raised if an operator's ``Spelling`` refuses to read a node; the builder collects these
    errors.
    """


class Values(Protocol):
    """Where a reader gets a node's operands from, by the name of the value: usually the builder."""

    def origin(self, name: str) -> Array | Original | None:
        """Return constant ``name``: its array, or an ``Original``, which supplies it on demand.

        None if value ``name`` is no constant: a run computes it, or takes it as an input.
        """

    def data(self, name: str) -> VTensor:
        """Return a VTensor of value ``name``, for which ``origin`` returns None."""

    def need(self, name: str) -> None:
        """Raise ValuesNeededError if value ``name`` would be known if the values of some inputs
        were.
        """

    def renamed(self, value: VTensor, names: Names) -> VTensor | None:
        """Return the output of an earlier Rename of ``value`` to the dims ``names``.

        None if there is no such Rename.
        """


@dataclass(frozen=True, eq=False)
class Constant:
    """A constant that an operator's ``Spelling`` has asked for while it reads a node.

    Attributes:
        name: its name in the ONNX model; a text that describes it if it was made during the
            reading.
        origin: its array, or an ``Original``, which supplies the array on demand.
        value: a VTensor of its type, with the dim names that the spelling has asked for.
    """

    name: str
    origin: Array | Original
    value: VTensor

    @property
    def array(self) -> Array:
        """The elements; a deferred array is read now."""
        return array_of(self.origin)


@dataclass(frozen=True, eq=False)
class Added:
    """An operator that a ``Spelling`` has added while it reads a node.

    Attributes:
        op: the operator.
        inputs: its inputs.
        outputs: VTensors that describe its outputs.
        names: dim names of the output if the operator is a Rename; else empty.
    """

    op: object
    inputs: tuple[VTensor, ...]
    outputs: tuple[VTensor, ...]
    names: Names = ()


def attribute_value(attribute: AttributeProto, files: DataFiles | None) -> Any:
    """Return an attribute in Python: text as ``str``, tensors as arrays, lists as lists.

    Args:
        attribute: the attribute.
        files: files of external data; None for a model from memory without a root.
    """
    value = helper.get_attribute_value(attribute)
    if attribute.type == AttributeProto.TENSOR:
        return tensor_array(attribute.t, files)
    if isinstance(value, bytes):
        return value.decode()
    if attribute.type == AttributeProto.STRINGS:
        return [text.decode() for text in value]
    return list(value) if attribute.type in _LISTS else value


_LISTS = (AttributeProto.INTS, AttributeProto.FLOATS)


@dataclass(eq=False)
class Reader:
    """The ``NodeReader`` of one ONNX node: an operator's ``Spelling`` reads the node through it.

    Args:
        node: the ONNX node.
        opset: version of ONNX's operators.
        local: dim names under which this node sees its operands, by role (``x0``: input 0).
        values: supplies the node's operands, by name.
        read_attribute: returns an attribute's value, given its name and a default.
        added: the operators that the spelling has added.
        constants: the constants that the spelling has asked for, by the ``id`` of their VTensors.
        attributes_read: the names of the attributes that the spelling has asked for.
    """

    node: NetworkNode
    opset: int
    local: Mapping[str, Names]
    values: Values
    read_attribute: Callable[[str, Any], Any]
    added: list[Added] = field(default_factory=list)
    constants: dict[int, Constant] = field(default_factory=dict)
    attributes_read: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.name = self.node.name

    @property
    def described(self) -> str:
        """The operator and the node's name, for messages."""
        return self.node.described

    def attribute(self, name: str, default: Any = None) -> Any:
        """Return an attribute's value, or the default if it is absent."""
        self.attributes_read.add(name)
        return self.read_attribute(name, default)

    def unread(self) -> list[str]:
        """Return the names of the node's attributes that its ``Spelling`` has not asked for.

        Empty for operators that ONNX defines: ONNX's checker knows their attributes.
        """
        given = [attribute.name for attribute in self.node.proto.attribute]
        new = [name for name in given if name not in self.attributes_read]
        return new if new and schema_of(self.node) is None else []

    def element_type(self, name: str) -> str:
        """Return the element type that attribute ``name`` gives by its ONNX number.

        Empty if the attribute is absent or 0.
        """
        number = int(self.attribute(name, 0))
        try:
            return element_type(number, f"attribute {name}") if number else ""
        except ModelError as error:
            raise self.refuse(str(error)) from None

    def has(self, index: int) -> bool:
        """Return whether the optional input ``index`` is given."""
        return index < len(self.node.proto.input) and bool(self.node.proto.input[index])

    def input(self, index: int, names: str = "") -> VTensor:
        """Return input ``index`` as a VTensor.

        ``names`` has a dim name for each axis, separated by spaces. If it is empty, the dims have
        the names in ``local``.
        """
        name = self._input_name(index)
        origin = self.values.origin(name)
        wanted = tuple(names.split()) or self.local[f"x{index}"]
        rank = self.values.data(name).ndimensions() if origin is None else origin.ndim
        if len(wanted) != rank:
            raise self.refuse(f"input {index} has rank {rank}, not {len(wanted)} ({names})")
        if origin is None:
            return self._with_names(self.values.data(name), wanted)
        return self._constant(name, origin, wanted)

    @property
    def inputs(self) -> list[VTensor]:
        """All inputs, without optional ones that are left out."""
        return [self.input(i) for i in range(len(self.node.proto.input)) if self.has(i)]

    def constant(self, index: int) -> Any:
        """Return input ``index`` as a NumPy array.

        Raises:
            NodeRefused: the input is computed from data.
            ValuesNeededError: the input would be known if the values of some of the model's inputs
                were.
        """
        name = self._input_name(index)
        origin = self.values.origin(name)
        if origin is None:
            self.values.need(name)
            raise self.refuse(
                f"input {index} ({name!r}) must be known before a run, and is computed from data"
            )
        return array_of(origin)

    def axis(self, index: int, of: VTensor) -> str:
        """Return the name of dim ``index`` of the value ``of``; a negative index counts from the
        end.
        """
        names = list(of.dims)
        if not -len(names) <= index < len(names):
            raise self.refuse(f"axis {index} does not exist in {of.summary()}")
        return names[index]

    def output_names(self, index: int = 0) -> Names:
        """Return the dim names of output ``index``, one for each axis; empty if the output is
        absent.
        """
        return self.local.get(f"y{index}", ())

    @property
    def output_count(self) -> int:
        """Number of outputs that the node lists, unused ones included."""
        return len(self.node.proto.output)

    def gives(self, index: int) -> bool:
        """Return whether the node has output ``index``."""
        return index < self.output_count and bool(self.node.proto.output[index])

    def add(self, op: object, *inputs: VTensor) -> Any:
        """Add an operator, and return its output, or a tuple if it has several."""
        return self._add(op, inputs)

    def ahead(self, op: object, *inputs: VTensor) -> VTensor:
        """Add an operator of one output and return the output.

        If all inputs are constants, no operator is added; the output is computed now and is a
        constant.
        """
        constants = [self.constants.get(id(value)) for value in inputs]
        operands = [(c.value, c.array) for c in constants if c is not None]
        if len(operands) < len(constants):
            result: VTensor = self._add(op, inputs)
            return result
        [output] = run_compute(Context(node=self.name), op, inputs)
        [array] = run_definition(self.name, op, operands)
        name = f"{' '.join(c.name for c in constants if c is not None)}: {op}"
        return self._constant(name, array, tuple(output.dims))

    def made(self, array: Array, names: Sequence[str]) -> VTensor:
        """Return a new constant of the node; ``names`` are the dims of the array's axes."""
        return self._constant(f"{self.name}: constant {len(self.constants)}", array, tuple(names))

    def reshape(self, x: VTensor, dims: Mapping[str, int]) -> VTensor:
        """Return ``x`` reshaped to ``dims``; the elements keep the order that they have by
        ``x.dims``.

        If ``x`` is a constant, the result is another constant. If only the dim names differ, ``x``
        is renamed.
        """
        if prod(dims.values()) != x.num_elements:
            raise DimError(f"{self.name}: {x.summary()} cannot be reshaped to {dict(dims)}")
        if (constant := self.constants.get(id(x))) is not None:
            origin = constant.origin.reshape(tuple(dims.values()))
            return self._constant(constant.name, origin, tuple(dims))
        if list(x.dims.values()) == list(dims.values()):
            return self._with_names(x, tuple(dims))
        info = OPERATORS.structural("reshape")
        value = self._add(info.cls(tuple(dims.items())), (x,))
        return self.ordered(value, tuple(dims), tuple(dims))

    def refuse(self, reason: str) -> NodeRefused:
        """Return the error that the operator's ``Spelling`` does not support this node."""
        return NodeRefused(reason)

    def ordered(self, value: VTensor, order: Names, names: Names) -> VTensor:
        """Return a value with its dims in the order ``order``, renamed to ``names``.

        If ``order`` has other dims than the value, the order of ``value.dims`` is kept.
        """
        if set(value.dims) != set(order):
            order = tuple(value.dims)  # the operator has named its output's dims itself
        if tuple(value.dims) == order:
            return self._with_names(value, names)
        return self._rename(value, tuple(zip(order, names, strict=True)), names)

    def _with_names(self, value: VTensor, names: Names) -> VTensor:
        """Return a value with its dims renamed to ``names``, axis by axis."""
        have = tuple(value.dims)
        if have == names:
            return value
        if (constant := self.constants.get(id(value))) is not None:
            return self._constant(constant.name, constant.origin, names)
        if len(set(names)) != len(names):
            raise GraphError(f"{self.name}: a value cannot have the names {' '.join(names)}")
        pairs = zip(have, names, strict=True)
        return self._rename(value, tuple(p for p in pairs if p[0] != p[1]), names)

    def _constant(self, name: str, origin: Array | Original, names: Names) -> VTensor:
        """Return a new constant whose axes have the dim names ``names``, and list it in
        ``constants``.
        """
        sizes = dict(zip(names, origin.shape, strict=True))
        if len(sizes) != origin.ndim:
            raise GraphError(f"{self.name}: {name!r} cannot have the names {' '.join(names)}")
        value = VTensor(from_numpy(origin.dtype), sizes, Option(name=name))
        self.constants[id(value)] = Constant(name, origin, value)
        return value

    def _rename(self, value: VTensor, pairs: tuple[tuple[str, str], ...], names: Names) -> VTensor:
        """Return a value with dims renamed, by an earlier Rename if there is one.

        Args:
            value: the value.
            pairs: the old and the new name of each dim that gets another name; of all dims, in the
                order of the result, if the order changes.
            names: names of all dims of the result, in order.
        """
        earlier_result = self.values.renamed(value, names)
        if earlier_result is not None:
            return earlier_result
        for earlier in self.added:
            if earlier.names == names and earlier.inputs[0] is value:
                return earlier.outputs[0]
        result: VTensor = self._add(OPERATORS.structural("rename").cls(pairs), (value,), names)
        if tuple(result.dims) != names:
            raise GraphError(f"{self.name}: {value!r} renamed by {pairs} became {result!r}")
        return result

    def _add(self, op: object, inputs: tuple[VTensor, ...], names: Names = ()) -> Any:
        """Add an operator and return its output, or a tuple if it has several.

        If the operator is a Rename, ``names`` are the dims of its output.
        """
        outputs = run_compute(Context(node=self.name), op, inputs)
        self.added.append(Added(op, inputs, outputs, names))
        return outputs[0] if len(outputs) == 1 else outputs

    def _input_name(self, index: int) -> str:
        """Return the name of input ``index``; raise NodeRefused if the input is absent."""
        if not self.has(index):
            raise self.refuse(f"input {index} is absent")
        return str(self.node.proto.input[index])
