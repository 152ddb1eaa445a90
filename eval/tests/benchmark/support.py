"""Models of one node, what they are fed, races on them, and experiments as commands."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from typer import Typer
from typer.testing import CliRunner

from tests.frontends.support import model
from vtensor.benchmark.peer import Task
from vtensor.benchmark.process import Worker
from vtensor.benchmark.race import RaceSettings

SETTINGS = RaceSettings(threads=1, rounds=3, seconds=0.003, limit_s=120, seed=0)


def relu(folder: Path, rows: int | str = 3) -> Path:
    """Write a model of one Relu, whose rows may be open."""
    file = folder / "relu.onnx"
    text = f"relu (float[{rows}, 4] x) => (float[{rows}, 4] y) {{ y = Relu(x) }}"
    onnx.save(model(text), str(file))
    return file


def product(folder: Path) -> Path:
    """Write a model of one product of matrices."""
    file = folder / "product.onnx"
    weights = np.array([[1, 2], [3, 4]], np.float32)
    text = "product (float[3, 2] x) => (float[3, 2] y) { y = MatMul(x, w) }"
    onnx.save(model(text, w=weights), str(file))
    return file


def task_of(file: Path) -> Task:
    """Return a task on a model whose input is all ones."""
    return Task(file, {"x": np.ones((3, 4), np.float32)}, SETTINGS.threads, "f32")


def fakes(*names: str) -> dict[str, str]:
    """Return the places of made-up peers."""
    return {name: f"eval.tests.benchmark.fakes:{name}" for name in names}


def worker(name: str) -> Worker:
    """Start the process of a made-up peer."""
    return Worker(fakes(name)[name], SETTINGS.threads)


def json_of(main: Callable[..., None], *arguments: object, code: int = 0) -> Any:
    """Return the JSON that an experiment prints as a command."""
    app = Typer()
    app.command()(main)
    done = CliRunner().invoke(app, [*map(str, arguments), "--json"])
    assert done.exit_code == code, done.output
    return json.loads(done.stdout)
