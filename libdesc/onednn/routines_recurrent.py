"""Recurrent networks: a cell is applied to one element of a sequence after another."""

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

#: For each operand: (argument, dims), oneDNN's name of the argument, and the operand's dims in
#: oneDNN's order. In oneDNN, the dims "dir unit" of y are one dim.
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
#: The arguments that are weights.
_WEIGHTS = ("weights_layer", "weights_iter")
#: The smallest batch size for which weights in the layout that oneDNN prefers are faster than
#: weights in a plain layout.
_MIN_BATCH = 4


class Recurrent(OneDnnRoutine):
    """A recurrent network over whole sequences.

    Args:
        kind: oneDNN's name of the cell: ``vanilla_rnn``, ``lstm``, ``gru`` or ``lbr_gru``.
        direction: ``forward``, ``reverse`` or ``bidirectional``.
        inputs: x, with the dims T N F; the weights of x, with the dims dir, gate, unit and F; and
            the weights of the state, with the dims dir, gate, unit and state.
        more: the optional inputs that are given, by name: ``bias``, ``peepholes``, ``hidden``,
            ``cell``. ``lengths`` may be among them, but is not read.
        outputs: y, with the dims T, dir, N and unit; and the last states, each with the dims dir, N
            and unit.
        function: oneDNN's name and alpha of the activation of ``vanilla_rnn``.
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
        self.wide = inputs[0].size("N") >= _MIN_BATCH

    def rows(self) -> Iterator[Row]:
        """Yield two rows of layouts to try: one in which oneDNN chooses the layouts of weights, and
        one in which these are plain.

        For small batches the row with plain weights comes first.
        """
        yield from (self._row(free) for free in ((True, False) if self.wide else (False, True)))

    def _row(self, free: bool) -> Row:
        return [
            Layout.ANY
            if free and operand.argument in _WEIGHTS
            else Layout.plain(filter(None, operand.order))
            for operand in self.operands
        ]

    def layouts(self, primitive: Primitive) -> list[Layout]:
        """Return a layout per operand: for weights the layout that the primitive needs, for others
        the plain one.
        """
        weights = {
            operand.argument: operand for operand in self.operands if operand.argument in _WEIGHTS
        }
        chosen = dict(zip(weights, layouts_of(primitive, [*weights.values()]), strict=True))
        fixed = zip(self.operands, self._row(False), strict=True)
        return [chosen.get(operand.argument, layout) for operand, layout in fixed]

    def primitive(self, row: Row) -> Primitive:
        """Return the primitive for a layout per operand. All operands but weights must have plain
        layouts.

        Raises:
            LayoutNotSupported: oneDNN has no descriptor of a layout.
            Decline: oneDNN has no kernel, or another operand than weights is not plain.
        """
        for operand, layout, fixed in zip(self.operands, row, self._row(False), strict=True):
            sizes, dtype = operand.tensor.dims, operand.tensor.dtype
            if operand.argument not in _WEIGHTS and not layout.same(fixed, sizes, dtype):
                raise Decline(f"a recurrent network takes {fixed}, not {layout}")
        return self.build(self.operands, self._ordered(row), self.make)

    def _ordered(self, row: Row) -> Row:
        """Return ``row`` with the plain layout of ``_row`` for each operand that is no weights.

        The given layout of such an operand may have dims of size 1 in another position.
        """
        rows = zip(self.operands, row, self._row(False), strict=True)
        return [
            layout if operand.argument in _WEIGHTS else fixed for operand, layout, fixed in rows
        ]

    def make(self, *descs: Desc) -> Primitive:
        """Return the recurrent primitive for a descriptor per operand."""
        by_argument = {
            operand.argument: desc for operand, desc in zip(self.operands, descs, strict=True)
        }
        by_argument.pop("", None)
        times, batch, *states = by_argument["dst_layer"].dims
        by_argument["dst_layer"] = by_argument["dst_layer"].reshape(
            [times, batch, states[0] * states[1]]
        )
        function, alpha = self.function
        primitive: Primitive = dnnl.recurrent(
            self.kind, self.direction, **by_argument, activation=function, alpha=alpha
        )
        return primitive


def _order(dims: str) -> tuple[str, ...]:
    """Return the names in the text ``dims``. In front of "dir" there is "" as well: oneDNN's dim of
    layers, of size 1.
    """
    order = tuple(dims.split())
    return ("", *order) if order[0] == "dir" else order
