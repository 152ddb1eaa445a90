"""The NumPy transform: the cases of oneDNN's layouts, what is refused, and what it costs."""

from __future__ import annotations

import time
import tracemalloc

import ml_dtypes
import numpy as np
import pytest

from ptensor.layout import Layout
from ptensor.physical import pads_are_zero, zero_pads
from ptensor.transform import Transform, pack, transform, transform_into, unpack
from vtensor.errors import DimError, DTypeError, LayoutError

IMAGE = {"N": 2, "C": 3, "H": 4, "W": 5}


def _image() -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    return np.arange(120, dtype=np.float32).reshape(2, 3, 4, 5)


def test_nchw_to_nhwc_is_a_transposition() -> None:
    moved = transform(_image(), Layout("NCHW"), Layout("NHWC"), IMAGE)
    assert moved.flags.c_contiguous
    assert np.array_equal(moved, _image().transpose(0, 2, 3, 1))


def test_blocked_channels_are_padded() -> None:
    blocked = transform(_image(), Layout("NCHW"), Layout("NCHW16c"), IMAGE)
    assert blocked.shape == (2, 1, 4, 5, 16)
    assert np.array_equal(blocked[1, 0, 2, 3, :3], _image()[1, :, 2, 3])
    assert not blocked[..., 3:].any()


def test_weights_with_two_levels() -> None:
    sizes = {"O": 2, "I": 5, "h": 1, "w": 1}
    weights = np.arange(10, dtype=np.float32).reshape(2, 5, 1, 1)
    packed = transform(weights, Layout("OIhw"), Layout("OIhw2i2o2i"), sizes)
    assert packed.reshape(2, 2, 2, 2).tolist() == [
        [[[0, 1], [5, 6]], [[2, 3], [7, 8]]],
        [[[4, 0], [9, 0]], [[0, 0], [0, 0]]],
    ]


def test_blocks_that_do_not_divide_each_other() -> None:
    line = np.arange(7, dtype=np.int32)
    threes = pack(line, "C", Layout("3cC"))
    assert threes.tolist() == [[0, 3, 6], [1, 4, 0], [2, 5, 0]]
    fours = transform(threes, Layout("3cC"), Layout("C4c"), {"C": 7}, "s32")
    assert fours.tolist() == [[0, 1, 2, 3], [4, 5, 6, 0]]


def test_nan_in_source_pads_stays_there() -> None:
    blocked = pack(_image(), "NCHW", Layout("NCHW8c"))
    blocked[..., 3:] = np.nan
    for target in ("NHWC", "NCHW16c", "NCHW5c", "NCHW8c", "NHWC:bf16", "NCHW16c:s8"):
        moved = transform(blocked, Layout("NCHW8c"), Layout(target), IMAGE)
        assert np.isfinite(moved.astype(np.float32)).all()
        assert pads_are_zero(moved, Layout(target), IMAGE)


def test_narrowing_is_ml_dtypes_and_widening_is_exact() -> None:
    image = _image() + np.float32(0.123)
    change = Transform(Layout("NCHW"), Layout("NHWC:bf16"))
    assert change.rounding
    narrow = change.apply(image, IMAGE)
    assert np.array_equal(narrow, image.transpose(0, 2, 3, 1).astype(ml_dtypes.bfloat16))
    back = Transform(change.target, change.source)
    assert back.exact
    assert np.array_equal(
        transform(narrow, back.source, back.target, IMAGE),
        image.astype(ml_dtypes.bfloat16).astype(np.float32),
    )


def test_quantisation_saturates() -> None:
    numbers = np.array([0.24, 0.25, 0.75, -70.0, 70.0, np.inf, np.nan], np.float32)
    steps = pack(numbers, "C", Layout("C:s8(scale=0.5)"))
    assert steps.tolist() == [0, 0, 2, -128, 127, 127, 0]
    values = unpack(steps, Layout("C:s8(scale=0.5)"), "C", {"C": 7}, "f32")
    assert values.tolist() == [0, 0, 1, -64, 63.5, 63.5, 0]
    with pytest.raises(DTypeError, match="scaled"):
        unpack(steps, Layout("C:s8(scale=0.5)"), "C", {"C": 7})


@pytest.mark.parametrize("encoding", ["", ":bf16", ":f64", ":s8(scale=0.1)"])
def test_exact_ones_undo(encoding: str) -> None:
    change = Transform(Layout(f"NCHW16c{encoding}"), Layout("NHWC"))
    if encoding == ":f64":
        with pytest.raises(LayoutError, match="cannot be undone"):
            change.inverse()
        return
    assert change.inverse() == Transform(change.target, change.source)
    stored = pack(_image(), "NCHW", change.source)
    there = change.apply(stored, IMAGE)
    assert np.array_equal(change.inverse().apply(there, IMAGE), stored)


def test_identity_depends_on_the_extents() -> None:
    change = Transform(Layout("NCHW16c"), Layout("NHWC:f32"))
    assert change.is_identity({**IMAGE, "C": 16})
    assert not change.is_identity(IMAGE)
    assert not Transform(Layout("NCHW16c"), Layout("NHWC:f32"), "f64").is_identity(
        {**IMAGE, "C": 16}
    )


def test_cost_counts_pads_and_both_directions() -> None:
    change = Transform(Layout("NCHW"), Layout("NCHW16c:bf16"))
    assert change.bytes_moved(IMAGE) == 120 * 4 + 640 * 2
    assert change.bytes_moved(IMAGE, "f64") == 120 * 8 + 640 * 2


def test_composition_is_refused_where_it_would_differ() -> None:
    narrow = Transform(Layout("NCHW"), Layout("NCHW:bf16"))
    wide = Transform(Layout("NCHW:bf16"), Layout("NHWC"))
    turn = Transform(Layout("NCHW:bf16"), Layout("NHWC:bf16"))
    assert narrow.then(turn) == Transform(Layout("NCHW"), Layout("NHWC:bf16"))
    assert wide.then(wide.inverse()).exact
    with pytest.raises(LayoutError, match="no single Transform"):
        narrow.then(wide)
    # lossless, but 0.1 in f32 is not 0.1: the second rounding could fall to the other side
    read = Transform(Layout("C:s8(scale=0.1)"), Layout("C"))
    assert read.exact
    assert read.then(read.inverse()).exact
    with pytest.raises(LayoutError, match="no single Transform"):
        read.then(Transform(Layout("C"), Layout("C:s8(scale=0.2)")))
    with pytest.raises(LayoutError, match="does not begin with"):
        wide.then(narrow)
    with pytest.raises(DTypeError, match="f64"):
        turn.then(Transform(turn.target, turn.source, "f64"))


def test_a_transform_is_refused_for_other_dims_any_and_unknown_types() -> None:
    with pytest.raises(DimError, match="different dims"):
        Transform(Layout("NCHW"), Layout("NCH"))
    with pytest.raises(LayoutError, match="no order"):
        Transform(Layout("NCHW"), Layout.ANY)
    with pytest.raises(DTypeError, match="f33"):
        Transform(Layout("NCHW"), Layout("NHWC"), "f33")


def test_wrong_arrays_are_refused_before_anything_is_written() -> None:
    nchw, nhwc = Layout("NCHW"), Layout("NHWC")
    dst = np.full((2, 4, 5, 3), 7, np.float32)
    with pytest.raises(LayoutError, match="the source has shape"):
        transform_into(_image()[:, :2], dst, nchw, nhwc, IMAGE)
    with pytest.raises(LayoutError, match="the target has shape"):
        transform_into(_image(), dst[:1], nchw, nhwc, IMAGE)
    with pytest.raises(DTypeError, match="float64"):
        transform_into(_image().astype("f8"), dst, nchw, nhwc, IMAGE)
    with pytest.raises(DTypeError, match="stores bfloat16"):
        transform_into(_image(), dst, nchw, Layout("NHWC:bf16"), IMAGE)
    with pytest.raises(DTypeError, match=">f4"):
        transform_into(_image().astype(">f4"), dst, nchw, nhwc, IMAGE)
    with pytest.raises(DimError, match="missing"):
        transform_into(_image(), dst, nchw, nhwc, {"N": 2})
    with pytest.raises(LayoutError, match="share memory"):
        transform_into(dst.reshape(2, 3, 4, 5), dst, nchw, nhwc, IMAGE)
    assert (dst == 7).all()
    dst.flags.writeable = False
    with pytest.raises(LayoutError, match="read-only"):
        transform_into(_image(), dst, nchw, nhwc, IMAGE)
    with pytest.raises(LayoutError, match="read-only"):
        zero_pads(dst, nhwc, IMAGE)


def test_pack_and_unpack_refuse_other_dims() -> None:
    with pytest.raises(DimError, match="4 axes named N C H"):
        pack(_image(), "NCH", Layout("NCHW"))
    with pytest.raises(DimError, match="has the dims N C H"):
        pack(_image(), "NCHW", Layout("NCH"))
    with pytest.raises(DimError, match="4 axes named N N H W"):
        unpack(_image(), Layout("NCHW"), "NNHW", IMAGE)
    with pytest.raises(DTypeError, match="object"):
        pack(_image().astype(object), "NCHW", Layout("NCHW"))
    for other in ("c64", "f8e8m0"):
        with pytest.raises(DTypeError, match="stands alone"):
            pack(_image(), "NCHW", Layout(f"NCHW:{other}"))


def test_pack_takes_foreign_byte_order() -> None:
    swapped = pack(_image().astype(">f4"), "NCHW", Layout("NHWC"))
    assert swapped.dtype == np.dtype("f4")
    assert np.array_equal(swapped, _image().transpose(0, 2, 3, 1))


def test_views_where_nothing_has_to_move() -> None:
    image = _image()
    assert np.shares_memory(pack(image, "NCHW", Layout("NCHW")), image)
    assert np.shares_memory(pack(image.transpose(0, 2, 3, 1), "NHWC", Layout("NCHW")), image)
    assert np.shares_memory(unpack(image, Layout("NCHW"), "WHCN", IMAGE), image)
    # 16 of C in one block: the view exists although the layout is blocked
    wide = {**IMAGE, "C": 16}
    blocked = np.zeros(Layout("NCHW16c").physical_shape(wide), np.float32)
    assert np.shares_memory(unpack(blocked, Layout("NCHW16c"), "NCHW", wide), blocked)


def test_scalars_and_empty_tensors() -> None:
    scalar = np.array(2.5, np.float32)
    assert transform(scalar, Layout("()"), Layout("():bf16"), {}).shape == ()
    assert unpack(scalar, Layout("()"), "", {}).shape == ()
    assert pack(scalar, "", Layout("()")) == 2.5
    assert pads_are_zero(scalar, Layout("()"), {})
    empty = {**IMAGE, "H": 0}
    moved = transform(np.zeros((2, 3, 0, 5), "f4"), Layout("NCHW"), Layout("NHWC8c"), empty)
    assert moved.shape == (2, 0, 5, 1, 8)
    assert unpack(moved, Layout("NHWC8c"), "NCHW", empty).shape == (2, 3, 0, 5)
    zero_pads(moved, Layout("NHWC8c"), empty)


def test_pads_of_either_sign_of_zero_pass_and_signalling_nans_do_not() -> None:
    array = np.array([[1, 2], [3, -0.0]], np.float32)
    assert pads_are_zero(array, Layout("C2c"), {"C": 3})
    array.view(np.uint32)[1, 1] = 0x7F800001
    assert not pads_are_zero(array, Layout("C2c"), {"C": 3})


@pytest.mark.parametrize("target", ["OIhw16i64o2i", "hwIO", "OIhw8i8o", "OIhw3i5o", "OIhw:bf16"])
def test_weights_of_tens_of_megabytes_move_as_a_whole(target: str) -> None:
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
