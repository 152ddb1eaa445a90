"""What a model's file declares: as ONNX's own parser reads it, and nothing else than errors."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper

from tests.onnxruntime.models import SIZES, TINY, X
from vtensor import onnxruntime as ours
from vtensor.onnxruntime.metadata import ELEMENTS, declared


def test_all_that_is_cut_off_or_read() -> None:
    whole = declared(TINY)
    assert whole is not None
    for end in range(len(TINY)):
        part = declared(TINY[:end])
        assert part is None or part != whole or onnx.ModelProto.FromString(TINY[:end])


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.integers(0, len(SIZES) - 1), st.integers(0, 255)), max_size=4))
def test_any_bytes_are_declared_or_refused(changes: list[tuple[int, int]]) -> None:
    data = bytearray(SIZES)
    for place, byte in changes:
        data[place] = byte
    found = declared(bytes(data))
    if found is not None:
        assert all(isinstance(arg.name, str) for arg in (*found.inputs, *found.outputs))


def test_types_nested_without_end_are_refused() -> None:
    kind = b""
    for _ in range(5000):
        kind = b"\x22" + _length(b"\x0a" + _length(kind))
    value = b"\x0a\x01x" + b"\x12" + _length(kind)
    assert declared(b"\x3a" + _length(b"\x5a" + _length(value))) is None


def _length(content: bytes) -> bytes:
    size, encoded = len(content), bytearray()
    while size >= 0x80:
        encoded.append(size & 0x7F | 0x80)
        size >>= 7
    return bytes([*encoded, size]) + content


def test_kinds_of_types() -> None:
    tensor = helper.make_tensor_type_proto(TensorProto.FLOAT, ["n"])
    kinds = {
        "seq(tensor(float))": helper.make_sequence_type_proto(tensor),
        "optional(tensor(float))": helper.make_optional_type_proto(tensor),
        "map(int64,tensor(float))": helper.make_map_type_proto(TensorProto.INT64, tensor),
        "sparse_tensor(float)": helper.make_sparse_tensor_type_proto(TensorProto.FLOAT, [2]),
        "tensor(string)": helper.make_tensor_type_proto(TensorProto.STRING, [2]),
    }
    values = [helper.make_value_info(name, kind) for name, kind in kinds.items()]
    graph = helper.make_graph([], "g", values, [])
    found = declared(helper.make_model(graph).SerializeToString())
    assert found is not None
    assert [arg.type for arg in found.inputs] == [*kinds]
    names = {n: TensorProto.DataType.Name(n).lower() for n in (1, 7, 9, 10, 11, 16, 21)}
    assert {number: ELEMENTS[number] for number in names} == names


@pytest.mark.parametrize("kind", ["seq(tensor(float))", "tensor(string)"])
def test_inputs_that_are_no_arrays_have_their_types(kind: str) -> None:
    text = kind.replace("tensor(float)", "float[2]").replace("tensor(string)", "string[2]")
    from tests.onnxruntime.models import bytes_of

    content = bytes_of(f"g ({text} x) => ({text} y) {{ y = Identity(x) }}")
    session = ours.InferenceSession(content)
    assert [arg.type for arg in (*session.get_inputs(), *session.get_outputs())] == [kind] * 2


def test_a_pipe_is_no_model(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    from vtensor.onnxruntime.errors import InvalidProtobuf

    with pytest.raises(InvalidProtobuf):
        ours.InferenceSession(tmp_path / "pipe")


@pytest.fixture
def apart(tmp_path: Path) -> Path:
    """A model in a folder whose weight is in another folder's file."""
    proto = onnx.ModelProto.FromString(TINY)
    proto.graph.initializer[0].CopyFrom(
        onnx.numpy_helper.from_array(np.array([3], np.float32), "w")
    )
    (tmp_path / "weights").mkdir()
    (tmp_path / "models").mkdir()
    onnx.save(
        proto,
        tmp_path / "weights" / "m.onnx",
        save_as_external_data=True,
        location="w.bin",
        size_threshold=0,
    )
    (tmp_path / "weights" / "m.onnx").rename(tmp_path / "models" / "m.onnx")
    return tmp_path


def test_folder_of_external_data(ort: Any, errors: Any, apart: Path) -> None:
    options = ort.SessionOptions()
    data = (apart / "models" / "m.onnx").read_bytes()
    key = "session.model_external_initializers_file_folder_path"
    options.add_session_config_entry(key, str(apart / "weights"))
    session = ort.InferenceSession(data, options)
    np.testing.assert_array_equal(session.run(["z"], {"x": X})[0], X * 3 + np.maximum(X, 0))


def test_fixed_dimensions_keep_external_data(apart: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (apart / "weights" / "w.bin").rename(apart / "models" / "w.bin")
    monkeypatch.chdir(apart / "models")
    options = ours.SessionOptions()
    options.add_free_dimension_override_by_name("batch", 2)
    session = ours.InferenceSession("m.onnx", options)
    assert session.get_inputs()[0].shape == [2, 3]
    np.testing.assert_array_equal(session.run(["z"], {"x": X})[0], X * 3 + np.maximum(X, 0))
