"""Models that an earlier session has read: what the cache says of them, and when nobody asks it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from ops import Conv2D, Mul, Relu
from optimizer.constants.originals import Original, Originals
from ptensor.pages import Room
from vtensor import Graph, Session, save_onnx
from vtensor.errors import BudgetError, ModelError
from vtensor.frontends import export
from vtensor.frontends.files import saved_text as known
from vtensor.frontends.files.inline import Parts
from vtensor.frontends.files.model_file import opened
from vtensor.frontends.files.saved_text import read_known, save_known
from vtensor.frontends.files.stored import _places
from vtensor.frontends.onnx import Model
from vtensor.storage.entries import FOLDER, Entries
from vtensor.storage.open_file import Bytes, OpenFile

Array = np.ndarray[Any, Any]


def network(large: float = 0.5, batch: int | None = 1) -> Graph:
    """A large weight, small ones of several types, and one number."""
    g = Graph("net")
    x = g.input("x", {"N": batch, "C": 16, "H": 6, "W": 6})
    w = g.constant(np.full((16, 16, 3, 3), large, np.float32), "O I h w", "large")
    y = g.add(Conv2D(pads=(1, 1, 1, 1)), x, w, name="y")
    scale = g.constant(np.arange(16, dtype=np.float32) - 8, "C", "scale")
    z = g.add(Mul(), g.add(Mul(), y, scale), g.constant(np.array(0.25, np.float32), "", "one"))
    g.output(g.add(Relu(), z), "z")
    return g


@pytest.fixture(params=["inside", "beside"])
def file(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A model's file, with its weights in it or in another one."""
    if request.param == "beside":
        monkeypatch.setattr(export, "EXTERNAL_BYTES", 0)
    path = tmp_path / "net.onnx"
    save_onnx(network(), path)
    assert (tmp_path / "net.onnx.data").exists() == (request.param == "beside")
    return path


def entry(folder: Path) -> Path:
    """That of the only model in a cache."""
    [found] = (folder / FOLDER).glob("model-*")
    return found


def read(path: Path | bytes, folder: Path) -> Graph | None:
    """The graph of a model that is known."""
    found = read_known(opened(path), Entries(folder), 1 << 30, None)
    return None if found is None else found[0]


def answer(model: Path | bytes, folder: Path | None) -> Array:
    """What a session with a cache says."""
    with Session(model, threads=1, cache_dir=folder) as session:
        x = np.arange(16 * 36, dtype=np.float32).reshape(1, 16, 6, 6)
        [found] = session.run(None, {"x": x})
    return np.asarray(found)


def test_the_graph_is_the_one_that_was_read(file: Path, tmp_path: Path) -> None:
    assert read(file, tmp_path) is None
    wanted = answer(file, tmp_path)
    again = read(file, tmp_path)
    assert again == Model(file).stored == network().seal()
    np.testing.assert_array_equal(answer(file, tmp_path), wanted)


@pytest.mark.parametrize("batch", [1, None])
def test_bytes_are_known_as_well(tmp_path: Path, batch: int | None) -> None:
    data = export.export(network(batch=batch)).SerializeToString()
    wanted = answer(data, tmp_path)
    assert read(data, tmp_path) == network(batch=batch).seal()
    np.testing.assert_array_equal(answer(data, tmp_path), wanted)


def test_large_weights_are_not_what_a_model_is_known_by(file: Path, tmp_path: Path) -> None:
    before = answer(file, tmp_path)
    kept = entry(tmp_path)
    save_onnx(network(0.75), file)
    assert read(file, tmp_path) == network(0.75).seal()
    after = answer(file, tmp_path)
    assert entry(tmp_path) == kept
    np.testing.assert_allclose(after, before * 1.5, rtol=1e-5)


def test_large_weights_are_read_when_they_are_packed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    g, path, places = Graph("net"), tmp_path / "net.onnx", list[int]()
    x = g.input("x", {"N": 1, "C": 64, "H": 6, "W": 6})
    w = g.constant(np.ones((64, 64, 3, 3), np.float32), "O I h w", "large")
    g.output(g.add(Conv2D(pads=(1, 1, 1, 1)), x, w), "y")
    save_onnx(g, path)
    with Session(path, threads=1, cache_dir=tmp_path):
        pass
    whole = OpenFile.read

    def noted(file: OpenFile, offset: int, nbytes: int, room: Room) -> Bytes:
        places.append(offset)
        return whole(file, offset, nbytes, room)

    monkeypatch.setattr(OpenFile, "read", noted)
    graph = read(path, tmp_path)
    assert graph is not None
    assert not places
    assert graph == g
    assert places
    places.clear()
    with Session(path, threads=1, cache_dir=tmp_path):
        assert len(places) == 1


EDITS: Mapping[str, Callable[[onnx.ModelProto], None]] = {
    "a node": lambda model: setattr(model.graph.node[-1], "op_type", "Neg"),
    "a small weight": lambda model: setattr(
        next(t for t in model.graph.initializer if t.name == "scale"),
        "raw_data",
        np.ones(16, np.float32).tobytes(),
    ),
    "the text": lambda model: setattr(
        model.metadata_props[0], "value", model.metadata_props[0].value.replace("Relu", "Neg")
    ),
}


@pytest.mark.parametrize("what", EDITS)
def test_an_edited_model_is_another_one(what: str, tmp_path: Path) -> None:
    """Its nodes decide, whatever its text says; what disagrees is never kept."""
    model = export.export(network())
    answer(model.SerializeToString(), tmp_path)
    kept = set((tmp_path / FOLDER).glob("model-*"))
    EDITS[what](model)
    data = model.SerializeToString()
    assert read(data, tmp_path) is None
    wanted = answer(data, None)
    for _ in range(2):
        np.testing.assert_array_equal(answer(data, tmp_path), wanted)
    new = set((tmp_path / FOLDER).glob("model-*")) - kept
    assert len(new) == (what == "a small weight")


def test_values_that_were_compared_are_known_by_their_bytes(tmp_path: Path) -> None:
    """A large array that the graph does not hold was compared with another one."""
    data = export.export(network()).SerializeToString()
    file, loaded = opened(data), Model(data)
    assert loaded.text is not None
    assert loaded.text.places["large"] == ("", 0)
    entries = Entries(tmp_path)
    without = Graph("net")
    without.output(without.add(Relu(), without.input("x", {"N": 1})), "z")
    save_known(file, loaded.text, without.seal(), entries)
    assert read_known(file, entries, 1 << 30, None) is None
    assert loaded.stored is not None
    save_known(file, loaded.text, loaded.stored, entries)
    [graph, _] = read_known(file, entries, 1 << 30, None) or [None, None]
    assert graph == loaded.stored


def test_what_is_in_a_file_counts_whatever_is_beside_it(tmp_path: Path) -> None:
    """A tensor with a place in a file, and with raw data, which nobody reads."""
    model = export.export(network())
    tensor = next(t for t in model.graph.initializer if t.name == "large")
    (tmp_path / "data").write_bytes(tensor.raw_data)
    tensor.raw_data = bytes(len(tensor.raw_data))
    tensor.data_location = onnx.TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="data")
    path = tmp_path / "net.onnx"
    path.write_bytes(model.SerializeToString())
    wanted = answer(path, None)
    assert wanted.any()
    for _ in range(2):
        np.testing.assert_array_equal(answer(path, tmp_path), wanted)
    assert read(path, tmp_path) == network().seal()


@pytest.mark.parametrize("limit", [True, False])
def test_of_much_beside_large_weights_nothing_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: bool
) -> None:
    data = export.export(network()).SerializeToString()
    most = len(opened(data).parts.rest) - limit
    monkeypatch.setattr(known, "MOST_BYTES", most)
    answer(data, tmp_path)
    assert (read(data, tmp_path) is None) is limit
    monkeypatch.setattr(known, "MOST_BYTES", most - 1)
    assert read(data, tmp_path) is None


def test_floats_in_a_typed_field_lie_as_numpy_has_them_and_integers_do_not(tmp_path: Path) -> None:
    model = export.export(network())
    tensor = next(t for t in model.graph.initializer if t.name == "scale")
    tensor.float_data.extend(np.frombuffer(tensor.raw_data, np.float32))
    tensor.ClearField("raw_data")
    data = model.SerializeToString()
    wanted = answer(data, None)
    for _ in range(2):
        np.testing.assert_array_equal(answer(data, tmp_path), wanted)
    assert read(data, tmp_path) == network().seal()
    rows = [1, 2, 300]
    typed = onnx.helper.make_tensor("w", onnx.TensorProto.INT64, [3], rows)
    bytes_ = typed.SerializeToString()
    arrays = Originals({"w": np.array(rows)})
    assert _places([typed], arrays, Parts(bytes_, {}, len(bytes_))) == {}


def test_a_damaged_entry_is_none(file: Path, tmp_path: Path) -> None:
    wanted = answer(file, tmp_path)
    path = entry(tmp_path)
    whole = path.read_bytes()
    for place in range(0, len(whole), 7):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        assert read(file, tmp_path) is None
        path.write_bytes(whole[:place])
        assert read(file, tmp_path) is None
    for plan in path.parent.glob("plan-*"):  # with a plan the model itself is not read
        plan.unlink()
    np.testing.assert_array_equal(answer(file, tmp_path), wanted)
    assert path.read_bytes() == whole


#: What an entry may say beside the truth: of the text's place, or of the large weight.
ODD: Mapping[str, Callable[[list[Any]], object]] = {
    "nothing": lambda rows: rows.clear(),
    "half a place": lambda rows: rows[0].pop(),
    "another text": lambda rows: rows.__setitem__(0, [0, rows[0][1]]),
    "an empty text": lambda rows: rows.__setitem__(0, [5, 5]),
    "a weight less": lambda rows: rows.pop(1),
    "a place before the bytes": lambda rows: rows[1].__setitem__(slice(3, None), [-1]),
    "a place behind them": lambda rows: rows[1].__setitem__(slice(3, None), [99_999_999]),
    "data of no initializer": lambda rows: rows[1].__setitem__(slice(3, None), ["", 77]),
    "a folder outside": lambda rows: rows[1].__setitem__(slice(3, None), ["../../x", 0, 9216]),
    "no number of bytes": lambda rows: rows[1].__setitem__(slice(3, None), ["net.onnx", 0, 1e99]),
    "objects": lambda rows: rows[1].__setitem__(1, "|O"),
    "another type": lambda rows: rows[1].__setitem__(1, "<f8"),
    "another shape": lambda rows: rows[1].__setitem__(2, [16, 16, 3]),
}


@pytest.mark.parametrize("what", ODD)
def test_an_entry_that_says_something_else_is_none(file: Path, tmp_path: Path, what: str) -> None:
    answer(file, tmp_path)
    entries, name = Entries(tmp_path), entry(tmp_path).name
    rows = json.loads(entries.read(name) or b"")
    assert rows[1][0] == "large"
    ODD[what](rows)
    entries.write(name, json.dumps(rows).encode())
    assert read(file, tmp_path) is None


@pytest.mark.parametrize("payload", ["null", "3", "{}", "[" * 10_000, "[[0, 9], 3]", "no JSON"])
def test_an_entry_that_is_none_of_ours(file: Path, tmp_path: Path, payload: str) -> None:
    answer(file, tmp_path)
    Entries(tmp_path).write(entry(tmp_path).name, payload.encode())
    assert read(file, tmp_path) is None


def test_what_is_wrong_now_is_said_as_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(export, "EXTERNAL_BYTES", 0)
    file = tmp_path / "net.onnx"
    save_onnx(network(), file)
    answer(file, tmp_path)
    with pytest.raises(BudgetError, match="the budget is 999"):
        Session(file, threads=1, cache_dir=tmp_path, max_bytes=999)
    (tmp_path / "net.onnx.data").unlink()
    with pytest.raises(ModelError, match=r"external data file 'net.onnx.data' is missing"):
        answer(file, tmp_path)


@pytest.mark.parametrize("beside", [False, True])
def test_weights_are_not_read_to_compare_a_text_with_nodes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, beside: bool
) -> None:
    """Those that are written as they are read; a session reads them when it packs them."""
    if beside:
        monkeypatch.setattr(export, "EXTERNAL_BYTES", 0)
    values = np.arange(64 * 64 * 9, dtype=np.float32).reshape(64, 64, 3, 3)
    g = Graph("one")
    x = g.input("x", {"N": 1, "C": 64, "H": 3, "W": 3})
    g.output(g.add(Conv2D(), x, g.constant(values, "O I h w", "large")), "y")
    save_onnx(g, tmp_path / "one.onnx")
    stored = Model(opened(tmp_path / "one.onnx"), True).stored
    assert stored is not None
    assert isinstance(stored.constants, Originals)
    origin = stored.constants.origin("large")
    assert isinstance(origin, Original)
    assert not origin.held
    np.testing.assert_array_equal(origin.array, values)


@pytest.mark.parametrize("equal", [False, True])
def test_weights_in_each_others_place_are_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, equal: bool
) -> None:
    """Nodes that read one weight where the text reads the other say something else, whatever is in
    memory where nothing was read; and so they do where both have the same bytes.
    """
    monkeypatch.setattr(export, "EXTERNAL_BYTES", 0)
    g = Graph("two")
    y = g.input("x", {"N": 1, "C": 64, "H": 1, "W": 1})
    for name, value in (("a", 0.5), ("b", 0.5 if equal else 0.25)):
        w = g.constant(np.full((64, 64, 3, 3), value, np.float32), "O I h w", name)
        y = g.add(Relu(), g.add(Conv2D(pads=(1, 1, 1, 1)), y, w))
    g.output(y, "y")
    save_onnx(g, tmp_path / "two.onnx")
    assert Model(opened(tmp_path / "two.onnx"), True).stored is not None
    proto = onnx.load(tmp_path / "two.onnx", load_external_data=False)
    for node in proto.graph.node:
        swapped = {"a": "b", "b": "a"}
        names = [swapped.get(one, one) for one in node.input]
        del node.input[:]
        node.input.extend(names)
    onnx.save(proto, tmp_path / "two.onnx")
    assert Model(opened(tmp_path / "two.onnx"), True).stored is None
