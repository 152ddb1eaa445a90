"""What is computed of sizes ahead of a run is what ONNX's evaluator computes, to the bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import helper
from onnx.reference import ReferenceEvaluator

from libdesc.registry import registry
from ops._elements import AHEAD
from tests.frontends.support import Array, agree, f32, model
from vtensor import Session

registry()

#: By name: an operator, its operands' shapes, and attributes.
NODES: dict[str, tuple[str, list[tuple[int, ...]], dict[str, Any]]] = {
    "matrices": ("MatMul", [(5, 7), (7, 3)], {}),
    "rows of matrices": ("MatMul", [(4, 1, 5, 7), (2, 7, 3)], {}),
    "vectors": ("MatMul", [(7,), (7,)], {}),
    "a product": ("Gemm", [(5, 7), (7, 3)], {}),
    "a product with a bias": ("Gemm", [(5, 7), (7, 3), (3,)], {"alpha": 0.3, "beta": 1.7}),
    "turned factors": ("Gemm", [(7, 5), (3, 7), (5, 1)], {"transA": 1, "transB": 1}),
    "no bias after all": ("Gemm", [(5, 7), (7, 3), (3,)], {"beta": 0.0}),
    "the last axis": ("Softmax", [(3, 40)], {}),
    "another axis": ("Softmax", [(3, 4, 5)], {"axis": 1}),
    "the first axis": ("Softmax", [(3, 4, 5)], {"axis": -3}),
    "rows that are normalized": ("LayerNormalization", [(4, 3, 24), (24,), (24,)], {}),
    "without a bias": ("LayerNormalization", [(4, 24), (24,)], {"epsilon": 1e-3}),
    "over two axes": ("LayerNormalization", [(4, 3, 24), (3, 24), (24,)], {"axis": 1}),
}


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
@pytest.mark.parametrize("name", NODES)
def test_as_onnx_defines_it(name: str, dtype: type) -> None:
    op_type, shapes, attributes = NODES[name]
    random = np.random.default_rng(3)
    given: list[Array] = [random.standard_normal(shape).astype(dtype) for shape in shapes]
    names = [f"x{number}" for number in range(len(given))]
    node = helper.make_node(op_type, names, ["y"], **attributes)
    held = {one.name: helper.get_attribute_value(one) for one in node.attribute}
    model = helper.make_model(
        helper.make_graph(
            [node],
            name,
            [helper.make_tensor_value_info(one, 1, None) for one in names],
            [helper.make_tensor_value_info("y", 1, None)],
        ),
        opset_imports=[helper.make_opsetid("", 18)],
    )
    [made] = ReferenceEvaluator(model).run(None, dict(zip(names, given, strict=True)))
    want = np.asarray(made)
    found = AHEAD[op_type].compute(held.get, *given)
    assert found.dtype == want.dtype
    np.testing.assert_array_equal(found, want)


def test_attention_among_constants_for_other_sizes(tmp_path: Any) -> None:
    """As of queries that were learnt, of which each element of a batch has the same."""
    text = """g (float[batch, 4] x) => (float[batch, 3, 4] y) {
        n = Shape<start=0, end=1>(x)
        sizes = Concat<axis=0>(n, own)
        queries = Expand(learnt, sizes)
        a = MatMul(queries, w)
        t = Transpose<perm=[0, 2, 1]>(a)
        s = MatMul(a, t)
        p = Softmax(s)
        m = MatMul(p, a)
        l = LayerNormalization(m, scale, bias)
        rows = Reshape(l, flat)
        g = Gemm<transB=1>(rows, w, bias)
        back = Reshape(g, sizes)
        u = Unsqueeze(x, one)
        y = Add(back, u)
    }"""
    proto = model(
        text,
        opset=18,
        own=np.array([3, 4]),
        flat=np.array([-1, 4]),
        one=np.array([1]),
        learnt=f32(1, 3, 4),
        w=f32(4, 4),
        scale=f32(4),
        bias=f32(4),
    )
    for batch in (1, 2, 5):
        agree(proto, {"x": f32(batch, 4)})
    with Session(proto, threads=1, cache_dir=tmp_path) as session:
        for batch in (1, 2, 5):  # one plan for all of them
            session.run(None, {"x": f32(batch, 4)})
        assert session.plan.taken_from
