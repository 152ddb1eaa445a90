"""Arrays to and from the memory of a descriptor, by its own numbers; and running a primitive."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from libdesc.onednn import _onednn as dnn
from vtensor.language.dtype import numpy_dtype
from vtensor.runtime import _replay

Array = np.ndarray[Any, np.dtype[Any]]
#: From dims, and an element type, a descriptor.
Form = Callable[..., dnn.Desc]
#: Kernel, strides, dilations, pads at the beginning and at the end.
Window = tuple[Sequence[int], Sequence[int], Sequence[int], Sequence[int], Sequence[int]]


def plain(dims: Sequence[int], dtype: str = "f32") -> dnn.Desc:
    """Return the descriptor in C order."""
    return dnn.Desc.tag(dims, dtype, "abcdefghijkl"[: len(dims)])


def blocked(dims: Sequence[int], dtype: str = "f32", block: int = 16) -> dnn.Desc:
    """Return a descriptor as NCHW16c: the second dim split."""
    letters = "abcdefghijkl"[: len(dims)]
    return dnn.Desc.tag(dims, dtype, f"{letters.replace('b', 'B')}{block}b")


def channels_last(dims: Sequence[int], dtype: str = "f32") -> dnn.Desc:
    """Return a descriptor as NHWC."""
    return dnn.Desc.tag(dims, dtype, f"a{'cdefghijkl'[: len(dims) - 2]}b")


#: Forms to run each primitive in.
FORMS = [plain, blocked, channels_last]


def offsets(desc: dnn.Desc) -> Array:
    """Return where each element lies, in elements from the buffer's address."""
    index = [np.arange(size) for size in desc.dims]
    place = [np.zeros(size, np.int64) for size in desc.dims]
    inside = 1
    for size, dim in reversed(desc.inner_blocks):
        place[dim] += index[dim] % size * inside
        index[dim] //= size
        inside *= size
    total: Array = np.full(desc.dims, desc.offset0, np.int64)
    for dim, stride in enumerate(desc.strides):
        shape = [1] * len(desc.dims)
        shape[dim] = -1
        total += (place[dim] + index[dim] * stride).reshape(shape)
    return total


def pack(values: Array, desc: dnn.Desc) -> Array:
    """Return the bytes of a buffer that holds the values; zero in the pads."""
    dtype = numpy_dtype(desc.dtype)
    elements = np.zeros(desc.nbytes // dtype.itemsize, dtype)
    elements[offsets(desc)] = values.astype(dtype)
    return elements.view(np.uint8)


def unpack(memory: Array, desc: dnn.Desc) -> Array:
    """Return the values in a buffer."""
    return memory.view(numpy_dtype(desc.dtype))[offsets(desc)]


def pads(memory: Array, desc: dnn.Desc) -> Array:
    """Return what a buffer holds where no element lies."""
    elements = memory.view(numpy_dtype(desc.dtype))
    free = np.ones(elements.size, bool)
    free[offsets(desc)] = False
    return elements[free]


def buffers(primitive: dnn.Primitive, inputs: Mapping[str, Array]) -> list[Array]:
    """Return a buffer for each slot; dst and scratch are full of ones: NaN, as far as floats go."""
    memory: list[Array] = []
    for name in primitive.slots:
        if name in inputs:
            memory.append(pack(inputs[name], primitive.descs[name]))
        else:
            scratch = name == "scratch"
            size = primitive.scratch_bytes if scratch else primitive.descs[name].nbytes
            memory.append(np.full(size, 0xFF, np.uint8))
    return memory


def run(primitive: dnn.Primitive, **inputs: Array) -> Array:
    """Return the values of dst; check that its pads are zero."""
    memory = buffers(primitive, inputs)
    _replay.execute(primitive, memory)
    dst, desc = memory[primitive.slots.index("dst")], primitive.descs["dst"]
    assert not pads(dst, desc).astype(np.float64).any()
    return unpack(dst, desc)


def close(
    primitive: dnn.Primitive,
    expected: Array,
    rtol: float = 1e-4,
    atol: float = 1e-5,
    **inputs: Array,
) -> None:
    """Check that a primitive gives these values."""
    np.testing.assert_allclose(run(primitive, **inputs), expected, rtol=rtol, atol=atol)


def windows(x: Array, window: Window, fill: float = 0.0) -> Array:
    """Return [N, C, *output, *kernel]: what each window of x sees."""
    kernel, strides, dilations, begin, end = window
    rank = len(kernel)
    padded = np.pad(x, [(0, 0), (0, 0), *zip(begin, end, strict=True)], constant_values=fill)
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    seen = sliding_window_view(padded, reach, axis=tuple(range(2, 2 + rank)))
    taken = (slice(None), slice(None), *(slice(None, None, s) for s in strides))
    return seen[(*taken, *(slice(None, None, d) for d in dilations))]


def convolve(x: Array, w: Array, window: Window) -> Array:
    """Return the sums of x and weights of groups, O, I, kernel."""
    spatial = len(window[0])
    axes = [1, *range(2 + spatial, 2 + 2 * spatial)]
    parts = []
    for xs, ws in zip(np.split(x, len(w), axis=1), w, strict=True):
        part = np.tensordot(windows(xs, window), ws, (axes, list(range(1, ws.ndim))))
        parts.append(np.moveaxis(part, -1, 1))
    return np.concatenate(parts, axis=1)


def random(rng: np.random.Generator, *dims: int) -> Array:
    """Return values of either sign, f32."""
    return rng.standard_normal(dims).astype(np.float32)
