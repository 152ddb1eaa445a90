"""Single quantised operators with random types, shapes and attributes, as models of one node."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import ModelProto, helper, numpy_helper

Array = NDArray[Any]
MS = "com.microsoft"


class Single:
    """A model of one node, some of whose inputs are constants.

    Args:
        seed: the seed of types, shapes, attributes and values.
    """

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.inputs = list[str]()
        self.fixed = dict[str, Array]()
        self.feeds = dict[str, Array]()

    def pick(self, *choices: Any) -> Any:
        """Return one of the choices."""
        return choices[int(self.rng.integers(len(choices)))]

    def shape(self, rank: int, most: int = 6) -> tuple[int, ...]:
        """Return sizes from 1 to ``most``."""
        return tuple(int(size) for size in self.rng.integers(1, most + 1, rank))

    def feed(self, array: Array) -> None:
        """Add an input that is given in each run."""
        self.inputs.append(f"x{len(self.inputs)}")
        self.feeds[self.inputs[-1]] = array

    def constant(self, array: Any, dtype: Any = None) -> None:
        """Add an input that is a constant."""
        self.inputs.append(f"x{len(self.inputs)}")
        self.fixed[self.inputs[-1]] = np.asarray(array, dtype)

    def absent(self) -> None:
        """Leave an input out."""
        self.inputs.append("")

    def kind(self) -> Any:
        """Return an 8-bit type."""
        return self.pick(np.uint8, np.int8)

    def kinds(self) -> Any:
        """Return the types of two factors that ONNX Runtime multiplies."""
        return self.pick((np.uint8, np.uint8), (np.uint8, np.int8), (np.int8, np.int8))

    def codes(self, kind: Any, *shape: int) -> Array:
        """Return random integers of a type, over its whole range."""
        limits = np.iinfo(kind)
        return self.rng.integers(limits.min, limits.max + 1, shape).astype(kind)

    def scaled(self, kind: Any, *shape: int, low: float = 0.005, high: float = 0.05) -> None:
        """Add a constant scale and zero point, both of a shape."""
        self.constant(self.rng.uniform(low, high, shape), np.float32)
        self.constant(self.codes(kind, *shape))

    def model(self, op: str, domain: str = MS, outputs: int = 1, **attributes: Any) -> ModelProto:
        """Return the model of a node."""
        names = [f"y{number}" for number in range(outputs)]
        node = helper.make_node(op, self.inputs, names, domain=domain, **attributes)
        ports = [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
            for name, a in self.feeds.items()
        ]
        rows = [numpy_helper.from_array(array, name) for name, array in self.fixed.items()]
        ends = [helper.make_empty_tensor_value_info(name) for name in names]
        graph = helper.make_graph([node], "single", ports, ends, rows)
        imports = [helper.make_opsetid("", 17), helper.make_opsetid(MS, 1)]
        return helper.make_model(graph, opset_imports=imports, ir_version=8)


def convolution(one: Single, kind: Any, axes: int) -> tuple[dict[str, Any], tuple[int, ...]]:
    """Feed an image of a type; return a convolution's attributes, and the shape of its kernel."""
    channels, group = int(one.rng.integers(1, 5)) * 2, one.pick(1, 1, 2, 0)
    group = group or channels
    out = channels if group == channels else group * int(one.rng.integers(1, 9))
    kernel = [int(k) for k in one.rng.integers(1, 4, axes)]
    one.feed(one.codes(kind, int(one.rng.integers(1, 3)), channels, *[7 + k for k in kernel]))
    options = {
        "group": group,
        "kernel_shape": kernel,
        "strides": [int(s) for s in one.rng.integers(1, 3, axes)],
        "dilations": [int(s) for s in one.rng.integers(1, 3, axes)],
        "pads": [int(p) for p in one.rng.integers(0, 2, 2 * axes)],
    }
    return options, (out, channels // group, *kernel)


def qlinear_conv(one: Single) -> ModelProto:
    """Return a QLinearConv."""
    kind, weights = one.kinds()
    options, shape = convolution(one, kind, one.pick(1, 2, 2, 2, 3))
    one.scaled(kind)
    one.constant(one.codes(weights, *shape))
    across = one.pick((), shape[:1])
    one.constant(one.rng.uniform(0.002, 0.01, across), np.float32)
    middle = np.full(across, 128 if weights is np.uint8 else 0)
    one.constant(one.pick(middle, one.codes(weights, *across)), weights)
    one.scaled(kind, low=0.02, high=0.2)
    if one.pick(0, 1):
        one.constant(one.rng.integers(-5000, 5000, shape[0]), np.int32)
    return one.model("QLinearConv", "", **options)


def conv_integer(one: Single) -> ModelProto:
    """Return a ConvInteger; ONNX Runtime has it for u8 images."""
    options, shape = convolution(one, np.uint8, 2)
    weights = one.kind()
    one.constant(one.codes(weights, *shape))
    if one.pick(0, 1, 1):
        one.constant(one.codes(np.uint8))
        if one.pick(0, 1):
            one.constant(one.codes(weights))
    return one.model("ConvInteger", "", **options)


def factors(one: Single, batches: bool = True) -> tuple[Any, Any, tuple[int, ...], tuple[int, ...]]:
    """Return the types and shapes of two factors."""
    m, k, n = (int(size) for size in one.rng.integers(1, 40, 3))
    before = one.pick((), (2,), (3, 2)) if batches else ()
    own = one.pick((), before)
    return *one.kinds(), (*before, m, k), (*own, k, n)


def matmul_integer(one: Single) -> ModelProto:
    """Return a MatMulInteger."""
    a, b, left, right = factors(one)
    one.feed(one.codes(a, *left))
    one.pick(one.constant, one.feed)(one.codes(b, *right))
    if one.pick(0, 1, 1):
        one.constant(one.codes(a))
        if one.pick(0, 1):
            one.constant(one.codes(b, *one.pick((), right[-1:]) if len(right) == 2 else ()))
    return one.model("MatMulInteger", "")


def qlinear_matmul(one: Single) -> ModelProto:
    """Return a QLinearMatMul."""
    a, b, left, right = factors(one)
    one.feed(one.codes(a, *left))
    one.scaled(a)
    one.pick(one.constant, one.feed)(one.codes(b, *right))
    one.scaled(b, *one.pick((), right[-1:]) if len(right) == 2 else ())
    one.scaled(a, low=0.05, high=0.5)
    return one.model("QLinearMatMul", "")


def to_floats(one: Single) -> ModelProto:
    """Return a MatMulIntegerToFloat."""
    a, b, left, right = factors(one, batches=False)
    one.feed(one.codes(a, *left))
    one.constant(one.codes(b, *right))
    across = one.pick((), right[-1:])
    one.constant(one.rng.uniform(0.005, 0.05), np.float32)
    one.constant(one.rng.uniform(0.005, 0.05, across), np.float32)
    one.constant(one.codes(a))
    one.constant(one.codes(b, *across))
    if one.pick(0, 1):
        one.constant(one.rng.standard_normal(right[-1]), np.float32)
    return one.model("MatMulIntegerToFloat")


def dynamic_matmul(one: Single) -> ModelProto:
    """Return a DynamicQuantizeMatMul."""
    _, b, left, right = factors(one, batches=False)
    one.feed(one.rng.standard_normal(left).astype(np.float32))
    one.constant(one.codes(b, *right))
    across = one.pick((), right[-1:])
    one.constant(one.rng.uniform(0.005, 0.05, across), np.float32)
    one.constant(one.codes(b, *across)) if one.pick(0, 1, 1) else one.absent()
    if one.pick(0, 1):
        one.constant(one.rng.standard_normal(right[-1]), np.float32)
    return one.model("DynamicQuantizeMatMul")


def gemm(one: Single) -> ModelProto:
    """Return a QGemm, with an output in integers or in f32."""
    a, b, (m, k), (_, n) = factors(one, batches=False)
    first, second = one.pick(0, 1), one.pick(0, 1)
    one.feed(one.codes(a, *((k, m) if first else (m, k))))
    one.scaled(a)
    one.constant(one.codes(b, *((n, k) if second else (k, n))))
    one.scaled(b, *one.pick((), (n,)))
    with_bias = one.pick(0, 1)
    one.constant(one.rng.integers(-3000, 3000, n), np.int32) if with_bias else one.absent()
    if one.pick(0, 1, 1):
        one.scaled(a, low=0.05, high=0.5)
    return one.model("QGemm", transA=first, transB=second, alpha=one.pick(1.0, 1.0, 0.5))


def binary(one: Single, op: str) -> ModelProto:
    """Return a QLinearAdd or QLinearMul, whose operands may be repeated."""
    kind, shape = one.kind(), one.shape(one.pick(1, 2, 4))
    other = tuple(one.pick(size, size, 1) for size in shape)[one.pick(0, 0, 1) :]
    shapes = [shape, other]
    if one.pick(0, 1):
        shapes.reverse()
    for size in shapes:
        put = one.feed if one.pick(0, 1, 1) or not one.feeds else one.constant
        put(one.codes(kind, *size))
        one.scaled(kind)
    one.scaled(kind, low=0.01, high=0.1)
    return one.model(f"QLinear{op}")


def unary(one: Single, op: str) -> ModelProto:
    """Return a QLinearSigmoid, QLinearLeakyRelu or QLinearSoftmax."""
    kind, options = one.kind(), dict[str, Any]()
    one.feed(one.codes(kind, *one.shape(one.pick(2, 3, 4))))
    one.scaled(kind)
    one.scaled(kind, low=1 / 256, high=1 / 64)
    if op == "LeakyRelu":
        options["alpha"] = one.pick(0.01, 0.1, 0.3)
    if op == "Softmax":
        options |= {"axis": one.pick(-1, 1), "opset": one.pick(11, 13)}
    return one.model(f"QLinear{op}", **options)


def pooled(one: Single, op: str) -> ModelProto:
    """Return a QLinearAveragePool or QLinearGlobalAveragePool."""
    kind, options = one.kind(), dict[str, Any]()
    sizes = one.rng.integers(3, 9, 3)
    one.feed(one.codes(kind, 2, *map(int, sizes)))
    one.scaled(kind)
    one.scaled(kind)
    if op == "AveragePool":
        options = {
            "kernel_shape": one.pick([2, 2], [3, 2], [3, 3]),
            "strides": one.pick([1, 1], [2, 2]),
            "pads": one.pick([0, 0, 0, 0], [1, 0, 1, 1]),
            **one.pick({"ceil_mode": 1}, {"count_include_pad": 1}, {}),
        }
    return one.model(f"QLinear{op}", **options)


def concat(one: Single) -> ModelProto:
    """Return a QLinearConcat of tensors with different scales."""
    kind, rank = one.kind(), one.pick(2, 4)
    axis, shape = int(one.rng.integers(-rank, rank)), one.shape(rank)
    one.scaled(kind)
    for _ in range(one.pick(2, 3)):
        sizes = list(shape)
        sizes[axis] = int(one.rng.integers(1, 5))
        one.feed(one.codes(kind, *sizes))
        one.scaled(kind)
    return one.model("QLinearConcat", axis=axis)


def where(one: Single) -> ModelProto:
    """Return a QLinearWhere."""
    kind, shape = one.kind(), one.shape(3)
    one.feed(one.rng.random(shape[one.pick(0, 1) :]) < 0.5)
    one.feed(one.codes(kind, *shape))
    one.scaled(kind)
    one.feed(one.codes(kind, *shape[one.pick(0, 2) :]))
    one.scaled(kind)
    one.scaled(kind)
    return one.model("QLinearWhere")


#: By name of an operator, the function that draws a model of it.
OPERATORS: dict[str, Callable[[Single], ModelProto]] = {
    "QLinearConv": qlinear_conv,
    "ConvInteger": conv_integer,
    "MatMulInteger": matmul_integer,
    "QLinearMatMul": qlinear_matmul,
    "MatMulIntegerToFloat": to_floats,
    "DynamicQuantizeMatMul": dynamic_matmul,
    "QGemm": gemm,
    "QLinearAdd": lambda one: binary(one, "Add"),
    "QLinearMul": lambda one: binary(one, "Mul"),
    "QLinearSigmoid": lambda one: unary(one, "Sigmoid"),
    "QLinearLeakyRelu": lambda one: unary(one, "LeakyRelu"),
    "QLinearSoftmax": lambda one: unary(one, "Softmax"),
    "QLinearAveragePool": lambda one: pooled(one, "AveragePool"),
    "QLinearGlobalAveragePool": lambda one: pooled(one, "GlobalAveragePool"),
    "QLinearConcat": concat,
    "QLinearWhere": where,
}
