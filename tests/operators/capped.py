"""A program in a process of its own, which caps the instruction set: libraries fix it when used."""

from __future__ import annotations

from pathlib import Path

from tests.libraries.processes import printed

ROOT = Path(__file__).parents[2]


def printed_under(isa: str, code: str, *arguments: str) -> list[str]:
    """The lines that a program prints; it finds the cap in ``sys.argv[1]``, then the arguments."""
    return printed("-c", code, isa, *arguments).splitlines()
