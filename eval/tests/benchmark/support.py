"""Models of one node, what they are fed, and races on them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx.parser import parse_model

from vtensor.benchmark.peer import Task
from vtensor.benchmark.process import Worker
from vtensor.benchmark.race import RaceSettings

SETTINGS = RaceSettings(threads=1, rounds=3, seconds=0.003, limit_s=120, seed=0)
RELU = """
    <ir_version: 8, opset_import: ["" : 17]>
    relu (float[{rows}, 4] x) => (float[{rows}, 4] y) {{ y = Relu(x) }}
"""
PRODUCT = """
    <ir_version: 8, opset_import: ["" : 17]>
    product (float[3, 2] x) => (float[3, 2] y) <float[2, 2] w = {1.0, 2.0, 3.0, 4.0}> {
        y = MatMul (x, w)
    }
"""


def relu(folder: Path, rows: int | str = 3) -> Path:
    """The model as a file; its rows may be open."""
    file = folder / "relu.onnx"
    onnx.save(parse_model(RELU.format(rows=rows)), file)
    return file


def product(folder: Path) -> Path:
    """A product of matrices as a file."""
    file = folder / "product.onnx"
    onnx.save(parse_model(PRODUCT), file)
    return file


def task_of(file: Path) -> Task:
    """All of its elements are 1."""
    return Task(file, {"x": np.ones((3, 4), np.float32)}, SETTINGS.threads, "f32")


def fakes(*names: str) -> dict[str, str]:
    """Places of made-up peers."""
    return {name: f"eval.tests.benchmark.fakes:{name}" for name in names}


def worker(name: str) -> Worker:
    """The process of a made-up peer."""
    return Worker(fakes(name)[name], SETTINGS.threads)
