"""How ONNX writes what works element by element, against its own reference.

Each node runs at every opset that changed its operator, from 7 on.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, defs, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import ops
from libdesc.registry import registry
from ptensor.layout import Layout
from tests.operators.cases import CASES
from tests.operators.elementwise import EVERYWHERE
from tests.operators.harness import Given, check_close, run
from vtensor.language.operators import info_of
from vtensor.runtime.session import Session

Array = np.ndarray[Any, Any]

#: The first opset that is tested, and the last that the reference is asked about.
FIRST, LAST = 7, 24


@dataclass(frozen=True)
class Node:
    """A node: values of its inputs, None where one is absent; the last ``constants`` are known
    before the run.
    """

    op_type: str
    opset: int
    inputs: tuple[Array | None, ...]
    attributes: dict[str, Any] = field(default_factory=dict)
    constants: int = 0

    def __str__(self) -> str:
        shapes = [None if a is None else f"{a.dtype}{list(a.shape)}" for a in self.inputs]
        return f"{self.op_type}-{self.opset}-{shapes}-{self.attributes}-{self.constants}"

    def feeds(self) -> dict[str, Array]:
        """What a run is given."""
        return {f"x{i}": a for i, a in self._given() if i < len(self.inputs) - self.constants}

    def model(self) -> onnx.ModelProto:
        """The model of this node."""
        feeds = self.feeds()
        names = [f"x{i}" if a is not None else "" for i, a in enumerate(self.inputs)]
        inputs = [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
            for name, a in feeds.items()
        ]
        known = [
            numpy_helper.from_array(a, f"x{i}") for i, a in self._given() if f"x{i}" not in feeds
        ]
        node = helper.make_node(self.op_type, names, ["y"], **self.attributes)
        output = helper.make_tensor_value_info("y", TensorProto.UNDEFINED, None)
        graph = helper.make_graph([node], "one", inputs, [output], known)
        opsets = [helper.make_opsetid("", self.opset)]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
        return onnx.shape_inference.infer_shapes(model)

    def _given(self) -> list[tuple[int, Array]]:
        return [(i, a) for i, a in enumerate(self.inputs) if a is not None]


def opsets(op_type: str) -> list[int]:
    """The opsets that changed an operator, from ``FIRST`` on; older ones as they are there."""
    since = {
        schema.since_version
        for schema in defs.get_all_schemas_with_history()
        if schema.name == op_type and schema.domain == ""
    }
    return sorted({max(FIRST, version) for version in since if version <= LAST})


RANDOM = np.random.default_rng(11)
X = (RANDOM.normal(size=(2, 3, 4, 5)) * 3).astype(np.float32)
ROW = (RANDOM.normal(size=(4, 1)) * 3).astype(np.float32)
WITHIN = np.sin(X) * np.float32(0.9)
ABOVE = np.abs(X) + np.float32(0.1)
COUNTS = RANDOM.integers(1, 9, (2, 3, 4), np.int32)
TRUE, FALSE = X > 0, ROW > 0
SPECIAL = np.array([np.nan, np.inf, -np.inf, 0, -0.0, 1], np.float32)
BYTES = COUNTS.astype(np.uint8)

#: What needs no row, and what has one here on any reals.
REALS = {
    *(spelling.op_type for op in EVERYWHERE for spelling in info_of(op).onnx),
    *("LeakyRelu", "Elu", "Celu", "Shrink", "Gelu", "Swish", "LogSoftmax", "Hardmax"),
}
UNARY: dict[str, tuple[Array, ...]] = {
    **dict.fromkeys(sorted(REALS), (X,)),
    **dict.fromkeys(("Abs", "Neg", "Sign"), (X, COUNTS)),
    **dict.fromkeys(("Asin", "Acos", "Atanh"), (WITHIN,)),
    **dict.fromkeys(("Log", "Sqrt", "Reciprocal"), (ABOVE,)),
    "Acosh": (ABOVE + 1,),
    "Not": (TRUE,),
    "BitwiseNot": (COUNTS,),
    "IsNaN": (SPECIAL,),
    "IsInf": (SPECIAL,),
}
ATTRIBUTES: dict[str, list[dict[str, Any]]] = {
    "LeakyRelu": [{"alpha": 0.3}],
    "Elu": [{"alpha": 0.3}],
    "Selu": [{"alpha": 1.3, "gamma": 1.1}],
    "Celu": [{"alpha": 2.0}],
    "HardSigmoid": [{"alpha": 0.3, "beta": 0.4}],
    "ThresholdedRelu": [{"alpha": 2.0}],
    "Gelu": [{"approximate": "tanh"}],
    "Swish": [{"alpha": 1.7}],
    "Shrink": [{"lambd": 1.5, "bias": 0.5}],
    "IsInf": [{"detect_negative": 0}, {"detect_positive": 0}],
    "LogSoftmax": [{"axis": 1}, {"axis": 2}],
    "Hardmax": [{"axis": 1}, {"axis": 2}],
}
FLOATS = ((X, ROW), (ROW[:, 0], X[..., :4]), (X[:, :1], X[0]), (X, X))
WHOLE = ((COUNTS, COUNTS[0]), (-COUNTS, COUNTS + 1))
LOGICAL = ((TRUE, FALSE), (TRUE, TRUE))
BINARY: dict[str, tuple[tuple[Array, ...], ...]] = {
    **dict.fromkeys(("Sub", "Div"), (*FLOATS, *WHOLE)),
    **dict.fromkeys(("Greater", "Less"), FLOATS),
    **dict.fromkeys(("GreaterOrEqual", "LessOrEqual"), (*FLOATS, *WHOLE)),
    "Equal": (*WHOLE, (COUNTS, COUNTS), LOGICAL[0]),
    **dict.fromkeys(("And", "Or", "Xor"), LOGICAL),
    **dict.fromkeys(("BitwiseAnd", "BitwiseOr", "BitwiseXor"), WHOLE),
    "Pow": ((ABOVE, ROW), (X, np.array(2, np.float32))),
    "Mod": WHOLE,
    "PRelu": ((X, ROW), (X, X), (X, np.array([0.2], np.float32))),
    **dict.fromkeys(("Max", "Min", "Mean"), (*FLOATS, (X,), (X, ROW, X[:1]))),
}


def nodes() -> Iterator[Node]:
    """Every operator at every opset that changed it."""
    for op_type, arrays in UNARY.items():
        for opset in opsets(op_type):
            for array in arrays:
                for attributes in ({}, *ATTRIBUTES.get(op_type, ())):
                    yield Node(op_type, opset, (array,), attributes)
    for op_type, pairs in BINARY.items():
        for opset in opsets(op_type):
            for pair in pairs:
                if (
                    opset >= 8
                    or op_type not in ("Max", "Min", "Mean")
                    or len({*map(np.shape, pair)}) == 1
                ):
                    yield Node(op_type, opset, pair)
    yield from _others()


def _others() -> Iterator[Node]:
    low, high = np.array(-1.5, np.float32), np.array(2, np.float32)
    for opset in opsets("Clip"):
        if opset < 11:
            yield Node("Clip", opset, (X,), {"min": -1.5, "max": 2.0})
            yield Node("Clip", opset, (X,), {"max": 2.0})
            continue
        for constants in (0, 1, 2):
            yield Node("Clip", opset, (X, low, high), constants=constants)
        yield Node("Clip", opset, (X, None, high), constants=1)
        yield Node("Clip", opset, (X, low))
        yield Node("Clip", opset, (X,))
    yield Node("Clip", 13, (COUNTS, np.array(2, np.int32), np.array(5, np.int32)), constants=2)
    yield Node("Mod", 13, (X, ROW), {"fmod": 1})
    yield Node("Mod", 13, (COUNTS, -COUNTS), {"fmod": 1})
    yield Node("Pow", 13, (COUNTS, np.array(2, np.int32)))
    yield Node("Pow", 13, (X, np.array(3, np.int64)), constants=1)
    yield Node("PRelu", 9, (X, np.array([0.2], np.float32)), constants=1)
    for direction in ("LEFT", "RIGHT"):
        yield Node("BitShift", 11, (BYTES, BYTES[0]), {"direction": direction})
    for opset in opsets("Where"):
        yield Node("Where", opset, (TRUE, X, ROW))
        yield Node("Where", opset, (FALSE, COUNTS[:, :1, :, None], COUNTS[:, :, :1, None]))
    for opset in opsets("Cast"):
        for to in (TensorProto.INT32, TensorProto.BOOL, TensorProto.DOUBLE, TensorProto.FLOAT):
            yield Node("Cast", opset, (X,), {"to": to})
        yield Node("Cast", opset, (TRUE,), {"to": TensorProto.FLOAT})
    for opset in opsets("CastLike"):
        yield Node("CastLike", opset, (X, COUNTS))
        yield Node("CastLike", opset, (COUNTS, X[0]))


#: What lay along some dims of the first operand, up to opset 6, and how it is repeated since.
OLD_TYPES = ("Add", "Mul", "Sub", "Div", "Pow", "Equal", "Greater", "Less", "And", "Or", "Xor")
OLD_ATTRIBUTES: tuple[tuple[dict[str, int], tuple[int, ...]], ...] = (
    ({"axis": 1}, (3, 4)),
    ({"axis": -3}, (3,)),
    ({}, (4, 5)),
    ({"axis": 0}, (2,)),
)


def old_nodes(opset: int) -> Iterator[tuple[Node, Node]]:
    """A node of an old opset, and the one that says the same since opset 7."""
    for op_type, (attributes, shape) in product(OLD_TYPES, OLD_ATTRIBUTES):
        left: Array = ABOVE
        right: Array = ABOVE[:1].reshape(-1)[: np.prod(shape)].reshape(shape)
        if op_type in ("And", "Or", "Xor"):
            left, right = TRUE, right > 2
        if op_type == "Equal":
            left, right = left > 2, right > 2
        rest = X.ndim - len(shape) - attributes.get("axis", X.ndim - len(shape)) % X.ndim
        since = right.reshape(*shape, *[1] * rest)
        node = Node(op_type, opset, (left, right), {"broadcast": 1, **attributes})
        yield node, Node(op_type, 7, (left, since))
    slopes = ROW[:3, 0]
    yield Node("PRelu", opset, (X, slopes)), Node("PRelu", 9, (X, slopes.reshape(3, 1, 1)))
    yield Node("PRelu", opset, (X, slopes[:1])), Node("PRelu", 9, (X, slopes[:1]))


OLD = list(old_nodes(6))
NODES = list(nodes())


@pytest.mark.parametrize(("old", "since"), OLD, ids=str)
def test_an_old_opset_means_the_same(old: Node, since: Node) -> None:
    with Session(old.model(), threads=1) as session:
        [found] = session.run(None, old.feeds())
    check_close(found, reference(since).astype(np.float64), 1e-5)


def reference(node: Node) -> Array:
    """What others say: ONNX's own reference, and ONNX Runtime where that one is wrong."""
    model = node.model()
    wrong = ("LogSoftmax", "Hardmax", "Mean")
    if node.op_type in wrong and (node.opset < 13 or node.op_type == "Mean"):
        session = onnxruntime.InferenceSession(model.SerializeToString())
        return np.asarray(session.run(None, node.feeds())[0])
    return np.asarray(ReferenceEvaluator(model).run(None, node.feeds())[0])  # type: ignore[index]


def newest(node: Node) -> bool:
    """Whether no later opset changed the operator."""
    return node.opset == max(one.opset for one in NODES if one.op_type == node.op_type)


#: An opset decides how a node is read, which is the same on all libraries: older ones need one.
RUNS = [
    *((node, ("numpy",)) for node in NODES),
    *((node, None) for node in NODES if newest(node)),
]


@pytest.mark.parametrize(("node", "libraries"), RUNS, ids=str)
def test_agrees_with_onnx(node: Node, libraries: tuple[str, ...] | None) -> None:
    with Session(node.model(), threads=1, libraries=libraries) as session:
        [found] = session.run(None, node.feeds())
    expected = reference(node)
    assert found.dtype == expected.dtype
    assert found.shape == expected.shape
    check_close(found, expected.astype(np.float64), 1e-5)


def test_every_opset_is_visited() -> None:
    for op_type in {node.op_type for node in NODES} - {"BitShift"}:
        visited = {node.opset for node in NODES if node.op_type == op_type}
        assert set(opsets(op_type)) <= visited, op_type


@pytest.mark.parametrize("library", ["numpy", "eigen", "onednn"])
@pytest.mark.parametrize("op", [*EVERYWHERE, ops.LeakyRelu(), ops.Elu(), ops.Gelu()], ids=str)
def test_nan_stays_nan(op: Any, library: str) -> None:
    if (type(op).__name__, library, "cpu") not in registry().invokers:
        return
    values = np.array([1, np.nan, -1, 0.5], np.float32)
    [found] = run(library, op, [Given(values, ("A",), Layout.plain(("A",)))]).values
    if isinstance(op, ops.ThresholdedRelu):  # "otherwise 0", says ONNX: NaN is not above alpha
        assert found[1] == 0
    elif found.dtype.kind == "f":
        assert list(np.isnan(found)) == [False, True, False, False]


@pytest.mark.parametrize("name", ["Max", "Min", "Sub", "Div", "PRelu"])
def test_nan_of_either_operand_stays_nan(name: str) -> None:
    values = np.array([1, np.nan, 3], np.float32)
    one, two = (Given(a, ("A",), Layout.plain(("A",))) for a in (values, np.ones(3, np.float32)))
    for given in ((one, two), (two, one)):
        if name == "PRelu" and given[0] is two:
            continue  # a slope counts only for what is negative
        [found] = run("numpy", CASES[name][0].op, given).values
        assert list(np.isnan(found)) == [False, True, False]
