"""The README: its length, its figures, its transcript, its picture and its examples."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from eval.documents import speed_table
from eval.store import instructions
from tests.frontends.support import model
from tests.libraries.command import vtensor
from tests.libraries.processes import ROOT, printed
from vtensor import call
from vtensor.benchmark.machine import machine

TEXT = (ROOT / "README.md").read_text(encoding="utf-8")
LINES = 120
#: Numbers that are no measurements, and the file that has each.
STATED = {"3.11": "pyproject.toml", "0.1.0": "pyproject.toml", "1": "eval/documents/speed_table.py"}


def fenced(text: str, language: str = "") -> list[str]:
    """Return the blocks of code of a language; an empty name is blocks without one."""
    blocks = re.findall(r"^```(.*?)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    return [code for name, code in blocks if name == language]


def numbers_in_prose(text: str) -> Iterator[str]:
    """Yield the numbers outside of code, tags, links' targets, names and the table of speed."""
    for pattern in (
        r"^```.*?^```$",
        rf"{re.escape(speed_table.BEGIN)}.*?{re.escape(speed_table.END)}",
        r"`[^`]*`",
        r"<[^>]*>",
        r"\]\([^)]*\)",
    ):
        text = re.sub(pattern, " ", text, flags=re.DOTALL | re.MULTILINE)
    yield from re.findall(r"(?<![\w.-])\d+(?:[.,]\d+)*(?![\w-])", text)


def unsourced(text: str) -> list[str]:
    """Return the numbers in prose for which no file is named that has them."""
    return [
        number
        for number in numbers_in_prose(text)
        if number not in STATED or number not in (ROOT / STATED[number]).read_text("utf-8")
    ]


def test_readme_is_short_and_every_number_has_a_source() -> None:
    assert len(TEXT.splitlines()) <= LINES
    assert unsourced(TEXT) == []
    text = "`x 9` ResNet-50 on SSE4.1 takes 2,024 ms, [20 %](a/7.md) less.\n```\n8\n```\n"
    assert unsourced(text) == ["2,024", "20"]


def test_table_of_speed_is_that_of_the_results() -> None:
    """The table has rows on which VTensor is slower, and each row has a peer's ratio."""
    table = list(speed_table.write_table())
    assert speed_table.update(TEXT, table) == TEXT, (
        "python -m eval.documents.speed_table rewrites the table"
    )
    cells = re.findall(r"(\d\.\d\d) \((\d+) of (\d+)\)", "\n".join(table))
    ratios = [float(ratio) for ratio, _, _ in cells]
    assert min(ratios) < 1 < max(ratios)
    assert all(int(slower) <= int(count) for _, slower, count in cells)


def absent(shown: str, printed: str) -> list[str]:
    """Return the lines of a transcript, ``...`` aside, that do not come in this order."""
    left, missing = printed.splitlines(), []
    for line in shown.splitlines():
        if line in left:
            left = left[left.index(line) + 1 :]
        elif line != "...":
            missing.append(line)
    return missing


def test_transcript_is_what_make_run_prints() -> None:
    assert absent("a\n...\nc\n", "a\nb\nc\n") == []
    assert absent("c\na\n", "a\nb\nc\n") == ["a"]
    if "avx512" not in instructions(machine()):
        pytest.skip("the README's kernels are those of AVX-512")
    [shown] = [block for block in fenced(TEXT) if block.startswith("Transforms: ")]
    assert absent(shown, printed("-m", "eval.demo")) == []


def test_picture_is_what_the_script_draws(tmp_path: Path) -> None:
    """A process of its own draws it, since a cap on instructions is for good."""
    code = (
        "import sys, pathlib; from eval.documents import idea; idea.main(pathlib.Path(sys.argv[1]))"
    )
    printed("-c", code, tmp_path)
    drawings = sorted(file.name for file in tmp_path.iterdir())
    assert drawings == ["idea_dark.svg", "idea_light.svg"]
    for name in drawings:
        text = (tmp_path / name).read_text(encoding="utf-8")
        assert text == (ROOT / "docs" / name).read_text("utf-8"), "python -m eval.documents.idea"
        assert f"docs/{name}" in TEXT
        [title] = re.findall("<title>(.*?)</title>", text)
        assert f'alt="{title}"' in TEXT


def test_session_and_commands_of_the_readme_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    text = "tiny (float[1, 3, 224, 224] x) => (float[1, 3, 224, 224] y) { y = Relu(x) }"
    onnx.save(model(text), "model.onnx")
    code, _ = fenced(TEXT, "python")
    names: dict[str, Any] = {}
    exec(code, names)
    assert names["y"].shape == (1, 3, 224, 224)
    [block] = [block for block in fenced(TEXT) if "vtensor plan" in block]
    for line in block.splitlines():
        _, *arguments = line.partition("#")[0].split()
        ran = vtensor(*(["bench", "--help"] if arguments[0] == "bench" else arguments))
        assert ran.exit_code == 0, ran.output


@pytest.mark.usefixtures("scratch")
def test_operator_of_the_readme_runs(tmp_path: Path) -> None:
    _, code = fenced(TEXT, "python")
    file = tmp_path / "square.py"
    file.write_text(code, encoding="utf-8")
    names: dict[str, Any] = {"__name__": "square"}
    exec(compile(code, str(file), "exec"), names)
    x = np.array([[-2, 0, 3]], np.float32)
    for library in ("onednn", "numpy"):
        np.testing.assert_array_equal(call(names["Square"](), x, pin=library), [[4, 0, 9]])
