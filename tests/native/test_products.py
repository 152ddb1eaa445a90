"""Matrix products against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from libdesc.onednn import _onednn as dnn
from tests.native.packing import plain, random, run


@pytest.mark.parametrize(
    ("left", "right"),
    [((5, 7), (7, 3)), ((2, 5, 7), (2, 7, 3)), ((1, 4, 5, 7), (3, 1, 7, 3)), ((4, 1), (1, 4))],
)
@pytest.mark.parametrize("tag", ["plain", "any", "transposed"])
@pytest.mark.parametrize("bias", [False, True])
def test_matmul(left: tuple[int, ...], right: tuple[int, ...], tag: str, bias: bool) -> None:
    rng = np.random.default_rng(1)
    a, b = random(rng, *left), random(rng, *right)
    c = random(rng, *[1] * (a.ndim - 1), right[-1])
    weights = plain(right)
    if tag == "any":
        weights = dnn.Desc.any(right, "f32")
    elif tag == "transposed":
        swap = (*range(b.ndim - 2), b.ndim - 1, b.ndim - 2)
        weights = plain((*right[:-2], right[-1], right[-2])).permute(swap)
    expected = a @ b + (c if bias else 0)
    primitive = dnn.matmul(
        plain(left), weights, plain(c.shape) if bias else None, plain(expected.shape)
    )
    values = {"src": a, "weights": b} | ({"bias": c} if bias else {})
    np.testing.assert_allclose(run(primitive, **values), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("extents", [(), (3,), (3, 2)])
@pytest.mark.parametrize("bias", [False, True])
def test_inner_product(extents: tuple[int, ...], bias: bool) -> None:
    rng = np.random.default_rng(2)
    x, w, b = random(rng, 4, 20, *extents), random(rng, 6, 20, *extents), random(rng, 6)
    expected = x.reshape(4, -1) @ w.reshape(6, -1).T + (b if bias else 0)
    primitive = dnn.inner_product(
        dnn.Desc.any(x.shape, "f32"),
        dnn.Desc.any(w.shape, "f32"),
        plain((6,)) if bias else None,
        dnn.Desc.any((4, 6), "f32"),
    )
    values = {"src": x, "weights": w} | ({"bias": b} if bias else {})
    np.testing.assert_allclose(run(primitive, **values), expected, rtol=1e-5, atol=1e-5)


def test_bf16_accumulates_in_f32_and_rounds_once() -> None:
    if not dnn.isa().startswith(("avx512_bf16", "avx512_fp16", "amx")):
        pytest.skip(f"no bf16 kernels on {dnn.isa()}")
    rng = np.random.default_rng(3)
    a, b = random(rng, 8, 64), random(rng, 64, 8)
    primitive = dnn.matmul(plain(a.shape, "bf16"), plain(b.shape, "bf16"), None, plain((8, 8)))
    import ml_dtypes

    exact = [v.astype(ml_dtypes.bfloat16).astype(np.float32) for v in (a, b)]
    np.testing.assert_allclose(
        run(primitive, src=a, weights=b), exact[0] @ exact[1], rtol=1e-5, atol=1e-4
    )
