"""How a model is changed: its bytes, or any field of its protocol buffer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

import numpy as np
from google.protobuf.descriptor import FieldDescriptor  # type: ignore[import-untyped]
from google.protobuf.message import Message  # type: ignore[import-untyped]
from numpy.random import Generator
from onnx import ModelProto, TensorProto

T = TypeVar("T")

INTEGERS = (-(2**63), -(2**31), -64, -2, -1, 0, 1, 2, 3, 7, 10, 64, 10**4, 2**31, 2**40, 2**63 - 1)
FLOATS = (float("nan"), float("inf"), -float("inf"), -1.0, 0.0, 1e-45, 0.5, 3.0, 1e38)
TEXTS = (
    "",
    "x",
    "SAME_UPPER",
    "Relu",
    "Conv",
    "Reshape",
    "Resize",
    "Expand",
    "..",
    "\x00",
    "é" * 9,
)

#: Parts of a model in a hundred that are changed as bytes, which mostly ends in the parser.
BYTES_PERCENT = 4

#: Parts of a graph, each as often as it is changed; seldom it is anything of the model.
PARTS = ("node", "node", "node", "initializer", "initializer", "input")

#: Fields that are numbers: what else is changed is mostly a name, which is mostly refused at once.
NUMBERS = ("i", "f", "s", "ints", "floats", "dims", "raw_data", "int64_data", "dim_value")

_TYPES = FieldDescriptor
_FLOATING = (_TYPES.CPPTYPE_FLOAT, _TYPES.CPPTYPE_DOUBLE)


def mutated(rng: Generator, model: bytes) -> bytes:
    """The model with up to four changes, mostly one: more of them are mostly refused at once."""
    if rng.integers(100) < BYTES_PERCENT:
        return _bytes(rng, model)
    proto = ModelProto.FromString(model)
    for _ in range(int(pick(rng, [0, 1, 1, 1, 1, 1, 2, 2, 3, 4]))):
        row = getattr(proto.graph, pick(rng, PARTS), ()) if rng.integers(8) else ()
        places = list(_places(pick(rng, row) if row else proto))
        telling = [place for place in places if place[1].name in NUMBERS]
        if places:
            place = pick(rng, telling if telling and rng.integers(4) else places)
            _change(rng, *place, texts=[*TEXTS, *_names(proto)])
    return bytes(proto.SerializeToString())


def pick(rng: Generator, among: Sequence[T]) -> T:
    """One of these."""
    return among[int(rng.integers(len(among)))]


def _bytes(rng: Generator, data: bytes) -> bytes:
    """Some bytes changed, left out or doubled."""
    changed = bytearray(data)
    for _ in range(int(rng.integers(1, 4))):
        at = int(rng.integers(len(changed) + 1))
        end = at + int(rng.integers(1, 9))
        new = pick(rng, [rng.bytes(end - at), b"", bytes(changed[at:end]) * 2])
        changed[at:end] = new
    return bytes(changed)


def _places(message: Message) -> Iterator[tuple[Message, FieldDescriptor]]:
    """Every field that is set in a message and in what it holds."""
    for field, value in message.ListFields():
        yield message, field
        if field.message_type is not None:
            for part in value if field.is_repeated else [value]:
                yield from _places(part)


def _names(model: ModelProto) -> list[str]:
    return [name for node in model.graph.node for name in (*node.input, *node.output, node.op_type)]


def _change(rng: Generator, message: Any, field: FieldDescriptor, texts: Sequence[str]) -> None:
    """Change one field, to a value of its type."""
    value = getattr(message, field.name)
    if field.is_repeated:
        _change_row(rng, value, field, texts)
    elif field.message_type is not None:
        message.ClearField(field.name)
    elif isinstance(message, TensorProto) and field.name == "raw_data":
        message.raw_data = _raw(rng, message)
    else:
        setattr(message, field.name, _value(rng, field, texts))


def _change_row(rng: Generator, row: Any, field: FieldDescriptor, texts: Sequence[str]) -> None:
    """Leave out an element, double it, or change it."""
    at, how = int(rng.integers(len(row))), int(rng.integers(6))
    if how == 0:
        del row[at]
    elif how == 1:
        row.append(row[at])
    elif field.message_type is None:
        row[at] = _value(rng, field, texts)
    elif inner := [inner for inner, _ in row[at].ListFields()]:
        _change(rng, row[at], pick(rng, inner), texts)


def _value(rng: Generator, field: FieldDescriptor, texts: Sequence[str]) -> Any:
    if field.enum_type is not None:
        return int(rng.integers(0, 12))
    if field.cpp_type in _FLOATING:
        return pick(rng, FLOATS)
    if field.cpp_type != _TYPES.CPPTYPE_STRING:
        narrow = field.cpp_type in (_TYPES.CPPTYPE_INT32, _TYPES.CPPTYPE_UINT32)
        number = pick(rng, [*INTEGERS, *range(-3, 24)])
        number %= 2**64 if field.cpp_type == _TYPES.CPPTYPE_UINT64 else 2**63
        return number % 2**31 if narrow else pick(rng, [number, number, -min(number, 3)])
    return rng.bytes(5) if field.type == _TYPES.TYPE_BYTES else pick(rng, texts)


def _raw(rng: Generator, tensor: TensorProto) -> bytes:
    """One number of a tensor replaced (shapes and axes are tensors), or its bytes cut."""
    data = bytearray(tensor.raw_data)
    if tensor.data_type == TensorProto.INT64 and len(data) >= 8 and rng.integers(8):
        at = 8 * int(rng.integers(len(data) // 8))
        data[at : at + 8] = np.int64(pick(rng, INTEGERS)).tobytes()
        return bytes(data)
    return _bytes(rng, bytes(data))
