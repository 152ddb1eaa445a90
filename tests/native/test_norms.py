"""Normalizations and reductions against NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from libdesc.onednn import _onednn as dnn
from tests.native.packing import FORMS, Array, random, run

Form = Callable[..., dnn.Desc]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("scale", [False, True])
@pytest.mark.parametrize("shift", [False, True])
@pytest.mark.parametrize("relu", [False, True])
def test_batch_normalization(form: Form, scale: bool, shift: bool, relu: bool) -> None:
    rng = np.random.default_rng(1)
    x = random(rng, 2, 20, 3, 3)
    stats = {"mean": random(rng, 20), "variance": np.abs(random(rng, 20)) + 0.5}
    factors = {"scale": random(rng, 20)} if scale else {}
    factors |= {"shift": random(rng, 20)} if shift else {}
    primitive = dnn.batch_normalization(form(x.shape), form(x.shape), 1e-3, scale, shift, relu)
    names = ("src", *stats, *factors, "dst")
    assert primitive.slots[: len(names)] == names

    def per_channel(name: str, default: float) -> Array:
        return (stats | factors).get(name, np.full(20, default)).reshape(20, 1, 1)

    expected = (x - per_channel("mean", 0)) / np.sqrt(per_channel("variance", 1) + 1e-3)
    expected = expected * per_channel("scale", 1) + per_channel("shift", 0)
    if relu:
        expected = np.maximum(expected, 0)
    result = run(primitive, src=x, **stats, **factors)
    np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("log", [False, True])
def test_softmax(form: Form, axis: int, log: bool) -> None:
    x = random(np.random.default_rng(2), 3, 20, 5)
    result = run(dnn.softmax(form(x.shape), form(x.shape), axis, log), src=x)
    shifted = x - x.max(axis, keepdims=True)
    expected = shifted - np.log(np.exp(shifted).sum(axis, keepdims=True))
    np.testing.assert_allclose(result, expected if log else np.exp(expected), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("size", [3, 5])
def test_lrn_across_channels(form: Form, size: int) -> None:
    x = random(np.random.default_rng(3), 2, 16, 4, 4)
    primitive = dnn.lrn("across_channels", form(x.shape), form(x.shape), size, 0.1, 0.75, 2.0)
    half = size // 2
    squares = np.pad(x * x, [(0, 0), (half, half), (0, 0), (0, 0)])
    total = sum(squares[:, i : i + 16] for i in range(size))
    expected = x * (2.0 + 0.1 / size * total) ** -0.75
    np.testing.assert_allclose(run(primitive, src=x), expected, rtol=1e-4, atol=1e-5)


def test_lrn_within_channel() -> None:
    x = random(np.random.default_rng(4), 2, 3, 5, 6)
    form = FORMS[0](x.shape)
    primitive = dnn.lrn("within_channel", form, form, 3, 0.1, 0.75, 1.0)
    squares = np.pad(x * x, [(0, 0), (0, 0), (1, 1), (1, 1)])
    total = sum(squares[:, :, i : i + 5, j : j + 6] for i in range(3) for j in range(3))
    expected = x * (1.0 + 0.1 / 9 * total) ** -0.75
    np.testing.assert_allclose(run(primitive, src=x), expected, rtol=1e-4, atol=1e-5)


REDUCTIONS: dict[str, Callable[..., Any]] = {
    "max": np.max,
    "min": np.min,
    "sum": np.sum,
    "mul": np.prod,
    "mean": np.mean,
    "norm_lp_sum": lambda x, axis, keepdims: np.sqrt(np.sum(x * x, axis, keepdims=keepdims) + 0.25),
    "norm_lp_max": lambda x, axis, keepdims: np.sqrt(
        np.maximum(np.sum(x * x, axis, keepdims=keepdims), 0.25)
    ),
    "norm_lp_power_p_sum": lambda x, axis, keepdims: np.sum(x * x, axis, keepdims=keepdims) + 0.25,
    "norm_lp_power_p_max": lambda x, axis, keepdims: np.maximum(
        np.sum(x * x, axis, keepdims=keepdims), 0.25
    ),
}


@pytest.mark.parametrize("alg", REDUCTIONS)
@pytest.mark.parametrize("axes", [(1,), (2, 3), (0, 1, 2, 3)])
def test_reduction(alg: str, axes: tuple[int, ...]) -> None:
    x = random(np.random.default_rng(5), 2, 5, 3, 4)
    dims = tuple(1 if i in axes else size for i, size in enumerate(x.shape))
    form = FORMS[0]
    primitive = dnn.reduction(alg, form(x.shape), form(dims), p=2.0, eps=0.25)
    expected = REDUCTIONS[alg](x, axis=axes, keepdims=True)
    np.testing.assert_allclose(run(primitive, src=x), expected, rtol=1e-4, atol=1e-5)


def test_every_reduction_has_a_definition_here() -> None:
    assert set(dnn.reduction_algs()) == set(REDUCTIONS)
