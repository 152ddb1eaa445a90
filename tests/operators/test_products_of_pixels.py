"""Products by a matrix of constants: oneDNN's kernels for them, with and without AVX-512."""

from __future__ import annotations

import pytest

from libdesc import onednn
from libdesc.onednn.native import dnnl
from libdesc.onednn.routines_matrix import BLOCKED_ISAS
from ptensor.buffer import TensorStorage
from ptensor.layout import Layout
from tests.operators.capped import printed_under
from vtensor.language.tensor import VTensor

CODE = """
import sys
import numpy as np
import vtensor
vtensor.limit_isa(sys.argv[1])
from ops import Add, BiasAdd, MatMul, Relu6

rng = np.random.default_rng(0)
for dims, k, n in (
    ({"M": 17}, 21, 13),
    ({"B": 2, "M": 9}, 64, 40),
    ({"M": 1}, 24, 16),
    ({"B": 7, "M": 5}, 64, 48),
):
    g = vtensor.Graph("products")
    x = g.input("x", {**dims, "K": k})
    other = g.input("other", {**dims, "N": n})
    weights, bias = rng.standard_normal((k, n)), rng.standard_normal(n)
    y = g.add(MatMul(over="K"), x, g.constant(weights.astype(np.float32), "K N"))
    y = g.add(BiasAdd(), y, g.constant(bias.astype(np.float32), "N"))
    y = g.add(Relu6(), g.add(Add(), y, other))
    g.output(y, "y")
    session = vtensor.Session(g, deterministic=True)
    a = rng.standard_normal((*dims.values(), k)).astype(np.float32)
    b = rng.standard_normal((*dims.values(), n)).astype(np.float32)
    a[..., dims["M"] // 2, 1] = np.nan  # which rows before and behind it must not see
    b[..., -1, 2] = -np.inf
    [found] = session.run(None, {"x": a, "other": b})
    expected = np.clip(a.astype(np.float64) @ weights + bias + b, 0, 6)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)
    print(*(step.kernel for step in session.plan.recorded))
"""


@pytest.mark.parametrize("isa", ["sse41", "max"])
def test_values(isa: str) -> None:
    assert len(printed_under(isa, CODE)) == 4


def test_without_avx512_rows_of_pixels_are_multiplied() -> None:
    lines = printed_under("avx2", CODE)
    single = lines.pop(2)
    assert [line.split() for line in lines] == [["jit_1x1:avx2"]] * 3
    assert "jit_1x1" not in single


def _matrix(size: int, constant: bool) -> VTensor:
    w = VTensor("f32", {"K": size, "N": size})
    w.storage = TensorStorage("f32", w.dims, Layout("K N"), constant=constant)
    return w


@pytest.mark.parametrize("constant", [True, False])
def test_rows_with_further_dims_are_one_matrix(constant: bool) -> None:
    """By constants: a batch of few rows has slow kernels. What is computed stays as it lies."""
    x, y = (VTensor("f32", {"B": 7, "M": 5, dim: 48}) for dim in ("K", "N"))
    routine = onednn.MatMul(x, _matrix(48, constant), y, "K")
    found = routine.flat([Layout("B M K"), Layout.ANY, Layout.ANY])
    assert (found is not None) == constant
    if found is not None:
        matrices, _ = found
        assert [[*one.dims.values()] for one in matrices.tensors[:3]] == [
            [35, 48],
            [48, 48],
            [35, 48],
        ]


def test_blocks_of_constants_do_not_depend_on_the_number_of_rows() -> None:
    """So that other sizes have them as they are packed; holds where the product has such blocks."""
    known = set[str]()
    for rows in (1, 9, 64, 500):
        x, y = (VTensor("f32", {"M": rows, dim: 96}) for dim in ("K", "N"))
        routine = onednn.MatMul(x, _matrix(96, constant=True), y, "K")
        row = [Layout("M K"), Layout.ANY, Layout("M N")]
        primitive = routine.primitive(row)
        if primitive.kernel.startswith("brg:"):
            known.add(str(routine.layouts(primitive)[1]))
    assert len(known) == dnnl.isa().startswith(BLOCKED_ISAS)
