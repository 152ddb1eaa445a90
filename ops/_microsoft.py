"""Shared parts of reading nodes of ONNX Runtime that stand for several of ONNX's, and of their
attribute ``activation``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any

from ops._codes import MICROSOFT
from ops._names import broadcast_input, last_names, same_names
from vtensor.language.operators import OPERATORS
from vtensor.language.spelling import Refusal
from vtensor.operators import Naming, NodeReader, Spelling, named
from vtensor.tensor import VTensor

#: By name of an activation with numbers: the parameters of the operator with this name, or, for
#: the last two, the factors of an operator's result and of its operand. Any other activation is
#: the element-wise operator of one input with this name, which has no parameters.
_ACTIVATIONS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("LeakyRelu", "Elu", "Celu", "ThresholdedRelu"), ("alpha",)),
    "HardSigmoid": ("alpha", "beta"),
    "Selu": ("alpha", "gamma"),
    "Clip": ("low", "high"),
    "ParametricSoftplus": ("alpha", "beta"),
    "ScaledTanh": ("alpha", "beta"),
}


def activated(node: NodeReader, y: VTensor) -> VTensor:
    """Return ``y`` after the activation that the node's attributes describe, or ``y`` itself.

    The activation's numbers are the attribute ``activation_params``, or an attribute each.

    Raises:
        VTensorError: the activation is unknown, or has other numbers.
    """
    name, row = str(node.attribute("activation", "")), node.attribute("activation_params")
    each = {key: node.attribute(f"activation_{key}") for key in ("alpha", "beta", "gamma")}
    if not name:
        return y
    keys = _ACTIVATIONS.get(name, ())
    if not keys and not _is_plain(name):
        raise node.refuse(f"activation {name!r}, which is no element-wise operator of one input")
    numbers: list[Any] = [each.get(key) for key in keys] if row is None else list(row)
    if len(numbers) != len(keys) or None in numbers:
        raise node.refuse(f"activation {name} with {row or each}; expected {', '.join(keys)}")
    if name not in ("ParametricSoftplus", "ScaledTanh"):
        return node.add(named(name)(**dict(zip(keys, map(float, numbers), strict=True))), y)
    outer, inner = map(float, numbers)
    y = node.add(named("Times")(inner), y)
    y = node.add(named("Softplus" if name == "ParametricSoftplus" else "Tanh")(), y)
    return node.add(named("Times")(outer), y)


def _is_plain(name: str) -> bool:
    """Return whether an element-wise operator without parameters has this name."""
    info = OPERATORS.find(name)
    return info is not None and info.elementwise and len(info.inputs) == 1 and not fields(info.cls)


def biased(node: NodeReader, x: VTensor, index: int) -> VTensor:
    """Return ``x`` plus the node's input ``index``, repeated as NumPy does; ``x`` if it is absent.

    The dims of ``x`` are those of the node's output.
    """
    if not node.has(index):
        return x
    other = broadcast_input(node, index)
    bias = other.dims.items() <= x.dims.items() and other.ndimensions() < x.ndimensions()
    return node.add(named("BiasAdd" if bias else "Add")(), x, other)


def rank_of_x(node: Naming) -> int:
    """Return the rank of a node's output that has as many axes as its first input."""
    return node.rank("x0")


def like_x(op_type: str, read: Callable[[NodeReader], VTensor]) -> Spelling:
    """Return how ONNX Runtime's ``op_type`` is read, whose output has the shape of its first input.

    Further inputs are repeated as NumPy does.
    """

    def names(node: Naming) -> None:
        same_names(node)
        for role in node.roles[1:]:
            last_names(node, role)

    return Spelling(f"{MICROSOFT}{op_type}", 1, read, names, rank=rank_of_x)


#: Why operators are refused that ONNX Runtime writes for one processor.
_BLOCKED = Refusal(
    "it has the weights of one processor's kernels, in an order that the model does not tell; "
    "optimise the model at ORT_ENABLE_EXTENDED instead of ALL"
)


def of_one_processor(op_type: str) -> Spelling:
    """Return a spelling that refuses an operator of ONNX Runtime's domain of blocked layouts."""
    name = f"{MICROSOFT.removesuffix('::')}.nchwc::{op_type}"
    return Spelling(name, 1, _BLOCKED, lambda _: None, rank=rank_of_x)
