"""Where weights lie in their file, and what is done with them, as native code is told it."""

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
    """Bytes of some file, which nobody reads here."""
    with Path(__file__).open("rb") as file:
        return OpenFile(file.fileno(), os.fstat(file.fileno()), "file").stretch(offset, nbytes)


def slice_of(
    stretch: Stretch,
    shape: Sequence[int],
    dtype: np.dtype[Any],
    changes: Sequence[Made],
    wanted: Sequence[int],
) -> FileSlice | None:
    """A part of an array that nobody has read, of which a row wants these sizes."""
    dims = {f"D{axis}": size for axis, size in enumerate(wanted)}
    given = Value("w", from_numpy(dtype), dims, Layout.plain(dims), True)
    source = Original.deferred(tuple(shape), dtype, stretch)
    return FileSlice.of(ConstantRow(source, changes, given, given))


def read_of(part: FileSlice, data: bytes, dtype: np.dtype[Any]) -> Array:
    """What native code reads, by its definition."""
    rows = [
        data[part.stretch.offset + part.offset + i * part.step :][: part.row]
        for i in range(part.rows)
    ]
    found = np.frombuffer(b"".join(rows), dtype)
    if part.factors is not None:
        along = np.resize(np.repeat(*part.factors), found.size)
        found = (found.astype(np.float64) * along).astype(dtype)
    return found


@given(st.data())
def test_rows_and_factors_say_what_is_done_with_an_array(data: st.DataObject) -> None:
    shape = data.draw(st.lists(st.integers(1, 5), min_size=1, max_size=4))
    shape[-1] *= data.draw(st.sampled_from([1, MIN_ROW_BYTES]))
    dtype = np.dtype(data.draw(st.sampled_from(["f4", "f8", "i4"])))
    array = np.arange(prod(shape)).reshape(shape).astype(dtype)
    content, stretch = b"head" + array.tobytes(), stretch_of(4, array.nbytes)
    made, wanted = list[Made](), array
    if data.draw(st.booleans()):
        axis = data.draw(st.integers(0, len(shape) - 1))
        begin = data.draw(st.integers(0, shape[axis] - 1))
        taken = axis, begin, data.draw(st.integers(begin + 1, shape[axis]))
        made.append(Made(lambda one: cut(one, taken), taken, taken=taken))
        wanted = cut(wanted, taken)
    if data.draw(st.booleans()):
        sizes = [size if data.draw(st.booleans()) else 1 for size in wanted.shape]
        factor = 1 + np.arange(prod(sizes)).reshape(sizes) / 7
        made.append(Made(lambda one: multiplied(one, factor), times(factor), factor))
        if dtype == np.float32:
            wanted = multiplied(wanted, factor)
    found = slice_of(stretch, shape, dtype, made, wanted.shape)
    assert slice_of(stretch, shape, dtype, made, (*wanted.shape, 1)) is None
    if found is None:
        assert made
        return
    assert found.nbytes == wanted.nbytes
    assert read_of(found, content, dtype).tobytes() == wanted.tobytes()
    assert found.is_whole == (wanted.size == array.size and found.factors is None)


def test_what_rows_and_factors_cannot_say_is_left() -> None:
    stretch, f4 = stretch_of(0, 4 * 6 * 256), np.dtype("f4")

    def of(*made: Made, dtype: np.dtype[Any] = f4, wanted: tuple[int, ...] = (6, 256)) -> bool:
        return slice_of(stretch, (6, 256), dtype, made, wanted) is not None

    twice = Made(lambda one: one * 2, "twice")
    factor = Made(lambda one: one, "f", np.ones((6, 1)))
    assert of()
    assert of(factor)
    assert not of(twice)
    assert not of(factor, factor)
    assert not of(factor, dtype=np.dtype("f8"))
    assert of(Made(lambda one: one, "p", taken=(1, 0, 128)), wanted=(6, 128))
    assert not of(Made(lambda one: one, "p", taken=(1, 0, 127)), wanted=(6, 127))
    assert of(Made(lambda one: one, "p", taken=(0, 1, 2)), wanted=(1, 256))
    for part in ((0, -1, 2), (0, 5, 7), (0, 3, 3), (0, 4, 3), (2, 0, 1), (-1, 0, 128)):
        axis, begin, end = part
        wanted = tuple(end - begin if i == axis else size for i, size in enumerate((6, 256)))
        assert not of(Made(lambda one: one, "p", taken=part), wanted=wanted)
    for sizes in ((6,), (256,), (6, 1, 1), (5, 1), (6, 255)):
        assert not of(Made(lambda one: one, "f", np.ones(sizes)))
