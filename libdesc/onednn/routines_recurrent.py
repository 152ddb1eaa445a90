"""Networks that go along a sequence and carry a state."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from libdesc.onednn.native import dnnl
from libdesc.onednn.routines import OneDnnRoutine, Operand, Row, layouts_of
from ptensor.evaluation import Decline
from ptensor.layout import Layout
from vtensor.language.tensor import VTensor

if TYPE_CHECKING:
    from libdesc.onednn._onednn import Desc, Primitive

#: The argument, and its dims as oneDNN numbers them; of y it sees "dir unit" as one dim.
_ARGUMENTS = {
    "x": ("src_layer", "T N F"),
    "w": ("weights_layer", "dir F gate unit"),
    "r": ("weights_iter", "dir state gate unit"),
    "y": ("dst_layer", "T N dir unit"),
    "last hidden": ("dst_iter", "dir N unit"),
    "last cell": ("dst_iter_c", "dir N unit"),
    "bias": ("bias", "dir row unit"),
    "peepholes": ("weights_peephole", "dir peephole unit"),
    "hidden": ("src_iter", "dir N unit"),
    "cell": ("src_iter_c", "dir N unit"),
    "lengths": ("", "N"),
}
_WEIGHTS = ("weights_layer", "weights_iter")
#: The least batch for which weights in the order that oneDNN prefers are faster than plain ones.
_WIDE = 4


class Recurrent(OneDnnRoutine):
    """A recurrent network over whole sequences.

    Args:
        kind: oneDNN's name of the cell.
        direction: ``forward``, ``reverse`` or ``bidirectional``.
        inputs: x, T N F, and the weights of x and of the state, dir gate unit and F or state.
        more: by name, what is given besides: bias, peepholes, hidden, cell; lengths are not read.
        outputs: y, T dir N unit, and the last states, dir N unit.
        function: of a plain cell, oneDNN's name and alpha.
    """

    def __init__(
        self,
        kind: str,
        direction: str,
        inputs: Sequence[VTensor],
        more: Mapping[str, VTensor],
        outputs: Sequence[VTensor],
        function: tuple[str, float],
    ) -> None:
        tensors = dict(zip(("x", "w", "r"), inputs, strict=True)) | dict(more)
        tensors |= dict(zip(("y", "last hidden", "last cell"), outputs, strict=False))
        rows = ((*_ARGUMENTS[name], tensor) for name, tensor in tensors.items())
        super().__init__([Operand(role, tensor, _order(dims)) for role, dims, tensor in rows])
        self.kind, self.direction, self.function = kind, direction, function
        self.wide = inputs[0].size("N") >= _WIDE

    def rows(self) -> Iterator[Row]:
        """Everything in the order of its arguments; weights in oneDNN's own where that pays."""
        yield from (self._row(free) for free in ((True, False) if self.wide else (False, True)))

    def _row(self, free: bool) -> Row:
        return [
            Layout.ANY
            if free and one.argument in _WEIGHTS
            else Layout.plain(filter(None, one.order))
            for one in self.operands
        ]

    def layouts(self, primitive: Primitive) -> list[Layout]:
        """The weights' as oneDNN has chosen, of all others the only one."""
        own = {one.argument: one for one in self.operands if one.argument in _WEIGHTS}
        chosen = dict(zip(own, layouts_of(primitive, [*own.values()]), strict=True))
        fixed = zip(self.operands, self._row(False), strict=True)
        return [chosen.get(one.argument, layout) for one, layout in fixed]

    def primitive(self, row: Row) -> Primitive:
        """The primitive on weights in these layouts; all others lie as oneDNN numbers their dims.

        Raises:
            LayoutNotSupported, Decline: as OneDnnRoutine.
        """
        for one, layout, fixed in zip(self.operands, row, self._row(False), strict=True):
            sizes, dtype = one.tensor.dims, one.tensor.dtype
            if one.argument not in _WEIGHTS and not layout.same(fixed, sizes, dtype):
                raise Decline(f"a recurrent network takes {fixed}, not {layout}")
        return self.build(self.operands, self._ordered(row), self.make)

    def _ordered(self, row: Row) -> Row:
        """The row, what has one layout in that very layout: sizes of 1 may stand elsewhere."""
        rows = zip(self.operands, row, self._row(False), strict=True)
        return [given if one.argument in _WEIGHTS else fixed for one, given, fixed in rows]

    def make(self, *descs: Desc) -> Primitive:
        """The primitive on the operands."""
        given = {one.argument: desc for one, desc in zip(self.operands, descs, strict=True)}
        given.pop("", None)
        times, batch, *rest = given["dst_layer"].dims
        given["dst_layer"] = given["dst_layer"].reshape([times, batch, rest[0] * rest[1]])
        function, alpha = self.function
        primitive: Primitive = dnnl.recurrent(
            self.kind, self.direction, **given, activation=function, alpha=alpha
        )
        return primitive


def _order(dims: str) -> tuple[str, ...]:
    """The dims as oneDNN numbers them; one layer stands in front of what has directions first."""
    order = tuple(dims.split())
    return ("", *order) if order[0] == "dir" else order
