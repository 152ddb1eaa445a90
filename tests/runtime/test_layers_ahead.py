"""What kept plans compute of constants is what definitions do, bit for bit."""

from __future__ import annotations

from collections.abc import Sequence
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

Array = np.ndarray[Any, Any]

#: Nodes, each with its attributes and what gives its inputs of two sizes.
NODES: dict[str, tuple[dict[str, Any], Any]] = {
    "MatMul": ({}, lambda n, m: (f32(n, m, 8), f32(8, 5, seed=1))),
    "MatMul of stacks": ({}, lambda n, m: (f32(2, n, m), f32(2, m, n, seed=1))),
    "MatMul of a row": ({}, lambda n, m: (f32(m), f32(m, n, seed=1))),
    "Gemm": ({"transB": 1}, lambda n, m: (f32(n, m), f32(5, m, seed=1), f32(5, seed=2))),
    "Gemm, turned": ({"transA": 1}, lambda n, m: (f32(m, n), f32(m, 5, seed=1), f32(n, 1))),
    "Softmax": ({"axis": 1}, lambda n, m: (4 * f32(n, m, 3),)),
    "LayerNormalization": (
        {"axis": -2, "epsilon": 2**-10},
        lambda n, m: (f32(2, n, m), f32(n, m, seed=1), f32(n, m, seed=2)),
    ),
}


#: By ONNX's names; sums of many of the narrow one end early.
DTYPES = {"float": np.float32, "float16": np.float16, "double": np.float64}


def computed(what: str, given: Sequence[Array]) -> Array:
    attributes, _ = NODES[what]
    found: Array = LAYERS[what.split(",")[0].split()[0]].compute(attributes.get, *given)
    return found


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("what", NODES)
@settings(max_examples=6, deadline=None)
@given(st.integers(1, 40), st.integers(1, 40))
@example(3, 3000)
def test_they_are_as_definitions(what: str, dtype: str, n: int, m: int) -> None:
    attributes, make = NODES[what]
    operands = [one.astype(DTYPES[dtype]) for one in make(n, m)]
    inputs = {f"x{place}": one for place, one in enumerate(operands)}
    said = ", ".join(f"{name} = {value}" for name, value in attributes.items())
    label = what.split(",")[0].split()[0]
    rows = [f"{dtype}[{', '.join(map(str, one.shape))}] {name}" for name, one in inputs.items()]
    sizes = ", ".join(f"d{axis}" for axis in range(computed(what, operands).ndim))
    call = f"{label}{f'<{said}>' if said else ''}({', '.join(inputs)})"
    proto = model(f"g ({', '.join(rows)}) => ({dtype}[{sizes}] y) {{ y = {call} }}", 17)
    with Session(proto, threads=1, libraries=["numpy"], optimize="none") as session:
        [wanted] = session.run(None, inputs)
    np.testing.assert_array_equal(computed(what, operands), wanted)


def test_parts_that_are_scaled_are_not() -> None:
    with pytest.raises(ValueError, match="scaled"):
        LAYERS["Gemm"].compute({"alpha": 0.5}.get, f32(2, 3), f32(3, 4))


def test_only_what_is_the_same_is_computed_so() -> None:
    """Else a node is computed in the way of any node, and no other process has its rows."""
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
