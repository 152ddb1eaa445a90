"""Handlers of the library ``toy``; a test says what they answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from libdesc.numpy.handlers import transform
from ptensor.evaluation import Call
from ptensor.layout import Layout

__all__ = ["confirm", "guideline", "reset", "transform"]

Answers = Mapping[int, Layout | Sequence[Layout]]

#: Every call for which the guideline was asked.
asked: list[Call] = []

answer: Callable[[Call], Answers] = lambda call: {}  # noqa: E731
refusal: Callable[[Call, Sequence[Layout]], str | None] = lambda call, row: None  # noqa: E731


def guideline(call: Call) -> Answers:
    """What ``answer`` says, counted."""
    asked.append(call)
    return answer(call)


def confirm(call: Call, row: Sequence[Layout]) -> str | None:
    """What ``refusal`` says."""
    return refusal(call, row)


def reset() -> None:
    """No guideline, no refusal, nothing counted."""
    global answer, refusal
    asked.clear()
    answer = lambda call: {}  # noqa: E731
    refusal = lambda call, row: None  # noqa: E731
