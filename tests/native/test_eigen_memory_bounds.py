"""Kernels on Eigen stay inside the bytes that their slots state, and write all of dst."""

from __future__ import annotations

import numpy as np
import pytest

from libdesc.eigen import native
from tests.native import guarded_eigen
from tests.native.packing import Array
from tests.native.test_memory_bounds import python

KINDS = (
    "argmax argmin attention blend col2im copy deformed_convolution depthwise determinant "
    "dynamic_quantize fourier gather gemm gemm_convolution grid_sample hardmax joined lrn "
    "normalize one_hot overwrite pick pointwise pooling_avg_include_padding pooling_lp "
    "pooling_max pooling_place recurrent reduce reverse_sequence roi_align running scatter "
    "softmax top triangle unpool"
)


@pytest.mark.parametrize("cap", ["sse41", "avx2", "avx512"])
def test_random_kernels_between_guards(cap: str) -> None:
    done = python("-m", "tests.native.guarded_eigen", "2", "440", cap)
    last = done.stderr.strip().splitlines()[-1:]
    assert done.returncode == 0, f"{done.stdout}\n{last}"
    assert done.stdout.split(maxsplit=1)[1].strip() == KINDS


def test_a_guard_in_front_stops_an_overrun() -> None:
    code = """
import ctypes, numpy, tests.native.guarded as g
memory = g.guarded(numpy.zeros(10, numpy.uint8), behind=False)
ctypes.memset(memory.ctypes.data, 1, 10)
print(memory.sum(), flush=True)
ctypes.memset(memory.ctypes.data - 1, 1, 1)
"""
    done = python("-c", code)
    assert done.stdout.strip() == "10"
    assert done.returncode < 0


def test_elements_that_are_not_written_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = native.load().softmax(2, 3)
    assert list(guarded_eigen.faults(kernel, behind=True)) == []

    def idle(step: object, memory: list[Array]) -> None:
        memory[1].view(np.float32)[1:] = 0

    monkeypatch.setattr("tests.native.guarded_eigen._replay.execute", idle)
    [fault] = guarded_eigen.faults(kernel, behind=True)
    assert "4 bytes of dst are not written" in fault
