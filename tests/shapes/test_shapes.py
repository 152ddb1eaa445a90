"""Sizes at random and at borders: plans for them are what plans of their own are."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import onnx
import pytest

from tests.frontends.support import f32, model
from tests.runtime.opened import NETWORKS
from tests.shapes.borders import at_borders
from tests.shapes.proof import Array, Feeds, Proof
from vtensor.benchmark.report import Case
from vtensor.runtime.execution.evaluations import RecordEvaluation

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
    borders = at_borders(case, WIDE, pytestconfig.getoption("--shapes") // 2)
    assert len(borders) >= 2, "a size of one is none that others are"
    random.shuffle(borders)
    with Proof(network.proto, tmp_path) as proof:
        for feeds in borders:
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


@pytest.mark.parametrize(("by", "faults"), [(1.0, 1), (1e-4, 0)])
def test_the_proof_tells_rounding_from_what_is_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by: float, faults: int
) -> None:
    """What is left of numbers that are almost equal changes by a thousandth with a last bit."""
    proto = model(
        "apart (float[n, 4] x) => (float[n, 4] y) { y = Sub(x, one) }",
        17,
        one=np.array(1, np.float32),
    )
    own = Proof._own

    def other(proof: Proof, feeds: Feeds, **options: Any) -> list[Array]:
        answers = own(proof, feeds, **options)
        return answers if "plan" in options else [answer * (1 + by) for answer in answers]

    monkeypatch.setattr(Proof, "_own", other)
    with Proof(proto, tmp_path) as proof:
        proof.at({"x": np.full((3, 4), 1.0001, np.float32)})
    assert (len(proof.tally.faults), proof.tally.rounded) == (faults, 2 - 2 * faults)
    monkeypatch.setattr("tests.shapes.proof.ROUNDINGS", 0)
    with Proof(proto, tmp_path) as proof:
        proof.at({"x": np.full((3, 4), 1.0001, np.float32)})
    assert len(proof.tally.faults) == 1
