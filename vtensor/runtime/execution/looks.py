"""Looks of a run at whether it goes on.

A loop may run for ever. Between its turns it calls the function that the caller of the run has set;
an error of that function ends the run.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar

#: Called several times a second while a loop runs; None calls nothing.
LOOK: ContextVar[Callable[[], None] | None] = ContextVar("vtensor_look", default=None)
