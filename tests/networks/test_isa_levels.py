"""The nine networks at batch 1 and 3 under each cap on instruction sets, against ONNX Runtime."""

from __future__ import annotations

import json
import random
from itertools import product

import numpy as np
import pytest
from onnx import numpy_helper

from eval.compare import TOLERANCE
from eval.networks.models import light_model, light_names, seeded, with_batch
from tests.libraries.processes import printed
from tests.libraries.slow import slow_but

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


@pytest.mark.parametrize(("cap", "name"), slow_but(DRAWN, product(CAPS, light_names())))
def test_a_network_agrees_and_no_kernel_goes_beyond_its_cap(cap: str, name: str) -> None:
    batches = ",".join(map(str, BATCHES))
    text = printed("-m", "eval.figures.capped", cap, name, "priority", batches)
    rows = [json.loads(line) for line in text.splitlines()]
    assert [row["batch"] for row in rows] == list(BATCHES)
    for row in rows:
        assert row["shape"][0] == row["batch"]
        assert row["difference"] <= TOLERANCE
        assert row["reference"] == []
        assert not [k for k in row["kernels"] for beyond in BEYOND[cap] if beyond in k]


def test_another_batch_rewrites_activations_and_no_weight() -> None:
    model = seeded(light_model("inception_v1"), 0)
    before = model.SerializeToString()
    three = with_batch(model, 3)
    assert model.SerializeToString() == before
    given = {tensor.name: numpy_helper.to_array(tensor) for tensor in three.graph.initializer}
    shapes = [given[n.input[1]].tolist() for n in three.graph.node if n.op_type == "Reshape"]
    assert sorted(shapes) == [[3, 1024], [1000, 1024]]
    assert np.array_equal(three.graph.input[0].type.tensor_type.shape.dim[0].dim_value, 3)
