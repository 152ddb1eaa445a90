"""The lock of the interpreter is free during a step: it waits for a Python thread to answer."""

from __future__ import annotations

import ctypes
import threading
from pathlib import Path
from typing import Any

import numpy as np

from tests.native.stepping import RunStruct, held, step_of
from vtensor.runtime import _replay


def answered(run: Any) -> bool:
    """Run something on flags that a Python thread answers; whether the answer came in time."""
    flags = np.zeros(2, np.int32)
    done = threading.Event()

    def answer() -> None:
        while not flags[0] and not done.is_set():
            done.wait(0.001)
        flags[1] = flags[0]

    thread = threading.Thread(target=answer)
    thread.start()
    try:
        return bool(run(flags))
    finally:
        done.set()
        thread.join()


def test_another_thread_runs_during_a_step(c_steps: Path) -> None:
    step = step_of(c_steps, "waiting")

    def run(flags: Any) -> bool:
        _replay.execute(held(step), [flags])
        return True

    assert answered(run)


def test_the_same_function_with_the_lock_held_gets_no_answer(c_steps: Path) -> None:
    """The twin: called without letting go of the lock, nobody can answer."""
    function = ctypes.PyDLL(str(c_steps)).wait_for_answer
    function.argtypes = [ctypes.c_void_p] * 3

    def run(flags: Any) -> bool:
        slots = (ctypes.c_void_p * 1)(flags.ctypes.data)
        brief = ctypes.c_int(0)
        room = ctypes.create_string_buffer(64)
        told = RunStruct(ctypes.sizeof(RunStruct), None, None, ctypes.addressof(room), 64)
        status = function(*map(ctypes.addressof, (brief, slots, told)))
        return bool(status == 0)

    assert not answered(run)
