"""A built wheel, installed elsewhere, runs a real network: the checkout must not be needed."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import onnx
import pytest

from eval.models import light_model, seeded

ROOT = Path(__file__).parent.parent

PROGRAM = """
import sys, pathlib
import numpy as np
import vtensor, ops, libdesc.onednn
home = pathlib.Path(sys.prefix).resolve()
for module in (vtensor, ops, libdesc.onednn):
    assert home in pathlib.Path(module.__file__).resolve().parents, module.__file__
assert home in pathlib.Path(vtensor.get_include()).resolve().parents
session = vtensor.Session(sys.argv[1], threads=2)
[port] = session.inputs
x = np.random.default_rng(0).standard_normal(port.shape).astype(np.float32)
[y] = session.run(None, {port.name: x})
assert np.isfinite(y).all() and y.std() > 0
assert any(step.library == "onednn" for step in session.plan.steps)
print("ran", len(session.plan.steps), "steps")
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from the sources alone."""
    out = tmp_path_factory.mktemp("wheel")
    build = out / "build"
    command = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--quiet",
        "--no-deps",
        "--wheel-dir",
        str(out),
    ]
    command += [f"--config-settings=build-dir={build}", str(ROOT)]
    subprocess.run(command, check=True, cwd=out)
    [file] = out.glob("*.whl")
    return file


def test_the_wheel_holds_the_packages_and_nothing_else(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    tops = {name.split("/")[0] for name in names if ".dist-info" not in name}
    assert tops == {"vtensor", "ptensor", "libdesc", "resolver", "optimizer", "ops"}
    assert "vtensor/py.typed" in names
    assert "vtensor/__init__.pyi" in names
    assert "vtensor/include/vtensor/step.h" in names
    assert "libdesc/onednn/onednn.toml" in names
    assert {f"vtensor/pictures/page.{kind}" for kind in ("html", "css", "js")} <= set(names)
    assert any(name.startswith("libdesc/onednn/_onednn.") and ".so" in name for name in names)
    assert not any("libdnnl" in name or "libgomp" in name for name in names), "shared, not grafted"


def test_the_wheel_runs_squeezenet_elsewhere(wheel: Path, tmp_path: Path) -> None:
    environment = tmp_path / "venv"
    venv.create(environment, with_pip=False)
    site = Path(sysconfig.get_path("purelib", vars={"base": str(environment)}))
    # the dependencies come from this environment's folder; its own .pth files are not read
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    python = environment / "bin" / "python"
    install = [sys.executable, "-m", "pip", "--python", str(python), "install"]
    options = ["--quiet", "--no-deps", "--ignore-installed", str(wheel)]
    subprocess.run([*install, *options], check=True)
    model = tmp_path / "squeezenet.onnx"
    onnx.save(seeded(light_model("squeezenet"), seed=0), str(model))
    clean = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    ran = subprocess.run(
        [python, "-c", PROGRAM, model], cwd=tmp_path, env=clean, capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stderr
    assert "ran " in ran.stdout
