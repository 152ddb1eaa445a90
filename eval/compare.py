"""Comparison of engines' outputs: the same noise as input, and the largest difference."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import ModelProto

Array = NDArray[Any]

#: The largest accepted difference, relative to the largest output.
TOLERANCE = 1e-4


@cache
def photograph(shape: tuple[int, ...]) -> Array:
    """Return f32 noise of a normalised picture's variance; equal shapes get equal noise."""
    return np.random.default_rng(3).standard_normal(shape, np.float32)


def difference(ours: Array, theirs: Array) -> float:
    """Return the largest difference of two arrays, relative to the largest value of ``theirs``."""
    assert ours.shape == theirs.shape
    assert np.isfinite(theirs).all()
    return float(np.abs(ours - theirs).max() / np.abs(theirs).max())


def reference(model: ModelProto | Path, feeds: Mapping[str, Array]) -> Array:
    """Return the only output of a model, computed by ONNX Runtime on two threads.

    A model above 2 GiB, or with external data, must be given as a file.
    """
    import onnxruntime  # on use: the package is optional

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
