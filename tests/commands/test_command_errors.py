"""Errors of the commands are messages, not tracebacks."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.libraries.command import vtensor

ERRORS = [
    ("run missing.onnx", "ModelError"),
    ("run MODEL --pin Relu", "write it as OPERATOR=LIBRARY or NODE=LIBRARY"),
    ("run MODEL --shape data_0", "write it as name=1,3,224,224"),
    ("run MODEL --shape data_0=1,3,10", "data_0"),
    ("run MODEL --input no.npy", "cannot be read as a .npy file"),
    ("run MODEL --input no.jpg", "cannot be read as a picture"),
    ("run MODEL --labels no.txt", "cannot be read as labels"),
    ("run MODEL --save no/folder.npz", "cannot be written there"),
    ("run MODEL --isa mmx", "one of sse41, avx2, avx512, amx, max"),
    ("plan MODEL --isa mmx", "one of sse41, avx2, avx512, amx, max"),
    ("plan MODEL --optimize fast", "is no level"),
    ("plan MODEL --objective fast", "objectives are shared, paper"),
    ("plan MODEL --threads -3", "threads=-3"),
    ("plan MODEL --libraries eigen,mkl", "libraries: mkl is not registered"),
    ("explain missing.onnx", "ModelError"),
    ("explain MODEL --pin conv1=eigen", "neither an operator nor a node of"),
    ("explain MODEL --node nowhere", "has no node 'nowhere'"),
    ("export MODEL no/out.onnx --opset 3", "among 17 to"),
    ("export MODEL no/out.onnx", "cannot be written there"),
    ("frontier MODEL --tolerances 0,-1e-5", "tolerance=-1e-05"),
    ("frontier MODEL --tolerances nan", "must be a number of at least 0"),
    ("frontier MODEL --tolerances 1e-5;1e-3", "write numbers with commas"),
    ("frontier MODEL --tolerances ", "there must be at least one"),
    ("frontier MODEL --runs 0", "runs=0 must be"),
    ("profile missing.onnx", "ModelError"),
    ("profile MODEL --runs 0", "runs=0 must be an integer of at least 1"),
    ("profile MODEL --trace no/folder/out.json", "no/folder/out.json: cannot be written"),
    ("profile MODEL --svg .", "cannot be written: it is no file"),
    ("profile MODEL --input no.npy", "cannot be read as a .npy file"),
    ("dispatcher Nonsense", "no operator 'Nonsense'"),
    ("dispatcher Relu --library nonsense", "'nonsense' is not registered"),
    ("ops Nonsense", "no operator 'Nonsense'"),
    ("libs --check missing.toml", "no description there"),
    ("libs --import", "InputError: --import belongs to --check FILE\n"),
]


@pytest.mark.parametrize(("line", "wanted"), ERRORS, ids=lambda text: text.strip())
def test_an_error_is_a_message(squeezenet: Path, line: str, wanted: str) -> None:
    ran = vtensor(*(squeezenet if text == "MODEL" else text for text in line.split(" ")))
    assert ran.exit_code == 1
    assert wanted in ran.stderr
    assert "Traceback" not in ran.output
    assert ran.stdout == ""


def test_debug_shows_the_traceback() -> None:
    ran = vtensor("run", "missing.onnx", "--debug")
    assert type(ran.exception).__name__ == "ModelError"
