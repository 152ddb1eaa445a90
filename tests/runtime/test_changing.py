"""Shapes that change between runs, from one thread or eight, and runs that are too large."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from random import Random
from typing import Any

import numpy as np
import pytest

from tests.frontends.support import f32, model
from tests.libraries.processes import printed
from vtensor import Session
from vtensor.errors import BudgetError, InputError, VTensorError

TEXT = "g (float[n, c, h, w] x) => (float[n, 8, h, w] y) { a = Conv(x, k) y = Relu(a) }"
SHAPES = [(n, 4, h, w) for n in (1, 2) for h, w in ((6, 5), (5, 6), (9, 3), (1, 1), (16, 16))]


def convolution() -> Session:
    """Of any number of images of any size, with four channels."""
    return Session(model(TEXT, k=f32(8, 4, 1, 1)), threads=1)


def test_each_shape_has_its_answer_in_any_order() -> None:
    """Ten shapes, more than plans are kept of."""
    images = [f32(*shape) for shape in SHAPES]
    with convolution() as session:
        wanted = [session.run(None, {"x": x})[0] for x in images]
        for index in Random(1).choices(range(len(images)), k=50):
            [found] = session.run(None, {"x": images[index]})
            np.testing.assert_array_equal(found, wanted[index])


@pytest.mark.parametrize("given", [(1, 5, 6, 6), (1, 4, 6), (1, 4, 6, 6, 1), (1, 4, 0, 6)])
def test_a_shape_that_does_not_fit_changes_nothing(given: tuple[int, ...]) -> None:
    with convolution() as session:
        x = f32(1, 4, 6, 6)
        [want] = session.run(None, {"x": x})
        for wrong in (f32(*given), x.astype(np.float64)):
            with pytest.raises(VTensorError, match=r"Conv|'x'"):
                session.run(None, {"x": wrong})
            np.testing.assert_array_equal(session.run(None, {"x": x})[0], want)


def test_eight_threads_with_shapes_of_their_own() -> None:
    images = [f32(*shape) for shape in SHAPES]
    with convolution() as alone:
        wanted = [alone.run(None, {"x": x})[0] for x in images]
    with convolution() as session:

        def caller(seed: int) -> None:
            for index in Random(seed).choices(range(len(images)), k=30):
                out = {"y": np.empty_like(wanted[index])} if seed % 2 else None
                [found] = session.run(None, {"x": images[index]}, out=out)
                np.testing.assert_array_equal(found, wanted[index])

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(caller, range(8)))
        assert session.memory.arena >= session.memory.planned


#: A small run, one for which the process may not have the memory, and the small one again.
LARGE = """
import resource, sys
import numpy as np
from tests.frontends.support import f32, model
from vtensor import Session
from vtensor.errors import BudgetError
text = "g (float[n, 4] x) => (float[n, 4] y) { a = MatMul(x, v) b = Relu(a) y = MatMul(b, w) }"
with Session(model(text, v=f32(4, 4096), w=f32(4096, 4)), threads=1) as session:
    small, large = f32(2, 4), f32(100_000, 4)
    [want] = session.run(None, {"x": small})
    pages = int(open("/proc/self/statm").read().split()[0])
    limit = pages * resource.getpagesize() + (300 << 20)
    if sys.argv[1:]:
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    for _ in range(2):
        try:
            session.run(None, {"x": large})
        except BudgetError as error:
            print(str(error).splitlines()[0].split(":")[0])
        [found] = session.run(None, {"x": small})
        assert found.tobytes() == want.tobytes()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the system's limit is asked of /proc")
@pytest.mark.parametrize("limited", [True, False])
def test_memory_that_the_system_does_not_give(limited: bool) -> None:
    """A matrix of 1.6 GB where there are 300 MiB; the twin has them."""
    output = printed("-c", LARGE, *["limited"] * limited)
    said = "memory ran out before the budget did"
    assert output.splitlines() == [said] * 2 * limited


def test_a_plan_over_the_budget_leaves_the_session_as_it_was() -> None:
    text = "g (float[n, 4] x) => (float[n, 8] y) { a = MatMul(x, w) y = Relu(a) }"
    given: Any = {"threads": 1, "max_bytes": 100_000, "deterministic": True}  # makes no room
    with Session(model(text, w=f32(4, 8)), **given) as session:
        x = f32(3, 4)
        [want] = session.run(None, {"x": x})
        before = session.memory
        for _ in range(2):
            with pytest.raises(BudgetError, match="to fix: raise max_bytes="):
                session.run(None, {"x": f32(10_000, 4)})
            with pytest.raises(BudgetError):
                session.bind({"x": f32(10_000, 4)})
            np.testing.assert_array_equal(session.run(None, {"x": x})[0], want)
        assert session.memory == before


def test_a_binding_stays_with_its_shape() -> None:
    with convolution() as session:
        x = f32(1, 4, 6, 6)
        binding = session.bind({"x": x})
        [want] = session.run(None, {"x": x})
        session.run(None, {"x": f32(2, 4, 9, 3)})
        binding.run()
        np.testing.assert_array_equal(binding.outputs["y"], want)
        with pytest.raises(InputError):
            session.bind({"x": x}, {"y": np.empty((1, 8, 6, 7), np.float32)})
