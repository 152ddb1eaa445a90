"""An operator is one file: the one of HardSwish is all there is of it, and all that it needs."""

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
    found = run(library, Theirs(), given)
    check_close(found.values[0], definition(HardSwish(), given)[0], 1e-6)
    check_pads(found.physical[0])
    print(library, *found.variant.layouts)
"""


def mentions(folders: list[Path], name: str) -> Iterator[Path]:
    """The source files in which a name stands."""
    for folder in folders:
        for file in folder.rglob("*.*"):
            if file.suffix in (".py", ".pyi", ".toml", ".h", ".cpp", ".txt") and (
                name in file.read_text(encoding="utf-8")
            ):
                yield file


def test_nothing_else_names_it() -> None:
    folders = [ROOT / folder for folder in (*PACKAGES, "native")]
    made = {
        ROOT / "ops" / name for name in ("__init__.pyi", "index.txt")
    }  # by eval.documents.operator_stub
    assert set(mentions(folders, NAME)) - made == {FILE}


def test_its_text_is_an_operator_wherever_it_lies(tmp_path: Path) -> None:
    """Under another name and in another distribution it runs on each library."""
    text = FILE.read_text(encoding="utf-8").replace(NAME, "Theirs")
    (tmp_path / "theirs.py").write_text(text, encoding="utf-8")
    distribution(tmp_path, "[vtensor.operators]\ntheirs = theirs\n")
    lines = python(RUN, path=str(tmp_path)).splitlines()
    assert lines == [f"{library} NCHW8c NCHW8c" for library in ("onednn", "eigen", "numpy")]
