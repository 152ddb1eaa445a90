"""The Python functions that a call enters."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType


def entered(run: Callable[[], object]) -> list[str]:
    """Return the Python functions that a call enters on this thread, itself left out."""
    seen: list[str] = []

    def watch(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            seen.append(frame.f_code.co_qualname)

    sys.setprofile(watch)
    try:
        run()
    finally:
        sys.setprofile(None)
    return seen[1:]
