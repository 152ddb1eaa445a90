"""Errors: both packages raise the same classes, with the words that programs search for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.onnxruntime.models import TINY, X, bytes_of
from vtensor import onnxruntime as ours
from vtensor.onnxruntime.errors import Fail


def test_missing_file(ort: Any, errors: Any, tmp_path: Path) -> None:
    with pytest.raises(errors.NoSuchFile, match=r"NO_SUCHFILE.*File doesn't exist"):
        ort.InferenceSession(tmp_path / "none.onnx")


@pytest.mark.parametrize("content", [b"no model", TINY[:60], TINY[:-1]])
def test_bytes_that_are_no_model(ort: Any, errors: Any, tmp_path: Path, content: bytes) -> None:
    (tmp_path / "bad.onnx").write_bytes(content)
    for model in (content, str(tmp_path / "bad.onnx")):
        with pytest.raises(
            errors.InvalidProtobuf, match=r"INVALID_PROTOBUF.*rotobuf parsing failed"
        ):
            ort.InferenceSession(model)


def test_folder_and_empty_model(ort: Any, errors: Any, tmp_path: Path) -> None:
    with pytest.raises(errors.InvalidProtobuf):
        ort.InferenceSession(str(tmp_path))
    (tmp_path / "empty.onnx").touch()
    for model in (b"", tmp_path / "empty.onnx"):
        with pytest.raises(errors.InvalidArgument, match="No graph was found"):
            ort.InferenceSession(model)


@pytest.mark.parametrize("model", [None, "", 3, bytearray(TINY)])
def test_models_of_another_type(ort: Any, model: Any) -> None:
    with pytest.raises(TypeError):
        ort.InferenceSession(model)


@pytest.mark.parametrize(
    "text",
    [
        "g (float[n, 3] x) => (float[n, 3] y) { y = Add(x, q) }",
        "g (float[n, 3] x) => (float[n, 3] y) { y = Relu<foo = 1>(x) }",
        "g (float[2, 3] x, float[4] z) => (float[2, 3] y) { y = Add(x, z) }",
        "g (float[n, 3] x, int64[3] z) => (float[n, 3] y) { y = Add(x, z) }",
        "g (uint16[2] x) => (uint16[2] y) { y = Relu(x) }",
    ],
)
def test_inconsistent_graphs_fail_at_construction(ort: Any, errors: Any, text: str) -> None:
    with pytest.raises((errors.InvalidGraph, errors.InvalidArgument, errors.Fail)):
        ort.InferenceSession(bytes_of(text))


@pytest.mark.parametrize("domain", ["", "own."])
def test_unknown_operators_fail_at_construction(ort: Any, errors: Any, domain: str) -> None:
    text = (
        '<ir_version: 8, opset_import: ["" : 17, "own" : 1]> g (float[a, b] x) => (float[a, b] y) '
    )
    source = bytes_of(text + f"{{ u = Relu(x) y = {domain}Foo(u) }}")
    with pytest.raises((errors.NotImplemented, errors.InvalidGraph, errors.Fail), match="Foo"):
        ort.InferenceSession(source)


@pytest.fixture(scope="module")
def made() -> dict[str, Any]:
    return {}


@pytest.fixture
def session(ort: Any, made: dict[str, Any]) -> Any:
    """A session that earlier failures of the package's tests have not harmed."""
    session = made.setdefault(ort.__name__, ort.InferenceSession(TINY))
    yield session
    np.testing.assert_array_equal(session.run(["y"], {"x": X})[0], np.maximum(X, 0))


FAULTS: dict[str, tuple[dict[str, Any], str, str]] = {
    "name": ({"x": X, "q": X}, "InvalidArgument", "Invalid input name: q"),
    "rank": (
        {"x": X[0]},
        "InvalidArgument",
        "Invalid rank for input: x Got: 1 Expected: 2 Please fix",
    ),
    "size": (
        {"x": np.ones((2, 4), np.float32)},
        "InvalidArgument",
        r"Got invalid dimensions for input: x for the .* indices\n index: 1 Got: 4 Expected: 3",
    ),
    "type": (
        {"x": X.astype(np.float64)},
        "InvalidArgument",
        r"Unexpected input data type. Actual: \(tensor\(double\)\) , expected: \(tensor\(float\)\)",
    ),
    "integers": ({"x": X.astype(np.int64)}, "InvalidArgument", r"Actual: \(tensor\(int64\)\)"),
    "default's size": (
        {"x": X, "w": np.ones(2, np.float32)},
        "InvalidArgument",
        r"for input: w for the following indices\n index: 0 Got: 2 Expected: 1",
    ),
    "missing": (
        {},
        "ValueError",
        r"Required inputs \(\['x'\]\) are missing from input feed \(\[\]\)",
    ),
    "ragged": (
        {"x": [[1, 2], [1]]},
        "RuntimeError",
        "Could not create tensor from given input list",
    ),
    "texts": ({"x": [["a", "b", "c"]]}, "RuntimeError", "Could not create tensor from given"),
    "object": ({"x": object()}, "RuntimeError", "Unable to handle object of type <class 'object'>"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_wrong_inputs(session: Any, errors: Any, fault: str) -> None:
    feeds, kind, message = FAULTS[fault]
    cls = (
        getattr(errors, kind)
        if kind == "InvalidArgument"
        else {"ValueError": ValueError}.get(kind, RuntimeError)
    )
    with pytest.raises(cls, match=message):
        session.run(None, feeds)


def test_wrong_output_name(session: Any, errors: Any) -> None:
    for name in ("q", "inner"):
        with pytest.raises(errors.InvalidArgument, match=f"Invalid output name:{name}"):
            session.run(["y", name], {"x": X})


def test_names_that_are_no_list(session: Any) -> None:
    with pytest.raises(TypeError):
        session.run("y", {"x": X})
    with pytest.raises(AttributeError):
        session.run(None, [X])
    with pytest.raises(TypeError):
        session.run(None, {"x": X}, 5)


def test_shapes_that_meet_inside_of_the_model(ort: Any, errors: Any) -> None:
    session = ort.InferenceSession(
        bytes_of("g (float[a, b] x, float[c, d] z) => (float[e, f] y) { y = Add(x, z) }")
    )
    with pytest.raises(errors.Fail):
        session.run(None, {"x": X, "z": X[:, :2]})
    np.testing.assert_array_equal(session.run(None, {"x": X, "z": X})[0], X + X)


def test_terminated_run(ort: Any, session: Any, errors: Any) -> None:
    options = ort.RunOptions()
    options.terminate = True
    with pytest.raises(errors.Fail, match="terminate flag"):
        session.run(None, {"x": X}, options)


def test_run_that_is_terminated_meanwhile_fails_at_its_end() -> None:
    """The conversion of the input stands for another thread."""
    options = ours.RunOptions()

    class Late:
        """An input that is made in the run."""

        def __array__(self, *_: object, **__: object) -> Any:
            options.terminate = True
            return X

    session = ours.InferenceSession(TINY)
    with pytest.raises(Fail, match="terminate flag"):
        session.run(None, {"x": Late()}, options)
    options.terminate = False
    assert len(session.run(None, {"x": X}, options)) == 2


def test_messages_begin_with_the_status(session: Any, errors: Any) -> None:
    with pytest.raises(
        errors.InvalidArgument, match=r"^\[ONNXRuntimeError\] : 2 : INVALID_ARGUMENT : "
    ):
        session.run(None, {"x": X[0]})
    assert errors.InvalidArgument.__bases__ == (Exception,)
