"""ONNX operators in NumPy, on arrays that are known before a run: numbers or symbolic sizes.

Each function computes its operator, or raises for cases that it does not cover. The functions are
for sizes, which may change with every run: the general way to compute a node would be too slow.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import reduce
from typing import Any

import numpy as np

from libdesc.tracing import pure
from vtensor.language.spelling import Ahead

Array = np.ndarray[Any, Any]

#: Returns an attribute's value, from its name and a default.
Read = Callable[[str, Any], Any]

Computes = Callable[..., Array]


def _axes(read: Read, inputs: tuple[Array, ...]) -> tuple[int, ...] | None:
    axes = inputs[0].reshape(-1).tolist() if inputs else read("axes", None)
    return None if axes is None else tuple(axes)


def _unsqueeze(read: Read, x: Array, *inputs: Array) -> Array:
    return np.expand_dims(x, _axes(read, inputs) or ())


def _squeeze(read: Read, x: Array, *inputs: Array) -> Array:
    return np.squeeze(x, _axes(read, inputs))


def _reshape(read: Read, x: Array, shape: Array) -> Array:
    sizes = shape.tolist()
    if not read("allowzero", 0):
        sizes = [x.shape[place] if size == 0 else size for place, size in enumerate(sizes)]
    return x.reshape(sizes)


def _expand(_: Read, x: Array, shape: Array) -> Array:
    return np.broadcast_to(x, np.broadcast_shapes(x.shape, tuple(shape.tolist())))


def _slice(_: Read, x: Array, starts: Array, ends: Array, *more: Array) -> Array:
    rows = [row.tolist() for row in (starts, ends, *more)]
    axes = rows[2] if len(rows) > 2 else range(len(rows[0]))
    steps = rows[3] if len(rows) > 3 else [1] * len(rows[0])
    cuts = [slice(None)] * x.ndim
    for axis, start, end, step in zip(axes, rows[0], rows[1], steps, strict=True):
        cuts[axis] = slice(max(start, -x.shape[axis]), end, step)
    return x[tuple(cuts)]


def _concat(read: Read, *arrays: Array) -> Array:
    return np.concatenate(arrays, axis=read("axis", 0))


def _gather(read: Read, x: Array, places: Any) -> Array:
    taken: Array = np.take(x, places, axis=read("axis", 0))
    return taken


def _gather_elements(read: Read, x: Array, places: Array) -> Array:
    grid: list[Any] = [*np.indices(places.shape, sparse=True)]
    grid[read("axis", 0)] = places
    taken: Array = x[tuple(grid)]
    return taken


def _gather_nd(read: Read, x: Array, rows: Array) -> Array:
    batch = read("batch_dims", 0)
    grid: list[Any] = [*np.indices(rows.shape[:-1], sparse=True)][:batch]
    shape = rows.shape[:batch] + (1,) * (rows.ndim - 1 - batch)
    batches = tuple(indices.reshape(shape) for indices in grid)
    taken: Array = x[(*batches, *np.moveaxis(rows, -1, 0))]
    return taken


def _transpose(read: Read, x: Array) -> Array:
    return np.transpose(x, read("perm", None))


def _tile(_: Read, x: Array, repeats: Array) -> Array:
    return np.tile(x, tuple(repeats.tolist()))


def _triangle(read: Read, x: Array, *inputs: Array) -> Array:
    [diagonal] = inputs or [np.array(0)]
    return (np.triu if read("upper", 1) else np.tril)(x, int(diagonal.item()))


def _sums(read: Read, x: Array, axis: Array) -> Array:
    if read("exclusive", 0) or read("reverse", 0):
        raise TypeError("only sums of an element and all before it are computed")
    return running_sum(x, int(axis.item())).astype(x.dtype, copy=False)


def running_sum(x: Array, axis: int) -> Array:
    """Return the running sums of ``x`` along an axis; f32 is added up in f64, and returned so."""
    return np.cumsum(x, axis, np.float64 if x.dtype == np.float32 else None)


def _cast(read: Read, x: Array) -> Array:
    from onnx import helper  # not at the top: slow to import, and imported before this runs

    wanted = np.dtype(helper.tensor_dtype_to_np_dtype(read("to", 0)))
    if x.dtype.hasobject and wanted.kind == "i":  # the trace guards that symbolic sizes fit
        return x
    if x.dtype.kind not in "iub" or wanted.kind not in "iubf":
        raise TypeError("the cast may round, or exceed the type")
    return x.astype(wanted)


def _binary(function: Callable[[Array, Array], Any]) -> Computes:
    return lambda _, x, y: np.asarray(function(x, y))


def _logic(function: Callable[..., Any]) -> Computes:
    return lambda _, *given: np.asarray(function(*given))


_MOVING: Mapping[str, Computes] = {
    "Identity": lambda _, x: x,
    "Unsqueeze": _unsqueeze,
    "Squeeze": _squeeze,
    "Reshape": _reshape,
    "Concat": _concat,
    "Gather": _gather,
    "Transpose": _transpose,
    "Slice": _slice,
    "Cast": _cast,
    "Add": _binary(np.add),
    "Sub": _binary(np.subtract),
    "Mul": _binary(np.multiply),
}

_OTHERS: Mapping[str, Computes] = {
    "Expand": _expand,
    "GatherElements": _gather_elements,
    "GatherND": _gather_nd,
    "Tile": _tile,
    "Trilu": _triangle,
    "CumSum": _sums,
    "Where": _logic(np.where),
    "Max": _logic(lambda *given: reduce(np.maximum, given)),
    "Min": _logic(lambda *given: reduce(np.minimum, given)),
    "Equal": _binary(np.equal),
    "Less": _binary(np.less),
    "LessOrEqual": _binary(np.less_equal),
    "Greater": _binary(np.greater),
    "GreaterOrEqual": _binary(np.greater_equal),
    "And": _binary(np.logical_and),
    "Or": _binary(np.logical_or),
    "Not": _logic(np.logical_not),
}


def _range(_: Read, start: Array, limit: Array, delta: Array) -> Array:
    return np.arange(start.item(), limit.item(), delta.item()).astype(start.dtype)


#: All functions, by the ONNX name under which saved symbolic plans refer to them. Range has no
#: operator here, since its output is always known before a run.
NAMED = {**_MOVING, **_OTHERS, "Range": _range}
for _name, _function in NAMED.items():
    pure(_function, f"{__name__}:{_name}")

#: By ONNX name, the argument ``ahead`` of the operator's ``Spelling``.
AHEAD: Mapping[str, Ahead] = {
    **{name: Ahead(function, traced=True) for name, function in _MOVING.items()},
    **{name: Ahead(function) for name, function in _OTHERS.items()},
}
