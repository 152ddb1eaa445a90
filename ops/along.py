"""Running sums and products, triangles, and ones at places."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from libdesc import invoker
from libdesc.numpy.arrays import NUMBERS, wide
from ops._names import same_names
from ops._normalizations import behind, positions
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


def _running(op_type: str, since: int, make: Callable[..., _Running]) -> Spelling:
    def read(node: NodeReader) -> VTensor:
        x = node.input(0)
        axis = node.axis(int(node.constant(1).item()), x)
        flags = (bool(node.attribute(name, 0)) for name in ("exclusive", "reverse"))
        return node.add(make(axis, *flags), x)

    def write(node: NodeWriter, op: _Running) -> None:
        [x] = node.inputs
        [axis] = positions(x, (op.axis,))
        operands = node.operand(x), node.constant(axis)
        node.emit(op_type, *operands, exclusive=op.exclusive, reverse=op.reverse)

    return Spelling(op_type, since, read, same_names, write=write)


@dataclass(frozen=True)
class _Running:
    """The parameters and the result of both."""

    axis: str = param()
    exclusive: bool = param(default=False)
    reverse: bool = param(default=False)

    def compute(self, ctx: Context, x: VTensor) -> VTensor:
        """A total at each element."""
        x.size(self.axis)
        y = VTensor(x.dtype, x.dims, ctx.output(0))
        ctx.dispatch(self, [x], [y])
        return y


@operator(
    "CumSum",
    dims={"x": "*", "y": "*"},
    onnx=_running("CumSum", 11, lambda *given: CumSum(*given)),
    traits=[Cost(1)],
)
class CumSum(_Running):
    """The sum of an element and all before it along a dim.

    Dims:
        x, y: any, the same
    Args:
        axis: the dim.
        exclusive: without the element itself.
        reverse: and all behind it, not before.
    Raises:
        DimError: x has no such dim.

    >>> from vtensor.operators import Context
    >>> CumSum("C").compute(Context(), VTensor("f32", {"N": 2, "C": 9})).summary()
    'f32 N=2 C=9'

    Source: ONNX operator CumSum, opset 14.
    """


@operator(
    "CumProd",
    dims={"x": "*", "y": "*"},
    onnx=_running("CumProd", 26, lambda *given: CumProd(*given)),
    traits=[Cost(1)],
)
class CumProd(_Running):
    """The product of an element and all before it along a dim.

    Dims:
        x, y: any, the same
    Args:
        axis: the dim.
        exclusive: without the element itself.
        reverse: and all behind it, not before.
    Raises:
        DimError: x has no such dim.

    >>> from vtensor.operators import Context
    >>> CumProd("C").compute(Context(), VTensor("f32", {"N": 2, "C": 9})).summary()
    'f32 N=2 C=9'

    Source: ONNX operator CumProd, opset 26.
    """


def _totals(name: str, total: Callable[[Array, int], Array], nothing: int) -> None:
    """NumPy's invoker of one of both; ``nothing`` is the total of no elements."""

    @invoker(name, library="numpy", dtypes=NUMBERS, python=True)
    def run(ctx: Context, op: _Running, x: VTensor, y: VTensor) -> None:
        order = Layout.plain(x.dims)
        src, dst = PTensor(x).require(order), PTensor(y).require(order)
        if lib_tagger("numpy", [src], [dst]):
            return
        axis, terms = order.dims.index(op.axis), wide(src.data())
        if op.reverse:
            terms = np.flip(terms, axis)
        totals = total(terms, axis)
        if op.exclusive:
            first = [(1, 0) if dim == op.axis else (0, 0) for dim in order.dims]
            padded = np.pad(totals, first, constant_values=nothing)
            totals = np.take(padded, range(x.size(op.axis)), axis)
        dst.data()[...] = np.flip(totals, axis) if op.reverse else totals


_totals("CumSum", np.cumsum, 0)
_totals("CumProd", np.cumprod, 1)


def _read_triangle(node: NodeReader) -> VTensor:
    x = node.input(0)
    k = int(node.constant(1).item()) if node.has(1) else 0
    upper = bool(node.attribute("upper", 1))
    return node.add(Trilu(node.axis(-2, x), node.axis(-1, x), k, upper), x)


def _write_triangle(node: NodeWriter, op: Trilu) -> None:
    [x] = node.inputs
    order = behind(list(x.dims), (op.rows, op.columns))
    node.emit("Trilu", node.operand(x, order), node.constant(op.k), order=order, upper=op.upper)


@operator(
    "Trilu",
    dims={"x": "*", "y": "*"},
    onnx=Spelling("Trilu", 14, _read_triangle, same_names, write=_write_triangle),
)
class Trilu:
    """Keep a triangle of each matrix, and put zeros elsewhere.

    Upper keeps column - row >= k, lower column - row <= k.

    Dims:
        x, y: rows columns and any others
    Args:
        rows, columns: the dims of a matrix.
        k: the diagonal where the triangle ends.
        upper: the upper one, not the lower.
    Raises:
        DimError: x has no such dims.

    >>> from vtensor.operators import Context
    >>> Trilu("A", "B").compute(Context(), VTensor("f32", {"A": 2, "B": 3})).summary()
    'f32 A=2 B=3'

    Source: ONNX operator Trilu, opset 14.
    """

    rows: str = param()
    columns: str = param()
    k: int = param(default=0)
    upper: bool = param(default=True)

    def compute(self, ctx: Context, x: VTensor) -> VTensor:
        if self.rows == self.columns or not x.dims.keys() >= {self.rows, self.columns}:
            raise DimError(f"{self.rows} and {self.columns} must be two dims of x")
        y = VTensor(x.dtype, x.dims, ctx.output(0))
        ctx.dispatch(self, [x], [y])
        return y


@invoker("Trilu", library="numpy", python=True)
def numpy_trilu(ctx: Context, op: Trilu, x: VTensor, y: VTensor) -> None:
    rest = [dim for dim in x.dims if dim not in (op.rows, op.columns)]
    order = Layout.plain([*rest, op.rows, op.columns])
    src, dst = PTensor(x).require(order), PTensor(y).require(order)
    if lib_tagger("numpy", [src], [dst]):
        return
    rows, columns = x.size(op.rows), x.size(op.columns)
    beyond = np.arange(columns) - np.arange(rows).reshape(-1, 1) - op.k
    dst.data()[...] = np.where(beyond >= 0 if op.upper else beyond <= 0, src.data(), 0)


def _hot_names(node: Naming) -> None:
    rank = node.rank("y0")
    axis = int(node.attribute("axis", -1)) % rank if rank else 0
    for place, position in enumerate(p for p in range(rank) if p != axis):
        node.same("x0", place, "y0", position)


def _read_hot(node: NodeReader) -> VTensor:
    out, axis = node.output_names(), int(node.attribute("axis", -1))
    if not -len(out) <= axis < len(out):
        raise node.refuse(f"axis {axis} of {len(out)} dims")
    new = out[axis]
    x = node.input(0, " ".join(name for name in out if name != new))
    depth = int(node.constant(1).item())
    return node.add(OneHot(new, depth), x, node.input(2, new))


@operator(
    "OneHot",
    dims={"i": "*", "values": "*", "y": "*"},
    onnx=Spelling("OneHot", 9, _read_hot, _hot_names),
)
class OneHot:
    """One value at each index along a new dim, another elsewhere.

    y[I, axis] = values[1] where axis is i[I], or i[I] + depth, and values[0] elsewhere.

    Dims:
        i: any without axis    values: axis, of size 2    y: i's, then axis
    Args:
        axis: the new dim.
        depth: its size.
    Raises:
        DimError: i has the dim already, or values is no pair along it.

    >>> from vtensor.operators import Context
    >>> i, values = VTensor("s64", {"N": 2}), VTensor("f32", {"class": 2})
    >>> OneHot("class", 10).compute(Context(), i, values).summary()
    'f32 N=2 class=10'

    Source: ONNX operator OneHot, opset 11.
    """

    axis: str = param()
    depth: int = param(minimum=0)

    def compute(self, ctx: Context, i: VTensor, values: VTensor) -> VTensor:
        if self.axis in i.dims or dict(values.dims) != {self.axis: 2}:
            raise DimError(f"{self.axis} must be a new dim, and values a pair along it")
        y = VTensor(values.dtype, {**i.dims, self.axis: self.depth}, ctx.output(0))
        ctx.dispatch(self, [i, values], [y])
        return y


@invoker("OneHot", library="numpy", dtypes={"i": NUMBERS}, python=True)
def numpy_one_hot(ctx: Context, op: OneHot, i: VTensor, values: VTensor, y: VTensor) -> None:
    places, pair, dst = (PTensor(t).require(Layout.plain(t.dims)) for t in (i, values, y))
    if lib_tagger("numpy", [places, pair], [dst]):
        return
    index = places.data()[..., np.newaxis].astype(np.int64)
    hot = np.where(index < 0, index + op.depth, index) == np.arange(op.depth)
    off, on = pair.data()
    dst.data()[...] = np.where(hot, on, off)
