"""Random networks of QuantizeLinear and DequantizeLinear, in spellings that no tool writes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from onnx import ModelProto, TensorProto, helper

from tests.networks.drawn import Drawn

TYPES = {
    "u8": TensorProto.UINT8,
    "s8": TensorProto.INT8,
    "u16": TensorProto.UINT16,
    "s16": TensorProto.INT16,
    "u4": TensorProto.UINT4,
    "s4": TensorProto.INT4,
}
LIMITS = {
    kind: (0, 2 ** int(kind[1:]) - 1)
    if kind[0] == "u"
    else (-(2 ** int(kind[1:]) // 2), 2 ** int(kind[1:]) // 2 - 1)
    for kind in TYPES
}


@dataclass
class Value:
    """A value of a network that is being drawn.

    Attributes:
        name: the name of the f32 value.
        shape: its sizes behind the batch: channels, height and width.
        step: the scale with which it was quantised; 0 if it was not.
        parts: the inputs of its DequantizeLinear, if it has one.
    """

    name: str
    shape: tuple[int, ...]
    step: float = 0.0
    parts: tuple[str, ...] = ()


class Mixed(Drawn):
    """A network that is drawn at random.

    Args:
        seed: the seed of everything.
        opset: the version of ONNX's operators, 10 to 21.
    """

    def __init__(self, seed: int, opset: int) -> None:
        super().__init__(opset, seed)
        self.values = list[Value]()
        self.steps = dict[str, float]()

    def chance(self, share: float) -> bool:
        """Return True with a probability."""
        return bool(self.rng.random() < share)

    def pick(self, *choices: Any) -> Any:
        """Return one of the choices."""
        return choices[int(self.rng.integers(len(choices)))]

    def read(self, value: Value) -> str:
        """Return a value in f32: the DequantizeLinear that is there, or another one."""
        if value.parts and self.chance(0.5):
            return self.add("DequantizeLinear", *value.parts)
        return value.name

    def quantised(self, value: Value, share: float = 0.8) -> Value:
        """Return a value behind a QuantizeLinear and a DequantizeLinear, with a probability."""
        if not self.chance(share):
            return value
        wide = self.opset >= 21 and self.chance(0.1)
        kind = self.pick("u16", "s16") if wide else self.pick("u8", "s8")
        low, high = LIMITS[kind]
        step = np.float32(self.rng.uniform(4, 12) / (high - low))
        zero = low if self.chance(0.2) else int(self.rng.integers(low + 1, high))
        zero = (low + high + 1) // 2 if self.chance(0.4) else zero
        parts = [self.constant(step), self._typed(zero, kind)]
        if kind == "u8" and zero == 0 and self.chance(0.5):
            parts.pop()  # without a zero point, the type is u8 and the zero point 0
        q = self.add("QuantizeLinear", value.name, *parts)
        name = self.add("DequantizeLinear", q, *parts)
        return Value(name, value.shape, float(step), (q, *parts))

    def _typed(self, values: Any, kind: str, dims: tuple[int, ...] = ()) -> str:
        name = f"c{len(self.weights)}"
        flat = np.ravel(values).tolist()
        self.weights.append(helper.make_tensor(name, TYPES[kind], dims, flat))
        return name

    def kernel(self, *shape: int, axis: int = 0) -> tuple[str, Any]:
        """Return a weight behind a DequantizeLinear, and its scales (for a bias)."""
        kind, options = self.pick("s8", "s8", "u8"), dict[str, Any]()
        low, high = LIMITS[kind]
        inward = int(np.prod(shape)) // shape[axis]
        around = self.rng.standard_normal(shape) * inward**-0.5 * 1.4
        channels = self.opset >= 13 and self.chance(0.5)
        count = shape[axis] if channels else 1
        steps = (self.rng.uniform(0.5, 1.0, count) * 4 * inward**-0.5 / (high - low)).astype("f4")
        middle = (low + high + 1) // 2
        zeros = np.full(count, middle) + (self.rng.integers(-9, 9, count) * self.chance(0.3))
        across = [1] * len(shape)
        across[axis] = count
        q = np.clip(
            np.rint(around / steps.reshape(across)) + zeros.reshape(across), low, high
        ).astype(int)
        dims = (count,) if channels else ()
        scale = self.constant(steps if channels else steps[0])
        if channels:
            options["axis"] = axis if self.chance(0.7) else axis - len(shape)
        stored = self._typed(q, kind, shape)
        name = self.add(
            "DequantizeLinear", stored, scale, self._typed(zeros, kind, dims), **options
        )
        return name, steps

    def blocked(self, rows: int) -> str:
        """Return a matrix behind a DequantizeLinear with two blocks of rows (opset 21)."""
        kind = self.pick("s8", "u4", "s4")
        low, high = LIMITS[kind]
        stored = self._typed(self.rng.integers(low, high + 1, (rows, 10)), kind, (rows, 10))
        scale = self.constant(self.rng.uniform(0.5, 1.5, (2, 10)) / high * rows**-0.5, "f4")
        zero = self._typed(self.rng.integers(low, high + 1, (2, 10)), kind, (2, 10))
        parts = [stored, scale, zero][: 3 if self.chance(0.6) else 2]
        return self.add("DequantizeLinear", *parts, axis=0, block_size=rows // 2)

    def product(self, x: Value) -> Value:
        """Add a convolution, with a bias and an activation that may be absent."""
        inward = x.shape[0]
        group = self.pick(1, 1, inward, 2 if inward % 2 == 0 else 1)
        out = inward if group == inward else int(self.rng.integers(1, 5)) * 4
        size, stride, dilation = self.pick(1, 3, 3, 2), self.pick(1, 1, 2), self.pick(1, 1, 1, 2)
        reach = dilation * (size - 1)
        pads = [int(p) for p in self.rng.integers(0, reach // 2 + 1, 4)]
        sizes = [(x.shape[i + 1] + pads[i] + pads[i + 2] - reach - 1) // stride + 1 for i in (0, 1)]
        if min(sizes) < 1:
            return x
        weight, steps = self.kernel(out, inward // group, size, size)
        inputs = [self.read(x), weight]
        if self.chance(0.7):
            bias = self.rng.standard_normal(out) * 0.3
            if x.step and self.chance(0.7):
                scales = (np.float32(x.step) * np.broadcast_to(steps, out)).astype("f4")
                whole = np.rint(bias / scales).astype("i4")
                axis = {"axis": 0} if self.opset >= 13 else {}
                scale = self.constant(scales if axis else scales[0])
                inputs.append(self.add("DequantizeLinear", self.constant(whole), scale, **axis))
            else:
                inputs.append(self.constant(bias, "f4"))
        options: dict[str, Any] = {
            "pads": pads,
            "strides": [stride] * 2,
            "dilations": [dilation] * 2,
        }
        y = self.add("Conv", *inputs, group=group, kernel_shape=[size, size], **options)
        return self.quantised(Value(self.activated(y), (out, *sizes)))

    def activated(self, x: str) -> str:
        """Add an activation, or none."""
        kind = self.pick("", "", "Relu", "Clip", "LeakyRelu", "Sigmoid", "HardSwish")
        if kind == "Clip" and self.opset >= 11:
            return self.relu6(x)
        if kind == "Clip":
            return self.add("Clip", x, min=0.0, max=6.0)
        if kind == "HardSwish" and self.opset < 14:
            return self.add("Mul", x, self.add("Sigmoid", x))
        return self.add(kind, x) if kind else x

    def joined(self, x: Value) -> Value:
        """Add the sum, the product or the concatenation of two values."""
        alike = [value for value in self.values if value.shape == x.shape]
        other = alike[int(self.rng.integers(len(alike)))]
        a, b = self.read(x), self.read(other)
        op = self.pick("Add", "Add", "Mul", "Concat")
        if op == "Concat":
            channels = x.shape[0] * 2
            return self.quantised(Value(self.add(op, a, b, axis=1), (channels, *x.shape[1:])))
        return self.quantised(Value(self.activated(self.add(op, a, b)), x.shape))

    def moved(self, x: Value) -> Value:
        """Add an operator that moves or selects elements; its result may have other scales."""
        channels, height, width = x.shape
        op = self.pick("MaxPool", "AveragePool", "Transpose", "Slice", "Reshape", "Split", "Pad")
        y, shape = x.name, x.shape
        if op in ("MaxPool", "AveragePool") and min(height, width) >= 2:
            y = self.add(op, self.read(x), kernel_shape=[2, 2], strides=[2, 2])
            shape = (channels, height // 2, width // 2)
        elif op == "Transpose":
            y = self.add(op, self.read(x), perm=[0, 1, 3, 2])
            shape = (channels, width, height)
        elif op == "Slice" and self.opset >= 10 and width > 2:
            limits = [self.constant([at], "i8") for at in (1, width, 3)]
            y, shape = self.add(op, self.read(x), *limits), (channels, height, width - 1)
        elif op == "Reshape":
            y = self.reshape(self.read(x), 0, channels, width, height)
            shape = (channels, width, height)
        elif op == "Split" and channels % 2 == 0 and self.opset < 18:
            y = self.add(op, self.read(x), outputs=2, axis=1)
            shape = (channels // 2, height, width)
        elif op == "Pad" and self.opset >= 11:
            y = self.add(op, self.read(x), self.constant([0, 0, 1, 0, 0, 0, 0, 1], "i8"))
            shape = (channels, height + 1, width + 1)
        return self.quantised(Value(y, shape), 0.6) if y != x.name else x

    def head(self, x: Value) -> Value:
        """Add a mean over pictures and a matrix product."""
        mean = self.add("GlobalAveragePool", self.read(x))
        flat = self.quantised(Value(self.add("Flatten", mean), (x.shape[0],)))
        halved = self.opset >= 21 and x.shape[0] % 2 == 0 and self.chance(0.5)
        weight = self.blocked(x.shape[0]) if halved else self.kernel(x.shape[0], 10, axis=1)[0]
        y = self.add("MatMul", flat.name, weight)
        if self.chance(0.5):
            y = self.add("Add", y, self.constant(self.rng.standard_normal(10), "f4"))
        return self.quantised(Value(y, (10,)))


def mixed(seed: int, opset: int) -> tuple[ModelProto, dict[str, float]]:
    """Return a random network, and the step of each output, 0 for one that is not quantised."""
    net = Mixed(seed, opset)
    first = Value(net.input("x", ("N", 4, 9, 8)), (4, 9, 8))
    net.values.append(net.quantised(first, 0.9))
    for _ in range(int(net.rng.integers(3, 9))):
        x = net.values[-1] if net.chance(0.7) else net.pick(*net.values)
        net.values.append(net.pick(net.product, net.product, net.joined, net.moved)(x))
    last = net.values[-1]
    ends = [net.head(last) if net.chance(0.6) else last]
    ends += [value for value in net.values[1:-1] if net.chance(0.15)]
    outputs, steps, kinds = dict[str, Any](), dict[str, float](), dict[str, int]()
    known = {row.name: row.data_type for row in net.weights}
    for value in ends:
        narrow = bool(value.parts) and net.chance(0.2)
        name = value.parts[0] if narrow else value.name
        outputs[name] = ("N", *value.shape)
        steps[name] = 1.0 if narrow else value.step
        if narrow:
            kinds[name] = known[value.parts[2]] if value.parts[2:] else TensorProto.UINT8
    model = net.model(outputs)
    for port in model.graph.output:
        if port.name in kinds:
            port.type.tensor_type.elem_type = kinds[port.name]
    return model, steps
