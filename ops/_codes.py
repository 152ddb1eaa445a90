"""Scales and zero points of ONNX nodes on quantized integers, and operators on numbers read from
such nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from vtensor.errors import ModelError, VTensorError
from vtensor.operators import NodeReader, named
from vtensor.tensor import VTensor

#: The element types of the integers.
BYTES = ("u8", "s8")

#: The prefix of operators that ONNX Runtime adds to ONNX's.
MICROSOFT = "com.microsoft::"


def wrong(node: NodeReader, index: int, what: str, remedy: str) -> ModelError:
    """Return an error for the caller to raise: a node's input ``index`` is not as it must be."""
    text = f"{node.described}: input {index} ({node.input(index).summary()}) {what}"
    return ModelError(f"{text}\n  to fix: {remedy}")


def check_code(node: NodeReader, index: int, of: str = "") -> None:
    """Check the scale or the zero point in a node's input ``index``, if it is known before a run.

    Args:
        node: the ONNX node.
        index: the index of the input.
        of: for a zero point, the element type of the integers; empty for a scale.

    Raises:
        ModelError: a scale is not above 0 or not finite, or a zero point is of another type.
    """
    if of:
        if node.input(index).dtype != of:
            remedy = "give both one element type"
            raise wrong(node, index, f"is a zero point of integers of type {of}", remedy)
        return
    try:
        scales = np.asarray(node.constant(index)).astype(np.float64)
    except VTensorError:
        return  # a run computes it
    if (bad := scales[~(np.isfinite(scales) & (scales > 0))]).size:
        raise wrong(node, index, f"has the scale {bad[0]}", "quantize by finite scales above 0")


def check_bytes(node: NodeReader, *indices: int) -> None:
    """Check that the node's inputs ``indices`` are integers of 8 bits.

    Raises:
        ModelError: one of them is not.
    """
    for index in indices:
        if node.input(index).dtype not in BYTES:
            raise wrong(node, index, "is not of integers of 8 bits", "quantize it to s8 or u8")


def parameter(node: NodeReader, index: int, dims: Sequence[str], over: str = "") -> VTensor:
    """Return a node's scale or zero point of one factor of a product, with names of its dims.

    A single element gets no dims. A vector is along the last of ``dims`` that is not ``over``. Any
    other input has all of ``dims``; of these ``over`` is dropped, and must have size 1.

    Args:
        node: the product as an ONNX node.
        index: the index of the scale or zero point among the node's inputs.
        dims: the dims of the factor.
        over: the dim over which the product sums; empty if there is none.
    """
    value = node.input(index)
    others = [dim for dim in dims if dim != over]
    if value.num_elements == 1:
        return node.reshape(value, {})
    if value.ndimensions() == 1 and others:
        return node.input(index, others[-1])
    value = node.input(index, " ".join(dims))
    if over and value.size(over) != 1:
        raise node.refuse(f"input {index} changes along {over}, over which the product sums")
    return node.reshape(value, {dim: value.size(dim) for dim in others})


def scalar(node: NodeReader, index: int, of: str = "") -> VTensor:
    """Return the node's input ``index``, a scale or zero point of a whole tensor, without dims.

    ``of`` is an argument of ``check_code``.
    """
    check_code(node, index, of)
    if node.input(index).num_elements != 1:
        raise wrong(node, index, "is for a whole tensor", "quantize by one scale")
    return node.reshape(node.input(index), {})


def code(node: NodeReader, index: int, of: str) -> list[VTensor]:
    """Return the scale in a node's input ``index``, and the zero point after it if there is one.

    ``of`` is the element type of the integers.
    """
    zero = [scalar(node, index + 1, of)] if node.has(index + 1) else []
    return [scalar(node, index), *zero]


def numbers(node: NodeReader, at: int, x: VTensor) -> VTensor:
    """Add the dequantization of the node's input ``at``, and return the numbers.

    Args:
        node: the ONNX node; its inputs after ``at`` are the code.
        at: the index of the integers.
        x: the integers, with names of their dims.
    """
    check_bytes(node, at)
    index = at + 1
    return node.add(named("DequantizeLinear")("f32"), x, *code(node, index, x.dtype))


def integers(node: NodeReader, x: VTensor, index: int, of: str) -> VTensor:
    """Add the quantization of ``x`` by the code in input ``index``, and return the integers.

    ``of`` is the element type of the integers.
    """
    by = code(node, index, of)
    return node.add(named("QuantizeLinear")(of), x, *by)


class OnNumbers:
    """A node on quantized integers, as a reader of the same operator on numbers sees it.

    Its input 0 is dequantized, and it has no other inputs.

    Args:
        node: the node; its inputs are integers, scale, zero point.
    """

    def __init__(self, node: NodeReader) -> None:
        self._node = node
        self._inputs: dict[str, VTensor] = {}

    def input(self, index: int, names: str = "") -> VTensor:
        """Return the numbers that input ``index``, which is 0, stands for."""
        if index:
            raise self._node.refuse(f"input {index} of an operator of one operand")
        if names not in self._inputs:
            self._inputs[names] = numbers(self._node, 0, self._node.input(0, names))
        return self._inputs[names]

    def has(self, index: int) -> bool:
        """Return whether there is an input ``index``: only 0."""
        return index == 0

    @property
    def inputs(self) -> list[VTensor]:
        """The only input."""
        return [self.input(0)]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._node, name)


def on_numbers(
    read: Callable[[NodeReader], VTensor | Sequence[VTensor]],
) -> Callable[[NodeReader], VTensor]:
    """Return a function that reads a node on integers: it dequantizes, reads, and quantizes.

    The node's inputs are the integers, their scale and zero point, then those of the result.

    Args:
        read: reads the same operator on numbers.
    """

    def on_integers(node: NodeReader) -> VTensor:
        adapted: Any = OnNumbers(node)
        result = read(adapted)
        [y] = [result] if isinstance(result, VTensor) else result
        return integers(node, y, 3, node.input(0).dtype)

    return on_integers
