"""ONNX layers in NumPy, for constants that depend on open sizes.

A process that reads a model computes such a constant as it computes any node. A process that only
has a saved symbolic plan uses these functions, whose results are equal bit by bit: before a plan is
saved, both results are compared.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod
from typing import Any

import numpy as np

from libdesc.numpy.arrays import Array, wide
from libdesc.tracing import pure
from ops._elements import Computes, Read
from ptensor.blas import on_one_thread
from vtensor.language.spelling import Ahead


def _product(_: Read, a: Array, b: Array) -> Array:
    rows = a.reshape(-1, a.shape[-1]) if b.ndim == 2 else a  # one product of all rows
    product: Array = on_one_thread(lambda: wide(rows) @ wide(b)).astype(a.dtype)
    return product.reshape(*a.shape[:-1], b.shape[-1]) if b.ndim == 2 else product


def _gemm(read: Read, a: Array, b: Array, *bias: Array) -> Array:
    if read("alpha", 1.0) != 1 or read("beta", 1.0) != 1:
        raise ValueError("the terms of the sum are scaled")
    turned = zip((a, b), ("transA", "transB"), strict=True)
    rows, columns = (np.ascontiguousarray(x.T) if read(name, 0) else x for x, name in turned)
    product = _product(read, rows, columns)
    return product + bias[0] if bias else product


def _softmax(read: Read, x: Array) -> Array:
    axis = read("axis", -1)
    power = np.exp(x - x.max(axis, keepdims=True))
    total = power.sum(axis, keepdims=True, dtype=np.float64)
    share: Array = power / total.astype(power.dtype)
    return share


def _normalized(read: Read, x: Array, scale: Array, *bias: Array) -> Array:
    axes = tuple(range(read("axis", -1) % x.ndim, x.ndim))
    count, values = prod(x.shape[axis] for axis in axes), x.astype(np.float64)
    centred = values - values.sum(axes, keepdims=True) / count
    spread = np.sqrt((centred**2).sum(axes, keepdims=True) / count + read("epsilon", 1e-5))
    inverse = (1 / spread).astype(wide(x).dtype)
    result: Array = (centred * inverse * scale).astype(x.dtype)
    return result + bias[0] if bias else result


def _reduction(function: Callable[..., Any]) -> Computes:
    def compute(read: Read, x: Array, *axes: Array) -> Array:
        listed = axes[0].tolist() if axes else read("axes", None)
        if not listed and read("noop_with_empty_axes", 0):
            return x
        keeps = bool(read("keepdims", 1))
        found = function(x, axis=tuple(listed) if listed else None, keepdims=keeps)
        return np.asarray(found).astype(x.dtype)

    return compute


_NAMED: Mapping[str, Computes] = {
    "MatMul": _product,
    "Gemm": _gemm,
    "Softmax": _softmax,
    "LayerNormalization": _normalized,
    "ReduceMax": _reduction(np.max),
    "ReduceMin": _reduction(np.min),
    "ReduceProd": _reduction(np.prod),
    "ReduceSum": _reduction(np.sum),
}
for _name, _function in _NAMED.items():
    pure(_function, f"{__name__}:{_name}")

#: By name of an ONNX operator, the argument ``ahead`` of its ``Spelling``: how its output is
#: computed before a run.
LAYERS = {name: Ahead(function, only_traced=True) for name, function in _NAMED.items()}
