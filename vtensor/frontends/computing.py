"""Runs operators on arrays, to compute constants from other constants while a model is read."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache, partial

import numpy as np

from libdesc.dispatcher import DispatchContext, dispatcher
from libdesc.preferences import Preferences
from libdesc.registry import ready
from ptensor.background_work import checkpoint
from ptensor.blas import on_one_thread
from ptensor.buffer import Buffer, TensorStorage
from ptensor.evaluation import Variant, installed
from ptensor.layout import Layout
from ptensor.transform import unpack
from resolver.evaluate import PartialEvaluation
from vtensor.errors import ModelError, VTensorError
from vtensor.frontends.tensors import Array
from vtensor.language.operators import info_of, run_compute
from vtensor.language.tensor import VTensor
from vtensor.runtime.execution.evaluations import NormalEvaluation

#: For each operand, (element type, (name, size) of each dim).
Kinds = tuple[tuple[str, tuple[tuple[str, int], ...]], ...]


def run_definition(node: str, op: object, operands: Sequence[tuple[VTensor, Array]]) -> list[Array]:
    """Run an operator on arrays and return its output arrays.

    The library that has the operator's definition runs it.

    Args:
        node: name of the node in messages.
        op: the operator.
        operands: for each input, a VTensor with its element type and dims, and its array, which has
            an axis for each of these dims, in order.
    """
    kinds = tuple((value.dtype, tuple(value.dims.items())) for value, _ in operands)
    variant = _cached_variant((op, kinds, ready().version)) if _has_hash(op) else None
    if variant is None:
        tensors_in_order = [
            _tensor(value, array, Layout.plain(value.dims)) for value, array in operands
        ]
        variant = _decided(node, op, tensors_in_order)
    tensors = [
        _tensor(value, array, layout)
        for (value, array), layout in zip(operands, variant.layouts, strict=False)
    ]
    checkpoint()  # may sleep; inside ``on_one_thread``, other threads would wait for that
    compute = partial(run_compute, _RunningContext(node, variant=variant), op, tensors)
    with installed(NormalEvaluation()), np.errstate(all="ignore"):
        outputs = on_one_thread(compute)
    return [_array(output) for output in outputs]


def _decided(node: str, op: object, operands: Sequence[VTensor]) -> Variant:
    """Return the variant in which an operator runs on these operands.

    It is a variant of the library that has the operator's definition. ``node`` is a node's name,
    for errors.

    Raises:
        ModelError: the library decided no layouts.
    """
    deciding = DispatchContext(node, preferences=Preferences(nodes={node: info_of(op).definition}))
    with installed(PartialEvaluation()):
        run_compute(deciding, op, operands)
    if deciding.variant is None:
        raise ModelError(f"{node}: no layouts were decided")
    return deciding.variant


def _has_hash(op: object) -> bool:
    """Return whether an operator can be hashed: one with an array as a parameter cannot."""
    try:
        hash(op)
    except TypeError:
        return False
    return True


@lru_cache(maxsize=1024)
def _cached_variant(key: tuple[object, Kinds, int]) -> Variant | None:
    """Return the variant for operands of these element types and dims.

    None if it cannot be found without the operands' values. It is cached, since arithmetic on
    shapes has operands of the same dims for all shapes.

    Args:
        key: (the operator, element types and dims of its operands, version of the registry).
    """
    op, kinds, _ = key
    operands = [VTensor(dtype, dict(dims)) for dtype, dims in kinds]
    for operand in operands:
        operand.produced_layout = Layout.plain(operand.dims)
    try:
        return _decided("", op, operands)
    except VTensorError:
        return None


def _tensor(value: VTensor, array: Array, layout: Layout) -> VTensor:
    """Return a constant with the element type and dims of ``value`` and the elements of ``array``.

    ``layout`` is the layout that the constant is stored in.
    """
    tensor = VTensor(value.dtype, value.dims)
    tensor.storage = TensorStorage.of_array(array, tensor, layout, constant=True)
    tensor.produced_layout = layout
    return tensor


def _array(value: VTensor) -> Array:
    """Return the elements of an output, with an axis for each of ``value.dims``, in order."""
    storage = value.storage
    assert isinstance(storage, TensorStorage)
    return unpack(storage.data(), storage.layout, list(value.dims), value.dims, value.dtype)


class _RunningContext(DispatchContext):
    """Context of an operator that runs at once and stores its outputs in the layouts of its
    variant.
    """

    def dispatch(self, op: object, inputs: Sequence[VTensor], outputs: Sequence[VTensor]) -> None:
        """Allocate memory for the outputs, then call the operator's dispatcher."""
        assert self.variant is not None
        layouts = self.variant.layouts[-len(outputs) :]
        for value, layout in zip(outputs, layouts, strict=True):
            buffer = Buffer.allocate(layout.nbytes(value.dims, value.dtype))
            value.storage = TensorStorage(value.dtype, value.dims, layout, buffer)
        dispatcher(info_of(op).name, self.device)(self, op, inputs, outputs)
