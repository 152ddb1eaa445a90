"""Invokers of the operator ``Toy`` that several tests register."""

from __future__ import annotations

from typing import Any

from ptensor import PTensor, lib_tagger


def copying(library: str = "toy", source: str = "NC", target: str = "NC", plus: float = 0) -> Any:
    """Return an invoker that takes every call in these layouts and adds ``plus``."""

    def copy(ctx: Any, op: Any, x: Any, y: Any) -> None:
        src, dst = PTensor(x).require(source), PTensor(y).require(target)
        if lib_tagger(library, [src], [dst]):
            return
        dst.data()[...] = src.data() + plus

    return copy


def tagging(ctx: Any, op: Any, x: Any, y: Any) -> None:
    """Take every call and require nothing."""
    lib_tagger("toy", [PTensor(x)], [PTensor(y)])
