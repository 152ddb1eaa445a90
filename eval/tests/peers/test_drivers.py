"""The frameworks as peers of the benchmark, in processes of their own."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from eval.bench import FRAMEWORKS
from eval.compare import photograph
from eval.tests.benchmark.support import SETTINGS
from eval.tests.peers.blocks import block
from ops import MaxPool
from tests.libraries.slow import slow
from vtensor import Graph, save_onnx
from vtensor.benchmark.peer import Precision, Task
from vtensor.benchmark.race import Contender, race


def ran(peer: str, graph: Graph, folder: Path, precision: Precision = "f32") -> Contender:
    """What became of a peer in a race on a graph; skipped where it is not installed."""
    pytest.importorskip({"pytorch": "torch"}.get(peer, peer))
    [(name, x)] = [(name, graph.values[name]) for name in graph.inputs]
    file = folder / "model.onnx"
    save_onnx(graph, file)
    task = Task(file, {name: photograph(tuple(x.dims.values()))}, SETTINGS.threads, precision)
    places = {peer: FRAMEWORKS[peer]}
    _, one = race(task, places, replace(SETTINGS, limit_s=300), lambda _: None)
    return one


@pytest.mark.parametrize("peer", FRAMEWORKS)
def test_they_agree_and_are_timed(peer: str, tmp_path: Path) -> None:
    one = ran(peer, block(), tmp_path)
    assert (one.status, one.reason) == ("timed", "")


@slow
@pytest.mark.parametrize("peer", FRAMEWORKS)
def test_bf16_is_not_f32(peer: str, tmp_path: Path) -> None:
    one = ran(peer, block(), tmp_path, "bf16")
    assert (one.status, one.reason) == ("timed", "")
    assert one.difference
    assert one.difference > 1e-4


def test_what_has_no_words_is_skipped_by_name(tmp_path: Path) -> None:
    graph = Graph("tiny")
    graph.output(graph.add(MaxPool((3,)), graph.input("x", {"N": 1, "C": 3, "W": 9}), name="pool"))
    one = ran("pytorch", graph.seal(), tmp_path)
    assert one.status == "skipped"
    assert "cannot say MaxPool 'pool': a window over W" in one.reason
