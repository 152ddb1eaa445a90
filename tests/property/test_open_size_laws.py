"""What is computed of open sizes is right for all sizes that pass the guards, those of one too."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import product
from math import prod
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from libdesc.eigen.memory import nested, strides_along
from ptensor.layout import Layout
from ptensor.recount import recounted
from tests.property.strategies import LAWS
from vtensor.errors import VTensorError
from vtensor.language.dims import broadcast
from vtensor.language.symbolic.trace import Trace, number_of, substituted

Sizes = Mapping[str, int]

#: Sizes of a dim, of which ones matter most.
SIZES = st.sampled_from([1, 1, 2, 3, 4, 8])

#: Layouts of the dims N, C and H.
LAYOUTS = st.sampled_from([*map(Layout, ("NCH", "NHC", "CNH", "CHN", "HNC", "HCN", "NCH2c"))])

#: How the elements of N, C and H are counted by other dims.
SHAPES: Mapping[str, Callable[[Any, Any, Any], dict[str, Any]]] = {
    "the same": lambda n, c, h: {"A": n, "B": c, "D": h},
    "one more": lambda n, c, h: {"A": n, "E": 1, "B": c, "D": h},
    "one before": lambda n, c, h: {"E": 1, "A": n, "B": c, "D": h},
    "first two": lambda n, c, h: {"A": n * c, "D": h},
    "last two": lambda n, c, h: {"A": n, "D": c * h},
    "all": lambda n, c, h: {"A": n * c * h},
    "apart": lambda n, c, h: {"A": n, "B": 2, "D": c * h // 2},
}


def law(function: Callable[..., Any], now: Sizes, open_dims: set[str], other: Sizes) -> Any:
    """Compute with some sizes open, and with numbers; return both for the other sizes.

    None where the guards fail, or nothing can be computed of the first sizes.
    """
    trace = Trace()
    sizes = {dim: trace.size(now[dim]) if dim in open_dims else now[dim] for dim in now}
    try:
        traced = function(sizes)
    except (VTensorError, StopIteration):
        with pytest.raises((VTensorError, StopIteration)):
            function(now)  # it depends on nothing but the sizes
        return None
    values = trace.run([other[dim] for dim in now if dim in open_dims])
    if values is None:
        return None
    numbers = {dim: other[dim] if dim in open_dims else now[dim] for dim in now}
    return substituted(traced, lambda size: values[size.place]), function(numbers), numbers


sizes_of = st.fixed_dictionaries(dict.fromkeys("NCH", SIZES))
open_sets = st.sets(st.sampled_from("NCH"), min_size=1)


@LAWS
@given(LAYOUTS, LAYOUTS, sizes_of, open_sets, sizes_of)
def test_same_holds(one: Layout, two: Layout, now: Sizes, opened: set[str], other: Sizes) -> None:
    for sizes in (now, other):
        rows = law(lambda own: one.same(two, own), now, opened, sizes)
        assert rows is None or rows[0] == rows[1]


@LAWS
@given(LAYOUTS, st.sampled_from([*SHAPES]), sizes_of, open_sets, sizes_of)
def test_recount_holds(
    layout: Layout, name: str, now: Sizes, opened: set[str], other: Sizes
) -> None:
    def counted(sizes: Sizes) -> Layout:
        shape = SHAPES[name](*sizes.values())
        if prod(shape.values()) != prod(sizes.values()):
            raise VTensorError("these sizes are not counted so")
        return recounted(layout, sizes, shape)

    for sizes in (now, other):
        if (rows := law(counted, now, opened, sizes)) is not None:
            assert rows[0].same(rows[1], SHAPES[name](*rows[2].values()))


@LAWS
@given(st.lists(sizes_of, min_size=2, max_size=2), open_sets, st.lists(sizes_of, min_size=2))
def test_broadcasting_holds(both: list[Sizes], opened: set[str], others: list[Sizes]) -> None:
    """Dims of both operands: those of the second have other names where it is told apart."""
    now, other = (
        {f"{dim}{place}": size for place, row in enumerate(rows[:2]) for dim, size in row.items()}
        for rows in (both, others)
    )

    def result(sizes: Sizes) -> dict[str, int]:
        rows = [{dim: sizes[f"{dim}{place}"] for dim in "NCH"} for place in (0, 1)]
        return broadcast(*rows)

    places = {f"{dim}{place}" for dim, place in product(opened, (0, 1))}
    for sizes in (now, other):
        rows = law(result, now, places, sizes)
        assert rows is None or rows[0] == rows[1]


@LAWS
@given(LAYOUTS, LAYOUTS, sizes_of, open_sets, sizes_of, st.sets(st.sampled_from("NCH")))
def test_strides_of_operands_hold(
    target: Layout, own: Layout, now: Sizes, opened: set[str], other: Sizes, single: set[str]
) -> None:
    """Where an axis has one place its stride is nobody's; elsewhere it leads to the next one."""

    def steps(sizes: Sizes) -> tuple[list[int], list[int]]:
        axes = nested([target, own], sizes)
        if axes is None:
            raise VTensorError("their blocks do not fit")
        dims = {dim: 1 if dim in single else size for dim, size in sizes.items()}
        return [axis.size for axis in axes], strides_along(axes, own, dims)

    for sizes in (now, other):
        if (rows := law(steps, now, opened, sizes)) is not None:
            (counts, strides), (wanted_counts, wanted), _ = rows
            assert counts == wanted_counts
            assert all(
                a == b for size, a, b in zip(counts, strides, wanted, strict=True) if size > 1
            )


def test_a_function_that_asks_no_guard_is_seen() -> None:
    """It looks at the number of now, and its answer holds for no other."""
    sizes = {"N": 1, "C": 2, "H": 3}
    rows = law(lambda own: number_of(own["N"]) == 1, sizes, {"N"}, {**sizes, "N": 2})
    assert rows is not None
    assert rows[0] != rows[1]


def test_a_batch_of_one_is_guarded_by_nothing() -> None:
    """What was recorded for one image holds for several, where several lie alike."""
    dims = {"N": 1, "C": 4, "H": 2}
    trace = Trace()
    sizes = {**dims, "N": trace.size(1)}
    assert broadcast(sizes, {"N": 1, "C": 4}, {"H": 1})["N"] is sizes["N"]
    assert not Layout("NCH").same(Layout("NHC"), sizes)
    assert Layout("NCH").same(Layout("NHC"), {**sizes, "H": 1})
    split = {"A": sizes["N"], "B": 2, "D": 2, "H": 2}
    assert str(recounted(Layout("NHC"), sizes, split)) == "AHBD"
    axes = nested([Layout("NHC")], sizes)
    assert axes is not None
    strides = strides_along(axes, Layout("NCH"), sizes)
    assert trace.run([5]) is not None
    assert [*map(number_of, strides)] == [8, 1, 2]
    trace = Trace()
    assert Layout("NCH").same(Layout("CNH"), {**dims, "N": trace.size(1)})
    assert trace.run([5]) is None
