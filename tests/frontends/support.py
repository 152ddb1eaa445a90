"""Small models in ONNX's text form, and what ONNX Runtime answers to them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx.parser
import onnxruntime
from numpy.typing import NDArray
from onnx import ModelProto, numpy_helper

from vtensor import Session

Array = NDArray[Any]


def model(text: str, opset: int | Array = 17, **weights: Array) -> ModelProto:
    """Build a model from ONNX's text form, which may begin with a header of its own, and
    initializers.
    """
    header = (
        "" if text.lstrip().startswith("<") else f'<ir_version: 8, opset_import: ["" : {opset}]>'
    )
    proto = onnx.parser.parse_model(f"{header} {text}")
    for name, array in weights.items():
        proto.graph.initializer.append(numpy_helper.from_array(array, name))
    return proto


def f32(*shape: int, seed: int = 0) -> NDArray[np.float32]:
    """Return numbers of the order of 1."""
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


def run_once(source: Any, feeds: Mapping[str, Any], **options: Any) -> list[Array]:
    """Run a model in a session of its own; return its outputs."""
    with Session(source, **options) as session:
        return session.run(None, feeds)


def runtime(proto: ModelProto, feeds: Mapping[str, Array], optimised: bool = True) -> list[Array]:
    """Run a model on ONNX Runtime, with its graph optimisations or without; return its outputs."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4  # its remarks on models are not our subject
    options.intra_op_num_threads = 1
    if not optimised:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(
        proto.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return list(session.run(None, dict(feeds)))


def same_as_runtime(
    session: Session,
    proto: ModelProto,
    feeds: Mapping[str, Array],
    rtol: float = 1e-5,
    atol: float | None = None,
) -> list[Array]:
    """Check that a session answers as ONNX Runtime does; return its outputs."""
    ours, theirs = session.run(None, feeds), runtime(proto, feeds)
    for mine, other in zip(ours, theirs, strict=True):
        assert mine.shape == np.shape(other)
        np.testing.assert_allclose(mine, other, rtol, rtol if atol is None else atol)
    return ours


def agree(proto: ModelProto, feeds: Mapping[str, Array]) -> None:
    """Check that our NumPy library and ONNX Runtime answer alike."""
    with Session(proto, libraries=["numpy"]) as session:
        same_as_runtime(session, proto, feeds)
