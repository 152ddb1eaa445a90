"""Products by constants and filters of one element: whose kernels they get under a cap, and values.

Each runs in a process of its own: libraries fix their cap when they are used first.
"""

from __future__ import annotations

import json

import pytest

from libdesc import onednn
from libdesc.onednn.native import dnnl
from libdesc.onednn.routines_matrix import BLOCKED_ISAS
from libdesc.winograd import native
from ptensor.buffer import TensorStorage
from ptensor.layout import Layout
from tests.libraries.processes import printed
from vtensor.language.tensor import VTensor

PRODUCTS = """
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
    [result] = session.run(None, {"x": a, "other": b})
    expected = np.clip(a.astype(np.float64) @ weights + bias + b, 0, 6)
    np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-4)
    print(*(step.kernel for step in session.plan.recorded))
"""


@pytest.mark.parametrize("isa", ["sse41", "max"])
def test_products_by_constants_have_their_values(isa: str) -> None:
    assert len(printed("-c", PRODUCTS, isa).splitlines()) == 4


def test_without_avx512_rows_of_pixels_are_multiplied() -> None:
    lines = printed("-c", PRODUCTS, "avx2").splitlines()
    single = lines.pop(2)
    assert [line.split() for line in lines] == [["jit_1x1:avx2"]] * 3
    assert "jit_1x1" not in single


def _product(size: int, constant: bool = True, **rows: int) -> onednn.MatMul:
    """Return a product of rows by a matrix."""
    w = VTensor("f32", {"K": size, "N": size})
    w.storage = TensorStorage("f32", w.dims, Layout("K N"), constant=constant)
    x, y = (VTensor("f32", {**rows, dim: size}) for dim in ("K", "N"))
    return onednn.MatMul(x, w, y, "K")


@pytest.mark.parametrize("constant", [True, False])
def test_rows_with_further_dims_are_one_matrix(constant: bool) -> None:
    """By constants: a batch of few rows has slow kernels. What is computed stays as it lies."""
    flat = _product(48, constant, B=7, M=5).flat([Layout("B M K"), Layout.ANY, Layout.ANY])
    assert (flat is not None) == constant
    if flat is not None:
        sizes = [[*tensor.dims.values()] for tensor in flat[0].tensors[:3]]
        assert sizes == [[35, 48], [48, 48], [35, 48]]


def test_blocks_of_constants_do_not_depend_on_the_number_of_rows() -> None:
    """So that other sizes have them as they are packed; holds where the product has such blocks."""
    known = set[str]()
    for rows in (1, 9, 64, 500):
        routine = _product(96, M=rows)
        primitive = routine.primitive([Layout("M K"), Layout.ANY, Layout("M N")])
        if primitive.kernel.startswith("brg:"):
            known.add(str(routine.layouts(primitive)[1]))
    assert len(known) == dnnl.isa().startswith(BLOCKED_ISAS)


FILTERS = """
import json, sys
import numpy as np
import vtensor
vtensor.limit_isa(sys.argv[1])
from ops import Add, BiasAdd, Conv2D, Relu6, Sigmoid

rng = np.random.default_rng(0)
KINDS = {"Relu6": Relu6, "Sigmoid": Sigmoid}
for size, inputs, outputs, behind, options in json.loads(sys.argv[2]):
    g = vtensor.Graph("small")
    batch, size = size if isinstance(size, list) else (1, size)
    x = g.input("x", {"N": batch, "H": size, "W": size, "C": inputs})
    w, b = rng.standard_normal((outputs, inputs, 1, 1)), rng.standard_normal(outputs)
    y = g.add(Conv2D(), x, g.constant(w.astype(np.float32), "O I h w"))
    y = g.add(BiasAdd(), y, g.constant(b.astype(np.float32), "C"))
    y = g.add(Add(), y, x) if behind == "Add" else g.add(KINDS[behind](), y)
    g.output(y, "y")
    session = vtensor.Session(g, deterministic=True, cache_dir=None, **options)
    a = rng.standard_normal((batch, size, size, inputs)).astype(np.float32)
    [result] = session.run(None, {"x": a})
    sums = np.einsum("nhwc,oc->nhwo", a.astype(np.float64), w[..., 0, 0]) + b
    whole = {"Relu6": np.clip(sums, 0, 6), "Sigmoid": 1 / (1 + np.exp(-sums))}
    expected = whole[behind] if behind in whole else sums + a
    np.testing.assert_allclose(result, expected, rtol=2e-4, atol=2e-4)
    print(",".join(step.kernel for step in session.plan.recorded))
"""


def kernels(isa: str, *cases: object) -> list[str]:
    """Return what runs for each case; values are compared there."""
    return printed("-c", FILTERS, isa, json.dumps(cases)).splitlines()


needs_avx2 = pytest.mark.skipif(native.load().lanes < 8, reason="the machine has no AVX2")


@needs_avx2
@pytest.mark.parametrize("isa", ["avx2", "max"])
def test_weights_that_are_more_than_the_image_are_multiplied_by_our_own(isa: str) -> None:
    """Unless something is behind it that these do not take, or the session names its libraries."""
    named = {"libraries": ["onednn", "winograd"]}
    *ours, silent, asked, large, light, padded = kernels(
        isa,
        (7, 192, 256, "Relu6", {}),
        (7, 256, 256, "Add", {}),
        ((2, 5), 200, 500, "Relu6", {}),
        (7, 192, 256, "Relu6", {"input_layouts": {"x": "NCHW16c"}}),
        (7, 192, 256, "Sigmoid", {}),
        (7, 192, 256, "Relu6", named),
        (28, 192, 256, "Relu6", {}),
        (7, 64, 128, "Relu6", {}),
        (7, 400, 100, "Relu6", {}),
    )
    assert all("F(1,1)x(1,1)" in kernel for kernel in ours)
    assert not any("F(1,1)x(1,1)" in other for other in (silent, asked, large, light, padded))


@needs_avx2
def test_on_avx2_onednns_second_kernel_takes_the_place_of_its_first() -> None:
    named = {"libraries": ["onednn"]}
    small, few, middle, large = kernels(
        "avx2",
        (7, 128, 256, "Relu6", named),
        (28, 96, 32, "Relu6", named),
        (14, 96, 384, "Relu6", named),
        (4, 96, 384, "Relu6", named),
    )
    assert "brgconv_1x1" in small
    assert "brgconv_1x1" in few
    assert "jit_1x1" in middle
    assert "jit_1x1" in large
