"""Parameters and data that operators cannot take: refused by type, or cut off as ONNX says."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.frontends.support import f32, model
from vtensor import Session
from vtensor.errors import DimError, InputError, InvokerError, VTensorError
from vtensor.language.tensor import VTensor

Arrays = dict[str, np.ndarray[Any, Any]]

X = f32(1, 2, 5, 5)
LEAST, MOST = -(2**63), 2**63 - 1


def ints(*numbers: int) -> np.ndarray[Any, Any]:
    """A row of integers."""
    return np.array(numbers, np.int64)


def run(body: str, **weights: Any) -> np.ndarray[Any, Any]:
    """The output of a network on ``X``."""
    text = f"g (float[1, 2, 5, 5] x) => (float[a, b, c, d] y) {{ {body} }}"
    with Session(model(text, **weights), threads=1) as session:
        return session.run(None, {"x": X})[0]


def test_it_is_good() -> None:
    # The twin of the refusals: the same networks with parameters that are right.
    w = f32(1, 2, 3, 3)
    assert run("y = Conv<strides = [2, 2], pads = [1, 1, 1, 1]>(x, w)", w=w).shape == (1, 1, 3, 3)
    assert run("y = MaxPool<kernel_shape = [5, 5]>(x)").shape == (1, 2, 1, 1)
    assert run("y = Reshape(x, s)", s=ints(5, -1, 2, 1)).shape == (5, 5, 2, 1)
    assert run("y, z = TopK(x, k)", k=ints(5)).shape == X.shape


@pytest.mark.parametrize(
    "attributes",
    [
        "strides = [0, 1]",
        "strides = [-1, 1]",
        "dilations = [0, 1]",
        "dilations = [4611686018427387904, 1]",
        "pads = [-1, 0, 0, 0]",
        "pads = [4611686018427387904, 0, 4611686018427387904, 0]",
        "pads = [1099511627776, 0, 0, 0]",
        "group = 0",
        "group = -1",
        "group = 3",
        "kernel_shape = [7, 7]",
    ],
)
@pytest.mark.parametrize("op", ["Conv", "ConvTranspose"])
def test_convolutions(op: str, attributes: str) -> None:
    with pytest.raises(VTensorError):
        run(f"y = {op}<{attributes}>(x, w)", w=f32(2, 2, 3, 3))


def test_strides_that_no_kernel_can_count() -> None:
    """What a library's own checks refuse is an error of ours that names the node."""
    far = "strides = [4611686018427387904, 1], dilations = [4611686018427387904, 1]"
    with pytest.raises(
        InvokerError, match=r"Conv2D 'Conv:0', eigen invoker \(.*convolution.* overflow"
    ):
        run(f"y = Conv<{far}>(x, w)", w=f32(1, 2, 1, 1))


def test_a_kernel_larger_than_the_padded_input() -> None:
    with pytest.raises(VTensorError, match="a window of 7 along H does not fit into 5"):
        run("y = Conv(x, w)", w=f32(1, 2, 7, 7))


@pytest.mark.parametrize("op", ["MaxPool", "AveragePool", "LpPool"])
@pytest.mark.parametrize(
    "attributes",
    [
        "kernel_shape = [9, 9]",
        "kernel_shape = [0, 2]",
        "kernel_shape = [-2, 2]",
        "kernel_shape = [2, 2], pads = [-1, 0, 0, 0]",
        "kernel_shape = [2, 2], pads = [1099511627776, 0, 0, 0]",
        "kernel_shape = [2, 2], strides = [0, 1]",
    ],
)
def test_pools(op: str, attributes: str) -> None:
    with pytest.raises(VTensorError):
        run(f"y = {op}<{attributes}>(x)")


@pytest.mark.parametrize(
    ("body", "weights"),
    [
        ("y = Softmax<axis = 9>(x)", {}),
        ("y = Transpose<perm = [0, 0, 1, 2]>(x)", {}),
        ("y = Transpose<perm = [0, 1]>(x)", {}),
        ("y = Transpose<perm = [-1, 0, 1, 2]>(x)", {}),
        ("y = ReduceSum(x, a)", {"a": ints(1, 1)}),
        ("y = ReduceSum(x, a)", {"a": ints(7)}),
        ("y = ReduceMean<axes = [1, -3]>(x)", {}),
        ("y, z = Split<axis = 3>(x, s)", {"s": ints(2, 2)}),
        ("y, z = Split<axis = 3>(x, s)", {"s": ints(-2, 7)}),
        ("y = Reshape(x, s)", {"s": ints(3, 3)}),
        ("y = Reshape(x, s)", {"s": ints(-1, -1)}),
        ("y = Reshape(x, s)", {"s": ints(2**32, 2**32, 50)}),
        ("y = Slice(x, s, e, a, t)", {"s": ints(0), "e": ints(5), "a": ints(3), "t": ints(0)}),
        ("y = Slice(x, s, e, a)", {"s": ints(0, 0), "e": ints(3, 3), "a": ints(3, 3)}),
        ("y, z = TopK(x, k)", {"k": ints(9)}),
        ("y, z = TopK(x, k)", {"k": ints(-1)}),
        ("y = Pad(x, p)", {"p": ints(0, 0, -9, 0, 0, 0, 0, 0)}),
        ("y = Pad(x, p)", {"p": ints(0, 0, LEAST, 0, 0, 0, 0, 0)}),
        ("y = Pad(x, p)", {"p": ints(0, 0, 2**62, 0, 0, 0, 2**62, 0)}),
        ("y = Concat<axis = 1>(x, w)", {"w": f32(1, 2, 5, 6)}),
        ("y = Concat<axis = 1>(x, w)", {"w": f32(2, 5, 6)}),
        ("y = MatMul(x, w)", {"w": f32(4, 6)}),
        ("y = Gemm(x, w)", {"w": f32(5, 6)}),
        ("y = Gather<axis = 3>(x, i)", {"i": ints(9)}),
        *(
            ("y = Resize(x, , s)", {"s": np.array([1, 1, scale, 1], np.float32)})
            for scale in (0, -1, np.nan, np.inf, 1e9, 1e30)
        ),
    ],
)
def test_refusals(body: str, weights: Arrays) -> None:
    with pytest.raises(VTensorError):
        run(body, **weights)


@pytest.mark.parametrize(
    ("start", "end", "step"),
    [
        (LEAST, MOST, 1),
        (MOST, LEAST, -1),
        (0, 5, MOST),
        (5, 0, LEAST + 1),
        (MOST, MOST, 1),
        (-2, MOST, 2),
    ],
)
def test_slices_end_where_the_tensor_does(start: int, end: int, step: int) -> None:
    y = run("y = Slice(x, s, e, a, t)", s=ints(start), e=ints(end), a=ints(3), t=ints(step))
    # NumPy counts from -1 where ONNX means the first: an end before all is None there.
    stop = None if end == LEAST else end
    np.testing.assert_array_equal(y, X[..., slice(start, stop, step)])


def test_negative_pads_crop() -> None:
    y = run("y = Pad(x, p)", p=ints(0, 0, -1, -2, 0, 0, 0, 1))
    np.testing.assert_array_equal(y, np.pad(X[:, :, 1:, 2:], [(0, 0)] * 3 + [(0, 1)]))


INDEXED: dict[str, tuple[str, Arrays]] = {
    "Gather": ("float[4] x, int64[2] i", {}),
    "GatherElements": ("float[4] x, int64[2] i", {}),
    "GatherND": ("float[4] x, int64[2, 1] i", {}),
    "ScatterElements": ("float[4] x, int64[2] i, float[2] u", {"u": f32(2)}),
    "ScatterND": ("float[4] x, int64[2, 1] i, float[2] u", {"u": f32(2)}),
}


@pytest.mark.parametrize("op", INDEXED)
@pytest.mark.parametrize("index", [4, -5, MOST, LEAST])
def test_an_index_out_of_range_fails_the_run_and_not_the_plan(op: str, index: int) -> None:
    inputs, more = INDEXED[op]
    names = ", ".join(["x", "i", *more])
    shape = (2, 1) if op.endswith("ND") else (2,)
    feeds = {"x": f32(4), **more}
    with Session(model(f"g ({inputs}) => (float[a] y) {{ y = {op}({names}) }}")) as session:
        with pytest.raises(InputError, match=rf"{op} '\w+:0': eigen:.*index {index} along"):
            session.run(None, {**feeds, "i": ints(1, index).reshape(shape)})
        [y] = session.run(None, {**feeds, "i": ints(1, -1).reshape(shape)})
    expected = f32(4)
    if more:
        expected[[1, -1]] = more["u"]
    np.testing.assert_array_equal(y, expected if more else expected[[1, -1]])


@pytest.mark.parametrize("op", ["Div", "Mod"])
def test_integers_by_zero_do_not_end_the_process(op: str) -> None:
    with Session(model(f"g (int64[3] x, int64[3] i) => (int64[3] y) {{ y = {op}(x, i) }}")) as one:
        [y] = one.run(None, {"x": ints(7, LEAST, 7), "i": ints(0, -1, 2)})
    assert y[2] == (3 if op == "Div" else 1)


def test_a_class_outside_of_one_hot() -> None:
    text = "g (int64[3] i) => (float[3, d] y) { y = OneHot(i, d, v) }"
    with Session(model(text, d=np.array(3), v=np.array([0, 1], np.float32))) as session:
        [y] = session.run(None, {"i": ints(1, 9, -1)})
    np.testing.assert_array_equal(y, [[0, 1, 0], [0, 0, 0], [0, 0, 1]])


def test_a_box_that_spans_the_world() -> None:
    text = (
        "g (float[1, 2, 5, 5] x, float[1, 4] b) => (float[r, c, h, w] y)"
        " { y = RoiAlign<output_height = 2, output_width = 2>(x, b, i) }"
    )
    with Session(model(text, i=ints(0)), threads=1) as session:
        boxes = np.array([[0, 0, 4, 4]], np.float32)
        [right] = session.run(None, {"x": X, "b": boxes})
        with pytest.raises(InputError, match=r"RoiAlign '.*a box spans 4e\+09 pixels"):
            session.run(None, {"x": X, "b": boxes * np.float32(1e9)})
        np.testing.assert_array_equal(session.run(None, {"x": X, "b": boxes})[0], right)


def test_a_size_beyond_64_bits_beside_one_of_0() -> None:
    for sizes in ({"N": 0, "C": 2**63}, {"N": 2**32, "C": 2**32}):
        with pytest.raises(DimError, match="more bytes than 64 bits can count"):
            VTensor("u8", sizes)
    assert VTensor("u8", {"N": 0, "C": 2**62}).nbytes == 0
