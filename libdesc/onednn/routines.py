"""The base classes of oneDNN's routines. A routine makes descriptors of operands, finds kernels,
and emits the step.

A primitive is oneDNN's object for an operation with given descriptors. Routines make many of them,
which is cheap; they are also cached. Its kernel is compiled only when the step of a decided call is
taken.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from libdesc.onednn.layouts import PLANE_FORMS, Order, from_desc, to_desc
from libdesc.onednn.native import dnnl, speeds
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

#: A layout per operand.
Row = Sequence[Layout]

#: How many of oneDNN's kernels are measured at most for a call in given layouts. Later kernels in
#: oneDNN's list are for smaller instruction sets.
MAX_KERNELS = 3


class Operand(NamedTuple):
    """An operand of the call as an argument of a primitive.

    Attributes:
        argument: the primitive's name of the argument.
        tensor: the operand.
        order: the names of the dims as oneDNN numbers them; "" stands for a dim of size 1 that the
            tensor lacks.
    """

    argument: str
    tensor: VTensor
    order: Order


class OneDnnRoutine(Routine):
    """A routine that runs one primitive; each subclass makes another primitive.

    Args:
        operands: every operand of the call, each once.
        wants, follow: see ``Routine``.

    Raises:
        Decline: oneDNN does not run the call, whatever the layouts.
    """

    #: Takes a descriptor per operand, in the order of ``operands``, and returns the primitive.
    make: Callable[..., Primitive]
    #: True if the layouts of the call were decided earlier, for these or for other sizes.
    decided = False
    #: True if the requested layouts are those that ``preferred`` returned for this call.
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
        """The name of the primitive in messages."""
        return type(self).__name__

    def rows(self) -> Iterator[Row]:
        """Yield rows of layouts to try, the best row first. A row has a layout per operand; ANY
        lets oneDNN choose one.
        """
        yield [Layout.ANY] * len(self.operands)

    def preferred(self, call: Call) -> Mapping[int, Layout | Sequence[Layout]]:
        """Return the layouts, by operand index, in which oneDNN works if it is given the best of
        ``rows``.

        The best row is the first one for which there is a kernel that is no reference code, else
        the first one with any kernel.

        Raises:
            Decline: oneDNN has no kernel for any of ``rows``.
        """
        best: Primitive | None = None
        reasons: list[str] = []
        for row in self.rows():
            try:
                primitive = self.primitive(row)
                layouts = self.taken(primitive, row)
            except (LayoutError, Decline) as why:
                reasons.append(str(why))
                continue
            if best is None or not is_reference(primitive):
                best, answer = primitive, layouts
            if not is_reference(primitive):
                break
        if best is None:
            raise Decline("; ".join(dict.fromkeys(reasons)))
        self._answer = answer
        return {
            call.index(tensor): to_base(layout, tensor)
            for tensor, layout in zip(self.tensors, answer, strict=True)
        }

    def confirm(self, call: Call, row: Row) -> str | None:
        """Return None if oneDNN takes these layouts, else the reason why not.

        If oneDNN has only reference code for ``row``, it is taken only if there is nothing better
        for the layouts of ``alternative_rows``.

        Args:
            call: the call.
            row: a layout per operand of the call.
        """
        try:
            layouts = [from_base(row[call.index(tensor)], tensor) for tensor in self.tensors]
            self.answered = layouts == self._answer
            kernel = self.chosen(layouts, call)
            self._chosen, self.answered = (layouts, kernel), False
        except (LayoutError, Decline) as why:
            return str(why)
        self.reference = is_reference(kernel)
        if not self.reference:
            return None
        for other in self.alternative_rows(layouts):
            try:
                alternative = self.primitive(other)
            except (LayoutError, Decline):
                continue
            if not is_reference(alternative):
                spelled = " ".join(str(layout) for layout in other)
                return f"only the kernel {kernel.kernel}, where {spelled} has {alternative.kernel}"
        return None

    def alternative_rows(self, row: Row) -> Iterator[Row]:
        """Yield layouts, one per operand, to try if ``row`` has only reference code: all plain, in
        declared order.
        """
        declared = [Layout.plain(operand.tensor.dims) for operand in self.operands]
        if declared != list(row):
            yield declared

    def variants(self, call: Call) -> Iterator[Variant]:
        """Yield a variant for each kernel that oneDNN has for each of ``tried_rows``, in the
        layouts of the kernel.

        There are none if the routine requires a layout of every operand.
        """
        if None not in self.wants:
            return
        seen: set[Variant] = set()
        for row in (
            *self.tried_rows(),
            *(self.rounded_rows() if call.evaluation.tolerance else ()),
        ):
            for kernel in self.kernels(row):
                with suppress(LayoutError):
                    variant = self._variant(call, self.taken(kernel, row), word_of(kernel))
                    if variant not in seen:
                        seen.add(variant)
                        yield variant

    def tried_rows(self) -> Iterator[Row]:
        """Yield layouts, one per operand, whose kernels are worth measuring."""
        yield from self.rows()

    def rounded_rows(self) -> Iterator[Row]:
        """Yield layouts, one per operand, that store operands of f32 in bf16: those of ``rows``,
        with all operands in bf16, or all but the last.

        Constants are stored in bf16 only in heavy routines. There are no rows if oneDNN computes no
        faster in bf16 on this processor.
        """
        if "bf16" not in speeds():
            return
        for row in self.rows():
            pairs = zip(self.tensors, row, strict=False)
            narrow = [
                layout.with_encoding("bf16")
                if tensor.dtype == "f32" and (self.heavy or not (tensor.base or tensor).constant)
                else layout
                for tensor, layout in pairs
            ]
            yield narrow
            yield [*narrow[:-1], row[-1]]

    def _variant(self, call: Call, layouts: Row, word: str) -> Variant:
        row = [Layout.ANY] * len(call.operands)
        for tensor, layout in zip(self.tensors, layouts, strict=True):
            row[call.index(tensor)] = to_base(layout, tensor)
        pairs = zip(self.tensors, layouts, strict=True)
        rounds = any(layout.rounds(tensor.dtype) for tensor, layout in pairs)
        return Variant(call.library, forms_on(call.device, row), kernel=word, inexact=rounds)

    def kernels(self, row: Row) -> Iterator[Primitive]:
        """Yield oneDNN's kernels for a layout per operand, best first, without reference code."""
        yield from compiled(lambda: self.primitive(row))

    def chosen(self, row: Row, call: Call) -> Primitive:
        """Return the kernel that the call's variant names, else the one that oneDNN prefers.

        Args:
            row: a layout for each of ``self.tensors``, which may be views of the call's operands.
            call: the call.

        Raises:
            LayoutNotSupported: oneDNN has no descriptor of a layout.
            Decline: oneDNN has no kernel, or lacks the named one.
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
        """Return the primitive that oneDNN prefers for these layouts.

        Args:
            row: a layout for each of ``self.tensors``, which may be views of the call's operands.

        Raises:
            LayoutNotSupported: oneDNN has no descriptor of a layout.
            Decline: oneDNN has no kernel for these layouts.
        """
        return self.build(self.operands, row, self.make)

    def build(
        self, operands: Sequence[Operand], row: Row, make: Callable[..., Primitive]
    ) -> Primitive:
        """Return the primitive that ``make`` returns for operands in layouts.

        Args:
            operands: the operands.
            row: a layout per operand.
            make: takes a descriptor per operand.

        Raises:
            LayoutNotSupported, Decline: as ``primitive``.
        """
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
        """Return the layouts that a primitive works in, one per operand.

        Raises:
            LayoutNotSupported: a layout is opaque.
        """
        return layouts_of(primitive, self.operands)

    def taken(self, primitive: Primitive, row: Row) -> list[Layout]:  # noqa: ARG002
        """Return the layouts, one per operand, in which ``primitive`` works; it was made for
        ``row``.
        """
        return self.layouts(primitive)

    def __call__(self, *tensors: PTensor) -> None:
        """Emit the call as one step, with scratch memory if the primitive needs any."""
        row = [tensor.required_layout for tensor in tensors]
        if self._chosen is None or self._chosen[0] != row:
            self._chosen = row, self.chosen(row, tensors[0].call)
        emit_on(self._chosen[1], self.arguments(tensors))

    def arguments(self, tensors: Sequence[PTensor]) -> dict[str, PTensor]:
        """Return the operands, by the names of the primitive's arguments."""
        rows = zip(self.operands, tensors, strict=True)
        return {operand.argument: tensor for operand, tensor in rows}


class FollowingRoutine(OneDnnRoutine):
    """A routine that keeps the layout of its first input if oneDNN has a kernel for this layout."""

    def rows(self) -> Iterator[Row]:
        """Yield rows of layouts to try, the best row first: with the first input in its produced
        layout, then in usual layouts.
        """
        for layout in followed(self.operands[0]):
            yield self.row(layout)

    def row(self, layout: Layout) -> Row:
        """Return a layout per operand: ``layout`` for the first input, ANY for the others."""
        return [layout, *[Layout.ANY] * (len(self.operands) - 1)]


def followed(lead: Operand) -> Iterator[Layout]:
    """Yield layouts to try for an operand: the one in which it is produced, then usual layouts.

    The usual layouts are the declared order, oneDNN's order, channels last, and blocks of channels.
    """
    current = produced(lead.tensor)
    usual = _usual(tuple(lead.tensor.dims), tuple(lead.order))
    if current is not None and not current.is_any:
        yield current
    yield from (layout for layout in usual if layout != current)


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
    """Return the layout of each operand in which a primitive works."""
    descs = primitive.descs  # a new dictionary at each access
    layouts = [
        from_desc(descs[operand.argument], operand.order, operand.tensor.dtype)
        for operand in operands
    ]
    form = primitive.kernel.partition(":")[0]
    if form in PLANE_FORMS:  # the descriptors are those of single planes
        whole = {"src": None, "weights": PLANE_FORMS[form]}
        for i, operand in enumerate(operands):
            if operand.argument in whole:
                layouts[i] = layouts[i].with_encoding(whole[operand.argument])
    return layouts


def emit_on(primitive: Primitive, tensors: Mapping[str, PTensor]) -> None:
    """Emit a primitive as a step.

    Args:
        primitive: the primitive.
        tensors: the operands by argument of the primitive; a missing argument is scratch memory.
    """
    emit(primitive, [tensors.get(name, primitive.scratch_bytes) for name in primitive.slots])


def within(order: Order, dims: Mapping[str, int]) -> Order:
    """Return an order of dims with "" for each dim that an operand lacks."""
    return tuple(dim if dim in dims else "" for dim in order)


def compiled(make: Callable[[], Primitive]) -> Iterator[Primitive]:
    """Yield the primitive that ``make`` returns, then the same primitive on oneDNN's other kernels,
    the best first.

    The sequence ends before the first kernel that is reference code, at the latest after
    ``MAX_KERNELS``. It is empty if ``make`` declines or a layout is not supported.
    """
    with suppress(LayoutError, Decline):
        kernel: Primitive | None = make()
        for _ in range(MAX_KERNELS):
            if kernel is None or is_reference(kernel):
                return
            yield kernel
            kernel = kernel.next_kernel()


def word_of(kernel: Primitive) -> str:
    """Return the name by which a variant refers to a kernel."""
    return f"{kernel.kind} {kernel.kernel}"


def is_reference(primitive: Primitive) -> bool:
    """Return whether a primitive's kernel is slow reference code."""
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
