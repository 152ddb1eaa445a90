"""Primitives as steps: the cache, lifetimes, threads, concurrent runs, empty tensors."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import numpy as np
import pytest

from libdesc.onednn import _onednn as dnn
from tests.native.packing import buffers, channels_last, plain, random, run, unpack
from vtensor.runtime import _replay

ONES = ((1, 1), (1, 1), (1, 1), (1, 1))


@pytest.fixture(autouse=True)
def _fresh_cache() -> Iterator[None]:
    capacity = dnn.cache_info()["capacity"]
    dnn.cache_clear()
    yield
    dnn.set_cache_capacity(capacity)


@contextmanager
def budget(threads: int) -> Iterator[None]:
    """Give primitives so many threads inside the block."""
    before = _replay.threads()
    _replay.set_threads(threads)
    try:
        yield
    finally:
        _replay.set_threads(before)


def relu(size: int) -> dnn.Primitive:
    return dnn.eltwise("relu", plain((size,)), plain((size,)))


def conv(attr: dnn.Attr | None = None) -> dnn.Primitive:
    weights, dst = dnn.Desc.any((16, 16, 3, 3), "f32"), dnn.Desc.any((1, 16, 6, 6), "f32")
    return dnn.convolution(plain((1, 16, 6, 6)), weights, None, dst, *ONES, attr)


def misses(*sizes: int) -> int:
    """Return how many of these are not in the cache yet."""
    before = dnn.cache_info()["misses"]
    for size in sizes:
        relu(size)
    return dnn.cache_info()["misses"] - before


def test_equal_requests_give_one_object() -> None:
    assert conv() is conv(dnn.Attr())
    assert dnn.cache_info() == {"hits": 1, "misses": 1, "size": 1, "capacity": 256}
    second = conv().next_kernel()
    assert second is not None
    assert second is conv().next_kernel()
    assert second is not conv()


def test_any_difference_gives_another_object() -> None:
    x = plain((2, 3))
    requests = [
        dnn.eltwise("relu", x, x),
        dnn.eltwise("relu", x, x, 0.5),
        dnn.eltwise("relu", x, x, 0.0, 0.5),
        dnn.eltwise("tanh", x, x),
        dnn.eltwise("relu", plain((3, 2)), plain((3, 2))),
        dnn.eltwise("relu", x, x, attr=dnn.Attr().eltwise("relu")),
        dnn.eltwise("relu", x, x, attr=dnn.Attr("bf16")),
    ]
    assert len({id(primitive) for primitive in requests}) == len(requests)


def test_the_number_of_threads_is_part_of_the_key() -> None:
    with budget(1):
        single = conv()
    with budget(2):
        pair = conv()
    assert single is not pair
    assert (single.threads, pair.threads) == (1, 2)


def test_the_least_recently_used_goes_first() -> None:
    dnn.set_cache_capacity(2)
    for size in (1, 2, 1, 3):
        relu(size)
    dnn.cache_let_go()
    assert misses(1, 3) == 0
    assert misses(2) == 1
    assert dnn.cache_info()["size"] == 2


def test_what_a_step_holds_is_found() -> None:
    dnn.set_cache_capacity(0)
    held = relu(1)
    assert relu(1) is held
    assert dnn.cache_info()["size"] == 0
    del held
    gc.collect()
    assert misses(1) == 1


def test_a_thread_holds_what_it_makes_until_it_says_so() -> None:
    dnn.set_cache_capacity(1)
    for size in (1, 2, 3):
        relu(size)
    other = threading.Thread(target=dnn.cache_let_go)
    other.start()
    other.join()
    assert misses(1, 2, 3) == 0
    dnn.cache_let_go()
    assert misses(3) == 0
    assert misses(1, 2) == 2


def test_a_thread_holds_a_limited_number() -> None:
    dnn.set_cache_capacity(1)
    for size in range(1, 7):
        relu(size)
    assert misses(3) == 0
    assert misses(1) == 1


def test_slots_and_descs_agree() -> None:
    primitive = conv()
    assert primitive.kind == "convolution"
    assert list(primitive.descs) == [name for name in primitive.slots if name != "scratch"]
    described = _replay.describe(primitive)
    assert described["kernel"] == primitive.kernel
    sizes = {name: desc.nbytes for name, desc in primitive.descs.items()}
    sizes |= {"scratch": primitive.scratch_bytes} if primitive.scratch_bytes else {}
    access = {"dst": "write", "scratch": "scratch"}
    expected = [(name, sizes[name], access.get(name, "read")) for name in primitive.slots]
    assert described["slots"] == expected


def test_nothing_but_the_capsule_needs_to_live() -> None:
    x = random(np.random.default_rng(1), 5)
    src, dst = plain((5,)), plain((5,))
    primitive = dnn.eltwise("relu", src, dst)
    del src, dst
    gc.collect()
    assert primitive.descs["src"] == plain((5,))
    dst, memory = primitive.descs["dst"], buffers(primitive, {"src": x})
    capsule = primitive.__vtensor_step__()
    del primitive
    dnn.cache_clear()
    gc.collect()
    _replay.execute(capsule, memory)
    np.testing.assert_array_equal(unpack(memory[1], dst), np.maximum(x, 0))


def test_one_step_is_made_and_runs_in_four_threads_at_once() -> None:
    rng, start = np.random.default_rng(2), threading.Barrier(4)
    w = random(rng, 16, 16, 3, 3)
    inputs = [random(rng, 1, 16, 6, 6) for _ in range(4)]

    def many(i: int) -> tuple[dnn.Primitive, bool]:
        start.wait()
        primitive = conv()
        primitive.__vtensor_step__()
        first, *others = (run(primitive, src=inputs[i], weights=w) for _ in range(50))
        results[i] = first
        return primitive, all(np.array_equal(other, first) for other in others)

    results = [np.zeros(0)] * 4
    with ThreadPoolExecutor(4) as pool:
        made = list(pool.map(many, range(4)))
    assert {id(primitive) for primitive, _ in made} == {id(conv())}
    assert all(same for _, same in made)
    for x, result in zip(inputs, results, strict=True):
        np.testing.assert_array_equal(run(conv(), src=x, weights=w), result)


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_a_primitive_runs_with_the_threads_it_was_made_for(threads: int) -> None:
    rng = np.random.default_rng(3)
    x, w = random(rng, 1, 16, 6, 6), random(rng, 16, 16, 3, 3)
    expected = run(conv(), src=x, weights=w)
    with budget(threads):
        primitive = conv()
    memory = buffers(primitive, {"src": x, "weights": w})
    with budget(4):
        _replay.execute(primitive, memory, threads=2)
        assert _replay.threads() == 4
    result = unpack(memory[primitive.slots.index("dst")], primitive.descs["dst"])
    np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-5)


EMPTY, STEP = plain((0, 3)), ((1,), (1,), (0,), (0,))


@pytest.mark.parametrize(
    "make",
    [
        lambda: dnn.eltwise("relu", EMPTY, EMPTY),
        lambda: dnn.binary("add", EMPTY, plain((1, 3)), EMPTY),
        lambda: dnn.reorder(dnn.Desc.strided((0, 32), "f32", (35, 1)), plain((0, 32))),
        lambda: dnn.matmul(EMPTY, plain((3, 4)), None, plain((0, 4))),
        lambda: dnn.softmax(EMPTY, EMPTY, 1),
        lambda: dnn.concat(0, [EMPTY, EMPTY]),
        lambda: dnn.reduction("sum", EMPTY, plain((0, 1))),
        lambda: dnn.convolution(plain((0, 3, 5)), plain((2, 3, 3)), None, plain((0, 2, 3)), *STEP),
        lambda: dnn.pooling("max", plain((0, 3, 5)), plain((0, 3, 4)), (2,), *STEP),
    ],
)
def test_empty_tensors_are_no_work(make: Callable[[], dnn.Primitive]) -> None:
    primitive = make()
    inputs = {n: np.zeros(d.dims, np.float32) for n, d in primitive.descs.items() if n != "dst"}
    assert run(primitive, **inputs).size == 0


def test_kernels_need_no_alignment_beyond_their_elements() -> None:
    rng = np.random.default_rng(5)
    x, w = random(rng, 1, 16, 6, 6), random(rng, 16, 16, 3, 3)
    form, weights = channels_last(x.shape), dnn.Desc.any(w.shape, "f32")
    kernel: dnn.Primitive | None = dnn.convolution(form, weights, None, form, *ONES)
    expected = None
    while kernel is not None:
        memory = []
        for buffer in buffers(kernel, {"src": x, "weights": w}):
            room = np.zeros(buffer.nbytes + 128, np.uint8)
            at = -room.ctypes.data % 64 + 4
            memory.append(room[at : at + buffer.nbytes])
            memory[-1][:] = buffer
        _replay.execute(kernel, memory)
        result = unpack(memory[kernel.slots.index("dst")].copy(), form)
        expected = result if expected is None else expected
        np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-4)
        kernel = kernel.next_kernel()
