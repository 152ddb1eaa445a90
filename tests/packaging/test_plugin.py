"""Other distributions: a library, ``tests/plugin``, on which networks run, and an operator.

Each test starts processes with or without it on their path; nothing of VTensor is changed.
"""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

import vtensor
from tests.libdesc.test_discovery import distribution
from tests.libraries.processes import ROOT
from tests.packaging.test_imports import PACKAGES, python
from vtensor import get_include
from vtensor.errors import LibraryError

PLUGIN = ROOT / "tests" / "plugin"

LIBS = "import sys, vtensor.cli; sys.argv[1:] = ['libs', '--json']; vtensor.cli.main()"
NETWORK = """
import json
from eval.compare import difference, photograph, reference
from tests.networks.test_networks import weights
from vtensor import Session
model = weights("squeezenet")
with Session(model, threads=2, objective="shared", pin=PIN) as session:  # else priority decides
    [port] = session.inputs
    feeds = {port.name: photograph(tuple(port.shape))}
    [ours] = session.run(None, feeds)
    steps = [(step.op, step.library, *step.kernels) for step in session.plan.steps]
print(json.dumps([steps, difference(ours, reference(model, feeds))]))
"""
CASES = """
from tests.operators.tables.cases import CASES
from tests.operators.harness import check_close, check_pads, definition, run
from vtensor.errors import NoInvokerError
for case in CASES["Conv2D"] + CASES["Relu"]:
    for layout in case.layouts():
        given = case.given(layout)
        try:
            found = run("direct", case.op, given)
        except NoInvokerError as error:
            print(str(error).split("30 direct")[1].partition(": ")[2].splitlines()[0])
        else:
            check_close(found.values[0], definition(case.op, given)[0], 1e-6)
            check_pads(found.physical[0])
            print(*found.kernels)
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install a copy in a folder, without the Internet; builds leave files in the source."""
    folder = tmp_path_factory.mktemp("plugin")
    shutil.copytree(PLUGIN, folder / "source", ignore=shutil.ignore_patterns("build", "*.egg-info"))
    offline = ["--no-build-isolation", "--no-deps", "--no-index"]
    command = [sys.executable, "-m", "pip", "install", "--quiet", *offline]
    subprocess.run(
        [*command, "--target", folder / "site", folder / "source"], check=True, timeout=480
    )
    return folder / "site"


def libraries(path: str) -> dict[str, dict[str, Any]]:
    """Return what ``vtensor libs`` prints, by library."""
    data = json.loads(python(LIBS, path=path))
    assert data["problems"] == []
    return {row["name"]: row for row in data["libraries"]}


def network(
    path: str, pin: Mapping[str, str] = MappingProxyType({})
) -> tuple[dict[str, set[tuple[str, ...]]], float]:
    """Return SqueezeNet's libraries and kernels by operator, and the distance to ONNX Runtime."""
    steps, difference = json.loads(python(f"PIN = {dict(pin)}{NETWORK}", path=path))
    kernels: dict[str, set[tuple[str, ...]]] = {}
    for fused, *ran in steps:
        for op in fused.split(" + "):
            kernels.setdefault(op, set()).add(tuple(ran))
    return kernels, difference


def test_distribution_has_its_own_package_and_the_header_alone(site: Path) -> None:
    names = {"vtensor_direct", "vtensor_direct-0.1.0.dist-info"}
    assert {path.name for path in site.iterdir()} == names
    text = "".join(file.read_text() for file in (PLUGIN / "native").glob("direct.*"))
    included = set(re.findall(r"#include [<\"](.+)[>\"]", text))
    standard = {"stdatomic.h", "stdint.h", "stdlib.h", "string.h"}
    assert included - standard == {"direct.h", "vtensor/step.h"}
    row = libraries(str(site))["direct"]
    assert (row["available"], row["priority"], row["invokers"]) == (True, 30, 2)
    assert row["origin"] == "entry point direct = vtensor_direct:DESCRIPTION"
    assert Path(row["description"]) == site / "vtensor_direct" / "direct.toml"


@pytest.mark.parametrize("pin", [{}, {"Relu": "direct"}], ids=["priority", "pin"])
def test_network_runs_on_the_library(site: Path, pin: dict[str, str]) -> None:
    kernels, difference = network(str(site), pin)
    assert kernels["Conv2D"] == {("direct", "direct:nhwc")}
    # without the pin, in one pass, which no Relu by itself comes before
    assert kernels["Relu"] == ({("direct", "direct:relu")} if pin else kernels["BiasAdd"])
    assert not any("python" in ran for each in kernels.values() for ran in each)
    assert difference <= 1e-5


def test_network_runs_elsewhere_without_the_library(site: Path, tmp_path: Path) -> None:
    """Not installed, or built for another Python: then it says that it is absent."""
    assert "direct" not in libraries("")
    kernels, difference = network("")
    assert {library for library, *_ in kernels["Conv2D"]} == {"onednn"}
    assert difference <= 1e-5
    shutil.copytree(site, tmp_path / "site", ignore=shutil.ignore_patterns("*.so"))
    row = libraries(str(tmp_path / "site"))["direct"]
    assert row["absent"].startswith("the extension module does not load: cannot import name")
    assert {library for library, *_ in network(str(tmp_path / "site"))[0]["Relu"]} == {"onednn"}


def test_library_agrees_with_the_definition_or_declines(site: Path) -> None:
    lines = python(CASES, path=str(site)).splitlines()
    assert set(lines) == {"direct:nhwc", "direct:relu", "has no groups", "has no dilations"}


#: Sizes in memory of source, weights and destination; strides; pads.
RIGHT = ((1, 5, 6, 3), (3, 2, 3, 4), (1, 3, 5, 4), (2, 1), (1, 0, 1, 0))
HUGE = 2**62


@pytest.mark.parametrize(
    ("index", "value", "text"),
    [
        (0, (1, 5, -6, 3), "sizes are negative"),
        (0, (HUGE, HUGE, HUGE, 3), "more than memory can hold"),
        (0, (1, 2**40, 6, 3), "the window does not make dst of src"),
        (0, (2, 5, 6, 3), "do not belong together"),
        (1, (3, 2, 4, 4), "do not belong together"),
        (1, (0, 2, 3, 4), "the window does not make dst of src"),
        (1, (9, 2, 3, 4), "the window does not make dst of src"),
        (2, (1, 3, 5, 5), "do not belong together"),
        (2, (1, 4, 5, 4), "the window does not make dst of src"),
        (3, (0, 1), "the window does not make dst of src"),
        (4, (-1, 0, 1, 0), "the window does not make dst of src"),
        (4, (HUGE * 2 - 1, 0, 1, 0), "the window does not make dst of src"),
    ],
)
def test_extension_refuses_wrong_sizes(
    site: Path, index: int, value: tuple[int, ...], text: str
) -> None:
    steps = extension(site)
    steps.convolution(*RIGHT)
    with pytest.raises(ValueError, match=text):
        steps.convolution(*(value if i == index else row for i, row in enumerate(RIGHT)))


def test_extension_refuses_nonsense(site: Path) -> None:
    steps = extension(site)
    for wrong in (-1, HUGE):
        with pytest.raises(ValueError, match="sizes are negative, or more than memory"):
            steps.relu(wrong)
    with pytest.raises(OverflowError):
        steps.relu(2**64)
    for source in ((1, 5, 6), (1, 5, 6, 3.0), "5563"):
        with pytest.raises(TypeError):
            steps.convolution(source, *RIGHT[1:])


def extension(site: Path) -> Any:
    """Return the extension module, without its package."""
    [file] = (site / "vtensor_direct").glob("_steps.*.so")
    spec = importlib.util.spec_from_file_location("_steps", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_include_folder_is_an_error_without_the_header(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The twin of the example of ``get_include``."""
    monkeypatch.setattr(vtensor, "__path__", [str(tmp_path)])
    with pytest.raises(LibraryError, match=f"is not installed in {tmp_path}"):
        get_include()


#: The file of an operator, which is all that there is of it.
FILE = ROOT / "ops" / "hardswish.py"

RUN = """
import numpy as np
from ops import HardSwish, Theirs
from ptensor import Layout
from tests.operators.harness import Given, check_close, check_pads, definition, run
x = np.random.default_rng(0).normal(size=(2, 17, 5, 6)).astype(np.float32) * 3
given = [Given(x, tuple("NCHW"), Layout("NCHW8c"))]
for library in ("onednn", "eigen", "numpy"):
    ran = run(library, Theirs(), given)
    check_close(ran.values[0], definition(HardSwish(), given)[0], 1e-6)
    check_pads(ran.physical[0])
    print(library, *ran.variant.layouts)
"""


def test_no_other_file_names_an_operator() -> None:
    suffixes = {".py", ".pyi", ".toml", ".h", ".cpp", ".txt"}
    folders = [ROOT / folder for folder in (*PACKAGES, "native")]
    files = [file for folder in folders for file in folder.rglob("*.*") if file.suffix in suffixes]
    named = {file for file in files if "HardSwish" in file.read_text(encoding="utf-8")}
    generated = {ROOT / "ops" / name for name in ("__init__.pyi", "index.txt")}
    assert named - generated == {FILE}


def test_file_of_an_operator_works_in_another_distribution(tmp_path: Path) -> None:
    """Under another name it runs on each library."""
    text = FILE.read_text(encoding="utf-8").replace("HardSwish", "Theirs")
    (tmp_path / "theirs.py").write_text(text, encoding="utf-8")
    distribution(tmp_path, "[vtensor.operators]\ntheirs = theirs\n")
    lines = python(RUN, path=str(tmp_path)).splitlines()
    assert lines == [f"{library} NCHW8c NCHW8c" for library in ("onednn", "eigen", "numpy")]
