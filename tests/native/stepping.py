"""Steps built from step.h alone, in C and C++, and step.h's structs for Python."""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path

FOLDER = Path(__file__).parent
INCLUDE = FOLDER.parents[1] / "native" / "include"
STANDARDS = {".c": ["gcc", "-std=c99"], ".cpp": ["g++", "-std=c++17"]}


def compiled(source: str, folder: Path) -> Path:
    """A library with nothing but step.h and a compiler."""
    library = folder / f"{source}.so"
    flags = ["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-shared", "-fPIC", f"-I{INCLUDE}"]
    here, linked = str(FOLDER / source), ["-o", str(library), "-lm"]
    command = [*STANDARDS[Path(source).suffix], *flags, here, *linked]
    subprocess.run(command, check=True, timeout=120)
    return library


#: VTENSOR_STEP_ABI.
ABI = 2

STEP_FIELDS: list[tuple[str, type]] = [
    ("abi", ctypes.c_uint32),
    ("struct_bytes", ctypes.c_uint32),
    ("slot_count", ctypes.c_uint32),
    ("size_count", ctypes.c_uint32),
    ("slots", ctypes.c_void_p),
    ("kernel", ctypes.c_void_p),
    ("device", ctypes.c_void_p),
    ("context", ctypes.c_void_p),
    ("run", ctypes.c_void_p),
    ("bytes_for", ctypes.c_void_p),
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
        ("planes", ctypes.c_uint32),
        ("further_bytes", ctypes.c_void_p),
    ]


class RunStruct(ctypes.Structure):
    """vtensor_run."""

    _fields_ = [
        ("struct_bytes", ctypes.c_size_t),
        ("queue", ctypes.c_void_p),
        ("sizes", ctypes.c_void_p),
        ("error", ctypes.c_void_p),
        ("error_bytes", ctypes.c_size_t),
    ]


def step_of(library: Path, name: str) -> StepStruct:
    """A step that a library defines under a name."""
    return StepStruct.in_dll(ctypes.CDLL(str(library)), name)


def copied(library: Path, name: str) -> tuple[StepStruct, ctypes.Array[SlotStruct]]:
    """A copy of a step and its slots, for a test to spoil."""
    step = StepStruct.from_buffer_copy(step_of(library, name))
    slots = (SlotStruct * step.slot_count).from_address(step.slots)
    own = (SlotStruct * step.slot_count).from_buffer_copy(slots)
    step.slots = ctypes.addressof(own)
    return step, own


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


def held(step: StepStruct) -> Returns:
    """A step as its supplier hands it over."""
    return Returns(capsule(ctypes.addressof(step), b"vtensor.step"))
