"""Filters of one element on small images: whose kernels they get, and that the values are right."""

from __future__ import annotations

import json

import pytest

from libdesc.winograd import native
from tests.operators.capped import printed_under

CODE = """
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
    [found] = session.run(None, {"x": a})
    sums = np.einsum("nhwc,oc->nhwo", a.astype(np.float64), w[..., 0, 0]) + b
    whole = {"Relu6": np.clip(sums, 0, 6), "Sigmoid": 1 / (1 + np.exp(-sums))}
    expected = whole[behind] if behind in whole else sums + a
    np.testing.assert_allclose(found, expected, rtol=2e-4, atol=2e-4)
    print(",".join(step.kernel for step in session.plan.recorded))
"""


def kernels(isa: str, *cases: object) -> list[str]:
    """What runs for each; values are compared there."""
    return printed_under(isa, CODE, json.dumps(cases))


pytestmark = pytest.mark.skipif(native.load().lanes < 8, reason="the machine has no AVX2")


@pytest.mark.parametrize("isa", ["avx2", "max"])
def test_weights_that_are_more_than_the_image_are_multiplied_by_our_own(isa: str) -> None:
    """Unless something is behind it that these do not take, or the session names its libraries."""
    named = {"libraries": ["onednn", "winograd"]}
    *own, silent, asked, large, light, padded = kernels(
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
    assert all("F(1,1)x(1,1)" in one for one in own)
    assert not any("F(1,1)x(1,1)" in other for other in (silent, asked, large, light, padded))


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
