"""Changes of layout on Eigen are those of the definition, bit for bit."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from libdesc.eigen import memory
from libdesc.transforms import LayoutChange, choose_library, run_transform
from ptensor.buffer import TensorStorage
from ptensor.evaluation import installed
from ptensor.layout import Layout
from ptensor.transform import transform
from tests.operators.harness import Deciding, Running, poisoned
from tests.property.strategies import LAWS, Array, bits, by_definition, pairs, poison, seeds, values
from vtensor.language.dtype import ITEMSIZE
from vtensor.language.tensor import VTensor

COPIED = sorted(dtype for dtype, size in ITEMSIZE.items() if size <= 8)
SIZES = {"N": 2, "C": 53, "H": 5, "W": 3}


def changed(
    physical: Array, source: Layout, target: Layout, sizes: dict[str, int], dtype: str
) -> Array:
    """Run one Transform on Eigen, into memory full of ones."""
    x, y = VTensor(dtype, sizes), VTensor(dtype, sizes)
    room = poisoned(physical.nbytes)
    room.memory[:] = np.ascontiguousarray(physical).reshape(-1).view(np.uint8)
    x.storage = TensorStorage(dtype, sizes, source, room)
    y.storage = storage = TensorStorage(dtype, sizes, target, poisoned(target.nbytes(sizes, dtype)))
    running = Running()
    with installed(running):
        run_transform("t", "eigen", x, y, LayoutChange(source, target), running)
    assert len(running.kernels) == 1
    return storage.data()


def check(source: Layout, target: Layout, sizes: dict[str, int], dtype: str, seed: int) -> None:
    """Compare any bits, NaN in the source's pads, with the NumPy transform."""
    names = sorted(sizes)
    logical = values([sizes[dim] for dim in names], dtype, seed)
    physical = poison(by_definition(logical, names, source), source, sizes)
    found = changed(physical, source, target, sizes, dtype)
    expected = transform(physical, source, target, sizes, dtype)
    assert np.array_equal(bits(found), bits(expected)), f"{source} -> {target} {sizes} {dtype}"


#: Blocks that do not nest.
UNEVEN = [
    ("NCHW12c", "NCHW16c"),
    ("NCHW8c", "NCHW12c"),
    ("NC12cHW", "NHWC8c"),
    ("NCHW8c4h", "NCHW3h12c"),
]


@LAWS
@given(pairs(), st.sampled_from(COPIED), seeds)
def test_any_pair_of_layouts_is_the_definition(
    case: tuple[list[Layout], dict[str, int]], dtype: str, seed: int
) -> None:
    (source, target), sizes = case
    check(source, target, sizes, dtype, seed)


@pytest.mark.parametrize(("source", "target"), [*UNEVEN, *((b, a) for a, b in UNEVEN)])
def test_blocks_that_do_not_nest_are_the_definition(source: str, target: str) -> None:
    check(Layout(source), Layout(target), SIZES, "f32", 1)


def test_an_element_that_is_elsewhere_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """The twin of check: pieces that begin one step late."""
    honest = memory._pieces
    monkeypatch.setattr(
        memory, "_pieces", lambda *given: (p._replace(steps=p.steps[:-1]) for p in honest(*given))
    )
    with pytest.raises(AssertionError, match="NCHW8c -> NCHW12c"):
        check(Layout("NCHW8c"), Layout("NCHW12c"), SIZES, "f32", 1)


def chosen(dtype: str, source: str, target: str, sizes: dict[str, int] = SIZES) -> str:
    """Return the library that a change of layout goes to when the consumer is on Eigen."""
    with installed(Deciding()):
        change = LayoutChange(Layout(source), Layout(target))
        return choose_library(VTensor(dtype, sizes), change, ["eigen"], Deciding())


@pytest.mark.parametrize(
    ("dtype", "source", "target", "moves"),
    [
        *((dtype, "NCHW", "NHWC", True) for dtype in ("f32", "s64", "u8", "f16", "c64")),
        ("f32", "NCHW:s8(scale=0.5)", "NHWC:s8(scale=0.5)", True),
        ("f32", "NCHW:s8", "NCHW:u8", False),
        ("f32", "NCHW", "NHWC:bf16", False),
        ("c128", "NCHW", "NHWC", False),
        ("f32", "NCHW:bf16+bf16", "NHWC:bf16+bf16", False),
        ("f32", "NCHW:u8(zero=3)", "NCHW8c:u8(zero=3)", False),
    ],
)
def test_what_is_more_than_a_move_is_declined(
    dtype: str, source: str, target: str, moves: bool
) -> None:
    assert (chosen(dtype, source, target) == "eigen") == moves


def test_too_many_boxes_are_declined() -> None:
    sizes = {"A": 1 << 40, "B": 2}
    assert memory.too_many(Layout("AB999983a"), Layout("AB3a2a"), sizes)
    assert chosen("f32", "AB999983a", "AB3a2a", sizes) == "numpy"
