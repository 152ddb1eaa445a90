"""Aliasing: slices and concatenations that copy nothing.

- A slice whose elements are contiguous in its input's memory is read in place.
- If each input of a concatenation is contiguous in the output's memory, the inputs are made in
  place.
- If the inputs are adjacent already, in the output of a later concatenation, the output is read in
  place.

Operators declare that they cut (a slice) or join (a concatenation) by the trait ``Structural``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import accumulate
from math import prod
from typing import TYPE_CHECKING, Any

from ptensor.buffer import ALIGNMENT, TensorStorage
from vtensor.language.operators import info_of
from vtensor.language.records import dataclass

if TYPE_CHECKING:
    from vtensor.runtime.execution.steps import RecordedStep

#: A tensor, and the index of its first element in another tensor, by dim.
Located = tuple[TensorStorage, Mapping[str, int]]


@dataclass(frozen=True)
class Division:
    """A recorded slice or concatenation: a whole value, and the parts of which it consists or that
    are cut out of it.

    Attributes:
        whole: the input of a slice, or the output of a concatenation.
        parts: (part, byte offset of the part in the memory of ``whole``) for each part. The part of
            a slice is its output; the parts of a concatenation are its inputs with elements.
        joins: True for a concatenation, False for a slice.
        steps: the steps that copy the elements. They are not needed if the parts are placed in the
            whole's memory.
    """

    whole: TensorStorage
    parts: Sequence[tuple[TensorStorage, int]]
    joins: bool
    steps: Sequence[RecordedStep]


def division(
    op: object,
    inputs: Sequence[TensorStorage],
    output: TensorStorage,
    steps: Sequence[RecordedStep],
) -> Division | None:
    """Return the division that an operator makes: the whole value of a slice or concatenation, and
    its parts.

    Returns None if the operator is neither. Returns None, too, if a part is not contiguous and
    aligned in the memory of the whole.

    Args:
        op: any operator.
        inputs, output: the operator's operands in their layouts.
        steps: the recorded steps of the operator's call.
    """
    kind = info_of(op).structural
    if kind not in ("slice", "concat"):
        return None
    joins = kind == "concat"
    whole, rows = (
        (output, _joined(op, inputs)) if joins else (inputs[0], _cut(op, inputs[0], output))
    )
    parts = [(part, _begin(whole, part, at)) for part, at in rows if part.nbytes]
    known = [(part, begin) for part, begin in parts if begin is not None and not begin % ALIGNMENT]
    return Division(whole, known, joins, steps) if known and len(known) == len(parts) else None


def _joined(op: Any, inputs: Sequence[TensorStorage]) -> Iterator[Located]:
    """Yield (input, index) for each input of the concatenation ``op``. The index, by dim, is where
    the input begins in the output.
    """
    ends = accumulate((part_in.extents[op.axis] for part_in in inputs), initial=0)
    for part, begin in zip(inputs, ends, strict=False):
        yield part, {op.axis: begin}


def _cut(op: Any, x: TensorStorage, y: TensorStorage) -> Iterator[Located]:
    """Yield (``y``, index) for the output ``y`` of the slice ``op``. The index, by dim, is where
    ``y`` begins in the input ``x``.

    Yield nothing if a stride of the slice is not 1.
    """
    if all(step == 1 for step in op.steps):
        rows = zip(op.axes, op.starts, strict=True)
        yield y, {dim: _first(start, x.extents[dim]) for dim, start in rows}


def _first(start: int | None, size: int) -> int:
    """Return the index, from 0 to ``size``, at which a slice begins along an axis.

    Args:
        start: the operator's start; None is 0, and a negative one counts from the end.
        size: the size of the axis.
    """
    if start is None:
        return 0
    return min(start, size) if start >= 0 else max(start + size, 0)


def _begin(whole: TensorStorage, part: TensorStorage, at: Mapping[str, int]) -> int | None:
    """Return the byte offset of a part in the memory of the whole; None if the part is not
    contiguous there.

    A part is contiguous if there is an axis such that the part has a single index along each axis
    before it, and all indices along each axis after it. The part must not cut a block: along a dim
    with blocks it begins where a block begins, and it ends where a block or the whole ends.

    Args:
        whole, part: a value and a part of it.
        at: the index in the whole, by dim, at which the part begins.
    """
    layout, stored = whole.layout, whole.layout.stored(whole.dtype)
    if part.dtype != whole.dtype or not stored.simple:
        return None
    whole_sizes, sizes = (layout.physical_shape(storage.extents) for storage in (whole, part))
    last = max((axis for axis, size in enumerate(sizes) if size != whole_sizes[axis]), default=0)
    if prod(sizes[:last]) != 1 or not part.layout.same(layout, part.extents):
        return None
    for dim, begin in at.items():
        block, end = layout.block(dim), begin + part.extents[dim]
        if begin % block or (end % block and end != whole.extents[dim]):
            return None
    return stored.nbytes(layout.offset({**dict.fromkeys(whole.extents, 0), **at}, whole.extents))


def uncopied(
    steps: Sequence[RecordedStep],
    divisions: Sequence[Division],
    lasting: Collection[TensorStorage],
) -> list[RecordedStep]:
    """Place the parts of slices and concatenations in the memory of their wholes where possible.

    Returns the steps that are still needed. The last concatenation is placed first, since earlier
    ones often join the same values.

    Args:
        steps: the steps of a plan, in running order.
        divisions: the slices and concatenations among the steps, in the same order.
        lasting: the storages whose memory each run binds: those of the plan's inputs and outputs.
    """
    idle: set[RecordedStep] = set()
    for divided in reversed([divided for divided in divisions if divided.joins]):
        if _alias_adjacent_parts(divided, lasting) or _make_parts_in_place(divided, lasting):
            idle.update(divided.steps)
    for divided in divisions:
        if not divided.joins and _read_part_in_place(divided, lasting):
            idle.update(divided.steps)
    return [step for step in steps if step not in idle]


def _alias_adjacent_parts(divided: Division, lasting: Collection[TensorStorage]) -> bool:
    """Place a concatenation's output where its inputs already are, if these are adjacent in one
    memory. Return True.

    Returns False, and does nothing, if the inputs are not adjacent. The same holds if the output is
    in ``lasting`` or shares the memory of another value.
    """
    first, _ = divided.parts[0]
    if divided.whole in lasting or divided.whole.root is not divided.whole:
        return False
    for part, begin in divided.parts:
        if part.root is not first.root or part.begin != first.begin + begin:
            return False
    divided.whole.lie_in(first.root, first.begin)
    return True


def _make_parts_in_place(divided: Division, lasting: Collection[TensorStorage]) -> bool:
    """Place each input of a concatenation in the output's memory. Return True.

    Returns False, and does nothing, if two inputs, or an input and the output, share memory; or if
    the memory of an input is bound, is in ``lasting`` or is larger than the input.
    """
    roots = [part.root for part, _ in divided.parts]
    if len(set(roots)) < len(roots) or divided.whole in roots:
        return False
    for root, (part, _) in zip(roots, divided.parts, strict=True):
        if root in lasting or root.bound or root.nbytes != part.nbytes:
            return False
    for root, (_, begin) in zip(roots, divided.parts, strict=True):
        root.lie_in(divided.whole, begin)
    return True


def _read_part_in_place(divided: Division, lasting: Collection[TensorStorage]) -> bool:
    """Place the output of a slice in its input's memory. Return True.

    Returns False, and does nothing, if the output shares the memory of another value or is in
    ``lasting``.
    """
    [(part, begin)] = divided.parts
    if part in lasting or part.root is not part:
        return False
    part.lie_in(divided.whole, begin)
    return True
