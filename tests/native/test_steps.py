"""Primitives as steps: the cache, lifetimes, threads, concurrent runs, empty tensors."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from libdesc.onednn import _onednn as dnn
from tests.native.packing import buffers, channels_last, plain, random, run, unpack
from vtensor.runtime import _replay


@pytest.fixture(autouse=True)
def _fresh_cache() -> Iterator[None]:
    capacity = dnn.cache_info()["capacity"]
    dnn.cache_clear()
    yield
    dnn.set_cache_capacity(capacity)


def relu(size: int) -> dnn.Primitive:
    return dnn.eltwise("relu", plain((size,)), plain((size,)))


def conv(attr: dnn.Attr | None = None) -> dnn.Primitive:
    return dnn.convolution(
        plain((1, 16, 6, 6)),
        dnn.Desc.any((16, 16, 3, 3), "f32"),
        None,
        dnn.Desc.any((1, 16, 6, 6), "f32"),
        *((1, 1), (1, 1), (1, 1), (1, 1)),
        attr,
    )


def test_equal_requests_give_one_object() -> None:
    assert conv() is conv(dnn.Attr())
    assert dnn.cache_info() == {"hits": 1, "misses": 1, "size": 1, "capacity": 256}
    second = conv().next_kernel()
    assert second is not None
    assert second is conv().next_kernel()
    assert second is not conv()


def test_any_difference_gives_another_object() -> None:
    shape = (2, 3)
    made = [
        dnn.eltwise("relu", plain(shape), plain(shape)),
        dnn.eltwise("relu", plain(shape), plain(shape), 0.5),
        dnn.eltwise("relu", plain(shape), plain(shape), 0.0, 0.5),
        dnn.eltwise("tanh", plain(shape), plain(shape)),
        dnn.eltwise("relu", plain((3, 2)), plain((3, 2))),
        dnn.eltwise("relu", plain(shape), plain(shape), attr=dnn.Attr().eltwise("relu")),
        dnn.eltwise("relu", plain(shape), plain(shape), attr=dnn.Attr("bf16")),
    ]
    assert len({id(p) for p in made}) == len(made)


def test_number_of_threads_is_part_of_the_key() -> None:
    before = _replay.threads()
    try:
        _replay.set_threads(1)
        one = conv()
        _replay.set_threads(2)
        two = conv()
    finally:
        _replay.set_threads(before)
    assert one is not two
    assert (one.threads, two.threads) == (1, 2)


def test_the_least_recently_used_goes_first() -> None:
    dnn.set_cache_capacity(2)
    for size in (1, 2, 1, 3):
        relu(size)
    dnn.cache_let_go()
    assert described(1, 3) == 0
    assert described(2) == 1
    assert dnn.cache_info()["size"] == 2


def test_what_a_step_holds_is_found() -> None:
    dnn.set_cache_capacity(0)
    held = relu(1)
    assert relu(1) is held
    assert dnn.cache_info()["size"] == 0
    del held
    gc.collect()
    assert described(1) == 1


def test_a_thread_holds_what_it_makes_until_it_says_so() -> None:
    dnn.set_cache_capacity(1)
    for size in (1, 2, 3):
        relu(size)
    other = threading.Thread(target=dnn.cache_let_go)
    other.start()
    other.join()
    assert described(1, 2, 3) == 0
    dnn.cache_let_go()
    assert described(3) == 0
    assert described(1, 2) == 2


def test_a_thread_holds_a_limited_number() -> None:
    dnn.set_cache_capacity(1)
    for size in range(1, 7):
        relu(size)
    assert described(3) == 0
    assert described(1) == 1


def described(*sizes: int) -> int:
    """Return how many of these are not there yet."""
    before = dnn.cache_info()["misses"]
    for size in sizes:
        relu(size)
    return dnn.cache_info()["misses"] - before


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
    rng = np.random.default_rng(1)
    x = random(rng, 5)
    primitive = relu(5)
    dst, memory = primitive.descs["dst"], buffers(primitive, {"src": x})
    capsule = primitive.__vtensor_step__()
    del primitive
    dnn.cache_clear()
    gc.collect()
    _replay.execute(capsule, memory)
    np.testing.assert_array_equal(unpack(memory[1], dst), np.maximum(x, 0))


def test_descriptors_may_go_before_the_primitive() -> None:
    src, dst = plain((7,)), plain((7,))
    primitive = dnn.eltwise("relu", src, dst)
    del src, dst
    gc.collect()
    assert primitive.descs["src"] == plain((7,))
    assert run(primitive, src=np.full(7, -1, np.float32)).max() == 0


def test_one_step_runs_in_four_threads_at_once() -> None:
    rng = np.random.default_rng(2)
    w = random(rng, 16, 16, 3, 3)
    inputs = [random(rng, 1, 16, 6, 6) for _ in range(4)]
    primitive = conv()
    expected = [run(primitive, src=x, weights=w) for x in inputs]
    start = threading.Barrier(4)

    def many(i: int) -> bool:
        start.wait()
        same = [
            np.array_equal(run(primitive, src=inputs[i], weights=w), expected[i]) for _ in range(50)
        ]
        return all(same)

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(many, range(4)))


def test_one_primitive_is_made_and_compiled_in_four_threads_at_once() -> None:
    start = threading.Barrier(4)

    def make(_: int) -> tuple[dnn.Primitive, object]:
        start.wait()
        primitive = conv()
        return primitive, primitive.__vtensor_step__()

    with ThreadPoolExecutor(4) as pool:
        made = list(pool.map(make, range(4)))
    assert len({id(primitive) for primitive, _ in made}) == 1


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_runs_with_the_threads_it_was_made_for(threads: int) -> None:
    rng = np.random.default_rng(3)
    x, w = random(rng, 1, 16, 6, 6), random(rng, 16, 16, 3, 3)
    expected = run(conv(), src=x, weights=w)
    before = _replay.threads()
    try:
        _replay.set_threads(threads)
        primitive = conv()
        _replay.set_threads(4)
        memory = buffers(primitive, {"src": x, "weights": w})
        _replay.execute(primitive, memory, threads=2)
        assert _replay.threads() == 4
    finally:
        _replay.set_threads(before)
    result = unpack(memory[primitive.slots.index("dst")], primitive.descs["dst"])
    np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-5)


EMPTY = plain((0, 3))


@pytest.mark.parametrize(
    "primitive",
    [
        lambda: dnn.eltwise("relu", EMPTY, EMPTY),
        lambda: dnn.binary("add", EMPTY, plain((1, 3)), EMPTY),
        lambda: dnn.reorder(dnn.Desc.strided((0, 32), "f32", (35, 1)), plain((0, 32))),
        lambda: dnn.matmul(EMPTY, plain((3, 4)), None, plain((0, 4))),
        lambda: dnn.softmax(EMPTY, EMPTY, 1),
        lambda: dnn.concat(0, [EMPTY, EMPTY]),
        lambda: dnn.reduction("sum", EMPTY, plain((0, 1))),
        lambda: dnn.convolution(
            *(plain((0, 3, 5)), plain((2, 3, 3)), None, plain((0, 2, 3))),
            *((1,), (1,), (0,), (0,)),
        ),
        lambda: dnn.pooling(
            *("max", plain((0, 3, 5)), plain((0, 3, 4))), *((2,), (1,), (1,), (0,), (0,))
        ),
    ],
)
def test_empty_tensors_are_no_work(primitive: object) -> None:
    made = primitive()  # type: ignore[operator]
    inputs = {
        name: np.zeros(desc.dims, np.float32) for name, desc in made.descs.items() if name != "dst"
    }
    assert run(made, **inputs).size == 0


def test_kernels_need_no_alignment_beyond_their_elements() -> None:
    rng = np.random.default_rng(5)
    x, w = random(rng, 1, 16, 6, 6), random(rng, 16, 16, 3, 3)
    form = channels_last(x.shape)
    primitive: dnn.Primitive | None = dnn.convolution(
        *(form, dnn.Desc.any(w.shape, "f32"), None, form), *((1, 1), (1, 1), (1, 1), (1, 1))
    )
    expected = None
    while primitive is not None:
        memory = []
        for buffer in buffers(primitive, {"src": x, "weights": w}):
            room = np.zeros(buffer.nbytes + 128, np.uint8)
            at = -room.ctypes.data % 64 + 4
            memory.append(room[at : at + buffer.nbytes])
            memory[-1][:] = buffer
        _replay.execute(primitive, memory)
        result = unpack(memory[primitive.slots.index("dst")].copy(), form)
        expected = result if expected is None else expected
        np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-4)
        primitive = primitive.next_kernel()
