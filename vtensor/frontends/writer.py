"""Writer of a graph as ONNX nodes. Each operator's ``Spelling`` writes nodes by a ``NodeWriter``.

In ONNX, a value's axes are in the order in which its VTensor lists its dims. If an ONNX operator
requires another order, nodes that transpose or reshape are added before or after it; when the model
is read again, they become renames and views.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import field
from functools import cache
from math import prod
from typing import Any

import numpy as np
import onnx
from onnx import NodeProto, TensorProto, helper

from vtensor.errors import UnsupportedOperatorError
from vtensor.frontends.taken_names import TakenNames
from vtensor.frontends.tensors import Array
from vtensor.language.dtype import numpy_dtype
from vtensor.language.graph import Graph, Node
from vtensor.language.operators import OPERATORS, info_of
from vtensor.language.records import dataclass
from vtensor.language.symbolic.sizes import OpenSize
from vtensor.language.tensor import VTensor

#: Key of the entry of a model's metadata that is the text of its graph.
TEXT = "vtensor.graph"


@dataclass(eq=False)
class OnnxGraph:
    """A graph in ONNX's form.

    Attributes:
        opsets: version by domain of the nodes' operators.
        nodes: the nodes in running order.
        arrays: the initializers, by name. Those that are constants of the graph are not copies.
    """

    opsets: dict[str, int]
    nodes: list[NodeProto] = field(default_factory=list)
    arrays: dict[str, Array] = field(default_factory=dict)


def write(graph: Graph, opset: int) -> OnnxGraph:
    """Return a graph in ONNX's form, in a version of ONNX's operators.

    Raises:
        UnsupportedOperatorError: ONNX cannot express some nodes in this opset; the error lists all.
    """
    writer = _GraphWriter(graph, opset)
    refused = []
    for node in graph.nodes.values():
        if node.name not in writer.done:
            try:
                writer.node(node)
            except UnsupportedOperatorError as error:
                refused.append(f"  {node.op_name} {node.name!r} : {error}")
    if refused:
        head = f"graph {graph.name!r} cannot be written in opset {opset} of ONNX"
        remedy = "  to fix: an opset that has them, or other operators in their places"
        raise UnsupportedOperatorError("\n".join([head, *refused, remedy]))
    for alias, name in graph.outputs.items():
        if writer.names[name] != alias:
            same = _op_type("identity")
            node_name = writer.free(f"{alias}:{same.lower()}")
            writer.add(node_name, same, [writer.plain(graph.values[name])], [alias])
    return writer.exported


def _op_type(kind: str) -> str:
    """Return the ONNX operator of VTensor's structural operator ``kind``, such as ``identity``."""
    return OPERATORS.structural(kind).onnx[0].op_type


class _GraphWriter:
    """A graph while it is written, node by node.

    Attributes:
        opset: version of ONNX's operators.
        done: names of the graph's nodes that were written together with an earlier node.
        graph: the graph.
        names: ONNX's names of the graph's values, by their names in the graph.
        exported: the ONNX nodes and initializers written so far.
    """

    def __init__(self, graph: Graph, opset: int) -> None:
        self.opset = opset
        self.done: set[str] = set()
        self.graph = graph
        self._taken = TakenNames([*graph.values, *graph.outputs, *graph.nodes])
        #: The values that are written by now.
        self._written = {*graph.inputs, *graph.constants}
        #: For each value that the graph delivers, the name of the first output that delivers it.
        self._delivered = {name: alias for alias, name in reversed(graph.outputs.items())}
        self.names = {name: self._name(name) for name in graph.values}
        self._readers: dict[str, list[Node]] = defaultdict(list)
        for node in graph.nodes.values():
            for name in node.inputs:
                self._readers[name].append(node)
        #: Constants that no node reads yet; instead of adding a node, the first use may reshape
        #: them.
        self._unused = {self.names[name] for name in graph.constants}
        #: Names of transposed and reshaped values, by (operator, input, permutation or sizes).
        self._forms: dict[tuple[str, str, tuple[int, ...]], str] = {}
        arrays = {self.names[name]: array for name, array in graph.constants.items()}
        self.exported = OnnxGraph({"": opset}, arrays=arrays)

    def _name(self, value: str) -> str:
        """Return ONNX's name of a value: its own name, with two exceptions.

        If a node computes the value and the graph delivers it only under another name, it has the
        name of that output. Otherwise, if an output with the value's own name delivers another
        value, it gets a new name.
        """
        outputs = self.graph.outputs
        if outputs.get(value) == value:
            return value
        if value in self._delivered and value not in self._written:
            return self._delivered[value]
        return self.free(value) if value in outputs else value

    def node(self, node: Node) -> None:
        """Write a node by its operator's ``Spelling``.

        Raises:
            UnsupportedOperatorError: ONNX cannot express the node.
        """
        info = info_of(node.op)
        if info.write is None:
            raise UnsupportedOperatorError("VTensor does not write this operator")
        writer = _Writer(node, self)
        info.write(writer, node.op)
        self._written.update(value.name for value in writer.outputs)

    def only_reader(self, value: VTensor) -> Node | None:
        """Return the node that reads a value, if it is the only one and can be written next; else
        None.

        None if several nodes read the value, or it is an output of the graph. None also if it is
        not the node's first operand, or if another operand of that node is not written yet.
        """
        readers = self._readers[value.name]
        if len(readers) != 1 or value.name in self.graph.outputs.values():
            return None
        first, *others = readers[0].inputs
        return readers[0] if first == value.name and self._written.issuperset(others) else None

    def plain(self, value: VTensor) -> str:
        """Return ONNX's name of a value whose axes are its dims, in order."""
        sizes = tuple(value.dims.values())
        return self.reshaped(self.names[value.name], sizes, sizes)

    def operand(self, value: VTensor, rows: Sequence[Sequence[str]]) -> str:
        """Return ONNX's name of a value whose axis ``i`` is made of the dims ``rows[i]``.

        If its axes are others, nodes that transpose and reshape it are added.
        """
        order = [dim for row in rows for dim in row if dim in value.dims]
        if sorted(order) != sorted(value.dims):
            raise UnsupportedOperatorError(f"{value!r} has no place for its dims in {rows}")
        name, have = self.names[value.name], tuple(value.dims[dim] for dim in order)
        if order != list(value.dims):
            name = self.transposed(self.plain(value), list(value.dims), order)
        return self.reshaped(name, have, merged(value, rows))

    def transposed(self, name: str, have: Sequence[str], want: Sequence[str], to: str = "") -> str:
        """Add a node that transposes a value, and return ONNX's name of the result.

        Args:
            name: the value's name in ONNX.
            have: dims of its axes.
            want: the same dims in the order of the result's axes.
            to: name of the result; a new name if empty.
        """
        perm = tuple(have.index(dim) for dim in want)
        return self._converted("rename", name, perm, to, perm=perm)

    def reshaped(
        self, name: str, have: tuple[int, ...], want: tuple[int, ...], to: str = ""
    ) -> str:
        """Return ONNX's name of a value that is reshaped to the sizes ``want``.

        If its sizes are others, a node that reshapes it is added. A constant that no node reads yet
        is reshaped itself instead.

        Args:
            name: the value's name in ONNX.
            have: its sizes.
            want: sizes of the result.
            to: name of the result; a new name if empty.
        """
        if name in self._unused:
            self._unused.remove(name)
            self.exported.arrays[name] = self.exported.arrays[name].reshape(want)
            return name
        have = self.exported.arrays[name].shape if name in self.exported.arrays else have
        if have == want and not to:
            return name
        return self._converted("reshape", name, want, to, _shape(have, want), allowzero=0 in want)

    def _converted(
        self,
        kind: str,
        name: str,
        how: tuple[int, ...],
        to: str,
        shape: Array | None = None,
        **attributes: Any,
    ) -> str:
        """Add a node that transposes or reshapes a value, and return the name of its output.

        An equal earlier node is used again, unless the result must have the name ``to``.

        Args:
            kind: ``rename`` for a Transpose, or ``reshape``.
            name: the value's name in ONNX.
            how: the permutation, or the sizes of the result.
            to: name of the result; a new name if empty.
            shape: second input of the node, if it has one.
            attributes: the node's attributes.
        """
        if not to and (kind, name, how) in self._forms:
            return self._forms[kind, name, how]
        op_type = _op_type(kind)
        node_name = self.free(f"{to or name}:{op_type.lower()}")
        inputs = [name] if shape is None else [name, self.array(f"{node_name}:shape", shape)]
        self.add(node_name, op_type, inputs, [to or node_name], **attributes)
        self._forms[kind, name, how] = to or node_name
        return to or node_name

    def array(self, stem: str, values: Array) -> str:
        """Add an initializer and return its name, which begins with ``stem``."""
        name = self.free(stem)
        self.exported.arrays[name] = values
        return name

    def add(
        self,
        name: str,
        op_type: str,
        inputs: Sequence[str],
        outputs: Sequence[str],
        **attributes: Any,
    ) -> None:
        """Add a node.

        Only ONNX's own operators and attributes are checked, not those of other domains.

        Args:
            name: the node's name.
            op_type: its operator; ``domain::name`` if the domain is not ONNX's own.
            inputs, outputs: ONNX's names of the values that the node reads and computes.
            attributes: its attributes; those that are None or () are left out.

        Raises:
            UnsupportedOperatorError: this opset has no such operator or attribute.
        """
        domain, kind = domain_and_type(op_type)
        declared = None if domain else schema(op_type, self.opset).attributes
        written_attributes: dict[str, Any] = {}
        for key, value in attributes.items():
            if declared is not None and key not in declared:
                if value and not _is_neutral(value):
                    since = f"in opset {self.opset} ONNX's {op_type} has no {key}"
                    raise UnsupportedOperatorError(f"{key} {value}: {since}")
            elif value is not None and value != ():
                written_attributes[key] = int(value) if isinstance(value, bool) else value
        if domain:
            versions = self.exported.opsets
            versions[domain] = max(versions.get(domain, 1), since_of(op_type))
            written_attributes["domain"] = domain
        self.exported.nodes.append(
            helper.make_node(kind, inputs, outputs, name=name, **written_attributes)
        )

    def free(self, stem: str) -> str:
        """Take and return a free name: ``stem``, with a number if that is taken."""
        return self._taken.free(stem)


class _Writer:
    """The ``NodeWriter`` of one node.

    Args:
        node: the node.
        whole: the writer of its graph.
    """

    def __init__(self, node: Node, whole: _GraphWriter) -> None:
        self._node, self._whole = node, whole
        self.opset = whole.opset
        self.inputs: Sequence[VTensor] = [whole.graph.values[name] for name in node.inputs]
        self.outputs: Sequence[VTensor] = [whole.graph.values[name] for name in node.outputs]

    def operand(self, x: VTensor, order: Sequence[str] | None = None) -> str:
        """Return ONNX's name of ``x`` with the axes that ``order`` lists.

        An entry of ``order`` is a dim, or several dims that make one axis: ``"G*O"``. If ``order``
        is None, the axes are ``x.dims``. A dim that ``x`` lacks becomes an axis of size 1; it
        becomes no axis if it comes before all axes of ``x``.
        """
        rows = _dims_by_position(x, order)
        while rows and not any(dim in x.dims for dim in rows[0]):
            rows.pop(0)
        return self._whole.operand(x, rows)

    def constant(self, values: Any, dtype: str = "s64") -> str:
        """Add an initializer with a few values and return its name in ONNX; ``dtype`` is its
        element type.
        """
        array = np.asarray(values, numpy_dtype(dtype))
        return self._whole.array(f"{self._node.name}:constant", array)

    def shape(self, x: VTensor, sizes: Sequence[int]) -> str:
        """Add an initializer with the sizes to which ``x`` is reshaped, and return its name in
        ONNX.
        """
        target = _shape(tuple(x.dims.values()), sizes)
        return self._whole.array(f"{self._node.name}:constant", target)

    def element_type(self, dtype: str) -> int:
        """Return ONNX's number of an element type."""
        return helper.np_dtype_to_tensor_dtype(numpy_dtype(dtype))

    def follower(self, cls: type, fits: Callable[[VTensor], bool]) -> VTensor | None:
        """Merge the next node into this one, and return the next node's second operand.

        The nodes are merged only if all of this holds: the next node's operator is of class
        ``cls``; its first operand is this node's first output, which no other node reads; and
        ``fits`` accepts its second operand. Else the result is None. After a merge, ``outputs`` are
        the next node's outputs.
        """
        node = self._whole.only_reader(self.outputs[0])
        if node is None or type(node.op) is not cls:
            return None
        values = self._whole.graph.values
        second = values[node.inputs[1]]
        if not fits(second):
            return None
        self._whole.done.add(node.name)
        self.outputs = [values[name] for name in node.outputs]
        return second

    def emit(
        self, op_type: str, *inputs: str, order: Sequence[str] | None = None, **attributes: Any
    ) -> None:
        """Add the ONNX node that makes this node's outputs.

        Args:
            op_type: the ONNX operator; ``domain::name`` if the domain is not ONNX's own.
            inputs: ONNX's names of its inputs.
            order: the axes of its outputs, as for ``operand``. If they differ from the dims of a
                value, nodes that convert the output to the order of the value's dims are added.
            attributes: its attributes; those that are None or () are left out.
        """
        whole = self._whole
        self._check_types(op_type)
        moves, output_names = {}, []
        for value in self.outputs:
            name, rows = whole.names[value.name], _dims_by_position(value, order)
            if rows != _dims_by_position(value, None):
                name = whole.free(f"{name}:{domain_and_type(op_type)[1].lower()}")
                moves[name] = value, rows
            output_names.append(name)
        whole.add(self._node.name, op_type, inputs, output_names, **attributes)
        for name, (value, rows) in moves.items():
            self._restore_order(name, value, rows)

    def _check_types(self, op_type: str) -> None:
        """Check that ONNX's operator takes the types of this node's first operand and of its
        outputs.

        Raises:
            UnsupportedOperatorError: the operator lacks one of these element types.
        """
        if domain_and_type(op_type)[0]:
            return
        known = schema(op_type, self.opset)
        for value, formal in (
            *zip(self.inputs[:1], known.inputs, strict=False),
            *zip(self.outputs, known.outputs, strict=False),
        ):
            kind = TensorProto.DataType.Name(self.element_type(value.dtype)).lower()
            if f"tensor({kind})" not in formal.types:
                what = f"{value.dtype}: in opset {self.opset} ONNX's {op_type} has no {kind}"
                raise UnsupportedOperatorError(what)

    def _restore_order(self, name: str, value: VTensor, rows: Sequence[Sequence[str]]) -> None:
        """Add nodes that convert an output of an ONNX node to the order of its value's dims.

        The result has ONNX's name of the value.

        Args:
            name: the ONNX node's output.
            value: the graph's value that the output represents.
            rows: the dims that each axis of the output holds.
        """
        whole, own_name = self._whole, self._whole.names[value.name]
        order = [dim for row in rows for dim in row if dim in value.dims]
        moved, split = order != list(value.dims), tuple(value.dims[dim] for dim in order)
        if merged(value, rows) != split or not moved:
            name = whole.reshaped(name, merged(value, rows), split, "" if moved else own_name)
        if moved:
            whole.transposed(name, order, list(value.dims), own_name)

    def refuse(self, reason: str) -> UnsupportedOperatorError:
        """Return the error that says why ONNX cannot express this node."""
        return UnsupportedOperatorError(reason)


def domain_and_type(op_type: str) -> tuple[str, str]:
    """Return an operator's domain, empty for ONNX's own, and its name in this domain.

    >>> domain_and_type("my.domain::Twice"), domain_and_type("Relu")
    (('my.domain', 'Twice'), ('', 'Relu'))
    """
    domain, _, kind = op_type.rpartition("::")
    return domain, kind


def since_of(op_type: str) -> int:
    """Return the newest opset version from which a ``Spelling`` of an ONNX operator holds.

    It is the largest ``since`` of these ``Spelling`` objects, a version of the operator's domain; 1
    if there are none.
    """
    rows = (spelling for info in OPERATORS.values() for spelling in info.onnx)
    return max((row.since for row in rows if row.op_type == op_type), default=1)


@cache
def schema(op_type: str, opset: int) -> onnx.defs.OpSchema:
    """Return ONNX's definition of an operator.

    Raises:
        UnsupportedOperatorError: this opset has no such operator.
    """
    try:
        return onnx.defs.get_schema(op_type, opset)
    except onnx.defs.SchemaError:
        versions = [s for s in onnx.defs.get_all_schemas_with_history() if s.name == op_type]
        since = min((s.since_version for s in versions), default=0)
        raise UnsupportedOperatorError(f"ONNX has {op_type} from opset {since} on") from None


def _is_neutral(value: object) -> bool:
    """Return whether an attribute's value is a tuple of ones: strides or dilations that change
    nothing.
    """
    return isinstance(value, tuple) and set(value) == {1}


def _dims_by_position(value: VTensor, order: Sequence[str] | None) -> list[list[str]]:
    """Return for each axis that ``order`` lists the dims that it is made of.

    The entry ``"G*O"`` is an axis of two dims. If ``order`` is None, each dim of ``value`` is an
    axis.
    """
    return [[dim] for dim in value.dims] if order is None else [dim.split("*") for dim in order]


def merged(value: VTensor, rows: Sequence[Sequence[str]]) -> tuple[int, ...]:
    """Return the size of each axis of a value whose axis ``i`` holds the dims ``rows[i]``."""
    return tuple(prod(value.dims.get(dim, 1) for dim in row) for row in rows)


def _shape(have: Sequence[int], want: Sequence[int]) -> Array:
    """Return the second input (target shape) of ONNX's Reshape from sizes ``have`` to ``want``.

    An open size is written as 0, which means copy, if ``have`` has it at the same index. Else it is
    written as -1, which means infer.

    Raises:
        UnsupportedOperatorError: two sizes would be inferred, or a size is open and another is 0.
    """
    shape = [
        size if not isinstance(size, OpenSize) else 0 if have[i : i + 1] == (size,) else -1
        for i, size in enumerate(want)
    ]
    unknown = [size for size in want if isinstance(size, OpenSize)]
    if shape.count(-1) > 1 or (unknown and any(size == 0 for size in want)):
        raise UnsupportedOperatorError(f"sizes {tuple(want)} with more than one that is open")
    return np.array(shape, np.int64)
