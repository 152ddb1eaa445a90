"""What all routines of oneDNN share: descriptors of their operands, kernels, and the step.

A routine asks oneDNN for primitive *descriptors* as often as it likes: they are cheap and cached. A
kernel is compiled only when the step of a decided call is taken.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from libdesc.onednn.layouts import Order, from_desc, to_desc
from libdesc.onednn.native import dnnl
from libdesc.routine import Routine, Wanted, reference_kernel
from ptensor.evaluation import Call, Decline, Variant, emit, forms_on
from ptensor.layout import Layout
from ptensor.tensor import PTensor
from ptensor.views import from_base, produced, to_base
from vtensor.errors import LayoutError
from vtensor.language.operators import Follower
from vtensor.language.tensor import VTensor

if TYPE_CHECKING:
    from libdesc.onednn._onednn import Primitive

Row = Sequence[Layout]


#: How many kernels of one request are worth measuring; later ones are for lesser instruction sets.
KERNELS = 3


class Operand(NamedTuple):
    """An operand of the call as an argument of a primitive.

    ``order`` names the dims as oneDNN numbers them; "" is one of size 1 that the tensor lacks.
    """

    argument: str
    tensor: VTensor
    order: Order


class OneDnnRoutine(Routine):
    """One primitive on its operands; the families below say which.

    Args:
        operands: every operand of the call, each once.
        wants, follow: as Routine.

    Raises:
        Decline: oneDNN does not run the call at all.
    """

    #: Gives the primitive on a descriptor an operand, in the order of ``operands``.
    make: Callable[..., Primitive]
    #: The call was decided before, here or for other sizes: it is no more compared with others.
    decided = False
    #: The layouts that are asked for are those that oneDNN has chosen for this very call.
    answered = False

    def __init__(
        self,
        operands: Sequence[Operand],
        wants: Sequence[Wanted] = (),
        follow: Sequence[Follower] = (),
    ) -> None:
        super().__init__([operand.tensor for operand in operands], wants, follow)
        self.operands = tuple(operands)
        self._chosen: tuple[Row, Primitive] | None = None
        self._answer: Row | None = None
        if any(tensor.num_elements == 0 for tensor in self.tensors):
            raise Decline("an operand has no elements")

    @property
    def family(self) -> str:
        """What the primitive is called in messages."""
        return type(self).__name__

    def rows(self) -> Iterator[Row]:
        """Rows of layouts to ask for, the best first; ANY leaves an operand to oneDNN."""
        yield [Layout.ANY] * len(self.operands)

    def preferred(self, call: Call) -> Mapping[int, Layout | Sequence[Layout]]:
        """The layouts of the first row for which oneDNN has more than a reference kernel.

        Raises:
            Decline: it takes none of the rows.
        """
        found: Primitive | None = None
        reasons: list[str] = []
        for row in self.rows():
            try:
                primitive = self.primitive(row)
                layouts = self.taken(primitive, row)
            except (LayoutError, Decline) as why:
                reasons.append(str(why))
                continue
            if found is None or not is_reference(primitive):
                found, answer = primitive, layouts
            if not is_reference(primitive):
                break
        if found is None:
            raise Decline("; ".join(dict.fromkeys(reasons)))
        self._answer = answer
        return {
            call.index(tensor): to_base(layout, tensor)
            for tensor, layout in zip(self.tensors, answer, strict=True)
        }

    def confirm(self, call: Call, row: Row) -> str | None:
        """None when oneDNN takes these layouts; a reference kernel only if there is no better."""
        try:
            own = [from_base(row[call.index(tensor)], tensor) for tensor in self.tensors]
            self.answered = own == self._answer
            kernel = self.chosen(own, call)
            self._chosen, self.answered = (own, kernel), False
        except (LayoutError, Decline) as why:
            return str(why)
        self.reference = is_reference(kernel)
        if not self.reference:
            return None
        for other in self.alternative_rows(own):
            try:
                alternative = self.primitive(other)
            except (LayoutError, Decline):
                continue
            if not is_reference(alternative):
                spelled = " ".join(str(layout) for layout in other)
                return f"only the kernel {kernel.kernel}, where {spelled} has {alternative.kernel}"
        return None

    def alternative_rows(self, row: Row) -> Iterator[Row]:
        """Rows that confirm compares a reference kernel with: everything in declared order."""
        declared = [Layout.plain(operand.tensor.dims) for operand in self.operands]
        if declared != list(row):
            yield declared

    def variants(self, call: Call) -> Iterator[Variant]:
        """Every kernel for each row that is worth asking for, in the layouts that it works in.

        None where the routine names the layouts itself.
        """
        if None not in self.wants:
            return
        known: set[Variant] = set()
        for row in self.tried_rows():
            for kernel in self.kernels(row):
                with suppress(LayoutError):
                    variant = self._variant(call, self.taken(kernel, row), word_of(kernel))
                    if variant not in known:
                        known.add(variant)
                        yield variant

    def tried_rows(self) -> Iterator[Row]:
        """Rows of layouts whose kernels are worth measuring."""
        yield from self.rows()

    def _variant(self, call: Call, layouts: Row, word: str) -> Variant:
        row = [Layout.ANY] * len(call.operands)
        for tensor, layout in zip(self.tensors, layouts, strict=True):
            row[call.index(tensor)] = to_base(layout, tensor)
        return Variant(call.library, forms_on(call.device, row), kernel=word)

    def kernels(self, row: Row) -> Iterator[Primitive]:
        """oneDNN's kernels for a row, its favourite first, reference code left out."""
        yield from compiled(lambda: self.primitive(row))

    def chosen(self, row: Row, call: Call) -> Primitive:
        """The kernel that measuring has chosen, else oneDNN's favourite.

        Raises:
            LayoutNotSupported, Decline: as ``primitive``; or there is no such kernel any more.
        """
        self.decided = call.evaluation.confirming or not call.partial
        word = call.variant.kernel if call.variant else ""
        if not word:
            return self.primitive(row)
        for kernel in self.kernels(row):
            if word_of(kernel) == word:
                return kernel
        raise Decline(f"no kernel {word} for {' '.join(str(layout) for layout in row)}")

    def primitive(self, row: Row) -> Primitive:
        """The primitive for one layout an operand, each under the dims that the routine sees.

        Raises:
            LayoutNotSupported: oneDNN has no word for one of them.
            Decline: it has no kernel for them.
        """
        return self.build(self.operands, row, self.make)

    def build(
        self, operands: Sequence[Operand], row: Row, make: Callable[..., Primitive]
    ) -> Primitive:
        """A primitive on descriptors of these operands in these layouts; errors as above."""
        try:
            descs = [
                to_desc(layout, operand.order, operand.tensor.dims, operand.tensor.dtype)
                for operand, layout in zip(operands, row, strict=True)
            ]
            return make(*descs)
        except dnnl.Unimplemented:
            types = "/".join(dict.fromkeys(operand.tensor.dtype for operand in operands))
            spelled = " ".join(str(layout) for layout in row)
            raise Decline(
                f"no {self.family} kernel for {types} on {dnnl.isa()}, {spelled}"
            ) from None
        except ValueError as error:
            raise Decline(f"{self.family}: {error}") from None

    def layouts(self, primitive: Primitive) -> list[Layout]:
        """The layouts that a primitive works in, one an operand.

        Raises:
            LayoutNotSupported: one of them is opaque.
        """
        return layouts_of(primitive, self.operands)

    def taken(self, primitive: Primitive, row: Row) -> list[Layout]:  # noqa: ARG002
        """The same, of a primitive that was asked for with a row."""
        return self.layouts(primitive)

    def __call__(self, *tensors: PTensor) -> None:
        """Make the call: one step on the operands, and on scratch memory where it needs some."""
        row = [tensor.required_layout for tensor in tensors]
        if self._chosen is None or self._chosen[0] != row:
            self._chosen = row, self.chosen(row, tensors[0].call)
        emit_on(self._chosen[1], self.arguments(tensors))

    def arguments(self, tensors: Sequence[PTensor]) -> dict[str, PTensor]:
        """The operands by argument."""
        rows = zip(self.operands, tensors, strict=True)
        return {operand.argument: tensor for operand, tensor in rows}


class FollowingRoutine(OneDnnRoutine):
    """A primitive that works in whatever order its input lies, if it has a kernel for it."""

    def rows(self) -> Iterator[Row]:
        """The layout in which the first input lies; then orders that kernels are written for."""
        for layout in followed(self.operands[0]):
            yield self.row(layout)

    def row(self, layout: Layout) -> Row:
        """The first input in a layout, the others left to oneDNN."""
        return [layout, *[Layout.ANY] * (len(self.operands) - 1)]


def followed(lead: Operand) -> Iterator[Layout]:
    """Layouts to try for an operand: its own, as declared, channels last, blocked channels."""
    own = produced(lead.tensor)
    usual = _usual(tuple(lead.tensor.dims), tuple(lead.order))
    if own is not None and not own.is_any:
        yield own
    yield from (layout for layout in usual if layout != own)


@lru_cache(maxsize=1024)
def _usual(dims: tuple[str, ...], order: Order) -> tuple[Layout, ...]:
    named = [dim for dim in order if dim]
    layouts = [Layout.plain(dims), Layout.plain(named)]
    if "C" in dims and len(dims) > 2:
        layouts.append(Layout.plain([*(dim for dim in named if dim != "C"), "C"]))
        axes = Layout.plain(named).axes
        layouts += [Layout.of_axes([*axes, ("C", block)]) for block in (16, 8)]
    return tuple(dict.fromkeys(layouts))


def layouts_of(primitive: Primitive, operands: Sequence[Operand]) -> list[Layout]:
    """Return the layouts of a primitive's arguments, one per operand."""
    descs = primitive.descs  # a new dictionary at each access
    return [
        from_desc(descs[operand.argument], operand.order, operand.tensor.dtype)
        for operand in operands
    ]


def emit_on(primitive: Primitive, tensors: Mapping[str, PTensor]) -> None:
    """A step on tensors by argument; what is not among them is scratch memory."""
    emit(primitive, [tensors.get(name, primitive.scratch_bytes) for name in primitive.slots])


def within(order: Order, dims: Mapping[str, int]) -> Order:
    """A numbering of all dims, as an operand sees it that lacks some of them."""
    return tuple(dim if dim in dims else "" for dim in order)


def compiled(make: Callable[[], Primitive]) -> Iterator[Primitive]:
    """A primitive and the kernels next to it, without reference code; none where it declines."""
    with suppress(LayoutError, Decline):
        kernel: Primitive | None = make()
        for _ in range(KERNELS):
            if kernel is None or is_reference(kernel):
                return
            yield kernel
            kernel = kernel.next_kernel()


def word_of(kernel: Primitive) -> str:
    """The word for a kernel in a variant."""
    return f"{kernel.kind} {kernel.kernel}"


def is_reference(primitive: Primitive) -> bool:
    """True for a kernel that is there for completeness, not for speed."""
    return reference_kernel(primitive.kernel)


__all__ = [
    "FollowingRoutine",
    "OneDnnRoutine",
    "Operand",
    "Row",
    "compiled",
    "emit_on",
    "followed",
    "is_reference",
    "layouts_of",
    "within",
]
