"""Weights inside a model's file: each is read by itself, a large one when somebody asks for it.

The file's bytes are walked as protocol buffers encode them, as far as the raw data of initializers
and of ``Constant`` nodes; what is left, which is small, is for ONNX's parser. Wherever something is
odd, that parser gets the whole file instead and says what is wrong: nothing is judged here.

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

#: Puts the bytes from an offset on into an array; False where there are fewer.
Fill = Callable[[int, Bytes], bool]

#: What reads so many bytes from an offset on, at any later time.
Reopen = Callable[[int, int], Stretch]

#: Data of fewer bytes stays where it is.
LEAST = 1 << 12

#: How much is read to look at.
_CHUNK = 1 << 16

#: Fields: of a model its graph, of a graph its nodes and initializers, of a node its operator.
_GRAPH, _NODE, _INITIALIZER, _OP_TYPE = 7, 1, 5, 4

#: The way to raw data, by fields: from an initializer, and from a node by its only attribute.
_RAW_DATA = {_INITIALIZER: (9,), _NODE: (5, 5, 9)}

#: A node's operator, which may have weights.
_CONSTANT = b"Constant"

#: How fields are encoded, and the bytes of those that have always as many.
_VARINT, _LENGTH, _FIXED = 0, 2, {1: 8, 5: 4}

#: The most fields that are looked at: ONNX's parser is faster where there are many small ones.
MOST_FIELDS = 1 << 17

#: The most bytes of a number.
_LONGEST = 10


class Parts(NamedTuple):
    """A model in two parts.

    Attributes:
        rest: its bytes without what is in ``data``: a sound model, too.
        data: raw data of initializers, by their place among them; of ``Constant`` nodes by
            ``of_node`` of theirs.
        size: the bytes of both.
    """

    rest: bytes
    data: dict[int, Data]
    size: int


def of_node(number: int) -> int:
    """What the data of a node is called by, where that of initializers has their places."""
    return -1 - number


class _Odd(Exception):  # it is no error: another parser looks at it
    """This is not what an exporter writes."""


class _Field(NamedTuple):
    """A field: where its key, its content and the next field begin."""

    number: int
    kind: int
    begin: int
    content: int
    end: int


def parts_of_file(file: OpenFile) -> Parts | None:
    """A file in two parts; None where it is for ONNX's parser as a whole."""
    return parts(file.fill, file.size, file.stretch)


def parts_of_bytes(data: bytes) -> Parts:
    """Bytes in two parts; without the second where they are for ONNX's parser as a whole."""
    whole = np.frombuffer(data, np.uint8)

    def fill(offset: int, into: Bytes) -> bool:
        into[:] = whole[offset : offset + into.size]
        return True

    return parts(fill, len(data)) or Parts(data, {}, len(data))


def parts(fill: Fill, size: int, reopen: Reopen | None = None) -> Parts | None:
    """A model in two parts; None where it is for ONNX's parser as a whole, as is one without data.

    Args:
        fill: reads it.
        size: its bytes.
        reopen: what reads bytes of it at any later time; None where that cannot be.
    """
    model = _Model(fill, size, reopen)
    try:
        rest = model.without_data()
    except _Odd:
        return None
    return Parts(rest, model.data, size) if model.data else None


@dataclass(eq=False)
class _Model:
    """A model that is being walked; ``chunk`` is what was read last, from ``at`` on.

    Attributes:
        data: what was taken out so far.
        seen: how many fields were.
    """

    fill: Fill
    size: int
    reopen: Reopen | None
    data: dict[int, Data] = field(default_factory=dict)
    chunk: bytes = b""
    at: int = 0
    seen: int = 0

    def without_data(self) -> bytes:
        """All of it but the data that is taken out."""
        rest, graphs = list[bytes](), 0
        for one in self.fields(0, self.size):
            if (one.number, one.kind) == (_GRAPH, _LENGTH):
                graphs += 1  # of several, what a tensor's place is changes
                rest += self.message(one, self.graph(one))
            else:
                rest.append(self.read(one.begin, one.end))
        if graphs != 1:
            raise _Odd
        return b"".join(rest)

    def graph(self, graph: _Field) -> Iterator[bytes]:
        """A graph's fields, initializers and ``Constant`` nodes without their data."""
        counts, begin = {_NODE: 0, _INITIALIZER: 0}, graph.content
        for one in self.fields(graph.content, graph.end):
            if one.kind != _LENGTH or one.number not in counts:
                continue
            place = counts[one.number]
            counts[one.number] += 1
            if one.end - one.content < LEAST or not self.is_data(one):
                continue
            if (found := self.without(one, _RAW_DATA[one.number])) is not None:
                content, raw = found
                place = of_node(place) if one.number == _NODE else place
                self.data[place] = self.data_at(raw.content, raw.end)
                yield self.read(begin, one.begin)
                yield from content
                begin = one.end
        yield self.read(begin, graph.end)

    def is_data(self, one: _Field) -> bool:
        """Whether it is an initializer, or a node that is one."""
        if one.number == _INITIALIZER:
            return True
        return any(
            inside.number == _OP_TYPE and self.read(inside.content, inside.end) == _CONSTANT
            for inside in self.fields(one.content, one.end)
            if inside.end - inside.content == len(_CONSTANT)
        )

    def without(self, one: _Field, way: Sequence[int]) -> tuple[list[bytes], _Field] | None:
        """A field without the data in it, and that, if there is much of it.

        Args:
            one: the field.
            way: the numbers of the fields in it that lead to the data.
        """
        [number, *further] = way
        inside = self.fields(one.content, one.end)
        found = [each for each in inside if (each.number, each.kind) == (number, _LENGTH)]
        if len(found) > 1 and not further:
            raise _Odd
        if len(found) != 1:
            return None
        [only] = found
        left: list[bytes] = []
        if further:
            if (deeper := self.without(only, further)) is None:
                return None
            left, raw = deeper
        elif only.end - only.content < LEAST:
            return None
        else:
            raw = only
        around = self.read(one.content, only.begin), *left, self.read(only.end, one.end)
        return self.message(one, around), raw

    def message(self, one: _Field, content: Iterator[bytes] | tuple[bytes, ...]) -> list[bytes]:
        """A field with other content."""
        inside = b"".join(content)
        return [_varint(one.number << 3 | _LENGTH), _varint(len(inside)), inside]

    def fields(self, begin: int, end: int) -> Iterator[_Field]:
        """The fields of a message.

        Raises:
            _Odd: one ends beyond it, or is encoded as no exporter does, or there are too many.
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
                raise _Odd
            self.seen += 1
            if not 8 <= key < 1 << 32 or stop > end or self.seen > MOST_FIELDS:
                raise _Odd
            yield _Field(key >> 3, kind, begin, content, stop)
            begin = stop

    def number(self, begin: int, end: int) -> tuple[int, int]:
        """A number, and where it ends."""
        number = 0
        for place, byte in enumerate(self.read(begin, min(begin + _LONGEST, end))):
            number |= (byte & 0x7F) << 7 * place
            if byte < 0x80:
                return number, begin + place + 1
        raise _Odd

    def read(self, begin: int, end: int) -> bytes:
        """Some bytes, by way of a larger chunk."""
        if not self.at <= begin <= end <= self.at + len(self.chunk):
            self.at = begin
            self.chunk = self.array(begin, min(max(end, begin + _CHUNK), self.size)).tobytes()
        return self.chunk[begin - self.at : end - self.at]

    def data_at(self, begin: int, end: int) -> Data:
        """Some bytes that stay, and what reads them; where that can be later, it is."""
        nbytes = end - begin
        read = None if self.reopen is None else self.reopen(begin, nbytes)
        later = read is not None and nbytes >= LATER
        return Data(None if later else self.array(begin, end), nbytes, read)

    def array(self, begin: int, end: int) -> Bytes:
        """Some bytes, in memory of their own."""
        made = lasting(end - begin)
        if not self.fill(begin, made):
            raise _Odd
        made.flags.writeable = False
        return made


def _varint(number: int) -> bytes:
    """A number as it is encoded."""
    made = bytearray()
    while number >= 0x80:
        made.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*made, number])
