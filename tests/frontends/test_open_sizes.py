"""Where ONNX's inference knows no sizes, or wrong ones, the operators' own dims carry on."""

from __future__ import annotations

import numpy as np
import pytest

from tests.frontends.support import agree, f32, model
from vtensor import Session
from vtensor.errors import ModelError
from vtensor.frontends.onnx import load_onnx

PLACES = np.array([[1, 2], [0, 1]])
DEPTH = np.array(3, np.float32)
SCALAR = np.array([1, 0], np.int64)

MODELS = {
    "axes from the end": ("Slice <axes = [-1], starts = [1], ends = [3]> (x)", 9, (2, 5), {}),
    "one of size 1": ("Squeeze <axes = [-2]> (x)", 9, (2, 1, 5), {}),
    "a scalar": ("GatherND(x, i)", 12, (2, 5), {"i": SCALAR}),
    "a depth that is no integer": ("OneHot(i, depth, x)", 11, (2,), {"i": PLACES, "depth": DEPTH}),
    "a window in the pads": (
        "MaxPool <kernel_shape = [3, 2], strides = [2, 5], ceil_mode = 1> (x)",
        12,
        (1, 2, 9, 8),
        {},
    ),
}


@pytest.mark.parametrize("name", MODELS)
def test_what_comes_after_is_read_too(name: str) -> None:
    node, opset, shape, known = MODELS[name]
    sizes = ", ".join(map(str, shape))
    proto = model(f"m (float[{sizes}] x) => (z) {{ y = {node} z = Relu(y) }}", opset=opset, **known)
    agree(proto, {"x": f32(*shape)})


@pytest.mark.parametrize(
    "node",
    [
        "MeanVarianceNormalization<axes = [0, 2]>(x)",
        "GroupNormalization<num_groups = 2>(x, w, w)",
    ],
)
def test_ranks_behind_functions_of_symbolic_sizes(node: str) -> None:
    """Here no operator can be asked; the function that defines it says how many dims there are."""
    text = f"m (float[N, 4, 3] x) => (z) {{ y = {node} z = Relu(y) }}"
    with Session(model(text, opset=21, w=f32(4))) as session:
        assert len(session.outputs[0].shape) == 3


def test_a_size_that_is_data_stays_open() -> None:
    """The twin: nobody can know it."""
    text = "m (float[4] x) => (z) { y = NonZero(x) z = Neg(y) }"
    with pytest.raises(ModelError, match="decided by data"):
        load_onnx(model(text))
