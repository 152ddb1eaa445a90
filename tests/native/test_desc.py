"""Desc: what it tells, what it derives, and that no number makes it crash."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from libdesc.onednn import _onednn as dnn
from tests.native.packing import blocked, offsets, pack, plain, unpack

DTYPES = ["f32", "bf16", "f16", "s32", "s8", "u8"]


def said(desc: dnn.Desc) -> tuple[object, ...]:
    """Return what a descriptor says of itself."""
    shape = desc.dims, desc.padded_dims, desc.padded_offsets, desc.strides, desc.inner_blocks
    return desc.kind, desc.dtype, *shape, desc.nbytes, desc.offset0


def test_a_descriptor_says_what_it_is() -> None:
    dims = (2, 3, 4)
    assert said(plain(dims)) == ("blocked", "f32", dims, dims, (0,) * 3, (12, 4, 1), (), 96, 0)
    blocks = ((8, 1), (16, 0), (2, 1)), 32 * 32 * 9 * 2, 0
    strides = (4608, 2304, 768, 256)
    padded = ((32, 20, 3, 3), (32, 32, 3, 3), (0,) * 4)
    weights = dnn.Desc.tag(padded[0], "bf16", "ABcd8b16a2b")
    assert said(weights) == ("blocked", "bf16", *padded, strides, *blocks)
    free = dnn.Desc.any((2, 3), "u8")
    assert (free.kind, free.strides, free.nbytes, free.padded_dims) == ("any", (), 0, (2, 3))


def test_every_dtype_has_its_size() -> None:
    sizes = {dtype: plain((5,), dtype).nbytes for dtype in DTYPES}
    assert sizes == {"f32": 20, "bf16": 10, "f16": 10, "s32": 20, "s8": 5, "u8": 5}
    assert [plain((5,), dtype).dtype for dtype in DTYPES] == DTYPES


def test_every_tag_makes_a_descriptor_that_places_elements_apart() -> None:
    names = [name for name, _ in dnn.tags()]
    assert len(set(names)) == len(names) > 500
    assert {"a", "abcdefghijkl", "acdb", "aBcd16b", "ABcde8b16a2b"} < set(names)
    for name, rank in dnn.tags():
        desc = dnn.Desc.tag([3] * rank, "f32", name)
        if rank <= 6:
            places = offsets(desc).ravel()
            assert len(set(places)) == places.size, name
            assert places.max() * 4 < desc.nbytes, name


def test_nbytes_ends_with_the_last_element() -> None:
    rows = dnn.Desc.strided((3, 4), "f32", (10, 1))
    assert rows.nbytes == (2 * 10 + 4) * 4
    assert dnn.Desc.strided((3, 4), "f32", (0, 1)).nbytes == 16


def test_equal_descriptors_are_one_key() -> None:
    strided = dnn.Desc.strided((2, 3), "f32", (3, 1))
    assert plain((2, 3)) == strided
    assert hash(plain((2, 3))) == hash(strided)
    different = [plain((3, 2)), plain((2, 3), "s32"), dnn.Desc.any((2, 3), "f32")]
    different += [dnn.Desc.tag((2, 3), "f32", "ba"), plain((2, 4)).submemory((2, 3), (0, 1))]
    assert len({plain((2, 3)), *different}) == 6
    assert plain((2, 3)) != "abc"


def test_reshape_splits_and_merges() -> None:
    assert plain((2, 6)).reshape((2, 3, 2)) == plain((2, 3, 2))
    assert plain((2, 3, 4)).reshape((24,)) == plain((24,))
    assert dnn.Desc.any((2, 6), "f32").reshape((12,)) == dnn.Desc.any((12,), "f32")
    assert blocked((1, 32, 4, 4)).reshape((1, 32, 16)).inner_blocks == ((16, 1),)
    assert plain((2, 0, 3)).reshape((0, 7)).nbytes == 0


def test_permute_is_numpy_transpose() -> None:
    values = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    turned = plain((2, 3, 4)).permute((2, 0, 1))
    assert turned.dims == (4, 2, 3)
    memory = pack(values, plain((2, 3, 4)))
    np.testing.assert_array_equal(unpack(memory, turned), values.transpose(2, 0, 1))
    moved = dnn.Desc.any((2, 3, 4), "f32").permute((1, 2, 0))
    assert moved == dnn.Desc.any((3, 4, 2), "f32")


def test_submemory_is_a_slice_of_the_same_buffer() -> None:
    values = np.arange(2 * 32 * 5, dtype=np.float32).reshape(2, 32, 5)
    whole = blocked((2, 32, 5))
    part = whole.submemory((2, 16, 3), (0, 16, 2))
    assert part.offset0 == 16 * 5 + 2 * 16
    np.testing.assert_array_equal(unpack(pack(values, whole), part), values[:, 16:, 2:])
    assert part.nbytes <= whole.nbytes
    with pytest.raises(dnn.Unimplemented, match="submemory"):
        whole.submemory((2, 8, 5), (0, 4, 0))  # cuts a block


HUGE = 2**62

REFUSED = {
    "rank 0": lambda: dnn.Desc.any((), "f32"),
    "rank 13": lambda: dnn.Desc.any([1] * 13, "f32"),
    "negative dim": lambda: dnn.Desc.any((2, -1), "f32"),
    "run-time dim": lambda: dnn.Desc.any((-(2**63),), "f32"),
    "too many bytes": lambda: dnn.Desc.any((HUGE, 2), "u8"),
    "too many bytes by type": lambda: plain((HUGE,), "f32"),
    "too many bytes by padding": lambda: dnn.Desc.tag((2**59, 3), "f32", "AB16b64a"),
    "padding over 64 bits": lambda: dnn.Desc.tag((2**63 - 1, 0, 1, 1), "u8", "aBcd16b"),
    "dtype": lambda: dnn.Desc.any((2,), "f64"),
    "tag": lambda: dnn.Desc.tag((2,), "f32", "nchw"),
    "tag any": lambda: dnn.Desc.tag((2,), "f32", "any"),
    "tag's rank": lambda: dnn.Desc.tag((2, 2), "f32", "abc"),
    "stride count": lambda: dnn.Desc.strided((2, 2), "f32", (1,)),
    "negative stride": lambda: dnn.Desc.strided((2, 2), "f32", (-2, 1)),
    "overlap": lambda: dnn.Desc.strided((4, 4), "f32", (2, 1)),
    "reach": lambda: dnn.Desc.strided((2, 2), "f32", (2**61, 1)),
    "reshape to other size": lambda: plain((2, 3)).reshape((7,)),
    "reshape across a block": lambda: blocked((1, 32, 4)).reshape((1, 128)),
    "reshape to rank 0": lambda: plain((1,)).reshape(()),
    "no permutation": lambda: plain((2, 3)).permute((0, 0)),
    "permutation too short": lambda: plain((2, 3)).permute((0,)),
    "permutation out of range": lambda: plain((2, 3)).permute((0, 2)),
    "part outside": lambda: plain((2, 3)).submemory((2, 3), (0, 1)),
    "part overflows": lambda: plain((2, 3)).submemory((2, 3), (0, 2**63 - 1)),
    "part before": lambda: plain((2, 3)).submemory((1, 1), (-1, 0)),
    "part's rank": lambda: plain((2, 3)).submemory((2,), (0,)),
    "part of any": lambda: dnn.Desc.any((2, 3), "f32").submemory((1, 1), (0, 0)),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused(case: str) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        REFUSED[case]()


NUMBERS = st.one_of(
    st.integers(-3, 40),
    st.sampled_from([2**31 - 1, 2**31, 2**32, 2**62, 2**63 - 1, -(2**63), 2**63, 2**70]),
    st.floats(),
    st.none(),
    st.text(max_size=2),
)
LISTS = st.one_of(st.lists(NUMBERS, max_size=14), st.lists(st.integers(0, 40), max_size=6), NUMBERS)
NAMES = st.one_of(
    st.sampled_from([*DTYPES, *(name for name, _ in dnn.tags())]), st.text(max_size=4), st.none()
)


@given(LISTS, NAMES, NAMES, LISTS)
def test_nonsense_is_refused_in_python(dims: Any, dtype: Any, tag: Any, more: Any) -> None:
    for make, *arguments in (
        (dnn.Desc.any, dims, dtype),
        (dnn.Desc.tag, dims, dtype, tag),
        (dnn.Desc.strided, dims, dtype, more),
    ):
        try:
            desc = make(*arguments)
        except (ValueError, TypeError, OverflowError):
            continue
        assert desc.nbytes >= 0
        assert repr(desc).startswith("Desc(")
        assert hash(desc) == hash(desc.permute(range(len(desc.dims))))
        for derive in (desc.reshape, desc.permute, partial(desc.submemory, offsets=dims)):
            with suppress(ValueError, TypeError, OverflowError, dnn.Unimplemented):
                derive(more)
