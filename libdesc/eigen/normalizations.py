"""Normalizations by what the elements themselves are, over any dims."""

from __future__ import annotations

from collections.abc import Sequence

from libdesc.eigen import native
from libdesc.routine import Routine
from ptensor.evaluation import emit
from ptensor.layout import Layout
from ptensor.tensor import PTensor
from vtensor.language.tensor import VTensor

#: The element types that are taken.
FRACTIONS = ("f32", "f16", "bf16")


def normalization(
    kind: str,
    src: VTensor,
    parameters: Sequence[VTensor],
    results: Sequence[VTensor],
    axes: Sequence[str],
    epsilon: float = 0.0,
) -> Routine:
    """src normalized over some dims, which lie last.

    Args:
        kind: the native kernel's word for it.
        src: any dims.
        parameters: a scale, and behind it a shift, as far as there are; dims of src, one type.
        results: dst, and of ``"layer"`` the mean and the factor.
        axes: the dims.
        epsilon: what is added to keep the factor finite.
    """
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
    return Routine(tensors, wants, run=run)


def _strides(tensor: PTensor, order: Sequence[str]) -> list[int]:
    """How far neighbours along each dim are; 0 along those that the tensor lacks or repeats."""
    layout = tensor.required_layout
    own = dict(zip(layout.dims, layout.strides(tensor.dims), strict=True))
    return [own[dim] if tensor.dims.get(dim, 1) > 1 else 0 for dim in order]
