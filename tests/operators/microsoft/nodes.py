"""Nodes of ONNX Runtime's domain, for comparison with ONNX Runtime."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from onnx import ModelProto, TensorProto, ValueInfoProto, helper, numpy_helper

from tests.frontends.support import runtime
from tests.operators.harness import Array
from vtensor import Session
from vtensor.errors import VTensorError

DOMAIN = "com.microsoft"


@dataclass(frozen=True, eq=False)
class Node:
    """A node of ONNX Runtime's domain: inputs of a run first, then constants; None is left out.

    Attributes:
        off: by how much a result may be off, in steps; in f32, relative to the largest.
        outputs: their names; "" is left out, and "qk" is declared as f32.
        domain, opset: of the node, and of ONNX's operators.
    """

    op_type: str
    feeds: tuple[Array | None, ...]
    constants: tuple[Array | None, ...]
    attributes: dict[str, Any]
    off: float
    outputs: tuple[str, ...] = ("y",)
    domain: str = DOMAIN
    opset: int = 17

    def __str__(self) -> str:
        shapes = [
            f"{a.dtype}{list(a.shape)}" for a in (*self.feeds, *self.constants) if a is not None
        ]
        return f"{self.op_type} {' '.join(shapes)} {self.attributes}"

    def model(self) -> ModelProto:
        """Return the model of this node."""
        arrays = [*self.feeds, *self.constants]
        names = [f"x{i}" if array is not None else "" for i, array in enumerate(arrays)]
        node = helper.make_node(
            self.op_type, names, self.outputs, domain=self.domain, **self.attributes
        )
        ports = [
            helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
            for n, a in zip(names, self.feeds, strict=False)
            if a is not None
        ]
        known = [
            numpy_helper.from_array(array, name)
            for name, array in zip(names, arrays, strict=True)
            if array is not None and name not in {port.name for port in ports}
        ]
        results = [
            helper.make_tensor_value_info(name, TensorProto.FLOAT, None)
            if name == "qk"
            else ValueInfoProto(name=name)
            for name in self.outputs
            if name
        ]
        graph = helper.make_graph([node], "one", ports, results, known)
        opsets = [helper.make_opsetid("", self.opset)]
        opsets += [helper.make_opsetid(domain, 1) for domain in {DOMAIN, self.domain} - {""}]
        return helper.make_model(graph, opset_imports=opsets, ir_version=8)

    def fed(self) -> dict[str, Array]:
        """Return the inputs of a run by name."""
        return {f"x{i}": array for i, array in enumerate(self.feeds) if array is not None}


def node(
    op_type: str,
    *inputs: Array | None,
    fed: int = 1,
    off: float = 1,
    outputs: tuple[str, ...] = ("y",),
    domain: str = DOMAIN,
    onnx: int = 17,
    **attributes: Any,
) -> Node:
    """Return a node; its first ``fed`` inputs are those of a run."""
    return Node(op_type, inputs[:fed], inputs[fed:], attributes, off, outputs, domain, onnx)


def steps(dtype: str, *shape: int) -> Array:
    """Return integers of this type and shape."""
    limits = np.iinfo(dtype)
    drawn = np.random.default_rng(4).integers(limits.min, limits.max + 1, shape)
    return drawn.astype(dtype)


def number(value: float, dtype: str = "f4") -> Array:
    """Return one number, as a scale or a zero point."""
    return np.array(value, dtype)


def code(scale: float, zero: int, dtype: str = "u1") -> tuple[Array, Array]:
    """Return a scale and a zero point."""
    return number(scale), number(zero, dtype)


def found(row: Node) -> list[Array]:
    """Return the outputs of a node from native kernels."""
    with Session(row.model(), threads=1) as session:
        outputs = session.run(None, row.fed())
        assert not [step.op for step in session.plan.steps if step.python]
    return outputs


def assert_equal(row: Node, expected: list[Array], outputs: list[Array]) -> None:
    """Check that outputs have expected types, shapes and values, up to what ``row.off`` allows."""
    assert len(expected) == len(outputs)
    for wanted, output in zip(expected, outputs, strict=True):
        assert (output.dtype, output.shape) == (wanted.dtype, wanted.shape)
        error = np.abs(output.astype("f8") - wanted.astype("f8")).max(initial=0)
        assert error <= row.off * (
            np.abs(wanted).max(initial=0) if wanted.dtype == np.float32 else 1
        )


def assert_as_onnx_runtime(row: Node) -> None:
    """Check that a node gives the values of ONNX Runtime, which does not optimise it."""
    assert_equal(row, runtime(row.model(), row.fed(), optimised=False), found(row))


def refusal(row: Node) -> str:
    """Return the text of the error with which a node's session is refused."""
    try:
        Session(row.model(), threads=1)
    except VTensorError as error:
        return str(error)
    return ""
