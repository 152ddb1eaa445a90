"""Native steps without a compiler: a ``vtensor_step`` made with ctypes around a Python function."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

_ABI, READ, WRITE, SCRATCH = 1, 1, 2, 4
_NAME = b"vtensor.step"


class _Slot(ctypes.Structure):
    _fields_ = (
        ("bytes", ctypes.c_size_t),
        ("access", ctypes.c_uint32),
        ("alignment", ctypes.c_uint32),
        ("name", ctypes.c_char_p),
    )


_Run = ctypes.CFUNCTYPE(
    ctypes.c_int,
    ctypes.c_void_p,
    ctypes.POINTER(ctypes.c_void_p),
    ctypes.POINTER(ctypes.c_char),
    ctypes.c_size_t,
)


class _Step(ctypes.Structure):
    _fields_ = (
        ("abi", ctypes.c_uint32),
        ("slot_count", ctypes.c_uint32),
        ("slots", ctypes.POINTER(_Slot)),
        ("kernel", ctypes.c_char_p),
        ("context", ctypes.c_void_p),
        ("run", _Run),
        ("retain", ctypes.c_void_p),
        ("release", ctypes.c_void_p),
    )


class FloatStep:
    """A step on runs of f32.

    Args:
        kernel: its name.
        slots: number of elements and access of each slot.
        function: called with one array a slot; a text that it returns is the step's failure.

    ``runs`` counts the executions.
    """

    def __init__(
        self,
        kernel: str,
        slots: Sequence[tuple[int, int]],
        function: Callable[[list[Array]], str | None],
    ) -> None:
        self.runs = 0
        self._sizes = [size for size, _ in slots]
        self._function = function
        self._slots = (_Slot * len(slots))(*(_Slot(4 * n, how, 4, None) for n, how in slots))
        self._run = _Run(self._execute)
        self._kernel = kernel.encode()
        self._step = _Step(_ABI, len(slots), self._slots, self._kernel, None, self._run, None, None)

    def __vtensor_step__(self) -> object:
        """The capsule; this object owns what is in it and must outlive it."""
        make = ctypes.pythonapi.PyCapsule_New
        make.restype = ctypes.py_object
        make.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
        return make(ctypes.addressof(self._step), _NAME, None)

    def _execute(self, _: Any, slots: Any, error: Any, room: int) -> int:
        self.runs += 1
        arrays = [
            np.ctypeslib.as_array(ctypes.cast(slots[i], ctypes.POINTER(ctypes.c_float)), (size,))
            for i, size in enumerate(self._sizes)
        ]
        reason = self._function(arrays)
        if reason is None:
            return 0
        text = reason.encode()[: room - 1] + b"\0"
        ctypes.memmove(error, text, len(text))
        return 1
