"""Nodes that ONNX's own shape inference does not survive, found by ``python -m tests.fuzz``.

Inference is C++ and runs in this process: nodes that would end or stop it must not reach it.
"""

from __future__ import annotations

import re

from onnx import NodeProto, TensorProto, TypeProto, helper

from vtensor.frontends.tensors import MAX_RANK

#: Largest number of elements of a one-dim tensor of integers of which inference gets the size.
_MAX_SHAPE_ELEMENTS = 4096

#: Prefix of the symbol that stands for a size that inference must not know. No model's own name
#: begins with it.
_HIDDEN_SIZE = "\0long "


#: Attributes of ONNX's operators that are 0 or 1.
FLAGS = frozenset(
    (
        *("align_corners", "allowzero", "antialias", "broadcast", "ceil_mode", "center_point_box"),
        *("count_include_pad", "detect_negative", "detect_positive", "exclude_outside"),
        *("exclusive", "fmod", "input_forget", "inverse", "is_causal", "is_test", "keepdims"),
        *("largest", "layout", "linear_before_reset", "new_axis", "noop_with_empty_axes"),
        *("onesided", "output_sequence", "periodic", "reverse", "saturate", "select_last_index"),
        *("sorted", "spatial", "storage_order", "training_mode", "transA", "transB", "upper"),
    )
)

#: Pattern of an Einsum equation without spaces; each operand has at most one ellipsis.
_TERM = r"[A-Za-z]*(?:\.\.\.[A-Za-z]*)?"
_EQUATION = rf"{_TERM}(,{_TERM})*(->{_TERM})?"


def attribute_fault(node: NodeProto) -> str:
    """Return what is wrong with a node's attributes, whatever its operator; empty if nothing is.

    ONNX's inference does not check such attributes. It cuts some axes to 32 bits and uses the
    result as an index into memory; it makes as many outputs as an attribute says; and it trusts
    texts.
    """
    for attribute in node.attribute:
        name = attribute.name
        if name in ("axis", "axes"):
            for axis in (attribute.i, *attribute.ints):
                if abs(axis) > MAX_RANK:
                    return f"{name} {axis} is no axis"
        if name in FLAGS and attribute.i not in (0, 1):
            return f"{name} is {attribute.i}; to fix: make it 0 or 1"
        if name == "num_outputs" and attribute.i != len(node.output):
            return f"{name} is {attribute.i}, and it has {len(node.output)} outputs"
        if name == "batch_dims" and attribute.i < 0:
            return f"{name} is {attribute.i}"
        if not attribute.s.isascii():
            return f"{name} {attribute.s!r} is no plain text"
        if name == "equation":
            text = attribute.s.decode().replace(" ", "")
            if not re.fullmatch(_EQUATION, text) or text.count(",") + 1 != len(node.input):
                return f"{name} {text!r} is none between {len(node.input)} operands"
    return ""


def bounded(kind: TypeProto) -> TypeProto:
    """Return a type for ONNX's inference in which a long one-dim int64 tensor has a symbolic size.

    Such a tensor may be used as a shape, and inference would then make a dim for each of its
    elements. Other types are returned as they are.
    """
    dims = kind.tensor_type.shape.dim
    if kind.tensor_type.elem_type != TensorProto.INT64 or len(dims) != 1:
        return kind
    if dims[0].dim_value <= _MAX_SHAPE_ELEMENTS:
        return kind
    return helper.make_tensor_type_proto(TensorProto.INT64, [f"{_HIDDEN_SIZE}{dims[0].dim_value}"])


def unbounded(kind: TypeProto) -> TypeProto:
    """Undo ``bounded``: restore the sizes in the type itself, and return the type."""
    for dim in kind.tensor_type.shape.dim:
        if dim.dim_param.startswith(_HIDDEN_SIZE):
            dim.dim_value = int(dim.dim_param.removeprefix(_HIDDEN_SIZE))
    return kind
