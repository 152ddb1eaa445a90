"""Normalizations by what the elements themselves are, over any dims."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from libdesc.eigen import native
from libdesc.eigen.memory import PIECE, Axis, nested, run_length, strides_along
from libdesc.routine import Routine, Wanted
from ptensor.evaluation import Decline, emit
from ptensor.layout import Layout
from ptensor.tensor import PTensor
from vtensor.language.expression import Expression
from vtensor.language.operators import Follower, info_of
from vtensor.language.tensor import VTensor

#: How the sum of a value and an operand is written.
SUMS = ("add(x0, x1)", "add(x1, x0)")

#: The element types that are taken.
FRACTIONS = ("f32", "f16", "bf16")


def normalization(
    kind: str,
    src: VTensor,
    parameters: Sequence[VTensor],
    results: Sequence[VTensor],
    axes: Sequence[str],
    epsilon: float = 0.0,
    follow: Sequence[Follower] = (),
) -> Routine:
    """src normalized over some dims: they lie last, or all lies as src is made, in long pieces.

    Args:
        kind: the native kernel's word for it.
        src: any dims.
        parameters: a scale, and behind it a shift, as far as there are; dims of src, one type.
        results: dst, and of ``"layer"`` the mean and the factor.
        axes: the dims.
        epsilon: what is added to keep the factor finite.
        follow: behind a scale, the sum with a shift.

    Raises:
        Decline: it takes no such follower.
    """
    parameters = [*parameters, *_shifts(src, parameters, follow)]
    order = [*(dim for dim in src.dims if dim not in axes), *axes]

    def run(x: PTensor, *others: PTensor) -> None:
        dst = others[len(parameters)]
        parts = _parts(order, len(axes), [x.required_layout, dst.required_layout], x.dims)
        assert parts is not None, "it was confirmed"
        first = sum(part.dim not in axes for part in parts)
        steps = [
            strides_along(parts, one.required_layout, one.dims)
            for one in (x, dst, *others[: len(parameters)])
        ]
        sizes = [part.size for part in parts]
        types = src.dtype, parameters[0].dtype if parameters else src.dtype
        made = native.load().normalization(kind, *types, sizes, first, len(parts), steps, epsilon)
        emit(made, [x, *others])

    plain, *others = (
        Layout.plain(dim for dim in order if dim in one.dims)
        for one in (src, *parameters, *results)
    )
    ways = list(dict.fromkeys([plain, *_in_pieces(src, order, len(axes))]))
    wants: list[Wanted] = [ways, *others]
    wants[1 + len(parameters)] = ways
    return Routine([src, *parameters, *results], wants, follow, run)


def _parts(
    order: Sequence[str], reduced: int, layouts: Sequence[Layout], dims: Mapping[str, int]
) -> list[Axis] | None:
    """The dims in order, cut where layouts have blocks; None where they cannot be.

    The last ``reduced`` dims are in the order of the first layout: any order has the same sum.
    """
    parts = nested([Layout.plain(order), *layouts], dims)
    if parts is None:
        return None
    axes = order[len(order) - reduced :]
    steps = strides_along(parts, layouts[0], dims)
    return [
        part
        for part, _ in sorted(
            zip(parts, steps, strict=True),
            key=lambda row: (1, -row[1]) if row[0].dim in axes else (0, 0),
        )
    ]


def _in_pieces(src: VTensor, order: Sequence[str], reduced: int) -> Iterator[Layout]:
    """The layout in which src is made, if enough elements of a row lie side by side there."""
    own = src.produced_layout
    if own is None or own.is_any or own.encoding is not None:
        return
    parts = _parts(order, reduced, [own], src.dims)
    if parts is not None and run_length(parts, own, src.dims) >= PIECE:
        yield own


def _shifts(
    src: VTensor, parameters: Sequence[VTensor], follow: Sequence[Follower]
) -> Iterator[VTensor]:
    """The shift that what is fused behind adds."""
    for follower in follow:
        others = [one.dtype for one in follower.operands]
        if len(follow) > 1 or others != [one.dtype for one in parameters]:
            raise Decline("adds no more than one shift, of the element type of the scale")
        added = str(follower.expression(Expression(0), [Expression(1)]))
        [shift] = follower.operands
        if added not in SUMS or not shift.dims.items() <= src.dims.items():
            raise Decline(f"does not take {info_of(follower.op).name} behind it so")
        yield shift
