"""The twelve networks at full size, written as ONNX: valid, read as they were, run as by others."""

from __future__ import annotations

import random
from itertools import product
from pathlib import Path
from typing import Any

import onnx
import pytest

from eval.compare import TOLERANCE
from eval.networks import NAMES, build, exported
from tests.export.support import RUNTIME
from tests.libraries.slow import slow, slow_but
from vtensor import save_onnx

CASES = list(product(NAMES, (1, 2)))
#: What ``make test`` runs; the others take minutes.
QUICK = random.Random(2).choice([case for case in CASES if "mobilenet" in case[0]])
#: Between them they have every operator of the twelve but Pad.
NEW = ("googlenet", "inception_resnet_v2", "mobilenet_v2", "vgg19")
SMALL = {"size": 32}


@pytest.mark.parametrize(("name", "batch"), slow_but([QUICK], CASES))
def test_a_network_is_read_as_it_was_written(name: str, batch: int) -> None:
    assert exported.wrong(exported.compared(name, batch)) == []


@slow
@pytest.mark.parametrize("name", NEW)
def test_a_network_in_a_new_opset(name: str) -> None:
    assert exported.wrong(exported.compared(name, 1, RUNTIME)) == []


def test_other_weights_are_seen(tmp_path: Path) -> None:
    file = tmp_path / "net.onnx"
    save_onnx(build("mobilenet_v2", **SMALL), file)
    other = build("mobilenet_v2", seed=1, **SMALL)
    assert not exported.same(other, file)
    assert min(exported.differences(other, file).values()) > TOLERANCE


def test_an_invalid_file_is_seen(tmp_path: Path) -> None:
    graph, file = build("mobilenet_v1", **SMALL), tmp_path / "net.onnx"
    save_onnx(graph, file)
    model = onnx.load(file)
    model.graph.node[0].input[0] = "nobody"
    onnx.save(model, file)
    with pytest.raises(onnx.checker.ValidationError, match="nobody"):
        exported.same(graph, file)


def test_a_wrong_row_is_seen() -> None:
    row: dict[str, Any] = {"same": True, "differences": {"onednn": 1e-6, "tensorflow": 2e-6}}
    assert exported.wrong(row) == []
    assert exported.wrong(row | {"same": False}) == ["read again"]
    assert exported.wrong(row | {"differences": {"onednn": 2e-4}}) == ["onednn"]
    assert exported.wrong(row | {"differences": {"onednn": float("nan")}}) == ["onednn"]


def test_a_failure_is_an_exit_code(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    errors = dict.fromkeys(exported.MIXES, 1e-3)
    row = {"network": "vgg19", "batch": 1, "bytes": 2e6, "same": True, "differences": errors}
    monkeypatch.setattr(exported, "compared", lambda *_: row)
    with pytest.raises(SystemExit, match="FAILED: vgg19: onednn, elementwise, tensorflow; vgg19"):
        exported.main("vgg19")
    assert "equal" in capsys.readouterr().out
