"""Tensors that others can use: from arrays and back, slices, merged dims, shared memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import vtensor
from ptensor.buffer import TensorStorage
from ptensor.layout import Layout
from ptensor.physical import pads_are_zero
from vtensor import VTensor, from_array
from vtensor.errors import ContractError, DimError, DTypeError, InputError, LayoutError

Array = np.ndarray[Any, Any]


def values(*shape: int) -> Array:
    """Return an array whose elements are all different."""
    return np.arange(np.prod(shape), dtype=np.float32).reshape(shape)


def laid(array: Array, sizes: dict[str, int], layout: str) -> VTensor:
    """Return a tensor in a layout."""
    tensor = VTensor("f32", sizes)
    tensor.storage = TensorStorage.of_array(array, tensor, Layout(layout), False)
    return tensor


@pytest.mark.parametrize(
    "array",
    [
        values(2, 3, 4, 5),
        values(2, 4, 5, 3).transpose(0, 3, 1, 2),
        values(4, 6, 8, 10)[::2, ::2, ::2, ::2],
        values(2, 3, 4, 5)[:, ::-1, :, ::-1],
        values(0, 3, 4, 5),
    ],
)
def test_array_of_any_strides_is_taken_in_place(array: Array) -> None:
    x = from_array(array, "N C H W", name="x")
    assert tuple(x.dims.values()) == array.shape
    assert x.name == "x"
    back = x.numpy()
    assert back.__array_interface__["data"] == array.__array_interface__["data"]
    np.testing.assert_array_equal(back, array)
    np.testing.assert_array_equal(x.numpy("H W C N"), array.transpose(2, 3, 1, 0))
    assert x.produced_layout is not None
    order = [list(x.dims).index(dim) for dim in x.produced_layout.dims]
    np.testing.assert_array_equal(x.data(), array.transpose(order))
    assert x.shares_memory(array) == (array.size > 0)


@pytest.mark.parametrize(
    ("array", "layout"),
    [
        (values(2, 4, 5, 3).transpose(0, 3, 1, 2), "NHWC"),
        (values(1, 1, 4, 4), "NCHW"),
    ],
)
def test_layout_is_that_of_the_strides(array: Array, layout: str) -> None:
    assert from_array(array, "N C H W").produced_layout == Layout(layout)


def test_copies_share_no_memory() -> None:
    array = values(2, 3)
    assert not from_array(array, "A B", copy=True).shares_memory(array)
    assert not from_array(array, "A B").slice(A=(0, 1), copy=True).shares_memory(array)
    assert not np.shares_memory(from_array(array, "A B").numpy(copy=True), array)
    swapped = array.astype(">f4")
    x = from_array(swapped, "A B")
    np.testing.assert_array_equal(x.numpy(), array)
    assert x.numpy().dtype.isnative
    with pytest.raises(InputError, match="byte order"):
        from_array(swapped, "A B", copy=False)


def test_slices_are_views_by_name() -> None:
    array = values(2, 3, 6, 5)
    x = from_array(array, "N C H W")
    part = x.slice(H=(2, 5), C=(1, 3))
    assert part.dims == {"N": 2, "C": 2, "H": 3, "W": 5}
    np.testing.assert_array_equal(part.numpy(), array[:, 1:3, 2:5])
    assert part.shares_memory(x)
    assert not part.shares_memory(x.slice(C=(0, 1)))
    part.numpy()[...] = -1
    assert (array[:, 1:3, 2:5] == -1).all()
    assert part.slice(H=(1, 1)).num_elements == 0


def test_split_and_merge_are_inverse_views() -> None:
    array = values(2, 6, 4)
    x = from_array(array, "N C W")
    both = x.split("C", {"G": 2, "c": 3})
    np.testing.assert_array_equal(both.numpy(), array.reshape(2, 2, 3, 4))
    assert both.shares_memory(x)
    again = both.merge("G c", "C", copy=False)
    assert again.dims == x.dims
    np.testing.assert_array_equal(again.numpy(), array)
    assert again.shares_memory(x)
    np.testing.assert_array_equal(x.rename({"C": "K"}).numpy("K W N"), array.transpose(1, 2, 0))


def test_merge_of_separate_axes_copies_or_is_refused() -> None:
    array = values(2, 3, 4)
    x = from_array(array, "A B C")
    merged = x.merge("C A", "P")
    assert merged.dims == {"B": 3, "P": 8}
    np.testing.assert_array_equal(merged.numpy(), array.transpose(1, 2, 0).reshape(3, 8))
    assert not merged.shares_memory(x)
    with pytest.raises(LayoutError, match="a copy is needed"):
        x.merge("C A", "P", copy=False)


def test_blocks_are_unpacked_by_a_copy() -> None:
    array = values(2, 5, 3, 2)
    x = laid(array, {"N": 2, "C": 5, "H": 3, "W": 2}, "NCHW4c")
    np.testing.assert_array_equal(x.numpy(), array)
    np.testing.assert_array_equal(x.numpy("W H C N"), array.transpose(3, 2, 1, 0))
    np.testing.assert_array_equal(x.slice(C=(3, 5)).numpy(), array[:, 3:5])
    for view in (x.numpy, lambda copy: x.slice(copy=copy, C=(3, 5))):
        with pytest.raises(LayoutError, match=r"no array is a view of it|cannot be a view"):
            view(copy=False)


SIZES = {"N": 2, "C": 20, "H": 6, "W": 3}


@pytest.mark.parametrize("layout", ["NCHW", "NHWC", "NCHW4c", "CNHW8c", "NCHW8c2c", "NHCW16c2h"])
@pytest.mark.parametrize(
    ("ranges", "views"),
    [
        ({"H": (2, 6)}, "all"),
        ({"H": (2, 3), "N": (1, 2)}, "NCHW NHWC NCHW4c CNHW8c NCHW8c2c"),
        ({"C": (16, 20)}, "all"),
        ({"C": (0, 8)}, "NCHW NHWC NCHW4c CNHW8c"),
        ({"C": (4, 20), "W": (1, 3)}, "NCHW NHWC NCHW4c"),
        ({"C": (0, 19)}, "NCHW NHWC"),
        ({"C": (16, 16)}, "all"),
    ],
)
def test_slices_of_whole_blocks_are_views(layout: str, ranges: Any, views: str) -> None:
    array = values(*SIZES.values())
    x = laid(array, SIZES, layout)
    part = x.slice(**ranges)
    places = tuple(slice(*ranges.get(dim, (0, size))) for dim, size in SIZES.items())
    np.testing.assert_array_equal(part.numpy(), array[places])
    assert part.produced_layout is not None
    assert pads_are_zero(part.data(), part.produced_layout, part.dims)
    as_view = views == "all" or layout in views.split()
    assert part.shares_memory(x) == (as_view and part.num_elements > 0)
    if as_view:
        assert x.slice(copy=False, **ranges).produced_layout == Layout(layout)
        part.data()[...] = 0
        assert (x.numpy()[places] == 0).all()
        assert x.numpy().sum() == array.sum() - array[places].sum()
    else:
        with pytest.raises(LayoutError, match="a copy is needed"):
            x.slice(copy=False, **ranges)


@pytest.mark.parametrize(
    ("layout", "dims", "merged"),
    [
        ("NCHW4c", "H W", "NCP4c"),
        ("NCHW16c2w", "H W", None),  # W=3 ends within a block
        ("NCHW3w", "H W", "NCP3p"),
        ("NCHW4c", "C H", None),
        ("NHCW5c", "H C", "NPW5p"),
        ("NCWH4c", "H W", None),
        ("NHWC", "N H W", "PC"),
        ("NHWC", "C", "NHWP"),
        ("NCHW4c", "N H", None),
    ],
)
def test_merges_next_to_blocks_are_views(layout: str, dims: str, merged: str | None) -> None:
    array = values(*SIZES.values())
    x = laid(array, SIZES, layout)
    y = x.merge(dims, "P")
    assert y.shares_memory(x) == (merged is not None)
    if merged is None:
        with pytest.raises(LayoutError, match="a copy is needed"):
            x.merge(dims, "P", copy=False)
    else:
        assert y.produced_layout == Layout(merged)
    names = dims.split()
    order = [dim for dim in SIZES if dim not in names]
    at = list(SIZES).index(names[0])
    at -= sum(dim in names for dim in list(SIZES)[:at])
    order[at:at] = names
    whole = array.transpose([list(SIZES).index(dim) for dim in order])
    np.testing.assert_array_equal(y.numpy(), whole.reshape(tuple(y.dims.values())))
    assert y.shares_memory(y.split("P", {dim: SIZES[dim] for dim in names}))


def test_axes_of_size_one_allow_views_of_any_order() -> None:
    sizes = {"N": 2, "A": 1, "C": 8, "B": 1, "H": 3}
    x = laid(values(*sizes.values()), sizes, "B H C N A")
    for dims in ("H A C", "A H C", "H C B", "H B C A"):
        y = x.merge(dims, "P", copy=False)
        order = [dim for dim in sizes if dim not in dims.split()]
        expected = x.numpy([*dims.split(), *order]).reshape(24, *(sizes[dim] for dim in order))
        np.testing.assert_array_equal(y.numpy(["P", *order]), expected)


@pytest.mark.parametrize(
    ("into", "view"),
    [({"G": 5, "c": 4}, True), ({"G": 1, "c": 20}, True), ({"G": 10, "c": 2}, False)],
)
def test_parts_of_a_split_are_views_of_whole_blocks(into: dict[str, int], view: bool) -> None:
    array = values(*SIZES.values())
    x = laid(array, SIZES, "NCHW4c")
    y = x.split("C", into).slice(G=(0, 1))
    np.testing.assert_array_equal(y.numpy(), array.reshape(2, *into.values(), 6, 3)[:, :1])
    assert y.shares_memory(x) == view
    renamed = x.rename({"H": "W", "W": "H"}).slice(W=(0, 2), copy=False)
    np.testing.assert_array_equal(renamed.numpy(), array[:, :, :2])


def test_nonsense_is_a_typed_error() -> None:
    array = values(2, 3, 4)
    x, empty = from_array(array, "A B C"), VTensor("f32", {"N": 1})
    wrong: Any
    for wrong in ((2, 9), (3, 2), (-1, 2), 2, (0.0, 1), (True, 2)):
        with pytest.raises(DimError, match="a slice is"):
            x.slice(B=wrong)
    with pytest.raises(DimError, match="no dim"):
        x.slice(Q=(0, 1))
    for wrong, into in (
        ("", "P"),
        ("A A", "P"),
        ("A B", "C"),
        ("A Q", "P"),
        (3, "P"),
        ("A B", "1"),
    ):
        with pytest.raises(DimError):
            x.merge(wrong, into)
    for use in (
        empty.numpy,
        empty.slice,
        lambda: empty.merge("N", "M"),
        lambda: empty.shares_memory(x),
    ):
        with pytest.raises(ContractError, match="no data"):
            use()
    for name, text in {"": "^array: list is no array", "w": "^array 'w': list is no array"}.items():
        with pytest.raises(InputError, match=text):
            from_array([1, 2], "N", name=name)
    for wrong in (np.array(["a"]), np.array([object()])):
        with pytest.raises(DTypeError):
            from_array(wrong, "N")
    for wrong in ("N C", "N N M", ["N"], "", 3, None, ["N", "C", []], ["N", "C", 3]):
        with pytest.raises(DimError):
            from_array(array, wrong)
    with pytest.raises(DimError, match="each dim"):
        x.numpy("A")


def test_functions_of_arrays_are_exported() -> None:
    assert {"from_array", "call"} <= set(dir(vtensor))
