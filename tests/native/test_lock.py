"""The lock of the interpreter is free during a step: it waits for a Python thread to answer."""

from __future__ import annotations

import ctypes
import subprocess
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.native.test_replay import ROOT, StepStruct, held
from vtensor.runtime import _replay

WAITING = r"""
#include "vtensor/step.h"
#include <stdio.h>
#include <time.h>

/* Says that it has begun, then waits for an answer, but no longer than context says in seconds. */
int wait_for_answer(void *context, void *const *slots, char *error, size_t error_bytes) {
    volatile int *flags = (volatile int *)slots[0];
    const time_t end = time(NULL) + *(const int *)context;
    flags[0] = 1;
    while (!flags[1])
        if (time(NULL) > end) return snprintf(error, error_bytes, "no answer"), 1;
    return 0;
}
static int seconds = 60;
static const vtensor_slot slots[] = {{8, VTENSOR_READ | VTENSOR_WRITE, 4, "flags"}};
vtensor_step step = {VTENSOR_STEP_ABI, 1, slots, "waiting", &seconds, wait_for_answer, NULL, NULL};
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The step, compiled."""
    folder = tmp_path_factory.mktemp("waiting")
    (folder / "step.c").write_text(WAITING)
    command = ["gcc", "-std=c99", "-shared", "-fPIC", f"-I{ROOT / 'native' / 'include'}"]
    subprocess.run([*command, str(folder / "step.c"), "-o", str(folder / "step.so")], check=True)
    return folder / "step.so"


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


def test_another_thread_runs_during_a_step(library: Path) -> None:
    step = StepStruct.in_dll(ctypes.CDLL(str(library)), "step")

    def run(flags: Any) -> bool:
        _replay.execute(held(step), [flags])
        return True

    assert answered(run)


def test_the_same_function_with_the_lock_held_gets_no_answer(library: Path) -> None:
    """The twin: called without letting go of the lock, nobody can answer."""
    function = ctypes.PyDLL(str(library)).wait_for_answer
    function.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t]

    def run(flags: Any) -> bool:
        slots = (ctypes.c_void_p * 1)(flags.ctypes.data)
        brief = ctypes.c_int(0)
        room = ctypes.create_string_buffer(64)
        status = function(ctypes.addressof(brief), ctypes.addressof(slots), room, 64)
        return bool(status == 0)

    assert not answered(run)
