"""Normalizations by what the elements themselves are, over any dims."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from libdesc.eigen import native
from libdesc.routine import Routine
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
    """src normalized over some dims, which lie last.

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
        first = len(order) - len(axes)
        steps = [_strides(one, order) for one in others[: len(parameters)]]
        sizes = [x.size(dim) for dim in order]
        types = src.dtype, parameters[0].dtype if parameters else src.dtype
        made = native.load().normalization(kind, *types, sizes, first, len(order), steps, epsilon)
        emit(made, [x, *others])

    tensors = [src, *parameters, *results]
    wants = [Layout.plain(dim for dim in order if dim in one.dims) for one in tensors]
    return Routine(tensors, wants, follow, run)


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


def _strides(tensor: PTensor, order: Sequence[str]) -> list[int]:
    """How far neighbours along each dim are; 0 along those that the tensor lacks or repeats."""
    layout = tensor.required_layout
    own = dict(zip(layout.dims, layout.strides(tensor.dims), strict=True))
    return [own[dim] if tensor.dims.get(dim, 1) > 1 else 0 for dim in order]
