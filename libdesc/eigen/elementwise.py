"""Point-wise operators, alone or fused, in any layout. The native kernel computes them from one
program, a list of instructions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from math import prod
from types import MappingProxyType

from libdesc.eigen import native
from libdesc.eigen.memory import MIN_RUN, nested, pads, run_length, strides_along
from libdesc.eigen.program import Program, compiled
from libdesc.routine import Routine
from ptensor.evaluation import Call, Decline, emit
from ptensor.layout import Layout
from ptensor.tensor import PTensor
from vtensor.language.dims import is_one
from vtensor.language.expression import Expression
from vtensor.language.operators import Follower, expression_of, info_of
from vtensor.language.tensor import VTensor


def pointwise(
    op: object, sources: Sequence[VTensor], dst: VTensor, follow: Sequence[Follower] = ()
) -> Routine:
    """Return the routine of a point-wise operator and its followers; it zeroes the pads of dst.

    All operands have one joint layout, or several layouts whose block sizes divide one another.

    Args:
        op: an operator with the trait ``Pointwise``.
        sources: the inputs of ``op``.
        dst: the output of the last operator.
        follow: the fused followers.

    Raises:
        Decline: the native kernel has no program for the operators.
    """
    tensors = [*sources, *(operand for follower in follow for operand in follower.operands), dst]
    return computed(partial(_fused, op, len(sources), follow), tensors, follow)


def computed(
    function: Callable[..., Expression], tensors: Sequence[VTensor], follow: Sequence[Follower] = ()
) -> Routine:
    """Return the routine that computes an expression of the operands for each element.

    Args:
        function: takes an expression per operand and returns the expression of the result.
        tensors: the operands, then dst. An operand of one element may have dims that dst lacks.
        follow: the fused followers, whose operands are among the tensors.

    Raises:
        Decline: the native kernel has no program for the expression.
    """
    program = compiled(function, [tensor.dtype for tensor in tensors])
    dims = tensors[-1].dims.keys()
    wants = [Layout.ANY if t.dims.keys() <= dims else Layout.plain(t.dims) for t in tensors]

    def run(*operands: PTensor) -> None:
        _run(program, operands[:-1], operands[-1])

    return _Pointwise(tensors, wants, follow, run)


class _Pointwise(Routine):
    """The routine of a program (a list of instructions for each element) whose operands may have
    different layouts.
    """

    each = True

    def confirm(self, call: Call, row: Sequence[Layout]) -> str | None:
        """Return None if the library takes these layouts, else the reason why not.

        An operand need not have the layout of dst. It must then have at least ``MIN_RUN`` elements
        one after another in memory that are also neighbours in dst.
        """
        *sources, dst = ((tensor, row[call.index(tensor)]) for tensor in self.tensors)
        return _misfit(sources, dst)


def of_joined(
    parts: Sequence[VTensor], dst: VTensor, dim: str, follow: Sequence[Follower]
) -> Routine:
    """Return the routine that concatenates tensors along a dim and computes the followers.

    Args:
        parts: the tensors that are concatenated.
        dst: the output of the last operator.
        dim: the dim of the concatenation.
        follow: the fused followers.

    Raises:
        Decline: the native kernel has no program for the followers.
    """
    others = [operand for follower in follow for operand in follower.operands]
    types = [tensor.dtype for tensor in (parts[0], *others, dst)]
    program = compiled(partial(_followed, follow), types)
    return _Joined(parts, others, dst, dim, follow, program)


class _Joined(Routine):
    """A concatenation and its followers, computed by one program (a list of instructions for each
    element). The first operand of the program is the concatenation.

    Args:
        parts: the tensors that are concatenated; they have dst's layout.
        others: the other operands of the followers.
        dst: the output.
        dim: the dim of the concatenation.
        follow: the followers.
        program: the program that computes the followers.
    """

    def __init__(
        self,
        parts: Sequence[VTensor],
        others: Sequence[VTensor],
        dst: VTensor,
        dim: str,
        follow: Sequence[Follower],
        program: Program,
    ) -> None:
        super().__init__([*parts, *others, dst], follow=follow)
        self.parts, self.dim, self.program = tuple(parts), dim, program

    def preferred(self, call: Call) -> Mapping[int, Layout | Sequence[Layout]]:
        """Return a layout by operand index: that in which the first operand is produced.

        Each operand gets it without the dims that it lacks, and without an encoding. The dim of the
        concatenation gets no blocks if a block would reach over two of the concatenated tensors.
        """
        lead, dst = call.operands[0].produced_layout, self.tensors[-1]
        if lead is None or lead.is_any or set(lead.dims) != dst.dims.keys():
            lead = Layout.plain(dst.dims)
        lead = lead.with_encoding(None)
        lead = lead.unblock(self.dim) if self._cut(lead) else lead
        rows = dict[int, Layout | Sequence[Layout]]()
        for place, tensor in enumerate(self.tensors):
            layout = lead.restrict(tensor.dims)
            for dim in tensor.dims if place >= len(self.parts) else ():
                layout = layout.unblock(dim) if tensor.size(dim) != dst.size(dim) else layout
            rows[call.index(tensor)] = layout
        return rows

    def _cut(self, layout: Layout) -> bool:
        return any(part.size(self.dim) % layout.block(self.dim) for part in self.parts)

    def confirm(self, call: Call, row: Sequence[Layout]) -> str | None:
        """Return None if the library takes these layouts, else the reason why not.

        All concatenated tensors must have the layout of dst. The program must be able to read the
        other operands in the order of dst's elements.
        """
        layouts = [row[call.index(tensor)] for tensor in self.tensors]
        count, target = len(self.parts), layouts[-1]
        if any(layout != target for layout in layouts[:count]):
            return "the parts of a concatenation must have its layout"
        if target.encoding is not None:
            return f"joins elements in their own type, not {target}"
        if self._cut(target):
            return f"{target} cuts a part"
        others = zip(self.tensors[count:-1], layouts[count:-1], strict=True)
        return _misfit([*others], (self.tensors[-1], target))

    def __call__(self, *tensors: PTensor) -> None:
        """Emit one step; none if dst is empty."""
        count = len(self.parts)
        parts = [part for part in tensors[:count] if part.size(self.dim)]
        dst = tensors[-1]
        layout = dst.required_layout
        axis = next(i for i, axis in enumerate(layout.axes) if axis.dim == self.dim)
        widths = [prod(layout.physical_shape(part.dims)[axis:]) for part in parts]
        _run(self.program, [dst, *tensors[count:-1]], dst, dict(zip(parts, widths, strict=True)))


def _misfit(sources: Sequence[tuple[VTensor, Layout]], dst: tuple[VTensor, Layout]) -> str | None:
    """Return why operands cannot be read in the order of dst's elements; None if they can.

    Args:
        sources: operands with their layouts.
        dst: the output with its layout.
    """
    out, target = dst
    others = [(t, at) for t, at in sources if not _has_axes_of(at, t.dims, target, out.dims)]
    if not others:
        return None
    if any(at.encoding is not None for _, at in (*sources, dst)):
        return "reads operands in different layouts only in their own element types"
    axes = nested([target, *(at for _, at in sources)], out.dims)
    if axes is None:
        return f"the blocks of {' and '.join(str(at) for _, at in others)} do not fit {target}"
    if any(run_length(axes, at, t.dims) < MIN_RUN for t, at in others):
        return f"would read pieces of fewer than {MIN_RUN} elements"
    return None


def _has_axes_of(
    layout: Layout, dims: Mapping[str, int], target: Layout, whole: Mapping[str, int]
) -> bool:
    """Return whether each axis of an operand's layout is an axis of dst's layout, too.

    Axes along which the operand is repeated do not count.

    Args:
        layout, dims: the operand's layout, and its sizes by dim.
        target, whole: dst's layout, and its sizes by dim.
    """
    lengths = dict(zip(_axis_keys(target), target.physical_shape(whole), strict=True))
    sizes = zip(_axis_keys(layout), layout.physical_shape(dims), strict=True)
    return all(is_one(size) or lengths.get(place) == size or size <= 1 for place, size in sizes)


def _fused(op: object, count: int, follow: Sequence[Follower], *values: Expression) -> Expression:
    """Return an expression for the result of an operator and its followers.

    Args:
        op: the operator.
        count: number of operands of ``op``.
        follow: the fused followers.
        values: the operands of the operator, then those of the followers.
    """
    first = _require_pointwise(op, expression_of(op, *values[:count]))
    return _followed(follow, first, *values[count:])


def _followed(follow: Sequence[Follower], result: Expression, *operands: Expression) -> Expression:
    """Return an expression for the result of followers.

    Args:
        follow: the followers, each applied to the result of the one before.
        result: the input of the first follower.
        operands: the other operands of all followers, in order.
    """
    remaining = iter(operands)
    for follower in follow:
        others = [next(remaining) for _ in follower.operands]
        result = _require_pointwise(
            follower.op, follower.expression(_stored(result, follower.takes), others)
        )
    return result


def _require_pointwise(op: object, expression: Expression | None) -> Expression:
    if expression is None:
        raise Decline(f"{info_of(op).name} is not point-wise")
    return expression


def _stored(value: Expression, dtype: str) -> Expression:
    """Return a value as the next follower reads it: an integer wraps to the range of ``dtype``, as
    if it had been stored.
    """
    return value.to(dtype) if dtype[:1] in ("s", "u") and value.dtype != dtype else value


def _run(
    program: Program,
    sources: Sequence[PTensor],
    dst: PTensor,
    pieces: Mapping[PTensor, int] = MappingProxyType({}),
) -> None:
    """Emit a step that computes a program. If dst has no elements, emit nothing.

    Args:
        program: the instructions for each element.
        sources: the operands of the program. If the first one is a concatenation, dst is given in
            its place, since both have the same layout.
        dst: the result of the program.
        pieces: the tensors that are concatenated, each with the number of its elements that are
            contiguous in the concatenation. Empty if no operand is a concatenation.
    """
    if 0 in dst.dims.values():
        return  # there is nothing to write
    target = dst.required_layout
    if all(
        _has_axes_of(operand.required_layout, operand.dims, target, dst.dims) for operand in sources
    ):
        shape = list(target.physical_shape(dst.dims))
        strides = [_strides(source, dst) for source in sources]
    else:
        axes = nested([target, *(operand.required_layout for operand in sources)], dst.dims)
        assert axes is not None, "it was confirmed"
        shape = [axis.size for axis in axes]
        strides = [
            strides_along(axes, operand.required_layout, operand.dims) for operand in sources
        ]
    code = (program.types, program.constants, program.instructions)
    if pieces:
        widths = [*pieces.values()]
        kernel = native.load().joined(shape, strides, *code, pads(dst), widths)
        emit(kernel, [*pieces, *sources[1:], dst])
    else:
        emit(native.load().pointwise(shape, strides, *code, pads(dst)), [*sources, dst])


def _strides(source: PTensor, dst: PTensor) -> list[int]:
    """Return an operand's stride in elements along each axis of dst; 0 where it is repeated."""
    layout = source.required_layout
    shape, strides = layout.physical_shape(source.dims), layout.strides(source.dims)
    rows = {axis: row for axis, *row in zip(_axis_keys(layout), shape, strides, strict=True)}
    target, steps = dst.required_layout, list[int]()
    for axis, wanted in zip(_axis_keys(target), target.physical_shape(dst.dims), strict=True):
        size, stride = rows.get(axis, (1, 0))
        steps.append(0 if is_one(size) or size != wanted else stride)
    return steps


def _axis_keys(layout: Layout) -> Iterator[tuple[str, int]]:
    """Yield (dim, unit) for each axis of a layout. No two axes have the same pair.

    The unit is how much the index of the dim grows from one position of the axis to the next.
    """
    return zip((axis.dim for axis in layout.axes), layout.units, strict=True)
