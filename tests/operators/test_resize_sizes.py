"""Resize by every pair of sizes: which size a scale gives, and which element is the nearest."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from itertools import product
from math import ceil, floor
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import onnxruntime
import pytest
from onnx import ModelProto

from ops import Resize
from ops.resize import ROUNDINGS, scaled
from tests.frontends.support import model
from tests.operators.harness import Array, Given, decide, plain, run
from tests.operators.tables.nodes import numbers
from vtensor import Session
from vtensor.errors import ModelError, NoInvokerError

MODES = ("half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric")
#: Lengths whose quotients lie next to ties or to whole numbers in f32, and plain ones.
LENGTHS = (1, 2, 3, 5, 7, 11, 14, 23, 41, 49, 55, 64, 82, 93, 100, 128)
PAIRS = [*product(LENGTHS, repeat=2)]


def line(length: int) -> Array:
    """Return the elements 0, 1, 2, ..., which say where each was taken."""
    return np.arange(length, dtype=np.float32)


def call(length: int, size: int, mode: str, rounding: str) -> tuple[Resize, list[Given]]:
    """Return an operator that takes elements of a line, and the line."""
    op = Resize(("W",), (size,), (size / length,), "nearest", mode, rounding)
    return op, [plain(line(length).reshape(1, 1, -1), "N C W")]


def taken(library: str, op: Resize, inputs: list[Given]) -> list[float]:
    """Return the elements that a library takes."""
    [result] = run(library, op, inputs).values
    return list(result[0, 0])


@pytest.mark.parametrize("rounding", ROUNDINGS)
@pytest.mark.parametrize("mode", MODES)
def test_the_nearest_element_is_that_of_onnx_runtime(mode: str, rounding: str) -> None:
    attributes = f'coordinate_transformation_mode = "{mode}", nearest_mode = "{rounding}"'
    text = f"m (float[n] x, int64[1] by) => (float[m] y) {{ y = Resize<{attributes}>(x, , , by) }}"
    theirs = onnxruntime.InferenceSession(model(text, 19).SerializeToString())
    for length, size in PAIRS:
        [expected] = theirs.run(None, {"x": line(length), "by": np.array([size])})
        ours = taken("numpy", *call(length, size, mode, rounding))
        assert ours == [*expected], (length, size)


def nearest(length: int, size: int, coordinates: str, rounding: str) -> Iterator[int]:
    """Yield the elements of exact arithmetic, ties as the rounding says."""
    for y in range(size):
        place = Fraction(2 * y + 1, 2) * length / size - Fraction(1, 2)
        if coordinates == "asymmetric":
            place = Fraction(y * length, size)
        half = Fraction(1, 2)
        near = ceil(place - half) if rounding == "round_prefer_floor" else floor(place + half)
        yield min(max(near, 0), length - 1)


@pytest.mark.parametrize("rounding", ["round_prefer_floor", "round_prefer_ceil"])
@pytest.mark.parametrize("mode", ["half_pixel", "asymmetric"])
def test_ties_of_short_rows_are_exact(mode: str, rounding: str) -> None:
    for length, size in product(range(1, 17), repeat=2):
        expected = [*nearest(length, size, mode, rounding)]
        assert taken("numpy", *call(length, size, mode, rounding)) == expected, (length, size)


@pytest.mark.parametrize("library", ["onednn", "eigen"])
@pytest.mark.parametrize("rounding", ROUNDINGS)
@pytest.mark.parametrize("mode", ["half_pixel", "asymmetric"])
def test_libraries_take_the_same_elements(mode: str, rounding: str, library: str) -> None:
    count = 0
    for length, size in PAIRS:
        op, inputs = call(length, size, mode, rounding)
        try:
            decide(library, op, inputs)
        except NoInvokerError:  # oneDNN would take others
            continue
        count += 1
        assert taken(library, op, inputs) == taken("numpy", op, inputs), (length, size)
    assert count >= (len(LENGTHS) if library == "onednn" else len(PAIRS))


def scaled_model(scale: float, mode: str = "nearest") -> ModelProto:
    """Return a model of a dim of open size that is resized by a scale."""
    attributes = f'mode = "{mode}", coordinate_transformation_mode = "pytorch_half_pixel"'
    text = f"m (float[n] x) => (float[m] y) {{ y = Resize<{attributes}>(x, , by) }}"
    return model(text, 19, by=numbers(scale))


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_one_element_by_a_scale_that_is_rounded(mode: str) -> None:
    for length in range(2, 60):
        proto = scaled_model(1 / length, mode)
        with Session(proto, threads=1, cache_dir=None) as session:
            assert session.run(None, {"x": line(length)})[0].tolist() == [0], length


@pytest.mark.parametrize(("op_type", "opset"), [("Upsample", 9), ("Resize", 10), ("Resize", 13)])
def test_quotients_of_open_sizes_give_these_sizes(op_type: str, opset: int) -> None:
    """As PyTorch writes ``interpolate(x, size=y.shape)``, then an addition of y."""
    text = f"""interpolated (float[h, w] x, float[H, W] y) => (float[H, W] z) {{
        a = Shape(x) b = Shape(y) af = Cast<to = 1>(a) bf = Cast<to = 1>(b) s = Div(bf, af)
        u = {op_type}<mode = "nearest">(x, {", " * (opset > 10)}s) z = Add(u, y) }}"""
    with Session(model(text, opset), threads=1, cache_dir=None) as session:
        for length, size in [(10, 33), (7, 62), (11, 93), (3, 2), (49, 7), (5, 5), (1, 47)]:
            if op_type == "Upsample" and size < length:
                continue
            x = np.outer(line(length), np.ones(3, np.float32))
            [z] = session.run(None, {"x": x, "y": np.zeros((size, 3), np.float32)})
            assert z.shape == (size, 3)
            assert z[-1, 0] == length - 1 or size < length


def test_every_quotient_of_sizes_gives_the_size() -> None:
    reader = cast(Any, SimpleNamespace(name="node"))
    for length, size in product(range(1, 201), repeat=2):
        scale = float(np.float32(size) / np.float32(length))
        assert scaled(reader, length, scale) == (size, size / length), (length, size)


@pytest.mark.parametrize("scale", [0.0, -2.0, np.inf, np.nan])
def test_scales_that_are_none_are_refused(scale: float) -> None:
    with pytest.raises(ModelError, match=r"a scale of .* above 0 and finite"):
        Session(scaled_model(scale), cache_dir=None).run(None, {"x": line(3)})


#: Sizes and scales of the two last dims, and the number of channels.
LINEAR = [(15, 17, 2.0, 1), (5, 4, 4.0, 16), (7, 9, 0.5, 3), (20, 10, 1.6, 2), (3, 1, 3.0, 1)]


@pytest.mark.parametrize("mode", MODES)
def test_linear_steps_are_those_of_onnx_runtime(mode: str) -> None:
    """Four products are added in its order, in every layout, so that ties round alike."""
    attributes = f'coordinate_transformation_mode = "{mode}", mode = "linear"'
    ports = "float[1, c, h, w] x, float[4] by) => (float[1, c, a, b] y"
    text = f"m ({ports}) {{ y = Resize<{attributes}>(x, , by) }}"
    theirs = onnxruntime.InferenceSession(model(text, 19).SerializeToString())
    rng = np.random.default_rng(0)
    for height, width, scale, channels in LINEAR:
        steps = rng.integers(-128, 128, (1, channels, height, width))
        x = steps.astype(np.float32) * np.float32(0.0173)
        [expected] = theirs.run(None, {"x": x, "by": np.array([1, 1, scale, scale], np.float32)})
        sizes = expected.shape[2:]
        if mode == "align_corners" and sizes != (height * scale, width * scale):
            continue  # ONNX divides by the size before it was rounded, ONNX Runtime does not
        op = Resize(("H", "W"), sizes, (scale, scale), "linear", mode)
        for library, order in product(("eigen", "numpy"), ("NCHW", "NHWC")):
            given = plain(np.moveaxis(x, 1, order.index("C")), " ".join(order))
            [ours] = run(library, op, [given]).values
            found = np.moveaxis(ours, order.index("C"), 1)
            np.testing.assert_array_equal(found, expected, (library, order, scale))


def test_linear_steps_of_open_sizes_are_specialised() -> None:
    text = "m (float[1, 3, h, w] x) => (float[1, 3, a, b] y)"
    by = "<float[4] by = {1, 1, 2, 1.5}>"
    network = model(f'{text} {by} {{ y = Resize<mode = "linear">(x, , by) }}', 19)
    theirs = onnxruntime.InferenceSession(network.SerializeToString())
    with Session(network, threads=1, cache_dir=False) as session:
        for sizes, origin in (((4, 6), "planned"), ((7, 2), "specialised")):
            x = np.random.default_rng(1).standard_normal((1, 3, *sizes), dtype=np.float32)
            np.testing.assert_array_equal(session.run(None, {"x": x}), theirs.run(None, {"x": x}))
            assert str(session.plan.origin) == origin
