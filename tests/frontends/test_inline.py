"""A file's weights are read beside ONNX's parser: the same models, the same errors."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import onnx.parser
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

from optimizer.constants.originals import Original
from vtensor import Session
from vtensor.errors import ModelError, VTensorError
from vtensor.frontends import network
from vtensor.frontends.files import inline
from vtensor.frontends.files import model_file as opened
from vtensor.frontends.files.inline import Parts, of_node, parts_of_bytes, parts_of_file
from vtensor.storage.open_file import OpenFile

#: The place of an initializer's raw data among a tensor's fields, and of a graph in a model.
RAW, GRAPH = b"\x4a", b"\x3a"


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """All data counts as large."""
    monkeypatch.setattr(inline, "MIN_SEPARATE_BYTES", 2)


def proto() -> ModelProto:
    """A model with constants of several kinds, between other fields."""
    made: ModelProto = onnx.parser.parse_model("""
        <ir_version: 8, opset_import: ["" : 17]>
        tiny (float[2, 3] x) => (float[2, 3] y) <float[1] s = {2}> {
            a = Mul(x, w)
            b = Add(a, h)
            y = Mul(b, s)
        }
    """)
    random = np.random.default_rng(0)
    for name, dtype in (("w", np.float32), ("h", np.float32), ("unused", np.int64)):
        array = random.standard_normal((2, 3)).astype(dtype)
        made.graph.initializer.append(numpy_helper.from_array(array, name))
    return made


def of_nodes() -> ModelProto:
    """The same, as other exporters write it: with weights in ``Constant`` nodes."""
    made = proto()
    weights = [*made.graph.initializer][1:3]
    del made.graph.initializer[1:3]
    for number, weight in enumerate(weights):
        node = helper.make_node("Constant", [], [weight.name], name=f"c{number}", value=weight)
        made.graph.node.insert(number, node)
    return made


def whole(parts: Parts) -> ModelProto:
    """A model with its data put back."""
    made: ModelProto = ModelProto.FromString(parts.rest)
    for place, data in parts.data.items():
        tensor = (
            made.graph.initializer[place]
            if place >= 0
            else made.graph.node[of_node(place)].attribute[0].t
        )
        assert not tensor.HasField("raw_data")
        tensor.raw_data = data.now().tobytes()
    return made


def parsed(data: bytes) -> ModelProto | None:
    """A model as ONNX parses it; None where it refuses."""
    try:
        made: ModelProto = ModelProto.FromString(data)
    except Exception:  # of whatever type its versions raise
        return None
    return made


def agrees(data: bytes) -> bool:
    """See that both readers refuse bytes, or read the same; whether they read them."""
    wanted, parts = parsed(data), parts_of_bytes(data)
    if wanted is None:
        assert parsed(parts.rest) is None
        return False
    found = whole(parts).SerializeToString(deterministic=True)
    assert found == wanted.SerializeToString(deterministic=True)
    return True


def test_data_is_taken_out_and_all_else_stays(tmp_path: Path) -> None:
    data = proto().SerializeToString()
    parts = parts_of_bytes(data)
    assert [*parts.data] == [1, 2, 3]  # the first has its element in a field of its type
    assert whole(parts) == proto()
    path = tmp_path / "tiny.onnx"
    path.write_bytes(data)
    with path.open("rb") as file:
        found = parts_of_file(OpenFile(file.fileno(), os.fstat(file.fileno()), "tiny"))
    assert found is not None
    assert found.rest == parts.rest
    assert found.data.keys() == parts.data.keys()
    path.unlink()
    for place, one in parts.data.items():
        other = found.data[place]
        assert other.read is not None is one.read
        assert np.array_equal(one.now(), other.now())
        assert np.array_equal(one.now(), other.read(lambda nbytes: np.zeros(nbytes, np.uint8)))


def test_a_file_and_its_bytes_and_its_buffer_answer_alike(tmp_path: Path) -> None:
    path, feeds = tmp_path / "tiny.onnx", {"x": np.ones((2, 3), np.float32)}
    onnx.save(proto(), path)
    sources = (path, path.read_bytes(), proto())
    [wanted, *others] = [Session(one, threads=1).run(None, feeds)[0] for one in sources]
    w, h = (numpy_helper.to_array(one) for one in proto().graph.initializer[1:3])
    np.testing.assert_allclose(wanted, (w + h) * 2, rtol=1e-6)
    for other in others:
        np.testing.assert_array_equal(other, wanted)


def test_weights_in_nodes_are_initializers(tmp_path: Path) -> None:
    data, feeds = of_nodes().SerializeToString(), {"x": np.ones((2, 3), np.float32)}
    parts = parts_of_bytes(data)
    assert [*parts.data] == [of_node(0), of_node(1), 1]
    assert whole(parts) == of_nodes()
    path = tmp_path / "tiny.onnx"
    path.write_bytes(data)
    read = network.read_network(path)
    assert [node.label for node in read.nodes] == ["Mul", "Add", "Mul"]
    assert {*read.arrays} == {"w", "h", "s"}
    [wanted], *others = (
        Session(one, threads=1).run(None, feeds) for one in (proto(), path, data, of_nodes())
    )
    for [other] in others:
        np.testing.assert_array_equal(other, wanted)


def test_weights_in_nodes_are_held_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who reads a model again has what is held of it already, wherever that is in the model."""
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
    made = of_nodes()
    for node in made.graph.node:
        node.name = ""
    for one in _ways(made):
        named = [node.name for node in network.read_network(one).nodes]
        assert named[-3:] == ["Mul:2", "Add:3", "Mul:4"]


def test_what_nobody_reads_is_not_looked_at() -> None:
    made = of_nodes()
    spare = helper.make_node("Constant", [], ["spare"], value=numpy_helper.from_array(np.ones(9)))
    spare.attribute[0].t.dims[0] = 5
    made.graph.node.append(spare)
    for one in _ways(made):
        assert "spare" not in network.read_network(one).arrays


def _ways(model: ModelProto) -> list[ModelProto | bytes]:
    return [model, model.SerializeToString()]


def test_the_last_operator_of_a_node_counts() -> None:
    """As in protocol buffers, where a field is there twice."""
    made = of_nodes()
    made.graph.node[1].doc_string = "8 bytes."
    data = made.SerializeToString().replace(b"\x32\x088 bytes.", b"\x22\x08Identity")
    for one in (data, ModelProto.FromString(data)):
        with pytest.raises(VTensorError, match="Identity"):
            Session(one, threads=1)


def _odd_node(change: Callable[[onnx.NodeProto], None]) -> bytes:
    made = of_nodes()
    change(made.graph.node[1])
    data: bytes = made.SerializeToString()
    return data


def _twice(node: onnx.NodeProto) -> None:
    node.output[0] = "w"


def _like_an_input(node: onnx.NodeProto) -> None:
    node.output[0] = "x"


def _with_an_input(node: onnx.NodeProto) -> None:
    node.input.append("x")


def _of_another_domain(node: onnx.NodeProto) -> None:
    node.domain = "com.other"


def _sparse(node: onnx.NodeProto) -> None:
    node.attribute[0].name = "sparse_value"


@pytest.mark.parametrize(
    "change", [_twice, _like_an_input, _with_an_input, _of_another_domain, _sparse]
)
def test_nodes_that_are_none_are_refused_as_ever(
    change: Callable[[onnx.NodeProto], None], tmp_path: Path
) -> None:
    """The same words as of a model whose data was never apart."""
    path = tmp_path / "odd.onnx"
    path.write_bytes(data := _odd_node(change))
    with pytest.raises(VTensorError) as apart:
        Session(path, threads=1)
    with pytest.raises(VTensorError) as together:
        Session(ModelProto.FromString(data), threads=1)
    told = [str(one.value).partition(":")[2] for one in (apart, together)]
    assert told[0] == told[1]


@pytest.mark.parametrize("model", [proto, of_nodes])
def test_cut_short_at_every_byte(model: Callable[[], ModelProto]) -> None:
    data = model().SerializeToString()
    assert agrees(data)
    for length in range(len(data)):
        agrees(data[:length])


@pytest.mark.parametrize("model", [proto, of_nodes])
def test_changed_bytes(model: Callable[[], ModelProto]) -> None:
    data, random = model().SerializeToString(), np.random.default_rng(5)
    read = 0
    for _ in range(4000):
        damaged = bytearray(data)
        for place in random.integers(0, len(data), random.integers(1, 4)):
            damaged[place] = random.integers(256)
        read += agrees(bytes(damaged))
    assert 400 < read < 3600


def _tensor(raw: bytes) -> bytes:
    """A model whose one initializer ends in these bytes."""
    named = TensorProto(name="w", dims=[1], data_type=TensorProto.FLOAT)
    tensor: bytes = named.SerializeToString() + raw
    graph = b"\x2a" + bytes([len(tensor)]) + tensor
    return GRAPH + bytes([len(graph)]) + graph


ODD = {
    "data twice": lambda: _tensor(RAW + b"\x04abcd" + RAW + b"\x04efgh"),
    "data before the name": lambda: _tensor(RAW + b"\x04abcd" + b"\x42\x01v"),
    "data that is a number": lambda: _tensor(b"\x48\x07"),
    "a length beyond the file": lambda: _tensor(RAW + b"\x7fabcd"),
    "a length that is negative": lambda: _tensor(RAW + b"\xff" * 9 + b"\x01abcd"),
    "a length in more bytes than it needs": lambda: _tensor(RAW + b"\x84\x80\x00abcd"),
    "a number without an end": lambda: _tensor(b"\x10" + b"\xff" * 12),
    "a field without a number": lambda: _tensor(b"\x02\x04abcd" + RAW + b"\x04abcd"),
    "a key that is too large": lambda: _tensor(b"\xfa\xff\xff\xff\x7f\x04abcd"),
    "a group": lambda: _tensor(b"\x5b\x5c" + RAW + b"\x04abcd"),
    "a group that stays open": lambda: _tensor(b"\x5b" + RAW + b"\x04abcd"),
    "an unknown field": lambda: _tensor(b"\x9a\x06\x04abcd" + RAW + b"\x04abcd"),
    "two graphs": lambda: _tensor(RAW + b"\x04abcd") + _tensor(RAW + b"\x04efgh"),
    "the graph first": lambda: _tensor(RAW + b"\x04abcd") + b"\x08\x08",
    "fields in reverse": lambda: b"\x42\x02\x10\x11" + _tensor(RAW + b"\x04abcd") + b"\x08\x08",
    "graphs in graphs": lambda: GRAPH + b"\x0b\x0a\x09\x2a\x07\x32\x05" * 300,
}


@pytest.mark.parametrize("what", ODD)
def test_odd_encodings_are_read_as_onnx_reads_them(what: str) -> None:
    agrees(ODD[what]())


def test_many_small_fields_are_for_onnxs_parser(monkeypatch: pytest.MonkeyPatch) -> None:
    data = proto().SerializeToString()
    monkeypatch.setattr(inline, "MAX_FIELDS", 20)
    assert parts_of_bytes(data) == Parts(data, {}, len(data))


@pytest.mark.parametrize("kind", [TensorProto.INT4, TensorProto.BFLOAT16, TensorProto.STRING, 77])
def test_other_element_types_are_onnxs(kind: int) -> None:
    made = proto()
    made.graph.initializer[1].data_type = kind
    assert _fault(made) == _fault(made.SerializeToString())


CHANGES: dict[str, Callable[[TensorProto], object]] = {
    "more elements": lambda tensor: tensor.dims.append(2),
    "a negative size": lambda tensor: tensor.dims.append(-1),
    "a segment": lambda tensor: tensor.segment.CopyFrom(TensorProto.Segment(end=1)),
}


@pytest.mark.parametrize("what", CHANGES)
def test_data_that_does_not_fit_is_refused_with_the_same_words(what: str) -> None:
    made = proto()
    CHANGES[what](made.graph.initializer[1])
    fault = _fault(made)
    assert fault
    assert _fault(made.SerializeToString()) == fault


def _fault(model: ModelProto | bytes) -> str:
    """What is wrong with a model; empty for nothing."""
    try:
        network.read_network(model)
    except ModelError as error:
        return str(error).partition(": ")[2]
    return ""


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


@pytest.fixture
def pipe(tmp_path: Path) -> Iterator[Callable[[bytes], str]]:
    """What is written into it can be read once, and has no size before."""
    reader, writer = os.pipe()

    def filled(data: bytes) -> str:
        os.write(writer, data)
        os.close(writer)
        return f"/dev/fd/{reader}"

    yield filled
    os.close(reader)


def test_a_pipe_is_read_too(pipe: Callable[[bytes], str]) -> None:
    session = Session(pipe(proto().SerializeToString()), threads=1)
    assert [port.name for port in session.inputs] == ["x"]
