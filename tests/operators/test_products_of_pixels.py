"""Products by a matrix of constants without AVX-512: oneDNN's kernel for filters of one element."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

CODE = """
import sys
import numpy as np
import vtensor
vtensor.limit_isa(sys.argv[1])
from ops import Add, BiasAdd, MatMul, Relu6

rng = np.random.default_rng(0)
for dims, k, n in (({"M": 17}, 21, 13), ({"B": 2, "M": 9}, 64, 40), ({"M": 1}, 24, 16)):
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
ROOT = Path(__file__).parents[2]


def kernels(isa: str) -> list[str]:
    """What runs for each product, in a process of its own; values are compared there."""
    done = subprocess.run(
        [sys.executable, "-c", CODE, isa],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.parametrize("isa", ["sse41", "max"])
def test_values(isa: str) -> None:
    assert len(kernels(isa)) == 3


def test_without_avx512_rows_of_pixels_are_multiplied() -> None:
    *several, single = kernels("avx2")
    assert [line.split() for line in several] == [["jit_1x1:avx2"]] * 2
    assert "jit_1x1" not in single
