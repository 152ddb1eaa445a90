"""Runs, and what a session says of its model, in ONNX Runtime and in VTensor's interface alike."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.onnxruntime.models import SIZES, TINY, X, bytes_of
from vtensor import onnxruntime as ours

Y, Z = np.maximum(X, 0), X * 2 + np.maximum(X, 0)


@pytest.fixture
def session(ort: Any) -> Any:
    return ort.InferenceSession(TINY)


@pytest.mark.parametrize("names", [None, [], ()])
def test_no_names_are_all_outputs(session: Any, names: Any) -> None:
    y, z = session.run(names, {"x": X})
    np.testing.assert_array_equal(y, Y)
    np.testing.assert_array_equal(z, Z)


def test_names_give_the_outputs_in_their_order(session: Any) -> None:
    z, y, again = session.run(["z", "y", "z"], {"x": X})
    np.testing.assert_array_equal([z, y, again], [Z, Y, Z])


def test_arguments_by_position_and_by_name(ort: Any, session: Any) -> None:
    [by_position] = session.run(["z"], {"x": X}, ort.RunOptions())
    [by_name] = session.run(output_names=["z"], input_feed={"x": X}, run_options=None)
    np.testing.assert_array_equal([by_position, by_name], [Z, Z])


@pytest.mark.parametrize("given", [X.tolist(), [*X], X.T.copy().T, X[::-1][::-1]])
def test_lists_and_strided_arrays_are_inputs(session: Any, given: Any) -> None:
    np.testing.assert_array_equal(session.run(["z"], {"x": given})[0], Z)


def test_initializer_that_is_an_input_may_be_fed(session: Any) -> None:
    [fed] = session.run(["z"], {"x": X, "w": np.array([5], np.float32)})
    np.testing.assert_array_equal(fed, X * 5 + Y)
    np.testing.assert_array_equal(session.run(["z"], {"x": X})[0], Z)
    assert [arg.name for arg in session.get_inputs()] == ["x"]
    [arg] = session.get_overridable_initializers()
    assert (arg.name, arg.type, arg.shape) == ("w", "tensor(float)", [1])


def test_results_are_new_arrays(session: Any) -> None:
    [first] = session.run(["y"], {"x": X})
    [second] = session.run(["y"], {"x": -X})
    np.testing.assert_array_equal(first, Y)
    assert not np.may_share_memory(first, second)
    assert first.flags.writeable


def test_types_and_dim_names_before_any_run(ort: Any) -> None:
    session = ort.InferenceSession(SIZES)
    inputs = [(arg.name, arg.type, arg.shape) for arg in session.get_inputs()]
    assert inputs == [("x", "tensor(float)", ["a", 4]), ("u", "tensor(float)", ["a", "b"])]
    outputs = {arg.name: (arg.type, arg.shape) for arg in session.get_outputs()}
    assert outputs == {
        "y": ("tensor(float)", ["a", 4]),
        "z": ("tensor(float)", [None, 2]),
        "v": ("tensor(float)", [1, "k", "q"]),
        "r": ("tensor(float)", ["m", 4]),
        "s": ("tensor(float)", []),
    }
    assert [*outputs] == ["y", "z", "v", "r", "s"]


def test_node_arg_as_text(session: Any) -> None:
    [arg] = session.get_inputs()
    assert str(arg) == "NodeArg(name='x', type='tensor(float)', shape=['batch', 3])"


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("float", "float"),
        ("double", "double"),
        ("float16", "float16"),
        ("int8", "int8"),
        ("uint8", "uint8"),
        ("int32", "int32"),
        ("int64", "int64"),
        ("bool", "bool"),
    ],
)
def test_type_strings(ort: Any, name: str, kind: str) -> None:
    session = ort.InferenceSession(
        bytes_of(f"g ({name}[2] x) => ({name}[2] y) {{ y = Identity(x) }}")
    )
    assert [session.get_inputs()[0].type, session.get_outputs()[0].type] == [f"tensor({kind})"] * 2


def test_metadata(session: Any) -> None:
    meta = session.get_modelmeta()
    assert (meta.producer_name, meta.graph_name, meta.domain) == ("maker", "tiny", "some.domain")
    assert (meta.version, meta.description, meta.graph_description) == (7, "a model", "")
    assert meta.custom_metadata_map == {"alphabet": "abc", "empty": ""}


def test_unused_input_is_listed_and_wanted(ort: Any) -> None:
    session = ort.InferenceSession(
        bytes_of("g (float[2] x, float[2] u) => (float[2] y) { y = Relu(x) }")
    )
    assert [arg.name for arg in session.get_inputs()] == ["x", "u"]
    with pytest.raises(ValueError, match=r"Required inputs \(\['u'\]\) are missing"):
        session.run(None, {"x": np.zeros(2, np.float32)})


def test_model_from_a_path(ort: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "tiny.onnx"
    file.write_bytes(TINY)
    monkeypatch.chdir(tmp_path)
    for path in (file, str(file), "tiny.onnx"):
        session = ort.InferenceSession(path)
        assert session._model_path == os.fspath(path)
        np.testing.assert_array_equal(session.run(["y"], {"x": X})[0], Y)
    file.unlink()
    np.testing.assert_array_equal(session.run(["y"], {"x": X})[0], Y)
    assert session.get_modelmeta().producer_name == "maker"


@pytest.mark.parametrize("level", ["ORT_DISABLE_ALL", "ORT_ENABLE_BASIC", "ORT_ENABLE_ALL"])
def test_all_levels_give_the_same_answers(ort: Any, level: str) -> None:
    options = ort.SessionOptions()
    options.graph_optimization_level = getattr(ort.GraphOptimizationLevel, level)
    options.intra_op_num_threads = 1
    session = ort.InferenceSession(TINY, options)
    np.testing.assert_array_equal(session.run(["z"], {"x": X})[0], Z)


def test_dimensions_with_one_name_may_differ(ort: Any) -> None:
    source = bytes_of("g (float[a, a] x, float[a] u) => (float[a, a] y, float[a] v) "
                      "{ y = Relu(x) v = Relu(u) }")  # fmt: skip
    session = ort.InferenceSession(source)
    for rows, columns, length in ((2, 2, 2), (2, 3, 5), (4, 4, 1)):
        feeds = {"x": np.ones((rows, columns), np.float32), "u": np.ones(length, np.float32)}
        assert [out.shape for out in session.run(None, feeds)] == [(rows, columns), (length,)]


def test_declared_sizes_of_outputs_may_be_false(ort: Any) -> None:
    source = bytes_of("g (float[a, b] x) => (float[k] y, float[9] z) { y = Relu(x) z = Abs(x) }")
    session = ort.InferenceSession(source)
    for x in (X, X[:1], X):
        np.testing.assert_array_equal(session.run(["y"], {"x": x})[0], np.maximum(x, 0))


@pytest.mark.parametrize("by", ["name", "denotation"])
def test_free_dimensions_may_be_fixed(ort: Any, errors: Any, by: str) -> None:
    import onnx

    proto = onnx.ModelProto.FromString(TINY)
    proto.graph.input[0].type.tensor_type.shape.dim[0].denotation = "DATA_BATCH"
    options = ort.SessionOptions()
    if by == "name":
        options.add_free_dimension_override_by_name("batch", 2)
    else:
        options.add_free_dimension_override_by_denotation("DATA_BATCH", 2)
    session = ort.InferenceSession(proto.SerializeToString(), options)
    assert session.get_inputs()[0].shape == [2, 3]
    np.testing.assert_array_equal(session.run(["z"], {"x": X})[0], Z)
    with pytest.raises(errors.InvalidArgument, match="index: 0 Got: 1 Expected: 2"):
        session.run(None, {"x": X[:1]})


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(0, 3), min_size=1, max_size=3))
def test_any_shape_runs_or_raises_the_same_error(shape: list[int]) -> None:
    x, answers = np.ones(shape, np.float32), list[Any]()
    for session in _pair():
        try:
            answers.append(session.run(["y"], {"x": x})[0])
        except Exception as error:
            answers.append((type(error).__name__, str(error).splitlines()[:3]))
    real, own = answers
    if isinstance(real, tuple):
        assert (real[0], real[1]) == (own[0], own[1][: len(real[1])])
    else:
        np.testing.assert_array_equal(real, own)


_made: list[Any] = []


def _pair() -> list[Any]:
    if not _made:
        import onnxruntime

        _made.extend(package.InferenceSession(TINY) for package in (onnxruntime, ours))
    return _made


@settings(max_examples=25, deadline=None)
@given(st.dictionaries(st.sampled_from(["x", "w", "q", "y"]), st.just(X), max_size=3))
def test_wrong_names_raise_the_same_class(feeds: dict[str, Any]) -> None:
    kinds = []
    for session in _pair():
        try:
            session.run(None, feeds)
            kinds.append("")
        except Exception as error:
            kinds.append(type(error).__name__)
    assert kinds[0] == kinds[1]
