"""A file's weights are read beside ONNX's parser: the same models, the same errors."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from optimizer.constants.originals import Original
from tests.frontends.support import model, run_once
from vtensor import Session
from vtensor.errors import ModelError, VTensorError
from vtensor.frontends import network
from vtensor.frontends.files import inline
from vtensor.frontends.files import model_file as opened
from vtensor.frontends.files.inline import Parts, of_node, parts_of_bytes, parts_of_file
from vtensor.storage.open_file import OpenFile

#: The place of an initializer's raw data among a tensor's fields, and of a graph in a model.
RAW, GRAPH = b"\x4a", b"\x3a"
X = {"x": np.ones((2, 3), np.float32)}


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Count all data as large."""
    monkeypatch.setattr(inline, "MIN_SEPARATE_BYTES", 2)


def proto() -> ModelProto:
    """Build a model with constants of several kinds, between other fields."""
    random = np.random.default_rng(0)
    dtypes: dict[str, Any] = {"w": np.float32, "h": np.float32, "unused": np.int64}
    return model(
        """tiny (float[2, 3] x) => (float[2, 3] y) <float[1] s = {2}> {
            a = Mul(x, w) b = Add(a, h) y = Mul(b, s) }""",
        **{name: random.standard_normal((2, 3)).astype(kind) for name, kind in dtypes.items()},
    )


def of_nodes() -> ModelProto:
    """Build the same as other exporters write it: with weights in ``Constant`` nodes."""
    result = proto()
    weights = [*result.graph.initializer][1:3]
    del result.graph.initializer[1:3]
    for number, weight in enumerate(weights):
        node = helper.make_node("Constant", [], [weight.name], name=f"c{number}", value=weight)
        result.graph.node.insert(number, node)
    return result


def whole(parts: Parts) -> ModelProto:
    """Return a model with its data put back."""
    result: ModelProto = ModelProto.FromString(parts.rest)
    for place, data in parts.data.items():
        if place >= 0:
            tensor = result.graph.initializer[place]
        else:
            tensor = result.graph.node[of_node(place)].attribute[0].t
        assert not tensor.HasField("raw_data")
        tensor.raw_data = data.now().tobytes()
    return result


def parsed(data: bytes) -> ModelProto | None:
    """Return a model as ONNX parses it; None where it refuses."""
    try:
        result: ModelProto = ModelProto.FromString(data)
    except Exception:  # of whatever type its versions raise
        return None
    return result


def agrees(data: bytes) -> bool:
    """Check that both readers refuse bytes, or read the same; return whether they read them."""
    wanted, parts = parsed(data), parts_of_bytes(data)
    if wanted is None:
        assert parsed(parts.rest) is None
        return False
    ours = whole(parts).SerializeToString(deterministic=True)
    assert ours == wanted.SerializeToString(deterministic=True)
    return True


def test_data_is_taken_out_and_all_else_stays(tmp_path: Path) -> None:
    data = proto().SerializeToString()
    parts = parts_of_bytes(data)
    assert [*parts.data] == [1, 2, 3]  # the first has its element in a field of its type
    assert whole(parts) == proto()
    path = tmp_path / "tiny.onnx"
    path.write_bytes(data)
    with path.open("rb") as file:
        of_file = parts_of_file(OpenFile(file.fileno(), os.fstat(file.fileno()), "tiny"))
    assert of_file is not None
    assert of_file.rest == parts.rest
    assert of_file.data.keys() == parts.data.keys()
    path.unlink()
    for place, block in parts.data.items():
        other = of_file.data[place]
        assert other.read is not None is block.read
        assert np.array_equal(block.now(), other.now())
        assert np.array_equal(block.now(), other.read(lambda nbytes: np.zeros(nbytes, np.uint8)))


def test_all_forms_of_a_model_answer_alike(tmp_path: Path) -> None:
    """As initializers and in nodes; in a file, as bytes, as a buffer."""
    w, h = (numpy_helper.to_array(tensor) for tensor in proto().graph.initializer[1:3])
    [wanted] = run_once(proto(), X, threads=1)
    np.testing.assert_allclose(wanted, (w + h) * 2, rtol=1e-6)
    for build in (proto, of_nodes):
        path = tmp_path / "tiny.onnx"
        onnx.save(build(), path)
        for source in (path, path.read_bytes(), build()):
            np.testing.assert_array_equal(run_once(source, X, threads=1)[0], wanted)


def test_weights_in_nodes_are_initializers(tmp_path: Path) -> None:
    parts = parts_of_bytes(of_nodes().SerializeToString())
    assert [*parts.data] == [of_node(0), of_node(1), 1]
    assert whole(parts) == of_nodes()
    onnx.save(of_nodes(), tmp_path / "tiny.onnx")
    read = network.read_network(tmp_path / "tiny.onnx")
    assert [node.label for node in read.nodes] == ["Mul", "Add", "Mul"]
    assert {*read.arrays} == {"w", "h", "s"}


def test_weights_in_nodes_are_held_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second reading takes what the first holds, wherever that is in the model."""
    monkeypatch.setattr(inline, "LATER", 2)
    path = tmp_path / "tiny.onnx"
    onnx.save(of_nodes(), path)
    first = network.read_network(path)
    again = network.read_network(path, earlier=first.deferred)
    held, same = first.arrays.origins(), again.arrays.origins()
    for name in ("w", "h"):
        assert isinstance(held[name], Original)
        assert same[name] is held[name]


def test_nodes_without_names_have_their_places() -> None:
    """However the model is given: errors, profiles and locks call them by these."""
    unnamed = of_nodes()
    for node in unnamed.graph.node:
        node.name = ""
    for source in (unnamed, unnamed.SerializeToString()):
        names = [node.name for node in network.read_network(source).nodes]
        assert names[-3:] == ["Mul:2", "Add:3", "Mul:4"]


def test_what_nobody_reads_is_not_looked_at() -> None:
    padded = of_nodes()
    spare = helper.make_node("Constant", [], ["spare"], value=numpy_helper.from_array(np.ones(9)))
    spare.attribute[0].t.dims[0] = 5
    padded.graph.node.append(spare)
    for source in (padded, padded.SerializeToString()):
        assert "spare" not in network.read_network(source).arrays


def test_the_last_operator_of_a_node_counts() -> None:
    """As in protocol buffers, where a field is there twice."""
    doubled = of_nodes()
    doubled.graph.node[1].doc_string = "8 bytes."
    data = doubled.SerializeToString().replace(b"\x32\x088 bytes.", b"\x22\x08Identity")
    for source in (data, ModelProto.FromString(data)):
        with pytest.raises(VTensorError, match="Identity"):
            Session(source, threads=1)


#: Changes of the second node and of the second weight that both readers refuse.
NODES: dict[str, Callable[[NodeProto], object]] = {
    "twice": lambda node: node.output.__setitem__(0, "w"),
    "like an input": lambda node: node.output.__setitem__(0, "x"),
    "with an input": lambda node: node.input.append("x"),
    "of another domain": lambda node: setattr(node, "domain", "com.other"),
    "sparse": lambda node: setattr(node.attribute[0], "name", "sparse_value"),
}
TENSORS: dict[str, Callable[[TensorProto], object]] = {
    "more elements": lambda tensor: tensor.dims.append(2),
    "a negative size": lambda tensor: tensor.dims.append(-1),
    "a segment": lambda tensor: tensor.segment.CopyFrom(TensorProto.Segment(end=1)),
}
#: Element types that ONNX reads as it may.
TYPES = [TensorProto.INT4, TensorProto.BFLOAT16, TensorProto.STRING, 77]


@pytest.mark.parametrize("what", [*NODES, *TENSORS, *TYPES])
def test_what_does_not_fit_is_refused_as_ever(what: str | int, tmp_path: Path) -> None:
    """In the same words as of a model whose data was never apart."""
    odd = of_nodes() if what in NODES else proto()
    weight = odd.graph.initializer[1]
    if isinstance(what, int):
        weight.data_type = what
    elif what in NODES:
        NODES[what](odd.graph.node[1])
    else:
        TENSORS[what](weight)
    (tmp_path / "odd.onnx").write_bytes(odd.SerializeToString())
    faults = [_fault(source) for source in (odd, odd.SerializeToString(), tmp_path / "odd.onnx")]
    assert faults[0] or what in TYPES
    assert len({*faults}) == 1


def _fault(source: Any) -> str:
    """Return what is wrong with a model; empty for nothing."""
    try:
        Session(source, threads=1).close()
    except VTensorError as error:
        return str(error).partition(":")[2]
    return ""


@pytest.mark.parametrize("build", [proto, of_nodes])
def test_cut_short_at_every_byte(build: Callable[[], ModelProto]) -> None:
    data = build().SerializeToString()
    assert agrees(data)
    for length in range(len(data)):
        agrees(data[:length])


@pytest.mark.parametrize("build", [proto, of_nodes])
def test_changed_bytes(build: Callable[[], ModelProto]) -> None:
    data, random = build().SerializeToString(), np.random.default_rng(5)
    read = 0
    for _ in range(4000):
        damaged = bytearray(data)
        for place in random.integers(0, len(data), random.integers(1, 4)):
            damaged[place] = random.integers(256)
        read += agrees(bytes(damaged))
    assert 400 < read < 3600


def _tensor(raw: bytes) -> bytes:
    """Encode a model whose one initializer ends in these bytes."""
    named = TensorProto(name="w", dims=[1], data_type=TensorProto.FLOAT)
    tensor: bytes = named.SerializeToString() + raw
    graph = b"\x2a" + bytes([len(tensor)]) + tensor
    return GRAPH + bytes([len(graph)]) + graph


ODD = {
    "data twice": _tensor(RAW + b"\x04abcd" + RAW + b"\x04efgh"),
    "data before the name": _tensor(RAW + b"\x04abcd" + b"\x42\x01v"),
    "data that is a number": _tensor(b"\x48\x07"),
    "a length beyond the file": _tensor(RAW + b"\x7fabcd"),
    "a length that is negative": _tensor(RAW + b"\xff" * 9 + b"\x01abcd"),
    "a length in more bytes than it needs": _tensor(RAW + b"\x84\x80\x00abcd"),
    "a number without an end": _tensor(b"\x10" + b"\xff" * 12),
    "a field without a number": _tensor(b"\x02\x04abcd" + RAW + b"\x04abcd"),
    "a key that is too large": _tensor(b"\xfa\xff\xff\xff\x7f\x04abcd"),
    "a group": _tensor(b"\x5b\x5c" + RAW + b"\x04abcd"),
    "a group that stays open": _tensor(b"\x5b" + RAW + b"\x04abcd"),
    "an unknown field": _tensor(b"\x9a\x06\x04abcd" + RAW + b"\x04abcd"),
    "two graphs": _tensor(RAW + b"\x04abcd") + _tensor(RAW + b"\x04efgh"),
    "the graph first": _tensor(RAW + b"\x04abcd") + b"\x08\x08",
    "fields in reverse": b"\x42\x02\x10\x11" + _tensor(RAW + b"\x04abcd") + b"\x08\x08",
    "graphs in graphs": GRAPH + b"\x0b\x0a\x09\x2a\x07\x32\x05" * 300,
}


@pytest.mark.parametrize("what", ODD)
def test_odd_encodings_are_read_as_onnx_reads_them(what: str) -> None:
    agrees(ODD[what])


def test_many_small_fields_are_for_onnxs_parser(monkeypatch: pytest.MonkeyPatch) -> None:
    data = proto().SerializeToString()
    monkeypatch.setattr(inline, "MAX_FIELDS", 20)
    assert parts_of_bytes(data) == Parts(data, {}, len(data))


def test_a_file_that_changes_while_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "tiny.onnx"
    path.write_bytes(proto().SerializeToString())

    def changed(file: OpenFile) -> Parts | None:
        os.truncate(path, file.size // 2)
        return parts_of_file(file)

    monkeypatch.setattr(opened, "parts_of_file", changed)
    with pytest.raises(ModelError, match="was changed since it was opened"):
        Session(path)


def test_a_pipe_is_read_too() -> None:
    """Although it can be read once, and has no size before."""
    reader, writer = os.pipe()
    os.write(writer, proto().SerializeToString())
    os.close(writer)
    session = Session(f"/dev/fd/{reader}", threads=1)
    os.close(reader)
    assert [port.name for port in session.inputs] == ["x"]
