"""What the commands print, as a whole: golden text, without what a machine or a day changes."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import onnx
import pytest

from eval.networks.keras import keras_export
from tests.libraries.golden import Golden

ROOT = Path(__file__).parents[2]

#: The last node of a Keras-style export.
LAST = "model/predictions/Softmax"

#: Lines of files, counts that grow with every operator, versions, places, times.
CHANGING = (
    (re.escape(f"{ROOT}/"), ""),
    (r"\.py:\d+", ".py"),
    (r"\d+ invokers?", "N invokers"),
    (r"\d+\.\d+\.\d+", "VERSION"),
    (r" on \w+, \S+/libdnnl\S+", " on ISA, LIBRARY"),
    (r"VERSION on (baseline|avx2|avx512)$", "VERSION on ISA"),
    (r"\d+\.\d+ ms", "TIME ms"),
    (r" +\S+(?=  class )", " SCORE"),
)


def plain(text: str) -> str:
    """Text without what changes."""
    for pattern, name in CHANGING:
        text = re.sub(pattern, name, text, flags=re.MULTILINE)
    return "\n".join(line.rstrip() for line in text.rstrip().splitlines())


def printed(*arguments: object) -> str:
    """What a command prints; a process of its own, since a library fixes its cap at first use."""
    command = [sys.executable, "-m", "vtensor.cli", *map(str, arguments)]
    ran = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=120)
    assert ran.returncode == 0, ran.stderr
    return plain(ran.stdout)


@pytest.fixture(scope="module")
def keras(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small Keras-style export, as a file."""
    file = tmp_path_factory.mktemp("models") / "keras.onnx"
    onnx.save(keras_export(32, "batch", width=16), str(file))
    return file


@pytest.mark.parametrize(
    "arguments",
    [
        ["run", "--repeat", 1],
        ["explain", "--optimize", "none"],
        ["explain", "--optimize", "none", "--node", "model/conv1/Conv2D"],
        ["plan", "--libraries", "eigen", "--pin", "Conv2D=onednn", "--pin", f"{LAST}=numpy"],
    ],
    ids=["run", "explain", "explain a node", "plan a mix"],
)
def test_of_a_model(keras: Path, golden: Golden, arguments: list[object]) -> None:
    # the lowest cap, which every machine has
    options = ["--isa", "sse41", "--threads", 1, "--shape", "input_1=1,32,32,3"]
    golden.check(printed(arguments[0], keras, *arguments[1:], *options))


@pytest.mark.parametrize("arguments", [["libs"], ["ops", "Conv2D"]], ids=["libs", "ops"])
def test_of_the_registry(golden: Golden, arguments: list[object]) -> None:
    golden.check(printed(*arguments))


def test_only_what_changes_is_left_out() -> None:
    text = "onednn  3.2.0 on avx2, /usr/lib/libdnnl.so.3\n  at ops/relu.py:41, 2.5 MB, 12.34 ms"
    assert plain(text) == "onednn  VERSION on ISA, LIBRARY\n  at ops/relu.py, 2.5 MB, TIME ms"
