"""Where the largest and the smallest elements are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from libdesc import invoker
from libdesc.numpy.arrays import NUMBERS, wide
from ops._names import same_names
from ops._normalizations import positions, without
from ops._writing import parameters
from ptensor import Layout, PTensor, lib_tagger
from vtensor.errors import DimError
from vtensor.operators import (
    Context,
    Cost,
    Naming,
    NodeReader,
    NodeWriter,
    Spelling,
    operator,
    param,
)
from vtensor.tensor import VTensor

Array = np.ndarray[Any, Any]

_TYPES = {"x": NUMBERS}


def _names(node: Naming) -> None:
    axis, rank = int(node.attribute("axis", 0)), node.rank("x0")
    kept = list(range(rank))
    if not node.attribute("keepdims", 1):
        kept = [position for position in kept if position != axis % rank]
    for place, position in enumerate(kept):
        node.same("x0", position, "y0", place)


def _spelling(op_type: str, make: Callable[..., _Place]) -> Spelling:
    def read(node: NodeReader) -> VTensor:
        x = node.input(0)
        axis = node.axis(int(node.attribute("axis", 0)), x)
        last = bool(node.attribute("select_last_index", 0))
        return node.add(make(axis, bool(node.attribute("keepdims", 1)), last), x)

    def write(node: NodeWriter, op: _Place) -> None:
        [x] = node.inputs
        [axis] = positions(x, (op.axis,))
        node.emit(op_type, node.operand(x), **{**parameters(op), "axis": axis})

    return Spelling(op_type, 1, read, _names, write=write)


@dataclass(frozen=True)
class _Place:
    """The parameters and the result of both."""

    axis: str = param()
    keepdims: bool = param(default=True)
    select_last_index: bool = param(default=False)

    def compute(self, ctx: Context, x: VTensor) -> VTensor:
        """Places along the axis."""
        if x.size(self.axis) == 0:
            raise DimError(f"{self.axis} has no elements")
        y = VTensor("s64", without(x, (self.axis,), self.keepdims), ctx.output(0))
        ctx.dispatch(self, [x], [y])
        return y


@operator(
    "ArgMax",
    dims={"x": "*", "y": "*"},
    onnx=_spelling("ArgMax", lambda *given: ArgMax(*given)),
    traits=[Cost(1)],
)
class ArgMax(_Place):
    """Where along a dim the largest element is.

    Dims:
        x: any    y: x's, without ``axis`` or with size 1 there; s64
    Args:
        axis: the dim.
        keepdims: keep the dim, with size 1.
        select_last_index: of equal ones the last, not the first.
    Raises:
        DimError: x has no such dim, or no elements along it.

    >>> from vtensor.operators import Context
    >>> ArgMax("C", keepdims=False).compute(Context(), VTensor("f32", {"N": 2, "C": 9})).summary()
    's64 N=2'

    Source: ONNX operator ArgMax, opset 13.
    """


@operator(
    "ArgMin",
    dims={"x": "*", "y": "*"},
    onnx=_spelling("ArgMin", lambda *given: ArgMin(*given)),
    traits=[Cost(1)],
)
class ArgMin(_Place):
    """Where along a dim the smallest element is.

    Dims:
        x: any    y: x's, without ``axis`` or with size 1 there; s64
    Args:
        axis: the dim.
        keepdims: keep the dim, with size 1.
        select_last_index: of equal ones the last, not the first.
    Raises:
        DimError: x has no such dim, or no elements along it.

    >>> from vtensor.operators import Context
    >>> ArgMin("C").compute(Context(), VTensor("f32", {"N": 2, "C": 9})).summary()
    's64 N=2 C=1'

    Source: ONNX operator ArgMin, opset 13.
    """


@invoker("ArgMax", library="numpy", dtypes=_TYPES, python=True)
@invoker("ArgMin", library="numpy", dtypes=_TYPES, python=True)
def numpy_place(ctx: Context, op: _Place, x: VTensor, y: VTensor) -> None:
    order = Layout.plain(x.dims)
    src, dst = PTensor(x).require(order), PTensor(y).require(Layout.plain(y.dims))
    if lib_tagger("numpy", [src], [dst]):
        return
    find = np.argmax if isinstance(op, ArgMax) else np.argmin
    axis, values = order.dims.index(op.axis), wide(src.data())
    if op.select_last_index:
        found = values.shape[axis] - 1 - find(np.flip(values, axis), axis=axis)
    else:
        found = find(values, axis=axis)
    dst.data()[...] = found.reshape(dst.data().shape)


def _top_names(node: Naming) -> None:
    same_names(node)
    for position in range(node.rank("x0")):
        node.same("x0", position, "y1", position)


def _read_top(node: NodeReader) -> Sequence[VTensor]:
    x = node.input(0)
    k = int(node.attribute("k") if node.opset < 10 else node.constant(1).item())
    axis = node.axis(int(node.attribute("axis", -1)), x)
    largest, in_order = bool(node.attribute("largest", 1)), bool(node.attribute("sorted", 1))
    if not 0 <= k <= x.size(axis):
        raise node.refuse(f"k = {k} of {x.size(axis)} elements")
    result: Any = node.add(TopK(axis, k, largest, in_order), x)
    return list(result)


def _write_top(node: NodeWriter, op: TopK) -> None:
    [x] = node.inputs
    [axis] = positions(x, (op.axis,))
    k = node.constant([op.k])
    node.emit("TopK", node.operand(x), k, axis=axis, largest=op.largest, sorted=op.sorted)


@operator(
    "TopK",
    dims={"x": "*", "values": "*", "indices": "*"},
    onnx=Spelling("TopK", 1, _read_top, _top_names, write=_write_top),
)
class TopK:
    """The k largest or smallest elements along a dim, and where they are.

    Of equal elements the first comes first.

    Dims:
        x: any    values, indices: the same, of size k along ``axis``; indices are s64
    Args:
        axis: the dim.
        k: how many.
        largest: the largest, not the smallest.
        sorted: in their order; the definition sorts them in any case.
    Raises:
        DimError: x has no such dim, or fewer elements along it.

    >>> from vtensor.operators import Context
    >>> values, indices = TopK("C", 5).compute(Context(), VTensor("f32", {"N": 2, "C": 9}))
    >>> values.summary(), indices.summary()
    ('f32 N=2 C=5', 's64 N=2 C=5')

    Source: ONNX operator TopK, opset 11.
    """

    axis: str = param()
    k: int = param(minimum=0)
    largest: bool = param(default=True)
    sorted: bool = param(default=True)

    def compute(self, ctx: Context, x: VTensor) -> tuple[VTensor, VTensor]:
        if self.k > x.size(self.axis):
            raise DimError(f"the first {self.k} of {x.size(self.axis)} elements")
        sizes = {**x.dims, self.axis: self.k}
        values, indices = (
            VTensor(x.dtype, sizes, ctx.output(0)),
            VTensor("s64", sizes, ctx.output(1)),
        )
        ctx.dispatch(self, [x], [values, indices])
        return values, indices


@invoker("TopK", library="numpy", dtypes=_TYPES, python=True)
def numpy_topk(ctx: Context, op: TopK, x: VTensor, values: VTensor, indices: VTensor) -> None:
    order = Layout.plain(x.dims)
    src, top, places = (PTensor(t).require(order) for t in (x, values, indices))
    if lib_tagger("numpy", [src], [top, places]):
        return
    axis, data = order.dims.index(op.axis), wide(src.data())
    if op.largest:  # backwards, so that of equal ones the first stays first
        back = np.argsort(np.flip(data, axis), axis=axis, kind="stable")
        ranked = data.shape[axis] - 1 - np.flip(back, axis)
    else:
        ranked = np.argsort(data, axis=axis, kind="stable")
    places.data()[...] = np.take(ranked, range(op.k), axis=axis)
    top.data()[...] = np.take_along_axis(src.data(), places.data(), axis)
