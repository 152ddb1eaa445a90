"""The handlers of Eigen's description. Importing them loads nothing native."""

from __future__ import annotations

from collections.abc import Sequence

from libdesc.eigen import native
from libdesc.eigen.kernels import ITEMSIZES, copy
from libdesc.eigen.memory import changes, too_many
from libdesc.schema import Speed
from libdesc.transforms import LayoutChange
from ptensor.evaluation import Call
from ptensor.layout import Layout
from ptensor.tensor import PTensor


def available() -> str | None:
    """Return None if Eigen's kernels can be used in this process, else the reason why not."""
    return native.unavailable()


def limit_isa(cap: str) -> None:
    """Cap the instruction set; see ``Levels.limit``."""
    native.limit(cap)


def speeds() -> dict[str, Speed]:
    """Return how fast reductions and products are in narrow floats, which are converted one by
    one.
    """
    return {"f16": Speed(products=0.2, nbytes=0.1), "bf16": Speed(products=0.2, nbytes=0.07)}


def confirm(call: Call, row: Sequence[Layout]) -> str | None:
    """Return None if the library takes a call in these layouts, else the reason why not.

    A Transform is taken if ``reorder`` can run it; of any other call, the routine decides.

    Args:
        call: the call.
        row: a layout per operand of the call.
    """
    if not isinstance(call.op, LayoutChange):
        return call.routine.confirm(call, row) if call.routine else None
    source, target = (layout.stored(t.dtype) for layout, t in zip(row, call.operands, strict=True))
    if source != target:
        return f"moves elements without conversion, not {source} to {target}"
    if source.tile:
        return f"moves elements without a transform, not those of {source}"
    if source.rest is not None or isinstance(source.zero, tuple) or source.zero:
        return f"moves one plane whose pads are 0, not {source}"
    if source.itemsize not in ITEMSIZES:
        return f"{source} takes {source.itemsize} bytes, not {', '.join(map(str, ITEMSIZES))}"
    if too_many(row[0], row[1], call.operands[0].dims):
        return f"the blocks of {row[0]} and {row[1]} share too few boundaries"
    return None


def reorder(source: PTensor, target: PTensor, permutation: tuple[int, ...]) -> None:  # noqa: ARG001
    """Emit one copy from source to target by their layouts; ``permutation`` is not used."""
    copy([source], target, changes(source, target))
