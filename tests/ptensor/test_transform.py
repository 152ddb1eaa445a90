"""The NumPy transform: cases beside its laws, what is refused, and what it costs."""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Callable

import numpy as np
import pytest

from ptensor.layout import Layout
from ptensor.physical import pads_are_zero, zero_pads
from ptensor.transform import Transform, pack, transform, transform_into, unpack
from vtensor.errors import DimError, DTypeError, LayoutError

SIZES = {"N": 2, "C": 3, "H": 4, "W": 5}
IMAGE = np.arange(120, dtype=np.float32).reshape(2, 3, 4, 5)
NCHW, NHWC = Layout("NCHW"), Layout("NHWC")
NARROW, WIDE = Transform(NCHW, Layout("NCHW:bf16")), Transform(Layout("NCHW:bf16"), NHWC)
TURN = Transform(Layout("NCHW:bf16"), Layout("NHWC:bf16"))
READ = Transform(Layout("C:s8(scale=0.1)"), Layout("C"))


def test_weights_with_two_levels() -> None:
    sizes = {"O": 2, "I": 5, "h": 1, "w": 1}
    weights = np.arange(10, dtype=np.float32).reshape(2, 5, 1, 1)
    packed = transform(weights, Layout("OIhw"), Layout("OIhw2i2o2i"), sizes)
    assert packed.reshape(2, 2, 2, 2).tolist() == [
        [[[0, 1], [5, 6]], [[2, 3], [7, 8]]],
        [[[4, 0], [9, 0]], [[0, 0], [0, 0]]],
    ]


def test_quantisation_saturates() -> None:
    numbers = np.array([0.24, 0.25, 0.75, -70.0, 70.0, np.inf, np.nan], np.float32)
    steps = pack(numbers, "C", Layout("C:s8(scale=0.5)"))
    assert steps.tolist() == [0, 0, 2, -128, 127, 127, 0]
    values = unpack(steps, Layout("C:s8(scale=0.5)"), "C", {"C": 7}, "f32")
    assert values.tolist() == [0, 0, 1, -64, 63.5, 63.5, 0]
    shifted = pack(numbers, "C", Layout("C:u8(scale=0.5,zero=7)"))
    assert shifted.tolist() == [7, 7, 9, 0, 147, 255, 7]


def test_identity_depends_on_the_sizes_and_cost_counts_pads() -> None:
    change = Transform(Layout("NCHW16c"), Layout("NHWC:f32"))
    wide = {**SIZES, "C": 16}
    assert change.is_identity(wide)
    assert not change.is_identity(SIZES)
    assert not Transform(Layout("NCHW16c"), Layout("NHWC:f32"), "f64").is_identity(wide)
    change = Transform(NCHW, Layout("NCHW16c:bf16"))
    assert change.bytes_moved(SIZES) == 120 * 4 + 640 * 2
    assert change.bytes_moved(SIZES, "f64") == 120 * 8 + 640 * 2


def test_composition_of_exact_transforms_is_one() -> None:
    assert NARROW.then(TURN) == Transform(NCHW, Layout("NHWC:bf16"))
    assert NARROW.rounding
    assert WIDE.exact
    assert WIDE.then(WIDE.inverse()).exact
    assert READ.exact
    assert READ.then(READ.inverse()).exact


@pytest.mark.parametrize(
    ("error", "match", "use"),
    [
        (LayoutError, "no single Transform", lambda: NARROW.then(WIDE)),
        # lossless, but 0.1 in f32 is not 0.1: the second rounding could fall to the other side
        (
            *(LayoutError, "no single Transform"),
            lambda: READ.then(Transform(Layout("C"), Layout("C:s8(scale=0.2)"))),
        ),
        (LayoutError, "does not begin with", lambda: WIDE.then(NARROW)),
        (DTypeError, "f64", lambda: TURN.then(Transform(TURN.target, TURN.source, "f64"))),
        (LayoutError, "undone", lambda: Transform(Layout("NCHW16c:f64"), NHWC).inverse()),
        (DimError, "different dims", lambda: Transform(NCHW, Layout("NCH"))),
        (LayoutError, "no order", lambda: Transform(NCHW, Layout.ANY)),
        (DTypeError, "f33", lambda: Transform(NCHW, NHWC, "f33")),
        (DimError, "4 axes named N C H", lambda: pack(IMAGE, "NCH", NCHW)),
        (DimError, "has the dims N C H", lambda: pack(IMAGE, "NCHW", Layout("NCH"))),
        (DimError, "4 axes named N N H W", lambda: unpack(IMAGE, NCHW, "NNHW", SIZES)),
        (DTypeError, "object", lambda: pack(IMAGE.astype(object), "NCHW", NCHW)),
        (DTypeError, "stands alone", lambda: pack(IMAGE, "NCHW", Layout("NCHW:c64"))),
        (DTypeError, "stands alone", lambda: pack(IMAGE, "NCHW", Layout("NCHW:f8e8m0"))),
        (
            *(DTypeError, "scaled"),
            lambda: unpack(np.zeros(7, np.int8), Layout("C:s8(scale=0.5)"), "C", {"C": 7}),
        ),
    ],
)
def test_nonsense_is_a_typed_error(
    error: type[Exception], match: str, use: Callable[[], object]
) -> None:
    with pytest.raises(error, match=match):
        use()


def test_wrong_arrays_are_refused_before_anything_is_written() -> None:
    dst = np.full((2, 4, 5, 3), 7, np.float32)
    bf16 = Layout("NHWC:bf16")
    for error, match, src, into, target, sizes in (
        (LayoutError, "the source has shape", IMAGE[:, :2], dst, NHWC, SIZES),
        (LayoutError, "the target has shape", IMAGE, dst[:1], NHWC, SIZES),
        (DTypeError, "float64", IMAGE.astype("f8"), dst, NHWC, SIZES),
        (DTypeError, "stores bfloat16", IMAGE, dst, bf16, SIZES),
        (DTypeError, ">f4", IMAGE.astype(">f4"), dst, NHWC, SIZES),
        (DimError, "missing", IMAGE, dst, NHWC, {"N": 2}),
        (LayoutError, "share memory", dst.reshape(2, 3, 4, 5), dst, NHWC, SIZES),
    ):
        with pytest.raises(error, match=match):
            transform_into(src, into, NCHW, target, sizes)
    assert (dst == 7).all()
    dst.flags.writeable = False
    with pytest.raises(LayoutError, match="read-only"):
        transform_into(IMAGE, dst, NCHW, NHWC, SIZES)
    with pytest.raises(LayoutError, match="read-only"):
        zero_pads(dst, NHWC, SIZES)


def test_pack_takes_foreign_byte_order() -> None:
    swapped = pack(IMAGE.astype(">f4"), "NCHW", NHWC)
    assert swapped.dtype == np.dtype("f4")
    assert np.array_equal(swapped, IMAGE.transpose(0, 2, 3, 1))


def test_pack_and_unpack_are_views_when_no_element_moves() -> None:
    assert np.shares_memory(pack(IMAGE.transpose(0, 2, 3, 1), "NHWC", NCHW), IMAGE)
    assert np.shares_memory(unpack(IMAGE, NCHW, "WHCN", SIZES), IMAGE)
    # 16 of C in one block: the view exists although the layout is blocked
    wide = {**SIZES, "C": 16}
    blocked = np.zeros(Layout("NCHW16c").physical_shape(wide), np.float32)
    assert np.shares_memory(unpack(blocked, Layout("NCHW16c"), "NCHW", wide), blocked)


def test_scalars_and_empty_tensors_have_transforms() -> None:
    scalar = np.array(2.5, np.float32)
    assert transform(scalar, Layout("()"), Layout("():bf16"), {}).shape == ()
    assert unpack(scalar, Layout("()"), "", {}).shape == ()
    assert pack(scalar, "", Layout("()")) == 2.5
    assert pads_are_zero(scalar, Layout("()"), {})
    empty = {**SIZES, "H": 0}
    moved = transform(np.zeros((2, 3, 0, 5), "f4"), NCHW, Layout("NHWC8c"), empty)
    assert moved.shape == (2, 0, 5, 1, 8)
    assert unpack(moved, Layout("NHWC8c"), "NCHW", empty).shape == (2, 3, 0, 5)
    zero_pads(moved, Layout("NHWC8c"), empty)


def test_pads_may_be_zeros_of_either_sign_but_no_signalling_nans() -> None:
    array = np.array([[1, 2], [3, -0.0]], np.float32)
    assert pads_are_zero(array, Layout("C2c"), {"C": 3})
    array.view(np.uint32)[1, 1] = 0x7F800001
    assert not pads_are_zero(array, Layout("C2c"), {"C": 3})


@pytest.mark.parametrize("target", ["OIhw16i64o2i", "hwIO", "OIhw8i8o", "OIhw3i5o", "OIhw:bf16"])
def test_large_weights_move_as_a_whole(target: str) -> None:
    """A visit to every element would take ten seconds and more, index arrays 8 times the memory."""
    sizes = {"O": 1024, "I": 700, "h": 3, "w": 3}
    weights = np.ones(list(sizes.values()), np.float32)  # 26 MB
    tracemalloc.start()
    start = time.perf_counter()
    moved = transform(weights, Layout("OIhw"), Layout(target), sizes)
    seconds = time.perf_counter() - start
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert seconds < 3
    assert peak < 2.5 * weights.nbytes
    assert moved.astype(np.float32).sum(dtype=np.float64) == weights.size
