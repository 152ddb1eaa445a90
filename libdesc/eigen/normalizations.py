"""Normalizations of a tensor over any of its dims, by statistics of its own elements."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from libdesc.eigen import native
from libdesc.eigen.memory import MIN_RUN, DimPart, nested, run_length, strides_along
from libdesc.routine import Routine, Wanted
from ptensor.evaluation import Decline, emit
from ptensor.layout import Layout
from ptensor.tensor import PTensor
from vtensor.language.expression import Expression
from vtensor.language.operators import Follower, info_of
from vtensor.language.tensor import VTensor

#: The texts of the expressions that add an operand, x1, to a value, x0.
SUMS = ("add(x0, x1)", "add(x1, x0)")

#: The element types of normalizations.
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
    """Return the routine of a normalization over some dims.

    src and dst may each have one of two layouts: a plain one in which the normalized dims come
    last, or the one in which src is produced, if at least ``MIN_RUN`` elements of a row are
    contiguous in it.

    Args:
        kind: ``layer``, ``rms``, ``mean_variance``, ``l1`` or ``l2``.
        src: any dims.
        parameters: empty, or a scale, or a scale and a shift. They have dims of src, and one
            element type.
        results: dst; for ``layer`` also the mean, and the factor by which (src - mean) is
            multiplied.
        axes: the dims that statistics are taken over.
        epsilon: number that is added to the variance, standard deviation or mean square, so that
            the factor stays finite.
        follow: at most one follower, which adds a shift; ``parameters`` is then a scale.

    Raises:
        Decline: the routine cannot fuse a follower.
    """
    parameters = [*parameters, *_shifts(src, parameters, follow)]
    order = [*(dim for dim in src.dims if dim not in axes), *axes]

    def run(x: PTensor, *others: PTensor) -> None:
        dst = others[len(parameters)]
        parts = _parts(order, len(axes), [x.required_layout, dst.required_layout], x.dims)
        assert parts is not None, "it was confirmed"
        first = sum(part.dim not in axes for part in parts)
        steps = [
            strides_along(parts, tensor.required_layout, tensor.dims)
            for tensor in (x, dst, *others[: len(parameters)])
        ]
        sizes = [part.size for part in parts]
        types = src.dtype, parameters[0].dtype if parameters else src.dtype
        kernel = native.load().normalization(kind, *types, sizes, first, len(parts), steps, epsilon)
        emit(kernel, [x, *others])

    plain, *others = (
        Layout.plain(dim for dim in order if dim in tensor.dims)
        for tensor in (src, *parameters, *results)
    )
    ways = list(dict.fromkeys([plain, *_produced_in_runs(src, order, len(axes))]))
    wants: list[Wanted] = [ways, *others]
    wants[1 + len(parameters)] = ways
    return Routine([src, *parameters, *results], wants, follow, run)


def _parts(
    order: Sequence[str], reduced: int, layouts: Sequence[Layout], dims: Mapping[str, int]
) -> list[DimPart] | None:
    """Return the dims ``order`` as parts, cut at the blocks of all layouts.

    None if the block sizes of a dim do not divide one another, or do not divide the size of the
    dim. The statistics are taken over the last ``reduced`` dims. Since the order of their parts
    does not matter for that, these are sorted by their strides in the first layout, the largest
    first.
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


def _produced_in_runs(src: VTensor, order: Sequence[str], reduced: int) -> Iterator[Layout]:
    """Yield the layout in which src is produced, if at least ``MIN_RUN`` elements of a row are
    contiguous in it.

    Otherwise yield nothing. The elements of a row, along the normalized dims, may be in any order.

    Args:
        src: the tensor.
        order: its dims; the last ``reduced`` ones are normalized over.
        reduced: number of these dims.
    """
    layout = src.produced_layout
    if layout is None or layout.is_any or layout.encoding is not None:
        return
    parts = _parts(order, reduced, [layout], src.dims)
    if parts is not None and run_length(parts, layout, src.dims) >= MIN_RUN:
        yield layout


def _shifts(
    src: VTensor, parameters: Sequence[VTensor], follow: Sequence[Follower]
) -> Iterator[VTensor]:
    """Yield the shifts that followers add.

    Raises:
        Decline: a follower does not add a shift, or there are several followers.
    """
    for follower in follow:
        others = [operand.dtype for operand in follower.operands]
        if len(follow) > 1 or others != [parameter.dtype for parameter in parameters]:
            raise Decline("adds no more than one shift, of the element type of the scale")
        added = str(follower.expression(Expression(0), [Expression(1)]))
        [shift] = follower.operands
        if added not in SUMS or not shift.dims.items() <= src.dims.items():
            raise Decline(f"cannot fuse {info_of(follower.op).name} here")
        yield shift
