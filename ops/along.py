"""Running totals, one-hot vectors, reversed sequences, triangles and diagonals of matrices."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import numpy as np

from libdesc import Routine, eigen, invoker
from libdesc.numpy import definition
from libdesc.numpy.arrays import NUMBERS, Array, wide
from ops._elements import AHEAD, running_sum
from ops._names import axis_of, from_attributes, same_names
from ops._normalizations import moved_last
from ops._places import INDICES, by_batch, one_output
from ptensor import Layout, PTensor
from vtensor.errors import InputError
from vtensor.language.operators import named
from vtensor.language.records import dataclass
from vtensor.language.traits import Cost
from vtensor.operators import Context, Naming, NodeReader, NodeWriter, Spelling, operator, param
from vtensor.tensor import VTensor

R = TypeVar("R", bound="_Running")


@dataclass(frozen=True)
class _Running:
    """The shared parameters and ``compute`` of CumSum and CumProd."""

    axis: str = param(dims_of="x")
    exclusive: bool = param(default=False)
    reverse: bool = param(default=False)

    def compute(self, ctx: Context, x: VTensor) -> VTensor:
        """Dispatch on x; the output has x's dims."""
        return one_output(ctx, self, [x], x.dims)


def _running(
    name: str, since: int, total: Callable[[Array, int], Array], nothing: int
) -> Callable[[type[R]], type[R]]:
    """Return a decorator that registers CumSum or CumProd, with its invokers.

    Args:
        name: the operator's name, here and in ONNX.
        since: the first opset that has it.
        total: a function from an array and the index of an axis to the running totals, the sums or
            products of each element and all before it.
        nothing: the total of no elements: 0 for a sum, 1 for a product.
    """

    def read(node: NodeReader) -> VTensor:
        axis = node.axis(int(node.constant(1).item()), node.input(0))
        return node.add(from_attributes(node, named(name), axis=axis), node.input(0))

    def write(node: NodeWriter, op: _Running) -> None:
        [x] = node.inputs
        operands = node.operand(x), node.constant(list(x.dims).index(op.axis))
        node.emit(name, *operands, exclusive=op.exclusive, reverse=op.reverse)

    @definition(name, dtypes=NUMBERS)
    def run(ctx: Context, op: _Running, x: PTensor, y: PTensor) -> None:
        axis, terms = list(x.dims).index(op.axis), wide(x.data())
        totals = total(np.flip(terms, axis) if op.reverse else terms, axis)
        if op.exclusive:
            before = [(int(dim == op.axis), 0) for dim in x.dims]
            padded = np.pad(totals, before, constant_values=nothing)
            totals = np.take(padded, range(x.size(op.axis)), axis)
        y.data()[...] = np.flip(totals, axis) if op.reverse else totals

    @invoker(name, library="eigen", dtypes=eigen.COMPARED)
    def native(ctx: Context, op: _Running, x: VTensor, y: VTensor) -> Routine:
        return eigen.running(x, y, op.axis, nothing == 1, op.exclusive, op.reverse)

    spelling = Spelling(name, since, read, same_names, write=write, ahead=AHEAD.get(name))
    return operator(name, dims={"x": "*", "y": "*"}, onnx=spelling, traits=[Cost(1)])


@_running("CumSum", 11, running_sum, 0)
class CumSum(_Running):
    """Add up each element and all before it along a dim.

    Dims:
        x, y: any, the same
    Args:
        axis: the dim.
        exclusive: True leaves out the element itself, so that only those before it count.
        reverse: True takes, with each element, all after it instead of all before it.
    Raises:
        DimError: x has no such dim.

    >>> from vtensor.operators import Context
    >>> CumSum("C").compute(Context(), VTensor("f32", {"N": 2, "C": 9})).summary()
    'f32 N=2 C=9'

    Source: ONNX operator CumSum, opset 14.
    """


@_running("CumProd", 26, np.cumprod, 1)
class CumProd(_Running):
    """Multiply each element and all before it along a dim.

    Dims:
        x, y: any, the same
    Args:
        axis: the dim.
        exclusive: True leaves out the element itself, so that only those before it count.
        reverse: True takes, with each element, all after it instead of all before it.
    Raises:
        DimError: x has no such dim.

    >>> from vtensor.operators import Context
    >>> CumProd("C").compute(Context(), VTensor("f32", {"N": 2, "C": 9})).summary()
    'f32 N=2 C=9'

    Source: ONNX operator CumProd, opset 26.
    """


def _one_hot_names(node: Naming) -> None:
    rank = node.rank("y0")
    axis = int(node.attribute("axis", -1)) % rank if rank else 0
    for place, position in enumerate(p for p in range(rank) if p != axis):
        node.same("x0", place, "y0", position)


def _read_one_hot(node: NodeReader) -> VTensor:
    out, axis = node.output_names(), int(node.attribute("axis", -1))
    if not -len(out) <= axis < len(out):
        raise node.refuse(f"axis {axis} of {len(out)} dims")
    new = out[axis]
    x = node.input(0, " ".join(name for name in out if name != new))
    return node.add(OneHot(new, int(node.constant(1).item())), x, node.input(2, new))


def _values_are_pair(op: OneHot, i: VTensor, values: VTensor) -> bool:
    return op.axis not in i.dims and values.dims == {op.axis: 2}


@operator(
    "OneHot",
    dims={"i": "*", "values": "*", "y": "*"},
    holds=[(_values_are_pair, "{op.axis} must be a new dim, and values a pair along it")],
    onnx=Spelling("OneHot", 9, _read_one_hot, _one_hot_names),
)
class OneHot:
    """Put one value at each index along a new dim, and another elsewhere.

    y[I, axis] = values[1] where axis is i[I] or i[I] + depth, and values[0] elsewhere; I are the
    dims of i.

    Dims:
        i: any without axis    values: axis, of size 2    y: i's, then axis
    Args:
        axis: the new dim.
        depth: its size.
    Raises:
        DimError: i already has ``axis``, or values does not have size 2 along it alone.

    >>> from vtensor.operators import Context
    >>> i, values = VTensor("s64", {"N": 2}), VTensor("f32", {"class": 2})
    >>> OneHot("class", 10).compute(Context(), i, values).summary()
    'f32 N=2 class=10'

    Source: ONNX operator OneHot, opset 11.
    """

    axis: str = param()
    depth: int = param(minimum=0)

    def compute(self, ctx: Context, i: VTensor, values: VTensor) -> VTensor:
        dims = {**i.dims, self.axis: self.depth}
        return one_output(ctx, self, [i, values], dims, values.dtype)


@invoker("OneHot", library="eigen", dtypes={"": eigen.MOVED, "i": INDICES})
def eigen_hot(ctx: Context, op: OneHot, i: VTensor, values: VTensor, y: VTensor) -> Routine:
    return eigen.one_hot(i, values, y, op.depth)


@definition("OneHot", dtypes={"i": NUMBERS})
def one_hot(ctx: Context, op: OneHot, i: PTensor, values: PTensor, y: PTensor) -> None:
    index = i.data()[..., np.newaxis].astype(np.int64)
    hot = np.where(index < 0, index + op.depth, index) == np.arange(op.depth)
    y.data()[...] = np.where(hot, *values.data()[::-1])


def _read_sequences(node: NodeReader) -> VTensor:
    x = node.input(0)
    time, batch = axis_of(node, x, "time_axis"), axis_of(node, x, "batch_axis", 1)
    return node.add(ReverseSequence(time, batch), x, node.input(1, batch))


def _lengths_fit(op: ReverseSequence, x: VTensor, lengths: VTensor) -> bool:
    return op.time != op.batch and lengths.dims == {op.batch: x.size(op.batch)}


@operator(
    "ReverseSequence",
    dims={"x": "*", "lengths": "*", "y": "*"},
    holds=[(_lengths_fit, "lengths must have the dim {op.batch} of x, which is not {op.time}")],
    onnx=Spelling("ReverseSequence", 10, _read_sequences, same_names),
)
class ReverseSequence:
    """Reverse the first ``length`` elements of each sequence; the elements after them stay.

    y[time] = x[length - 1 - time] where time < length, and x[time] elsewhere.

    Dims:
        x, y: time batch and any others, the same    lengths: batch, each sequence's length
    Args:
        time: the dim along which elements follow one another.
        batch: the dim of the sequences, each with a length of its own.
    Raises:
        DimError: x lacks one of these dims, or lengths has other dims than ``batch``.
        InputError: in a run, a length is negative, or larger than x's size along ``time``.

    >>> from vtensor.operators import Context
    >>> x, lengths = VTensor("f32", {"T": 9, "N": 2, "F": 3}), VTensor("s64", {"N": 2})
    >>> ReverseSequence("T", "N").compute(Context(), x, lengths).summary()
    'f32 T=9 N=2 F=3'

    Source: ONNX operator ReverseSequence, opset 10.
    """

    time: str = param(dims_of="x")
    batch: str = param(dims_of="x")

    def compute(self, ctx: Context, x: VTensor, lengths: VTensor) -> VTensor:
        return one_output(ctx, self, [x, lengths], x.dims)


def _by_batch(op: ReverseSequence, *operands: VTensor) -> list[Layout]:
    return by_batch(op.batch, op.time, *operands)


@invoker("ReverseSequence", library="eigen", dtypes={"": eigen.MOVED, "lengths": INDICES})
def eigen_reverse(ctx: Context, op: ReverseSequence, *operands: VTensor) -> Routine:
    return eigen.reverse_sequence(operands, _by_batch(op, *operands))


@definition("ReverseSequence", dtypes={"lengths": INDICES}, orders=_by_batch)
def reverse(ctx: Context, op: ReverseSequence, x: PTensor, lengths: PTensor, y: PTensor) -> None:
    many, time = lengths.data()[:, np.newaxis], np.arange(x.size(op.time))
    if many.size and not 0 <= many.min() <= many.max() <= len(time):
        raise InputError(f"ReverseSequence: lengths {many.ravel()} along {op.time}={len(time)}")
    places = np.where(time < many, many - 1 - time, time)
    y.data()[...] = x.data()[np.arange(len(places))[:, np.newaxis], places]


def _read_triangle(node: NodeReader) -> VTensor:
    x = node.input(0)
    k = int(node.constant(1).item()) if node.has(1) else 0
    upper = bool(node.attribute("upper", 1))
    return node.add(Trilu(node.axis(-2, x), node.axis(-1, x), k, upper), x)


def _write_triangle(node: NodeWriter, op: Trilu) -> None:
    order = moved_last(list(node.inputs[0].dims), (op.rows, op.columns))
    operands = node.operand(node.inputs[0], order), node.constant(op.k)
    node.emit("Trilu", *operands, order=order, upper=op.upper)


@operator(
    "Trilu",
    dims={"x": "*", "y": "*"},
    holds=[(lambda op, _: op.rows != op.columns, "rows and columns must be two dims of x")],
    onnx=Spelling(
        "Trilu", 14, _read_triangle, same_names, write=_write_triangle, ahead=AHEAD["Trilu"]
    ),
)
class Trilu:
    """Keep a triangle of each matrix, and set other elements to 0.

    The upper triangle has the elements with column - row >= k, the lower one those with
    column - row <= k.

    Dims:
        x, y: rows columns and any others
    Args:
        rows, columns: the dims of a matrix.
        k: the diagonal at which the triangle ends: 0 is the main one, 1 the one above it.
        upper: True keeps the upper triangle, False the lower.
    Raises:
        DimError: x has no such dims.

    >>> from vtensor.operators import Context
    >>> Trilu("A", "B").compute(Context(), VTensor("f32", {"A": 2, "B": 3})).summary()
    'f32 A=2 B=3'

    Source: ONNX operator Trilu, opset 14.
    """

    rows: str = param(dims_of="x")
    columns: str = param(dims_of="x")
    k: int = param(default=0)
    upper: bool = param(default=True)

    def compute(self, ctx: Context, x: VTensor) -> VTensor:
        return one_output(ctx, self, [x], x.dims)


def _matrices(op: Trilu, x: VTensor, y: VTensor) -> list[Layout]:
    return [Layout.plain(moved_last(list(x.dims), (op.rows, op.columns)))] * 2


@invoker("Trilu", library="eigen", dtypes=eigen.MOVED)
def eigen_triangle(ctx: Context, op: Trilu, x: VTensor, y: VTensor) -> Routine:
    order = moved_last(list(x.dims), (op.rows, op.columns))
    return eigen.triangle(x, y, order, op.k, op.upper)


@definition("Trilu", orders=_matrices)
def triangle(ctx: Context, op: Trilu, x: PTensor, y: PTensor) -> None:
    beyond = np.arange(x.size(op.columns)) - np.arange(x.size(op.rows)).reshape(-1, 1) - op.k
    y.data()[...] = np.where(beyond >= 0 if op.upper else beyond <= 0, x.data(), 0)


def _read_diagonal(node: NodeReader) -> VTensor:
    x = node.input(0)
    dtype, k = node.element_type("dtype") or x.dtype, int(node.attribute("k", 0))
    return node.add(EyeLike(node.axis(0, x), node.axis(1, x), dtype, k), x)


@operator(
    "EyeLike",
    dims={"x": "*", "y": "*"},
    holds=[(lambda op, x: len(x.dims) == 2 and op.rows != op.columns, "x must have two dims")],
    onnx=Spelling("EyeLike", 9, _read_diagonal, same_names),
)
class EyeLike:
    """Make a matrix with the sizes of another, with ones on a diagonal and zeros elsewhere.

    Dims:
        x, y: rows and columns
    Args:
        rows, columns: the dims.
        dtype: y's element type.
        k: the diagonal with the ones: 0 is the main one, 1 the one above it.
    Raises:
        DimError: x has other dims than ``rows`` and ``columns``.

    >>> from vtensor.operators import Context
    >>> EyeLike("A", "B", "u8").compute(Context(), VTensor("f32", {"A": 2, "B": 3})).summary()
    'u8 A=2 B=3'

    Source: ONNX operator EyeLike, opset 9.
    """

    rows: str = param(dims_of="x")
    columns: str = param(dims_of="x")
    dtype: str = param(default="f32")
    k: int = param(default=0)

    def compute(self, ctx: Context, x: VTensor) -> VTensor:
        return one_output(ctx, self, [x], x.dims, self.dtype)


@invoker("EyeLike", library="eigen", dtypes={"y": eigen.MOVED})
def eigen_diagonal(ctx: Context, op: EyeLike, x: VTensor, y: VTensor) -> Routine:
    return eigen.diagonal(x, y, [op.rows, op.columns], op.k)


@definition("EyeLike", orders=lambda op, *_: [Layout.ANY, Layout.plain([op.rows, op.columns])])
def diagonal(ctx: Context, op: EyeLike, x: PTensor, y: PTensor) -> None:
    y.data()[...] = np.eye(x.size(op.rows), x.size(op.columns), op.k)
