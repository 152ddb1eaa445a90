"""Native calls on a trace are made again for other sizes; those of no size by other processes."""

from __future__ import annotations

import copy
import json
import threading
from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from libdesc.native_trace import (
    ConstantReader,
    ConstantWriter,
    Foreign,
    NativeTrace,
    build_of,
    native_module,
)
from libdesc.tracing import cached, pure_function, pure_name, traced, tracing
from ptensor.layout import Layout
from vtensor.language.symbolic.symbolic_arrays import Computes
from vtensor.language.symbolic.trace import NotSaved, Rows, Trace, number_of

NAME = "libdesc.onednn._onednn"


class Library:
    """Stands for a native library, which takes numbers alone."""

    level = "some"

    def __init__(self, size: int = 0) -> None:
        assert type(size) is int
        self.size, self.kernel = size, "wide" if size % 8 == 0 else "narrow"
        self.slots = ("src", "dst")
        self.descs = {"src": (size, 2 * size), "dst": (size,) * (1 + size // 100)}

    def twice(self, sizes: list[int], other: Library, scale: int = 1) -> Library:
        assert all(type(size) is int for size in sizes)
        if sum(sizes) > 1000:
            raise RuntimeError("too large")
        return Library(scale * sum(sizes) + other.size)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Library) and self.size == other.size

    __hash__ = None  # type: ignore[assignment]


def on_trace(function: Callable[[Any, Any], Any], size: int = 16) -> tuple[NativeTrace, Any]:
    """Trace a function of a size and the library; return the trace and the result."""
    trace = NativeTrace(NativeTrace())
    symbol = trace.size(size)
    with tracing(trace):
        return trace, function(symbol, traced(Library))


def test_calls_are_made_again_with_other_numbers() -> None:
    trace, step = on_trace(lambda n, lib: lib(n).twice([n, 1], lib(n + 3), scale=n - 14))
    assert isinstance(step, Foreign)
    assert step.own.size == 2 * 17 + 19
    values: Any = trace.run([40])
    assert values[step.where].size == 26 * 41 + 43


def test_a_call_of_no_size_is_made_once_and_elsewhere() -> None:
    trace, (level, thing) = on_trace(lambda _, library: (library.level, library(3)))
    assert (level, thing.own.size, trace.run([8])) == ("some", 3, [8])
    assert thing.trace is trace.outer
    values = trace.outer.rows().run([]) or []
    assert [value.size for value in values if isinstance(value, Library)] == [3]


def test_equal_calls_are_one_row() -> None:
    trace, things = on_trace(
        lambda n, library: [(library(n).twice([n], library(3)), library(3)) for _ in range(3)]
    )
    assert len({thing.where for thing, _ in things}) == 1
    assert len({thing.where for _, thing in things}) == 1
    assert len(trace.rows().rows) == 4  # two calls, a method, a list
    assert trace.outer is not None
    assert len(trace.outer.rows().rows) == 1


def test_numbers_of_a_library_are_sizes() -> None:
    trace, size = on_trace(lambda n, library: library(n).descs["src"][1] + 1)
    values: Any = trace.run([20])
    assert (size.value, values[size.place]) == (33, 41)


#: Questions to a library, and a size for which the answer is another than for 16.
ANSWERS: dict[str, tuple[Callable[[Any, Any], Any], int]] = {
    "a text": (lambda n, library: library(n).kernel, 17),
    "how many numbers": (lambda n, library: library(n).descs["dst"], 100),
    "a number": (lambda n, library: library(n).size < 50, 50),
    "whether two are equal": (lambda n, library: library(n) == library(16), 24),
    "whether they differ": (lambda n, library: library(n) != library(24), 24),
    "whether one equals a fixed one": (lambda n, library: library(16) == library(n), 24),
}


@pytest.mark.parametrize("question", ANSWERS)
def test_another_answer_is_a_guard_that_fails(question: str) -> None:
    function, other = ANSWERS[question]
    trace, _ = on_trace(function)
    assert trace.run([16]) is not None
    assert trace.run([other]) is None


def test_a_library_that_refuses_other_sizes_says_nothing() -> None:
    trace, _ = on_trace(lambda n, library: library(n).twice([n], library(8)))
    assert trace.run([1008]) is None
    assert trace.rows().pruned([]).run([1008]) is None


@pytest.mark.parametrize("size", [2000, 3])
def test_a_library_that_refuses_now_leaves_no_trace(size: int) -> None:
    with pytest.raises(RuntimeError):
        on_trace(lambda n, library: library(3).twice([n], library()), 2000)
    trace = NativeTrace(NativeTrace())
    symbol = trace.size(size)
    with tracing(trace), pytest.raises(RuntimeError):
        traced(Library)(3).twice([symbol, 2000], Library())
    assert trace.failed


def test_a_proxy_is_what_it_stands_for_once_nothing_is_traced() -> None:
    trace, (step, fixed) = on_trace(lambda n, library: (library(n), library(3)))
    assert trace.outer is not None
    before = len(trace.rows().rows), len(trace.outer.rows().rows)
    results = list[Any]()

    def elsewhere() -> None:
        results.extend([step.twice([4], fixed), step == fixed, fixed == Library(3), fixed.level])

    with tracing(trace):  # which another thread knows nothing of
        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join()
    elsewhere()
    assert results == [Library(7), False, True, "some"] * 2
    assert before == (len(trace.rows().rows), len(trace.outer.rows().rows))
    with pytest.raises(TypeError):
        hash(step)


def test_forgetting_releases_what_was_made_for_the_traced_sizes() -> None:
    trace, (step, fixed) = on_trace(lambda n, library: (library(n), library(3)))
    trace.forget()
    assert step.own is None
    assert not [value for value in trace.values if isinstance(value, Library)]
    assert trace.run([40])[step.where].size == 40  # type: ignore[index]
    assert trace.outer is not None
    trace.outer.forget()
    assert not trace.outer.rows().rows
    assert fixed.twice([4], fixed).size == 7  # and goes on to work


CALLS: list[int] = []


@cached
def counted(size: int, library: Any = None) -> Any:
    CALLS.append(number_of(size))
    return (library or traced(Library))(size).size


def test_a_cached_function_is_traced_once_for_each_choice_of_plain_arguments() -> None:
    CALLS.clear()
    trace, sizes = on_trace(
        lambda n, library: [counted(5), counted(5), counted(n), counted(n), counted(5, library)]
    )
    assert CALLS == [5, 16, 16, 5]
    assert [*map(number_of, sizes)] == [5, 5, 16, 16, 5]
    assert trace.run([40])[sizes[2].place] == 40  # type: ignore[index]
    assert counted(6) == counted(6) == 6
    assert CALLS[4:] == [6]


def native_step() -> tuple[NativeTrace, Any, Any]:
    """Return a constant trace, and its step and descriptor."""
    trace = NativeTrace()
    with tracing(trace):
        from libdesc.onednn.native import dnnl

        desc = dnnl.Desc.strided((2, 3), "f32", (3, 1))
        step = dnnl.reorder(desc, dnnl.Desc.tag((2, 3), "f32", "ba"))
        dnnl.Desc.tag((9, 9), "f32", "ab")
        assert step.descs["src"] == desc
        assert step.kind == "reorder"
    return trace, step, desc


def saved(trace: NativeTrace, *things: Any) -> tuple[Any, list[int], set[str]]:
    """Return the data of things of a constant trace, their places and modules."""
    writer = ConstantWriter(trace)
    places = [writer.place(thing) for thing in things]
    return json.loads(json.dumps(writer.outer_rows())), places, writer.modules


def test_other_processes_make_the_things_again() -> None:
    trace, step, desc = native_step()
    data, places, modules = saved(trace, step, desc)
    assert modules == {NAME}
    assert len(data["rows"]) == 3
    values = Rows.of(data, ConstantReader(native_module)).run([])
    assert values is not None
    assert values[places[0]].descs["dst"].strides == (1, 2)
    assert values[places[1]] == native_module(NAME).Desc.strided((2, 3), "f32", (3, 1))
    with pytest.raises(NotSaved):
        ConstantWriter(NativeTrace()).place(step)
    for thing in (print, None, traced(native_module(NAME))):
        with pytest.raises(NotSaved):
            ConstantWriter(trace).place(thing)
    for bad in ("os", "libdesc.numpy._numpy", "libdesc.onednn._other", "libdesc..x"):
        with pytest.raises((ValueError, ImportError, AttributeError)):
            native_module(bad)
    assert build_of(native_module(NAME))


def test_a_trace_of_sizes_has_things_of_the_constant_trace() -> None:
    outer = NativeTrace()
    trace = NativeTrace(outer)
    n = trace.size(6)
    with tracing(trace):
        from libdesc.onednn.native import dnnl

        fixed = dnnl.Desc.tag((4, 4), "f32", "ab")
        src, dst = dnnl.Desc.tag((n, 4), "f32", "ab"), dnnl.Desc.any((n, 4), "f32")
        step = cast("Any", dnnl.matmul(src, fixed, None, dst))
        assert step.descs["src"].strides == (4, 1)
    writer = ConstantWriter(outer)
    data = writer.rows(trace.rows().pruned([step.where]))
    data, things = json.loads(json.dumps([data, writer.outer_rows()]))
    values = Rows.of(things, ConstantReader(native_module)).run([])
    assert values is not None
    rows = Rows.of(data, ConstantReader(native_module, values))
    for size in (6, 9):
        made = rows.run([size])
        assert made is not None
        assert made[step.where].descs["dst"].dims == (size, 4)
    assert rows.run([-1]) is None


def reads(data: Any) -> Any:
    """Read a constant of data that has no modules but oneDNN's."""
    return ConstantReader(native_module, [Library(3)])(data)


def written(value: Any) -> Any:
    """Return a constant as JSON data."""
    trace = Trace()
    trace.call(len, [value], None)
    data = ConstantWriter(NativeTrace()).rows(replace(trace.rows(), rows=[(6, 0, 0, (-1,), None)]))
    return json.loads(json.dumps(data))["constants"][0]


def test_constants_are_data() -> None:
    from ops._elements import NAMED

    computes = Computes(NAMED["Gather"], {"axis": 0, "names": ["a"], "x": 1.5})
    values = [1, True, None, 2.5, "x", (1, [2, ("y",)]), Layout("NCHW16c"), np.int64(3)]
    for value in values:
        assert reads(written(value)) == value
    again = reads(written(computes))
    assert (again.function, again.attributes) == (computes.function, computes.attributes)
    joined = pure_function("libdesc.eigen.native:joined", called=True)
    assert reads(written(joined)) is joined
    assert pure_name(print) is None
    for odd in (b"x", object(), print, np.zeros(2), {1: 2}, Computes(print, {})):
        with pytest.raises(NotSaved):
            written(odd)


@pytest.mark.parametrize(
    "data",
    [
        {"path": [NAME, "__dict__"]},
        {"path": [NAME, "Desc", 3]},
        {"path": ["os", "getcwd"]},
        {"path": []},
        {"function": "os:getcwd"},
        {"function": "libdesc.tracing:pure_function"},
        {"function": "ops._elements:Max"},
        {"computes": ["os:getcwd", {}]},
        {"computes": ["ops._elements:Max", []]},
        {"native": 9},
        {"native": -1},
        {"native": "0"},
        {"layout": 3},
        {"array": "x"},
        {"bytes": []},
        [1, 2],
        [[1]],
        "text",
        7,
        {},
    ],
)
def test_data_that_is_no_constant_is_refused(data: Any) -> None:
    with pytest.raises(ValueError, match=r"no constant|no name|no module|no function"):
        reads(data)


@settings(max_examples=60, deadline=None)
@given(st.randoms(use_true_random=False))
def test_damaged_calls_are_refused(random: Random) -> None:
    trace, step, _ = native_step()
    data, [place], _ = saved(trace, step)
    data = copy.deepcopy(data)
    rows = [row for row in data["rows"] if isinstance(row, list)]
    row = random.choice([*rows, data["constants"]])
    row[random.randrange(len(row))] = random.choice([None, -1, 2, 99, "x", [1], ["f32"], {}])
    try:
        values = Rows.of(data, reads).run([])
    except ValueError:
        return
    assert values is None or type(type(values[place])).__module__ in ("nanobind", "builtins")
