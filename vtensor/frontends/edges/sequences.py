"""Sequences whose elements are known when the model is read: they become ordinary nodes.

A sequence is then a list of the names of its elements.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from onnx import NodeProto, TensorProto, TypeProto, helper, numpy_helper

from vtensor.frontends.edges.kinds import spelled
from vtensor.frontends.tensors import sizes_of


class Sequences:
    """Replaces operators of sequences and optional values by nodes that read the elements.

    Args:
        opset: the version of ONNX's operators.
        types: the known types of values.
        known: the constants, by name.
        taken: the names of all values; new ones are added.
    """

    def __init__(
        self,
        opset: int,
        types: Mapping[str, TypeProto],
        known: Mapping[str, TensorProto],
        taken: set[str],
    ) -> None:
        self._opset, self._types, self._taken = opset, types, taken
        self._known = {**known}
        self._items: dict[str, list[str]] = {}
        self._nodes: list[NodeProto] = []

    def resolved(self, nodes: Iterable[NodeProto]) -> list[NodeProto]:
        """Return the nodes, with new ones in place of those whose sequences are known."""
        for node in nodes:
            if node.op_type == "Constant" and not node.domain:
                for attribute in node.attribute:
                    if attribute.name == "value":
                        self._known[node.output[0]] = attribute.t
                    elif attribute.name in ("value_int", "value_ints"):
                        value = np.asarray(helper.get_attribute_value(attribute), np.int64)
                        self._known[node.output[0]] = numpy_helper.from_array(value)
            resolve = None if node.domain else _RESOLVED.get(node.op_type)
            attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
            if resolve is None or not resolve(self, node, attributes):
                self._nodes.append(node)
        return self._nodes

    def _add(self, op_type: str, inputs: Sequence[str], output: str, **attributes: Any) -> str:
        self._nodes.append(helper.make_node(op_type, inputs, [output], **attributes))
        return output

    def _free(self, stem: str) -> str:
        name, number = stem, 0
        while name in self._taken:
            name, number = f"{stem}:{number}", number + 1
        self._taken.add(name)
        return name

    def _constant(self, value: Any, output: str = "") -> str:
        name = output or self._free("sequence:constant")
        tensor = numpy_helper.from_array(np.asarray(value), name)
        return self._add("Constant", [], name, value=tensor)

    def _number(self, node: NodeProto, index: int, default: int) -> int | None:
        """Return an input's only number; ``default`` if it is left out, None if it is unknown."""
        if index >= len(node.input) or not node.input[index]:
            return default
        tensor = self._known.get(node.input[index])
        return None if tensor is None else int(numpy_helper.to_array(tensor).item())

    def _construct(self, node: NodeProto, _: Mapping[str, Any]) -> bool:
        self._items[node.output[0]] = [*node.input]
        return False  # the node stays for readers that need the sequence itself

    def _change(self, node: NodeProto, _: Mapping[str, Any]) -> bool:
        """Insert or erase an element."""
        items, erases = self._items.get(node.input[0]), node.op_type == "SequenceErase"
        if items is not None:
            place = self._number(node, 2 - erases, len(items) - erases)
            if place is not None and -len(items) <= place <= len(items) - erases:
                place += len(items) * (place < 0)
                more = [] if erases else [node.input[1]]
                self._items[node.output[0]] = [*items[:place], *more, *items[place + erases :]]
        return False

    def _at(self, node: NodeProto, _: Mapping[str, Any]) -> bool:
        items, place = self._items.get(node.input[0]), self._number(node, 1, 0)
        if items is None or place is None or not -len(items) <= place < len(items):
            return False
        self._add(spelled("identity"), [items[place]], node.output[0])
        return True

    def _length(self, node: NodeProto, _: Mapping[str, Any]) -> bool:
        if (items := self._items.get(node.input[0])) is not None:
            self._constant(np.int64(len(items)), node.output[0])
        return items is not None

    def _join(self, node: NodeProto, attributes: Mapping[str, Any]) -> bool:
        items, axis = self._items.get(node.input[0]), attributes["axis"]
        if not items:
            return False
        if attributes.get("new_axis", 0):
            items = [self._reshaped("Unsqueeze", item, axis) for item in items]
        self._add(spelled("concat"), items, node.output[0], axis=axis)
        return True

    def _reshaped(self, op_type: str, value: str, axis: int) -> str:
        """Add an Unsqueeze or Squeeze of one axis, and return the name of its output."""
        name = self._free(f"{value}:{op_type.lower()}")
        if self._opset < 13:
            return self._add(op_type, [value], name, axes=[axis])
        return self._add(op_type, [value, self._constant(np.array([axis]))], name)

    def _split(self, node: NodeProto, attributes: Mapping[str, Any]) -> bool:
        """Note the parts of a SplitToSequence, and add a Split, if their sizes are known."""
        axis, sizes = attributes.get("axis", 0), sizes_of(self._types.get(node.input[0]))
        if sizes is None or not -len(sizes) <= axis < len(sizes) or not (size := sizes[axis]):
            return False
        parts = np.asarray(1)
        keeps = True
        if len(node.input) > 1 and node.input[1]:
            tensor = self._known.get(node.input[1])
            if tensor is None:
                return False
            parts = numpy_helper.to_array(tensor)
        else:
            keeps = bool(attributes.get("keepdims", 1))
        if parts.ndim == 0:
            each = int(parts)
            if each < 1:
                return False
            parts = np.array([min(each, size - at) for at in range(0, size, each)])
        if parts.sum() != size:
            return False
        names = [self._free(f"{node.output[0]}:{number}") for number in range(len(parts))]
        if self._opset < 13:
            whole = {"split": parts.tolist()}
            more: list[str] = []
        else:
            whole, more = {}, [self._constant(parts.astype(np.int64))]
        split = helper.make_node("Split", [node.input[0], *more], names, axis=axis, **whole)
        self._nodes.append(split)
        if not keeps:
            names = [self._reshaped("Squeeze", name, axis) for name in names]
        self._items[node.output[0]] = names
        return False

    def _alias(self, node: NodeProto, _: Mapping[str, Any]) -> bool:
        """Read an optional value that is known to be there, and what is done with it."""
        given = [name for name in node.input if name]
        kind = self._types.get(given[0]) if given else None
        is_open = kind is None or kind.HasField("optional_type")
        if given and given[0] in self._items:
            self._items[node.output[0]] = self._items[given[0]]
        if node.op_type == "OptionalHasElement" and not (given and is_open):
            self._constant(np.asarray(bool(given)), node.output[0])
            return True
        if node.op_type == "OptionalGetElement" and kind is not None and not is_open:
            self._add(spelled("identity"), given, node.output[0])
            return True
        return False


_RESOLVED: dict[str, Callable[[Sequences, NodeProto, Mapping[str, Any]], bool]] = {
    "SequenceConstruct": Sequences._construct,
    "SequenceEmpty": Sequences._construct,
    "SequenceInsert": Sequences._change,
    "SequenceErase": Sequences._change,
    "SequenceAt": Sequences._at,
    "SequenceLength": Sequences._length,
    "ConcatFromSequence": Sequences._join,
    "SplitToSequence": Sequences._split,
    "Optional": Sequences._alias,
    "OptionalHasElement": Sequences._alias,
    "OptionalGetElement": Sequences._alias,
}
