"""Errors of the commands: each is a message on stderr, with exit status 1 and without traceback."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from tests.commands.test_cli import MANY
from tests.commands.test_plan_sizes import SMALL
from tests.frontends.support import f32, model
from tests.libraries.command import vtensor

#: Command lines, and what their message must have: parts with ``...`` between them.
ERRORS = [
    ("run missing.onnx", "ModelError"),
    ("run model.onnx --pin Relu", "write it as OPERATOR=LIBRARY or NODE=LIBRARY"),
    ("run model.onnx --shape data_0", "write it as name=1,3,224,224"),
    ("run model.onnx --shape data_0=1,3,10", "data_0"),
    ("run model.onnx --input no.npy", "cannot be read as a .npy file"),
    ("run model.onnx --input no.jpg", "cannot be read as a picture"),
    ("run model.onnx --labels no.txt", "cannot be read as labels"),
    ("run model.onnx --save no/folder.npz", "cannot be written there"),
    ("run model.onnx --isa mmx", "one of sse41, avx2, avx512, amx, max"),
    ("run many.onnx --input no.npy", "cannot be read as a .npy file"),
    ("run many.onnx --input x=bad.npz", "cannot be read as a .npz file"),
    ("run many.onnx --input x=bad.pb", "cannot be read as a .pb file"),
    ("run many.onnx --input photo.jpg", "write name=FILE; inputs are x, shape, ids, scale"),
    ("run many.onnx --input x=two.npz", "it holds a, b; inputs are x"),
    ("run many.onnx --value z=1", "write it as name=1,2,3; inputs are x"),
    ("run many.onnx --value shape=1,b", "'1,b' is no list of numbers of s64"),
    ("run many.onnx --value shape=1.5", "'1.5' is no list of numbers of s64"),
    ("run many.onnx --value shape=3,4 --shape x=5,4", "Reshape"),
    ("run many.onnx --value shape=20 --shape x=5,4", "'y' is declared with 2 dims, and has 1"),
    ("run many.onnx --value ids=1,2,3", "shape (3,) was given, the model has (2)"),
    ("plan many.onnx --shape x=3,4 --shape shape=2", "--value shape=1,2,3, or --input shape=FILE"),
    ("plan model.onnx --isa mmx", "one of sse41, avx2, avx512, amx, max"),
    ("plan model.onnx --optimize fast", "is no level"),
    ("plan model.onnx --objective fast", "objectives are shared, paper"),
    ("plan model.onnx --threads -3", "threads=-3"),
    ("plan model.onnx --libraries eigen,mkl", "libraries: mkl is not registered"),
    ("plan small.onnx --shape x=1,3,9,9 --sizes n", "InputError...write it as"),
    ("plan small.onnx --shape x=1,3,9,9 --sizes n=3..1", "InputError...names no sizes"),
    ("plan small.onnx --shape x=1,3,9,9 --sizes n=1..4:0", "InputError...names no sizes"),
    ("plan small.onnx --shape x=1,3,9,9 --sizes n=1..2,n=3..4", "InputError...comes twice"),
    ("plan small.onnx --shape x=1,3,9,9 --sizes n=1..5000", "InputError...give a step"),
    ("plan small.onnx --shape x=1,3,9,9 --sizes m=1..3", "InputError...no open size m"),
    ("plan small.onnx --shape x=1,3,9,9 --sizes x[1]=1..3", "InputError...is 3 in the model"),
    ("plan small.onnx --sizes n=1..3", "InputError...is open, too"),
    ("plan small.onnx --shape x=1,3,9,9 --sizes n=1..3 --tune", "InputError"),
    ("plan small.onnx --shape x=1,3,9,9 --sizes n=1..3 --optimize ewo", "InputError"),
    ("plan small.onnx --shape x=1,3,9,9 --sizes n=1..3 --html p.html", "InputError"),
    ("plan small.onnx --shape x=1,3,9,9 --sizes n=1..3 --shape z=1", "InputError"),
    ("explain missing.onnx", "ModelError"),
    ("explain model.onnx --pin conv1=eigen", "neither an operator nor a node of"),
    ("explain model.onnx --node nowhere", "has no node 'nowhere'"),
    ("export model.onnx no/out.onnx --opset 3", "among 17 to"),
    ("export model.onnx no/out.onnx", "cannot be written there"),
    ("frontier model.onnx --tolerances 0,-1e-5", "tolerance=-1e-05"),
    ("frontier model.onnx --tolerances nan", "must be a number of at least 0"),
    ("frontier model.onnx --tolerances 1e-5;1e-3", "write numbers with commas"),
    ("frontier model.onnx --tolerances ", "there must be at least one"),
    ("frontier model.onnx --runs 0", "runs=0 must be"),
    ("profile missing.onnx", "ModelError"),
    ("profile model.onnx --runs 0", "runs=0 must be an integer of at least 1"),
    ("profile model.onnx --trace no/folder/out.json", "no/folder/out.json: cannot be written"),
    ("profile model.onnx --svg .", "cannot be written: it is no file"),
    ("profile model.onnx --input no.npy", "cannot be read as a .npy file"),
    ("dispatcher Nonsense", "no operator 'Nonsense'"),
    ("dispatcher Relu --library nonsense", "'nonsense' is not registered"),
    ("ops Nonsense", "no operator 'Nonsense'"),
    ("libs --check missing.toml", "no description there"),
    ("libs --check bad.toml", "is no TOML"),
    ("libs --check short.toml", "library.priority is missing"),
    ("libs --import", "InputError: --import belongs to --check FILE\n"),
]


@pytest.fixture
def here(squeezenet: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Change to a folder with the models and the damaged files that the lines name."""
    monkeypatch.chdir(tmp_path)
    Path("model.onnx").symlink_to(squeezenet)
    onnx.save(model(MANY), "many.onnx")
    onnx.save(model(SMALL, k=f32(4, 3, 5, 5)), "small.onnx")
    for name in ("bad.npz", "bad.pb"):
        Path(name).write_bytes(b"nonsense")
    np.savez("two.npz", a=np.zeros(1), b=np.zeros(1))
    Path("bad.toml").write_text("[library")
    Path("short.toml").write_text("[library]\nname = 'x'\n")


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(("line", "wanted"), ERRORS, ids=lambda text: text.strip())
def test_error_is_a_message(line: str, wanted: str) -> None:
    ran = vtensor(*line.split(" "))
    assert (ran.exit_code, ran.stdout) == (1, "")
    assert [part for part in wanted.split("...") if part not in ran.stderr] == []
    assert "Traceback" not in ran.output


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(
    ("line", "error"),
    [
        ("run missing.onnx", "ModelError"),
        ("libs --check bad.toml", "DescriptionError"),
        ("libs --check short.toml", "DescriptionError"),
    ],
)
def test_debug_shows_the_traceback(line: str, error: str) -> None:
    ran = vtensor(*line.split(), "--debug")
    assert type(ran.exception).__name__ == error
