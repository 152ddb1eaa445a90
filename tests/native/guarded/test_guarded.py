"""Kernels stay inside the bytes that their slots state, write all of dst, and are right.

Bounds behind a product are exact, on NaN and infinities too, and what runs apart gives the same.
"""

from __future__ import annotations

import json
from importlib import import_module
from math import inf

import numpy as np
import pytest

from libdesc.eigen import native
from libdesc.levels import LEVELS
from libdesc.onednn import _onednn as dnn
from tests.libraries.processes import run_python
from tests.libraries.slow import slow_but
from tests.native.guarded import bounds, convolutions, eigen, onednn
from tests.native.packing import Array, Form, blocked, plain

EIGEN = (
    "argmax argmin attention bilinear blend col2im copy deformed_convolution depthwise determinant "
    "dynamic_quantize fourier gather gemm gemm_convolution grid_sample hardmax joined lrn "
    "normalize one_hot overwrite pick pointwise pooling_avg_include_padding pooling_lp "
    "pooling_max pooling_place recurrent reduce reverse_sequence roi_align running scatter "
    "softmax top triangle unpool"
)
LEVELS_HERE = LEVELS[: LEVELS.index(native.load_baseline().machine_level()) + 1]
#: The modules of narrow that this machine runs, each with its kinds of instructions.
NARROW = [
    f"{level}:{instructions}"
    for level in LEVELS_HERE
    for instructions in import_module(f"libdesc.narrow._narrow_{level}").instructions()
]
CAPS = ("sse41", "avx2", "max")
#: Those that always run: the two that have the least in common.
ENDS = ("sse41", "max")


def ran(*arguments: str) -> dict[str, int]:
    """Run kernels in a process of their own; return how many there were of each name."""
    done = run_python("-m", "tests.native.guarded", *arguments, timeout=500)
    last = done.stderr.strip().splitlines()[-1:]
    assert done.returncode == 0, f"{done.stdout}\n{last}"
    counts: dict[str, int] = json.loads(done.stdout)
    return counts


@pytest.mark.parametrize("cap", slow_but(ENDS, CAPS))
def test_random_primitives_of_onednn_stay_inside_and_agree(cap: str) -> None:
    counts = ran("onednn", cap, "1", "300")
    assert counts.keys() == {"request"}
    assert counts["request"] > 60


@pytest.mark.parametrize("cap", slow_but(["sse41", "avx512"], ["sse41", "avx2", "avx512"]))
def test_random_kernels_on_eigen_stay_inside(cap: str) -> None:
    counts = ran("eigen", cap, "2", "440")
    assert sorted(counts) == EIGEN.split()
    assert sum(counts.values()) == 440


@pytest.mark.parametrize("level", slow_but({LEVELS_HERE[0], LEVELS_HERE[-1]}, LEVELS_HERE))
@pytest.mark.parametrize("kind", ["winograd", "depthwise", "direct"])
def test_convolutions_stay_inside_and_are_right(kind: str, level: str) -> None:
    assert ran(kind, level) == {kind: len(convolutions.calls(kind))}


@pytest.mark.parametrize("instructions", NARROW)
def test_products_of_bytes_stay_inside_and_are_exact(instructions: str) -> None:
    counts = ran("narrow", instructions, "1", "240")
    assert counts == dict.fromkeys(("product", "convolution", "depthwise"), 80)


@pytest.mark.parametrize("level", LEVELS_HERE)
def test_products_of_weights_in_blocks_stay_inside_and_agree(level: str) -> None:
    assert ran("blocks", level, "1", "200") == {"blocks": 200}


@pytest.mark.parametrize("cap", slow_but(ENDS, CAPS))
def test_bounds_are_exact(cap: str) -> None:
    assert sum(ran("bounds", cap).values()) > 20


@pytest.mark.parametrize("cap", slow_but(["max"], CAPS))
def test_functions_apart_give_the_same_and_leave_no_code_behind(cap: str) -> None:
    counts = ran("kept code", cap)
    assert cap == "sse41" or counts["apart"] > 10


@pytest.mark.parametrize(("behind", "beyond"), [(True, 10), (False, -1)])
def test_a_guard_stops_an_overrun(behind: bool, beyond: int) -> None:
    code = f"""
import ctypes, numpy, tests.native.guarded.pages as pages
memory = pages.guarded(numpy.zeros(10, numpy.uint8), {behind})
ctypes.memset(memory.ctypes.data, 1, 10)
print(memory.sum(), flush=True)
ctypes.memset(memory.ctypes.data + {beyond}, 1, 1)
"""
    done = run_python("-c", code)
    assert done.stdout.strip() == "10"
    assert done.returncode < 0


def test_a_wrong_primitive_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    source = onednn.Source(1)
    image = dnn.Desc.tag([1, 16, 4, 4], "f32", "abcd")
    primitive = dnn.pooling("max", image, image, *((1, 1),) * 3, *((0, 0),) * 2)
    assert primitive.next_kernel() is not None
    assert onednn.faults(primitive, source) == []
    runs, honest = iter(range(100)), onednn.run

    def spoiled(kernel: dnn.Primitive, values: dict[str, Array]) -> Array:
        memory = honest(kernel, values)
        memory.view(np.float32)[3] += next(runs)
        return memory

    monkeypatch.setattr(onednn, "run", spoiled)
    assert "differs" in onednn.faults(primitive, source)[0]


def test_elements_that_are_not_written_are_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = native.load().softmax(2, 3)
    assert list(eigen.faults(kernel, behind=True)) == []

    def idle(step: object, memory: list[Array]) -> None:
        memory[1].view(np.float32)[1:] = 0

    monkeypatch.setattr("tests.native.guarded.eigen._replay.execute", idle)
    [fault] = eigen.faults(kernel, behind=True)
    assert "4 bytes of dst are not written" in fault


@pytest.mark.parametrize(
    ("alg", "alpha", "what"), [("relu", 0.0, "NaN"), ("hardswish", 2.0**127, "overflow")]
)
def test_inexact_bounds_are_found(alg: str, alpha: float, what: str) -> None:
    """The twin: oneDNN's relu has 0 of NaN, behind a convolution on AVX2 NaN of -infinity instead;
    its hardswish has that everywhere.
    """
    attr = dnn.Attr().eltwise(alg, alpha)
    leads = (bounds.LEADS[name] for name in ("convolution", "matmul"))
    faults = [fault for lead in leads for fault in bounds.wrong(lead, blocked, "f32", inf, attr)]
    assert any(fault.startswith(what) for fault in faults)


def test_bounds_leave_what_is_between_the_rows_of_a_part() -> None:
    whole = plain((1, 18, 14, 15)).submemory((1, 18, 12, 12), (0, 0, 1, 2))

    def make(form: Form, dtype: str, attr: dnn.Attr) -> dnn.Primitive:
        src, weights = plain((1, 20, 12, 12)), dnn.Desc.any((18, 20, 3, 3), "f32")
        return dnn.convolution(src, weights, None, whole, *bounds.WINDOW, attr)

    assert list(bounds.wrong(make, plain, "f32", 2.7, dnn.Attr().bounds(2.7))) == []


def test_gelu_is_right_for_infinities_and_the_largest_numbers() -> None:
    """A kernel may make NaN of inf, and inf of 3e38; ordinary numbers cost nothing."""
    values = np.full((1, 5000), 0.5, np.float32)
    values[0, :5] = np.inf, 3e38, -3e38, np.nan, -np.inf
    form, one = plain((1, 5000)), np.ones((1, 1), np.float32)
    primitive = dnn.matmul(plain((1, 1)), form, None, form, dnn.Attr().gelu())
    [result], _ = bounds.execute(primitive, {"src": one, "weights": values})
    np.testing.assert_array_equal(result[:5], np.array([np.inf, 3e38, 0, np.nan, np.nan], "f4"))
    np.testing.assert_allclose(result[5:], 0.345731, rtol=1e-5)
    before = dnn.bounds_info()
    bounds.execute(primitive, {"src": one, "weights": np.full((1, 5000), 0.5, np.float32)})
    assert dnn.bounds_info()["repeats"] == before["repeats"]
