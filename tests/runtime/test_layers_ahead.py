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
from vtensor.language.open_arrays import OpenArray
from vtensor.language.tape import Tape
from vtensor.runtime.open_notes import _check_alike
from vtensor.runtime.recording.packing_table import NotKept

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


def _open(off: float = 0.0, **attributes: Any) -> tuple[OpenArray, dict[str, Any]]:
    """A product in the way of any node, perhaps off by so much."""
    one, other = f32(3, 4), f32(4, 5)

    def made(*given: Array) -> Array:
        product: Array = LAYERS["Gemm"].compute({}.get, *given)
        return product + np.float32(off)

    sample = made(one, other)
    return OpenArray(Tape(), sample.shape, sample, made, (one, other)), attributes


def test_only_what_is_the_same_is_kept() -> None:
    compute = LAYERS["Gemm"].compute
    array, attributes = _open()
    _check_alike(array, compute, attributes)
    for off, more in ((1e-3, {}), (0.0, {"alpha": 2.0}), (0.0, {"transA": 1})):
        array, attributes = _open(off, **more)
        with pytest.raises(NotKept):
            _check_alike(array, compute, attributes)
