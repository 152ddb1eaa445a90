"""Faults that a campaign must find: the twin of an attempt that is right."""

from __future__ import annotations

import os
import signal
import time

#: What is planted, by the first byte of a model.
CRASH, HANG, UNTYPED, RIGHT = b"c", b"h", b"u", b"r"


def planted(model: bytes, seed: int) -> tuple[str, str]:
    """What the model says."""
    if model == CRASH:
        os.kill(os.getpid(), signal.SIGSEGV)
    while model == HANG:
        time.sleep(1)
    return ("untyped", "planted") if model == UNTYPED else ("ran", "")
