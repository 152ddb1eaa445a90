"""Layouts: the cases that people write, what is refused and how, and what a value promises."""

from __future__ import annotations

import sys
import threading
from typing import Any

import numpy as np
import pytest

from ptensor.encoding import Encoding
from ptensor.layout import Axis, Layout
from vtensor.errors import DimError, DTypeError, LayoutError

IMAGE = {"N": 2, "C": 20, "H": 5, "W": 7}


@pytest.mark.parametrize(
    ("text", "axes"),
    [
        ("NCHW", "N C H W"),
        ("NCHW16c", "N C/16 H W C%16"),
        ("OIhw16i64o2i", "O/64 I/32 h w I%16 O%64 I%2"),
        ("Nc16c", "N c/16 c%16"),
        ("4cNCH", "C%4 N C/4 H"),
        (" NCHW : bf16 ", "N C H W:bf16"),
        ("C", "C/1"),
    ],
)
def test_compact_and_spaced_text_mean_the_same(text: str, axes: str) -> None:
    assert Layout(text) == Layout(axes)
    assert str(Layout(axes)) == text.replace(" ", "")


@pytest.mark.parametrize(
    "text",
    [
        "batch head seq/64 feat seq%64",
        "batch/1",
        "A N Y",
        "H h/2 h%2",
        "H/2 h H%2",
        "C/4 c C%4",
        "()",
        "():bf16",
        "ANY",
        "ANY:s8(scale=0.1)",
        "é N",
        "_ N",
        "NCHW16c:s8(scale=1e-05)",
    ],
)
def test_text_that_prints_as_it_was_written(text: str) -> None:
    assert str(Layout(text)) == text
    assert repr(Layout(text)) == f"Layout({text!r})"


@pytest.mark.parametrize(
    ("text", "error", "character", "remedy"),
    [
        ("", LayoutError, 1, "'()' for a scalar"),
        (":bf16", LayoutError, 1, "'()' for a scalar"),
        ("NCHW16", LayoutError, 5, "follow it by its dim's letter"),
        ("NCHW1c", LayoutError, 5, "at least 2"),
        ("NCHW0c", LayoutError, 5, "at least 2"),
        ("NCHW16C", LayoutError, 5, "write 16c"),
        ("NCHW16d", DimError, 5, "add the outer part of D"),
        ("NCHC", DimError, 4, "each dim once"),
        ("N-C", LayoutError, 2, "spaces"),
        ("NC99999999999c", LayoutError, 3, "at most 2147483647"),
        ("NC65536c65536c", LayoutError, 9, "at most 2147483647"),
        ("Hh2h", LayoutError, 3, "h%2"),
        ("seq feat seq%64", LayoutError, 1, "write seq/64"),
        ("seq/32 feat seq%64", LayoutError, 1, "write seq/64"),
        ("seq/64 feat", LayoutError, 1, "add its blocks"),
        ("N seq%1 seq", LayoutError, 3, "at least 2"),
        ("N seq% seq", LayoutError, 3, "name%64"),
        ("N 3x", LayoutError, 3, "name/64"),
        ("seq feat%4", DimError, 5, "add the outer part of feat"),
        ("NCHW:", LayoutError, 6, ":bf16"),
        ("NCHW:f33", LayoutError, 6, ":bf16"),
        ("NCHW:s8(scale=x)", LayoutError, 6, "scale=0.5"),
        ("NCHW:s8(scale=-1)", LayoutError, 6, "scale=0.5"),
        ("NCHW:bf16(scale=2)", LayoutError, 6, "scale=0.5"),
    ],
)
def test_a_refused_text_names_place_and_remedy(
    text: str, error: type[Exception], character: int, remedy: str
) -> None:
    with pytest.raises(error) as caught:
        Layout(text)
    first, *rest = str(caught.value).split("\n")
    assert first.startswith(f"layout {text!r}, character {character}: ")
    assert rest
    assert rest[0].startswith("  to fix: ")
    assert remedy in rest[0]


@pytest.mark.parametrize("nonsense", [None, 3, b"NCHW", ["N", "C"], Axis("N", 0)])
def test_what_is_no_text_is_refused(nonsense: object) -> None:
    with pytest.raises(LayoutError, match="a layout is a text"):
        Layout(nonsense)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("axes", "error"),
    [
        ([("N", 0), ("N", 0)], DimError),
        ([("C", 0), ("N", 4)], DimError),
        ([("C", 0), ("C", 1)], LayoutError),
        ([("C", 0), ("C", -2)], LayoutError),
        ([("C", 0), ("C", 2.0)], LayoutError),
        ([("C", 0), ("C", "2")], LayoutError),
        ([("a b", 0)], DimError),
        ([("", 0)], DimError),
        ([(3, 0)], DimError),
    ],
)
def test_refused_axes(axes: list[tuple[str, int]], error: type[Exception]) -> None:
    with pytest.raises(error):
        Layout.of_axes(axes)


def test_axes_of_numpy_integers_are_plain_integers() -> None:
    numbers: list[Any] = [np.int64(0), np.int32(16)]
    layout = Layout.of_axes([("C", number) for number in numbers])
    assert layout is Layout.of_axes([("C", 0), ("C", 16)])
    assert all(type(axis.block) is int for axis in layout.axes)


def test_a_layout_is_a_value() -> None:
    layout = Layout("NCHW16c")
    assert Layout(layout) is layout
    assert layout == Layout("N C/16 H W C%16")
    assert layout != Layout("NCHW8c")
    assert layout != Layout("NCHW16c:f32")
    assert layout != "NCHW16c"
    assert {layout: 1}[Layout("N C/16 H W C%16")] == 1
    with pytest.raises(AttributeError, match="value"):
        layout._axes = ()
    with pytest.raises(AttributeError, match="value"):
        del layout._axes


def test_parsing_again_is_a_look_up() -> None:
    assert Layout("NCHW16c") is Layout("NCHW16c")
    assert Layout("NCHW").with_encoding("bf16") == Layout("NCHW:bf16")  # the caches are bounded


def test_layouts_from_many_threads_are_one_value() -> None:
    texts = [f"N C/{n} C%{n}" for n in range(2, 60)]
    found: list[set[Layout]] = []

    def parse_all() -> None:
        found.append({Layout(text) for text in texts})

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=parse_all) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(before)
    assert len(found) == 8
    assert all(layouts == found[0] for layouts in found)


def test_levels_of_blocks() -> None:
    layout = Layout("OIhw16i64o2i")
    assert layout.dims == ("O", "I", "h", "w")
    assert layout.blocks("I") == (16, 2)
    assert layout.block("I") == 32
    assert layout.blocks("h") == ()
    sizes = {"O": 65, "I": 33, "h": 3, "w": 3}
    assert layout.padded(sizes) == {"O": 128, "I": 64, "h": 3, "w": 3}
    assert layout.physical_shape(sizes) == (2, 2, 3, 3, 16, 64, 2)
    assert layout.num_elements(sizes) == 128 * 64 * 9
    # I = outer*32 + b16*2 + b2
    start = {"O": 0, "h": 0, "w": 0}
    assert layout.offset({**start, "I": 1}, sizes) == 1
    assert layout.offset({**start, "I": 2}, sizes) == 128
    assert layout.offset({**start, "I": 32}, sizes) == 3 * 3 * 2048


def test_sizes_of_memory() -> None:
    assert Layout("NHWC").nbytes(IMAGE, "f32") == 2 * 20 * 35 * 4
    assert Layout("NCHW16c").nbytes(IMAGE, "f32") == 2 * 32 * 35 * 4
    assert Layout("NCHW16c:bf16").nbytes(IMAGE, "f32") == 2 * 32 * 35 * 2
    assert Layout("NCHW16c").strides(IMAGE) == (1120, 560, 112, 16, 1)
    assert Layout("()").nbytes({}, "f64") == 8
    assert Layout("()").offset({}, {}) == 0
    with pytest.raises(DTypeError, match="f33"):
        Layout("NHWC").nbytes(IMAGE, "f33")


def test_zero_extents_hold_nothing() -> None:
    empty = {**IMAGE, "C": 0}
    assert Layout("NCHW16c").physical_shape(empty) == (2, 0, 5, 7, 16)
    assert Layout("NCHW16c").nbytes(empty, "f32") == 0
    assert Layout("NCHW16c").same(Layout("NHWC"), empty)
    with pytest.raises(DimError, match="must be below 0"):
        Layout("NCHW16c").offset(dict.fromkeys("NCHW", 0), empty)


@pytest.mark.parametrize(
    ("one", "other", "sizes", "same"),
    [
        ("NCHW", "NHWC", {"C": 1}, True),
        ("NCHW", "NHWC", {"H": 1, "W": 1}, True),
        ("NCHW", "NHWC", {}, False),
        ("NCHW16c", "NHWC", {"C": 16}, True),
        ("NCHW16c", "NHWC", {"C": 8}, False),  # 8 more are allocated
        ("NCHW16c", "NCHW", {"C": 16, "H": 1, "W": 1}, True),
        ("NCHW16c", "NCHW8c", {"C": 32, "H": 1, "W": 1}, True),
        ("NCHW16c", "NCHW8c", {"C": 40, "H": 1, "W": 1}, False),
        ("NCHW4c4c", "NCHW16c", {}, True),
        ("NCHW", "NCHW:f32", {}, False),
    ],
)
def test_same(one: str, other: str, sizes: dict[str, int], same: bool) -> None:
    extents = {**IMAGE, **sizes}
    assert Layout(one).same(Layout(other), extents) == same
    assert Layout(other).same(Layout(one), extents) == same


def test_same_given_the_element_type() -> None:
    assert Layout("NCHW").same(Layout("NCHW:f32"), IMAGE, "f32")
    assert not Layout("NCHW").same(Layout("NCHW:bf16"), IMAGE, "f32")
    assert not Layout("NCHW").same(Layout("NHWC:f32"), IMAGE, "f32")


def test_same_does_not_enumerate() -> None:
    huge = dict.fromkeys("NCHW", 10**6)
    assert not Layout("NCHW16c").same(Layout("NCHW8c"), huge)
    assert Layout("NCHW4c2c").same(Layout("NCHW8c"), huge)


def test_same_needs_the_same_dims() -> None:
    with pytest.raises(DimError, match="not in the layout"):
        Layout("NCHW").same(Layout("NCH"), IMAGE)
    with pytest.raises(DimError, match="missing"):
        Layout("NCHW").same(Layout("NCHWD"), IMAGE)


def test_any_has_no_order() -> None:
    layout = Layout.ANY
    assert layout is Layout("ANY")
    assert layout.is_any
    assert not layout.is_plain
    assert layout.encoding is None
    assert Layout("ANY:bf16").is_any
    assert Layout("ANY:bf16") == layout.with_encoding("bf16") != layout
    assert layout.rename({"C": "K"}) is layout
    assert layout.restrict("NC") is layout
    assert layout.unblock("C") is layout
    for ask in (
        lambda: layout.axes,
        lambda: layout.dims,
        lambda: layout.units,
        lambda: layout.blocks("C"),
        lambda: layout.physical_shape(IMAGE),
        lambda: layout.padded(IMAGE),
        lambda: layout.nbytes(IMAGE, "f32"),
        lambda: layout.same(Layout("NCHW"), IMAGE),
        lambda: Layout("NCHW").same(layout, IMAGE),
    ):
        with pytest.raises(LayoutError, match="ANY has no order"):
            ask()


def test_renaming_is_strict_and_simultaneous() -> None:
    layout = Layout("OIhw16i:bf16")
    assert layout.rename({"O": "I", "I": "O"}) == Layout("IOhw16o:bf16")
    with pytest.raises(DimError, match="has no dim 'C'"):
        layout.rename({"C": "K"})
    with pytest.raises(DimError, match="twice"):
        layout.rename({"O": "I"})
    with pytest.raises(DimError, match="identifier"):
        layout.rename({"O": "a b"})


def test_taking_axes_away() -> None:
    layout = Layout("OIhw16i64o2i:bf16")
    assert layout.restrict(["I", "w", "Z"]) == Layout("Iw16i2i:bf16")
    assert layout.unblock("I") == Layout("OIhw64o:bf16")
    assert layout.unblock("h") == layout
    with pytest.raises(DimError, match="has no dim 'Z'"):
        layout.unblock("Z")
    with pytest.raises(DimError, match="has no dim 'Z'"):
        layout.blocks("Z")


@pytest.mark.parametrize(
    "index", [{"N": 0, "C": 32, "H": 0, "W": 0}, {"N": -1, "C": 0, "H": 0, "W": 0}, {"N": 0}]
)
def test_an_index_out_of_range_has_no_offset(index: dict[str, int]) -> None:
    with pytest.raises(DimError):
        Layout("NCHW16c").offset(index, IMAGE)


def test_encodings() -> None:
    layout = Layout("NHWC").with_encoding(Encoding("s8", 0.5))
    assert str(layout) == "NHWC:s8(scale=0.5)"
    assert layout.encoding == Encoding("s8", 0.5)
    assert layout.with_encoding(None) == Layout("NHWC")
    assert layout.stored("f32").itemsize == 1
    assert Layout("NHWC").stored("f32") == Encoding("f32")
    assert Encoding("s8", 1) == Encoding("s8")
    assert hash(Encoding("s8", 1)) == hash(Encoding("s8"))
    for scale in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(DTypeError, match="finite number above 0"):
            Encoding("s8", scale)
    with pytest.raises(DTypeError, match="only integers"):
        Encoding("bf16", 0.5)
    with pytest.raises(DTypeError, match="unknown element type"):
        Encoding("f33")
