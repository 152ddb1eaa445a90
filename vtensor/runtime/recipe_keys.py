"""Keys of recipes: all that the recording of a call depends on.

That is the operator, what is fused behind it, the variant, and of each operand its element type,
dims, layout, and whether it is constant. Names of dims that were made up for a network, such as
``D12``, say nothing: calls that differ in these alone have one key. Layers of a network, which are
equal but for such names, so have recipes in common.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Hashable, Iterator, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from libdesc.registry import ready
from ptensor.buffer import TensorStorage
from ptensor.evaluation import Variant
from ptensor.layout import Layout
from resolver.lowered import OpNode, Value
from vtensor.language.exact import exact
from vtensor.language.tensor import Option, VTensor

#: A name that a dim gets where the network has none for it.
MADE_UP = re.compile(r"D\d+")


class Operand(NamedTuple):
    """A value as a call takes or makes it: what it is, how it lies, and its memory, if it has it.

    ``known`` is true of constants.
    """

    value: Value
    layout: Layout
    known: bool = False
    storage: TensorStorage | None = None

    def tensor(self, storage: TensorStorage) -> VTensor:
        """The operand with its own storage, or one that stands for that."""
        tensor = VTensor(self.value.dtype, self.value.dims, Option(name=self.value.name))
        tensor.storage = storage
        return tensor


class Key:
    """A key, which is hashed once.

    Attributes:
        parts: what is compared; None where a parameter can be in no key.
        names: those in it that were made up, in the order in which they come; not compared.
    """

    __slots__ = ("_hash", "names", "parts")

    def __init__(self, parts: Hashable, names: tuple[str, ...]) -> None:
        try:
            self._hash = hash(parts)
        except TypeError:
            parts, self._hash = None, 0
        self.parts, self.names = parts, names

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Key) and self._hash == other._hash and self.parts == other.parts


class Names(dict[str, Hashable]):
    """What stands for texts in a key: a made-up name's place among them, any other text itself.

    Args:
        literal: made-up names stay, too.

    Attributes:
        literal: they have to, since one is a part of a text.
    """

    def __init__(self, literal: bool = False) -> None:
        super().__init__()
        self.literal = literal
        self.made_up: list[str] = []

    def __missing__(self, text: str) -> Hashable:
        stands: Hashable = text
        if not self.literal and (parts := _made_up(text)):
            if parts == WHOLE:
                stands = b"%d" % len(self.made_up)  # no number of the call, and no text
                self.made_up.append(text)
            else:
                self.literal = True
        self[text] = stands
        return stands

    def kind(self, operand: Operand) -> tuple[Hashable, ...]:
        """Of an operand: its type, its dims, and how it lies by their places."""
        dims = operand.value.dims
        own = tuple(dims)
        axes, encoding, named = _axes(operand.layout, own)
        self.literal |= named
        places = tuple(map(self.__getitem__, own))
        return operand.value.dtype, places, tuple(dims.values()), axes, encoding, operand.known

    def of(self, value: object) -> Hashable:
        """Of a parameter, or an operator with its parameters; as ``exact`` but for names."""
        kind: Any = type(value)
        if isinstance(value, str) and kind is str:
            return self[value]
        if kind in _PLAIN:
            return kind, value
        if isinstance(value, tuple):
            return kind, self._row(value)
        if (fields := _fields(kind)) is not None:
            return kind, self._row([getattr(value, name) for name in fields])
        if kind is not float:
            self.literal = True  # there may be names in it
        return exact(value)

    def _row(self, values: Sequence[object]) -> Hashable:
        types = tuple(map(type, values))
        return (types, *values) if _PLAIN.issuperset(types) else tuple(map(self.of, values))


#: Types of parameters that ``==`` tells apart where they are of one type.
_PLAIN = frozenset({int, bool, type(None)})


#: What there is of made-up names in a text: nothing, a part of it, all of it.
NONE, PART, WHOLE = range(3)


@lru_cache(maxsize=4096)
def _made_up(text: str) -> int:
    found = MADE_UP.search(text)
    return NONE if found is None else WHOLE if found[0] == text else PART


@lru_cache(maxsize=1024)
def _fields(kind: Any) -> tuple[str, ...] | None:
    known = getattr(kind, "__dataclass_fields__", None)
    return None if known is None else tuple(field.name for field in dataclasses.fields(kind))


@lru_cache(maxsize=4096)
def _axes(layout: Layout, dims: tuple[str, ...]) -> tuple[Hashable, Hashable, bool]:
    """Dim by place and block of each axis; the encoding, and whether made-up names are in it."""
    axes = tuple((dims.index(axis.dim), axis.block) for axis in layout.axes)
    encoding = layout.encoding
    return axes, encoding, MADE_UP.search(str(encoding)) is not None


class Keys:
    """Makes the keys of one plan's calls.

    Args:
        threads: for how many kernels are made.
        confirming, inexact: as for ``RecordEvaluation``.

    Attributes:
        plan: the part that all of them share.
    """

    def __init__(self, threads: int, confirming: bool, inexact: bool) -> None:
        self.plan = threads, confirming, inexact, ready().version

    def operator(self, node: OpNode, operands: Sequence[Operand]) -> Key:
        """The key of a node; its operands are those that it makes, too."""
        way, names = _way(node.variant), Names()
        kinds, ops = self._parts(node, operands, names)
        if names.literal:
            names = Names(literal=True)
            kinds, ops = self._parts(node, operands, names)
        return Key((self.plan, way, kinds, ops), tuple(names.made_up))

    def transform(self, library: str, source: Operand, target: Operand) -> Key:
        """The key of a Transform."""
        names = Names()
        kinds = names.kind(source), names.kind(target)
        if names.literal:
            names = Names(literal=True)
            kinds = names.kind(source), names.kind(target)
        return Key((self.plan, library, kinds), tuple(names.made_up))

    @staticmethod
    def _parts(
        node: OpNode, operands: Sequence[Operand], names: Names
    ) -> tuple[Hashable, Hashable]:
        kinds = tuple([names.kind(one) for one in operands])
        return kinds, (names.of(node.op), *_behind(node, names))


def _way(variant: Variant) -> Hashable:
    """Of a variant what is not said of its operands."""
    device = variant.forms[0].device  # of all
    return variant.library, device, variant.kernel, variant.reference, variant.inexact


def _behind(node: OpNode, names: Names) -> Iterator[Hashable]:
    """What is fused behind a node, and which inputs of that are the value that it follows."""
    value = node.value
    for one in node.followers:
        yield names.of(one.op), tuple([name == value for name in one.inputs])
        value = one.outputs[0]
