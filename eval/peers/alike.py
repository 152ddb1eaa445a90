"""Operators that frameworks express alike: an emitter for each, made from a framework's function.

An emitter translates one node (``Emitter`` in ``walk.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from eval.peers.walk import Call, Dims, Emitter, Placed, Tensor


def pointwise(function: Callable[..., Tensor]) -> Emitter:
    """Return the emitter of an element-wise function; operands are repeated along dims that they
    lack.
    """

    def say(call: Call) -> Placed:
        whole = (p.dims for p in call.operands if p.dims and len(p.dims) == len(call.output.dims))
        order = next(whole, call.order)
        return Placed(function(*(call.operand(i, order) for i in range(len(call.operands)))), order)

    return say


def product(matmul: Callable[[Tensor, Tensor], Tensor]) -> Emitter:
    """Return the emitter of a product of matrices, or of stacks of them.

    Several dims of rows, or of columns, are merged into one for ``matmul``.
    """

    def say(call: Call) -> Placed:
        (a, b), over = call.inputs, call.op.over
        batch = [dim for dim in a.dims if dim in b.dims and dim != over]
        rows, columns = ([dim for dim in t.dims if dim not in (*batch, over)] for t in (a, b))
        left = call.operand(0, [*batch, "*".join(rows), over])
        right = call.operand(1, [*batch, over, "*".join(columns)])
        product, order = matmul(left, right), (*batch, *rows, *columns)
        if len(rows) != 1 or len(columns) != 1:
            product = call.framework.reshape(product, [call.output.size(dim) for dim in order])
        return Placed(product, order)

    return say


def concat(function: Callable[[Sequence[Tensor], int], Tensor]) -> Emitter:
    """Return the emitter of a concatenation; ``function`` takes tensors and an axis number."""

    def say(call: Call) -> Placed:
        parts = [call.operand(i, call.order) for i in range(len(call.operands))]
        return Placed(function(parts, call.order.index(call.op.axis)), call.order)

    return say


def mean(function: Callable[[Tensor, Sequence[int], bool], Tensor]) -> Emitter:
    """Return the emitter of the mean over some axes.

    Args:
        function: takes a tensor, the numbers of the axes, and whether they stay with size 1.
    """

    def say(call: Call) -> Placed:
        dims, gone = call.operands[0].dims, call.op.axes
        kept = dims if call.op.keepdims else tuple(dim for dim in dims if dim not in gone)
        axes = [dims.index(dim) for dim in gone]
        whole = call.operand(0, dims)
        return Placed(function(whole, axes, call.op.keepdims) if axes else whole, kept)

    return say


def softmax(function: Callable[[Tensor, int], Tensor]) -> Emitter:
    """Return the emitter of a Softmax along one dim and dims of size 1; others are refused.

    Args:
        function: takes a tensor and the number of an axis.
    """

    def say(call: Call) -> Placed:
        x, order = call.inputs[0], call.operands[0].dims
        long = [dim for dim in call.op.axis if x.size(dim) > 1] or call.op.axis[:1]
        if len(long) > 1:
            raise call.refuse(f"along several dims, {' '.join(long)}")
        return Placed(function(call.operand(0, order), order.index(long[0])), order)

    return say


def reshape(call: Call) -> Placed:
    """Emit a Reshape: the elements, in the order of the graph's dims, with other sizes."""
    [x], y = call.inputs, call.output
    counted = call.operand(0, tuple(x.dims))
    return Placed(call.framework.reshape(counted, tuple(y.dims.values())), tuple(y.dims))


def rename(call: Call) -> Placed:
    """Emit a Rename: the same tensor with other names of dims."""
    [(tensor, dims)], new = call.operands, dict(call.op.names)
    return Placed(tensor, tuple(new.get(dim, dim) for dim in dims))


def identity(call: Call) -> Placed:
    """Emit an Identity: the same tensor."""
    return call.operands[0]


def padded(call: Call) -> tuple[Tensor, Dims, list[tuple[int, int]]]:
    """Return a Pad's operand, the operand's dims, and the pads before and after each axis.

    Raises:
        CannotBuild: the mode is not ``constant``.
    """
    op, half, order = call.op, len(call.op.axes), call.operands[0].dims
    if op.mode != "constant":
        raise call.refuse(f"mode {op.mode}")
    rows = dict(zip(op.axes, zip(op.pads[:half], op.pads[half:], strict=True), strict=True))
    return call.operand(0, order), order, [rows.get(dim, (0, 0)) for dim in order]


#: The emitters that need no function of the framework.
MOVES = {"Identity": identity, "Rename": rename, "Reshape": reshape}
