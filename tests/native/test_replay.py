"""The step runner: what it checks, and a step built from step.h alone, in C."""

from __future__ import annotations

import ctypes
from pathlib import Path

import numpy as np
import pytest

from libdesc.onednn import _onednn as dnn
from tests.native.packing import plain
from tests.native.stepping import (
    Returns,
    StepStruct,
    capsule,
    copied,
    held,
    step_of,
)
from vtensor.runtime import _replay

RELU = dnn.eltwise("relu", plain((4,)), plain((4,)))


def floats(*values: float) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    return np.array(values, np.float32)


def test_runs_on_any_buffer() -> None:
    dst = bytearray(16)
    _replay.execute(RELU, (floats(-1, 2, -3, 4).tobytes(), memoryview(dst)))
    assert list(np.frombuffer(dst, np.float32)) == [0, 2, 0, 4]


def test_takes_larger_buffers() -> None:
    dst = np.full(6, 7, np.float32)
    _replay.execute(RELU, [floats(-1, 2, -3, 4, 5), dst])
    assert list(dst) == [0, 2, 0, 4, 7, 7]


def frozen() -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    array = floats(0, 0, 0, 0)
    array.flags.writeable = False
    return array


X = floats(1, 2, 3, 4)
BYTES = np.zeros(64, np.uint8)

WRONG = {
    "too few": ([X], ValueError, "2 slots, 1 buffers"),
    "too many": ([X, X, X], ValueError, "2 slots, 3 buffers"),
    "too small": ([X, X[:3]], ValueError, r"slot 1 \(dst\) needs 16 bytes, its buffer has 12"),
    "read-only dst": ([X, frozen()], ValueError, r"slot 1 \(dst\) must be writable"),
    "bytes for dst": ([X, bytes(16)], ValueError, "writable"),
    "not contiguous": ([np.zeros(8, np.float32)[::2], X], ValueError, "contiguous"),
    "Fortran order": ([np.zeros((4, 4), np.float32).T, X], ValueError, "contiguous"),
    "misaligned": ([BYTES[1:17], X], ValueError, "multiple of 4"),
    "no buffer": ([X, None], TypeError, "no buffer"),
    "a list": ([X, [1.0, 2.0]], TypeError, "no buffer"),
    "no sequence": (3, TypeError, "incompatible"),
}


@pytest.mark.parametrize("case", WRONG)
def test_refuses_buffers(case: str) -> None:
    slots, error, message = WRONG[case]
    with pytest.raises(error, match=message):
        _replay.execute(RELU, slots)  # type: ignore[arg-type]


def test_scratch_overlaps_nothing() -> None:
    pool: dnn.Primitive | None = dnn.convolution(
        *(plain((1, 3, 9, 9)), plain((8, 3, 3, 3)), None, plain((1, 8, 7, 7))),
        *((1, 1), (1, 1), (0, 0), (0, 0)),
    )
    while pool is not None and pool.scratch_bytes == 0:
        pool = pool.next_kernel()
    assert pool is not None
    sizes = [size for _, size, _ in _replay.describe(pool)["slots"]]
    room = np.zeros(sum(sizes) + 64, np.uint8)
    memory = [room[: sizes[0]], *(np.zeros(size, np.uint8) for size in sizes[1:-1])]
    with pytest.raises(ValueError, match=r"scratch\) is scratch and overlaps slot 0 \(src\)"):
        _replay.execute(pool, [*memory, room[sizes[0] - 64 :]])
    _replay.execute(pool, [*memory, room[sizes[0] :]])


@pytest.mark.parametrize("threads", [-1, 1025, 2**31 - 1])
def test_refuses_numbers_of_threads(threads: int) -> None:
    with pytest.raises(ValueError, match="1 to 1024"):
        _replay.execute(RELU, [X, X.copy()], threads)
    with pytest.raises(ValueError, match="1 to 1024"):
        _replay.set_threads(threads)


@pytest.mark.parametrize("step", [None, 3, "step", Returns(None), Returns(3), Returns(RELU)])
def test_refuses_what_is_no_step(step: object) -> None:
    with pytest.raises(TypeError, match="step"):
        _replay.execute(step, [])
    with pytest.raises(TypeError, match="step"):
        _replay.describe(step)


def test_refuses_a_capsule_of_another_name() -> None:
    with pytest.raises(TypeError, match=r"vtensor\.step"):
        _replay.execute(Returns(capsule(id(RELU), b"dltensor")), [])


@pytest.fixture
def c_step(c_steps: Path) -> StepStruct:
    """A copy, for a test to spoil."""
    return StepStruct.from_buffer_copy(step_of(c_steps, "scale"))


def test_a_step_in_c(c_step: StepStruct) -> None:
    dst = np.zeros(4, np.float32)
    _replay.execute(held(c_step), [X, dst])
    np.testing.assert_array_equal(dst, X * 3)
    assert _replay.describe(held(c_step)) == {
        "kernel": "scale by three",
        "slots": [("src", 16, "read"), ("", 16, "write")],
        "planes": [[16], [16]],
        "alignment": 4,
        "sizes": 0,
        "device": None,
    }


@pytest.mark.parametrize(
    ("name", "reason"),
    [("throws_error", "an exception: thrown"), ("throws_number", "something that is no exception")],
)
def test_a_step_in_cpp_that_throws_has_failed(cpp_steps: Path, name: str, reason: str) -> None:
    with pytest.raises(_replay.StepFailed, match=f"throwing: threw {reason}"):
        _replay.execute(held(step_of(cpp_steps, name)), [])


def test_a_failing_step_gives_its_reason(c_step: StepStruct) -> None:
    with pytest.raises(RuntimeError, match="scale by three: negative: -1"):
        _replay.execute(held(c_step), [-X, X.copy()])
    with pytest.raises(RuntimeError, match="status 7, without a reason"):
        _replay.execute(held(c_step), [X * 0, X.copy()])


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("abi", 1, r"version 1, this build takes version 2: rebuild .* vtensor.get_include\(\)"),
        ("abi", 3, "version 3"),
        ("abi", 0, "version 0"),
        ("struct_bytes", 79, "struct has 79 bytes, not the 80 of its ABI version"),
        ("size_count", 1, "takes sizes and has no function that says their bytes"),
        ("run", None, "no function"),
        ("kernel", None, "no kernel name"),
        ("slots", None, "describes none"),
    ],
)
def test_refuses_a_malformed_step(
    c_step: StepStruct, field: str, value: int | None, message: str
) -> None:
    setattr(c_step, field, value)
    with pytest.raises(ValueError, match=message):
        _replay.execute(held(c_step), [X, X.copy()])
    with pytest.raises(ValueError, match=message):
        _replay.describe(held(c_step))


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("access", 0, "unknown access 0"),
        ("access", 5, "unknown access 5"),
        ("alignment", 0, "no power of two"),
        ("alignment", 12, "no power of two"),
        ("planes", 0, "slot 1 has 0 planes, not 1 to 16"),
        ("planes", 17, "slot 1 has 17 planes, not 1 to 16"),
        ("planes", 2, "slot 1 has 2 planes and describes one"),
    ],
)
def test_refuses_a_malformed_slot(c_steps: Path, field: str, value: int, message: str) -> None:
    step, slots = copied(c_steps, "scale")
    setattr(slots[1], field, value)
    with pytest.raises(ValueError, match=message):
        _replay.execute(held(step), [X, X.copy()])


def test_takes_a_struct_with_later_members(c_step: StepStruct) -> None:
    class Larger(ctypes.Structure):
        _fields_ = (("step", StepStruct), ("later", ctypes.c_void_p))

    larger = Larger(c_step, 1)
    larger.step.struct_bytes = ctypes.sizeof(Larger)
    _replay.execute(held(larger.step), [X, dst := X.copy()])
    np.testing.assert_array_equal(dst, X * 3)


def test_a_step_that_raises_in_python_first() -> None:
    class Broken:
        def __vtensor_step__(self) -> object:
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        _replay.execute(Broken(), [])
