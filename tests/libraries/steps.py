"""Native steps without a compiler: a ``vtensor_step`` made with ctypes around a Python function."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tests.native.stepping import ABI, RunStruct, SlotStruct, StepStruct, capsule

Array = np.ndarray[Any, Any]

READ, WRITE, SCRATCH = 1, 2, 4

_Run = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_void_p, ctypes.POINTER(ctypes.c_void_p), ctypes.POINTER(RunStruct)
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
        self._slots = (SlotStruct * len(slots))(
            *(SlotStruct(4 * size, access, 4, None, 1) for size, access in slots)
        )
        self._run = _Run(self._execute)
        self._kernel = ctypes.create_string_buffer(kernel.encode())
        self._step = StepStruct(
            abi=ABI,
            struct_bytes=ctypes.sizeof(StepStruct),
            slot_count=len(slots),
            slots=ctypes.addressof(self._slots),
            kernel=ctypes.addressof(self._kernel),
            run=ctypes.cast(self._run, ctypes.c_void_p),
        )

    def __vtensor_step__(self) -> object:
        """The capsule; this object owns what is in it and must outlive it."""
        return capsule(ctypes.addressof(self._step), b"vtensor.step")

    def _execute(self, _: Any, slots: Any, told: Any) -> int:
        self.runs += 1
        arrays = [
            np.ctypeslib.as_array(ctypes.cast(slots[i], ctypes.POINTER(ctypes.c_float)), (size,))
            for i, size in enumerate(self._sizes)
        ]
        reason = self._function(arrays)
        if reason is None:
            return 0
        text = reason.encode()[: told.contents.error_bytes - 1] + b"\0"
        ctypes.memmove(told.contents.error, text, len(text))
        return 1
