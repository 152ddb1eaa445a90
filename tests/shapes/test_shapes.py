"""Sizes at random and at borders: plans for them are what plans of their own are."""

from __future__ import annotations

from pathlib import Path
from random import Random

import numpy as np
import onnx
import pytest

from tests.frontends.support import f32, model
from tests.runtime.opened import NETWORKS
from tests.shapes.borders import at_borders
from tests.shapes.proof import Proof
from vtensor.benchmark.report import Case
from vtensor.runtime.evaluations import RecordEvaluation

#: Where borders are looked for: from no elements to two of the widest blocks.
WIDE = range(34)


@pytest.mark.parametrize("name", NETWORKS)
def test_random_sizes(name: str, tmp_path: Path, pytestconfig: pytest.Config) -> None:
    """``--shapes 200`` tries so many."""
    network, count = NETWORKS[name](), pytestconfig.getoption("--shapes")
    with Proof(network.proto, tmp_path) as proof:
        for sizes in network.sizes(1, count):
            proof.at(network.feeds(*sizes))
    tally = proof.tally
    assert not tally.faults
    assert tally.taken >= count // 3
    assert tally.same + tally.refused == count


@pytest.mark.parametrize("name", NETWORKS)
def test_sizes_at_each_border(name: str, tmp_path: Path, pytestconfig: pytest.Config) -> None:
    """In any order: what is taken over was chosen on either side. Of a network with
    many borders, half as many of each name as ``--shapes`` says.
    """
    network, random = NETWORKS[name](), Random(1)
    onnx.save(network.proto, file := tmp_path / "model.onnx")
    case = Case(name, file, network.feeds(*network.draw(random)))
    given = at_borders(case, WIDE, pytestconfig.getoption("--shapes") // 2)
    assert len(given) >= 2, "a size of one is none that others are"
    random.shuffle(given)
    with Proof(network.proto, tmp_path) as proof:
        for feeds in given:
            proof.at(feeds)
    assert not proof.tally.faults
    assert proof.tally.same


def test_the_proof_sees_a_kernel_that_other_sizes_have_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Were libraries not asked again, oneDNN would take rows that the sizes do not divide."""
    text = """resized (float[1, 2, h, 8] x) => (float[1, 2, 8, 8] y) {
        y = Resize<mode = "nearest", coordinate_transformation_mode = "asymmetric",
                   nearest_mode = "floor">(x, , , to) }"""
    proto = model(text, to=np.array([1, 2, 8, 8]))
    for asked, faults in ((True, 0), (False, 1)):
        if not asked:
            silent = property(lambda self: False, lambda self, _: None)
            monkeypatch.setattr(RecordEvaluation, "confirming", silent)
        with Proof(proto, tmp_path) as proof:
            for rows in (4, 5):
                proof.at({"x": f32(1, 2, rows, 8)})
        assert len(proof.tally.faults) == faults, proof.tally
