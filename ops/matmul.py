"""Matrix multiplication: a contraction over a dim by name."""

from __future__ import annotations

from math import prod

import numpy as np

from libdesc import eigen, invoker, onednn
from libdesc.groups import Groups
from libdesc.numpy import definition
from libdesc.numpy.arrays import NUMBERS, wide
from libdesc.routine import Routine
from ops._codes import MICROSOFT
from ops._grids import grid_names, read_map
from ops._layers_ahead import LAYERS
from ops._learned import PRODUCTS
from ops._microsoft import activated
from ops._names import broadcast_input, fresh, last_names
from ops._places import one_output
from ops._products import product_names, product_rank, read_factors, turned_names
from ops._writing import write_sum
from ptensor import Layout, PTensor
from vtensor.language.dims import broadcast
from vtensor.language.dtype import numpy_dtype
from vtensor.language.spelling import Naming, NodeReader, NodeWriter, Spelling
from vtensor.operators import Context, Cost, Linear, named, operator, param
from vtensor.tensor import VTensor


def _read(node: NodeReader) -> VTensor:
    a, b, over = read_factors(node)
    return node.add(MatMul(over), a, b)


def _read_fused(node: NodeReader) -> VTensor:
    a, b, over = read_factors(node, turned=True)
    y, alpha = node.add(MatMul(over), a, b), float(node.attribute("alpha", 1.0))
    if alpha != 1:  # no Times: products of queries and keys are scaled, too, and then fused
        factor = node.made(np.array(alpha, numpy_dtype(y.dtype)), ())
        y = node.add(named("Mul")(), y, factor)
    return activated(node, y)


def _transposed(node: Naming | NodeReader) -> list[bool]:
    """Return for each of a Gemm's two factors whether it is transposed."""
    return [bool(node.attribute(name, 0)) for name in ("transA", "transB")]


def _gemm_names(node: Naming) -> None:
    left, right = _transposed(node)
    node.same("x0", not left, "x1", right)
    node.same("x0", left, "y0", 0)
    node.same("x1", not right, "y0", 1)
    last_names(node, "x2")
    node.hint("x0", "C N" if left else "N C")
    node.hint("y0", "N C")


def _read_gemm(node: NodeReader) -> VTensor:
    if len(node.input(0).dims) != 2 or len(node.input(1).dims) != 2:
        raise node.refuse("both factors must be matrices")
    (rows, columns), (left, right) = node.output_names(), _transposed(node)
    over = fresh(list(node.input(0).dims)[not left], (rows, columns))
    a = node.input(0, f"{over} {rows}" if left else f"{rows} {over}")
    b = node.input(1, f"{columns} {over}" if right else f"{over} {columns}")
    y = _scaled(node, "alpha", node.add(MatMul(over), a, b))
    if not node.has(2) or node.attribute("beta", 1.0) == 0:
        return y
    bias = _scaled(node, "beta", broadcast_input(node, 2))
    whole = all(y.size(dim) == size for dim, size in bias.dims.items())
    return node.add(named("BiasAdd" if whole else "Add")(), y, bias)


def _read_fused_gemm(node: NodeReader) -> VTensor:
    return activated(node, _read_gemm(node))


def _read_grid(node: NodeReader) -> VTensor:
    theta, places = read_map(node)
    return node.add(MatMul("column"), theta, places)


def _scaled(node: NodeReader, factor: str, x: VTensor) -> VTensor:
    number = float(node.attribute(factor, 1.0))
    return x if number == 1 else node.add(named("Times")(number), x)


def _write(node: NodeWriter, op: MatMul) -> None:
    """Write a MatMul as one ONNX node.

    The node is a Gemm for two matrices with a transpose or a bias; else a MatMul for vectors,
    matrices and stacks of matrices; else an Einsum.
    """
    a, b = node.inputs
    (batch, rows, columns, _), over = Groups.of(a, b, op.over), op.over
    if not batch and len(rows) == len(columns) == 1:
        _write_matrices(node, over, rows[0], columns[0])
    elif max(len(rows), len(columns)) <= 1 and not (batch and len(rows) + len(columns) < 2):
        left, right, product = (order.dims for order in Groups.of(a, b, over).orders)
        node.emit("MatMul", node.operand(a, left), node.operand(b, right), order=product)
    else:
        write_sum(node)


def _write_matrices(node: NodeWriter, over: str, row: str, column: str) -> None:
    a, b = node.inputs
    turned = {"transA": [*a.dims] == [over, row], "transB": [*b.dims] == [column, over]}
    bias = node.follower(named("BiasAdd"), lambda _: True)
    operands = [node.operand(a), node.operand(b)]
    operands += [] if bias is None else [node.operand(bias, [row, column])]
    gemm = any(turned.values()) or bias is not None
    op_type, attributes = ("Gemm", turned) if gemm else ("MatMul", {})
    node.emit(op_type, *operands, order=[row, column], **attributes)


@operator(
    "MatMul",
    dims={"a": "*", "b": "*", "y": "*"},
    holds=[(lambda op, a, b: a.size(op.over) == b.size(op.over), "{op.over} has two sizes")],
    onnx=[
        Spelling("MatMul", 1, _read, product_names, write=_write, ahead=LAYERS["MatMul"]),
        Spelling("Gemm", 1, _read_gemm, _gemm_names, ahead=LAYERS["Gemm"]),
        Spelling("AffineGrid", 20, _read_grid, grid_names),
        Spelling(f"{MICROSOFT}FusedGemm", 1, _read_fused_gemm, _gemm_names, rank=lambda _: 2),
        *(
            Spelling(f"{MICROSOFT}{name}", 1, _read_fused, turned_names, rank=product_rank)
            for name in ("FusedMatMul", "TransposeMatMul", "FusedMatMulActivation")
        ),
        *PRODUCTS,
    ],
    traits=[
        Cost(lambda op, a, _b, y: 2 * y.num_elements * a.size(op.over)),
        Linear({"a": {}, "b": {}}),
    ],
)
class MatMul:
    """Multiply and sum over a dim that both operands have.

    y[B, M, N] = sum over K of a[B, M, K] * b[B, K, N], where K is ``over``, B are the other dims
    that both have, M those of a alone and N those of b alone: any number of each, in any order.

    Dims:
        a: over and any others    b: over and any others    y: a's others, then b's others
        A dim of both may have size 1 in one of them, and is repeated there.
    Args:
        over: the dim to sum over.
    Raises:
        DimError: an operand lacks ``over``, or a dim that both have has two sizes.
    Cost:
        2 * B*M*N*K floating-point operations.

    >>> from vtensor.operators import Context
    >>> a, b = VTensor("f32", {"N": 8, "C": 2048}), VTensor("f32", {"O": 1000, "C": 2048})
    >>> MatMul("C").compute(Context(), a, b).summary()
    'f32 N=8 O=1000'

    Source: ONNX operators MatMul, opset 13, and Gemm, opset 13, whose transposes are orders of dims
    here; AffineGrid, opset 20, is a product with the positions of a grid. ONNX Runtime operators
    FusedGemm, FusedMatMul, TransposeMatMul and FusedMatMulActivation.
    """

    over: str = param()

    def compute(self, ctx: Context, a: VTensor, b: VTensor) -> VTensor:
        left, right = ({d: s for d, s in t.dims.items() if d != self.over} for t in (a, b))
        sizes = broadcast(left, right)
        return one_output(ctx, self, [a, b], {dim: sizes[dim] for dim in (*left, *right)})


@invoker("MatMul", library="onednn", dtypes=["f32", "bf16", "f16"])
def onednn_matmul(ctx: Context, op: MatMul, a: VTensor, b: VTensor, y: VTensor) -> Routine:
    return onednn.MatMul(a, b, y, op.over, follow=ctx.followers)


@invoker("MatMul", library="eigen", dtypes=eigen.MULTIPLIED)
def eigen_matmul(ctx: Context, op: MatMul, a: VTensor, b: VTensor, y: VTensor) -> Routine:
    return eigen.matmul(a, b, y, op.over)


def _orders(op: MatMul, a: VTensor, b: VTensor, _: VTensor) -> list[Layout]:
    """Return a layout for ``a``, ``b`` and the output, in which each is a stack of matrices."""
    return Groups.of(a, b, op.over).orders


@definition("MatMul", dtypes=NUMBERS, orders=_orders)
def matmul(ctx: Context, op: MatMul, a: PTensor, b: PTensor, y: PTensor) -> None:
    (batch, rows, columns, _), over = Groups.of(a.tensor, b.tensor, op.over), op.over
    x = wide(a.data()).reshape(*map(a.size, batch), prod(map(a.size, rows)), a.size(over))
    w = wide(b.data()).reshape(*map(b.size, batch), a.size(over), prod(map(b.size, columns)))
    y.data()[...] = (x @ w).reshape(y.data().shape)
