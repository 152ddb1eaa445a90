"""Kernels stay inside the bytes that their slots state, write all of dst, and are right."""

from __future__ import annotations

import numpy as np
import pytest

from libdesc.eigen import native
from libdesc.levels import LEVELS
from libdesc.onednn import _onednn as dnn
from tests.libraries.processes import run_python
from tests.native import guarded_convolutions, guarded_eigen, guarded_onednn
from tests.native.packing import Array

CONVOLUTIONS = ("winograd", "depthwise", "direct")
EIGEN = (
    "argmax argmin attention blend col2im copy deformed_convolution depthwise determinant "
    "dynamic_quantize fourier gather gemm gemm_convolution grid_sample hardmax joined lrn "
    "normalize one_hot overwrite pick pointwise pooling_avg_include_padding pooling_lp "
    "pooling_max pooling_place recurrent reduce reverse_sequence roi_align running scatter "
    "softmax top triangle unpool"
)
LEVELS_HERE = LEVELS[: LEVELS.index(native.load_baseline().machine_level()) + 1]


def ran(*arguments: str) -> tuple[int, str]:
    """Run kernels between guards; return how many there were, and their names."""
    done = run_python("-m", "tests.native.guarded", *arguments)
    last = done.stderr.strip().splitlines()[-1:]
    assert done.returncode == 0, f"{done.stdout}\n{last}"
    count, _, names = done.stdout.strip().partition(" ")
    return int(count), names


@pytest.mark.parametrize("cap", ["max", "avx2", "sse41"])
def test_random_primitives_of_onednn(cap: str) -> None:
    count, names = ran("onednn", cap, "1", "300")
    assert count > 60
    assert names == "request"


@pytest.mark.parametrize("cap", ["sse41", "avx2", "avx512"])
def test_random_kernels_on_eigen(cap: str) -> None:
    assert ran("eigen", cap, "2", "440") == (440, EIGEN)


@pytest.mark.parametrize("level", LEVELS_HERE)
@pytest.mark.parametrize("kind", CONVOLUTIONS)
def test_convolutions(kind: str, level: str) -> None:
    assert ran(kind, level) == (len(guarded_convolutions.calls(kind)), kind)


@pytest.mark.parametrize(("behind", "beyond"), [(True, 10), (False, -1)])
def test_a_guard_stops_an_overrun(behind: bool, beyond: int) -> None:
    code = f"""
import ctypes, numpy, tests.native.pages as pages
memory = pages.guarded(numpy.zeros(10, numpy.uint8), {behind})
ctypes.memset(memory.ctypes.data, 1, 10)
print(memory.sum(), flush=True)
ctypes.memset(memory.ctypes.data + {beyond}, 1, 1)
"""
    done = run_python("-c", code)
    assert done.stdout.strip() == "10"
    assert done.returncode < 0


def test_a_wrong_primitive_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    source = guarded_onednn.Source(1)
    shape = [1, 16, 4, 4]
    primitive = dnn.pooling(
        "max", *(dnn.Desc.tag(shape, "f32", "abcd"),) * 2, *((1, 1),) * 3, *((0, 0),) * 2
    )
    assert primitive.next_kernel() is not None
    assert guarded_onednn.faults(primitive, source) == []
    runs = iter(range(100))
    honest = guarded_onednn.run

    def spoiled(kernel: dnn.Primitive, values: dict[str, Array]) -> Array:
        memory = honest(kernel, values)
        memory.view(np.float32)[3] += next(runs)
        return memory

    monkeypatch.setattr(guarded_onednn, "run", spoiled)
    assert "differs" in guarded_onednn.faults(primitive, source)[0]


def test_elements_that_are_not_written_are_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = native.load().softmax(2, 3)
    assert list(guarded_eigen.faults(kernel, behind=True)) == []

    def idle(step: object, memory: list[Array]) -> None:
        memory[1].view(np.float32)[1:] = 0

    monkeypatch.setattr("tests.native.guarded_eigen._replay.execute", idle)
    [fault] = guarded_eigen.faults(kernel, behind=True)
    assert "4 bytes of dst are not written" in fault
