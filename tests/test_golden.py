"""The twin of golden files: a text that differs, or has no file, fails."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.libraries.golden import LONGEST, Golden


def test_text_that_differs_from_its_golden_file_fails(tmp_path: Path) -> None:
    reading, writing = Golden(tmp_path, "plan", False), Golden(tmp_path, "plan", True)
    with pytest.raises(AssertionError, match="--update-golden"):
        reading.check("one\ntwo")
    writing.check("one\ntwo")
    reading.check("one\ntwo")
    for other in ("one\ntwo ", "one", "one\ntwo\n", "One\ntwo"):
        with pytest.raises(AssertionError):
            reading.check(other)
    with pytest.raises(AssertionError):
        reading.check("one\ntwo", "another")
    with pytest.raises(AssertionError, match="short"):
        writing.check("\n" * LONGEST)


def test_every_golden_file_is_used() -> None:
    folder = Path(__file__).parent
    for file in (folder / "golden").glob("*/*.txt"):
        [module] = folder.rglob(f"{file.parent.name}.py")
        test = file.stem.partition("[")[0]
        assert f"def {test}(" in module.read_text(encoding="utf-8"), f"{file} belongs to no test"
