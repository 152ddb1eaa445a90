"""What the commands print, as a whole: golden text, without what a machine or a day changes."""

from __future__ import annotations

import re
from pathlib import Path

import onnx
import pytest

from eval.networks.keras import keras_export
from tests.libraries.golden import Golden
from tests.libraries.processes import ROOT, printed

#: The last node of a Keras-style export.
LAST = "model/predictions/Softmax"

#: Lines of files, counts that grow with every operator, versions, places, times.
CHANGING = (
    (re.escape(f"{ROOT}/"), ""),
    (r"\.py:\d+", ".py"),
    (r"\d+ invokers?", "N invokers"),
    (r"\d+\.\d+\.\d+", "VERSION"),
    (r" on \w+, \S+/libdnnl\S+", " on ISA, LIBRARY"),
    (r"^types multiplied faster than f32 on this processor: .*$", "PROCESSOR"),
    (r"VERSION on \w+, built \S+$", "VERSION on ISA"),
    (r"\d+\.\d+ ms", "TIME ms"),
    (r" +\S+(?=  class )", " SCORE"),
)


def plain(text: str) -> str:
    """Return the text with names in place of its changing parts."""
    for pattern, name in CHANGING:
        text = re.sub(pattern, name, text, flags=re.MULTILINE)
    return "\n".join(line.rstrip() for line in text.rstrip().splitlines())


def check(golden: Golden, *arguments: object) -> None:
    """Run a command in a process of its own, as a library fixes its cap at first use."""
    golden.check(plain(printed("-m", "vtensor.cli", *arguments, timeout=120)))


@pytest.fixture(scope="module")
def keras(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a small Keras-style export."""
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
def test_command_of_a_model_prints(keras: Path, golden: Golden, arguments: list[object]) -> None:
    # the lowest cap, which every machine has
    options = ["--isa", "sse41", "--threads", 1, "--shape", "input_1=1,32,32,3"]
    check(golden, arguments[0], keras, *arguments[1:], *options)


@pytest.mark.parametrize("arguments", [["libs"], ["ops", "Conv2D"]], ids=["libs", "ops"])
def test_command_of_the_registry_prints(golden: Golden, arguments: list[object]) -> None:
    check(golden, *arguments)


def test_only_changing_parts_are_replaced() -> None:
    text = "onednn  3.2.0 on avx2, /usr/lib/libdnnl.so.3\n  at ops/relu.py:41, 2.5 MB, 12.34 ms"
    assert plain(text) == "onednn  VERSION on ISA, LIBRARY\n  at ops/relu.py, 2.5 MB, TIME ms"
