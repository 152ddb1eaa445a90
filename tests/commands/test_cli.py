"""The command line: what it prints, its JSON, its errors."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest
from matplotlib import cbook
from typer.testing import Result

from tests.libraries.command import vtensor
from vtensor.cli import top_classes
from vtensor.commands.given import make_feeds, read_arrays
from vtensor.commands.shared import parse_shapes
from vtensor.errors import InputError
from vtensor.language.dtype import from_numpy
from vtensor.storage.inputs import Port

PHOTOGRAPH = cbook.get_sample_data("grace_hopper.jpg", asfileobj=False)


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
    converted = ("--libraries", "onednn,eigen,numpy")  # no other spares it the Transform
    ran = vtensor("plan", squeezenet, *converted)
    assert ran.exit_code == 0, ran.output
    data = json.loads(vtensor("plan", squeezenet, *converted, "--json").stdout)
    assert data["summary"]["steps"] == len(data["steps"])
    for number, step in enumerate(data["steps"]):
        [line] = [
            row for row in ran.stdout.splitlines() if row.split()[:2] == [str(number), step["node"]]
        ]
        assert step["operator"] in line
        assert all(kernel in line for kernel in step["kernels"])
    assert data["conversions"]
    reasons = [reason for row in data["conversions"] for reason in row["reasons"]]
    assert ran.stdout.count("why: ") == 2 * len(reasons)  # in place, and summed up
    for row in data["conversions"]:
        assert f"{row['source']} -> {row['target']}" in ran.stdout
    assert all(".py:" in reason["required_at"] for reason in reasons)
    assert sum(data["summary"]["by_kernel"].values()) == sum(
        len(step["kernels"]) for step in data["steps"]
    )


MANY = """<ir_version: 8, opset_import: ["" : 17]> many
(float[n, 4] x, int64[k] shape, int64[2] ids, float scale) => (float[r, q] y, float[2, 4] z)
{ y = Reshape(x, shape) s = Mul(x, scale) z = Gather(s, ids) }"""


@pytest.fixture
def many(tmp_path: Path) -> Path:
    """A model of several inputs, the value of one of which decides a shape."""
    file = tmp_path / "many.onnx"
    onnx.save(onnx.parser.parse_model(MANY), str(file))
    return file


def saved(ran: Result, file: Path) -> dict[str, Any]:
    """The outputs that a run has written."""
    assert ran.exit_code == 0, ran.output
    with np.load(file) as stored:
        return dict(stored)


def test_every_way_to_give_an_input(many: Path, tmp_path: Path) -> None:
    x, ids = np.arange(8, dtype=np.float32).reshape(2, 4), np.array([1, 0])
    np.save(tmp_path / "x.npy", x)
    np.savez(tmp_path / "all.npz", x=x, ids=ids, scale=np.float32(3))
    np.savez(tmp_path / "one.npz", whatever=x)
    for name, array in {"x": x, "other": ids}.items():
        proto = onnx.numpy_helper.from_array(array, name)
        (tmp_path / f"{name}.pb").write_bytes(proto.SerializeToString())
    rest = ["--value", "ids=1,0", "--value", "scale=3"]
    ways = [
        ["--input", f"x={tmp_path}/x.npy", *rest],
        ["--input", f"x={tmp_path}/one.npz", *rest],
        ["--input", f"x={tmp_path}/all.npz", *rest],
        ["--input", f"{tmp_path}/all.npz"],
        ["--input", f"{tmp_path}/x.pb", "--input", f"ids={tmp_path}/other.pb", *rest[2:]],
    ]
    out = tmp_path / "out.npz"
    for way in ways:
        ran = vtensor("run", many, *way, "--value", "shape=4,2", "--repeat", 1, "--save", out)
        got = saved(ran, out)
        np.testing.assert_array_equal(got["y"], x.reshape(4, 2))
        np.testing.assert_array_equal(got["z"], x[[1, 0]] * 3)
        assert "seeded random" not in ran.stdout


def test_what_is_not_given_is_made_up_and_said_so(many: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.npz"
    options = ["--shape", "x=3,4", "--value", "shape=2,6", "--repeat", 1, "--save", out]
    runs = [vtensor("run", many, *options) for _ in range(2)]
    first, again = (saved(ran, out)["y"] for ran in runs)
    np.testing.assert_array_equal(first, again)
    for name in ("x", "ids", "scale"):
        assert f"{name}: seeded random numbers (give --input {name}=FILE" in runs[0].stdout
    assert "shape: seeded" not in runs[0].stdout
    assert json.loads(vtensor("run", many, *options, "--json").stdout)["seeded_inputs"] == [
        *("x", "ids", "scale")
    ]


def test_values_that_decide_shapes_reach_plan_and_explain(many: Path) -> None:
    options = ["--shape", "x=3,4", "--value", "shape=2,6"]
    data = json.loads(vtensor("plan", many, *options, "--json").stdout)
    assert re.fullmatch(r"y : f32 \w+=2 \w+=6", data["outputs"][0])
    assert vtensor("explain", many, *options).exit_code == 0
    ran = vtensor("plan", many, "--shape", "x=3,4", "--shape", "shape=2")
    assert ran.exit_code == 1
    assert "--value shape=1,2,3, or --input shape=FILE" in ran.stderr


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        (["--input", "no.npy"], "cannot be read as a .npy file"),
        (["--input", "x=bad.npz"], "cannot be read as a .npz file"),
        (["--input", "x=bad.pb"], "cannot be read as a .pb file"),
        (["--input", "photo.jpg"], "write name=FILE; inputs are x, shape, ids, scale"),
        (["--input", "x=two.npz"], "it holds a, b; inputs are x"),
        (["--value", "z=1"], "write it as name=1,2,3; inputs are x"),
        (["--value", "shape=1,b"], "'1,b' is no list of numbers of s64"),
        (["--value", "shape=1.5"], "'1.5' is no list of numbers of s64"),
        (["--value", "shape=3,4", "--shape", "x=5,4"], "Reshape"),
        (["--value", "shape=20", "--shape", "x=5,4"], "'y' is declared with 2 dims, and has 1"),
        (["--value", "ids=1,2,3"], "shape (3,) was given, the model has (2)"),
    ],
)
def test_wrong_inputs_are_messages(
    many: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], wanted: str
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("bad.npz", "bad.pb"):
        Path(name).write_bytes(b"nonsense")
    np.savez("two.npz", a=np.zeros(1), b=np.zeros(1))
    ran = vtensor("run", many, *arguments)
    assert (ran.exit_code, ran.stdout) == (1, "")
    assert wanted in ran.stderr
    assert "Traceback" not in ran.stderr


def test_made_up_numbers_are_of_their_inputs_type() -> None:
    ports = [
        Port("x", "f32", (0, 3), ("N", "C")),
        Port("b", "bf16", (50,), ("N",)),
        Port("i", "s64", (50,), ("N",)),
        Port("t", "bool", (50,), ("N",)),
    ]
    feeds, made_up = make_feeds(ports, {}, {}, "none")
    assert made_up == ["x", "b", "i", "t"]
    assert feeds["x"].shape == (0, 3)
    assert set(feeds["i"]) == {0, 1}
    assert set(feeds["t"]) == {False, True}
    assert len(set(feeds["b"].tolist())) > 20


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
    assert top_classes(np.array([[True, False]]), 2, []) == []
    assert top_classes(np.array([[1 + 2j, 3j]]), 2, []) == []


@pytest.mark.parametrize("dtype", ["u1", "i1", "f2", "bfloat16"])
def test_classes_of_any_real_type(dtype: str) -> None:
    scores = np.array([[0, 5, 3, 100, 5]], dtype)
    assert [row["class"] for row in top_classes(scores, 4, [])[0]] == [3, 1, 4, 2]


UNLISTED = """<ir_version: 8, opset_import: ["" : 17]> unlisted
(float[2, 3] x) => (float[2, 3] y) { z = Relu(x) y = LogSoftmax(z) }"""


def test_libraries_and_pins(tmp_path: Path) -> None:
    file = tmp_path / "unlisted.onnx"
    onnx.save(onnx.parser.parse_model(UNLISTED), file)
    note = "nodes on numpy, since no listed library takes them: 1 x LogSoftmax"
    data = json.loads(vtensor("plan", file, "--libraries", "eigen", "--json").stdout)
    assert [(s["library"], s["unlisted"]) for s in data["steps"]] == [
        *(("eigen", False), ("numpy", True))
    ]
    assert data["summary"]["unlisted_steps"] == 1
    assert note in vtensor("plan", file, "--libraries", "eigen").stdout.splitlines()
    assert f"note: {note}" in vtensor("run", file, "--libraries", "eigen").stderr.splitlines()
    pins = ["--libraries", "eigen,onednn", "--pin", "Relu=numpy", "--pin", "Relu:0=onednn"]
    ran = vtensor("plan", file, *pins, "--json")
    assert [s["library"] for s in json.loads(ran.stdout)["steps"]] == ["onednn", "onednn"]


SIGNS = """<ir_version: 8, opset_import: ["" : 17]> signs
(float[1, 3] x) => (bool[1, 3] file, float[1, 3] allow_pickle)
{ zero = Constant<value_float = 0.0>() file = Greater(x, zero) allow_pickle = Relu(x) }"""


def test_outputs_of_any_name_and_type_are_written(tmp_path: Path) -> None:
    file, x = tmp_path / "x.npy", np.array([[-1, 0, 2]], np.float32)
    np.save(file, x)
    onnx.save(onnx.parser.parse_model(SIGNS), tmp_path / "signs.onnx")
    options = ["--repeat", 1, "--threads", 1, "--save", tmp_path / "out"]
    ran = vtensor("run", tmp_path / "signs.onnx", "--input", file, *options)
    got = saved(ran, tmp_path / "out.npz")
    assert set(got) == {"file", "allow_pickle"}
    np.testing.assert_array_equal(got["file"], x > 0)
    np.testing.assert_array_equal(got["allow_pickle"], np.maximum(x, 0))
    assert "median of 1 run on 1 thread; 0 layout conversions a run" in ran.stdout


IDLE = """<ir_version: 8, opset_import: ["" : 17]> idle
(float[2, 16] x, float[0, 3] none) => (float[16, 2] y, float[0, 3] z, float[1, 16] v)
{ shape = Constant<value_ints = [16, 2]>() y = Reshape(x, shape) z = Elu(none)
  one = Constant<value_ints = [1]>() two = Constant<value_ints = [2]>()
  row = Slice(x, one, two) v = Tanh(row) }"""


def test_why_nothing_runs(tmp_path: Path) -> None:
    file = tmp_path / "idle.onnx"
    onnx.save(onnx.parser.parse_model(IDLE), file)
    why = {
        "alias": "the same memory under other dims",
        "part": "one is a part of the other's memory",
        "empty": "there are no elements",
    }
    lines = vtensor("plan", file).stdout.splitlines()
    for operator, kind in {"Reshape": "alias", "Slice": "part", "Elu": "empty"}.items():
        [number] = [n for n, line in enumerate(lines) if operator in line.split()]
        assert f"({kind})" in lines[number]
        assert lines[number + 1].strip() == f"moves nothing: {why[kind]}"
        assert f"1 x nothing runs: {why[kind]}" in "\n".join(lines)
    summary = json.loads(vtensor("plan", file, "--json").stdout)["summary"]
    assert (summary["aliases"], summary["parts"], summary["empty"]) == (1, 1, 1)


@pytest.mark.parametrize(
    ("dtype", "text"),
    [
        *[(dtype, text) for dtype in ("u8", "s64", "f32") for text in ("1,,", ",", "b")],
        *[("u8", "300"), ("u8", "-1"), ("u4", "16"), ("s4", "-9"), ("bool", "2")],
        *[("s64", str(2**63)), ("s64", "1e2"), ("f32", "1e300")],
    ],
)
def test_values_that_their_type_does_not_have(dtype: str, text: str) -> None:
    with pytest.raises(InputError, match=f"{text!r} is no list of numbers of {dtype}"):
        read_arrays({"x": (dtype, (None,))}, None, [f"x={text}"])


@pytest.mark.parametrize(
    ("dtype", "text", "values"),
    [
        *[("u8", "255,0", [255, 0]), ("u4", "15", [15]), ("bool", "1,0", [True, False])],
        *[("s64", str(-(2**63)), [-(2**63)]), ("f16", "1.5,inf", [1.5, np.inf]), ("s64", "", [])],
    ],
)
def test_values_that_it_has(dtype: str, text: str, values: list[Any]) -> None:
    [array] = read_arrays({"x": (dtype, (None,))}, None, [f"x={text}"])[0].values()
    assert array.tolist() == values
    assert from_numpy(array.dtype) == dtype


def test_a_cap_on_instruction_sets(squeezenet: Path) -> None:
    # a process of its own: a library fixes its cap at its first use
    command = [sys.executable, "-m", "vtensor.cli", "plan", str(squeezenet), "--json"]
    ran = subprocess.run([*command, "--isa", "sse41"], capture_output=True, text=True, timeout=120)
    assert ran.returncode == 0, ran.stderr
    assert "sse41" in ran.stdout
    assert "avx" not in ran.stdout


def test_export_writes_what_runs_the_same(squeezenet: Path, tmp_path: Path) -> None:
    out = tmp_path / "again.onnx"
    ran = vtensor("export", squeezenet, out, "--opset", 21)
    assert ran.exit_code == 0, ran.output
    assert "opset 21, 92 nodes, 1,235,496 parameters" in ran.stdout
    assert onnx.load(out).opset_import[0].version == 21
    tops = [vtensor("run", file, "--json", "--repeat", 1).stdout for file in (squeezenet, out)]
    first, second = (json.loads(text)["outputs"] for text in tops)
    assert first == second
    row = json.loads(vtensor("export", out, tmp_path / "third.onnx", "--json").stdout)
    assert (row["opset"], row["nodes"], row["parameters"]) == (17, 92, 1235496)
