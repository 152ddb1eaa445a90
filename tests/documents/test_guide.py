"""The guide: every example runs, in the order of the page, on the network that the page builds."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.libraries.command import vtensor

PAGE = Path(__file__).parents[2] / "docs" / "guide.md"
#: Commands that take long or need absent peers: the test checks their options and asks for help.
PARSED = ("bench", "frontier")


def examples(text: str) -> Iterator[tuple[str, str]]:
    """Yield language and code of each block of a page."""
    yield from re.findall(r"^```(\w*)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)


def run(line: str) -> None:
    """Run a command line of the page; skip programs that are not ours."""
    program, *arguments = shlex.split(line)
    if program != "vtensor":
        return
    if arguments[0] in PARSED:
        arguments.append("--help")
    ran = vtensor(*arguments)
    assert ran.exit_code == 0, f"{line}\n{ran.output}"


def test_every_example_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("VTENSOR_CACHE_DIR", str(tmp_path / "cache"))
    names: dict[str, Any] = {}
    blocks = [*examples(PAGE.read_text(encoding="utf-8"))]
    assert len(blocks) >= 30
    for language, code in blocks:
        if language == "python":
            exec(compile(code, PAGE.name, "exec"), names)
        else:
            for line in code.splitlines():
                run(line)


@pytest.mark.parametrize("line", ["vtensor bench a.onnx --no-such", "vtensor plan gone.onnx"])
def test_failing_example_is_found(line: str) -> None:
    with pytest.raises(AssertionError, match=r"no-such|gone\.onnx"):
        run(line)
