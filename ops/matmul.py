"""Matrix multiplication: a contraction over a dim by name."""

from __future__ import annotations

from math import prod

from libdesc import eigen, invoker, onednn
from libdesc.groups import Groups
from libdesc.numpy.arrays import NUMBERS, wide
from libdesc.routine import Routine
from ops._names import broadcast_input
from ops._writing import write_sum
from ops.add import Add
from ops.biasadd import BiasAdd
from ops.times import Times
from ptensor import Layout, PTensor, lib_tagger
from vtensor.errors import DimError
from vtensor.language.dims import broadcast
from vtensor.operators import (
    Context,
    Cost,
    Linear,
    Naming,
    NodeReader,
    NodeWriter,
    Spelling,
    operator,
    param,
)
from vtensor.tensor import VTensor


def product_names(node: Naming, second: str = "x1") -> None:
    """The dims of matrices and stacks of them; the role says which input the second factor is."""
    left, right = node.rank("x0"), node.rank(second)
    node.same("x0", -1, second, max(right - 2, 0) - right)
    if left > 1:
        node.same("x0", -2, "y0", -2 if right > 1 else -1)
    if right > 1:
        node.same(second, -1, "y0", -1)
    gap = (left == 1) + (right == 1)  # matrix dims that the output lacks
    for role, rank in (("x0", left), (second, right)):
        for back in range(3, rank + 1):
            node.same(role, -back, "y0", gap - back)


def _read(node: NodeReader) -> VTensor:
    a, b, over = read_factors(node)
    return node.add(MatMul(over), a, b)


def read_factors(node: NodeReader, second: int = 1) -> tuple[VTensor, VTensor, str]:
    """Input 0 and another under the names that a product gives them, and the dim to sum over."""
    out = node.output_names()
    left, right = len(node.input(0).dims), len(node.input(second).dims)
    if not left or not right:
        raise node.refuse("an operand without dims")
    over = _fresh(list(node.input(0).dims)[-1], out)
    columns = out[len(out) - (right > 1) :]
    rest = out[: len(out) - len(columns)]
    rows = rest[len(rest) - (left > 1) :]
    batch = rest[: len(rest) - len(rows)]
    a = node.input(0, " ".join([*batch[len(batch) - max(left - 2, 0) :], *rows, over]))
    b = node.input(second, " ".join([*batch[len(batch) - max(right - 2, 0) :], over, *columns]))
    return a, b, over


def _fresh(name: str, taken: tuple[str, ...]) -> str:
    """A name beside those that are taken: ``K``, else ``K_``, ..."""
    while name in taken:
        name += "_"
    return name


def _gemm_names(node: Naming) -> None:
    left, right = bool(node.attribute("transA", 0)), bool(node.attribute("transB", 0))
    node.same("x0", 0 if left else 1, "x1", 1 if right else 0)
    node.same("x0", 1 if left else 0, "y0", 0)
    node.same("x1", 0 if right else 1, "y0", 1)
    for back in range(1, node.rank("x2") + 1):
        node.same("x2", -back, "y0", -back)
    node.hint("x0", "C N" if left else "N C")
    node.hint("y0", "N C")


def _read_gemm(node: NodeReader) -> VTensor:
    alpha, beta = float(node.attribute("alpha", 1.0)), float(node.attribute("beta", 1.0))
    biased = node.has(2) and beta != 0
    if len(node.input(0).dims) != 2 or len(node.input(1).dims) != 2:
        raise node.refuse("both factors must be matrices")
    rows, columns = node.output_names()
    left, right = bool(node.attribute("transA", 0)), bool(node.attribute("transB", 0))
    over = _fresh(list(node.input(0).dims)[0 if left else 1], (rows, columns))
    a = node.input(0, f"{over} {rows}" if left else f"{rows} {over}")
    b = node.input(1, f"{columns} {over}" if right else f"{over} {columns}")
    y = _times(node, alpha, node.add(MatMul(over), a, b))
    if not biased:
        return y
    bias = _times(node, beta, broadcast_input(node, 2))
    whole = all(y.size(dim) == size for dim, size in bias.dims.items())
    return node.add(BiasAdd() if whole else Add(), y, bias)


def _times(node: NodeReader, factor: float, x: VTensor) -> VTensor:
    return x if factor == 1 else node.add(Times(factor), x)


def _write(node: NodeWriter, op: MatMul) -> None:
    """MatMul where it can be, Gemm for two matrices that are turned or have a bias, or Einsum."""
    a, b = node.inputs
    batch = [dim for dim in a.dims if dim in b.dims and dim != op.over]
    rows, columns = ([d for d in t.dims if d not in (*batch, op.over)] for t in (a, b))
    if not batch and len(rows) == len(columns) == 1:
        _write_matrices(node, op.over, rows[0], columns[0])
    elif max(len(rows), len(columns)) <= 1 and not (batch and len(rows) + len(columns) < 2):
        left = node.operand(a, [*batch, *rows, op.over])
        right = node.operand(b, [*batch, op.over, *columns])
        node.emit("MatMul", left, right, order=[*batch, *rows, *columns])
    else:
        write_sum(node)


def _write_matrices(node: NodeWriter, over: str, row: str, column: str) -> None:
    a, b = node.inputs
    turned = {"transA": [*a.dims] == [over, row], "transB": [*b.dims] == [column, over]}
    bias = node.follower(BiasAdd, lambda _: True)
    operands = [node.operand(a), node.operand(b)]
    operands += [] if bias is None else [node.operand(bias, [row, column])]
    if any(turned.values()) or bias is not None:
        node.emit("Gemm", *operands, order=[row, column], **turned)
    else:
        node.emit("MatMul", *operands, order=[row, column])


@operator(
    "MatMul",
    dims={"a": "*", "b": "*", "y": "*"},
    onnx=[
        Spelling("MatMul", 1, _read, product_names, write=_write),
        Spelling("Gemm", 1, _read_gemm, _gemm_names),
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
        A dim that both have may have size 1 in one of them, and is repeated there.
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

    Source: ONNX operators MatMul, opset 13, and Gemm, opset 13, whose transposes are names here.
    """

    over: str = param()

    def compute(self, ctx: Context, a: VTensor, b: VTensor) -> VTensor:
        if a.size(self.over) != b.size(self.over):
            raise DimError(f"{self.over} must have one size in both operands")
        left, right = ({d: s for d, s in t.dims.items() if d != self.over} for t in (a, b))
        sizes = broadcast(left, right)
        y = VTensor(a.dtype, {dim: sizes[dim] for dim in (*left, *right)}, ctx.output(0))
        ctx.dispatch(self, [a, b], [y])
        return y


@invoker("MatMul", library="onednn", dtypes=["f32", "bf16", "f16"])
def onednn_matmul(ctx: Context, op: MatMul, a: VTensor, b: VTensor, y: VTensor) -> Routine:
    return onednn.MatMul(a, b, y, op.over, follow=ctx.followers)


@invoker("MatMul", library="eigen", dtypes=eigen.DTYPES)
def eigen_matmul(ctx: Context, op: MatMul, a: VTensor, b: VTensor, y: VTensor) -> Routine:
    return eigen.matmul(a, b, y, op.over)


@invoker("MatMul", library="numpy", dtypes=NUMBERS, python=True)
def numpy_matmul(ctx: Context, op: MatMul, a: VTensor, b: VTensor, y: VTensor) -> None:
    batch, rows, columns, over = Groups.of(a, b, op.over)
    left = PTensor(a).require(Layout.plain([*batch, *rows, over]))
    right = PTensor(b).require(Layout.plain([*batch, over, *columns]))
    dst = PTensor(y).require(Layout.plain([*batch, *rows, *columns]))
    if lib_tagger("numpy", [left, right], [dst]):
        return
    ranges = prod(map(a.size, rows)), prod(map(b.size, columns))
    x = wide(left.data()).reshape(*map(a.size, batch), ranges[0], a.size(over))
    w = wide(right.data()).reshape(*map(b.size, batch), b.size(over), ranges[1])
    dst.data()[...] = (x @ w).reshape(dst.data().shape)
