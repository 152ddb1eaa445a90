"""The wheel: its files, its libraries, and a network that runs without the checkout."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import sysconfig
import venv
import zipfile
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.libraries.processes import ROOT

#: Building takes minutes.
pytestmark = pytest.mark.timeout(1200)

BUILD = (sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps")

#: What `make` has installed to build with: then what it has compiled is compiled already.
SHARED = all(find_spec(name) is not None for name in ("scikit_build_core", "cmake", "ninja"))

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
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel from the sources."""
    out = tmp_path_factory.mktemp("built")
    build(out)
    return only_wheel(out)


def build(out: Path, *command: str, limit_s: float = 1100) -> None:
    """Build the wheel of these sources in a folder."""
    apart = ["--no-build-isolation"] if SHARED else [f"--config-settings=build-dir={out}/b"]
    options = [f"--wheel-dir={out}", *apart, str(ROOT)]
    with subprocess.Popen(
        command or [*BUILD, *options],
        cwd=out,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        process_group=0,
    ) as process:
        try:
            said, _ = process.communicate(timeout=limit_s)
        finally:
            with suppress(ProcessLookupError):  # what it has started ends with it
                os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == 0, said


def only_wheel(folder: Path) -> Path:
    [file] = folder.glob("*.whl")
    return file


def repair(*command: str) -> None:
    """Run a command that finds this environment's tools."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    subprocess.run(
        command, check=True, env={**os.environ, "PATH": path}, capture_output=True, timeout=900
    )


@pytest.fixture(scope="module")
def wheel(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the wheel as others install it."""
    out = tmp_path_factory.mktemp("repaired")
    repair(str(ROOT / ".ci" / "repair"), str(built), str(out))
    return only_wheel(out)


def grafted(wheel: Path) -> list[str]:
    """Return the libraries in a wheel that must not be in it."""
    names = zipfile.ZipFile(wheel).namelist()
    return [name for name in names if "libdnnl" in name or "libgomp" in name]


def test_wheel_has_the_packages_and_nothing_else(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    tops = {name.split("/")[0] for name in names if ".dist-info" not in name}
    assert tops == {"vtensor", "ptensor", "libdesc", "resolver", "optimizer", "ops"}
    wanted = {"vtensor/py.typed", "vtensor/include/vtensor/step.h", "libdesc/onednn/onednn.toml"}
    wanted |= {"vtensor/__init__.pyi", "ops/__init__.pyi", "ops/index.txt", "ops/py.typed"}
    wanted |= {f"vtensor/pictures/page.{kind}" for kind in ("html", "css", "js")}
    assert wanted - names == set()
    assert any(name.startswith("libdesc/onednn/_onednn.") and ".so" in name for name in names)


def test_wheel_is_for_other_machines_and_uses_their_libraries(
    built: Path, wheel: Path, tmp_path: Path
) -> None:
    assert "manylinux" in wheel.name
    assert grafted(built) == grafted(wheel) == []
    # The twin: libgomp is not excluded.
    options = ["--exclude", "libdnnl.so.3", "--wheel-dir", str(tmp_path)]
    repair("auditwheel", "repair", *options, str(built))
    [library] = grafted(only_wheel(tmp_path))
    assert "libgomp" in library


def test_wheel_runs_a_network_without_the_checkout(
    wheel: Path, squeezenet: Path, tmp_path: Path
) -> None:
    environment = tmp_path / "venv"
    venv.create(environment, with_pip=False)
    site = Path(sysconfig.get_path("purelib", vars={"base": str(environment)}))
    # the dependencies come from this environment's folder; its own .pth files are not read
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    python = environment / "bin" / "python"
    install = [sys.executable, "-m", "pip", "--python", str(python), "install"]
    options = ["--quiet", "--no-deps", "--ignore-installed", str(wheel)]
    subprocess.run([*install, *options], check=True, timeout=900)
    clean = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    ran = subprocess.run(
        [python, "-c", PROGRAM, squeezenet],
        cwd=tmp_path,
        env=clean,
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert ran.returncode == 0, ran.stderr
    assert "ran " in ran.stdout
