"""An operator computed now, on arrays: how constants are made of others while a model is read."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from libdesc.dispatcher import DispatchContext, dispatcher
from libdesc.preferences import Preferences
from ptensor.buffer import Buffer, TensorStorage
from ptensor.evaluation import installed
from ptensor.layout import Layout
from ptensor.transform import unpack
from resolver.evaluate import PartialEvaluation
from vtensor.errors import ModelError
from vtensor.frontends.tensors import Array
from vtensor.language.operators import info_of, run_compute
from vtensor.language.tensor import VTensor
from vtensor.runtime.record import NormalEvaluation


def run_definition(node: str, op: object, operands: Sequence[tuple[VTensor, Array]]) -> list[Array]:
    """An operator on arrays, by the library that defines it.

    Args:
        node: what messages call it.
        op: the operator.
        operands: each with its values, in presentation order.
    """
    deciding = DispatchContext(node, preferences=Preferences(nodes={node: info_of(op).definition}))
    with installed(PartialEvaluation()):
        run_compute(deciding, op, [_tensor(v, a, Layout.plain(v.dims)) for v, a in operands])
    variant = deciding.variant
    if variant is None:
        raise ModelError(f"{node}: no layouts were decided")
    tensors = [
        _tensor(value, array, layout)
        for (value, array), layout in zip(operands, variant.layouts, strict=False)
    ]
    with installed(NormalEvaluation()), np.errstate(all="ignore"):
        outputs = run_compute(_Running(node, variant=variant), op, tensors)
    return [_array(output) for output in outputs]


def _tensor(value: VTensor, array: Array, layout: Layout) -> VTensor:
    """A value of this description in a layout, its data there."""
    tensor = VTensor(value.dtype, value.dims)
    tensor.storage = TensorStorage.of_array(array, tensor, layout, constant=True)
    tensor.produced_layout = layout
    return tensor


def _array(value: VTensor) -> Array:
    storage = value.storage
    assert isinstance(storage, TensorStorage)
    return unpack(storage.data(), storage.layout, list(value.dims), value.dims, value.dtype)


class _Running(DispatchContext):
    """The context of an operator that runs now: outputs get memory in their decided layouts."""

    def dispatch(self, op: object, inputs: Sequence[VTensor], outputs: Sequence[VTensor]) -> None:
        """Take the memory, then dispatch."""
        assert self.variant is not None
        layouts = self.variant.layouts[-len(outputs) :]
        for value, layout in zip(outputs, layouts, strict=True):
            buffer = Buffer.allocate(layout.nbytes(value.dims, value.dtype))
            value.storage = TensorStorage(value.dtype, value.dims, layout, buffer)
        dispatcher(info_of(op).name, self.device)(self, op, inputs, outputs)
