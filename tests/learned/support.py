"""Models of one node, ONNX Runtime's answers to them, and random forests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnxruntime
from onnx import ModelProto, TensorProto, TypeProto, helper

Array = np.ndarray[Any, Any]
Attributes = dict[str, Any]

FLOAT, INT64, STRING = TensorProto.FLOAT, TensorProto.INT64, TensorProto.STRING
MODES = ("LEQ", "LT", "GTE", "GT", "EQ", "NEQ")


def element(array: Array) -> int:
    """Return ONNX's number of an array's element type."""
    kind = array.dtype.kind
    return STRING if kind in "OUS" else int(helper.np_dtype_to_tensor_dtype(array.dtype))


def model(
    nodes: Sequence[Any],
    feeds: Mapping[str, Array],
    outputs: Mapping[str, int | TypeProto],
    ml: int = 3,
    initializers: Sequence[TensorProto] = (),
) -> ModelProto:
    """Return a model of nodes whose inputs have open sizes.

    ``outputs`` are ONNX's numbers of element types, or types, by name.
    """
    inputs = [
        helper.make_tensor_value_info(name, element(array), [None] * array.ndim)
        for name, array in feeds.items()
    ]
    infos = [
        helper.make_tensor_value_info(name, kind, None)
        if isinstance(kind, int)
        else helper.make_value_info(name, kind)
        for name, kind in outputs.items()
    ]
    graph = helper.make_graph([*nodes], "learned", inputs, infos, [*initializers])
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("ai.onnx.ml", ml)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def learned(
    op_type: str, feeds: Mapping[str, Array], *outputs: int, **attributes: Any
) -> ModelProto:
    """Return a model of one node.

    Args:
        op_type: its operator.
        feeds: its inputs, by name.
        outputs: ONNX's numbers of its outputs' types; none is one output of f32.
        attributes: its attributes, and ``ml``, the version of the domain.
    """
    ml = attributes.pop("ml", 3)
    kinds = {f"y{i}": kind for i, kind in enumerate(outputs or (FLOAT,))}
    node = helper.make_node(op_type, [*feeds], [*kinds], domain="ai.onnx.ml", **attributes)
    return model([node], feeds, kinds, ml)


def runtime(proto: ModelProto, feeds: Mapping[str, Any]) -> list[Any]:
    """Return ONNX Runtime's answer."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 4, 1
    session = onnxruntime.InferenceSession(
        proto.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    answer: list[Any] = session.run(None, dict(feeds))
    return answer


def forest(
    random: np.random.Generator,
    votes: str,
    targets: Sequence[int],
    features: int = 3,
    trees: int = 9,
    modes: Sequence[str] = ("LEQ",),
    nan: bool = False,
) -> Attributes:
    """Return the attributes of random trees, each of whose leaves votes for all ``targets``."""
    nodes: list[tuple[Any, ...]] = []
    weights: list[tuple[Any, ...]] = []

    def grow(tree: int, number: int, depth: int) -> int:
        """Add a node and all below it; return the next free number."""
        if depth == 0 or random.random() < 0.2:
            nodes.append((tree, number, 0, 0.0, "LEAF", 0, 0, 0))
            weights.extend((tree, number, t, round(random.normal(), 3)) for t in targets)
            return number + 1
        row = len(nodes)
        nodes.append(())
        second = grow(tree, number + 1, depth - 1)
        mode = f"BRANCH_{random.choice(modes)}"
        nodes[row] = (
            *(tree, number, int(random.integers(features)), round(random.normal(), 1), mode),
            *(number + 1, second, int(nan and random.integers(2))),
        )
        return grow(tree, second, depth - 1)

    for tree in range(trees):
        grow(tree, 0, int(random.integers(5)))
    names = "treeids nodeids featureids values modes truenodeids falsenodeids"
    table = [f"nodes_{name}" for name in (*names.split(), "missing_value_tracks_true")]
    of_votes = [f"{votes}_{name}" for name in ("treeids", "nodeids", "ids", "weights")]
    columns = zip(table, zip(*nodes, strict=True), strict=True)
    more = zip(of_votes, zip(*weights, strict=True), strict=True)
    return {name: [*values] for name, values in (*columns, *more)}
