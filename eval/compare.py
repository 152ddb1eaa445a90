"""Comparison of answers: the same noise as input, and the largest difference of outputs."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import ModelProto

Array = NDArray[Any]

#: Largest difference that we accept, relative to the largest output.
TOLERANCE = 1e-4


@cache
def photograph(shape: tuple[int, ...]) -> Array:
    """Return noise with the variance of a normalised picture."""
    return np.random.default_rng(3).standard_normal(shape, np.float32)


def difference(ours: Array, theirs: Array) -> float:
    """Return the largest difference of two answers, relative to the largest output."""
    assert ours.shape == theirs.shape
    assert np.isfinite(theirs).all()
    return float(np.abs(ours - theirs).max() / np.abs(theirs).max())


def reference(model: ModelProto | Path, feeds: Mapping[str, Array]) -> Array:
    """Return ONNX Runtime's answer; a model above 2 GiB, or with external data, is a file."""
    import onnxruntime  # only where it is asked for: not everybody has it

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = 2
    session = onnxruntime.InferenceSession(
        model if isinstance(model, Path) else model.SerializeToString(),
        options,
        providers=["CPUExecutionProvider"],
    )
    [answer] = session.run(None, dict(feeds))
    return np.asarray(answer)
