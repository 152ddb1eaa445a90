"""The pads of a convolution's result are zero, whatever numbers its operands hold."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
import pytest

from libdesc.onednn.native import dnnl
from vtensor.runtime import _replay

#: Images, channels, size; outputs, kernel size: no block of channels is full.
SHAPES = [(2, 19, 9, 37, 3), (1, 16, 8, 20, 1)]


def kernels(shape: tuple[int, ...]) -> list[Any]:
    """Return oneDNN's kernels for a convolution whose result has pads."""
    images, channels, size, outputs, window = shape
    src = dnnl.Desc.any((images, channels, size, size), "f32")
    weights = dnnl.Desc.any((outputs, channels, window, window), "f32")
    dst = dnnl.Desc.any((images, outputs, size, size), "f32")
    around = (window // 2, window // 2)
    kernel: Any = dnnl.convolution(src, weights, None, dst, (1, 1), (1, 1), around, around)
    padded = []
    while kernel is not None:
        if kernel.descs["dst"].nbytes > 4 * images * outputs * size * size:
            padded.append(kernel)
        kernel = kernel.next_kernel()
    return padded


def memory(nbytes: int, value: float) -> np.ndarray[Any, Any]:
    """Return aligned memory filled with a number."""
    whole = np.empty(nbytes + 64, np.uint8)
    begin = -whole.ctypes.data % 64
    array = whole[begin : begin + nbytes]
    array.view(np.float32)[:] = value
    return array


@pytest.mark.parametrize("value", [np.inf, np.nan])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_pads_are_zero_if_the_image_is_not_finite(shape: tuple[int, ...], value: float) -> None:
    padded = kernels(shape)
    if not padded:
        pytest.skip("no kernel of this processor pads channels")
    images, _, size, outputs, _ = shape
    for kernel in padded:
        dst = kernel.descs["dst"]
        [(block, _)] = dst.inner_blocks
        slots = [memory(kernel.descs[name].nbytes, 1) for name in kernel.slots if name != "scratch"]
        slots[0].view(np.float32)[:] = value
        slots += [memory(kernel.scratch_bytes, 0)] * ("scratch" in kernel.slots)
        _replay.execute(kernel, slots)
        result = slots[list(kernel.slots).index("dst")].view(np.float32)
        blocks = dst.padded_dims[1] // block
        lanes = result.reshape(images, blocks, size, size, block)[:, -1, ..., outputs % block :]
        assert lanes.size == result.size - prod((images, outputs, size, size)), kernel.kernel
        assert (lanes == 0).all(), kernel.kernel
