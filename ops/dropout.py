"""Dropout in inference: the identity, and a mask that is true everywhere."""

from __future__ import annotations

from collections.abc import Sequence

from ops._elementwise import Unary, elementwise
from ops._names import same_names
from vtensor.operators import Naming, NodeReader, Spelling, named
from vtensor.tensor import VTensor

#: The first opset in which the mask holds truth values.
_BOOL_MASK_OPSET = 10


def _names(node: Naming) -> None:
    same_names(node)
    for position in range(node.rank("y1")):
        node.same("x0", position, "y1", position)


def _read(node: NodeReader) -> Sequence[VTensor]:
    training = node.opset >= 12 and node.has(2) and bool(node.constant(2))
    if training and (not node.has(1) or node.constant(1).item() != 0):
        raise node.refuse("training_mode is true, and what is dropped is random")
    x = node.input(0)
    y = node.add(named("Identity")(), x)
    return [y, node.add(Kept(), x)] if node.opset >= _BOOL_MASK_OPSET else [y]


@elementwise("Kept", Spelling("Dropout", 7, _read, _names), lambda _: True, {}, zero=1)
class Kept(Unary):
    """Make the mask of a dropout that drops nothing: y = True.

    Dims:
        x, y: any, the same

    >>> from vtensor.operators import Context
    >>> Kept().compute(Context(), VTensor("f32", {"N": 2, "C": 3})).summary()
    'bool N=2 C=3'

    Source: ONNX operator Dropout, opset 22, in inference.
    """

    to = "bool"
