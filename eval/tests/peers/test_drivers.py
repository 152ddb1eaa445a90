"""The frameworks as peers of the benchmark, in processes of their own."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from eval.bench import FRAMEWORKS
from eval.compare import photograph
from eval.tests.benchmark.support import SETTINGS
from eval.tests.peers.conftest import block
from tests.libraries.slow import slow
from vtensor import save_onnx
from vtensor.benchmark.peer import Precision, Task
from vtensor.benchmark.race import Contender, race


def ran(peer: str, folder: Path, precision: Precision = "f32") -> Contender:
    """Race a peer on a small network; skip the test where it is not installed."""
    pytest.importorskip({"pytorch": "torch"}.get(peer, peer))
    graph, file = block(), folder / "model.onnx"
    save_onnx(graph, file)
    feeds = {"image": photograph(tuple(graph.values["image"].dims.values()))}
    task = Task(file, feeds, SETTINGS.threads, precision)
    settings = replace(SETTINGS, limit_s=300)
    _, contender = race(task, {peer: FRAMEWORKS[peer]}, settings, lambda _: None)
    return contender


@pytest.mark.parametrize("peer", FRAMEWORKS)
def test_they_agree_and_are_timed(peer: str, tmp_path: Path) -> None:
    contender = ran(peer, tmp_path)
    assert (contender.status, contender.reason) == ("timed", "")


@slow
@pytest.mark.parametrize("peer", FRAMEWORKS)
def test_bf16_is_not_f32(peer: str, tmp_path: Path) -> None:
    contender = ran(peer, tmp_path, "bf16")
    assert (contender.status, contender.reason) == ("timed", "")
    assert contender.difference
    assert contender.difference > 1e-4
