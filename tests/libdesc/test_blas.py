"""Threads of NumPy's products during runs."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from ptensor.blas import _setter, on_one_thread
from tests.frontends.support import f32, model
from tests.libraries.processes import printed
from vtensor import Session


@pytest.fixture
def threads(others_done: None) -> Callable[[], int]:
    """The number of threads of NumPy's products."""
    core: Any = np._core._multiarray_umath  # type: ignore[attr-defined]
    library = ctypes.CDLL(core.__file__)
    if _setter() is None or not hasattr(library, name := "scipy_openblas_get_num_threads64_"):
        pytest.skip("NumPy has no OpenBLAS that tells its threads")
    count: Callable[[], int] = getattr(library, name)
    return count


def test_nested_and_concurrent_blocks_have_one_thread(threads: Callable[[], int]) -> None:
    before = threads()
    assert on_one_thread(lambda: [threads(), on_one_thread(threads), threads()]) == [1, 1, 1]
    assert threads() == before
    with ThreadPoolExecutor(8) as pool:
        counts = list(pool.map(lambda _: on_one_thread(threads), range(1000)))
    assert set(counts) == {1}
    assert threads() == before


def test_constants_are_computed_on_one_thread(
    threads: Callable[[], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where runs with other sizes are waited for."""
    seen = list[int]()

    def noted(array: Any) -> Any:
        seen.append(threads())
        return array

    monkeypatch.setattr("ops.matmul.wide", noted)
    monkeypatch.setattr("ops._layers_ahead.wide", noted)
    body = "s = Shape(x) e = Expand(a, s) m = MatMul(e, b) y = Add(x, m)"
    proto = model(f"g (float[n, 4] x) => (float[n, 4] y) {{ {body} }}", a=f32(1, 4), b=f32(4, 4))
    before = threads()
    with Session(proto, threads=1, cache_dir=None) as session:
        for n in (2, 3, 5):
            seen.clear()
            session.run(None, {"x": f32(n, 4)})
            assert {*seen} == {1}
    assert threads() == before


#: Prints whether OpenBLAS has threads, before and after a first name of VTensor and a product.
COUNTED = """
import ctypes, threading
from pathlib import Path
import numpy as np
import vtensor
core = ctypes.CDLL(np._core._multiarray_umath.__file__)
there = lambda: int(ctypes.c_int.in_dll(core, "blas_server_avail").value)
done = threading.Event()
if {beside}:
    threading.Thread(target=done.wait).start()
before = there()
vtensor.Session
told, one = [before, there()], np.ones((600, 600), np.float32)
from ptensor.blas import on_one_thread
told += on_one_thread(lambda: [int((one @ one)[0, 0]), there()])
told += [int((one @ one)[0, 0]), there()]
done.set()
print(*told)
"""


@pytest.mark.parametrize("beside", [False, True])
def test_threads_that_would_spin_end(threads: Callable[[], int], beside: bool) -> None:
    """Not where another thread may be in the middle of a product; products start them again."""
    core: Any = np._core._multiarray_umath  # type: ignore[attr-defined]
    if threads() == 1 or not hasattr(ctypes.CDLL(core.__file__), "blas_server_avail"):
        pytest.skip("NumPy's products have no threads that could be seen")
    output = printed("-c", COUNTED.format(beside=beside))
    kept = int(beside)
    assert [*map(int, output.split())] == [1, kept, 600, kept, 600, 1]
