"""The nine networks at batch 1 and 3 under each cap on instruction sets, against ONNX Runtime."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from onnx import numpy_helper

from eval.compare import TOLERANCE
from eval.models import light_model, light_names, seeded, with_batch

CAPS = ("sse41", "avx2", "avx512", "max")
BATCHES = (1, 3)
#: Networks that take two seconds, not ten: what ``make test`` draws from, one for each cap.
QUICK = ("squeezenet", "shufflenet")
DRAWN = list(zip(CAPS, random.Random(3).sample(2 * QUICK, len(CAPS)), strict=True))

#: What no kernel of a cap may be called.
BEYOND = {
    "sse41": ("avx",),
    "avx2": ("avx512",),
    "avx512": ("amx",),
    "max": (),
}


def check(cap: str, name: str) -> None:
    """Every batch agrees, and no kernel goes beyond the cap."""
    ran = subprocess.run(
        [sys.executable, "-m", "eval.capped", cap, name, "priority", ",".join(map(str, BATCHES))],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[2],
        timeout=240,
    )
    assert ran.returncode == 0, ran.stderr
    rows = [json.loads(line) for line in ran.stdout.splitlines()]
    assert [row["batch"] for row in rows] == list(BATCHES)
    for row in rows:
        assert row["shape"][0] == row["batch"]
        assert row["difference"] <= TOLERANCE
        assert row["reference"] == []
        assert not [k for k in row["kernels"] for beyond in BEYOND[cap] if beyond in k]


@pytest.mark.parametrize(("cap", "name"), DRAWN)
def test_a_network_for_each_cap(cap: str, name: str) -> None:
    check(cap, name)


@pytest.mark.skipif(not os.environ.get("VTENSOR_TEST_ALL"), reason="slow: VTENSOR_TEST_ALL=1")
@pytest.mark.parametrize(
    ("cap", "name"), [case for case in product(CAPS, light_names()) if case not in DRAWN]
)
def test_every_network_under_every_cap(cap: str, name: str) -> None:
    check(cap, name)


def test_another_batch_rewrites_activations_and_no_weight() -> None:
    model = seeded(light_model("inception_v1"), 0)
    before = model.SerializeToString()
    three = with_batch(model, 3)
    assert model.SerializeToString() == before
    given = {tensor.name: numpy_helper.to_array(tensor) for tensor in three.graph.initializer}
    shapes = [given[n.input[1]].tolist() for n in three.graph.node if n.op_type == "Reshape"]
    assert sorted(shapes) == [[3, 1024], [1000, 1024]]
    assert np.array_equal(three.graph.input[0].type.tensor_type.shape.dim[0].dim_value, 3)
