"""Kernels stay inside the bytes that their slots state, and agree with one another."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from libdesc.onednn import _onednn as dnn
from tests.native import guarded
from tests.native.packing import Array

ROOT = Path(__file__).parents[2]


def python(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        timeout=120,
    )


@pytest.mark.parametrize("isa", ["max", "avx2", "sse41"])
def test_random_primitives_between_guards(isa: str) -> None:
    done = python("-m", "tests.native.guarded", "1", "300", isa)
    last = done.stderr.strip().splitlines()[-1:]
    assert done.returncode == 0, f"{done.stdout}\n{last}"
    ran = int(done.stdout.split()[-5])
    assert ran > 60


def test_a_guard_stops_an_overrun() -> None:
    code = """
import ctypes, numpy, tests.native.guarded as g
memory = g.guarded(numpy.zeros(10, numpy.uint8))
ctypes.memset(memory.ctypes.data, 1, 10)
print(memory.sum(), flush=True)
ctypes.memset(memory.ctypes.data, 1, 11)
"""
    done = python("-c", code)
    assert done.stdout.strip() == "10"
    assert done.returncode < 0


def test_a_wrong_kernel_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    source = guarded.Source(1)
    shape = [1, 16, 4, 4]
    primitive = dnn.pooling(
        "max", *(dnn.Desc.tag(shape, "f32", "abcd"),) * 2, *((1, 1),) * 3, *((0, 0),) * 2
    )
    assert primitive.next_kernel() is not None
    assert guarded.faults(primitive, source) == []
    runs = iter(range(100))
    honest = guarded.run

    def spoiled(kernel: dnn.Primitive, values: dict[str, Array]) -> Array:
        memory = honest(kernel, values)
        memory.view(np.float32)[3] += next(runs)
        return memory

    monkeypatch.setattr(guarded, "run", spoiled)
    assert "differs" in guarded.faults(primitive, source)[0]
