"""Mapped files: pages that are given back, and memory that must not be."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from ptensor.pages import give_back, mapped

Bytes = NDArray[np.uint8]
SIZE = 1 << 20
CONTENT = np.random.default_rng(0).integers(0, 256, SIZE, np.uint8)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "weights.data"
    path.write_bytes(CONTENT.tobytes())
    return path


@pytest.fixture
def array(file: Path) -> Bytes:
    """A file's bytes, all of which have been read."""
    with file.open("rb") as stream:
        made = mapped(stream.fileno(), SIZE)
    assert np.array_equal(made, CONTENT)
    return made


def resident(file: Path) -> int:
    """Bytes of a file that its mappings hold in memory."""
    lines = iter(Path("/proc/self/smaps").read_text().splitlines())
    mappings = (lines for line in lines if line.endswith(str(file)))
    rows = (next(row for row in rest if row.startswith("Rss:")) for rest in mappings)
    return sum(int(row.split()[1]) * 1024 for row in rows)


def test_pages_are_given_back_and_read_again(file: Path, array: Bytes) -> None:
    assert resident(file) == SIZE
    give_back(array[10:-10].view(np.uint16).reshape(2, -1))
    assert resident(file) == 0
    assert np.array_equal(array, CONTENT)


def test_no_other_pages(file: Path, array: Bytes) -> None:
    give_back(array[SIZE // 2 :])
    assert resident(file) == SIZE // 2


@pytest.mark.parametrize("part", [np.s_[::2], np.s_[:0]])
def test_gaps_and_nothing(file: Path, array: Bytes, part: slice) -> None:
    give_back(array[part])
    assert resident(file) == SIZE


def test_an_empty_file(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    with (tmp_path / "empty").open("rb") as stream:
        array = mapped(stream.fileno(), 0)
    give_back(array)
    assert array.size == 0


def test_what_was_written_to_a_copy_stays(file: Path) -> None:
    """Of such a mapping the pages that were written to are nowhere else."""
    copy = np.memmap(file, np.uint8, "c")
    copy += 1
    give_back(copy)
    assert np.array_equal(copy, CONTENT + 1)
