"""Rounding by the transformer of every library, bit for bit: as ml_dtypes rounds to bf16, and as
processors round to f16.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from libdesc.registry import registry
from libdesc.transforms import LayoutChange, choose_library, run_transform
from ptensor.buffer import TensorStorage
from ptensor.evaluation import installed
from ptensor.layout import Layout
from ptensor.planes import planes_of
from ptensor.transform import unpack
from tests.operators.harness import Array, Deciding, Running, poisoned, storage_of
from tests.property.strategies import LAWS
from vtensor.language.tensor import VTensor

#: Layouts before and after, without an encoding: the same, another order, and blocks with pads.
CHANGES = [("NCW", "NCW"), ("NCW", "NWC"), ("NCW", "NCW16c"), ("NCW16c", "NCW")]

#: The libraries that round f32 in a Transform.
ROUNDING = ("onednn", "numpy")


def floats(bits: Array) -> Array:
    """Return f32 numbers of these bits as N C W; no block fills C."""
    return np.resize(bits.astype(np.uint32), (-(-bits.size // 63), 21, 3)).view(np.float32)


def special() -> Array:
    """Return each bf16 as f32, and f32 numbers near it: ties, and those next to a tie."""
    upper = np.arange(1 << 16, dtype=np.uint32) << 16
    lower = (0, 1, 0x0FFF, 0x1000, 0x1001, 0x3000, 0x7FFF, 0x8000, 0x8001, 0xFFFF)
    return floats(np.concatenate([upper | bits for bits in lower]))


def changed(library: str, values: Array, source: str, target: Layout) -> list[Array]:
    """Return the planes that a library's transformer makes of f32 values, in the order N C W."""
    sizes = dict(zip("NCW", values.shape, strict=True))
    x, y = VTensor("f32", sizes), VTensor("f32", sizes)
    x.storage = TensorStorage.of_array(values, x, Layout(source), False)
    y.storage = TensorStorage("f32", sizes, target, poisoned(target.nbytes(sizes, "f32")))
    change, running = LayoutChange(Layout(source), target), Running()
    with installed(running):
        run_transform("t", library, x, y, change, running)
    encoding, order = target.stored("f32"), target.with_encoding(None)
    memory, shape = storage_of(y).buffer.memory.view(np.uint8), order.physical_shape(sizes)
    planes = planes_of(memory, encoding, shape) if encoding.rest else [memory.view(encoding.numpy)]
    return [
        unpack(plane.view(np.uint16).reshape(shape), order, "NCW", sizes, "u16").view(kind.numpy)
        for plane, kind in zip(planes, encoding.planes, strict=True)
    ]


def as_bf16(values: Array) -> Array:
    with np.errstate(all="ignore"):
        return np.asarray(values.astype(ml_dtypes.bfloat16))


def as_f16(values: Array) -> Array:
    """Round as NumPy does; a NaN becomes quiet and keeps the upper bits of its payload."""
    bits = values.view(np.uint32)
    nan = (bits >> 16 & 0x8000) | 0x7E00 | (bits >> 13 & 0x3FF)
    with np.errstate(all="ignore"):
        numbers = values.astype(np.float16).view(np.uint16)
    return np.where(np.isnan(values), nan.astype(np.uint16), numbers).view(np.float16)


def check(library: str, values: Array, source: str, order: str) -> None:
    """Check what a library makes of values in bf16, in two planes, and in f16."""
    [narrow] = changed(library, values, source, Layout(f"{order}:bf16"))
    assert np.array_equal(narrow.view(np.uint16), as_bf16(values).view(np.uint16))
    [half] = changed(library, values, source, Layout(f"{order}:f16"))
    assert np.array_equal(half.view(np.uint16), as_f16(values).view(np.uint16))
    hi, lo = changed(library, values, source, Layout(f"{order}:bf16+bf16"))
    held = np.abs(values) < np.finfo(np.float32).max / 2
    assert np.array_equal(hi.view(np.uint16)[held], narrow.view(np.uint16)[held])
    with np.errstate(all="ignore"):
        left = as_bf16(values - hi.astype(np.float32))
    assert np.array_equal(lo.astype(np.float32)[held], left.astype(np.float32)[held])
    assert not lo[~np.isfinite(values)].any()


@pytest.mark.parametrize("library", ROUNDING)
@pytest.mark.parametrize(("source", "order"), CHANGES)
def test_special_values_round_as_ml_dtypes_does(library: str, source: str, order: str) -> None:
    check(library, special(), source, order)


@LAWS
@given(st.sampled_from(ROUNDING), st.sampled_from(CHANGES), st.binary(min_size=4, max_size=400))
def test_any_bits_round_as_ml_dtypes_does(
    library: str, change: tuple[str, str], text: bytes
) -> None:
    check(library, floats(np.frombuffer(text[: len(text) // 4 * 4], np.uint32)), *change)


@pytest.mark.parametrize("name", ["bf16", "f16", "bf16+bf16"])
def test_other_libraries_round_nothing(name: str) -> None:
    """What they take later belongs to ``ROUNDING``."""
    others = registry().libraries.keys() - set(ROUNDING)
    transforming = [other for other in others if registry().libraries[other].transforms]
    change = LayoutChange(Layout("NCW"), Layout(f"NCW:{name}"))
    x = VTensor("f32", {"N": 2, "C": 21, "W": 3})
    assert transforming
    with installed(Deciding()):
        for library in transforming:
            assert choose_library(x, change, [library], Deciding()) in ROUNDING
