"""The commands ``run``, ``plan`` and ``export``: what they print, their JSON, their inputs."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from matplotlib import cbook
from typer.testing import Result

from tests.frontends.support import model
from tests.libraries.command import data_of, vtensor
from vtensor.commands.given import make_feeds, read_arrays
from vtensor.commands.results import described, lines, top_classes
from vtensor.commands.shared import parse_shapes
from vtensor.errors import InputError
from vtensor.image import image_for
from vtensor.language.dtype import from_numpy
from vtensor.storage.inputs import Port

PHOTOGRAPH = cbook.get_sample_data("grace_hopper.jpg", asfileobj=False)

#: Several inputs, the value of one of which decides a shape.
MANY = """many
(float[n, 4] x, int64[k] shape, int64[2] ids, float scale) => (float[r, q] y, float[2, 4] z)
{ y = Reshape(x, shape) s = Mul(x, scale) z = Gather(s, ids) }"""

UNLISTED = "unlisted (float[2, 3] x) => (float[2, 3] y) { z = Relu(x) y = LogSoftmax(z) }"

SIGNS = """signs (float[1, 3] x) => (bool[1, 3] file, float[1, 3] allow_pickle)
{ zero = Constant<value_float = 0.0>() file = Greater(x, zero) allow_pickle = Relu(x) }"""

IDLE = """idle (float[2, 16] x, float[0, 3] none) => (float[16, 2] y, float[0, 3] z, float[1, 16] v)
{ shape = Constant<value_ints = [16, 2]>() y = Reshape(x, shape) z = Elu(none)
  one = Constant<value_ints = [1]>() two = Constant<value_ints = [2]>()
  row = Slice(x, one, two) v = Tanh(row) }"""


@pytest.fixture
def file(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """The model of the test's parameter, as a file."""
    file = tmp_path / "model.onnx"
    onnx.save(model(request.param), file)
    return file


def of_model(text: str) -> pytest.MarkDecorator:
    """Give a test a model as its fixture ``file``."""
    return pytest.mark.parametrize("file", [text], indirect=True, ids=[text.split()[0]])


def saved(ran: Result, file: Path) -> dict[str, Any]:
    """Return the outputs that a run has written."""
    assert ran.exit_code == 0, ran.output
    with np.load(file) as stored:
        return dict(stored)


def test_run_names_the_classes_of_a_photograph(squeezenet: Path, tmp_path: Path) -> None:
    labels, out = tmp_path / "labels.txt", tmp_path / "out.npz"
    labels.write_text("\n".join(f"thing number {index}" for index in range(1000)))
    ran = vtensor(
        *("run", squeezenet, "--input", PHOTOGRAPH, "--labels", labels),
        *("--threads", 2, "--repeat", 2, "--top", 3, "--save", out),
    )
    [output] = saved(ran, out).values()
    assert ran.stdout.count("thing number") == 3
    assert "median of 2 runs on 2 threads" in ran.stdout
    assert "seeded random" not in ran.stdout
    assert output.shape == (1, 1000, 1, 1)
    assert abs(output.sum() - 1) < 1e-4


def test_run_answers_the_same_to_a_picture_and_its_array(squeezenet: Path, tmp_path: Path) -> None:
    file = tmp_path / "x.npy"
    np.save(file, image_for((1, 3, 224, 224), PHOTOGRAPH, "unit"))
    rows = []
    for options in (["--input", file], ["--input", PHOTOGRAPH, "--preprocess", "unit"]):
        data = data_of("run", squeezenet, *options, "--repeat", 3)
        assert len(data["latency_ms"]["all"]) == 3
        [output] = data["outputs"].values()
        rows.append(output["top"])
    assert rows[0] == rows[1]
    [scores] = [[row["score"] for row in image] for image in rows[0]]
    assert len(scores) == 5
    assert scores == sorted(scores, reverse=True)


def test_plan_has_a_line_a_step_and_the_reason_of_each_conversion(squeezenet: Path) -> None:
    converted = ("--libraries", "onednn,eigen,numpy")  # no other spares it the Transform
    ran, data = vtensor("plan", squeezenet, *converted), data_of("plan", squeezenet, *converted)
    assert ran.exit_code == 0, ran.output
    assert data["summary"]["steps"] == len(data["steps"])
    rows = {tuple(line.split()[:2]): line for line in ran.stdout.splitlines()}
    for number, step in enumerate(data["steps"]):
        line = rows[str(number), step["node"]]
        assert step["operator"] in line
        assert all(kernel in line for kernel in step["kernels"])
    assert data["conversions"]
    reasons = [reason for row in data["conversions"] for reason in row["reasons"]]
    assert ran.stdout.count("why: ") == 2 * len(reasons)  # in place, and summed up
    for row in data["conversions"]:
        assert f"{row['source']} -> {row['target']}" in ran.stdout
    assert all(".py:" in reason["required_at"] for reason in reasons)
    kernels = [kernel for step in data["steps"] for kernel in step["kernels"]]
    assert sum(data["summary"]["by_kernel"].values()) == len(kernels)


@of_model(MANY)
def test_run_takes_an_input_in_every_way(file: Path, tmp_path: Path) -> None:
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
        ran = vtensor("run", file, *way, "--value", "shape=4,2", "--repeat", 1, "--save", out)
        outputs = saved(ran, out)
        np.testing.assert_array_equal(outputs["y"], x.reshape(4, 2))
        np.testing.assert_array_equal(outputs["z"], x[[1, 0]] * 3)
        assert "seeded random" not in ran.stdout


@of_model(MANY)
def test_run_draws_the_inputs_that_are_absent_and_names_them(file: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.npz"
    options = ["--shape", "x=3,4", "--value", "shape=2,6", "--repeat", 1, "--save", out]
    runs = [vtensor("run", file, *options) for _ in range(2)]
    first, again = (saved(ran, out)["y"] for ran in runs)
    np.testing.assert_array_equal(first, again)
    for name in ("x", "ids", "scale"):
        assert f"{name}: seeded random numbers (give --input {name}=FILE" in runs[0].stdout
    assert "shape: seeded" not in runs[0].stdout
    assert data_of("run", file, *options)["seeded_inputs"] == ["x", "ids", "scale"]


@of_model(MANY)
def test_values_that_decide_shapes_reach_plan_and_explain(file: Path) -> None:
    options = ["--shape", "x=3,4", "--value", "shape=2,6"]
    data = data_of("plan", file, *options)
    assert re.fullmatch(r"y : f32 \w+=2 \w+=6", data["outputs"][0])
    assert vtensor("explain", file, *options).exit_code == 0


def test_drawn_inputs_have_their_element_type() -> None:
    sizes = {"x": ("f32", 0), "b": ("bf16", 50), "i": ("s64", 50), "t": ("bool", 50)}
    ports = [Port(name, dtype, (size, 3), ("N", "C")) for name, (dtype, size) in sizes.items()]
    feeds, drawn = make_feeds(ports, {}, {}, "none")
    assert drawn == ["x", "b", "i", "t"]
    assert feeds["x"].shape == (0, 3)
    assert set(feeds["i"].flat) == {0, 1}
    assert set(feeds["t"].flat) == {False, True}
    assert len(set(feeds["b"].ravel().tolist())) > 20


@pytest.mark.parametrize("text", ["x", "=1,2", "x=1,-2", "x=1,,2", "x="])
def test_malformed_shape_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="write it as"):
        parse_shapes([text])


@pytest.mark.parametrize(
    ("scores", "classes"),
    [
        (np.array([[0.1, 0.7, 0.2]], np.float32), [1, 2]),
        *[(np.array([[0, 5, 3, 100, 5]], t), [3, 1, 4, 2]) for t in ("u1", "i1", "f2", "bfloat16")],
        (np.zeros((1, 3, 4)), []),
        (np.zeros((0, 3)), []),
        (np.array([[True, False]]), []),
        (np.array([[1 + 2j, 3j]]), []),
    ],
    ids=str,
)
def test_top_classes_are_of_real_scores_alone(scores: Any, classes: list[int]) -> None:
    rows = top_classes(scores, len(classes) or 2, ["a", "b"])
    labels = ["a", "b", "", "", ""]
    pairs = [(row["class"], row["label"]) for image in rows for row in image]
    assert pairs == [(number, labels[number]) for number in classes]


PICTURE = [Port("x", "f32", (1, 3, 32, 32), ("N", "C", "H", "W"))]
TOKENS = [Port("ids", "s64", (1, 8), ("D0", "D1"))]


@pytest.mark.parametrize(
    ("inputs", "outputs", "labels", "shown"),
    [
        (PICTURE, {"y": np.eye(1, 10)}, [], True),
        (PICTURE, {"y": np.ones((1, 10, 1, 1))}, [], True),
        (TOKENS, {"y": np.ones((1, 10))}, [], False),  # a pooled state
        (TOKENS, {"y": np.ones((1, 10))}, ["cat"], True),
        (PICTURE, {"y": np.ones((1, 10)), "z": np.ones((1, 10))}, [], False),
        (PICTURE, {"y": np.full((1, 4), -0.5)}, [], False),  # an embedding of length 1
        (PICTURE, {"y": np.ones((1, 10, 4))}, [], False),
    ],
    ids=str,
)
def test_classes_are_shown_of_classifiers_alone(
    inputs: list[Port], outputs: dict[str, Any], labels: list[str], shown: bool
) -> None:
    rows = described(inputs, outputs, 3, labels)
    text = "\n".join(line for name, row in rows.items() for line in lines(name, row))
    assert (bool(rows["y"]["top"]), "[0]" in text, "min" not in text) == (shown,) * 3


def test_boxes_are_shown_with_scores_and_classes() -> None:
    boxes = np.arange(12, dtype=np.float32).reshape(1, 3, 4)
    outputs = {"boxes": boxes, "scores": np.array([[0.1, 0.9, 0.5]], np.float32)}
    rows = described(PICTURE, outputs | {"labels": np.array([[2, 1, 0]])}, 2, ["cat", "dog"])
    assert lines("boxes", rows["boxes"])[1:] == [
        "  [0]          0.9  box 4 5 6 7  dog",
        "  [0]          0.5  box 8 9 10 11  cat",
    ]
    assert lines("labels", rows["labels"])[-1] == "  first 2 1 0"
    assert "box" in "".join(lines("boxes", described(PICTURE, outputs, 2, [])["boxes"]))


@pytest.mark.parametrize(
    ("array", "text"),
    [
        (np.array([1, np.nan, np.inf], np.float32), "infinite or NaN: 2 of 3"),
        (np.array(["a", "b"], object), "first a b"),
        (np.arange(20), "first 0 1 2 3 4 5 6 7 ..."),
        (np.array([1 + 2j]), "first (1+2j)"),
        (np.zeros((0, 3)), "float64 [0, 3]"),
        (np.array(2.5), "mean 2.5"),
        (np.array([True, False]), "mean 0.5"),
    ],
    ids=str,
)
def test_other_outputs_have_ranges_and_first_values(array: Any, text: str) -> None:
    row = described(TOKENS, {"y": array}, 5, [])["y"]
    assert text in "\n".join(lines("y", row))
    json.dumps(row, allow_nan=False)


@of_model(UNLISTED)
def test_nodes_outside_the_listed_libraries_are_noted_and_pins_bind(file: Path) -> None:
    note = "nodes on numpy, since no listed library takes them: 1 x LogSoftmax"
    data = data_of("plan", file, "--libraries", "eigen")
    steps = [(step["library"], step["unlisted"]) for step in data["steps"]]
    assert steps == [("eigen", False), ("numpy", True)]
    assert data["summary"]["unlisted_steps"] == 1
    assert note in vtensor("plan", file, "--libraries", "eigen").stdout.splitlines()
    assert f"note: {note}" in vtensor("run", file, "--libraries", "eigen").stderr.splitlines()
    pins = ["--libraries", "eigen,onednn", "--pin", "Relu=numpy", "--pin", "Relu:0=onednn"]
    data = data_of("plan", file, *pins)
    assert [step["library"] for step in data["steps"]] == ["onednn", "onednn"]


@of_model(SIGNS)
def test_run_writes_outputs_of_any_name_and_type(file: Path, tmp_path: Path) -> None:
    x = np.array([[-1, 0, 2]], np.float32)
    np.save(tmp_path / "x.npy", x)
    options = ["--repeat", 1, "--threads", 1, "--save", tmp_path / "out"]
    ran = vtensor("run", file, "--input", tmp_path / "x.npy", *options)
    outputs = saved(ran, tmp_path / "out.npz")
    assert set(outputs) == {"file", "allow_pickle"}
    np.testing.assert_array_equal(outputs["file"], x > 0)
    np.testing.assert_array_equal(outputs["allow_pickle"], np.maximum(x, 0))
    assert "median of 1 run on 1 thread; 0 layout conversions a run" in ran.stdout


@of_model(IDLE)
def test_plan_says_why_a_node_moves_nothing(file: Path) -> None:
    lines = vtensor("plan", file).stdout.splitlines()
    for operator, kind, why in (
        ("Reshape", "alias", "the same memory under other dims"),
        ("Slice", "part", "one is a part of the other's memory"),
        ("Elu", "empty", "there are no elements"),
    ):
        [number] = [n for n, line in enumerate(lines) if operator in line.split()]
        assert f"({kind})" in lines[number]
        assert lines[number + 1].strip() == f"moves nothing: {why}"
        assert f"1 x nothing runs: {why}" in "\n".join(lines)
    summary = data_of("plan", file)["summary"]
    assert (summary["aliases"], summary["parts"], summary["empty"]) == (1, 1, 1)


@pytest.mark.parametrize(
    ("dtype", "text", "values"),
    [
        *[(dtype, text, None) for dtype in ("u8", "s64", "f32") for text in ("1,,", ",", "b")],
        *[("u8", "300", None), ("u8", "-1", None), ("u4", "16", None), ("s4", "-9", None)],
        *[("bool", "2", None), ("s64", str(2**63), None), ("s64", "1e2", None)],
        ("f32", "1e300", None),
        *[("u8", "255,0", [255, 0]), ("u4", "15", [15]), ("bool", "1,0", [True, False])],
        *[("s64", str(-(2**63)), [-(2**63)]), ("f16", "1.5,inf", [1.5, np.inf]), ("s64", "", [])],
    ],
)
def test_values_are_those_that_their_type_has(
    dtype: str, text: str, values: list[Any] | None
) -> None:
    inputs = {"x": (dtype, (None,))}
    if values is None:
        with pytest.raises(InputError, match=f"{text!r} is no list of numbers of {dtype}"):
            read_arrays(inputs, None, [f"x={text}"])
    else:
        [array] = read_arrays(inputs, None, [f"x={text}"])[0].values()
        assert array.tolist() == values
        assert from_numpy(array.dtype) == dtype


def test_exported_model_runs_the_same(squeezenet: Path, tmp_path: Path) -> None:
    out = tmp_path / "again.onnx"
    ran = vtensor("export", squeezenet, out, "--opset", 21)
    assert ran.exit_code == 0, ran.output
    assert "opset 21, 92 nodes, 1,235,496 parameters" in ran.stdout
    assert onnx.load(out).opset_import[0].version == 21
    first, second = (data_of("run", each, "--repeat", 1)["outputs"] for each in (squeezenet, out))
    assert first == second
    row = data_of("export", out, tmp_path / "third.onnx")
    assert (row["opset"], row["nodes"], row["parameters"]) == (17, 92, 1235496)
