"""Layouts and forms: the cases that people write, what is refused, and what a value promises."""

from __future__ import annotations

import ast
import pickle
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ptensor.encoding import Encoding
from ptensor.form import Form
from ptensor.layout import Axis, Layout
from tests.property.strategies import LAWS, encodings, layouts
from vtensor.errors import DimError, DTypeError, LayoutError
from vtensor.language.tensor import CPU

ROOT = Path(__file__).parents[2]
IMAGE = {"N": 2, "C": 20, "H": 5, "W": 7}
WEIGHTS = Layout("OIhw16i64o2i")


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
        *(
            "batch head seq/64 feat seq%64",
            "batch/1",
            "A N Y",
            "H h/2 h%2",
            "H/2 h H%2",
            "C/4 c C%4",
        ),
        *("()", "():bf16", "ANY", "ANY:s8(scale=0.1)", "é N", "_ N", "NCHW16c:s8(scale=1e-05)"),
    ],
)
def test_text_prints_as_it_was_written(text: str) -> None:
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
def test_refused_text_names_place_and_remedy(
    text: str, error: type[Exception], character: int, remedy: str
) -> None:
    with pytest.raises(error) as caught:
        Layout(text)
    first, second, *_ = str(caught.value).split("\n")
    assert first.startswith(f"layout {text!r}, character {character}: ")
    assert second.startswith("  to fix: ")
    assert remedy in second


def axes(*pairs: Any) -> Callable[[], Layout]:
    """Return a call that makes a layout of axes."""
    return lambda: Layout.of_axes(pairs)


@pytest.mark.parametrize(
    ("error", "match", "make"),
    [
        *[
            (LayoutError, "a layout is a text", lambda value=value: Layout(value))
            for value in (None, 3, b"NCHW", ["N", "C"], Axis("N", 0))
        ],
        (DimError, ".", axes(("N", 0), ("N", 0))),
        (DimError, ".", axes(("C", 0), ("N", 4))),
        *[(LayoutError, ".", axes(("C", 0), ("C", block))) for block in (1, -2, 2.0, "2")],
        *[(DimError, ".", axes((dim, 0))) for dim in ("a b", "", 3)],
        (DimError, "not in the layout", lambda: Layout("NCHW").same(Layout("NCH"), IMAGE)),
        (DimError, "missing", lambda: Layout("NCHW").same(Layout("NCHWD"), IMAGE)),
        (DTypeError, "f33", lambda: Layout("NHWC").nbytes(IMAGE, "f33")),
        (DimError, "has no dim 'C'", lambda: WEIGHTS.rename({"C": "K"})),
        (DimError, "twice", lambda: WEIGHTS.rename({"O": "I"})),
        (DimError, "identifier", lambda: WEIGHTS.rename({"O": "a b"})),
        (DimError, "has no dim 'Z'", lambda: WEIGHTS.unblock("Z")),
        (DimError, "has no dim 'Z'", lambda: WEIGHTS.blocks("Z")),
        *[
            (DimError, ".", lambda index=index: Layout("NCHW16c").offset(index, IMAGE))
            for index in ({"N": 0, "C": 32, "H": 0, "W": 0}, {"N": -1, "C": 0, "H": 0, "W": 0})
        ],
        (DimError, ".", lambda: Layout("NCHW16c").offset({"N": 0}, IMAGE)),
        *[
            (DTypeError, "finite number above 0", lambda scale=scale: Encoding("s8", scale))
            for scale in (0.0, -1.0, float("nan"), float("inf"))
        ],
        (DTypeError, "only integers", lambda: Encoding("bf16", 0.5)),
        (DTypeError, "unknown element type", lambda: Encoding("f33")),
        (LayoutError, ".", lambda: Form.parse("g-pu:NHWC")),
        (DimError, ".", lambda: Form.parse("gpu:NHWW")),
        (LayoutError, ".", lambda: Form.parse("gpu:")),
        (LayoutError, ".", lambda: Form.parse("")),
    ],
)
def test_nonsense_is_a_typed_error(
    error: type[Exception], match: str, make: Callable[[], object]
) -> None:
    with pytest.raises(error, match=match):
        make()


def test_axes_of_numpy_integers_are_plain_integers() -> None:
    layout = axes(("C", np.int64(0)), ("C", np.int32(16)))()
    assert layout is Layout.of_axes([("C", 0), ("C", 16)])
    assert all(type(axis.block) is int for axis in layout.axes)


def test_layout_is_a_value_and_one_object() -> None:
    layout = Layout("NCHW16c")
    assert Layout(layout) is layout is Layout("NCHW16c")
    assert layout == Layout("N C/16 H W C%16")
    for other in (Layout("NCHW8c"), Layout("NCHW16c:f32"), "NCHW16c"):
        assert layout != other
    assert {layout: 1}[Layout("N C/16 H W C%16")] == 1
    with pytest.raises(AttributeError, match="value"):
        layout._axes = ()
    with pytest.raises(AttributeError, match="value"):
        del layout._axes


def test_layouts_of_many_threads_are_one_value() -> None:
    texts = [f"N C/{n} C%{n}" for n in range(2, 60)]
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(8) as pool:
            sets = list(pool.map(lambda _: {Layout(text) for text in texts}, range(8)))
    finally:
        sys.setswitchinterval(before)
    assert all(each == sets[0] for each in sets)


def test_levels_of_blocks_nest_from_left_to_right() -> None:
    assert WEIGHTS.dims == ("O", "I", "h", "w")
    assert (WEIGHTS.blocks("I"), WEIGHTS.block("I"), WEIGHTS.blocks("h")) == ((16, 2), 32, ())
    sizes = {"O": 65, "I": 33, "h": 3, "w": 3}
    assert WEIGHTS.padded(sizes) == {"O": 128, "I": 64, "h": 3, "w": 3}
    assert WEIGHTS.physical_shape(sizes) == (2, 2, 3, 3, 16, 64, 2)
    assert WEIGHTS.num_elements(sizes) == 128 * 64 * 9
    # I = outer*32 + b16*2 + b2
    for i, offset in ((1, 1), (2, 128), (32, 3 * 3 * 2048)):
        assert WEIGHTS.offset({"O": 0, "I": i, "h": 0, "w": 0}, sizes) == offset


def test_sizes_in_memory_count_pads_and_element_types() -> None:
    assert Layout("NHWC").nbytes(IMAGE, "f32") == 2 * 20 * 35 * 4
    assert Layout("NCHW16c").nbytes(IMAGE, "f32") == 2 * 32 * 35 * 4
    assert Layout("NCHW16c:bf16").nbytes(IMAGE, "f32") == 2 * 32 * 35 * 2
    assert Layout("NCHW16c").strides(IMAGE) == (1120, 560, 112, 16, 1)
    assert Layout("()").nbytes({}, "f64") == 8
    assert Layout("()").offset({}, {}) == 0
    empty = {**IMAGE, "C": 0}
    assert Layout("NCHW16c").physical_shape(empty) == (2, 0, 5, 7, 16)
    assert Layout("NCHW16c").nbytes(empty, "f32") == 0
    assert Layout("NCHW16c").same(Layout("NHWC"), empty)
    with pytest.raises(DimError, match="must be below 0"):
        Layout("NCHW16c").offset(dict.fromkeys("NCHW", 0), empty)


HUGE = dict.fromkeys("NCHW", 10**6)


@pytest.mark.parametrize(
    ("left", "right", "sizes", "dtypes", "same"),
    [
        ("NCHW16c", "NHWC", {**IMAGE, "C": 8}, [], False),  # 8 more are allocated
        ("NCHW16c", "NCHW8c", {**IMAGE, "C": 32, "H": 1, "W": 1}, [], True),
        ("NCHW4c4c", "NCHW16c", IMAGE, [], True),
        ("NCHW", "NCHW:f32", IMAGE, [], False),
        ("NCHW", "NCHW:f32", IMAGE, ["f32"], True),
        ("NCHW", "NCHW:bf16", IMAGE, ["f32"], False),
        ("NCHW", "NHWC:f32", IMAGE, ["f32"], False),
        ("NCHW16c", "NCHW8c", HUGE, [], False),  # without a look at every element
        ("NCHW4c2c", "NCHW8c", HUGE, [], True),
    ],
)
def test_same_compares_places_and_encodings(
    left: str, right: str, sizes: dict[str, int], dtypes: list[str], same: bool
) -> None:
    assert Layout(left).same(Layout(right), sizes, *dtypes) == same
    assert Layout(right).same(Layout(left), sizes, *dtypes) == same


def test_any_has_no_order() -> None:
    layout = Layout.ANY
    assert layout is Layout("ANY")
    assert layout.is_any
    assert not layout.is_plain
    assert layout.encoding is None
    assert Layout("ANY:bf16").is_any
    assert Layout("ANY:bf16") == layout.with_encoding("bf16") != layout
    assert layout.rename({"C": "K"}) is layout.restrict("NC") is layout.unblock("C") is layout
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


def test_encodings_stay_with_a_layout_whose_axes_change() -> None:
    assert Layout("OIhw16i:bf16").rename({"O": "I", "I": "O"}) == Layout("IOhw16o:bf16")
    layout = WEIGHTS.with_encoding("bf16")
    assert layout == Layout("OIhw16i64o2i:bf16")
    assert layout.restrict(["I", "w", "Z"]) == Layout("Iw16i2i:bf16")
    assert layout.unblock("I") == Layout("OIhw64o:bf16")
    assert layout.unblock("h") == layout
    quantised = Layout("NHWC").with_encoding(Encoding("s8", 0.5))
    assert str(quantised) == "NHWC:s8(scale=0.5)"
    assert quantised.encoding == Encoding("s8", 0.5)
    assert quantised.with_encoding(None) == Layout("NHWC")
    assert quantised.stored("f32").itemsize == 1
    assert Layout("NHWC").stored("f32") == Encoding("f32")
    assert Encoding("s8", 1) == Encoding("s8")
    assert hash(Encoding("s8", 1)) == hash(Encoding("s8"))


@LAWS
@given(layouts(encoding=st.none() | encodings), st.sampled_from([CPU, "gpu", "npu_0"]))
def test_text_of_a_form_reads_back(layout: Layout, device: str) -> None:
    form = Form(layout, device)
    assert Form.parse(str(form)) == form
    assert hash(Form.parse(str(form))) == hash(form)
    assert pickle.loads(pickle.dumps(form)) == form
    assert form.encoding == layout.encoding


def test_form_differs_in_device_layout_or_encoding() -> None:
    assert str(Form(Layout("NHWC"))) == "NHWC"
    assert str(Form(Layout("NHWC"), "gpu")) == "gpu:NHWC"
    assert Form.parse("cpu:NHWC") == Form.parse("NHWC")
    dims = {"N": 1, "C": 16, "H": 1, "W": 1}
    form = Form.parse("NCHW")
    assert form.same(Form.parse("NHWC:f32"), dims, "f32")
    for other in ("gpu:NCHW", "NCHW32c", "NCHW:bf16"):
        assert not form.same(Form.parse(other), dims, "f32"), other
    assert Form.parse("gpu:NCHW:bf16").nbytes(dims, "f32") == 32


def test_cpu_is_named_in_one_place() -> None:
    """Everything else takes the device from the node, the tensor or an argument."""
    files = []
    for package in ("vtensor", "ptensor", "libdesc", "resolver", "optimizer", "ops"):
        for file in sorted((ROOT / package).rglob("*.py")):
            text = file.read_text("utf-8")
            nodes = ast.walk(ast.parse(text)) if CPU in text else ()
            texts = (node.value for node in nodes if isinstance(node, ast.Constant))
            files += [file.relative_to(ROOT).as_posix()] * (CPU in texts)
    ours = [file for file in files if not file.startswith("vtensor/onnxruntime/")]  # its own names
    # the second one: the name of a control group
    assert ours == ["vtensor/language/tensor.py", "vtensor/runtime/execution/processors.py"]
