"""The step runner: what it checks, and steps built from step.h alone, also of several planes."""

from __future__ import annotations

import ctypes
import re
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from libdesc.onednn import _onednn as dnn
from tests.native.guarded.pages import guarded
from tests.native.packing import plain
from tests.native.stepping import (
    Array,
    NamedSteps,
    Returns,
    StepStruct,
    capsule,
    copied,
    floats,
    frozen,
    held,
    step_of,
)
from vtensor.runtime._replay import (
    Arena,
    Program,
    StepFailed,
    Team,
    describe,
    empty_step,
    execute,
    set_threads,
)

RELU = dnn.eltwise("relu", plain((4,)), plain((4,)))
X = floats(1, 2, 3, 4)
BYTES = np.zeros(64, np.uint8)
#: The planes of ``join``, two bytes and one, and what they are together.
HIGH, LOW = np.array([1, 2, 300, 4], np.int16), np.array([128, 64, 0, 255], np.uint8)
JOINED = HIGH + LOW / np.float32(256)


def test_a_step_runs_on_any_buffer_and_leaves_what_is_larger() -> None:
    dst = bytearray(16)
    execute(RELU, (floats(-1, 2, -3, 4).tobytes(), memoryview(dst)))
    assert list(np.frombuffer(dst, np.float32)) == [0, 2, 0, 4]
    larger = np.full(6, 7, np.float32)
    execute(RELU, [floats(-1, 2, -3, 4, 5), larger])
    assert list(larger) == [0, 2, 0, 4, 7, 7]


#: The step, its buffers, the error, and what it says.
WRONG_BUFFERS: dict[str, tuple[str, Any, type[Exception], str]] = {
    "too few": ("relu", [X], ValueError, "2 slots, 1 buffers"),
    "too many": ("relu", [X, X, X], ValueError, "2 slots, 3 buffers"),
    "small": ("relu", [X, X[:3]], ValueError, r"t 1 \(dst\) needs 16 bytes, its buffer has 12"),
    "read-only dst": ("relu", [X, frozen()], ValueError, r"slot 1 \(dst\) must be writable"),
    "bytes for dst": ("relu", [X, bytes(16)], ValueError, "writable"),
    "not contiguous": ("relu", [np.zeros(8, np.float32)[::2], X], ValueError, "contiguous"),
    "Fortran order": ("relu", [np.zeros((4, 4), np.float32).T, X], ValueError, "contiguous"),
    "misaligned": ("relu", [BYTES[1:17], X], ValueError, "multiple of 4"),
    "no buffer": ("relu", [X, None], TypeError, "no buffer"),
    "a list": ("relu", [X, [1.0, 2.0]], TypeError, "no buffer"),
    "no sequence": ("relu", 3, TypeError, "incompatible"),
    "a plane short": ("join", [HIGH, X], ValueError, "2 slots with 3 planes in all, 2 buffers w"),
    "a plane more": ("join", [HIGH, LOW, X, X], ValueError, "2 slots with 3 planes in all, 4 buf"),
    "a small plane": (
        *("join", [HIGH, LOW[:3], X]),
        *(ValueError, r"slot 0 \(src\), plane 1 needs 4 bytes, its buffer has 3"),
    ),
    "an odd plane": (
        "join",
        [BYTES[1:9], LOW, X],
        ValueError,
        "plane 0 must start at a multiple of 2",
    ),
    "a read-only plane": (
        *("split", [X, HIGH.copy(), LOW.tobytes(), X.copy(), X.copy()]),
        *(ValueError, r"slot 1 \(dst\), plane 1 must be writable"),
    ),
}


@pytest.mark.parametrize("case", WRONG_BUFFERS)
def test_buffers_are_refused_that_do_not_fit(case: str, step: NamedSteps) -> None:
    name, buffers, error, message = WRONG_BUFFERS[case]
    with pytest.raises(error, match=message):
        execute(RELU if name == "relu" else step(name), buffers)


def test_scratch_overlaps_nothing() -> None:
    conv: dnn.Primitive | None = dnn.convolution(
        *(plain((1, 3, 9, 9)), plain((8, 3, 3, 3)), None, plain((1, 8, 7, 7))),
        *((1, 1), (1, 1), (0, 0), (0, 0)),
    )
    while conv is not None and conv.scratch_bytes == 0:
        conv = conv.next_kernel()
    assert conv is not None
    sizes = [size for _, size, _ in describe(conv)["slots"]]
    room = np.zeros(sum(sizes) + 64, np.uint8)
    memory = [room[: sizes[0]], *(np.zeros(size, np.uint8) for size in sizes[1:-1])]
    with pytest.raises(ValueError, match=r"scratch\) is scratch and overlaps slot 0 \(src\)"):
        execute(conv, [*memory, room[sizes[0] - 64 :]])
    execute(conv, [*memory, room[sizes[0] :]])


@pytest.mark.parametrize("threads", [-1, 1025, 2**31 - 1])
def test_numbers_of_threads_are_refused(threads: int) -> None:
    for use in (partial(execute, RELU, [X, X.copy()]), set_threads, partial(Team, name="none")):
        with pytest.raises(ValueError, match="1 to 1024"):
            use(threads)


OTHER_NAME = Returns(capsule(id(RELU), b"dltensor"))


@pytest.mark.parametrize(
    "wrong", [None, 3, "step", Returns(None), Returns(3), Returns(RELU), OTHER_NAME]
)
def test_what_is_no_step_is_refused(wrong: object) -> None:
    message = r"vtensor\.step" if wrong is OTHER_NAME else "step"
    for use in (partial(execute, wrong, []), partial(describe, wrong)):
        with pytest.raises(TypeError, match=message):
            use()
    with pytest.raises(TypeError, match=message):
        Program([], [(empty_step(), []), (wrong, [])])


@pytest.fixture
def scale(c_steps: Path) -> StepStruct:
    """Copy ``scale``, for a test to spoil."""
    return StepStruct.from_buffer_copy(step_of(c_steps, "scale"))


def test_a_step_in_c_runs_and_is_described(scale: StepStruct) -> None:
    dst = np.zeros(4, np.float32)
    execute(held(scale), [X, dst])
    np.testing.assert_array_equal(dst, X * 3)
    assert describe(held(scale)) == {
        "kernel": "scale by three",
        "slots": [("src", 16, "read"), ("", 16, "write")],
        "planes": [[16], [16]],
        "alignment": 4,
        "sizes": 0,
        "device": None,
    }


def test_a_failing_step_gives_its_reason(scale: StepStruct, cpp_steps: Path) -> None:
    with pytest.raises(RuntimeError, match="scale by three: negative: -1"):
        execute(held(scale), [-X, X.copy()])
    with pytest.raises(RuntimeError, match="status 7, without a reason"):
        execute(held(scale), [X * 0, X.copy()])
    for name, reason in (("error", "an exception: thrown"), ("number", "something that is no exc")):
        with pytest.raises(StepFailed, match=f"throwing: threw {reason}"):
            execute(held(step_of(cpp_steps, f"throws_{name}")), [])


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
        ("slot access", 0, "unknown access 0"),
        ("slot access", 5, "unknown access 5"),
        ("slot alignment", 0, "no power of two"),
        ("slot alignment", 12, "no power of two"),
        ("slot planes", 0, "slot 1 has 0 planes, not 1 to 16"),
        ("slot planes", 17, "slot 1 has 17 planes, not 1 to 16"),
        ("slot planes", 2, "slot 1 has 2 planes and describes one"),
    ],
)
def test_a_malformed_step_is_refused(c_steps: Path, field: str, value: Any, message: str) -> None:
    step, slots = copied(c_steps, "scale")
    setattr(slots[1] if field.startswith("slot ") else step, field.removeprefix("slot "), value)
    for use in (
        lambda: execute(held(step), [X, X.copy()]),
        lambda: describe(held(step)),
        lambda: Program([64], [(held(step), [(0, 0), (0, 16)])]),
    ):
        with pytest.raises(ValueError, match=message):
            use()


def test_a_struct_with_later_members_is_taken(scale: StepStruct) -> None:
    class Larger(ctypes.Structure):
        _fields_ = (("step", StepStruct), ("later", ctypes.c_void_p))

    larger = Larger(scale, 1)
    larger.step.struct_bytes = ctypes.sizeof(Larger)
    execute(held(larger.step), [X, dst := X.copy()])
    np.testing.assert_array_equal(dst, X * 3)


def test_what_a_supplier_raises_is_what_the_caller_gets() -> None:
    class Broken:
        def __vtensor_step__(self) -> object:
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        execute(Broken(), [])


def test_each_plane_has_a_buffer_and_nothing_else_is_touched(step: NamedSteps) -> None:
    assert describe(step("join"))["slots"] == [("src", 12, "read"), ("dst", 16, "write")]
    assert describe(step("join"))["planes"] == [[8, 4], [16]]
    assert describe(step("split"))["planes"] == [[16], [8, 4], [16, 16]]
    memory = [guarded(plane.view(np.uint8)) for plane in (HIGH, LOW, np.zeros(4, np.float32))]
    execute(step("join"), memory)
    dst = memory[2].view(np.float32)
    np.testing.assert_array_equal(dst, JOINED)
    high, low, rest = np.zeros(4, np.int16), np.zeros(4, np.uint8), np.zeros((2, 4), np.float32)
    execute(step("split"), [dst, high, low, rest[0], rest[1]])
    np.testing.assert_array_equal(high + low / np.float32(256), JOINED)


def test_planes_lie_where_the_program_says(alone: Team, step: NamedSteps) -> None:
    """Both in an arena, apart from each other, and one after the other in what is bound."""
    join, arena = step("join"), Arena(128)
    places = [(0, 0), (1, 64), (1, 4), (1, 96), (1, 112)]
    joins = [(join, [(1, 64), (1, 4), (2, 0)]), (join, [(3, 0), (3, 8), (2, 16)])]
    program = Program([16, arena, 32, 12], [(step("split"), places), *joins])
    dst: Array = np.zeros(8, np.float32)
    alone.run(program, [JOINED, dst, HIGH.tobytes() + LOW.tobytes()])
    np.testing.assert_array_equal(dst, [*JOINED, *JOINED])
    np.testing.assert_array_equal(arena.memory()[64:72].view(np.int16)[1:], [2, 300, 4])


@pytest.mark.parametrize(
    ("offsets", "message"),
    [
        ((0, 0, 0, 0), "step 0: the step has 3 slots with 5 planes in all, 4 buffers"),
        ((0, 16, 61, 24, 40), "dst), plane 1 needs 4 bytes at 61"),
        ((0, 17, 60, 24, 40), "plane 0 must start at a multiple of 2"),
        ((0, 16, 60, 24, 36), "2 (rest), plane 0 is scratch and overlaps slot 2 (rest), plane 1"),
        ((0, 16, 44, 24, 40), "2 (rest), plane 1 is scratch and overlaps slot 1 (dst), plane 1"),
        ((0, 16, None, 24, 40), "slot 1 (dst), plane 1 is written, and region 1 is a constant"),
    ],
)
def test_places_of_planes_are_refused(
    offsets: tuple[int | None, ...], message: str, step: NamedSteps
) -> None:
    """Offsets in a region of 64 bytes; the constant's for None."""
    places = [(1, 0) if offset is None else (0, offset) for offset in offsets]
    with pytest.raises(ValueError, match=re.escape(message)):
        Program([64, LOW], [(step("split"), places)])


def test_a_plane_without_bytes_may_lie_anywhere(c_steps: Path) -> None:
    step, slots = copied(c_steps, "join")
    slots[0].bytes = 0
    with pytest.raises(ValueError, match="plane 1 needs 4 bytes at 1, region 0 has 4"):
        Program([4, 16], [(held(step), [(0, 1), (0, 1), (1, 0)])])
    assert len(Program([4, 16], [(held(step), [(0, 1), (0, 0), (1, 0)])])) == 1
