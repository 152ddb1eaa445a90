"""Slices of files that native code reads: the offset, rows and factors of a weight."""

from __future__ import annotations

import os
from collections.abc import Sequence
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from optimizer.constants.computed import Made, cut, multiplied, times
from optimizer.constants.originals import Original
from ptensor.layout import Layout
from resolver.values import Value
from vtensor.language.dtype import from_numpy
from vtensor.runtime.recording.packer import MIN_ROW_BYTES, FileSlice
from vtensor.runtime.recording.packing_table import ConstantRow
from vtensor.storage.open_file import OpenFile, Stretch

Array = np.ndarray[Any, Any]


def stretch_of(offset: int, nbytes: int) -> Stretch:
    """Return bytes of some file, which is not read."""
    with Path(__file__).open("rb") as file:
        return OpenFile(file.fileno(), os.fstat(file.fileno()), "file").stretch(offset, nbytes)


def slice_of(
    stretch: Stretch,
    shape: Sequence[int],
    dtype: np.dtype[Any],
    changes: Sequence[Made],
    wanted: Sequence[int],
) -> FileSlice | None:
    """Return the slice for an array of a file, changed, of which a row wants these sizes."""
    dims = {f"D{axis}": size for axis, size in enumerate(wanted)}
    value = Value("w", from_numpy(dtype), dims, Layout.plain(dims), True)
    source = Original.deferred(tuple(shape), dtype, stretch)
    return FileSlice.of(ConstantRow(source, changes, value, value))


def read_of(part: FileSlice, data: bytes, dtype: np.dtype[Any]) -> Array:
    """Return what native code reads, by its definition."""
    begin = part.stretch.offset + part.offset
    rows = [data[begin + i * part.step :][: part.row] for i in range(part.rows)]
    array = np.frombuffer(b"".join(rows), dtype)
    if part.factors is None:
        return array
    along = np.resize(np.repeat(*part.factors), array.size)
    return (array.astype(np.float64) * along).astype(dtype)


@given(st.data())
def test_rows_and_factors_give_the_changed_array(data: st.DataObject) -> None:
    shape = data.draw(st.lists(st.integers(1, 5), min_size=1, max_size=4))
    shape[-1] *= data.draw(st.sampled_from([1, MIN_ROW_BYTES]))
    dtype = np.dtype(data.draw(st.sampled_from(["f4", "f8", "i4"])))
    array = np.arange(prod(shape)).reshape(shape).astype(dtype)
    content, stretch = b"head" + array.tobytes(), stretch_of(4, array.nbytes)
    changes, wanted = list[Made](), array
    if data.draw(st.booleans()):
        axis = data.draw(st.integers(0, len(shape) - 1))
        begin = data.draw(st.integers(0, shape[axis] - 1))
        taken = axis, begin, data.draw(st.integers(begin + 1, shape[axis]))
        changes.append(Made(lambda whole: cut(whole, taken), taken, taken=taken))
        wanted = cut(wanted, taken)
    if data.draw(st.booleans()):
        sizes = [size if data.draw(st.booleans()) else 1 for size in wanted.shape]
        factor = 1 + np.arange(prod(sizes)).reshape(sizes) / 7
        changes.append(Made(lambda whole: multiplied(whole, factor), times(factor), factor))
        if dtype == np.float32:
            wanted = multiplied(wanted, factor)
    part = slice_of(stretch, shape, dtype, changes, wanted.shape)
    assert slice_of(stretch, shape, dtype, changes, (*wanted.shape, 1)) is None
    if part is None:
        assert changes
        return
    assert part.nbytes == wanted.nbytes
    assert read_of(part, content, dtype).tobytes() == wanted.tobytes()
    assert part.is_whole == (wanted.size == array.size and part.factors is None)


def test_other_changes_are_not_expressed() -> None:
    stretch = stretch_of(0, 4 * 6 * 256)

    def expressed(*changes: Made, dtype: str = "f4", wanted: tuple[int, ...] = (6, 256)) -> bool:
        return slice_of(stretch, (6, 256), np.dtype(dtype), changes, wanted) is not None

    def part(*taken: int) -> Made:
        return Made(lambda whole: whole, "p", taken=taken)  # type: ignore[arg-type]

    def factor(*sizes: int) -> Made:
        return Made(lambda whole: whole, "f", np.ones(sizes))

    assert expressed()
    assert expressed(factor(6, 1))
    assert not expressed(Made(lambda whole: whole * 2, "twice"))
    assert not expressed(factor(6, 1), factor(6, 1))
    assert not expressed(factor(6, 1), dtype="f8")
    assert expressed(part(1, 0, 128), wanted=(6, 128))
    assert not expressed(part(1, 0, 127), wanted=(6, 127))
    assert expressed(part(0, 1, 2), wanted=(1, 256))
    for begin, end in ((-1, 2), (5, 7), (3, 3), (4, 3)):
        assert not expressed(part(0, begin, end), wanted=(end - begin, 256))
    for taken in ((2, 0, 1), (-1, 0, 128)):
        assert not expressed(part(*taken))
    for sizes in ((6,), (256,), (6, 1, 1), (5, 1), (6, 255)):
        assert not expressed(factor(*sizes))
