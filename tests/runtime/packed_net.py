"""A network whose weights are packed in all ways, as a file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx

from tests.frontends.support import f32, model

Array = np.ndarray[Any, Any]

#: Weights that are packed as they are, a part of one, one with a factor.
NET = """net (float[n, 64, h, 12] x, float[n, 6, 128] p) => (float[n, 192, h, 12] y,
                                                          float[n, 6, 160] z) {
    a0 = Conv<pads = [1, 1, 1, 1]>(x, k0) a1 = Relu(a0)
    a2 = Conv<pads = [1, 1, 1, 1]>(a1, k2) a = Relu(a2)
    b0 = Conv(a, k1) b1 = Mul(b0, s) b = Add(b1, t) y = Relu(b)
    q = MatMul(p, w) q0, q1 = Split<axis = 2>(q, halves) r = Mul(q0, q1)
    z = MatMul(r, v)
}"""


def network(folder: Path, beside: bool) -> Path:
    """Write a file, its weights in another one if ``beside``."""
    weights: dict[str, Array] = {"w": f32(128, 512, seed=4), "v": f32(256, 160, seed=5)}
    weights |= {"k0": f32(128, 64, 3, 3), "k2": f32(128, 128, 3, 3, seed=6) / 9}
    weights |= {"k1": f32(192, 128, 1, 1, seed=1), "s": 2 + f32(192, 1, 1, seed=2) / 9}
    weights |= {"t": f32(192, 1, 1, seed=3), "halves": np.array([256, 256])}
    proto, path = model(NET, 17, **weights), folder / "net.onnx"
    data: dict[str, Any] = {"save_as_external_data": True, "location": "data", "size_threshold": 0}
    onnx.save(proto, path, **(data if beside else {}))
    return path


def feeds(n: int, h: int) -> dict[str, Array]:
    return {"x": f32(n, 64, h, 12, seed=n), "p": f32(n, 6, 128, seed=h)}
