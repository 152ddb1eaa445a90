"""Einstein's sums, dims being names."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from libdesc import invoker
from libdesc.numpy.arrays import NUMBERS, wide
from ops._names import fresh
from ops._writing import write_sum
from ptensor import Layout, PTensor, lib_tagger
from vtensor.errors import DimError
from vtensor.language.dims import broadcast
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


def _labels(equation: str, ranks: list[int]) -> tuple[list[list[str]], list[str]]:
    """The label of each position of the inputs and of the output.

    What ``...`` stands for is labelled by its distance from the end: ``.1``, ``.2``.
    """
    left, arrow, right = equation.replace(" ", "").partition("->")
    terms = left.split(",")
    spans = [rank - len(term.replace("...", "")) for term, rank in zip(terms, ranks, strict=False)]
    widest = max(
        (span for span, term in zip(spans, terms, strict=False) if "..." in term), default=0
    )
    if not arrow:
        plain = sorted({letter for letter in left if letter.isalpha() and left.count(letter) == 1})
        right = "..." * ("..." in left) + "".join(plain)

    def expand(term: str, span: int) -> list[str]:
        head, dots, tail = term.partition("...")
        return [*head, *(f".{back}" for back in range(span, 0, -1) if dots), *tail]

    inputs = [expand(term, span) for term, span in zip(terms, spans, strict=False)]
    return inputs, expand(right, widest)


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
    given = [node.input(index) for index in range(len(node.inputs))]
    inputs, output = _labels(node.attribute("equation"), [len(x.dims) for x in given])
    if [len(x.dims) for x in given] != [len(labels) for labels in inputs]:
        raise node.refuse(f"equation {node.attribute('equation')!r} does not fit its inputs")
    names = dict(zip(output, node.output_names(), strict=True))
    for label in (label for labels in inputs for label in labels):
        names.setdefault(label, fresh("K", tuple(names.values())))
    again: dict[str, str] = {}
    operands = []
    for index, labels in enumerate(inputs):
        row: list[str] = []
        for label in labels:
            name = names[label]
            if name in row:
                name = fresh(name, (*names.values(), *again))
                again[name] = names[label]
            row.append(name)
        operands.append(node.input(index, " ".join(row)))
    return node.add(Einsum(node.output_names(), tuple(again.items())), *operands)


def _write(node: NodeWriter, op: Einsum) -> None:
    write_sum(node, dict(op.same))


def _sizes(op: Einsum, operands: Sequence[VTensor]) -> dict[str, int]:
    """The size of each dim that the operands have, as they are repeated along each other's."""
    one = dict(op.same)
    rows = [{one.get(dim, dim): size} for t in operands for dim, size in t.dims.items()]
    return broadcast(*rows)


def _cost(op: Einsum, *operands: VTensor) -> int:
    *x, _ = operands
    return len(x) * prod(_sizes(op, x).values())


@operator(
    "Einsum",
    dims={"x": "*", "y": "*"},
    onnx=Spelling("Einsum", 12, _read, _names, write=_write),
    traits=[Cost(_cost)],
)
class Einsum:
    """Multiply tensors, dims meeting by name, and sum over the dims that are not kept.

    Dims:
        x: any    y: ``keep``; a dim may have size 1 in an operand, and is repeated there
    Args:
        keep: the dims of the result.
        same: pairs of names that are one dim: a diagonal, where an operand has both.
    Raises:
        DimError: no operand has a dim that is kept, or a dim has two sizes.
    Cost:
        As many floating-point operations as operands, for each place along all dims.

    >>> from vtensor.operators import Context
    >>> a, b = VTensor("f32", {"N": 8, "C": 20}), VTensor("f32", {"O": 10, "C": 20})
    >>> Einsum(("O", "N")).compute(Context(), a, b).summary()
    'f32 O=10 N=8'

    Source: ONNX operator Einsum, opset 12.
    """

    keep: tuple[str, ...] = param()
    same: tuple[tuple[str, str], ...] = param(default=())

    def compute(self, ctx: Context, *x: VTensor) -> VTensor:
        sizes = _sizes(self, x)
        if not sizes.keys() >= set(self.keep) or len(set(self.keep)) < len(self.keep):
            raise DimError(f"{self.keep} must be dims of the operands, each once")
        y = VTensor(x[0].dtype, {dim: sizes[dim] for dim in self.keep}, ctx.output(0))
        ctx.dispatch(self, x, [y])
        return y


@invoker("Einsum", library="numpy", dtypes=NUMBERS, python=True)
def numpy_einsum(ctx: Context, op: Einsum, *operands: VTensor) -> None:
    *sources, dst = (PTensor(t).require(Layout.plain(t.dims)) for t in operands)
    if lib_tagger("numpy", sources, [dst]):
        return
    one = dict(op.same)
    label: dict[str, int] = {}
    rows = [[one.get(dim, dim) for dim in t.dims] for t in operands]
    for dim in (dim for row in rows for dim in row):
        label.setdefault(dim, len(label))
    terms: list[object] = []
    for source, row in zip(sources, rows, strict=False):
        terms += [wide(source.data()), [label[dim] for dim in row]]
    dst.data()[...] = np.einsum(*terms, [label[dim] for dim in rows[-1]])  # type: ignore[call-overload]
