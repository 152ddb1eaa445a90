"""Point-wise operators, one or a run of them, as one program in any layout."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from math import prod
from types import MappingProxyType

from libdesc.eigen import native
from libdesc.eigen.memory import PIECE, nested, pads, run_length, strides_along
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
    """A point-wise operator, and those behind it, in one pass; pads become 0 again.

    All operands lie in one joint layout, or each in one of its own whose blocks fit the others'.

    Args:
        op: an operator with the trait ``Pointwise``.
        sources: its inputs.
        dst: the output of the last operator.
        follow: the operators behind it.

    Raises:
        Decline: there is no program for it.
    """
    tensors = [*sources, *(operand for one in follow for operand in one.operands), dst]
    return computed(partial(_whole, op, len(sources), follow, dst.dtype), tensors, follow)


def computed(
    function: Callable[..., Expression], tensors: Sequence[VTensor], follow: Sequence[Follower] = ()
) -> Routine:
    """An expression of operands for each element, as ``pointwise``; the last tensor gets it.

    Args:
        function: called with an expression an operand.
        tensors: the operands, of which those with one element may have dims of their own, then dst.
        follow: the operators whose operands are among them.

    Raises:
        Decline: there is no program for it.
    """
    program = compiled(function, [tensor.dtype for tensor in tensors])
    dims = tensors[-1].dims.keys()
    wants = [Layout.ANY if one.dims.keys() <= dims else Layout.plain(one.dims) for one in tensors]

    def run(*made: PTensor) -> None:
        _run(program, made[:-1], made[-1])

    return _Pointwise(tensors, wants, follow, run)


class _Pointwise(Routine):
    """A program over operands that need not lie alike."""

    each = True

    def confirm(self, call: Call, row: Sequence[Layout]) -> str | None:
        """None where all lie alike, or pieces of some length can be read of those that do not."""
        *sources, dst = ((tensor, row[call.index(tensor)]) for tensor in self.tensors)
        return _misfit(sources, dst)


def of_joined(
    parts: Sequence[VTensor], dst: VTensor, dim: str, follow: Sequence[Follower]
) -> Routine:
    """Tensors one behind another along a dim, and what is computed of that, in one pass.

    Args:
        parts: the tensors.
        dst: the output of the last operator.
        dim: along which they lie.
        follow: the operators behind it.

    Raises:
        Decline: there is no program for it.
    """
    others = [operand for one in follow for operand in one.operands]
    types = [tensor.dtype for tensor in (dst, *others, dst)]
    program = compiled(partial(_behind, follow, dst.dtype), types)
    return _Joined(parts, others, dst, dim, follow, program)


class _Joined(Routine):
    """A program of which the first operand is in parts, all in one layout with dst."""

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
        """The layout of the first part, if its blocks cut none; each restricted to its own dims."""
        lead, dst = call.operands[0].produced_layout, self.tensors[-1]
        if lead is None or lead.is_any or set(lead.dims) != dst.dims.keys():
            lead = Layout.plain(dst.dims)
        lead = lead.with_encoding(None)
        lead = lead.unblock(self.dim) if self._cut(lead) else lead
        rows = dict[int, Layout | Sequence[Layout]]()
        for place, tensor in enumerate(self.tensors):
            own = lead.restrict(tensor.dims)
            for dim in tensor.dims if place >= len(self.parts) else ():
                own = own.unblock(dim) if tensor.size(dim) != dst.size(dim) else own
            rows[call.index(tensor)] = own
        return rows

    def _cut(self, layout: Layout) -> bool:
        return any(part.size(self.dim) % layout.block(self.dim) for part in self.parts)

    def confirm(self, call: Call, row: Sequence[Layout]) -> str | None:
        """None where the parts lie as dst does, and the others can be read of it."""
        own = [row[call.index(tensor)] for tensor in self.tensors]
        count, target = len(self.parts), own[-1]
        if any(layout != target for layout in own[:count]):
            return "what is joined must lie alike"
        if target.encoding is not None:
            return f"joins elements as they are, not {target}"
        if self._cut(target):
            return f"{target} cuts a part"
        others = zip(self.tensors[count:-1], own[count:-1], strict=True)
        return _misfit([*others], (self.tensors[-1], target))

    def __call__(self, *tensors: PTensor) -> None:
        """A step, if anything is to be written."""
        count = len(self.parts)
        parts = [part for part in tensors[:count] if part.size(self.dim)]
        dst = tensors[-1]
        layout = dst.required_layout
        axis = next(i for i, axis in enumerate(layout.axes) if axis.dim == self.dim)
        widths = [prod(layout.physical_shape(part.dims)[axis:]) for part in parts]
        _run(self.program, [dst, *tensors[count:-1]], dst, dict(zip(parts, widths, strict=True)))


def _misfit(sources: Sequence[tuple[VTensor, Layout]], dst: tuple[VTensor, Layout]) -> str | None:
    """Why operands cannot be read in the order of dst; None where they can."""
    out, target = dst
    others = [(t, at) for t, at in sources if not _alike(at, t.dims, target, out.dims)]
    if not others:
        return None
    if any(at.encoding is not None for _, at in (*sources, dst)):
        return "reads elements where they are only if all are stored as they are"
    axes = nested([target, *(at for _, at in sources)], out.dims)
    if axes is None:
        return f"the blocks of {' and '.join(str(at) for _, at in others)} do not fit {target}"
    if any(run_length(axes, at, t.dims) < PIECE for t, at in others):
        return f"would read pieces of fewer than {PIECE} elements"
    return None


def _alike(
    layout: Layout, dims: Mapping[str, int], target: Layout, whole: Mapping[str, int]
) -> bool:
    """An operand's axes are among those of dst, where it is not repeated."""
    there = dict(zip(_places(target), target.physical_shape(whole), strict=True))
    sizes = zip(_places(layout), layout.physical_shape(dims), strict=True)
    return all(is_one(size) or there.get(place) == size or size <= 1 for place, size in sizes)


def _whole(
    op: object, own: int, follow: Sequence[Follower], dtype: str, *values: Expression
) -> Expression:
    """What the last of several operators computes of the operands of all."""
    first = _known(op, expression_of(op, *values[:own]))
    return _behind(follow, dtype, first, *values[own:])


def _behind(
    follow: Sequence[Follower], dtype: str, result: Expression, *operands: Expression
) -> Expression:
    """What the last of several operators computes of a value and their other operands."""
    rest = iter(operands)
    for one in follow:
        others = [next(rest) for _ in one.operands]
        result = _known(one.op, one.expression(_stored(result, dtype), others))
    return result


def _known(op: object, expression: Expression | None) -> Expression:
    if expression is None:
        raise Decline(f"{info_of(op).name} is not point-wise")
    return expression


def _stored(value: Expression, dtype: str) -> Expression:
    """A value between two operators: an integer has no more bits than its type."""
    return value.to(dtype) if dtype[0] in "su" else value


def _run(
    program: Program,
    sources: Sequence[PTensor],
    dst: PTensor,
    pieces: Mapping[PTensor, int] = MappingProxyType({}),
) -> None:
    """A step; of pieces with their widths in a row, dst stands for the first source."""
    if 0 in dst.dims.values():
        return  # there is nothing to write
    target = dst.required_layout
    if all(_alike(one.required_layout, one.dims, target, dst.dims) for one in sources):
        shape = list(target.physical_shape(dst.dims))
        strides = [_strides(source, dst) for source in sources]
    else:
        axes = nested([target, *(one.required_layout for one in sources)], dst.dims)
        assert axes is not None, "it was confirmed"
        shape = [axis.size for axis in axes]
        strides = [strides_along(axes, one.required_layout, one.dims) for one in sources]
    code = (program.types, program.constants, program.instructions)
    if pieces:
        widths = [*pieces.values()]
        kernel = native.load().joined(shape, strides, *code, pads(dst), widths)
        emit(kernel, [*pieces, *sources[1:], dst])
    else:
        emit(native.load().pointwise(shape, strides, *code, pads(dst)), [*sources, dst])


def _strides(source: PTensor, dst: PTensor) -> list[int]:
    """Along each axis of dst: how far the operand's elements are, 0 where it is repeated."""
    layout = source.required_layout
    shape, strides = layout.physical_shape(source.dims), layout.strides(source.dims)
    rows = {place: row for place, *row in zip(_places(layout), shape, strides, strict=True)}
    target, steps = dst.required_layout, list[int]()
    for place, wanted in zip(_places(target), target.physical_shape(dst.dims), strict=True):
        size, stride = rows.get(place, (1, 0))
        steps.append(0 if is_one(size) or size != wanted else stride)
    return steps


def _places(layout: Layout) -> Iterator[tuple[str, int]]:
    """Dim and unit of each axis: two blocks of a dim may be of one size, as in ``OI4i16o4i``."""
    return zip((axis.dim for axis in layout.axes), layout.units, strict=True)
