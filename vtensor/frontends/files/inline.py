"""Weights inside a model's file: each is read by itself, a large one on demand.

The file's bytes are walked as protocol buffers encode them, down to the raw data of initializers
and of ``Constant`` nodes; the rest, which is small, is for ONNX's parser. If anything is unusual,
that parser gets the whole file instead and reports any faults; this module reports none.

Source: protobuf.dev/programming-guides/encoding; onnx.proto for the numbers of fields.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import field
from typing import NamedTuple

import numpy as np

from ptensor.pages import lasting
from vtensor.language.records import dataclass
from vtensor.storage.open_file import LATER, Bytes, Data, OpenFile, Stretch

#: Fills an array with a model's bytes from an offset on; returns False if the model ends before.
Fill = Callable[[int, Bytes], bool]

#: Given an offset and a number of bytes, returns a function that reads these bytes at any later
#: time.
Reopen = Callable[[int, int], Stretch]

#: Least number of bytes of data that is separated from the model.
MIN_SEPARATE_BYTES = 1 << 12

#: Number of bytes that are read at once to look at fields.
_CHUNK_BYTES = 1 << 16

#: Field numbers: a model's graph, a graph's nodes and initializers, a node's operator.
_GRAPH, _NODE, _INITIALIZER, _OP_TYPE = 7, 1, 5, 4

#: Numbers of the nested fields that lead to a tensor's raw data: from an initializer, and from a
#: node through its only attribute.
_RAW_DATA = {_INITIALIZER: (9,), _NODE: (5, 5, 9)}

#: The operator of nodes whose only attribute may be a weight.
_CONSTANT = b"Constant"

#: Wire types of fields: a number, a length with content, and types of a fixed number of bytes, each
#: with this number.
_VARINT, _LENGTH, _FIXED = 0, 2, {1: 8, 5: 4}

#: Largest number of fields that are walked. For a model with more, ONNX's parser is faster.
MAX_FIELDS = 1 << 17

#: Largest number of bytes of an encoded number.
_MAX_VARINT_BYTES = 10


class Parts(NamedTuple):
    """A model's bytes in two parts: the raw data of its large weights (separate), and all other
    bytes.

    Attributes:
        rest: the model's bytes without the separate data; they are a valid model.
        data: the separate raw data. The key is the number of its initializer in the graph, or
            ``of_node`` of the number of its ``Constant`` node.
        size: number of bytes of ``rest`` and ``data`` together.
    """

    rest: bytes
    data: dict[int, Data]
    size: int


def of_node(number: int) -> int:
    """Return the key in ``Parts.data`` for the raw data of the graph's node ``number``.

    It is negative, so that no initializer has the same key.
    """
    return -1 - number


class _Unusual(Exception):  # not named an error: ONNX's parser reads the model instead
    """Raised if a model's bytes are encoded in a way that exporters do not use."""


class _Field(NamedTuple):
    """A field of a message, as protocol buffers encode it.

    Attributes:
        number: the field's number.
        kind: its wire type.
        begin, content, end: offsets in the model's bytes at which the field begins, its content
            begins, and the field ends.
    """

    number: int
    kind: int
    begin: int
    content: int
    end: int


def parts_of_file(file: OpenFile) -> Parts | None:
    """Return a model's file as ``Parts``: the raw data of large weights apart from all other bytes.

    None if ONNX's parser has to read the whole file.
    """
    return parts(file.fill, file.size, file.stretch)


def parts_of_bytes(data: bytes) -> Parts:
    """Return a model's bytes as ``Parts``: the raw data of large weights apart from all other
    bytes.

    If ONNX's parser has to read the bytes as a whole, no data is apart.
    """
    whole = np.frombuffer(data, np.uint8)

    def fill(offset: int, into: Bytes) -> bool:
        into[:] = whole[offset : offset + into.size]
        return True

    return parts(fill, len(data)) or Parts(data, {}, len(data))


def parts(fill: Fill, size: int, reopen: Reopen | None = None) -> Parts | None:
    """Return a model's bytes as ``Parts``: the raw data of large weights apart from all other
    bytes.

    None if ONNX's parser has to read them as a whole, because the bytes are encoded unusually or no
    weight is large.

    Args:
        fill: reads the model's bytes.
        size: number of bytes.
        reopen: returns readers of the model's bytes that work at any later time; None if that is
            impossible.
    """
    model = _Model(fill, size, reopen)
    try:
        rest = model.without_data()
    except _Unusual:
        return None
    return Parts(rest, model.data, size) if model.data else None


@dataclass(eq=False)
class _Model:
    """A model whose bytes are walked, field by field.

    Attributes:
        fill, size, reopen: the arguments of ``parts``.
        data: the raw data that was separated so far, with keys as in ``Parts.data``.
        chunk: the bytes that were read last.
        at: offset in the model's bytes at which the chunk begins.
        seen: number of fields that were walked so far.
    """

    fill: Fill
    size: int
    reopen: Reopen | None
    data: dict[int, Data] = field(default_factory=dict)
    chunk: bytes = b""
    at: int = 0
    seen: int = 0

    def without_data(self) -> bytes:
        """Return the model's bytes without the separated data, which is then in ``data``.

        Raises:
            _Unusual: the model has no graph or several, or a field is encoded unusually.
        """
        pieces, graphs = list[bytes](), 0
        for entry in self.fields(0, self.size):
            if (entry.number, entry.kind) == (_GRAPH, _LENGTH):
                graphs += 1  # ONNX's parser would merge several: tensors get other numbers
                pieces += self.message(entry, self.graph(entry))
            else:
                pieces.append(self.read(entry.begin, entry.end))
        if graphs != 1:
            raise _Unusual
        return b"".join(pieces)

    def graph(self, graph: _Field) -> Iterator[bytes]:
        """Yield the bytes of a graph without the data that is separated from it."""
        counts, begin = {_NODE: 0, _INITIALIZER: 0}, graph.content
        for entry in self.fields(graph.content, graph.end):
            if entry.kind != _LENGTH or entry.number not in counts:
                continue
            place = counts[entry.number]
            counts[entry.number] += 1
            if entry.end - entry.content < MIN_SEPARATE_BYTES or not self.is_data(entry):
                continue
            if (split := self.without(entry, _RAW_DATA[entry.number])) is not None:
                content, raw = split
                place = of_node(place) if entry.number == _NODE else place
                self.data[place] = self.data_at(raw.content, raw.end)
                yield self.read(begin, entry.begin)
                yield from content
                begin = entry.end
        yield self.read(begin, graph.end)

    def is_data(self, entry: _Field) -> bool:
        """Return whether ``entry``, the field of an initializer or a node, may hold a weight.

        True for every initializer, and for a node whose operator is ``Constant``.
        """
        if entry.number == _INITIALIZER:
            return True
        return any(
            inside.number == _OP_TYPE and self.read(inside.content, inside.end) == _CONSTANT
            for inside in self.fields(entry.content, entry.end)
            if inside.end - inside.content == len(_CONSTANT)
        )

    def without(self, entry: _Field, way: Sequence[int]) -> tuple[list[bytes], _Field] | None:
        """Return (pieces, field): the bytes of ``entry`` without raw data, and the field of that
        raw data.

        The bytes of ``entry`` are the concatenation of ``pieces``. The result is None if the raw
        data has fewer than MIN_SEPARATE_BYTES bytes or is absent, or if a field that leads to it is
        there several times.

        Args:
            entry: the field of an initializer or a node.
            way: numbers of the nested fields from ``entry`` to the raw data: the outermost field
                first, that of the raw data last.

        Raises:
            _Unusual: a tensor has several fields of raw data.
        """
        [number, *further] = way
        inside = self.fields(entry.content, entry.end)
        matching = [each for each in inside if (each.number, each.kind) == (number, _LENGTH)]
        if len(matching) > 1 and not further:
            raise _Unusual
        if len(matching) != 1:
            return None
        [only] = matching
        content: list[bytes] = []
        if further:
            if (deeper := self.without(only, further)) is None:
                return None
            content, raw = deeper
        elif only.end - only.content < MIN_SEPARATE_BYTES:
            return None
        else:
            raw = only
        pieces = self.read(entry.content, only.begin), *content, self.read(only.end, entry.end)
        return self.message(entry, pieces), raw

    def message(self, entry: _Field, content: Iterator[bytes] | tuple[bytes, ...]) -> list[bytes]:
        """Return the encoding of a field with the number of ``entry`` and the given content, in
        pieces.
        """
        inside = b"".join(content)
        return [_varint(entry.number << 3 | _LENGTH), _varint(len(inside)), inside]

    def fields(self, begin: int, end: int) -> Iterator[_Field]:
        """Yield the fields of the message between two offsets.

        Raises:
            _Unusual: a field ends after the message does, or is encoded unusually; or the model has
                more than MAX_FIELDS fields.
        """
        while begin < end:
            key, content = self.number(begin, end)
            kind, stop = key & 7, content
            if kind == _VARINT:
                _, stop = self.number(content, end)
            elif kind == _LENGTH:
                length, content = self.number(content, end)
                stop = content + length
            elif kind in _FIXED:
                stop += _FIXED[kind]
            else:
                raise _Unusual
            self.seen += 1
            if not 8 <= key < 1 << 32 or stop > end or self.seen > MAX_FIELDS:
                raise _Unusual
            yield _Field(key >> 3, kind, begin, content, stop)
            begin = stop

    def number(self, begin: int, end: int) -> tuple[int, int]:
        """Return the number that is encoded at offset ``begin``, and the offset at which it ends.

        Raises:
            _Unusual: the number does not end before offset ``end``, or is too long.
        """
        number = 0
        for place, byte in enumerate(self.read(begin, min(begin + _MAX_VARINT_BYTES, end))):
            number |= (byte & 0x7F) << 7 * place
            if byte < 0x80:
                return number, begin + place + 1
        raise _Unusual

    def read(self, begin: int, end: int) -> bytes:
        """Return the model's bytes from offset ``begin`` to ``end``.

        A longer chunk is read from the file and kept, so that later calls find their bytes in it.
        """
        if not self.at <= begin <= end <= self.at + len(self.chunk):
            self.at = begin
            self.chunk = self.array(begin, min(max(end, begin + _CHUNK_BYTES), self.size)).tobytes()
        return self.chunk[begin - self.at : end - self.at]

    def data_at(self, begin: int, end: int) -> Data:
        """Return the raw data from offset ``begin`` to ``end``.

        If it is large and the file can be reopened, it is not read now; the result reads it on
        demand.
        """
        nbytes = end - begin
        read = None if self.reopen is None else self.reopen(begin, nbytes)
        later = read is not None and nbytes >= LATER
        return Data(None if later else self.array(begin, end), nbytes, read)

    def array(self, begin: int, end: int) -> Bytes:
        """Return the model's bytes from offset ``begin`` to ``end`` in new memory.

        Raises:
            _Unusual: the model has fewer bytes.
        """
        copy = lasting(end - begin)
        if not self.fill(begin, copy):
            raise _Unusual
        copy.flags.writeable = False
        return copy


def _varint(number: int) -> bytes:
    """Return a number as protocol buffers encode it."""
    encoded = bytearray()
    while number >= 0x80:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*encoded, number])
