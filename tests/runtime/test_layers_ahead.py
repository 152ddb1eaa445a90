"""Layers that cached plans compute of constants, bit for bit as their definitions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ops._layers_ahead import LAYERS
from tests.frontends.support import f32, model
from vtensor import Session
from vtensor.frontends.tracing import agreeing
from vtensor.language.symbolic.symbolic_arrays import Computes

#: Nodes, each with its attributes and a function from two sizes to its inputs.
NODES: dict[str, tuple[dict[str, Any], Any]] = {
    "MatMul": ({}, lambda n, m: (f32(n, m, 8), f32(8, 5, seed=1))),
    "MatMul of stacks": ({}, lambda n, m: (f32(2, n, m), f32(2, m, n, seed=1))),
    "MatMul of a row": ({}, lambda n, m: (f32(m), f32(m, n, seed=1))),
    "Gemm": ({"transB": 1}, lambda n, m: (f32(n, m), f32(5, m, seed=1), f32(5, seed=2))),
    "Gemm turned": ({"transA": 1}, lambda n, m: (f32(m, n), f32(m, 5, seed=1), f32(n, 1))),
    "Softmax": ({"axis": 1}, lambda n, m: (4 * f32(n, m, 3),)),
    "LayerNormalization": (
        {"axis": -2, "epsilon": 2**-10},
        lambda n, m: (f32(2, n, m), f32(n, m, seed=1), f32(n, m, seed=2)),
    ),
}

#: By ONNX's names; sums of many numbers of the narrow one end early.
DTYPES = {"float": np.float32, "float16": np.float16, "double": np.float64}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("node", NODES)
@settings(max_examples=6, deadline=None)
@given(st.integers(1, 40), st.integers(1, 40))
@example(3, 3000)
def test_a_layer_is_computed_as_its_definition(node: str, dtype: str, n: int, m: int) -> None:
    label, (attributes, make) = node.split()[0], NODES[node]
    operands = [array.astype(DTYPES[dtype]) for array in make(n, m)]
    y = LAYERS[label].compute(attributes.get, *operands)
    inputs = {f"x{place}": array for place, array in enumerate(operands)}
    ports = ", ".join(f"{dtype}{[*array.shape]} {name}" for name, array in inputs.items())
    sizes = ", ".join(f"d{axis}" for axis in range(y.ndim))
    values = ", ".join(f"{name} = {value}" for name, value in attributes.items())
    call = f"{label}{f'<{values}>' * bool(values)}({', '.join(inputs)})"
    proto = model(f"g ({ports}) => ({dtype}[{sizes}] y) {{ y = {call} }}", 17)
    with Session(proto, threads=1, libraries=["numpy"], optimize="none") as session:
        np.testing.assert_array_equal([y], session.run(None, inputs))


def test_scaled_parts_are_refused() -> None:
    with pytest.raises(ValueError, match="scaled"):
        LAYERS["Gemm"].compute({"alpha": 0.5}.get, f32(2, 3), f32(3, 4))


def test_a_layer_is_computed_so_only_if_results_agree() -> None:
    """Otherwise it is computed as any node, and no other process has its rows."""
    operands = f32(3, 4), f32(4, 5)
    sample = LAYERS["Gemm"].compute({}.get, *operands)
    function = Computes(LAYERS["Gemm"].compute, {})
    for other in (sample, np.nextafter(sample, np.float32(9))):  # another order of summing up
        result = agreeing(function, operands, other)
        assert result is not None
        np.testing.assert_array_equal(result, sample)
    for other in (sample + np.float32(1e-3), sample.astype(np.float64), sample[:1]):
        assert agreeing(function, operands, other) is None
    attributes: dict[str, Any]
    for attributes in ({"alpha": 2.0}, {"transA": 1}):
        assert agreeing(Computes(LAYERS["Gemm"].compute, attributes), operands, sample) is None
