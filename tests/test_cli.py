"""The command line: what it prints, its JSON, its errors."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from matplotlib import cbook
from typer.testing import CliRunner, Result

from eval.models import light_model, seeded
from vtensor.cli import app, make_feeds, top_classes
from vtensor.commands.shared import parse_shapes
from vtensor.errors import InputError
from vtensor.runtime.feeds import Port

PHOTOGRAPH = cbook.get_sample_data("grace_hopper.jpg", asfileobj=False)


@pytest.fixture(scope="module")
def squeezenet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """SqueezeNet with seeded weights, as a file."""
    file = tmp_path_factory.mktemp("models") / "squeezenet.onnx"
    onnx.save(seeded(light_model("squeezenet"), seed=0), str(file))
    return file


def vtensor(*arguments: object) -> Result:
    """Run the command."""
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def test_run_on_a_photograph_names_classes(squeezenet: Path, tmp_path: Path) -> None:
    labels = tmp_path / "labels.txt"
    labels.write_text("\n".join(f"thing number {index}" for index in range(1000)))
    saved = tmp_path / "out.npz"
    ran = vtensor(
        *("run", squeezenet, "--input", PHOTOGRAPH, "--labels", labels),
        *("--threads", 2, "--repeat", 2, "--top", 3, "--save", saved),
    )
    assert ran.exit_code == 0, ran.output
    assert ran.stdout.count("thing number") == 3
    assert "median of 2 runs on 2 threads" in ran.stdout
    assert "seeded random" not in ran.stdout
    [output] = np.load(saved).values()
    assert output.shape == (1, 1000, 1, 1)
    assert abs(output.sum() - 1) < 1e-4


def test_run_without_input_says_so_and_json_is_json(squeezenet: Path) -> None:
    assert "seeded random" in vtensor("run", squeezenet, "--repeat", 1).stdout
    ran = vtensor("run", squeezenet, "--repeat", 3, "--json")
    data = json.loads(ran.stdout)
    assert len(data["latency_ms"]["all"]) == 3
    [output] = data["outputs"].values()
    assert len(output["top"][0]) == 5
    assert output["top"][0][0]["score"] >= output["top"][0][4]["score"]


def test_the_same_picture_as_npy_gives_the_same_answer(squeezenet: Path, tmp_path: Path) -> None:
    from vtensor.image import image_for

    file = tmp_path / "x.npy"
    np.save(file, image_for((1, 3, 224, 224), PHOTOGRAPH, "unit"))
    rows = []
    for options in (["--input", file], ["--input", PHOTOGRAPH, "--preprocess", "unit"]):
        ran = vtensor("run", squeezenet, *options, "--json", "--repeat", 1)
        [output] = json.loads(ran.stdout)["outputs"].values()
        rows.append(output["top"])
    assert rows[0] == rows[1]


def test_plan_has_a_line_a_step_and_says_why(squeezenet: Path) -> None:
    ran = vtensor("plan", squeezenet)
    assert ran.exit_code == 0, ran.output
    data = json.loads(vtensor("plan", squeezenet, "--json").stdout)
    assert data["summary"]["steps"] == len(data["steps"])
    for number, step in enumerate(data["steps"]):
        [line] = [
            row for row in ran.stdout.splitlines() if row.split()[:2] == [str(number), step["node"]]
        ]
        assert step["operator"] in line
        assert all(kernel in line for kernel in step["kernels"])
    assert data["conversions"], "the first convolution at least does not want what comes in"
    assert ran.stdout.count("why: ") == 2 * len(data["conversions"])  # in place, and summed up
    for row in data["conversions"]:
        assert f"{row['source']} -> {row['target']}" in ran.stdout
        assert ".py:" in row["reason"]["required_at"]
    assert sum(data["summary"]["by_kernel"].values()) == sum(
        len(step["kernels"]) for step in data["steps"]
    )


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        (["run", "missing.onnx"], "ModelError"),
        (["plan", "MODEL", "--optimize", "fast"], "is no level"),
        (["plan", "MODEL", "--optimize", "lho"], "not built yet"),
        (["plan", "MODEL", "--threads", "-3"], "threads=-3"),
        (["run", "MODEL", "--shape", "data_0"], "write it as name=1,3,224,224"),
        (["run", "MODEL", "--shape", "data_0=1,3,10"], "data_0"),
        (["run", "MODEL", "--input", "no.npy"], "cannot be read as a .npy file"),
        (["run", "MODEL", "--input", "no.jpg"], "cannot be read as a picture"),
        (["run", "MODEL", "--labels", "no.txt"], "cannot be read as labels"),
        (["run", "MODEL", "--save", "no/folder.npz"], "cannot be written there"),
    ],
)
def test_errors_are_messages_not_tracebacks(
    squeezenet: Path, arguments: list[str], wanted: str
) -> None:
    given = [str(squeezenet) if text == "MODEL" else text for text in arguments]
    ran = vtensor(*given)
    assert ran.exit_code == 1
    assert wanted in ran.stderr
    assert "Traceback" not in ran.output
    assert ran.stdout == ""


def test_sizes_of_an_empty_batch_are_kept() -> None:
    port = Port("x", "f32", (None, 3), ("N", "C"))
    assert make_feeds([port], [], "none", {"x": (0, 3)})["x"].shape == (0, 3)
    assert make_feeds([port], [], "none", {})["x"].shape == (1, 3)


def test_debug_shows_the_traceback() -> None:
    ran = vtensor("run", "missing.onnx", "--debug")
    assert type(ran.exception).__name__ == "ModelError"


def test_a_malformed_shape_is_refused() -> None:
    for text in ("x", "=1,2", "x=1,-2", "x=1,,2", "x="):
        with pytest.raises(InputError, match="write it as"):
            parse_shapes([text])


def test_only_classifications_have_classes() -> None:
    scores: Any = np.array([[0.1, 0.7, 0.2]], np.float32)
    assert [row["class"] for row in top_classes(scores, 2, ["a", "b"])[0]] == [1, 2]
    assert top_classes(scores, 2, ["a", "b"])[0][0]["label"] == "b"
    assert top_classes(np.zeros((1, 3, 4)), 2, []) == []
    assert top_classes(np.zeros((0, 3)), 2, []) == []


def test_a_cap_on_instruction_sets(squeezenet: Path) -> None:
    # a process of its own: a library fixes its cap at its first use
    command = [sys.executable, "-m", "vtensor.cli", "plan", str(squeezenet), "--json"]
    ran = subprocess.run([*command, "--isa", "sse41"], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    assert "sse41" in ran.stdout
    assert "avx" not in ran.stdout


def test_no_such_cap(squeezenet: Path) -> None:
    for command in ("run", "plan"):
        ran = vtensor(command, squeezenet, "--isa", "mmx")
        assert ran.exit_code == 1
        assert "one of sse41, avx2, avx512, amx, max" in ran.stderr
