"""Files that a model names: inside its folder, or inside the root that the caller gives."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper
from onnx.external_data_helper import set_external_data
from typer.testing import CliRunner

from tests.frontends.support import f32, model
from vtensor import Session, load_onnx
from vtensor.cli import app
from vtensor.errors import BudgetError, InputError, ModelError
from vtensor.frontends.files.external import DataFiles, data_files

WEIGHTS = f32(2, 3)


def save(path: Path, location: str) -> Path:
    """A model whose weight ``w`` is in another file."""
    proto = model("g (float[2, 3] x) => (float[2, 3] y) { y = Add(x, w) }", w=WEIGHTS)
    tensor = proto.graph.initializer[0]
    set_external_data(tensor, location)
    tensor.ClearField("raw_data")
    path.parent.mkdir(parents=True, exist_ok=True)
    onnx.save(proto, path)
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A model's folder, with its weights; others' weights lie beside it."""
    save(tmp_path / "model" / "net.onnx", "w.bin")
    (tmp_path / "model" / "w.bin").write_bytes(WEIGHTS.tobytes())
    (tmp_path / "secret.bin").write_bytes(WEIGHTS.tobytes())
    return tmp_path / "model"


def test_it_is_good(folder: Path) -> None:
    # The twin of every test here.
    np.testing.assert_array_equal(load_onnx(folder / "net.onnx").constants["w"], WEIGHTS)


def test_a_link_out_of_the_folder(folder: Path) -> None:
    (folder / "w.bin").unlink()
    (folder / "w.bin").symlink_to(folder.parent / "secret.bin")
    with pytest.raises(ModelError, match=r"not inside the model's folder.*external_data_root="):
        load_onnx(folder / "net.onnx")
    load_onnx(folder / "net.onnx", external_data_root=folder.parent)


def test_a_folder_that_is_a_link(folder: Path) -> None:
    (folder / "inner").symlink_to(folder.parent)
    path = save(folder / "net.onnx", "inner/secret.bin")
    with pytest.raises(ModelError, match="not inside"):
        load_onnx(path)


def test_a_link_within_the_folder_may_be(folder: Path) -> None:
    (folder / "w.bin").rename(folder / "real.bin")
    (folder / "w.bin").symlink_to("real.bin")
    load_onnx(folder / "net.onnx")


def test_a_second_name_of_a_file_may_be(folder: Path) -> None:
    """Installers link files instead of copying them."""
    os.link(folder / "w.bin", folder.parent / "again.bin")
    os.link(folder / "net.onnx", folder.parent / "again.onnx")
    np.testing.assert_array_equal(load_onnx(folder / "net.onnx").constants["w"], WEIGHTS)
    with pytest.raises(ModelError, match=r"'w\.bin' is missing"):
        load_onnx(folder.parent / "again.onnx")


@pytest.mark.parametrize("location", ["../secret.bin", "/etc/passwd", "..", "", ".", "a\0b"])
def test_names_that_lead_nowhere(folder: Path, location: str) -> None:
    path = save(folder / "net.onnx", location)
    with pytest.raises(ModelError, match="is not inside the model's folder"):
        load_onnx(path)


def test_what_is_no_file(folder: Path) -> None:
    (folder / "w.bin").unlink()
    os.mkfifo(folder / "w.bin")  # a reader would wait for a writer for ever
    with pytest.raises(ModelError, match="is no plain file"):
        load_onnx(folder / "net.onnx")
    (folder / "w.bin").unlink()
    (folder / "w.bin").mkdir()
    with pytest.raises(ModelError, match="is no plain file"):
        load_onnx(folder / "net.onnx")
    (folder / "w.bin").rmdir()
    (folder / "w.bin").symlink_to("/dev/null")
    with pytest.raises(ModelError, match="is no plain file"):
        load_onnx(folder / "net.onnx", external_data_root="/")


def test_a_short_file(folder: Path) -> None:
    (folder / "w.bin").write_bytes(b"123")
    with pytest.raises(ModelError, match=r"24 bytes are needed, and 'w.bin' has 3"):
        load_onnx(folder / "net.onnx")


def descriptors() -> int:
    """How many this process has open."""
    return len(list(Path("/proc/self/fd").iterdir()))


def test_no_file_stays_open(folder: Path) -> None:
    weights: dict[str, Any] = {f"w{index}": WEIGHTS + index for index in range(50)}
    proto = model(
        f"g (float[2, 3] x) => (float[2, 3] y) {{ y = Sum(x, {', '.join(weights)}) }}", **weights
    )
    (folder / "w.bin").unlink()
    net = folder / "net.onnx"
    onnx.save(proto, net, save_as_external_data=True, location="w.bin", size_threshold=0)
    before = descriptors()
    constants = load_onnx(net).constants
    assert descriptors() <= before  # what other tests had open may have been closed since
    for name, values in weights.items():
        np.testing.assert_array_equal(constants[name], values)
        assert not constants[name].flags.writeable


def test_two_tensors_in_one_place_share_it(folder: Path) -> None:
    proto = onnx.load(folder / "net.onnx", load_external_data=False)
    twin = proto.graph.initializer.add()
    twin.CopyFrom(proto.graph.initializer[0])
    twin.name = "v"
    proto.graph.node[0].output[0] = "z"
    proto.graph.node.append(helper.make_node("Mul", ["z", "v"], ["y"]))
    onnx.save(proto, folder / "net.onnx")
    constants = load_onnx(folder / "net.onnx", max_bytes=30).constants
    assert np.may_share_memory(constants["w"], constants["v"])


MATRIX = f32(64, 64)


def growing(file: Path) -> Path:
    """A matrix product for any batch, with its weights in a file: its own, or one beside it."""
    proto = model("g (float[n, 64] x) => (float[n, 64] y) { y = MatMul(x, w) }", w=MATRIX)
    path = file.with_suffix(".onnx")
    onnx.save(proto, path, save_as_external_data=file != path, location=file.name)
    return path


def rewritten(file: Path) -> None:
    with file.open("r+b") as stream:
        stream.write(bytes(file.stat().st_size))


def cut(file: Path) -> None:
    os.truncate(file, 0)


def removed(file: Path) -> None:
    file.unlink()


def right(answer: np.ndarray[Any, Any], x: np.ndarray[Any, Any], weights: object = MATRIX) -> None:
    np.testing.assert_allclose(answer, x @ weights, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", ["any.bin", "any.onnx"])
@pytest.mark.parametrize("change", [rewritten, cut, removed])
def test_files_that_change_after_a_model_was_loaded(
    folder: Path, change: Callable[[Path], None], name: str
) -> None:
    """Plans that are made afterwards have the weights as they were."""
    path, x = growing(folder / name), f32(16, 64)
    with Session(path) as session:
        [before] = session.run(None, {"x": x[:3]})
        change(folder / name)
        if name != path.name:
            path.write_bytes(b"no model")
        [after] = session.run(None, {"x": x})
    right(before, x[:3])
    right(after, x)


@pytest.mark.parametrize("name", ["any.bin", "any.onnx"])
def test_sessions_of_one_path_have_the_weights_that_each_has_read(folder: Path, name: str) -> None:
    """Nothing is shared by the file's name, its size or its time, which may all be the same."""
    path, x, other = growing(folder / name), f32(16, 64), -MATRIX
    first = (folder / name).stat()
    with Session(path) as old:
        right(old.run(None, {"x": x[:3]})[0], x[:3])
        whole = (folder / name).read_bytes().replace(MATRIX.tobytes(), other.tobytes())
        (folder / name).write_bytes(whole)
        os.utime(folder / name, ns=(first.st_atime_ns, first.st_mtime_ns))
        assert (folder / name).stat().st_size == first.st_size
        with Session(path) as new:
            for batch in (3, 5, 16):  # the first is planned for already in the old one
                right(new.run(None, {"x": x[:batch]})[0], x[:batch], other)
                right(old.run(None, {"x": x[:batch]})[0], x[:batch])


def test_a_file_that_changes_before_all_of_it_was_read(folder: Path) -> None:
    files = DataFiles(folder)
    first = files.read("w.bin", 0, 8)
    rewritten(folder / "w.bin")
    os.utime(folder / "w.bin", (0, 0))  # a clock may be too coarse to tell
    assert files.read("w.bin", 0, 8) is first
    assert first.tobytes() == WEIGHTS.tobytes()[:8]
    with pytest.raises(ModelError, match=r"'w\.bin' was changed while it was read"):
        files.read("w.bin", 8, 8)


def test_more_weights_than_the_budget_are_not_read(folder: Path) -> None:
    proto = onnx.load(folder / "net.onnx", load_external_data=False)
    proto.graph.initializer[0].dims[:] = [1 << 38, 3]
    onnx.save(proto, folder / "net.onnx")
    os.truncate(folder / "w.bin", 3 << 40)  # with a hole: it takes nothing
    with pytest.raises(BudgetError, match=r"tensor 'w': \d+ bytes of external data 'w.bin' beside"):
        load_onnx(folder / "net.onnx")


def test_a_link_that_comes_after_the_check(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    resolve = Path.resolve

    def swap(path: Path, strict: bool = False) -> Path:
        found = resolve(path, strict)
        if path.name == "w.bin" and not path.is_symlink():
            path.unlink()
            path.symlink_to(folder.parent / "secret.bin")
        return found

    monkeypatch.setattr(Path, "resolve", swap)
    with pytest.raises(ModelError, match="cannot be read"):
        load_onnx(folder / "net.onnx")


@pytest.fixture
def hub(tmp_path: Path) -> Path:
    """A model hub's cache: what a snapshot holds are links into a folder of blobs."""
    blobs, snapshot = tmp_path / "blobs", tmp_path / "snapshots" / "1a2b"
    save(blobs / "aaaa", "net.onnx_data")
    (blobs / "bbbb").write_bytes(WEIGHTS.tobytes())
    snapshot.mkdir(parents=True)
    (snapshot / "net.onnx").symlink_to("../../blobs/aaaa")
    (snapshot / "net.onnx_data").symlink_to("../../blobs/bbbb")
    return tmp_path


def test_a_hubs_links_are_followed(hub: Path) -> None:
    """Both lead to the folder of the model's real file."""
    path, x = hub / "snapshots" / "1a2b" / "net.onnx", np.zeros((2, 3), np.float32)
    for _ in range(3):  # the cache has it from the second on
        with Session(path, cache_dir=hub / "cache") as session:
            np.testing.assert_array_equal(session.run(None, {"x": x})[0], WEIGHTS)
    assert CliRunner().invoke(app, ["plan", str(path)]).exit_code == 0


def test_a_root_is_where_a_hubs_links_lead(hub: Path) -> None:
    path = hub / "snapshots" / "1a2b" / "net.onnx"
    load_onnx(path, external_data_root=hub)
    with pytest.raises(ModelError, match="not inside"):
        load_onnx(path, external_data_root=hub / "snapshots")
    arguments = ["plan", str(path), "--external-data-root"]
    assert CliRunner().invoke(app, [*arguments, str(hub)]).exit_code == 0
    assert CliRunner().invoke(app, [*arguments, str(hub / "snapshots")]).exit_code == 1


def test_data_that_alone_is_a_hubs_link_is_refused(hub: Path) -> None:
    path = hub / "snapshots" / "1a2b" / "net.onnx"
    path.unlink()
    (hub / "blobs" / "aaaa").rename(path)
    with pytest.raises(ModelError, match="not inside the model's folder"):
        load_onnx(path)


def test_data_in_the_folder_of_a_model_that_is_a_link(folder: Path) -> None:
    (folder.parent / "links").mkdir()
    link = folder.parent / "links" / "net.onnx"
    link.symlink_to(folder / "net.onnx")
    np.testing.assert_array_equal(load_onnx(link).constants["w"], WEIGHTS)
    (folder.parent / "links" / "w.bin").write_bytes((-WEIGHTS).tobytes())  # nearer
    np.testing.assert_array_equal(load_onnx(link).constants["w"], -WEIGHTS)


def test_a_link_to_a_model_opens_no_other_folder(folder: Path) -> None:
    """Neither the one above the links, nor the one above the real file."""
    links = folder.parent / "links" / "more"
    links.mkdir(parents=True)
    (links / "net.onnx").symlink_to(folder / "net.onnx")
    (links.parent / "secret.bin").write_bytes(WEIGHTS.tobytes())
    save(folder / "net.onnx", "../secret.bin")
    with pytest.raises(ModelError, match="not inside the model's folder"):
        load_onnx(links / "net.onnx")


@pytest.mark.parametrize("given", [bytes, onnx.ModelProto])
def test_a_model_from_memory_with_a_root(
    folder: Path, given: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files are named relative to the root, wherever the process is."""
    proto = onnx.load(folder / "net.onnx", load_external_data=False)
    source: Any = proto if given is onnx.ModelProto else proto.SerializeToString()
    monkeypatch.chdir(folder.parent)
    for _ in range(3):
        with Session(source, external_data_root="model", cache_dir=folder / "cache") as session:
            [y] = session.run(None, {"x": np.zeros((2, 3), np.float32)})
        np.testing.assert_array_equal(y, WEIGHTS)
    with pytest.raises(
        ModelError, match=r"came from memory.*or give the folder.*external_data_root"
    ):
        Session(source)
    with pytest.raises(ModelError, match="is missing"):
        Session(source, external_data_root=folder.parent)
    proto.graph.initializer[0].external_data[0].value = "../secret.bin"
    with pytest.raises(ModelError, match="not inside"):
        Session(proto.SerializeToString(), external_data_root=folder)


def outside(array: np.ndarray[Any, Any], location: str, name: str = "") -> onnx.TensorProto:
    """A tensor whose data is in a file."""
    tensor = onnx.numpy_helper.from_array(array, name)
    set_external_data(tensor, location)
    tensor.ClearField("raw_data")
    return tensor


def in_a_node(location: str) -> onnx.ModelProto:
    proto = model("g (float[2, 3] x) => (float[2, 3] y) { y = Add(x, w) }")
    node = helper.make_node("Constant", [], ["w"], value=outside(WEIGHTS, location))
    proto.graph.node.insert(0, node)
    return proto


def in_a_function(location: str) -> onnx.ModelProto:
    proto = model("g (float[2, 3] x) => (float[2, 3] y) { y = own.added(x) }")
    proto.opset_import.append(helper.make_opsetid("own", 1))
    constant = helper.make_node("Constant", [], ["w"], value=outside(WEIGHTS, location))
    nodes = [constant, helper.make_node("Add", ["a", "w"], ["b"])]
    imports = [helper.make_opsetid("", 17)]
    proto.functions.append(helper.make_function("own", "added", ["a"], ["b"], nodes, imports))
    return proto


def given_to_a_function(location: str) -> onnx.ModelProto:
    proto = in_a_function(location)
    constant = proto.functions[0].node[0]
    value = onnx.AttributeProto(name="value", type=onnx.AttributeProto.TENSOR, ref_attr_name="v")
    proto.graph.node[0].attribute.add().CopyFrom(constant.attribute[0])
    proto.graph.node[0].attribute[0].name = "v"
    constant.attribute[0].CopyFrom(value)
    proto.functions[0].attribute.append("v")
    return proto


def _body(location: str, initializer: bool) -> onnx.GraphProto:
    y = helper.make_tensor_value_info("b", onnx.TensorProto.FLOAT, [2, 3])
    nodes, weights = [helper.make_node("Add", ["x", "w"], ["b"])], []
    if initializer:
        weights.append(outside(WEIGHTS, location, "w"))
    else:
        value = outside(WEIGHTS, location)
        nodes.insert(0, helper.make_node("Constant", [], ["w"], value=value))
    return helper.make_graph(nodes, "body", [], [y], weights)


def in_a_body(location: str) -> onnx.ModelProto:
    proto = model("g (float[2, 3] x) => (float[2, 3] y) { c = Constant<value = bool {1}>() }")
    bodies = {"then_branch": _body(location, True), "else_branch": _body(location, False)}
    proto.graph.node.append(helper.make_node("If", ["c"], ["y"], **bodies))
    return proto


def in_the_other_body(location: str) -> onnx.ModelProto:
    proto = in_a_body(location)
    proto.graph.node[0].attribute[0].t.raw_data = b"\0"
    proto.graph.node[0].attribute[0].t.ClearField("int32_data")
    return proto


def in_a_loop(location: str) -> onnx.ModelProto:
    proto = model("g (float[2, 3] x) => (float[2, 3] y) { n = Constant<value = int64 {1}>() }")
    body = _body(location, True)
    info = helper.make_tensor_value_info
    body.input.extend([info("i", 7, []), info("c", 9, []), info("s", 1, [2, 3])])
    body.node.append(helper.make_node("Identity", ["c"], ["d"]))
    body.output.insert(0, info("d", 9, []))
    proto.graph.node.append(helper.make_node("Loop", ["n", "", "x"], ["y"], body=body))
    return proto


IN_NODES = [in_a_node, in_a_function, given_to_a_function, in_a_body, in_the_other_body, in_a_loop]


@pytest.mark.parametrize("made", IN_NODES)
def test_data_of_nodes_in_files(
    folder: Path, made: Callable[[str], onnx.ModelProto], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node's tensor has its data in the model's folder, as an initializer has."""
    path, x = folder / "net.onnx", {"x": f32(2, 3, seed=1)}
    onnx.save(made("w.bin"), path)
    monkeypatch.chdir(folder.parent)  # ONNX's own checks look there
    for _ in range(3):  # the cache has it from the second on
        with Session(path, cache_dir=folder / "cache") as session:
            np.testing.assert_allclose(session.run(None, x)[0], x["x"] + WEIGHTS, rtol=1e-6)
    for other in (-WEIGHTS, 2 * WEIGHTS):
        (folder / "w.bin").write_bytes(other.tobytes())
        with Session(path, cache_dir=folder / "cache") as session:
            np.testing.assert_allclose(session.run(None, x)[0], x["x"] + other, rtol=1e-6)
    proto = made("w.bin")
    with Session(proto, external_data_root=folder) as session:
        np.testing.assert_allclose(session.run(None, x)[0], x["x"] + other, rtol=1e-6)
    assert proto == made("w.bin")  # the caller's own
    with pytest.raises(ModelError, match="came from memory"):
        Session(proto)


@pytest.mark.parametrize("made", IN_NODES)
@pytest.mark.parametrize(
    ("location", "why"),
    [
        ("../secret.bin", "is not inside the model's folder"),
        ("/dev/zero", "is not inside the model's folder"),
        ("pipe", "is no plain file"),
        ("link", "is not inside the model's folder"),
        ("short", r"24 bytes are needed, and 'short' has 3"),
        ("none", "is missing"),
        ("", "is not inside the model's folder"),
    ],
)
def test_data_of_nodes_in_files_that_must_not_be_read(
    folder: Path, made: Callable[[str], onnx.ModelProto], location: str, why: str
) -> None:
    os.mkfifo(folder / "pipe")
    (folder / "link").symlink_to("../secret.bin")
    (folder / "short").write_bytes(b"123")
    onnx.save(made(location), folder / "net.onnx")
    with pytest.raises(ModelError, match=why):
        load_onnx(folder / "net.onnx")


def test_data_of_a_node_that_nothing_needs(folder: Path) -> None:
    proto = in_a_node("none")
    proto.graph.node[1].input[1] = "x"
    onnx.save(proto, folder / "net.onnx")
    load_onnx(folder / "net.onnx")
    onnx.save(in_a_node("none"), folder / "net.onnx")
    with pytest.raises(ModelError, match=r"Constant 'w': tensor '': .*'none' is missing"):
        load_onnx(folder / "net.onnx")


def test_large_data_of_a_node_is_read_once_it_is_needed(folder: Path) -> None:
    """As an initializer's: a later change is an error, and the memory is not taken twice."""
    large = f32(256, 256)
    proto = model("g (float[n, 256] x) => (float[n, 256] y) { y = MatMul(x, w) }")
    (folder / "large").write_bytes(large.tobytes())
    node = helper.make_node("Constant", [], ["w"], value=outside(large, "large"))
    proto.graph.node.insert(0, node)
    onnx.save(proto, folder / "net.onnx")
    x = {"x": f32(3, 256, seed=1)}
    for _ in range(3):
        with Session(folder / "net.onnx", cache_dir=folder / "cache") as session:
            np.testing.assert_allclose(
                session.run(None, x)[0], x["x"] @ large, rtol=1e-3, atol=1e-3
            )
    with Session(folder / "net.onnx", cache_dir=None) as session:
        (folder / "large").write_bytes(large.tobytes())
        with pytest.raises(ModelError, match="was changed since it was opened"):
            session.run(None, x)


@pytest.mark.parametrize("cache", [False, True])
def test_one_model_in_two_folders(tmp_path: Path, cache: bool) -> None:
    """Entries of the cache are named by a model's bytes, and its files are the folder's own."""
    x, folders = {"x": f32(3, 64)}, [tmp_path / "a", tmp_path / "b"]
    for folder in folders:
        folder.mkdir()
        growing(folder / "w.bin")
    (folders[1] / "w.bin").write_bytes((2 * MATRIX).tobytes())
    for _ in range(3):
        for weights, folder in zip((MATRIX, 2 * MATRIX), folders, strict=True):
            options: Any = {"cache_dir": tmp_path / "cache" if cache else None}
            with Session(folder / "w.onnx", **options) as session:
                right(session.run(None, x)[0], x["x"], weights)


def test_a_root_is_a_path(folder: Path) -> None:
    with pytest.raises(InputError, match="external_data_root=3 is no path"):
        load_onnx(folder / "net.onnx", external_data_root=3)  # type: ignore[arg-type]


def test_a_root_stays_where_it_was_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder.parent)
    for path in (None, folder / "net.onnx"):
        files = data_files(path, "model", 1 << 20)
        assert files is not None
        with monkeypatch.context() as elsewhere:
            elsewhere.chdir("/")
            assert bytes(files.read("w.bin", 0, WEIGHTS.nbytes)) == WEIGHTS.tobytes()
