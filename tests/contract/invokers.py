"""Invokers that several tests register."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ptensor import PTensor, lib_tagger


def nothing(*_: PTensor) -> None:
    """Do nothing."""


def calling(
    ask: Callable[..., Any] = nothing, run: Callable[..., Any] = nothing, library: str = "toy"
) -> Any:
    """Return an invoker that gives the PTensors of its operands to ``ask``, tags, and runs."""

    def invoke(ctx: Any, op: Any, *operands: Any) -> None:
        tensors = [PTensor(operand) for operand in operands]
        ask(*tensors)
        if not lib_tagger(library, tensors[:-1], tensors[-1:]):
            run(*tensors)

    return invoke


def requiring(*layouts: Any) -> Callable[..., None]:
    """Return a function that requires these layouts of PTensors."""

    def require(*tensors: PTensor) -> None:
        for tensor, layout in zip(tensors, layouts, strict=True):
            tensor.require(layout)

    return require


def copying(library: str = "toy", source: str = "NC", target: str = "NC", plus: float = 0) -> Any:
    """Return an invoker that takes every call in these layouts and adds ``plus``."""

    def copy(src: PTensor, dst: PTensor) -> None:
        dst.data()[...] = src.data() + plus

    return calling(requiring(source, target), copy, library)


def tagging(ctx: Any, op: Any, x: Any, y: Any) -> None:
    lib_tagger("toy", [PTensor(x)], [PTensor(y)])
