"""Small models for the frontend's tests, from ONNX's text form."""

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


def model(text: str, opset: int = 17, **weights: Array) -> ModelProto:
    """A model in ONNX's text form, with initializers."""
    header = f'<ir_version: 8, opset_import: ["" : {opset}]>'
    proto = onnx.parser.parse_model(f"{header} {text}")
    for name, array in weights.items():
        proto.graph.initializer.append(numpy_helper.from_array(array, name))
    return proto


def f32(*shape: int, seed: int = 0) -> NDArray[np.float32]:
    """Numbers of the order of 1."""
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


def runtime(proto: ModelProto, feeds: Mapping[str, Array]) -> list[Array]:
    """What ONNX Runtime says."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # its remarks on models are not our subject
    session = onnxruntime.InferenceSession(
        proto.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return list(session.run(None, dict(feeds)))


def agree(proto: ModelProto, feeds: Mapping[str, Array]) -> None:
    """Our NumPy library and ONNX Runtime say the same of a model."""
    with Session(proto, libraries=["numpy"]) as session:
        ours = session.run(None, feeds)
    theirs = runtime(proto, feeds)
    assert len(ours) == len(theirs)
    for mine, other in zip(ours, theirs, strict=True):
        assert mine.shape == other.shape
        np.testing.assert_allclose(mine, other, rtol=1e-5, atol=1e-5)
