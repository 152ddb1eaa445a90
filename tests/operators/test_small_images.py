"""Filters of one element on small images: whose kernels they get, and that the values are right."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

CODE = """
import json, sys
import numpy as np
import vtensor
vtensor.limit_isa(sys.argv[1])
from ops import Add, BiasAdd, Conv2D, Relu6, Sigmoid

rng = np.random.default_rng(0)
for size, inputs, outputs, behind, options in json.loads(sys.argv[2]):
    g = vtensor.Graph("small")
    x = g.input("x", {"N": 1, "H": size, "W": size, "C": inputs})
    w, b = rng.standard_normal((outputs, inputs, 1, 1)), rng.standard_normal(outputs)
    y = g.add(Conv2D(), x, g.constant(w.astype(np.float32), "O I h w"))
    y = g.add(BiasAdd(), y, g.constant(b.astype(np.float32), "C"))
    y = g.add({"Relu6": Relu6, "Sigmoid": Sigmoid}[behind](), y)
    g.output(y, "y")
    session = vtensor.Session(g, deterministic=True, cache_dir=None, **options)
    a = rng.standard_normal((1, size, size, inputs)).astype(np.float32)
    [found] = session.run(None, {"x": a})
    sums = np.einsum("nhwc,oc->nhwo", a.astype(np.float64), w[..., 0, 0]) + b
    expected = np.clip(sums, 0, 6) if behind == "Relu6" else 1 / (1 + np.exp(-sums))
    np.testing.assert_allclose(found, expected, rtol=2e-4, atol=2e-4)
    print(",".join(step.kernel for step in session.plan.recorded))
"""
ROOT = Path(__file__).parents[2]


def kernels(isa: str, *cases: object) -> list[str]:
    """What runs for each, in a process of its own; values are compared there."""
    done = subprocess.run(
        [sys.executable, "-c", CODE, isa, json.dumps(cases)],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.parametrize("isa", ["avx2", "max"])
def test_weights_that_are_more_than_the_image_are_multiplied_by_our_own(isa: str) -> None:
    """Unless something is behind it that these do not take, or the session names its libraries."""
    named = {"libraries": ["onednn", "winograd"]}
    small, silent, asked, large = kernels(
        isa,
        (7, 128, 256, "Relu6", {}),
        (7, 128, 256, "Sigmoid", {}),
        (7, 128, 256, "Relu6", named),
        (28, 64, 128, "Relu6", {}),
    )
    assert "F(1,1)x(1,1)" in small
    assert not any("F(1,1)x(1,1)" in other for other in (silent, asked, large))


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
