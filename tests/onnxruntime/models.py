"""Models for both packages, as bytes."""

from __future__ import annotations

import numpy as np

from tests.frontends.support import model

#: Facts that a model says about itself.
HEADER = (
    '<ir_version: 8, opset_import: ["" : 17], producer_name: "maker", domain: "some.domain", '
    'model_version: 7, doc_string: "a model", metadata_props: ["alphabet" : "abc", "empty" : ""]>'
)

#: y = Relu(x); z = x * w + y, where w is an input with a default.
TINY = model(
    HEADER
    + """tiny (float[batch, 3] x, float[1] w) => (float[batch, 3] y, z) <float[1] w = {2}> {
        y = Relu(x)
        inner = Mul(x, w)
        z = Add(inner, y)
    }"""
).SerializeToString()

#: Each output declares something else about its sizes.
SIZES = model(
    """sizes (float[a, 4] x, float[a, b] u) => (y, z, float[n, k, q] v, float[m, 4] r, float s) {
        y = Relu(x)
        shape = Constant<value_ints = [-1, 2]>()
        z = Reshape(x, shape)
        axis = Constant<value_ints = [0]>()
        v = Unsqueeze(u, axis)
        r = Abs(x)
        s = ReduceSum<keepdims = 0>(u)
    }"""
).SerializeToString()

X = np.array([[-1, 2, 3], [4, -5, 6]], np.float32)


def bytes_of(text: str, opset: int = 17) -> bytes:
    """Return a model in ONNX's text form as bytes."""
    return bytes(model(text, opset).SerializeToString())
