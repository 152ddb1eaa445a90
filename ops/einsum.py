"""Einstein sums: products of tensors summed over dims by name."""

from __future__ import annotations

from math import prod

import numpy as np

from libdesc import eigen, invoker, onednn
from libdesc.numpy import definition
from libdesc.numpy.arrays import NUMBERS, wide
from libdesc.routine import Routine
from ops._names import fresh
from ops._places import one_output
from ops._writing import write_sum
from ptensor import PTensor
from vtensor.language.dims import broadcast
from vtensor.language.spelling import Naming, NodeReader, Spelling
from vtensor.operators import Context, Cost, named, operator, param
from vtensor.tensor import VTensor


def _labels(equation: str, ranks: list[int]) -> tuple[list[list[str]], list[str]]:
    """Return two results: a list of labels of axes for each input, and the list for the output.

    A label names one axis: by a letter of the equation, or, for an axis that ``...`` stands for, by
    the axis's number from the end of ``...``: the last is ``.1``, the one before it ``.2``.

    Args:
        equation: ONNX's equation, such as ``ij,jk->ik``.
        ranks: the number of axes of each input.
    """
    left, arrow, right = equation.replace(" ", "").partition("->")
    rows = zip(left.split(","), ranks, strict=False)
    pairs = [(term, rank - len(term.replace("...", ""))) for term, rank in rows]
    widest = max((span for term, span in pairs if "..." in term), default=0)
    if not arrow:
        plain = sorted({letter for letter in left if letter.isalpha() and left.count(letter) == 1})
        right = "..." * ("..." in left) + "".join(plain)

    def expand(term: str, span: int) -> list[str]:
        head, dots, tail = term.partition("...")
        return [*head, *(f".{back}" for back in range(span, 0, -1) if dots), *tail]

    return [expand(*pair) for pair in pairs], expand(right, widest)


def _names(node: Naming) -> None:
    ranks = [node.rank(role) for role in node.roles]
    inputs, output = _labels(node.attribute("equation"), ranks)
    first: dict[str, tuple[str, int]] = {}
    for role, labels in [("y0", output), *zip(node.roles, inputs, strict=False)]:
        for position, label in enumerate(labels):
            other, place = first.setdefault(label, (role, position))
            if other != role:
                node.same(other, place, role, position)


def _read(node: NodeReader) -> VTensor:
    ranks = [len(x.dims) for x in node.inputs]
    inputs, output = _labels(node.attribute("equation"), ranks)
    if ranks != [len(labels) for labels in inputs]:
        raise node.refuse(f"equation {node.attribute('equation')!r} does not fit its inputs")
    names = dict(zip(output, node.output_names(), strict=True))
    for label in (label for labels in inputs for label in labels):
        names.setdefault(label, fresh("K", tuple(names.values())))
    repeated: dict[str, str] = {}
    operands = []
    for index, labels in enumerate(inputs):
        row: list[str] = []
        for name in (names[label] for label in labels):
            row.append(fresh(name, (*names.values(), *repeated)) if name in row else name)
            if row[-1] != name:
                repeated[row[-1]] = name
        operands.append(node.input(index, " ".join(row)))
    if repeated:
        return node.add(Einsum(node.output_names(), tuple(repeated.items())), *operands)
    return _contracted(node, node.output_names(), operands)


def _contracted(node: NodeReader, keep: tuple[str, ...], operands: list[VTensor]) -> VTensor:
    """Add Einsums of two operands each whose last output is the product of all; return this output.

    A single operand gets one Einsum. Operands are multiplied from the left. ``keep`` are the dims
    of the last output. Each Einsum sums over the dims that are neither in ``keep`` nor in an
    operand after it.
    """
    result, *later_operands = operands
    while len(later_operands) > 1:
        other, *later_operands = later_operands
        sizes = broadcast(result.dims, other.dims)
        later = {*keep, *(dim for t in later_operands for dim in t.dims)}
        result = node.add(Einsum(tuple(d for d in sizes if d in later)), result, other)
    return node.add(Einsum(keep), result, *later_operands)


def _sizes(op: Einsum, *operands: VTensor) -> dict[str, int]:
    """Return the size of each dim of the operands, a size of 1 being broadcast.

    Both dims of a pair in ``op.same`` count as the second one.
    """
    merged = dict(op.same)
    rows = [{merged.get(dim, dim): size} for t in operands for dim, size in t.dims.items()]
    return broadcast(*rows)


def _kept(op: Einsum, *x: VTensor) -> bool:
    return len(set(op.keep)) == len(op.keep) and _sizes(op, *x).keys() >= set(op.keep)


def _diagonals_are_square(op: Einsum, *x: VTensor) -> bool:
    pairs = [(t, pair) for t in x for pair in op.same if {*pair} <= t.dims.keys()]
    return all(t.size(first) == t.size(second) for t, (first, second) in pairs)


def _cost(op: Einsum, *operands: VTensor) -> int:
    *x, _ = operands
    return len(x) * prod(_sizes(op, *x).values())


@operator(
    "Einsum",
    dims={"x": "*", "y": "*"},
    holds=[
        (_kept, "{op.keep} must be dims of the operands, each once"),
        (_diagonals_are_square, "a diagonal of two sizes among {op.same}"),
    ],
    onnx=Spelling(
        "Einsum", 12, _read, _names, write=lambda node, op: write_sum(node, dict(op.same))
    ),
    traits=[Cost(_cost)],
)
class Einsum:
    """Multiply tensors, dims matched by name, and sum over the dims that are not kept.

    Dims:
        x: any    y: ``keep``; a dim may have size 1 in an operand, and is repeated there
    Args:
        keep: the dims of the result.
        same: pairs of names that mean one dim; an operand that has both gives its diagonal.
    Raises:
        DimError: no operand has a dim that is kept, or a dim has two sizes.
    Cost:
        As many floating-point operations as operands, times the product of all sizes.

    >>> from vtensor.operators import Context
    >>> a, b = VTensor("f32", {"N": 8, "C": 20}), VTensor("f32", {"O": 10, "C": 20})
    >>> Einsum(("O", "N")).compute(Context(), a, b).summary()
    'f32 O=10 N=8'

    Source: ONNX operator Einsum, opset 12.
    """

    keep: tuple[str, ...] = param()
    same: tuple[tuple[str, str], ...] = param(default=())

    def compute(self, ctx: Context, *x: VTensor) -> VTensor:
        sizes = _sizes(self, *x)
        return one_output(ctx, self, x, {dim: sizes[dim] for dim in self.keep})


def _summed(op: Einsum, *operands: VTensor) -> list[str]:
    *x, _ = operands
    return [dim for dim in _sizes(op, *x) if dim not in op.keep]


def _is_native(op: Einsum, *operands: VTensor) -> bool | str:
    """Return True if Eigen has a kernel for the Einsum, else the reason why not, as text.

    Eigen can sum one operand over dims, and sum the product of two over dims that both have.
    """
    *x, _ = operands
    if len(x) > 2 or op.same:
        return "takes two operands at most, and no diagonals"
    sizes = _sizes(op, *x)
    alone = [d for d in _summed(op, *operands) if any(t.dims.get(d) != sizes[d] for t in x)]
    return not alone or f"{alone[0]} is not in both operands"


def _is_product(op: Einsum, *operands: VTensor) -> bool | str:
    """Return True if the Einsum is a stack of matrix products, else the reason why not, as text."""
    if len(operands) != 3 or len(_summed(op, *operands)) != 1:
        return "sums products of two operands over one dim"
    return _is_native(op, *operands)


@invoker("Einsum", library="onednn", dtypes=["f32", "bf16", "f16"], when=_is_product)
def onednn_einsum(ctx: Context, op: Einsum, *operands: VTensor) -> Routine:
    a, b, y = operands
    [over] = _summed(op, *operands)
    return onednn.MatMul(a, b, y, over, follow=ctx.followers)


@invoker("Einsum", library="eigen", dtypes=eigen.DTYPES, when=_is_native)
def eigen_einsum(ctx: Context, op: Einsum, *operands: VTensor) -> Routine:
    *x, y = operands
    over = _summed(op, *operands)
    if len(x) == 1:
        return eigen.reduction("sum", x[0], y, tuple(over))
    if not over:
        return eigen.pointwise(named("Mul")(), x, y)
    return eigen.matmul(x[0], x[1], y, *over)


@definition("Einsum", dtypes=NUMBERS)
def einsum(ctx: Context, op: Einsum, *operands: PTensor) -> None:
    merged, number = dict(op.same), dict[str, int]()
    rows = [[number.setdefault(merged.get(d, d), len(number)) for d in t.dims] for t in operands]
    *sources, y = operands
    terms = [term for t, row in zip(sources, rows, strict=False) for term in (wide(t.data()), row)]
    y.data()[...] = np.einsum(*terms, rows[-1])
