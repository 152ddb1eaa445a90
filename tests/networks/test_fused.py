"""Whole networks, folded and fused, against ONNX Runtime, which gets them as they were built."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from eval.compare import TOLERANCE, difference, reference
from eval.networks import build
from vtensor import Session, save_onnx


@pytest.mark.parametrize("name", ["mobilenet_v2", "resnet50"])
def test_a_network_agrees_with_onnx_runtime(name: str, tmp_path: Path) -> None:
    graph = build(name, size=64)
    save_onnx(graph, tmp_path / "net.onnx")
    shape = [*graph.values[graph.inputs[0]].dims.values()]
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    with Session(graph) as session:
        [found] = session.run(None, {graph.inputs[0]: x})
        steps = session.plan.steps
    expected = reference(tmp_path / "net.onnx", {graph.inputs[0]: x})
    assert difference(found, expected) <= TOLERANCE
    assert len(steps) < len(graph.nodes) / 2
