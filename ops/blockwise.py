"""Products with, and lookups in, weights of 2, 4 or 8 bits that stay packed in memory."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from libdesc import invoker, narrow, rewrite
from libdesc.numpy import definition
from libdesc.numpy.arrays import FLOATS, Array, wide
from libdesc.routine import Routine
from ops._blocks import (
    BITS,
    SMALLEST,
    Packed,
    along,
    block_size,
    packed,
    repacked,
    sized,
    unpacked,
)
from ops._codes import MICROSOFT
from ops._names import fresh
from ops._places import INDICES, checked_indices, one_output
from ptensor import Layout, PTensor
from vtensor.operators import (
    Context,
    Cost,
    Linear,
    Match,
    Naming,
    NodeReader,
    Spelling,
    named,
    operator,
    param,
)
from vtensor.tensor import VTensor


class _Blocks:
    """The base of operators on packed weights, with the parameters of ``Packed.names``."""

    over: str
    block: str
    byte: str
    bits: int

    def rows(self, w: VTensor) -> dict[str, int]:
        """Return the sizes, by dim, of the dims of weights that are not along a block."""
        return {dim: n for dim, n in w.dims.items() if dim not in (self.block, self.byte)}

    def orders(self, w: VTensor) -> list[Layout]:
        """Return the layouts of weights and their scales: rows, then blocks."""
        rows = [*self.rows(w), self.block]
        return [Layout.plain([*rows, self.byte]), Layout.plain(rows)]

    def numbers(self, depth: int, w: Array, scales: Array, *zeros: Array) -> Array:
        """Return what weights stand for, with rows first and ``over`` last."""
        codes = unpacked(w, self.bits).astype(wide(scales).dtype)
        zero = wide(zeros[0])[..., np.newaxis] if zeros else 1 << (self.bits - 1)
        whole = (codes - zero) * wide(scales)[..., np.newaxis]
        return whole.reshape(*w.shape[:-2], prod(whole.shape[-2:]))[..., :depth]


def _are_blocks(op: Any, w: VTensor) -> bool:
    size = w.dims.get(op.byte, 0) * 8 // op.bits
    named_apart = op.block != op.byte and op.over not in (op.block, op.byte)
    return op.block in w.dims and named_apart and size >= SMALLEST and not size & (size - 1)


def _hold(op: Any, depth: int, w: VTensor, *by: VTensor) -> bool:
    """Return whether blocks cover ``depth`` codes, with scales and zeros for each block."""
    scales = {dim: n for dim, n in w.dims.items() if dim != op.byte}
    size, blocks = w.size(op.byte) * 8 // op.bits, w.size(op.block)
    known = 1 <= len(by) <= 2 and all(dict(each.dims) == scales for each in by)
    covers = 0 < depth <= blocks * size and (blocks - 1) * size < depth
    return known and covers and op.over not in op.rows(w)


_SHAPE = "w must have {op.block} and {op.byte}, and blocks of a power of two of codes, at least 16"
_COVER = "w, its scales and zeros must have one size, and blocks must just cover {op.over}"
_WEIGHTS = {"w": ["u8"], "zeros": ["u8", "f32"]}
_DEFINED = {"w": ["u8"], "scales": FLOATS, "zeros": ["u8", *FLOATS]}


def _product_names(node: Naming) -> None:
    for place in range(node.rank("x0") - 1):
        node.same("x0", place, "y0", place)


def _weights(node: NodeReader, column: str, over: str) -> Packed:
    """Return the weights of a MatMulNBits node, whose dims are ``column`` and ``over``."""
    bits, (depth, outputs) = (
        int(node.attribute("bits", 4)),
        (int(node.attribute(name, 0)) for name in ("K", "N")),
    )
    size = block_size(node, bits)
    if depth < 1 or outputs < 1:
        raise node.refuse(f"weights of K={depth} and N={outputs}")
    names, blocks = along(node, over, depth, (column, over), bits), -(-depth // size)
    whole = {column: outputs, names.block: blocks, names.byte: size * bits // 8}
    scales = {column: outputs, names.block: blocks}
    own = [sized(node, 1, whole), sized(node, 2, scales)]
    if own[0].dtype != "u8":
        raise node.refuse(f"input 1 is {own[0].summary()}; expected u8")
    if node.has(3):
        own.append(_zeros(node, bits, scales))
    return names._replace(operands=tuple(own))


def _zeros(node: NodeReader, bits: int, dims: dict[str, int]) -> VTensor:
    """Return the zero points of a MatMulNBits node, one for each block."""
    zeros = node.input(3)
    if zeros.dtype == "u8" and bits < 8:
        outputs, blocks = dims.values()
        each = -(-blocks * bits // 8)
        if zeros.num_elements != outputs * each:
            raise node.refuse(f"input 3 is {zeros.summary()}; expected {outputs} x {each} bytes")
        codes = unpacked(np.asarray(node.constant(3)).reshape(outputs, each), bits)
        return node.made(np.ascontiguousarray(codes[:, :blocks]), [*dims])
    if zeros.dtype not in ("u8", node.input(2).dtype):
        raise node.refuse(f"input 3 is {zeros.summary()}; expected u8 or the scales' type")
    return sized(node, 3, dims)


def _read(node: NodeReader) -> VTensor:
    x, out = node.input(0), node.output_names()
    over = fresh(list(x.dims)[-1], out)
    x = node.input(0, " ".join([*out[:-1], over]))
    weights, level = _weights(node, out[-1], over), int(node.attribute("accuracy_level", 0))
    if x.size(over) != weights.depth or x.dtype != node.input(2).dtype:
        text = f"input 0 is {x.summary()}, scales are {node.input(2).dtype}; expected one type"
        raise node.refuse(f"{text} and K={weights.depth} as the last size")
    if not 0 <= level <= _INTEGERS or node.attribute("weight_prepacked", 0):
        raise node.refuse(f"accuracy_level {level} is unknown, or weights are prepacked for a GPU")
    if node.has(4):
        x, weights = _by_group(node, x, weights)
        level = 0  # groups are not blocks of x; f32 is more than any level asks for
    op = MatMulNBits(accuracy_level=level, **weights.names)
    y: VTensor = node.add(op, x, *weights.operands)
    if not node.has(5):
        return y
    result: VTensor = node.add(named("BiasAdd")(), y, sized(node, 5, {out[-1]: y.size(out[-1])}))
    return result


def _by_group(node: NodeReader, x: VTensor, weights: Packed) -> tuple[VTensor, Packed]:
    """Return x and weights in another order, in which the codes of a group are blocks.

    The node's input 4 says for each code which scale and zero it has. Blocks that a group does not
    fill are multiplied by a 0, which is appended to x.
    """
    depth, bits = weights.depth, weights.bits
    groups = np.asarray(node.constant(4)).reshape(-1)[:depth]
    codes, *by = weights.operands
    size, blocks = codes.size(weights.byte) * 8 // bits, codes.size(weights.block)
    if groups.size < depth or groups.min() < 0 or groups.max() >= blocks:
        raise node.refuse(f"input 4 must have {depth} numbers of groups, below {blocks}")
    if np.array_equal(groups, np.arange(depth) // size):
        return x, weights
    rows, owners = list[Array](), list[int]()
    for group in range(blocks):
        own = np.flatnonzero(groups == group)
        whole = np.full(-(-own.size // size) * size, depth)
        whole[: own.size] = own
        rows.append(whole)
        owners += [group] * (whole.size // size)
    order = np.concatenate(rows)
    [column] = codes.dims.keys() - {weights.block, weights.byte}
    given = np.asarray(node.constant(1)).reshape(tuple(codes.dims.values()))
    numbers = unpacked(given, bits).reshape(codes.size(column), -1)
    numbers = np.concatenate([numbers[:, :depth], numbers[:, :1]], axis=1)[:, order]
    if (order == depth).any():
        x = node.add(named("Pad")((weights.over,), (0, 1)), x)
    over = fresh(f"{weights.over}_ordered", (*x.dims, *codes.dims))
    x = node.add(named("Gather")(weights.over), x, node.made(order, [over]))
    names = along(node, over, order.size, (*x.dims, *codes.dims), bits)
    made = [node.made(packed(numbers, bits, size), [column, names.block, names.byte])]
    for index in (2, 3)[: len(by)]:
        array = np.asarray(node.constant(index))
        if index == 3 and array.dtype == np.uint8:
            each = -(-blocks * bits // 8)
            array = unpacked(array.reshape(codes.size(column), each), bits)[:, :blocks]
        array = array.reshape(codes.size(column), blocks)[:, owners]
        made.append(node.made(np.ascontiguousarray(array), [column, names.block]))
    return x, names._replace(operands=tuple(made))


#: The ``accuracy_level`` at which x may be rounded to 8 bits.
_INTEGERS = 4


def _fit_product(op: MatMulNBits, x: VTensor, w: VTensor, *by: VTensor) -> bool:
    apart = not (x.dims.keys() & w.dims.keys())
    return apart and op.over in x.dims and _hold(op, x.size(op.over), w, *by)


@operator(
    "MatMulNBits",
    dims={"x": "*", "w": "*", "scales": "*", "zeros": "*", "y": "*"},
    holds=[(lambda op, _, w, *__: _are_blocks(op, w), _SHAPE), (_fit_product, _COVER)],
    onnx=Spelling(
        f"{MICROSOFT}MatMulNBits", 1, _read, _product_names, rank=lambda node: node.rank("x0")
    ),
    traits=[
        Cost(lambda op, x, *more: 2 * x.size(op.over) * more[-1].num_elements),
        Linear({"scales": {}}),
    ],
)
class MatMulNBits(_Blocks):
    """Multiply by weights of 2, 4 or 8 bits, and sum over a dim.

    y[M, N] = sum over K of x[M, K] * (code[N, K] - zero[N, K / block]) * scale[N, K / block], where
    K is ``over``, M are x's other dims, and N those of the weights.

    Dims:
        x: over and any others    w: N, block, byte    scales: N, block    y: M, N
        zeros: as scales; if absent, zero is 2^(bits - 1)
    Args:
        over: the dim to sum over.
        block: the dim of w's blocks. They just cover ``over``: the last may be used in part.
        byte: the dim of the bytes of a block of w. The first code is in the lowest bits.
        bits: the bits of a code: 2, 4 or 8.
        accuracy_level: 4 rounds x to 8 bits first, by a scale for each row and block: its largest
            magnitude / 127. All others multiply x as it is.
    Raises:
        DimError: dims are missing or differ, or blocks are not of a power of two of codes, at least
            16.
    Cost:
        2 * M*N*K floating-point operations.

    >>> from vtensor.operators import Context
    >>> x, w = VTensor("f32", {"M": 3, "K": 64}), VTensor("u8", {"N": 5, "block": 2, "byte": 16})
    >>> scales = VTensor("f32", {"N": 5, "block": 2})
    >>> MatMulNBits("K", "block", "byte").compute(Context(), x, w, scales).summary()
    'f32 M=3 N=5'

    Source: ONNX Runtime operator MatMulNBits, of the domain com.microsoft.
    """

    over: str = param(dims_of="x")
    block: str = param(dims_of="w")
    byte: str = param(dims_of="w")
    bits: int = param(default=4, choices=BITS)
    accuracy_level: int = param(default=0, minimum=0, maximum=_INTEGERS)

    def compute(
        self, ctx: Context, x: VTensor, w: VTensor, scales: VTensor, *zeros: VTensor
    ) -> VTensor:
        others = {dim: n for dim, n in x.dims.items() if dim != self.over}
        return one_output(ctx, self, [x, w, scales, *zeros], {**others, **self.rows(w)})


def _product_orders(op: MatMulNBits, x: VTensor, w: VTensor, *more: VTensor) -> list[Layout]:
    others = [dim for dim in x.dims if dim != op.over]
    codes, scales = op.orders(w)
    y = Layout.plain([*others, *op.rows(w)])
    return [Layout.plain([*others, op.over]), codes, *[scales] * (len(more) - 1), y]


@invoker("MatMulNBits", library="narrow", dtypes={"": ["f32"], **_WEIGHTS})
def narrow_product(ctx: Context, op: MatMulNBits, *operands: VTensor) -> Routine:
    orders = _product_orders(op, *operands)
    rounded = op.accuracy_level == _INTEGERS
    return narrow.BlockProduct(operands, orders, op.bits, rounded, follow=ctx.followers)


def _rounded(x: Array, block: int) -> Array:
    """Return numbers rounded to 8 bits along the last axis, by a scale for each block."""
    whole = np.zeros((*x.shape[:-1], -(-x.shape[-1] // block) * block), np.float32)
    whole[..., : x.shape[-1]] = x
    parts = whole.reshape(*x.shape[:-1], whole.shape[-1] // block, block)
    most = np.abs(parts).max(-1, keepdims=True)
    inverse = np.where(most == 0, np.float32(0), np.float32(127) / most)
    codes = np.rint(parts * inverse)
    result: Array = (codes * (most / np.float32(127))).reshape(whole.shape)[..., : x.shape[-1]]
    return result


@definition("MatMulNBits", dtypes={"x": FLOATS, **_DEFINED}, orders=_product_orders)
def product(ctx: Context, op: MatMulNBits, x: PTensor, w: PTensor, *more: PTensor) -> None:
    *by, y = more
    depth = x.size(op.over)
    rows = wide(x.data()).reshape(prod(x.data().shape[:-1]), depth)
    if op.accuracy_level == _INTEGERS:
        rows = _rounded(rows, w.size(op.byte) * 8 // op.bits)
    numbers = op.numbers(depth, w.data(), *(each.data() for each in by))
    y.data()[...] = (rows @ numbers.reshape(prod(numbers.shape[:-1]), depth).T).reshape(
        y.data().shape
    )


def _fit_all(op: DequantizeBlocks, w: VTensor, *by: VTensor) -> bool:
    return _hold(op, op.depth, w, *by)


@operator(
    "DequantizeBlocks",
    dims={"w": "*", "scales": "*", "zeros": "*", "y": "*"},
    holds=[(lambda op, w, *_: _are_blocks(op, w), _SHAPE), (_fit_all, _COVER)],
)
class DequantizeBlocks(_Blocks):
    """Make numbers of weights of 2, 4 or 8 bits: y = (code - zero) * scale.

    Dims:
        w: any, block, byte    scales: the same without byte    y: the others of w, and over
        zeros: as scales; if absent, zero is 2^(bits - 1)
    Args:
        depth: y's size along ``over``.
        over: the dim of y that w has in blocks.
        block, byte, bits: as for MatMulNBits.
    Raises:
        DimError: as MatMulNBits.

    >>> from vtensor.operators import Context
    >>> w, scales = VTensor("u8", {"N": 5, "b": 2, "byte": 16}), VTensor("f32", {"N": 5, "b": 2})
    >>> DequantizeBlocks(50, "K", "b", "byte").compute(Context(), w, scales).summary()
    'f32 N=5 K=50'

    Source: ONNX operator DequantizeLinear, opset 21, with ``block_size``.
    """

    depth: int = param(minimum=1)
    over: str = param()
    block: str = param(dims_of="w")
    byte: str = param(dims_of="w")
    bits: int = param(default=4, choices=BITS)

    def result_type(self, types: list[str]) -> str:
        """Return the type of the scales."""
        return types[1]

    def compute(self, ctx: Context, w: VTensor, scales: VTensor, *zeros: VTensor) -> VTensor:
        dims = {**self.rows(w), self.over: self.depth}
        return one_output(ctx, self, [w, scales, *zeros], dims, scales.dtype)


def _all_orders(op: DequantizeBlocks, w: VTensor, *more: VTensor) -> list[Layout]:
    codes, scales = op.orders(w)
    return [codes, *[scales] * (len(more) - 1), Layout.plain([*op.rows(w), op.over])]


@invoker("DequantizeBlocks", library="narrow", dtypes={"": ["f32"], **_WEIGHTS})
def narrow_all(ctx: Context, op: DequantizeBlocks, *operands: VTensor) -> Routine:
    return narrow.BlockRows(operands, _all_orders(op, *operands), op.bits, op.depth)


@definition("DequantizeBlocks", dtypes=_DEFINED, orders=_all_orders)
def dequantized(ctx: Context, op: DequantizeBlocks, w: PTensor, *more: PTensor) -> None:
    *by, y = more
    y.data()[...] = op.numbers(op.depth, w.data(), *(each.data() for each in by))


_NAMES = "over=over, block=block, byte=byte, bits=bits"
_PACKED = f"""
    w = DequantizeBlocks(codes, scales, depth=depth, {_NAMES}) | DequantizeBlocks(
        codes, scales, zeros, depth=depth, {_NAMES}
    )
"""
_EXAMPLE = {
    "codes": "u8 N b=2 byte=8",
    "scales": "N b=2",
    "zeros": "u8 N b=2",
    "depth": 24,
    "over": "K",
    "block": "b",
    "byte": "byte",
    "bits": 4,
}


def _apart(match: Match) -> dict[str, object] | None:
    """Return no parameters; None if x has dims of the outputs, as a stack of matrices has."""
    return None if match["x"].dims.keys() & match["codes"].dims.keys() else {}


rewrite(
    "packed_product",
    "x w, with w = (code - zero) scale",
    f"{_PACKED}\nMatMul(x, w, over=over) | MatMul(w, x, over=over)",
    f"MatMulNBits(x, codes, scales, zeros, {_NAMES})",
    given=_apart,
    example={**_EXAMPLE, "x": "M K=24"},
)


def _gather_names(node: Naming) -> None:
    axis, rank, more = int(node.attribute("gather_axis", 0)), node.rank("x0"), node.rank("x1")
    axis += rank if axis < 0 else 0
    for place in range(more):
        node.same("x1", place, "y0", axis + place)


def _gather_rank(node: Naming) -> int:
    return node.rank("x0") + node.rank("x1") - 1


def _read_gather(node: NodeReader) -> VTensor:
    x, i, out = node.input(0), node.input(1), node.output_names()
    axis, along_axis = (
        list(x.dims).index(node.axis(int(node.attribute(name, default)), x))
        for name, default in (("gather_axis", 0), ("quantize_axis", 1))
    )
    if x.dtype not in ("u8", "s4", "u4"):
        raise node.refuse(f"input 0 is {x.summary()}; expected u8, s4 or u4")
    names = [*out[:axis], fresh("row", out), *out[axis + i.ndimensions() :]]
    axis_name, over = names[axis], names[along_axis]
    x = node.input(0, " ".join(names))
    i = node.input(1, " ".join(out[axis : axis + i.ndimensions()]))
    if x.dtype == "u8":
        if axis != 0 or along_axis != x.ndimensions() - 1 or axis == along_axis:
            raise node.refuse("u8 needs gather_axis 0, and quantize_axis the last one")
        weights = _table(node, x, over)
    else:
        found = repacked(node, x, over, (0, 2, 3))
        if found is None:
            raise node.refuse("its table, scales and zero points must be constants")
        weights = found
    if axis == along_axis:
        numbers = node.add(DequantizeBlocks(weights.depth, **weights.names), *weights.operands)
        result: VTensor = node.add(named("Gather")(axis_name), numbers, i)
    else:
        op = GatherBlockQuantized(axis_name, weights.depth, **weights.names)
        result = node.add(op, i, *weights.operands)
    return result


def _table(node: NodeReader, x: VTensor, over: str) -> Packed:
    """Return the u8 table of a GatherBlockQuantized node, with blocks along its last dim."""
    bits = int(node.attribute("bits", 4))
    size, rows = block_size(node, bits), {dim: n for dim, n in x.dims.items() if dim != over}
    depth = x.size(over) * 8 // bits
    names, blocks = along(node, over, depth, (*rows, over), bits), -(-depth // size)
    whole = {**rows, names.block: blocks, names.byte: size * bits // 8}
    scales = {**rows, names.block: blocks}
    if depth % size == 0:
        own = [node.reshape(x, whole)]
    else:
        codes = unpacked(np.asarray(node.constant(0)), bits)
        own = [node.made(packed(codes, bits, size), [*whole])]
    own.append(sized(node, 2, scales))
    if node.has(3):
        each = -(-blocks * bits // 8)
        count = prod(rows.values())
        if node.input(3).dtype != "u8" or node.input(3).num_elements != count * each:
            raise node.refuse(f"input 3 is {node.input(3).summary()}; expected {count} x {each} u8")
        zeros = unpacked(np.asarray(node.constant(3)).reshape(*rows.values(), each), bits)
        own.append(node.made(np.ascontiguousarray(zeros[..., :blocks]), [*scales]))
    return names._replace(operands=tuple(own))


def _fit_rows(op: GatherBlockQuantized, i: VTensor, w: VTensor, *by: VTensor) -> bool:
    apart = not (i.dims.keys() & w.dims.keys() - {op.axis}) and op.over not in i.dims
    return apart and op.axis in op.rows(w) and _hold(op, op.depth, w, *by)


@operator(
    "GatherBlockQuantized",
    dims={"i": "*", "w": "*", "scales": "*", "zeros": "*", "y": "*"},
    holds=[(lambda op, _, w, *__: _are_blocks(op, w), _SHAPE), (_fit_rows, _COVER)],
    onnx=Spelling(
        f"{MICROSOFT}GatherBlockQuantized", 1, _read_gather, _gather_names, rank=_gather_rank
    ),
)
class GatherBlockQuantized(_Blocks):
    """Gather rows of a table whose elements have 2, 4 or 8 bits, and make numbers of them.

    y[I, R, K] = (code[i[I], R, K] - zero[i[I], R, K / block]) * scale[i[I], R, K / block], where K
    is ``over``, I are i's dims, and R the others of w.

    Dims:
        w: axis, R, block, byte    scales: axis, R, block    y: I, R, over
        i: any; negative indices count from the end
        zeros: as scales; if absent, zero is 2^(bits - 1)
    Args:
        axis: the dim of w into which indices point.
        depth: y's size along ``over``.
        over, block, byte, bits: as for DequantizeBlocks.
        outside: what an index outside of w is: ``zeros`` in y, or an ``error``.
    Raises:
        DimError: as MatMulNBits, or i and w share a dim but ``axis``.
        InputError: in a run, an index is outside of w, and ``outside`` is ``error``.

    >>> from vtensor.operators import Context
    >>> w, scales = VTensor("u8", {"V": 9, "b": 2, "byte": 16}), VTensor("f32", {"V": 9, "b": 2})
    >>> op = GatherBlockQuantized("V", 64, "K", "b", "byte")
    >>> op.compute(Context(), VTensor("s64", {"T": 3}), w, scales).summary()
    'f32 T=3 K=64'

    Source: ONNX Runtime operator GatherBlockQuantized, of the domain com.microsoft.
    """

    axis: str = param(dims_of="w")
    depth: int = param(minimum=1)
    over: str = param()
    block: str = param(dims_of="w")
    byte: str = param(dims_of="w")
    bits: int = param(default=4, choices=BITS)
    outside: str = param(default="zeros", choices=("zeros", "error"))

    def result_type(self, types: list[str]) -> str:
        """Return the type of the scales."""
        return types[2]

    def compute(
        self, ctx: Context, i: VTensor, w: VTensor, scales: VTensor, *zeros: VTensor
    ) -> VTensor:
        others = {dim: n for dim, n in self.rows(w).items() if dim != self.axis}
        dims = {**i.dims, **others, self.over: self.depth}
        return one_output(ctx, self, [i, w, scales, *zeros], dims, scales.dtype)


def _rows_orders(op: GatherBlockQuantized, i: VTensor, w: VTensor, *more: VTensor) -> list[Layout]:
    others = [dim for dim in op.rows(w) if dim != op.axis]
    scales = Layout.plain([op.axis, *others, op.block])
    codes = Layout.plain([op.axis, *others, op.block, op.byte])
    y = Layout.plain([*i.dims, *others, op.over])
    return [Layout.plain(i.dims), codes, *[scales] * (len(more) - 1), y]


@invoker("GatherBlockQuantized", library="narrow", dtypes={"": ["f32"], "i": INDICES, **_WEIGHTS})
def narrow_rows(ctx: Context, op: GatherBlockQuantized, *operands: VTensor) -> Routine:
    orders = _rows_orders(op, *operands)
    outside = op.outside == "error"
    return narrow.BlockRows(operands, orders, op.bits, op.depth, indexed=True, checked=outside)


@definition("GatherBlockQuantized", dtypes={"i": INDICES, **_DEFINED}, orders=_rows_orders)
def rows(ctx: Context, op: GatherBlockQuantized, i: PTensor, w: PTensor, *more: PTensor) -> None:
    *by, y = more
    numbers = op.numbers(op.depth, w.data(), *(each.data() for each in by))
    count, places = len(numbers), i.data()
    if op.outside == "error":
        places = checked_indices(places, count, type(op).__name__, op.axis)
    places = np.where(places < 0, places + count, places)
    inside = (places >= 0) & (places < count)
    y.data()[...] = 0
    y.data()[inside] = numbers[places[inside]]


rewrite(
    "packed_rows",
    "rows of (code - zero) scale",
    f"{_PACKED}\nGather(w, i, axis=axis)",
    f"""
    GatherBlockQuantized(
        i, codes, scales, zeros, axis=axis, depth=depth, outside="error", {_NAMES}
    )
    """,
    given=lambda match: None if match["axis"] == match["over"] else {},
    example={**_EXAMPLE, "i": 1, "axis": "N"},
)
