"""Today's models: made by exporters, they answer as ONNX Runtime does."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from eval.models_today import FAMILIES, models_of
from eval.models_today.exporting import EXPORTERS
from vtensor import Session
from vtensor.benchmark.agreement import difference


def test_names_are_no_two_families() -> None:
    counted = Counter(name for family in FAMILIES for name in models_of([family]))
    assert set(counted.values()) == {1}
    assert counted.keys() == models_of(FAMILIES).keys()


@pytest.mark.parametrize("exporter", EXPORTERS)
@pytest.mark.parametrize("name", ["voice", "gru_classifier"])
def test_small_ones_answer_as_onnxruntime_does(name: str, exporter: str, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("onnxscript")
    runtime = pytest.importorskip("onnxruntime")
    path = tmp_path / "model.onnx"
    feeds = models_of(FAMILIES)[name](path, exporter)
    theirs = runtime.InferenceSession(path, providers=["CPUExecutionProvider"]).run(None, feeds)
    ours = Session(path).run(None, feeds)
    assert difference([np.asarray(one) for one in ours], theirs) < 1e-5
