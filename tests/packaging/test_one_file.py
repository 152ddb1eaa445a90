"""An operator is one file: nothing else names HardSwish, and its file works elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from tests.libdesc.test_discovery import distribution
from tests.libraries.processes import ROOT
from tests.packaging.test_imports import PACKAGES, python

NAME = "HardSwish"
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


def mentions(folders: list[Path], name: str) -> Iterator[Path]:
    """Yield the source files that have a name."""
    for folder in folders:
        for file in folder.rglob("*.*"):
            if file.suffix in (".py", ".pyi", ".toml", ".h", ".cpp", ".txt") and (
                name in file.read_text(encoding="utf-8")
            ):
                yield file


def test_no_other_file_names_it() -> None:
    folders = [ROOT / folder for folder in (*PACKAGES, "native")]
    generated = {ROOT / "ops" / name for name in ("__init__.pyi", "index.txt")}
    assert set(mentions(folders, NAME)) - generated == {FILE}


def test_its_file_is_an_operator_of_another_distribution(tmp_path: Path) -> None:
    """Under another name it runs on each library."""
    text = FILE.read_text(encoding="utf-8").replace(NAME, "Theirs")
    (tmp_path / "theirs.py").write_text(text, encoding="utf-8")
    distribution(tmp_path, "[vtensor.operators]\ntheirs = theirs\n")
    lines = python(RUN, path=str(tmp_path)).splitlines()
    assert lines == [f"{library} NCHW8c NCHW8c" for library in ("onednn", "eigen", "numpy")]
