"""The names, types and texts that a model's file declares, read without parsing its weights.

The fields of the protocol buffer are walked; what is not asked for, above all nodes and weights, is
skipped unread. So a model whose plan is cached is described without ONNX's package.

Source: protobuf.dev/programming-guides/encoding; onnx.proto for the numbers of fields.
"""

from __future__ import annotations

import mmap
import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import field
from typing import Any, TypeAlias, TypeGuard

import numpy as np

from vtensor.language.dtype import numpy_dtype
from vtensor.language.records import dataclass, replace
from vtensor.storage.inputs import Port

#: Names of element types, by ONNX's number.
_ELEMENTS = (
    "undefined float uint8 int8 uint16 int16 int32 int64 string bool float16 double uint32 uint64 "
    "complex64 complex128 bfloat16 float8e4m3fn float8e4m3fnuz float8e5m2 float8e5m2fnuz uint4 "
    "int4 float4e2m1 float8e8m0 uint2 int2"
)
ELEMENTS = dict(enumerate(_ELEMENTS.split()))

#: The names of element types, by NumPy's name of the type, where the two differ.
_NUMPY_NAMES = {"float32": "float", "float64": "double"}

#: The first version of ONNX's format in which an initializer that is an input may be overridden.
_OVERRIDABLE_SINCE = 4

Content: TypeAlias = int | memoryview
Shape: TypeAlias = list[int | str | None]


def element_number(dtype: np.dtype[Any]) -> int:
    """Return ONNX's number of an element type.

    Raises:
        RuntimeError: ONNX has no such type.

    >>> element_number(np.dtype(np.float32)), element_number(np.dtype("U3"))
    (1, 8)
    """
    name = "string" if dtype.kind in "USO" else _NUMPY_NAMES.get(dtype.name, dtype.name)
    for number, element in ELEMENTS.items():
        if element == name.replace("_", ""):
            return number
    raise RuntimeError(f"ONNX has no element type {dtype}")


class _Malformed(Exception):
    """The bytes are no protocol buffer."""


def _fields(data: memoryview) -> Iterator[tuple[int, Content]]:
    """Yield (number, content) of each field of a message.

    Raises:
        _Malformed: a field is unknown to the encoding, or ends after the message.
    """
    at, end = 0, len(data)
    while at < end:
        key, at = _number(data, at)
        kind = key & 7
        if kind == 0:
            number, at = _number(data, at)
            yield key >> 3, number
            continue
        if kind == 2:
            length, at = _number(data, at)
        elif kind in (1, 5):
            length = 8 if kind == 1 else 4
        else:
            raise _Malformed
        if at + length > end:
            raise _Malformed
        yield key >> 3, data[at : at + length]
        at += length


def _number(data: memoryview, at: int) -> tuple[int, int]:
    """Return the number that is encoded at offset ``at``, and the offset at which it ends.

    Raises:
        _Malformed: the number does not end, or is too long.
    """
    number = shift = 0
    while at < len(data) and shift < 70:
        byte = data[at]
        number |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return number, at
    raise _Malformed


def _table(data: memoryview, *wanted: int) -> dict[int, list[Content]]:
    """Return the contents of a message's fields, in one walk, by the number of the field.

    Args:
        data: the message.
        wanted: the numbers of the fields; each has an entry, if an empty one.
    """
    table: dict[int, list[Content]] = {number: [] for number in wanted}
    for number, content in _fields(data):
        if number in table:
            table[number].append(content)
    return table


def _messages(data: memoryview, *numbers: int) -> Iterator[memoryview]:
    """Yield the messages that the fields ``numbers``, one inside of the other, contain."""
    first, *further = numbers
    for content in _table(data, first)[first]:
        if isinstance(content, memoryview) and further:
            yield from _messages(content, *further)
        elif isinstance(content, memoryview):
            yield content


def _text(contents: Sequence[Content]) -> str:
    """Return the text that the last of a field's contents is; empty without any."""
    return str(contents[-1], "utf-8", "replace") if contents and _is_view(contents[-1]) else ""


def _integer(contents: Sequence[Content]) -> int:
    """Return the number, with its sign, that the last of a field's contents is; 0 without any."""
    if not contents or not isinstance(number := contents[-1], int):
        return 0
    return number - (1 << 64) if number >> 63 else number


def _is_view(content: Content) -> TypeGuard[memoryview]:
    return isinstance(content, memoryview)


@dataclass(frozen=True)
class NodeArg:
    """An input or an output of a model.

    Attributes:
        name: the name.
        type: the type as ONNX Runtime writes it: ``tensor(float)``.
        shape: for each axis a number, the name of an open size, or None for one without a name.
            Empty for a scalar, and if the rank is unknown.
        denotations: for each axis, what the model says that it means.
        declared: False if the model declares no shape.
    """

    name: str
    type: str
    shape: Shape
    denotations: tuple[str, ...] = field(default=(), repr=False, compare=False)
    declared: bool = field(default=True, repr=False, compare=False)

    def completed(self, port: Port, inferred: NodeArg | None = None) -> NodeArg:
        """Return this input or output with the type and the sizes that follow from the model.

        Args:
            port: the input or output as VTensor knows it.
            inferred: an output as ONNX's shape inference knows it; None if that was not asked.
        """
        kind = self.type or f"tensor({ELEMENTS[element_number(numpy_dtype(port.dtype))]})"
        known: Sequence[int | str | None] = () if port.any_rank else port.shape
        names = (
            inferred.shape if inferred is not None and inferred.declared else [None] * len(known)
        )
        own = self.shape if self.declared else names
        if len(own) == len(known) == len(names):
            rows = zip(known, own, names, strict=True)
            own = [size if size is not None else has or name for size, has, name in rows]
        return replace(self, name=port.name, type=kind, shape=[*own])


@dataclass(frozen=True)
class ModelMetadata:
    """What a model says about itself."""

    producer_name: str = ""
    graph_name: str = ""
    domain: str = ""
    description: str = ""
    graph_description: str = ""
    version: int = 0
    custom_metadata_map: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Declared:
    """What a model's file declares.

    Attributes:
        metadata: what it says about itself.
        inputs, outputs: those of its graph; initializers that are inputs as well are among them.
        overridable: True if an initializer that is an input as well may be fed.
        has_graph: False if the file has no graph.
    """

    metadata: ModelMetadata
    inputs: tuple[NodeArg, ...]
    outputs: tuple[NodeArg, ...]
    overridable: bool
    has_graph: bool


def declared(model: str | bytes) -> Declared | None:
    """Return what a model declares; None if it is no file, or its bytes are no protocol buffer.

    Args:
        model: path of the file, or its bytes.

    Raises:
        OSError: the file cannot be read.
    """
    data: bytes | mmap.mmap = b"" if isinstance(model, str) else model
    if isinstance(model, str):
        if not stat.S_ISREG(os.stat(model).st_mode):  # noqa: PTH116  # a folder, a pipe, a device
            return None
        with open(model, "rb") as file, suppress(ValueError):  # noqa: PTH123  # an empty file
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    try:
        return _read(memoryview(data))
    except (_Malformed, RecursionError):  # types may be nested without end
        return None


def _read(view: memoryview) -> Declared:
    """Return what the bytes of a model declare.

    Raises:
        _Malformed: they are no protocol buffer.
    """
    model = _table(view, 1, 2, 4, 5, 6, 7, 14)
    graphs = [*filter(_is_view, model[7])]
    graph = _table(graphs[0] if graphs else memoryview(b""), 2, 10, 11, 12)
    entries = [_table(entry, 1, 2) for entry in filter(_is_view, model[14])]
    metadata = ModelMetadata(
        _text(model[2]),
        _text(graph[2]),
        _text(model[4]),
        _text(model[6]),
        _text(graph[10]),
        _integer(model[5]),
        {_text(entry[1]): _text(entry[2]) for entry in entries},
    )
    inputs = tuple(map(_node_arg, filter(_is_view, graph[11])))
    outputs = tuple(map(_node_arg, filter(_is_view, graph[12])))
    overridable = _integer(model[1]) >= _OVERRIDABLE_SINCE
    return Declared(metadata, inputs, outputs, overridable, bool(graphs))


def _node_arg(value: memoryview) -> NodeArg:
    """Return an input or output of a graph, from its ``ValueInfoProto``."""
    dims = [_table(dim, 1, 2, 3) for dim in _messages(value, 2, 1, 2, 1)]
    return NodeArg(
        _text(_table(value, 1)[1]),
        next(map(_type, _messages(value, 2)), ""),
        [_size(dim) for dim in dims],
        tuple(_text(dim[3]) for dim in dims),
        any(True for _ in _messages(value, 2, 1, 2)),
    )


def _size(dim: dict[int, list[Content]]) -> int | str | None:
    """Return the size that a dimension declares: a number, a name, or None."""
    if dim[1] and (number := _integer(dim[1])) >= 0:  # some exporters write -1 for an open size
        return number
    return _text(dim[2]) or None


def _type(kind: memoryview) -> str:
    """Return a ``TypeProto`` as ONNX Runtime writes it."""
    for number, content in _fields(kind):
        if not isinstance(content, memoryview):
            continue
        inner = _table(content, 1, 2)
        if number in (1, 8):
            sparse = "sparse_" if number == 8 else ""
            return f"{sparse}tensor({_element(inner[1])})"
        if number in (4, 9):
            name = "seq" if number == 4 else "optional"
            return f"{name}({''.join(map(_type, filter(_is_view, inner[1])))})"
        if number == 5:
            values = "".join(map(_type, filter(_is_view, inner[2])))
            return f"map({_element(inner[1])},{values})"
    return ""


def _element(contents: Sequence[Content]) -> str:
    return ELEMENTS.get(_integer(contents), ELEMENTS[0])


def inferred_outputs(model: str | bytes) -> dict[str, NodeArg]:
    """Return the outputs of a model by name, with the sizes that ONNX's shape inference finds.

    Empty if the inference refuses the model.
    """
    from onnx import ModelProto, shape_inference

    from vtensor.frontends.files.model_file import opened
    from vtensor.language.process.interrupts import pass_signals

    try:
        proto = ModelProto.FromString(opened(model).parts.rest)
        result = shape_inference.infer_shapes(proto, data_prop=True).SerializeToString()
    except Exception as error:  # of any kind; the session has read the model without this
        pass_signals(error)
        return {}
    return {
        output.name: replace(output, shape=[None if _made(size) else size for size in output.shape])
        for output in _read(memoryview(result)).outputs
    }


def _made(size: int | str | None) -> bool:
    """Return whether a size has a name that ONNX's shape inference has made up."""
    return isinstance(size, str) and size.startswith("unk__")


def edited(
    model: str | bytes,
    by_name: Mapping[str, int],
    by_denotation: Mapping[str, int],
    loose: bool,
) -> str | bytes:
    """Return a model that declares other sizes: its bytes, or ``model`` if none changes.

    Args:
        model: path of the file, or its bytes.
        by_name: numbers for open sizes, by the name of the size.
        by_denotation: numbers for open sizes, by what the model says that the axis means.
        loose: True makes all other open sizes independent of each other, and drops what the model
            declares about the sizes of outputs and of values inside.
    """
    if not (by_name or by_denotation or loose):
        return model
    import onnx

    if isinstance(model, bytes):
        proto = onnx.ModelProto.FromString(model)
    else:
        proto = onnx.load(model, load_external_data=False)
    dims = [d for value in proto.graph.input for d in value.type.tensor_type.shape.dim]
    changed = loose
    for value in (*proto.graph.output, *proto.graph.value_info) if loose else ():
        value.type.tensor_type.ClearField("shape")
    for dim in dims:
        size = by_name.get(dim.dim_param, by_denotation.get(dim.denotation, -1))
        if not dim.HasField("dim_value") and size >= 0:
            dim.dim_value, changed = size, True
        elif loose:
            dim.ClearField("dim_param")
    return bytes(proto.SerializeToString()) if changed else model
