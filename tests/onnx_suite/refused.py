"""The cases that are refused though VTensor has their operators, by reason, in a file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

FILE = Path(__file__).with_name("refused.txt")

_HEAD = """\
# Cases of ONNX's backend suite that VTensor refuses although it has their operators, by reason.
# A test compares this file with what happens; `python -m tests.onnx_suite --update` rewrites it.
"""


def read() -> dict[str, str]:
    """The reason of each case."""
    reasons: dict[str, str] = {}
    reason = ""
    for line in FILE.read_text(encoding="utf-8").splitlines():
        if line.startswith("  "):
            reasons[line.strip()] = reason
        elif line and not line.startswith("#"):
            reason = line
    return reasons


def write(reasons: Mapping[str, str]) -> None:
    """Rewrite the file: a line for each reason, its cases below."""
    lines = [_HEAD]
    for reason in sorted(set(reasons.values())):
        lines.append(reason)
        lines += [f"  {case}" for case in sorted(reasons) if reasons[case] == reason]
    FILE.write_text("\n".join(lines) + "\n", encoding="utf-8")
