"""The laws of the layout algebra, and a broken version of each that the checker must catch."""

from __future__ import annotations

import copy
import math
import pickle
from collections.abc import Iterator, Mapping
from itertools import permutations, product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ptensor.layout import Axis, Layout
from ptensor.recount import recounted
from tests.property.checkers import (
    one_place_each,
    reads_back,
    same_is_same_places,
    strides_lead_there,
)
from tests.property.strategies import (
    LAWS,
    encodings,
    extents,
    indices,
    layouts,
    offsets,
    pairs,
    placed,
)
from vtensor.errors import DimError, LayoutError, VTensorError

Sizes = Mapping[str, int]
Placed = tuple[Layout, dict[str, int]]


@LAWS
@given(layouts(encoding=st.none() | encodings))
def test_text_reads_back(layout: Layout) -> None:
    reads_back(str, layout)
    assert Layout.of_axes(layout.axes, layout.encoding) is layout
    assert pickle.loads(pickle.dumps(layout)) == layout == copy.deepcopy(layout)


@LAWS
@given(st.text(alphabet="NCHWchw0123469%/ :()._sbf-ANYé\n\0", max_size=14) | st.text(max_size=8))
def test_any_text_parses_or_is_refused_by_name(text: str) -> None:
    try:
        reads_back(str, Layout(text))
    except (LayoutError, DimError) as refusal:
        message = str(refusal)
    else:
        return
    assert repr(text) in message
    assert "to fix:" in message


@LAWS
@given(placed())
def test_every_element_has_its_own_place(case: Placed) -> None:
    one_place_each(Layout.offset, *case)


@LAWS
@given(placed())
def test_shape_strides_and_offset_agree(case: Placed) -> None:
    strides_lead_there(Layout.strides, *case)


@LAWS
@given(placed())
def test_padded_is_the_next_multiple(case: Placed) -> None:
    layout, sizes = case
    padded = layout.padded(sizes)
    assert list(padded) == list(layout.dims)
    for dim, size in padded.items():
        assert size % layout.block(dim) == 0
        assert 0 <= size - sizes[dim] < layout.block(dim)
    # every lane of the padded tensor has its own place too, and they fill the allocation
    if layout.num_elements(sizes) <= 2000:
        lanes = [layout.offset(index, sizes) for index in indices(padded)]
        assert sorted(lanes) == list(range(layout.num_elements(sizes)))


@LAWS
@given(pairs())
def test_same_is_enumeration(case: tuple[list[Layout], dict[str, int]]) -> None:
    (one, other), sizes = case
    same_is_same_places(Layout.same, one, other, sizes)
    assert one.same(one, sizes)


@LAWS
@given(placed(), st.data())
def test_same_holds_for_layouts_made_alike(case: Placed, data: st.DataObject) -> None:
    """Random pairs rarely agree; these do: axes of length 1 move, blocks split into neighbours."""
    layout, sizes = case
    shape = layout.physical_shape(sizes)
    loose = [a for a, n in zip(layout.axes, shape, strict=True) if n == 1 and not a.block]
    axes = [axis for axis in layout.axes if axis not in loose]
    for axis in loose:
        axes.insert(data.draw(st.integers(0, len(axes))), axis)
    split: list[Axis] = []
    for dim, block in axes:
        even = block > 2 and block % 2 == 0
        split += [Axis(dim, 2), Axis(dim, block // 2)] if even else [Axis(dim, block)]
    other = Layout.of_axes(split)
    assert layout.same(other, sizes)
    assert other.same(layout, sizes)
    same_is_same_places(Layout.same, layout, other, sizes)


def _small_layouts() -> Iterator[Layout]:
    """Every layout of A and B with these blocks, in every order of the axes."""
    for a, b in product([(), (2,), (4,), (2, 2)], [(), (2,), (3,)]):
        axes = [Axis("A"), Axis("B"), *(Axis("A", n) for n in a), *(Axis("B", n) for n in b)]
        for ordered in sorted(set(permutations(axes))):
            yield Layout.of_axes(ordered)


@pytest.mark.parametrize(("a", "b"), [(1, 3), (2, 2), (3, 1), (4, 2), (5, 3), (8, 1), (0, 2)])
def test_same_is_enumeration_on_every_small_layout(a: int, b: int) -> None:
    sizes = {"A": a, "B": b}
    groups: dict[tuple[object, ...], list[Layout]] = {}
    for layout in _small_layouts():
        key = (layout.num_elements(sizes), *offsets(layout, sizes))
        groups.setdefault(key, []).append(layout)
    for group in groups.values():
        assert all(group[0].same(layout, sizes) for layout in group)
    firsts = [group[0] for group in groups.values()]
    for i, one in enumerate(firsts):
        assert not any(one.same(other, sizes) for other in firsts[i + 1 :])


@LAWS
@given(layouts())
def test_renaming_and_restricting_keep_blocks(layout: Layout) -> None:
    forth = {dim: f"{dim}_" for dim in layout.dims}
    back = {new: old for old, new in forth.items()}
    assert layout.rename(forth).rename(back) == layout
    cycle = dict(zip(layout.dims, layout.dims[1:] + layout.dims[:1], strict=True))
    assert layout.rename(cycle).dims == layout.dims[1:] + layout.dims[:1]
    assert layout.restrict(layout.dims) == layout
    assert layout.restrict([]) == Layout("()")
    bare = layout
    for dim in layout.dims:
        assert layout.restrict([dim]).dims == (dim,)
        assert layout.restrict([dim]).blocks(dim) == layout.blocks(dim)
        bare = bare.unblock(dim)
    assert bare == Layout.plain(layout.dims)
    assert bare.is_plain


@LAWS
@given(layouts(), st.data())
def test_wrong_extents_are_refused(layout: Layout, data: st.DataObject) -> None:
    sizes = data.draw(extents(sorted(layout.dims)))
    wrong: list[dict[str, object]] = [{**sizes, "Z": 1}]
    for dim in layout.dims:
        wrong += [{**sizes, dim: -1}, {**sizes, dim: 1.5}, {**sizes, dim: "3"}]
        wrong.append({name: size for name, size in sizes.items() if name != dim})
    for case in wrong:
        with pytest.raises(DimError):
            layout.physical_shape(case)  # type: ignore[arg-type]


# The checkers see a fault.


def without_levels(layout: Layout) -> str:
    return str(layout).replace("2i", "")


def ambiguous(layout: Layout) -> str:
    return "".join(f"{b}{d.lower()}" if b else d for d, b in layout.axes)


@pytest.mark.parametrize(
    ("spell", "text", "error"),
    [
        (without_levels, "OIhw16i64o2i", AssertionError),
        (ambiguous, "H h/2 h%2", VTensorError),
    ],
)
def test_a_wrong_spelling_is_caught(spell: Any, text: str, error: type[Exception]) -> None:
    reads_back(spell, Layout("OIhw16i" if spell is without_levels else "NC16c"))
    with pytest.raises(error):
        reads_back(spell, Layout(text))


def without_blocks(layout: Layout, index: Sizes, sizes: Sizes) -> int:
    return layout.offset({**index, "C": index["C"] // 16 * 16}, sizes)


def past_the_end(layout: Layout, index: Sizes, sizes: Sizes) -> int:
    return layout.offset(index, sizes) + 1


@pytest.mark.parametrize(("offset", "text"), [(without_blocks, "NCHW16c"), (past_the_end, "C")])
def test_a_wrong_offset_is_caught(offset: Any, text: str) -> None:
    layout = Layout(text)
    with pytest.raises(AssertionError):
        one_place_each(offset, layout, {dim: 3 if dim == "C" else 1 for dim in layout.dims})


def test_strides_of_unpadded_sizes_are_caught() -> None:
    def unpadded(layout: Layout, sizes: Sizes) -> tuple[int, ...]:
        return layout.strides({**sizes, "C": 1})

    with pytest.raises(AssertionError):
        strides_lead_there(unpadded, Layout("NCHW2c"), {"N": 2, "C": 3, "H": 1, "W": 1})


def by_structure(one: Layout, other: Layout, sizes: Sizes) -> bool:
    return one == other


def without_the_allocation(one: Layout, other: Layout, sizes: Sizes) -> bool:
    return offsets(one, sizes) == offsets(other, sizes)


@pytest.mark.parametrize(
    ("broken", "other", "channels", "batch"),
    [
        (by_structure, "NC", 16, 1),
        (without_the_allocation, "NC", 12, 1),
        (lambda *_: True, "CN", 12, 3),
    ],
)
def test_a_wrong_same_is_caught(broken: Any, other: str, channels: int, batch: int) -> None:
    sizes = {"N": batch, "C": channels}
    with pytest.raises(AssertionError):
        same_is_same_places(broken, Layout("NC16c"), Layout(other), sizes)


def recount(layout: Layout, sizes: Sizes, shape: Sizes) -> Layout | None:
    """How what lies in a layout lies under other dims; None where no layout says it."""
    try:
        return recounted(layout, sizes, shape)
    except LayoutError:
        return None


@LAWS
@given(st.data(), st.lists(st.sampled_from([1, 2, 3, 4, 6]), max_size=4), layouts())
def test_recounted_elements_stay(data: st.DataObject, sizes: list[int], blocked: Layout) -> None:
    extents = dict(zip("ABCD", sizes, strict=False))
    ours = Layout.plain(data.draw(st.permutations([*extents])))
    shape: dict[str, int] = {}
    rest = math.prod(sizes)
    for name in "wxyz":
        shape[name] = data.draw(st.sampled_from([n for n in range(1, rest + 1) if rest % n == 0]))
        rest //= shape[name]
    shape["last"] = rest
    there = recount(ours, extents, shape)
    if there is not None:
        pairs = zip(indices(extents), indices(shape), strict=True)  # both as they are counted
        assert all(ours.offset(a, extents) == there.offset(b, shape) for a, b in pairs)
        back = recounted(there, shape, extents)
        assert back.same(ours, extents)
    own = {dim: 2 * blocked.block(dim) for dim in sorted(blocked.dims)}
    flat = {"all": math.prod(own.values())}
    once = recount(blocked, own, flat)
    if once is not None:
        assert recounted(once, flat, own).same(blocked, own)


@pytest.mark.parametrize(
    ("layout", "sizes", "shape", "why"),
    [
        ("NC8c", "N=1 C=12", "X=12", "pads C=12"),
        ("CN", "N=6 C=4", "X=4 Y=6", "places lie across"),
        ("CBA", "A=2 B=2 C=2", "X=8", "no blocks have"),
        ("N:s8(scale=[1.0,2.0]@N)", "N=2", "X=2", "scales"),
    ],
)
def test_what_no_layout_says_is_refused(layout: str, sizes: str, shape: str, why: str) -> None:
    have, wanted = ({word[0]: int(word[2:]) for word in text.split()} for text in (sizes, shape))
    with pytest.raises(LayoutError, match=why):
        recounted(Layout(layout), have, wanted)
