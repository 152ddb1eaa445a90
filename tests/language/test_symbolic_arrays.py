"""Arrays that depend on sizes are values of rows; a large array of a model is read when needed."""

from __future__ import annotations

import json
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from libdesc.native_trace import ConstantReader, ConstantWriter, NativeTrace, native_module
from ops._elements import NAMED
from tests.frontends.support import f32
from vtensor.language.symbolic import symbolic_arrays
from vtensor.language.symbolic.symbolic_arrays import (
    Computes,
    StoredArray,
    SymbolicArray,
    as_it_is,
    spread,
)
from vtensor.language.symbolic.trace import NotTraced, Rows, Trace

Array = np.ndarray[Any, Any]


def elements(trace: Trace, *sizes: Any) -> SymbolicArray:
    """Return an array of sizes."""
    sample = np.array([getattr(size, "value", size) for size in sizes])
    return SymbolicArray(trace, sample.shape, sample, as_it_is, (), np.array(sizes, object))


def saved(trace: Trace, arrays: dict[str, Array]) -> Rows:
    """Return the rows of a trace, written as JSON with names for arrays, and read again."""

    def name_of(array: Any) -> Any:
        kind, values = (
            ("array", array.now()) if isinstance(array, StoredArray) else ("bytes", array)
        )
        return {kind: next(name for name, known in arrays.items() if known is values)}

    def array_of(data: Any) -> Any:
        [(kind, name)] = data.items()
        return StoredArray(Model(arrays[name])) if kind == "array" else arrays[name]

    data = ConstantWriter(NativeTrace(), name_of).rows(trace.rows())
    return Rows.of(json.loads(json.dumps(data)), ConstantReader(native_module, (), array_of))


class Model:
    """An array of a model, and how often it was read."""

    def __init__(self, array: Array) -> None:
        self.array, self.reads = array, 0

    def now(self) -> Array:
        self.reads += 1
        return self.array


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 9), st.integers(1, 9))
def test_arrays_are_computed_for_other_sizes(rows: int, columns: int) -> None:
    trace, table = Trace(), f32(1, 16)
    n, m = trace.size(3), trace.size(5)
    sizes = elements(trace, n * 2, m)
    computes = Computes(NAMED["Slice"], {})
    operands = StoredArray(Model(table)), np.array([0]), elements(trace, m), np.array([1])
    part = SymbolicArray(trace, (1, m), table[:, :5], computes, operands)
    shaped = part.reshape((m, 1))
    across = shaped.in_order((1, 0))
    wide = spread(table[:, :1], (n, m), (n, 1, m))
    places = [array.place for array in (sizes, part, shaped, across, wide)]
    assert trace.run([3, 5]) is not None
    named = {"table": table}
    for place, constant in enumerate(trace.rows().constants):
        if isinstance(constant, np.ndarray):
            named[f"constant {place}"] = constant
    expected: list[Array] = [
        np.array([2 * rows, columns]),
        table[:, :columns],
        table[:, :columns].reshape(columns, 1),
        table[:, :columns],
        np.broadcast_to(table[:, :1], (rows, columns)).reshape(rows, 1, columns),
    ]
    for run in (trace.run, saved(trace, named).run):
        values = run([rows, columns])
        assert values is not None
        for place, array in zip(places, expected, strict=True):
            assert values[place].dtype == array.dtype
            np.testing.assert_array_equal(values[place], array)


def test_equal_arrays_are_computed_once() -> None:
    trace = Trace()
    n = trace.size(3)
    assert elements(trace, n, 2).place == elements(trace, n, 2).place
    table = f32(1, 4)
    assert spread(table, (n, 4), (n, 4)).place == spread(table, (n, 4), (n, 4)).place
    assert spread(table, (n, 4), (n, 4)).place != spread(table.copy(), (n, 4), (n, 4)).place


def _even(sizes: Array) -> Array:
    return np.zeros(int(sizes[0]) // 2 * 2)


def _typed(sizes: Array) -> Array:
    return np.zeros(int(sizes[0]), np.float64 if sizes[0] < 7 else np.float32)


@pytest.mark.parametrize(("function", "refused"), [(_even, 5), (_typed, 8)])
def test_another_shape_or_type_than_was_foreseen_says_nothing(function: Any, refused: int) -> None:
    trace = Trace()
    n = trace.size(4)
    place = SymbolicArray(trace, (n,), np.zeros(4), function, (elements(trace, n),)).place
    values: Any = trace.run([6])
    assert values[place].shape == (6,)
    assert trace.run([refused]) is None


def test_a_type_that_cannot_hold_a_size_says_nothing() -> None:
    trace = Trace()
    sizes = np.array([trace.size(3)], object)
    place = SymbolicArray(trace, (1,), np.array([3], np.int8), as_it_is, (), sizes).place
    values: Any = trace.run([100])
    assert values[place].dtype == np.int8
    assert trace.run([300]) is None


@pytest.mark.parametrize(("most", "reads"), [(1 << 20, 1), (8, 3)])
def test_a_large_array_is_read_once_where_it_may_stay(
    monkeypatch: pytest.MonkeyPatch, most: int, reads: int
) -> None:
    monkeypatch.setattr(symbolic_arrays, "MOST_HELD", most)
    trace, model = Trace(), Model(f32(9, 4))
    n = trace.size(3)
    computes = Computes(NAMED["Gather"], {"axis": 0})
    sources = StoredArray(model), elements(trace, n)
    row = SymbolicArray(trace, (1, 4), model.array[[3]], computes, sources)
    place, run = row.place, cast("Any", trace.run)
    assert not model.reads
    for size in (3, 8, 0):
        np.testing.assert_array_equal(run([size])[place], model.array[[size]])
    assert model.reads == reads


def test_a_decision_by_a_large_array_is_not_traced() -> None:
    trace = Trace()
    n = trace.size(3)
    large = SymbolicArray(trace, (n,), np.arange(3), as_it_is, (np.arange(3),))
    for look in (np.asarray, lambda array: array.tolist(), lambda array: array[0]):
        with pytest.raises(NotTraced):
            look(large)
        assert trace.failed
