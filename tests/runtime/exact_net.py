"""A network of open sizes whose results are exact, in whatever order and by whatever kernels."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import ModelProto
from onnx.numpy_helper import from_array
from onnx.parser import parse_model

Array = np.ndarray[Any, Any]

CHANNELS, LENGTH = 4, 8

TEXT = f"""<ir_version: 8, opset_import: ["" : 17]>
exact (float[n, {CHANNELS}, m, {LENGTH}] x) => (float[n, {CHANNELS}, m, {LENGTH}] y) {{
    a = Conv <pads = [1, 1, 1, 1]> (x, w) b = Relu (a) c = MatMul (b, v)
    s = Shape (c) d = Reshape (c, s) y = Add (d, x)
}}"""

_RANDOM = np.random.default_rng(3)
W = _RANDOM.integers(-2, 3, (CHANNELS, CHANNELS, 3, 3)).astype(np.float32)
V = _RANDOM.integers(-2, 3, (LENGTH, LENGTH)).astype(np.float32)


def model() -> ModelProto:
    """Return the network; all numbers in it are small integers."""
    proto = parse_model(TEXT)
    proto.graph.initializer.extend([from_array(W, "w"), from_array(V, "v")])
    return proto


def feeds(size: int) -> dict[str, Array]:
    """Return ``size`` images of twice as many lines and two more."""
    shape = (size, CHANNELS, 2 * size + 2, LENGTH)
    return {"x": (np.arange(np.prod(shape)) % 5 - 2).reshape(shape).astype(np.float32)}


def answer(size: int) -> Array:
    """Return the network's output for ``feeds(size)``."""
    x = feeds(size)["x"]
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (2, 3))
    a: Array = np.einsum("nchwij,ocij->nohw", windows, W)
    return np.maximum(a, 0) @ V + x
