"""Keys of recipes: all that the recording of a call depends on.

That is the operator, what is fused behind it, the variant, and of each operand its element type,
dims, layout, and whether it is constant; made-up names of dims are not in it.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from typing import NamedTuple

from libdesc.registry import ready
from ptensor.buffer import TensorStorage
from ptensor.evaluation import Variant
from ptensor.layout import Layout
from resolver.lowered import OpNode, Value
from resolver.made_up import Names
from vtensor.language.tensor import Option, VTensor


class Operand(NamedTuple):
    """A value as a call takes or makes it: what it is, how it lies, and its memory, if it has it.

    ``known`` is true of constants.
    """

    value: Value
    layout: Layout
    known: bool = False
    storage: TensorStorage | None = None

    def kind(self, names: Names) -> tuple[Hashable, ...]:
        """What a key says of it."""
        return names.kind(self.value.dtype, self.value.dims, self.layout, self.known)

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
        kinds = source.kind(names), target.kind(names)
        if names.literal:
            names = Names(literal=True)
            kinds = source.kind(names), target.kind(names)
        return Key((self.plan, library, kinds), tuple(names.made_up))

    @staticmethod
    def _parts(
        node: OpNode, operands: Sequence[Operand], names: Names
    ) -> tuple[Hashable, Hashable]:
        kinds = tuple([one.kind(names) for one in operands])
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
