"""The README: its length, its figures, its transcript, its picture and its examples."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from eval.documents import speed_table
from eval.store import instructions
from ops import Relu
from vtensor import Graph, call, save_onnx
from vtensor.benchmark.machine import machine
from vtensor.cli import app

ROOT = Path(__file__).parents[2]
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


def test_readme_is_short() -> None:
    assert len(TEXT.splitlines()) <= LINES


def test_readme_has_no_number_without_a_source() -> None:
    assert unsourced(TEXT) == []


def test_number_without_a_source_is_found() -> None:
    text = "`x 9` ResNet-50 on SSE4.1 takes 2,024 ms, [20 %](a/7.md) less.\n```\n8\n```\n"
    assert unsourced(text) == ["2,024", "20"]


def test_table_of_speed_is_that_of_the_results() -> None:
    text = speed_table.update(TEXT, speed_table.write_table())
    assert text == TEXT, "python -m eval.documents.speed_table rewrites the table"


def test_table_of_speed_has_both_directions() -> None:
    """The table has rows on which VTensor is slower, and each row has a peer's ratio."""
    cells = re.findall(r"(\d\.\d\d) \((\d+) of (\d+)\)", "\n".join(speed_table.write_table()))
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
    if "avx512" not in instructions(machine()):
        pytest.skip("the README's kernels are those of AVX-512")
    run = subprocess.run(
        [sys.executable, "-m", "eval.demo"], capture_output=True, text=True, cwd=ROOT, check=True
    )
    [shown] = [block for block in fenced(TEXT) if block.startswith("Transforms: ")]
    assert absent(shown, run.stdout) == []


def test_line_that_is_not_printed_is_found() -> None:
    assert absent("a\n...\nc\n", "a\nb\nc\n") == []
    assert absent("c\na\n", "a\nb\nc\n") == ["a"]


def test_picture_is_what_the_script_draws(tmp_path: Path) -> None:
    """A process of its own draws it, since a cap on instructions is for good."""
    code = (
        "import sys, pathlib; from eval.documents import idea; idea.main(pathlib.Path(sys.argv[1]))"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], cwd=ROOT, check=True)
    drawings = sorted(file.name for file in tmp_path.iterdir())
    assert drawings == ["idea_dark.svg", "idea_light.svg"]
    for name in drawings:
        text = (tmp_path / name).read_text(encoding="utf-8")
        assert text == (ROOT / "docs" / name).read_text(encoding="utf-8"), (
            "python -m eval.documents.idea"
        )
        assert f"docs/{name}" in TEXT
        [title] = re.findall("<title>(.*?)</title>", text)
        assert f'alt="{title}"' in TEXT


def test_session_and_commands_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = Graph("tiny")
    dims = {"N": 1, "C": 3, "H": 224, "W": 224}
    graph.output(graph.add(Relu(), graph.input("x", dims)), "y")
    monkeypatch.chdir(tmp_path)
    save_onnx(graph, "model.onnx")
    code, _ = fenced(TEXT, "python")
    names: dict[str, Any] = {}
    exec(code, names)
    assert names["y"].shape == (1, 3, 224, 224)
    [block] = [block for block in fenced(TEXT) if "vtensor plan" in block]
    for line in block.splitlines():
        _, *arguments = line.partition("#")[0].split()
        if arguments[0] == "bench":
            arguments = ["bench", "--help"]
        ran = CliRunner().invoke(app, arguments)
        assert ran.exit_code == 0, ran.output


@pytest.mark.usefixtures("scratch")
def test_operator_runs(tmp_path: Path) -> None:
    _, code = fenced(TEXT, "python")
    file = tmp_path / "square.py"
    file.write_text(code, encoding="utf-8")
    names: dict[str, Any] = {"__name__": "square"}
    exec(compile(code, str(file), "exec"), names)
    x = np.array([[-2, 0, 3]], np.float32)
    for library in ("onednn", "numpy"):
        np.testing.assert_array_equal(call(names["Square"](), x, pin=library), [[4, 0, 9]])
