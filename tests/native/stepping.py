"""Steps built from step.h alone, in C and C++, and step.h's structs for Python."""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

FOLDER = Path(__file__).parent
INCLUDE = FOLDER.parents[1] / "native" / "include"
STANDARDS = {".c": ["gcc", "-std=c99"], ".cpp": ["g++", "-std=c++17"]}
#: VTENSOR_STEP_ABI.
ABI = 2

Array = np.ndarray[Any, Any]


def compiled(source: str, folder: Path) -> Path:
    """Build a library with nothing but step.h and a compiler."""
    library = folder / f"{source}.so"
    flags = ["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-shared", "-fPIC", f"-I{INCLUDE}"]
    files = [str(FOLDER / source), "-o", str(library), "-lm"]
    subprocess.run([*STANDARDS[Path(source).suffix], *flags, *files], check=True, timeout=120)
    return library


class StepStruct(ctypes.Structure):
    """vtensor_step."""

    _fields_ = [
        *((name, ctypes.c_uint32) for name in ("abi", "struct_bytes", "slot_count", "size_count")),
        *((name, ctypes.c_void_p) for name in ("slots", "kernel", "device", "context")),
        *((name, ctypes.c_void_p) for name in ("run", "bytes_for", "retain", "release")),
    ]


class SlotStruct(ctypes.Structure):
    """vtensor_slot."""

    _fields_ = [
        ("bytes", ctypes.c_size_t),
        ("access", ctypes.c_uint32),
        ("alignment", ctypes.c_uint32),
        ("name", ctypes.c_char_p),
        ("planes", ctypes.c_uint32),
        ("further_bytes", ctypes.c_void_p),
    ]


class RunStruct(ctypes.Structure):
    """vtensor_run."""

    _fields_ = [
        ("struct_bytes", ctypes.c_size_t),
        *((name, ctypes.c_void_p) for name in ("queue", "sizes", "error")),
        ("error_bytes", ctypes.c_size_t),
    ]


def step_of(library: Path, name: str) -> StepStruct:
    """Return the step that a library defines under a name."""
    return StepStruct.in_dll(ctypes.CDLL(str(library)), name)


def copied(library: Path, name: str) -> tuple[StepStruct, ctypes.Array[SlotStruct]]:
    """Copy a step and its slots, for a test to spoil."""
    step = StepStruct.from_buffer_copy(step_of(library, name))
    slots = (SlotStruct * step.slot_count).from_address(step.slots)
    copies = (SlotStruct * step.slot_count).from_buffer_copy(slots)
    step.slots = ctypes.addressof(copies)
    return step, copies


def counter(library: Path, name: str) -> ctypes.c_int:
    """Return a global number of a library."""
    return ctypes.c_int.in_dll(ctypes.CDLL(str(library)), name)


class Returns:
    """An object that says that it is a step."""

    def __init__(self, answer: object) -> None:
        self.answer = answer

    def __vtensor_step__(self) -> object:
        return self.answer


NamedSteps = Callable[[str], Returns]


def capsule(pointer: int, name: bytes) -> object:
    """Wrap a pointer, as a C extension would."""
    make = ctypes.pythonapi.PyCapsule_New
    make.restype = ctypes.py_object
    make.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    return make(pointer, name, None)


def held(step: StepStruct) -> Returns:
    """Wrap a step as its supplier hands it over."""
    return Returns(capsule(ctypes.addressof(step), b"vtensor.step"))


def floats(*values: float) -> Array:
    """Return numbers on a 64-byte boundary."""
    room = np.zeros(64 + 4 * len(values), np.uint8)
    start = -room.ctypes.data % 64
    array = room[start : start + 4 * len(values)].view(np.float32)
    array[:] = values
    return array


def frozen() -> Array:
    """Return four numbers that cannot be written."""
    array = floats(0, 0, 0, 0)
    array.flags.writeable = False
    return array
