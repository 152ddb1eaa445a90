"""The step runner: what it checks, and a step built from step.h alone, in C."""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path

import numpy as np
import pytest

from libdesc.onednn import _onednn as dnn
from tests.native.packing import plain
from vtensor.runtime import _replay

ROOT = Path(__file__).parents[2]
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


class Returns:
    """Says that it is a step."""

    def __init__(self, answer: object) -> None:
        self.answer = answer

    def __vtensor_step__(self) -> object:
        return self.answer


def capsule(pointer: int, name: bytes) -> object:
    make = ctypes.pythonapi.PyCapsule_New
    make.restype = ctypes.py_object
    make.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    return make(pointer, name, None)


@pytest.mark.parametrize("step", [None, 3, "step", Returns(None), Returns(3), Returns(RELU)])
def test_refuses_what_is_no_step(step: object) -> None:
    with pytest.raises(TypeError, match="step"):
        _replay.execute(step, [])
    with pytest.raises(TypeError, match="step"):
        _replay.describe(step)


def test_refuses_a_capsule_of_another_name() -> None:
    with pytest.raises(TypeError, match=r"vtensor\.step"):
        _replay.execute(Returns(capsule(id(RELU), b"dltensor")), [])


C_STEP = r"""
#include "vtensor/step.h"
#include <stdio.h>

static int owners = 0;

static int scale(void *context, void *const *slots, char *error, size_t error_bytes) {
    const float *src = (const float *)slots[0];
    float *dst = (float *)slots[1];
    if (src[0] < 0) {
        snprintf(error, error_bytes, "negative: %g", src[0]);
        return 7;
    }
    if (src[0] == 0) return 7;
    for (int i = 0; i < 4; ++i) dst[i] = src[i] * *(const float *)context;
    return 0;
}
static void retain(void *context) { (void)context; ++owners; }
static void release(void *context) { (void)context; --owners; }

static float factor = 3.0f;
static const vtensor_slot slots[] = {
    {4 * sizeof(float), VTENSOR_READ, sizeof(float), "src"},
    {4 * sizeof(float), VTENSOR_WRITE, 1, NULL},
};
vtensor_step step = {
    VTENSOR_STEP_ABI, 2, slots, "scale by three", &factor, scale, retain, release,
};
"""

STEP_FIELDS: list[tuple[str, type]] = [
    ("abi", ctypes.c_uint32),
    ("slot_count", ctypes.c_uint32),
    ("slots", ctypes.c_void_p),
    ("kernel", ctypes.c_void_p),
    ("context", ctypes.c_void_p),
    ("run", ctypes.c_void_p),
    ("retain", ctypes.c_void_p),
    ("release", ctypes.c_void_p),
]


class StepStruct(ctypes.Structure):
    """vtensor_step."""

    _fields_ = STEP_FIELDS


class SlotStruct(ctypes.Structure):
    """vtensor_slot."""

    _fields_ = [
        ("bytes", ctypes.c_size_t),
        ("access", ctypes.c_uint32),
        ("alignment", ctypes.c_uint32),
        ("name", ctypes.c_char_p),
    ]


def build(folder: Path, *command: str) -> ctypes.CDLL:
    """A library with nothing but step.h and a compiler."""
    source, library = folder / "step.c", folder / "step.so"
    source.write_text(C_STEP)
    flags = ["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-shared", "-fPIC"]
    subprocess.run(
        [*command, *flags, f"-I{ROOT / 'native' / 'include'}", str(source), "-o", str(library)],
        check=True,
    )
    return ctypes.CDLL(str(library))


@pytest.fixture(scope="module")
def c_library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    return build(tmp_path_factory.mktemp("step"), "gcc", "-std=c99")


@pytest.fixture
def c_step(c_library: ctypes.CDLL) -> StepStruct:
    """A copy, for a test to spoil."""
    return StepStruct.from_buffer_copy(StepStruct.in_dll(c_library, "step"))


def held(step: StepStruct) -> Returns:
    return Returns(capsule(ctypes.addressof(step), b"vtensor.step"))


def test_a_step_in_c(c_step: StepStruct) -> None:
    dst = np.zeros(4, np.float32)
    _replay.execute(held(c_step), [X, dst])
    np.testing.assert_array_equal(dst, X * 3)
    assert _replay.describe(held(c_step)) == {
        "kernel": "scale by three",
        "slots": [("src", 16, "read"), ("", 16, "write")],
        "alignment": 4,
    }


def test_step_h_is_also_cpp(tmp_path: Path) -> None:
    source = C_STEP.replace(
        "static int owners", 'extern "C" {\nextern vtensor_step step;\n}\nstatic int owners'
    )
    (tmp_path / "step.cpp").write_text(source)
    command = ["g++", "-std=c++17", "-Wall", "-Wextra", "-Werror", "-fsyntax-only"]
    subprocess.run(
        [*command, f"-I{ROOT / 'native' / 'include'}", str(tmp_path / "step.cpp")], check=True
    )


def test_a_failing_step_gives_its_reason(c_step: StepStruct) -> None:
    with pytest.raises(RuntimeError, match="scale by three: negative: -1"):
        _replay.execute(held(c_step), [-X, X.copy()])
    with pytest.raises(RuntimeError, match="status 7, without a reason"):
        _replay.execute(held(c_step), [X * 0, X.copy()])


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("abi", 2, "version 2, this build takes version 1"),
        ("abi", 0, "version 0"),
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
    ],
)
def test_refuses_a_malformed_slot(c_step: StepStruct, field: str, value: int, message: str) -> None:
    slots = (SlotStruct * 2).from_buffer_copy((SlotStruct * 2).from_address(c_step.slots))
    setattr(slots[1], field, value)
    c_step.slots = ctypes.addressof(slots)
    with pytest.raises(ValueError, match=message):
        _replay.execute(held(c_step), [X, X.copy()])


def test_a_step_that_raises_in_python_first() -> None:
    class Broken:
        def __vtensor_step__(self) -> object:
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        _replay.execute(Broken(), [])
