"""Attributes that are flags, and a remainder that ONNX has no rule for."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import helper, numpy_helper

from vtensor import Session
from vtensor.errors import ModelError
from vtensor.frontends.inference_limits import FLAGS

Array = np.ndarray[Any, Any]
X, Y = np.array([5.0, -5.0, 5.5], np.float32), np.array([3.0, 3.0, -3.0], np.float32)


def loaded(op_type: str, *inputs: Array, folded: bool = False, **attributes: Any) -> list[Array]:
    """Run a model of one node, its inputs fed or constants."""
    given = {f"x{place}": x for place, x in enumerate(inputs)}
    infos = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
        for name, x in given.items()
    ]
    out = helper.make_tensor_value_info("y", infos[0].type.tensor_type.elem_type, None)
    graph = helper.make_graph(
        [helper.make_node(op_type, [*given], ["y"], "node", **attributes)],
        "flags",
        [] if folded else infos,
        [out],
        [numpy_helper.from_array(x, name) for name, x in given.items()] if folded else [],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    with Session(model, threads=1, cache_dir=None) as session:
        return session.run(None, {} if folded else given)


@pytest.mark.parametrize("folded", [False, True])
@pytest.mark.parametrize("dtype", ["f2", "f4", "f8"])
def test_mod_of_floats_needs_fmod(dtype: str, folded: bool) -> None:
    x, y = X.astype(dtype), Y.astype(dtype)
    for given in ({}, {"fmod": 0}):
        with pytest.raises(ModelError, match=r"Mod 'node': .* to fix: set fmod=1"):
            loaded("Mod", x, y, folded=folded, **given)
    [found] = loaded("Mod", x, y, folded=folded, fmod=1)
    assert found.tolist() == [2.0, -2.0, 2.5]
    [found] = loaded("Mod", x.astype(int), y.astype(int), folded=folded)
    assert found.tolist() == [2, 1, -1]


@pytest.mark.parametrize("folded", [False, True])
@pytest.mark.parametrize("value", [2, 3, -1, 1 << 40])
def test_a_flag_is_0_or_1(value: int, folded: bool) -> None:
    cases: list[tuple[str, tuple[Array, ...], str]] = [
        ("Mod", (X, Y), "fmod"),
        ("ReduceMax", (X,), "keepdims"),
        ("Gemm", (X.reshape(3, 1), Y.reshape(1, 3)), "transA"),
        ("CumSum", (X, np.array(0)), "reverse"),
        ("Trilu", (X.reshape(3, 1),), "upper"),
        ("ArgMax", (X,), "select_last_index"),
        ("Reshape", (X, np.array([3, 1])), "allowzero"),
        ("AveragePool", (X.reshape(1, 1, 3),), "ceil_mode"),
    ]
    for op_type, inputs, name in cases:
        assert name in FLAGS
        more = {"kernel_shape": [2]} if op_type == "AveragePool" else {}
        text = f"{op_type} 'node': {name} is {value}; to fix: make it 0 or 1"
        with pytest.raises(ModelError, match=text):
            loaded(op_type, *inputs, folded=folded, **{name: value}, **more)
