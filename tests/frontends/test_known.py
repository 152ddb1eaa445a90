"""Models that an earlier session has read: what the cache says of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import ModelProto, TensorProto

from ops import Conv2D, Mul, Relu
from optimizer.constants.originals import Original, Originals
from tests.frontends.support import Array, run_once
from vtensor import Graph, Session, save_onnx
from vtensor.errors import BudgetError, ModelError
from vtensor.frontends import export
from vtensor.frontends.files import saved_text as known
from vtensor.frontends.files.model_file import opened
from vtensor.frontends.files.saved_text import read_known, save_known
from vtensor.frontends.onnx import Model
from vtensor.storage.entries import FOLDER, Entries


def network(large: float = 0.5, batch: int | None = 1) -> Graph:
    """Build a graph with a large weight, small ones of several types, and one number."""
    g = Graph("net")
    x = g.input("x", {"N": batch, "C": 16, "H": 6, "W": 6})
    w = g.constant(np.full((16, 16, 3, 3), large, np.float32), "O I h w", "large")
    y = g.add(Conv2D(pads=(1, 1, 1, 1)), x, w, name="y")
    scale = g.constant(np.arange(16, dtype=np.float32) - 8, "C", "scale")
    z = g.add(Mul(), g.add(Mul(), y, scale), g.constant(np.array(0.25, np.float32), "", "one"))
    g.output(g.add(Relu(), z), "z")
    return g


def convolutions(size: int, *weights: Array) -> Graph:
    """Build convolutions with large weights one after another."""
    g = Graph("net")
    y = g.input("x", {"N": 1, "C": 64, "H": size, "W": size})
    for name, array in zip("ab", weights, strict=False):
        w = g.constant(array, "O I h w", name)
        y = g.add(Relu(), g.add(Conv2D(pads=(1, 1, 1, 1)), y, w))
    g.output(y, "y")
    return g


def tensor_of(proto: ModelProto, name: str) -> TensorProto:
    tensors: list[TensorProto] = [t for t in proto.graph.initializer if t.name == name]
    return tensors[0]


def written(how: str, folder: Path, large: float = 0.5) -> Path | bytes:
    """Write the network's model in one of its forms, or return its bytes."""
    path = folder / "net.onnx"
    if how in ("inside", "external"):
        with pytest.MonkeyPatch.context() as patch:
            if how == "external":
                patch.setattr(export, "EXTERNAL_BYTES", 0)
            save_onnx(network(large), path)
        assert (folder / "net.onnx.data").exists() == (how == "external")
        return path
    proto = export.export(network(batch=None if how == "open sizes" else 1))
    weight, scale = tensor_of(proto, "large"), tensor_of(proto, "scale")
    if how == "a typed field":
        scale.float_data.extend(np.frombuffer(scale.raw_data, np.float32))
        scale.ClearField("raw_data")
    elif how == "raw data that the file's is before":
        (folder / "data").write_bytes(weight.raw_data)
        weight.raw_data = bytes(len(weight.raw_data))
        weight.data_location = TensorProto.EXTERNAL
        weight.external_data.add(key="location", value="data")
        path.write_bytes(proto.SerializeToString())
        return path
    data: bytes = proto.SerializeToString()
    return data


@pytest.fixture(params=["inside", "external"])
def file(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Write a model with its weights in its file or in another one."""
    path = written(request.param, tmp_path)
    assert isinstance(path, Path)
    return path


def entries_of(folder: Path) -> set[Path]:
    return set((folder / FOLDER).glob("model-*"))


def read(source: Path | bytes, folder: Path) -> Graph | None:
    """Return the graph of a model that the cache knows."""
    result = read_known(opened(source), Entries(folder), 1 << 30, None)
    return None if result is None else result[0]


def answer(source: Path | bytes, folder: Path | None) -> Array:
    """Return what a session with a cache answers."""
    x = np.arange(16 * 36, dtype=np.float32).reshape(1, 16, 6, 6)
    return np.asarray(run_once(source, {"x": x}, threads=1, cache_dir=folder)[0])


def check_twice(source: Path | bytes, folder: Path, expected: Array) -> None:
    """Check the answers of a session that fills the cache and of one that reads it."""
    for _ in range(2):
        np.testing.assert_array_equal(answer(source, folder), expected)


@pytest.mark.parametrize(
    "how",
    [
        *("inside", "external", "bytes", "open sizes", "a typed field"),
        "raw data that the file's is before",
    ],
)
def test_the_graph_is_the_one_that_was_read(how: str, tmp_path: Path) -> None:
    source, graph = written(how, tmp_path), network(batch=None if how == "open sizes" else 1).seal()
    expected = answer(source, None)
    assert expected.any()
    assert read(source, tmp_path) is None
    check_twice(source, tmp_path, expected)
    assert read(source, tmp_path) == Model(source).stored == graph


@pytest.mark.parametrize("how", ["inside", "external"])
def test_large_weights_are_not_what_a_model_is_known_by(how: str, tmp_path: Path) -> None:
    before, entries = answer(written(how, tmp_path), tmp_path), entries_of(tmp_path)
    other = written(how, tmp_path, large=0.75)
    assert read(other, tmp_path) == network(0.75).seal()
    np.testing.assert_allclose(answer(other, tmp_path), before * 1.5, rtol=1e-5)
    assert entries_of(tmp_path) == entries
    assert len(entries) == 1


EDITS: Mapping[str, Callable[[ModelProto], None]] = {
    "a node": lambda proto: setattr(proto.graph.node[-1], "op_type", "Neg"),
    "a small weight": lambda proto: setattr(
        tensor_of(proto, "scale"), "raw_data", np.ones(16, np.float32).tobytes()
    ),
    "the text": lambda proto: setattr(
        proto.metadata_props[0], "value", proto.metadata_props[0].value.replace("Relu", "Neg")
    ),
}


@pytest.mark.parametrize("what", EDITS)
def test_an_edited_model_is_another_one(what: str, tmp_path: Path) -> None:
    """Its nodes decide, whatever its text says; what disagrees is never saved."""
    proto = export.export(network())
    answer(proto.SerializeToString(), tmp_path)
    before = entries_of(tmp_path)
    EDITS[what](proto)
    data = proto.SerializeToString()
    assert read(data, tmp_path) is None
    check_twice(data, tmp_path, answer(data, None))
    assert len(entries_of(tmp_path) - before) == (what == "a small weight")


def test_values_that_were_compared_are_known_by_their_bytes(tmp_path: Path) -> None:
    """A large array that the graph does not hold was compared with another one."""
    data = export.export(network()).SerializeToString()
    file, loaded, entries = opened(data), Model(data), Entries(tmp_path)
    assert loaded.text is not None
    assert loaded.text.places["large"] == ("", 0)
    without = Graph("net")
    without.output(without.add(Relu(), without.input("x", {"N": 1})), "z")
    save_known(file, loaded.text, without.seal(), entries)
    assert read_known(file, entries, 1 << 30, None) is None
    assert loaded.stored is not None
    save_known(file, loaded.text, loaded.stored, entries)
    [graph, _] = read_known(file, entries, 1 << 30, None) or [None, None]
    assert graph == loaded.stored


@pytest.mark.parametrize("limit", [True, False])
def test_of_much_beside_large_weights_nothing_is_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: bool
) -> None:
    data = export.export(network()).SerializeToString()
    most = len(opened(data).parts.rest) - limit
    monkeypatch.setattr(known, "MOST_BYTES", most)
    answer(data, tmp_path)
    assert (read(data, tmp_path) is None) is limit
    monkeypatch.setattr(known, "MOST_BYTES", most - 1)
    assert read(data, tmp_path) is None


def test_a_damaged_entry_is_none(file: Path, tmp_path: Path) -> None:
    expected = answer(file, tmp_path)
    [path] = entries_of(tmp_path)
    whole = path.read_bytes()
    for place in range(0, len(whole), 7):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        assert read(file, tmp_path) is None
        path.write_bytes(whole[:place])
        assert read(file, tmp_path) is None
    for plan in path.parent.glob("plan-*"):  # with a plan the model itself is not read
        plan.unlink()
    np.testing.assert_array_equal(answer(file, tmp_path), expected)
    assert path.read_bytes() == whole


def weight(at: int, *values: Any) -> Callable[[list[Any]], object]:
    """Return what writes other values into the large weight's row, from a column on."""
    end = None if at == 3 else at + 1
    return lambda rows: rows[1].__setitem__(slice(at, end), [*values])


#: What an entry may say that is wrong: of the text's place, or of the large weight.
ODD: Mapping[str, Callable[[list[Any]], object]] = {
    "nothing": lambda rows: rows.clear(),
    "half a place": lambda rows: rows[0].pop(),
    "another text": lambda rows: rows.__setitem__(0, [0, rows[0][1]]),
    "an empty text": lambda rows: rows.__setitem__(0, [5, 5]),
    "a weight less": lambda rows: rows.pop(1),
    "a place before the bytes": weight(3, -1),
    "a place behind them": weight(3, 99_999_999),
    "data of no initializer": weight(3, "", 77),
    "a folder outside": weight(3, "../../x", 0, 9216),
    "no number of bytes": weight(3, "net.onnx", 0, 1e99),
    "objects": weight(1, "|O"),
    "another type": weight(1, "<f8"),
    "another shape": weight(2, [16, 16, 3]),
}
FOREIGN = ["null", "3", "{}", "[" * 10_000, "[[0, 9], 3]", "no JSON"]


@pytest.mark.parametrize("what", [*ODD, *FOREIGN])
def test_an_entry_that_says_something_else_is_none(file: Path, tmp_path: Path, what: str) -> None:
    answer(file, tmp_path)
    entries, [path] = Entries(tmp_path), entries_of(tmp_path)
    payload = what
    if what in ODD:
        rows = json.loads(entries.read(path.name) or b"")
        assert rows[1][0] == "large"
        ODD[what](rows)
        payload = json.dumps(rows)
    entries.write(path.name, payload.encode())
    assert read(file, tmp_path) is None


def test_what_is_wrong_now_is_said_as_before(tmp_path: Path) -> None:
    file = written("external", tmp_path)
    answer(file, tmp_path)
    with pytest.raises(BudgetError, match="the budget is 999"):
        Session(file, threads=1, cache_dir=tmp_path, max_bytes=999)
    (tmp_path / "net.onnx.data").unlink()
    with pytest.raises(ModelError, match=r"external data file 'net.onnx.data' is missing"):
        answer(file, tmp_path)


@pytest.mark.parametrize("least", [0, 1 << 30], ids=["external", "inside"])
def test_weights_are_not_read_to_compare_a_text_with_nodes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, least: int
) -> None:
    """Those that are written as they are read; a session reads them when it packs them."""
    monkeypatch.setattr(export, "EXTERNAL_BYTES", least)
    values = np.arange(64 * 64 * 9, dtype=np.float32).reshape(64, 64, 3, 3)
    save_onnx(convolutions(3, values), tmp_path / "one.onnx")
    stored = Model(opened(tmp_path / "one.onnx"), True).stored
    assert stored is not None
    assert isinstance(stored.constants, Originals)
    origin = stored.constants.origin("a")
    assert isinstance(origin, Original)
    assert not origin.held
    np.testing.assert_array_equal(origin.array, values)


@pytest.mark.parametrize("other", [0.5, 0.25])
def test_weights_in_each_others_place_are_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, other: float
) -> None:
    """Nodes that read one weight where the text reads the other disagree with it: whatever is in
    memory that was not read into, and where both have the same bytes.
    """
    monkeypatch.setattr(export, "EXTERNAL_BYTES", 0)
    path = tmp_path / "two.onnx"
    save_onnx(
        convolutions(1, *(np.full((64, 64, 3, 3), w, np.float32) for w in (0.5, other))), path
    )
    assert Model(opened(path), True).stored is not None
    proto = onnx.load(path, load_external_data=False)
    for node in proto.graph.node:
        node.input[:] = [{"a": "b", "b": "a"}.get(name, name) for name in node.input]
    onnx.save(proto, path)
    assert Model(opened(path), True).stored is None
