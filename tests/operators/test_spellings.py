"""How ONNX writes each operator, against ONNX Runtime; every spelling is visited.

ONNX's own reference, which is wrong for some (Softmax before opset 13, LRN), stands in for the
opsets that ONNX Runtime no longer reads.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from libdesc.registry import registry
from tests.operators.harness import check_close
from tests.operators.test_elementwise_spellings import NODES as ELEMENTWISE
from tests.operators.test_elementwise_spellings import OLD
from vtensor.errors import UnsupportedOperatorError
from vtensor.language.operators import OPERATORS
from vtensor.runtime.session import Session

Array = np.ndarray[Any, Any]

IMAGE = (2, 6, 9, 8)
SERIES = (2, 6, 9)
VOLUME = (2, 6, 5, 4, 7)


@dataclass(frozen=True)
class Node:
    """A model of one node: shapes are inputs of the run, arrays are constants, None is absent.

    Its first output is delivered, of element type ``kind``; the inputs of a run are ``given``.
    """

    op_type: str
    opset: int
    inputs: tuple[tuple[int, ...] | Array | None, ...]
    attributes: dict[str, Any] = field(default_factory=dict)
    same: bool = False
    outputs: int = 1
    kind: int = TensorProto.FLOAT
    given: str = "float32"

    def __str__(self) -> str:
        given = [getattr(one, "shape", one) for one in self.inputs]
        return f"{self.op_type}-{self.opset}-{given}-{self.attributes}"

    def model(self) -> onnx.ModelProto:
        """The model; ``same`` gives the first input twice."""
        names = [f"x{i}" if one is not None else "" for i, one in enumerate(self.inputs)]
        rows = [(n, one) for n, one in zip(names, self.inputs, strict=True) if one is not None]
        constants = [numpy_helper.from_array(a, n) for n, a in rows if isinstance(a, np.ndarray)]
        kind = helper.np_dtype_to_tensor_dtype(np.dtype(self.given))
        inputs = [
            helper.make_tensor_value_info(n, kind, shape)
            for n, shape in rows
            if isinstance(shape, tuple)
        ]
        taken = [*names, "x0"] if self.same else names
        made = ["y", *(f"y{i}" for i in range(1, self.outputs))]
        domain, _, name = self.op_type.rpartition("::")
        node = helper.make_node(name, taken, made, domain=domain, **self.attributes)
        output = helper.make_tensor_value_info("y", self.kind, None)
        graph = helper.make_graph([node], "one", inputs, [output], constants)
        opsets = [helper.make_opsetid(domain, self.opset)]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
        return onnx.shape_inference.infer_shapes(model)

    def feeds(self) -> dict[str, Array]:
        """Values for the inputs of a run."""
        random, scale = np.random.default_rng(5), 1 if self.given == "float32" else 30
        return {
            f"x{i}": np.asarray(random.normal(size=shape) * scale, self.given)
            for i, shape in enumerate(self.inputs)
            if isinstance(shape, tuple)
        }


def floats(*shape: int) -> Array:
    """A constant of this shape."""
    return np.random.default_rng(6).normal(size=shape).astype(np.float32)


def integers(*values: int) -> Array:
    """A constant that is a shape or a row of axes."""
    return np.array(values, np.int64)


def numbers(*values: float) -> Array:
    """A constant that is a row of scales."""
    return np.array(values, np.float32)


def weights(gates: int, directions: int) -> tuple[Array, Array]:
    """Those of a recurrent network with 4 features and 6 units."""
    return floats(directions, 6 * gates, 4), floats(directions, 6 * gates, 6)


def positive(size: int) -> Array:
    """Statistics of a normalization."""
    return np.random.default_rng(8).uniform(0.5, 1.5, size).astype(np.float32)


def steps(*shape: int) -> Array:
    """What has been quantised."""
    return np.random.default_rng(9).integers(0, 256, shape).astype(np.uint8)


BYTE, INT = TensorProto.UINT8, TensorProto.INT32
SCALE, ZERO = np.array(3.0, np.float32), np.array(100, np.uint8)
W = floats(4, 6, 3, 3)
STATISTICS = (positive(6), positive(6), positive(6), positive(6))
PLACES = integers(5, 7, 13, 15).reshape(1, 1, 2, 2)
SAME = {"auto_pad": "SAME_UPPER", "strides": [2, 2]}

NODES = [
    Node("Conv", 11, (IMAGE, W), {"pads": [1, 0, 2, 1], "strides": [2, 1]}),
    Node("Conv", 11, (IMAGE, W, floats(4)), {"kernel_shape": [3, 3], "dilations": [2, 1]}),
    Node("Conv", 11, (IMAGE, floats(8, 3, 3, 3)), {"group": 2}),
    Node("Conv", 11, (IMAGE, floats(6, 1, 3, 3), floats(6)), {"group": 6, "pads": [1, 1, 1, 1]}),
    Node("Conv", 11, (IMAGE, floats(12, 1, 2, 3)), {"group": 6}),
    Node("Conv", 11, (IMAGE, W), SAME),
    Node("Conv", 11, (IMAGE, floats(4, 6, 2, 4)), {"auto_pad": "SAME_LOWER"}),
    Node("Conv", 11, (IMAGE, W), {"auto_pad": "VALID"}),
    Node("Conv", 1, (IMAGE, W)),
    Node("Conv", 11, (SERIES, floats(4, 6, 3), floats(4)), {"pads": [1, 2], "strides": [2]}),
    Node("Conv", 11, (SERIES, floats(6, 1, 3)), {"group": 6, "dilations": [2]}),
    Node("Conv", 11, (SERIES, floats(4, 6, 2)), {"auto_pad": "SAME_LOWER"}),
    Node("Conv", 11, (VOLUME, floats(4, 6, 3, 2, 3), floats(4)), {"pads": [1, 0, 2, 1, 1, 0]}),
    Node("Conv", 11, (VOLUME, floats(4, 3, 2, 2, 2)), {"group": 2, "strides": [1, 2, 2]}),
    Node("Conv", 22, (VOLUME, floats(4, 6, 3, 3, 3)), {"auto_pad": "SAME_UPPER"}),
    Node("ConvTranspose", 11, (IMAGE, floats(6, 4, 3, 3), floats(4)), {"strides": [2, 3]}),
    Node("ConvTranspose", 11, (IMAGE, floats(6, 2, 3, 2)), {"group": 2, "pads": [1, 0, 2, 1]}),
    Node("ConvTranspose", 11, (IMAGE, floats(6, 4, 3, 3)), {**SAME, "dilations": [2, 1]}),
    Node(
        "ConvTranspose",
        11,
        (IMAGE, floats(6, 4, 3, 3)),
        {"auto_pad": "SAME_LOWER", "strides": [3, 2]},
    ),
    Node(
        "ConvTranspose",
        11,
        (IMAGE, floats(6, 4, 2, 2)),
        {"strides": [2, 2], "output_padding": [1, 0]},
    ),
    Node(
        "ConvTranspose",
        11,
        (IMAGE, floats(6, 4, 3, 3)),
        {"strides": [3, 2], "output_shape": [28, 18]},
    ),
    Node("ConvTranspose", 11, (SERIES, floats(6, 4, 3)), {"strides": [2], "pads": [1, 0]}),
    Node("ConvTranspose", 11, (VOLUME, floats(6, 4, 2, 1, 3)), {"strides": [2, 1, 2]}),
    Node("MaxPool", 12, (SERIES,), {"kernel_shape": [3], "strides": [2], "ceil_mode": 1}),
    Node("MaxPool", 12, (VOLUME,), {"kernel_shape": [3, 2, 2], "pads": [1, 0, 1, 0, 1, 0]}),
    Node("AveragePool", 11, (SERIES,), {"kernel_shape": [3], "auto_pad": "SAME_LOWER"}),
    Node(
        "AveragePool",
        19,
        (VOLUME,),
        {"kernel_shape": [2, 2, 3], "pads": [0, 1, 1, 1, 0, 1], "count_include_pad": 1},
    ),
    Node("AveragePool", 19, (IMAGE,), {"kernel_shape": [2, 2], "dilations": [3, 2]}),
    Node("GlobalAveragePool", 1, (VOLUME,)),
    Node("GlobalMaxPool", 13, (SERIES,)),
    Node("GlobalMaxPool", 13, (VOLUME,)),
    Node("BatchNormalization", 9, (SERIES, *STATISTICS)),
    Node("BatchNormalization", 14, (VOLUME, *STATISTICS)),
    Node("BatchNormalization", 7, (IMAGE, *STATISTICS)),
    Node("MaxPool", 12, (IMAGE,), {"kernel_shape": [3, 2], "strides": [2, 2]}),
    Node("MaxPool", 12, (IMAGE,), {"kernel_shape": [3, 3], "strides": [2, 3], "ceil_mode": 1}),
    Node("MaxPool", 12, (IMAGE,), {"kernel_shape": [2, 2], "dilations": [3, 2]}),
    Node("MaxPool", 8, (IMAGE,), {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}),
    Node("AveragePool", 11, (IMAGE,), {"kernel_shape": [3, 3], "pads": [1, 2, 0, 1]}),
    Node("AveragePool", 11, (IMAGE,), {"kernel_shape": [3, 3], **SAME}),
    Node(
        "AveragePool",
        11,
        (IMAGE,),
        {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "count_include_pad": 1},
    ),
    Node("AveragePool", 11, (IMAGE,), {"kernel_shape": [2, 3], "strides": [2, 2], "ceil_mode": 1}),
    Node("GlobalAveragePool", 1, (IMAGE,)),
    Node("GlobalMaxPool", 1, (IMAGE,)),
    Node("BatchNormalization", 9, (IMAGE, *STATISTICS), {"epsilon": 0.01}),
    Node("BatchNormalization", 15, ((5, 6), *STATISTICS)),
    Node("BatchNormalization", 6, (IMAGE, *STATISTICS), {"is_test": 1}),
    Node("Gemm", 6, ((5, 7), floats(3, 7), floats(3)), {"transB": 1, "broadcast": 1}),
    Node("MaxPool", 12, (IMAGE,), {"kernel_shape": [3, 3], "storage_order": 1}),
    Node("MaxUnpool", 11, ((1, 1, 2, 2), PLACES), {"kernel_shape": [2, 2], "strides": [2, 2]}),
    Node("InstanceNormalization", 6, (IMAGE, floats(6), floats(6)), {"epsilon": 0.01}),
    Node("InstanceNormalization", 6, (SERIES, floats(6), floats(6))),
    Node("LayerNormalization", 17, (IMAGE, floats(8), floats(8))),
    Node("LayerNormalization", 17, (IMAGE, floats(9, 8), floats(9, 8)), {"axis": 2}),
    Node("LayerNormalization", 17, (SERIES, floats(6, 9)), {"axis": -2, "epsilon": 0.1}),
    Node("GroupNormalization", 21, (IMAGE, floats(6), floats(6)), {"num_groups": 2}),
    Node("GroupNormalization", 21, (SERIES, floats(6), floats(6)), {"num_groups": 3}),
    Node("RMSNormalization", 23, (IMAGE, floats(9, 8)), {"axis": 2}),
    Node("RMSNormalization", 23, (SERIES, floats(9)), {"epsilon": 0.1}),
    Node("LpNormalization", 13, (IMAGE,)),
    Node("LpNormalization", 13, (IMAGE,), {"axis": 1, "p": 1}),
    Node("MeanVarianceNormalization", 9, (IMAGE,)),
    Node("MeanVarianceNormalization", 13, (IMAGE,), {"axes": [1, 2]}),
    Node("LpPool", 11, (IMAGE,), {"kernel_shape": [3, 2], "pads": [1, 1, 0, 1]}),
    Node("LpPool", 18, (SERIES,), {"kernel_shape": [3], "p": 1, "strides": [2], "ceil_mode": 1}),
    Node("LpPool", 11, (IMAGE,), {"kernel_shape": [3, 2], "p": 3, **SAME}),
    Node("GlobalLpPool", 13, (IMAGE,), {"p": 3}),
    Node("GlobalLpPool", 13, (VOLUME,)),
    Node("Relu", 6, (IMAGE,)),
    Node("Relu", 14, ((),)),
    Node("Clip", 6, (IMAGE,), {"min": 0.0, "max": 6.0}),
    Node("Clip", 13, (IMAGE, np.array(0, "f4"), np.array(6, "f4"))),
    Node("Concat", 4, (IMAGE, (2, 3, 9, 8)), {"axis": 1}),
    Node("Concat", 13, ((2, 3), (5, 3), (1, 3)), {"axis": -2}),
    Node("Add", 7, (IMAGE, floats(6, 1, 1))),
    Node("Add", 13, ((4, 1), (3, 1, 5))),
    Node("Add", 13, ((), IMAGE)),
    Node("Sum", 8, (IMAGE,)),
    Node("Sum", 8, (IMAGE, (9, 8), floats(6, 1, 1))),
    Node("Mul", 13, (IMAGE, (8,))),
    Node("Softmax", 9, ((2, 3, 4),), {"axis": 1}),
    Node("Softmax", 11, ((2, 3, 4),), {"axis": 2}),
    Node("Softmax", 9, ((2, 30, 1, 1),)),
    Node("Softmax", 13, ((2, 3, 4),), {"axis": 1}),
    Node("Softmax", 13, ((2, 3, 4),)),
    Node("LRN", 13, (IMAGE,), {"size": 3, "alpha": 0.02, "beta": 0.6, "bias": 2.0}),
    Node("LRN", 13, (IMAGE,), {"size": 5, "alpha": 0.5}),
    Node("ReduceMean", 13, (IMAGE,), {"axes": [2, -1], "keepdims": 0}),
    Node("ReduceMean", 13, (IMAGE,), {"axes": [1]}),
    Node("ReduceMean", 13, ((2, 3),)),
    Node("ReduceMean", 18, (IMAGE, integers(2, 3))),
    Node("ReduceMean", 18, (IMAGE, integers(0, 3)), {"keepdims": 0}),
    Node("ReduceMean", 18, ((2, 3),), {"noop_with_empty_axes": 1}),
    Node("MatMul", 13, ((5, 7), floats(7, 3))),
    Node("MatMul", 13, ((5, 7), (7, 5))),
    Node("MatMul", 13, ((2, 3, 5, 7), (2, 3, 7, 4))),
    Node("MatMul", 13, ((2, 3, 5, 7), floats(7, 4))),
    Node("MatMul", 13, ((5, 7), (2, 3, 7, 4))),
    Node("MatMul", 13, ((2, 1, 5, 7), (3, 7, 4))),
    Node("MatMul", 13, ((7,), (2, 7, 4))),
    Node("MatMul", 13, ((2, 5, 7), (7,))),
    Node("MatMul", 13, ((7,), (7,))),
    Node("MatMul", 13, ((4, 4),), same=True),
    Node("Gemm", 13, ((5, 7), floats(3, 7), floats(3)), {"transB": 1}),
    Node("Gemm", 13, ((7, 5), floats(7, 3), floats(5, 1)), {"transA": 1}),
    Node("Gemm", 11, ((5, 7), (7, 3))),
    Node("Gemm", 13, ((5, 7), (7, 3), floats(1, 3)), {"beta": 0.0}),
    Node("Gemm", 13, ((5, 7), (7, 3)), {"alpha": 0.5}),
    Node("Gemm", 11, ((5, 7), (7, 3), floats(3)), {"alpha": -1.5, "beta": 2.0}),
    Node("Gemm", 9, ((7, 5), (3, 7), (5, 3)), {"transA": 1, "transB": 1, "beta": 0.5}),
    Node("Gemm", 7, ((5, 7), (7, 3), (1,))),
    Node("Gemm", 13, ((5, 7), (7, 3), np.array(2, "f4")), {"beta": 3.0}),
    Node("Gemm", 13, ((5, 7), (7, 3), (5, 1)), {"beta": 3.0}),
    Node("MatMul", 9, ((7,), floats(7, 4))),
    Node("MatMul", 13, ((2, 1, 3, 5, 7), (4, 1, 7, 2))),
    Node("MatMul", 13, ((7,), (3, 2, 7, 4))),
    Node("MatMul", 13, ((3, 2, 5, 7), floats(7))),
    Node("Add", 13, ((4, 4),), same=True),
    Node("Reshape", 13, (IMAGE, integers(0, -1, 4))),
    Node("Reshape", 5, (IMAGE, integers(2, 432))),
    Node("Reshape", 14, ((0, 3), integers(3, 0)), {"allowzero": 1}),
    Node("Flatten", 13, (IMAGE,)),
    Node("Flatten", 13, (IMAGE,), {"axis": 0}),
    Node("Flatten", 13, (IMAGE,), {"axis": -1}),
    Node("Squeeze", 11, ((1, 3, 1, 4),), {"axes": [0, -2]}),
    Node("Squeeze", 13, ((1, 3, 1, 4), integers(2))),
    Node("Squeeze", 13, ((1, 3, 1, 4),)),
    Node("Unsqueeze", 11, ((3, 4),), {"axes": [0, 3]}),
    Node("Unsqueeze", 13, ((3, 4), integers(-1, 1))),
    Node("Transpose", 13, ((2, 3, 4),), {"perm": [2, 0, 1]}),
    Node("Transpose", 13, ((2, 3, 4),)),
    Node("Identity", 13, (IMAGE,)),
    Node("Dropout", 7, (IMAGE,)),
    Node("Dropout", 13, (IMAGE, np.array(0.3, "f4"), np.array(False))),
]

LONG = TensorProto.INT64
SQUARE = (1, 2, 5, 6)
ROWS = integers(1, 1, 0, 3, 2, 2).reshape(3, 2)
NONE = np.zeros(0, np.float32)
STEPS = (5, 3, 4)
TRAINING = "ai.onnx.preview.training"
MOMENTUM = {"alpha": 0.9, "beta": 0.4, "norm_coefficient": 0.1}
BOXES = numbers(0.5, 1, 6, 5.5, 2, 0, 12, 3).reshape(2, 4)
BINS = {"output_height": 3, "output_width": 2, "spatial_scale": 0.8}
WIDE = {"dilations": [1, 2]}
COLUMNS = {"strides": [3, 2], "pads": [1, 0, 1, 1], "dilations": [2, 1]}
MODE, SYMMETRIC = "coordinate_transformation_mode", "half_pixel_symmetric"
REDUCTIONS = ("Sum", "Max", "Min", "Prod", "L1", "L2", "SumSquare", "LogSumExp")

NODES += [
    *(Node(f"Reduce{one}", 11, (IMAGE,), {"axes": [2, -1], "keepdims": 0}) for one in REDUCTIONS),
    *(Node(f"Reduce{one}", 12, (IMAGE,), {"axes": [1]}) for one in REDUCTIONS),
    *(Node(f"Reduce{one}", 18, ((2, 3, 4), integers(-1))) for one in REDUCTIONS),
    *(Node(f"Reduce{one}", 18, ((2, 3),), {"keepdims": 0}) for one in REDUCTIONS),
    Node("ReduceSum", 13, (IMAGE, integers(0, 3)), {"keepdims": 0}),
    Node("ReduceSum", 13, ((2, 3), integers()), {"noop_with_empty_axes": 1}),
    Node("ReduceLogSum", 18, ((2, 3, 0), integers(1))),
    Node("Slice", 9, (IMAGE,), {"starts": [1, -3], "ends": [5, 99], "axes": [1, 3]}),
    Node("Slice", 9, (IMAGE,), {"starts": [1, 2], "ends": [2, 4]}),
    Node("Slice", 10, (IMAGE, integers(-1), integers(-99), integers(2), integers(-2))),
    Node("Slice", 11, (IMAGE, integers(5), integers(3), integers(1))),
    Node("Slice", 13, ((5,), integers(-99), integers(-99), integers(0), integers(-1))),
    Node("Slice", 13, (IMAGE, integers(2**62), integers(-(2**62)), integers(3), integers(-1))),
    Node("Split", 11, (IMAGE,), {"axis": 1}, outputs=3),
    Node("Split", 11, (IMAGE,), {"axis": -1, "split": [3, 5]}, outputs=2),
    Node("Split", 13, (IMAGE, integers(2, 4)), {"axis": 1}, outputs=2),
    Node("Split", 18, ((7, 2),), {"num_outputs": 3}, outputs=3),
    Node("Pad", 7, (IMAGE,), {"pads": [0, 1, 2, 0, 0, 0, 1, 3], "value": 2.5}),
    Node("Pad", 7, (IMAGE,), {"pads": [0, 1, 2, 0, 0, 0, 1, 3], "mode": "reflect"}),
    Node("Pad", 11, ((3, 4), integers(1, 0, 2, 1)), {"mode": "edge"}),
    Node("Pad", 13, ((3, 4), integers(-1, 1, 0, -2), np.array(1.5, "f4"))),
    Node("Pad", 18, (IMAGE, integers(1, 2, 0, 1), None, integers(-1, 1))),
    Node("Pad", 19, ((3, 4), integers(0, 2, 1, 2)), {"mode": "wrap"}),
    Node("Gather", 7, ((5, 3, 4), integers(0, 4, 2)), {"axis": 1 - 1}),
    Node("Gather", 11, ((5, 3, 4), integers(-1, 0).reshape(1, 2)), {"axis": -2}),
    Node("Gather", 13, ((5, 3), np.array(2)), {"axis": 1}),
    Node("GatherElements", 11, ((3, 4), integers(0, -1, 2, 1).reshape(2, 2)), {"axis": 1}),
    Node("GatherElements", 13, ((3, 4), integers(0, -1, 2, 1).reshape(1, 4))),
    Node("GatherND", 11, ((3, 4, 5), integers(2, 1, 0, -1).reshape(2, 2))),
    Node("GatherND", 12, ((3, 4, 5), integers(2, 1, 0).reshape(3, 1)), {"batch_dims": 1}),
    Node("GatherND", 13, ((2, 3, 4), integers(2, 1, 0, 3).reshape(2, 1, 2)), {"batch_dims": 1}),
    Node("Scatter", 9, ((3, 4), integers(1, 0, 2, 1).reshape(2, 2), (2, 2)), {"axis": 1}),
    Node("ScatterElements", 11, ((3, 4), integers(1, -1).reshape(1, 2), (1, 2))),
    *(
        Node("ScatterElements", 18, ((3, 4), ROWS, (3, 2)), {"axis": 1, "reduction": how})
        for how in ("add", "mul", "max", "min")
    ),
    Node("ScatterElements", 16, ((3, 4), ROWS, (3, 2)), {"axis": 1, "reduction": "add"}),
    Node("ScatterND", 11, ((3, 4, 5), integers(2, 1, 0, -1).reshape(2, 2), (2, 5))),
    Node("ScatterND", 13, ((3, 4), integers(2).reshape(1, 1), (1, 4))),
    Node("ScatterND", 16, ((3, 4), integers(2, 2).reshape(2, 1), (2, 4)), {"reduction": "mul"}),
    Node("ScatterND", 18, ((3, 4), integers(2, 2).reshape(2, 1), (2, 4)), {"reduction": "max"}),
    Node("EyeLike", 9, ((3, 4),), {"k": 1}),
    Node("Einsum", 12, ((2, 3, 4), (2, 4, 5)), {"equation": "bij, bjk -> bik"}),
    Node("Einsum", 12, ((3, 4), floats(4, 5)), {"equation": "ij,jk"}),
    Node("Einsum", 12, ((2, 4, 4),), {"equation": "...ii->...i"}),
    Node("Einsum", 12, ((4, 4),), {"equation": "ij,ij->"}, same=True),
    Node("Einsum", 12, ((3, 4),), {"equation": "ij->ji"}),
    Node("Einsum", 12, ((3, 2, 4), (2,)), {"equation": "a...b,...->b...a"}),
    Node("EyeLike", 9, ((4, 3),), {"dtype": LONG}, kind=LONG),
    Node("Expand", 8, ((3, 1), integers(2, 1, 4))),
    Node("Expand", 13, ((2, 3, 1), integers(4))),
    Node("Expand", 13, ((3, 1), integers(3, 4))),
    Node("Tile", 7, ((3, 4), integers(2, 1))),
    Node("Tile", 13, ((3, 4), integers(1, 3))),
    Node("DepthToSpace", 7, ((2, 12, 3, 2),), {"blocksize": 2}),
    Node("DepthToSpace", 11, ((2, 12, 3, 2),), {"blocksize": 2, "mode": "CRD"}),
    Node("DepthToSpace", 13, ((2, 18, 3, 2),), {"blocksize": 3, "mode": "DCR"}),
    Node("SpaceToDepth", 7, ((2, 3, 6, 4),), {"blocksize": 2}),
    Node("SpaceToDepth", 13, ((2, 3, 6, 9),), {"blocksize": 3}),
    Node("ArgMax", 7, (IMAGE,), {"axis": 1}, kind=LONG),
    Node("ArgMax", 12, ((2, 3),), {"axis": -1, "keepdims": 0, "select_last_index": 1}, kind=LONG),
    Node("ArgMin", 11, ((2, 3),), {"keepdims": 0}, kind=LONG),
    Node("ArgMin", 13, (IMAGE,), {"axis": 2}, kind=LONG),
    Node("TopK", 7, (IMAGE,), {"k": 3, "axis": 1}, outputs=2),
    Node("TopK", 10, (IMAGE, integers(2)), outputs=2),
    Node("TopK", 11, (IMAGE, integers(9)), {"axis": 2, "largest": 0}, outputs=2),
    Node("Upsample", 7, (SQUARE,), {"scales": [1.0, 1.0, 2.0, 3.0]}),
    Node("Upsample", 7, (SQUARE,), {"scales": [1.0, 1.0, 2.0, 1.5], "mode": "linear"}),
    Node("Upsample", 9, (SQUARE, numbers(1, 1, 2, 2))),
    Node("Resize", 10, (SQUARE, numbers(1, 1, 0.6, 2.5))),
    Node("Resize", 10, (SQUARE, numbers(1, 1, 2, 0.5)), {"mode": "linear"}),
    *(
        Node("Resize", 11, (SQUARE, NONE, numbers(1, 1, 1.6, 0.7)), {"mode": mode, **more})
        for mode in ("linear", "cubic")
        for more in ({}, {MODE: "asymmetric"})
    ),
    *(
        Node("Resize", 13, (SQUARE, NONE, numbers(1, 1, 1.5, 0.75)), {"nearest_mode": rounding})
        for rounding in ("floor", "ceil", "round_prefer_ceil", "round_prefer_floor")
    ),
    *(
        Node("Resize", 11, (SQUARE, NONE, NONE, integers(1, 2, 9, 3)), {"mode": "linear", **more})
        for more in ({}, {MODE: "align_corners"})
    ),
    Node("Resize", 11, (SQUARE, NONE, NONE, integers(1, 2, 9, 1)), {MODE: "pytorch_half_pixel"}),
    Node("Resize", 11, (SQUARE, NONE, numbers(1, 1, 2, 2)), {MODE: "tf_half_pixel_for_nn"}),
    Node("Resize", 19, (SQUARE, NONE, NONE, integers(*SQUARE)), {"mode": "cubic"}),
    Node(
        "Resize",
        13,
        (SQUARE, numbers(0, 0, 0.2, -0.1, 1, 1, 0.9, 1.3), NONE, integers(1, 2, 4, 7)),
        {MODE: "tf_crop_and_resize", "mode": "linear", "extrapolation_value": 9.0},
    ),
    Node(
        "Resize",
        13,
        (SQUARE, NONE, numbers(1, 1, 1.7, 0.7)),
        {"mode": "cubic", "exclude_outside": 1, "cubic_coeff_a": -0.5},
    ),
    *(
        Node(
            "Resize",
            18,
            (SQUARE, None, numbers(0.4, 0.6)),
            {"mode": mode, "antialias": 1, "axes": [-2, -1]},
        )
        for mode in ("linear", "cubic")
    ),
    *(
        Node(
            "Resize",
            18,
            (SQUARE, None, None, integers(4, 12)),
            {"axes": [2, 3], "keep_aspect_ratio_policy": policy},
        )
        for policy in ("not_larger", "not_smaller")
    ),
    Node("Resize", 19, (SQUARE, None, numbers(0.45)), {MODE: SYMMETRIC, "axes": [3]}),
    Node("CumSum", 11, (IMAGE, np.array(2))),
    Node("CumSum", 14, ((4, 5), np.array(-1)), {"exclusive": 1, "reverse": 1}),
    Node("Trilu", 14, ((2, 3, 4),)),
    Node("Trilu", 14, ((4, 3), np.array(-1)), {"upper": 0}),
    Node("Compress", 9, ((3, 4), np.array([True, False, True]))),
    Node("Compress", 11, ((3, 4), np.array([True, False, True])), {"axis": -1}),
    *(
        Node(
            f"{TRAINING}::{op_type}",
            1,
            ((), np.array(3), (2,), (3,), (2,), (3,), *(positive(n) for n in states)),
            attributes,
            outputs=2 + len(states),
        )
        for op_type, states, attributes in (
            ("Adagrad", (2, 3), {"norm_coefficient": 0.1, "decay_factor": 0.2}),
            ("Adam", (2, 3, 2, 3), {"norm_coefficient": 0.1, "alpha": 0.8}),
            ("Momentum", (2, 3), {**MOMENTUM, "mode": "standard"}),
            ("Momentum", (2, 3), {**MOMENTUM, "mode": "nesterov"}),
        )
    ),
    Node("CumProd", 26, ((4, 5), np.array(-1)), {"exclusive": 1, "reverse": 1}),
    Node("Col2Im", 18, ((2, 12, 6), integers(6, 5), integers(2, 2)), COLUMNS),
    Node("Det", 11, ((2, 3, 3),)),
    Node("DFT", 17, ((2, 7, 1),), {"onesided": 1}),
    Node("DFT", 20, ((2, 7, 3, 2), np.array(9), np.array(1)), {"inverse": 1}),
    Node("STFT", 17, ((2, 20, 1), np.array(3), floats(6), np.array(6))),
    Node("STFT", 17, ((2, 20, 2), np.array(3), None, np.array(5)), {"onesided": 0}),
    *(
        Node("GridSample", 16, (SQUARE, (1, 3, 4, 2)), {"mode": mode, "padding_mode": padding})
        for mode in ("nearest", "bilinear", "bicubic")
        for padding in ("zeros", "border", "reflection")
    ),
    *(
        Node("AffineGrid", 20, ((count, 2, 3), integers(count, 3, *size)), {"align_corners": ends})
        for count in (1, 2)
        for size in ((4, 5), (2, 1))
        for ends in (0, 1)
        if (size, ends) != ((2, 1), 1)  # ONNX Runtime divides 0 by 0 there
    ),
    *(
        Node("AffineGrid", 20, ((count, 3, 4), integers(count, 1, 2, 3, 4)), {"align_corners": 1})
        for count in (1, 3)
    ),
    Node("GridSample", 20, (VOLUME, (2, 2, 3, 4, 3)), {"align_corners": 1}),
    Node("GridSample", 20, (IMAGE, (2, 3, 4, 2)), {"mode": "cubic", "align_corners": 1}),
    *(
        Node("RoiAlign", opset, (IMAGE, BOXES, integers(1, 0)), {"mode": mode, **BINS})
        for opset, mode in ((10, "avg"), (16, "avg"), (16, "max"))
    ),
    Node("RoiAlign", 16, (IMAGE, BOXES, integers(1, 0)), {**BINS, MODE: "output_half_pixel"}),
    Node("DeformConv", 19, ((1, 4, 5, 6), floats(3, 4, 2, 3), (1, 12, 4, 4), floats(3))),
    Node(
        "DeformConv",
        19,
        ((2, 4, 5, 6), floats(6, 2, 2, 3), (2, 24, 3, 4), None, (2, 12, 3, 4)),
        {"group": 2, "offset_group": 2, "strides": [2, 1], "pads": [1, 0, 1, 2], **WIDE},
    ),
    Node("ReverseSequence", 10, ((4, 3, 2), integers(4, 0, 2))),
    Node("ReverseSequence", 10, ((3, 4), integers(4, 1, 2)), {"time_axis": 1, "batch_axis": 0}),
    Node("TensorScatter", 24, ((2, 3, 9, 4), (2, 3, 2, 4), integers(1, 7))),
    Node("TensorScatter", 24, ((2, 9), (2, 3), integers(1, 7)), {"mode": "circular", "axis": 1}),
    *(
        Node(op_type, 14, (STEPS, *weights(gates, 2), None, lengths), {**both, **more})
        for op_type, gates, more in (
            ("RNN", 1, {"activations": ["Relu", "Affine"], "activation_alpha": [0.5]}),
            ("GRU", 3, {"linear_before_reset": 1}),
            ("GRU", 3, {"clip": 0.3}),
            ("LSTM", 4, {"input_forget": 1}),
        )
        for lengths in (None, np.array([5, 2, 4], np.int32))
        for both in ({"direction": "bidirectional", "hidden_size": 6},)
    ),
    *(
        Node(
            op_type,
            7,
            (STEPS, *weights(gates, 1), floats(1, 12 * gates), None, (1, 3, 6), *last),
            {"direction": "reverse", "hidden_size": 6},
        )
        for op_type, gates, last in (
            ("RNN", 1, ()),
            ("GRU", 3, ()),
            ("LSTM", 4, ((1, 3, 6), floats(1, 18))),
        )
    ),
    Node("OneHot", 9, (integers(3, 1, 0), np.array(4), (2,)), {"axis": 0}),
    Node("OneHot", 11, (integers(3, 1, 0, 9).reshape(2, 2), np.array(4), (2,))),
    Node("QuantizeLinear", 10, (IMAGE, np.array(0.03, "f4"), ZERO), kind=BYTE),
    Node("QuantizeLinear", 13, (IMAGE, positive(6)), kind=BYTE),
    Node("DequantizeLinear", 13, (steps(2, 6, 4), (6,), steps(6))),
    Node("DequantizeLinear", 10, (steps(5), (), ZERO)),
    Node("DynamicQuantizeLinear", 11, (IMAGE,), outputs=3, kind=BYTE),
    Node("MatMulInteger", 10, ((3, 5), (5, 4), np.array(3, "i1")), kind=INT, given="int8"),
    Node("ConvInteger", 10, (steps(1, 2, 5, 6), (3, 2, 2, 3)), kind=INT, given="int8"),
    Node("QLinearMatMul", 10, (steps(3, 5), (), ZERO, steps(5, 4), *(SCALE, ZERO) * 2), kind=BYTE),
    Node(
        "QLinearConv",
        10,
        (steps(1, 2, 5, 6), (), ZERO, steps(3, 2, 2, 3), positive(3), steps(3), SCALE, ZERO),
        {"pads": [0, 1, 1, 0], "strides": [2, 1]},
        kind=BYTE,
    ),
    Node("BitCast", 26, (IMAGE,), {"to": INT}, kind=INT),
]

REFUSED = [
    (Node("Conv", 11, ((1, 2, 3, 3, 3, 3), floats(4, 2, 1, 1, 1, 1))), "4 spatial dims"),
    (
        Node("Dropout", 13, (IMAGE, np.array(0.3, "f4"), np.array(True))),
        "training_mode",
    ),
    (Node("BatchNormalization", 7, (IMAGE, *STATISTICS), {"spatial": 0}), "spatial 0"),
]


def reference(node: Node) -> Array:
    """What others say."""
    if node.opset < 7:
        return np.asarray(ReferenceEvaluator(node.model()).run(None, node.feeds())[0])  # type: ignore[index]
    session = onnxruntime.InferenceSession(node.model().SerializeToString())
    return np.asarray(session.run(None, node.feeds())[0])


@pytest.mark.parametrize("libraries", [("numpy",), None], ids=["numpy", "all"])
@pytest.mark.parametrize("node", NODES, ids=str)
def test_agrees_with_onnx(node: Node, libraries: tuple[str, ...] | None) -> None:
    with Session(node.model(), threads=1, libraries=libraries) as session:
        [found] = session.run(None, node.feeds())
    expected = reference(node)
    assert found.shape == expected.shape
    check_close(found, expected.astype(np.float64), 1e-5)


@pytest.mark.parametrize("columns", [0, 1])
def test_indices_of_the_largest(columns: int) -> None:
    """Pads and ties included: the second output of MaxPool, as ONNX Runtime has it."""
    attributes = {"kernel_shape": [3, 2], "pads": [1, 0, 1, 1], "strides": [2, 1]}
    node = Node("MaxPool", 12, (IMAGE,), {**attributes, "storage_order": columns})
    model = node.model()
    model.graph.node[0].output.append("indices")
    model.graph.output.append(helper.make_tensor_value_info("indices", TensorProto.INT64, None))
    feeds = {"x0": np.round(node.feeds()["x0"])}
    with Session(model, threads=1) as session:
        found = session.run(None, feeds)
    expected = onnxruntime.InferenceSession(model.SerializeToString()).run(None, feeds)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(("node", "reason"), REFUSED, ids=lambda one: str(one))
def test_refuses_a_variant_with_its_reason(node: Node, reason: str) -> None:
    with pytest.raises(UnsupportedOperatorError, match=reason):
        Session(node.model(), threads=1)


def test_every_spelling_is_visited() -> None:
    assert not unvisited(NODES)


def unvisited(nodes: list[Node]) -> set[str]:
    """Spellings of our operators without a node here that is in their opsets."""
    registry()
    missing = set()
    for info in OPERATORS.values():
        for spelling in info.onnx if Path(info.file).parent.name == "ops" else ():
            span = range(spelling.since, (spelling.until or 99) + 1)
            every: list[Any] = [*nodes, *ELEMENTWISE, *(old for old, _ in OLD)]
            if not any(n.op_type == spelling.op_type and n.opset in span for n in every):
                missing.add(f"{spelling.op_type} since {spelling.since}")
    return missing


def test_a_spelling_that_is_not_visited_is_seen() -> None:
    """The twin."""
    left = [node for node in NODES if (node.op_type, node.opset) != ("Softmax", 13)]
    assert unvisited(left) == {"Softmax since 13"}
