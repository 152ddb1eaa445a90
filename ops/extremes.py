"""Indices of the largest and smallest elements, and the k largest or smallest."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from libdesc import Routine, eigen, invoker
from libdesc.numpy import definition
from libdesc.numpy.arrays import NUMBERS, wide
from ops._names import from_attributes, same_names
from ops._normalizations import positions, without
from ops._places import one_output
from ops._writing import parameters
from ptensor import PTensor
from vtensor.errors import DimError
from vtensor.language.records import dataclass
from vtensor.language.spelling import Naming, NodeReader, NodeWriter, Spelling
from vtensor.operators import Context, Cost, named, operator, param
from vtensor.tensor import VTensor


def _names(node: Naming) -> None:
    axis, rank = int(node.attribute("axis", 0)), node.rank("x0")
    kept = [each for each in range(rank) if node.attribute("keepdims", 1) or each != axis % rank]
    for place, position in enumerate(kept):
        node.same("x0", position, "y0", place)


@dataclass(frozen=True)
class _Extreme:
    """The shared parameters and ``compute`` of ArgMax and ArgMin."""

    axis: str = param(dims_of="x")
    keepdims: bool = param(default=True)
    select_last_index: bool = param(default=False)

    def compute(self, ctx: Context, x: VTensor) -> VTensor:
        """Dispatch on x, and return the output: s64 indices, from 0, along ``axis``."""
        return one_output(ctx, self, [x], without(x, (self.axis,), self.keepdims), "s64")


def _extreme(name: str, find: Callable[..., Any]) -> Callable[[type[_Extreme]], type[_Extreme]]:
    """Return a decorator that registers ArgMax or ArgMin, with its invokers.

    ``name`` is the operator's name. ``find`` is NumPy's function, which takes an array and the
    index of an axis and returns the index of the first extreme element along it.
    """

    def read(node: NodeReader) -> VTensor:
        axis = node.axis(int(node.attribute("axis", 0)), node.input(0))
        return node.add(from_attributes(node, named(name), axis=axis), node.input(0))

    def write(node: NodeWriter, op: _Extreme) -> None:
        [x] = node.inputs
        node.emit(name, node.operand(x), **parameters(op) | {"axis": positions(x, (op.axis,))[0]})

    @definition(name, dtypes={"x": NUMBERS})
    def compute(ctx: Context, op: _Extreme, x: PTensor, y: PTensor) -> None:
        axis, values = x.required_layout.dims.index(op.axis), wide(x.data())
        index = find(np.flip(values, axis) if op.select_last_index else values, axis)
        last = values.shape[axis] - 1
        y.data()[...] = np.reshape(last - index if op.select_last_index else index, y.data().shape)

    @invoker(name, library="eigen", dtypes={"x": eigen.COMPARED})
    def native(ctx: Context, op: _Extreme, x: VTensor, y: VTensor) -> Routine:
        return eigen.extreme_place(x, y, op.axis, name == "ArgMax", op.select_last_index)

    return operator(
        name,
        dims={"x": "*", "y": "*"},
        holds=[(lambda op, x: x.size(op.axis) != 0, "{op.axis} has no elements")],
        onnx=Spelling(name, 1, read, _names, write=write),
        traits=[Cost(1)],
    )


@_extreme("ArgMax", np.argmax)
class ArgMax(_Extreme):
    """Find the index of the largest element along a dim.

    Dims:
        x: any    y: x's, without ``axis`` or with size 1 there; s64
    Args:
        axis: the dim.
        keepdims: True keeps the dim, with size 1.
        select_last_index: True takes the last of equal elements, not the first.
    Raises:
        DimError: x has no such dim, or no elements along it.

    >>> from vtensor.operators import Context
    >>> ArgMax("C", keepdims=False).compute(Context(), VTensor("f32", {"N": 2, "C": 9})).summary()
    's64 N=2'

    Source: ONNX operator ArgMax, opset 13.
    """


@_extreme("ArgMin", np.argmin)
class ArgMin(_Extreme):
    """Find the index of the smallest element along a dim.

    Dims:
        x: any    y: x's, without ``axis`` or with size 1 there; s64
    Args:
        axis: the dim.
        keepdims: True keeps the dim, with size 1.
        select_last_index: True takes the last of equal elements, not the first.
    Raises:
        DimError: x has no such dim, or no elements along it.

    >>> from vtensor.operators import Context
    >>> ArgMin("C").compute(Context(), VTensor("f32", {"N": 2, "C": 9})).summary()
    's64 N=2 C=1'

    Source: ONNX operator ArgMin, opset 13.
    """


def _top_names(node: Naming) -> None:
    same_names(node)
    same_names(node, "x0", "y1")


def _read_top(node: NodeReader) -> Sequence[VTensor]:
    x = node.input(0)
    k = int(node.attribute("k") if node.opset < 10 else node.constant(1).item())
    axis = node.axis(int(node.attribute("axis", -1)), x)
    if not 0 <= k <= x.size(axis):
        raise node.refuse(f"k = {k} of {x.size(axis)} elements")
    result: Any = node.add(from_attributes(node, TopK, axis=axis, k=k), x)
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
    """Find the k largest or smallest elements along a dim, and their indices.

    Equal elements keep their order.

    Dims:
        x: any    values, indices: the same, of size k along ``axis``; indices are s64
    Args:
        axis: the dim.
        k: the number of elements.
        largest: True takes the largest, False the smallest.
        sorted: True returns the elements sorted; False allows any order.
    Raises:
        DimError: x has no such dim, or fewer than k elements along it.

    >>> from vtensor.operators import Context
    >>> values, indices = TopK("C", 5).compute(Context(), VTensor("f32", {"N": 2, "C": 9}))
    >>> values.summary(), indices.summary()
    ('f32 N=2 C=5', 's64 N=2 C=5')

    Source: ONNX operator TopK, opset 11.
    """

    axis: str = param(dims_of="x")
    k: int = param(minimum=0)
    largest: bool = param(default=True)
    sorted: bool = param(default=True)

    def compute(self, ctx: Context, x: VTensor) -> tuple[VTensor, VTensor]:
        if self.k > x.size(self.axis):
            raise DimError(f"k={self.k} elements along {self.axis}, which has {x.size(self.axis)}")
        sizes = {**x.dims, self.axis: self.k}
        values = VTensor(x.dtype, sizes, ctx.output(0))
        indices = VTensor("s64", sizes, ctx.output(1))
        ctx.dispatch(self, [x], [values, indices])
        return values, indices


@invoker("TopK", library="eigen", dtypes={"x": eigen.COMPARED})
def eigen_topk(ctx: Context, op: TopK, x: VTensor, values: VTensor, indices: VTensor) -> Routine:
    return eigen.top(x, values, indices, op.axis, op.k, op.largest)


@definition("TopK", dtypes={"x": NUMBERS})
def topk(ctx: Context, op: TopK, x: PTensor, values: PTensor, indices: PTensor) -> None:
    axis, data = x.required_layout.dims.index(op.axis), wide(x.data())
    if op.largest:  # sorted backwards, so that equal elements keep their order
        back = np.argsort(np.flip(data, axis), axis=axis, kind="stable")
        ranked = data.shape[axis] - 1 - np.flip(back, axis)
    else:
        ranked = np.argsort(data, axis=axis, kind="stable")
    indices.data()[...] = np.take(ranked, range(op.k), axis=axis)
    values.data()[...] = np.take_along_axis(x.data(), indices.data(), axis)
