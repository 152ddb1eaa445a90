"""Files that a model names: inside its folder, or inside the root that the caller gives."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
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


def replace_by(change: Callable[[Path], object]) -> Callable[[Path], None]:
    """Return a function that puts something else in the place of a file."""

    def do(file: Path) -> None:
        file.unlink()
        change(file)

    return do


#: What lies where the weights should be, the root that is given, and what is wrong with it.
PLACES: dict[str, tuple[Callable[[Path], object], str, str]] = {
    "the weights": (lambda file: None, "", ""),
    "a link out of the folder": (
        replace_by(lambda file: file.symlink_to("../secret.bin")),
        *("", r"not inside the model's folder.*external_data_root="),
    ),
    "a link within the root": (replace_by(lambda file: file.symlink_to("../secret.bin")), "..", ""),
    "a link within the folder": (
        lambda file: file.rename(file.with_name("real")).with_name(file.name).symlink_to("real"),
        *("", ""),
    ),
    "a pipe": (replace_by(os.mkfifo), "", "is no plain file"),  # a reader would wait for ever
    "a folder": (replace_by(Path.mkdir), "", "is no plain file"),
    "a device": (replace_by(lambda file: file.symlink_to("/dev/null")), "/", "is no plain file"),
    "a short file": (
        lambda file: file.write_bytes(b"123"),
        *("", r"24 bytes are needed, and 'w.bin' has 3"),
    ),
}


@pytest.mark.parametrize("case", PLACES)
def test_weights_are_read_from_plain_files_inside_the_root(folder: Path, case: str) -> None:
    change, root, wrong = PLACES[case]
    change(folder / "w.bin")
    options: dict[str, Any] = {"external_data_root": folder / root} if root else {}
    if wrong:
        with pytest.raises(ModelError, match=wrong):
            load_onnx(folder / "net.onnx", **options)
    else:
        constants = load_onnx(folder / "net.onnx", **options).constants
        np.testing.assert_array_equal(constants["w"], WEIGHTS)


@pytest.mark.parametrize(
    "location", ["inner/secret.bin", "../secret.bin", "/etc/passwd", "..", "", ".", "a\0b"]
)
def test_names_that_lead_out_of_the_folder_are_refused(folder: Path, location: str) -> None:
    (folder / "inner").symlink_to(folder.parent)
    path = save(folder / "net.onnx", location)
    with pytest.raises(ModelError, match="is not inside the model's folder"):
        load_onnx(path)


def test_a_second_name_of_a_file_may_be(folder: Path) -> None:
    """Installers link files instead of copying them."""
    os.link(folder / "w.bin", folder.parent / "again.bin")
    os.link(folder / "net.onnx", folder.parent / "again.onnx")
    np.testing.assert_array_equal(load_onnx(folder / "net.onnx").constants["w"], WEIGHTS)
    with pytest.raises(ModelError, match=r"'w\.bin' is missing"):
        load_onnx(folder.parent / "again.onnx")


def test_no_file_stays_open(folder: Path) -> None:
    weights: dict[str, Any] = {f"w{index}": WEIGHTS + index for index in range(50)}
    proto = model(
        f"g (float[2, 3] x) => (float[2, 3] y) {{ y = Sum(x, {', '.join(weights)}) }}", **weights
    )
    (folder / "w.bin").unlink()
    net = folder / "net.onnx"
    onnx.save(proto, net, save_as_external_data=True, location="w.bin", size_threshold=0)
    before = len([*Path("/proc/self/fd").iterdir()])
    constants = load_onnx(net).constants
    # what other tests had open may have been closed since
    assert len([*Path("/proc/self/fd").iterdir()]) <= before
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


def zeroed(file: Path) -> None:
    with file.open("r+b") as stream:
        stream.write(bytes(file.stat().st_size))


def right(session: Session, x: np.ndarray[Any, Any], weights: Any = MATRIX) -> None:
    [y] = session.run(None, {"x": x})
    np.testing.assert_allclose(y, x @ weights, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", ["any.bin", "any.onnx"])
@pytest.mark.parametrize("change", [zeroed, lambda file: os.truncate(file, 0), Path.unlink])
def test_files_may_change_after_a_model_was_loaded(folder: Path, change: Any, name: str) -> None:
    """Plans that are made afterwards have the weights as they were."""
    path, x = growing(folder / name), f32(16, 64)
    with Session(path) as session:
        right(session, x[:3])
        change(folder / name)
        if name != path.name:
            path.write_bytes(b"no model")
        right(session, x)


@pytest.mark.parametrize("name", ["any.bin", "any.onnx"])
def test_sessions_of_one_path_have_the_weights_that_each_has_read(folder: Path, name: str) -> None:
    """Nothing is shared by the file's name, its size or its time, which may all be the same."""
    path, x, other = growing(folder / name), f32(16, 64), -MATRIX
    first = (folder / name).stat()
    with Session(path) as old:
        right(old, x[:3])
        whole = (folder / name).read_bytes().replace(MATRIX.tobytes(), other.tobytes())
        (folder / name).write_bytes(whole)
        os.utime(folder / name, ns=(first.st_atime_ns, first.st_mtime_ns))
        assert (folder / name).stat().st_size == first.st_size
        with Session(path) as new:
            for batch in (3, 5, 16):  # the first is planned for already in the old one
                right(new, x[:batch], other)
                right(old, x[:batch])


def test_a_file_that_changes_while_it_is_read_is_refused(folder: Path) -> None:
    files = DataFiles(folder)
    first = files.read("w.bin", 0, 8)
    zeroed(folder / "w.bin")
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
    with pytest.raises(
        BudgetError, match=r"tensor 'w': \d+ bytes of external data 'w.bin' in addition to"
    ):
        load_onnx(folder / "net.onnx")


def test_a_link_that_comes_late_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    resolve = Path.resolve

    def swap(path: Path, strict: bool = False) -> Path:
        target = resolve(path, strict)
        if path.name == "w.bin" and not path.is_symlink():
            path.unlink()
            path.symlink_to(folder.parent / "secret.bin")
        return target

    monkeypatch.setattr(Path, "resolve", swap)
    with pytest.raises(ModelError, match="cannot be read"):
        load_onnx(folder / "net.onnx")


def test_a_hubs_links_are_followed_within_the_root(tmp_path: Path) -> None:
    """What a snapshot holds are links into a folder of blobs, in which the real model is."""
    blobs, path = tmp_path / "blobs", tmp_path / "snapshots" / "1a2b" / "net.onnx"
    save(blobs / "aaaa", "net.onnx_data")
    (blobs / "bbbb").write_bytes(WEIGHTS.tobytes())
    path.parent.mkdir(parents=True)
    path.symlink_to("../../blobs/aaaa")
    path.with_name("net.onnx_data").symlink_to("../../blobs/bbbb")
    x = np.zeros((2, 3), np.float32)
    for _ in range(3):  # the cache has it from the second on
        with Session(path, cache_dir=tmp_path / "cache") as session:
            np.testing.assert_array_equal(session.run(None, {"x": x})[0], WEIGHTS)
    root = ["--external-data-root"]
    for options, status in (
        ([], 0),
        ([*root, str(tmp_path)], 0),
        ([*root, str(tmp_path / "snapshots")], 1),
    ):
        assert CliRunner().invoke(app, ["plan", str(path), *options]).exit_code == status
    load_onnx(path, external_data_root=tmp_path)
    with pytest.raises(ModelError, match="not inside"):
        load_onnx(path, external_data_root=tmp_path / "snapshots")
    path.unlink()
    (blobs / "aaaa").rename(path)  # the data alone is a link
    with pytest.raises(ModelError, match="not inside the model's folder"):
        load_onnx(path)


def test_data_in_the_folder_of_a_linked_model_is_read(folder: Path) -> None:
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
def test_a_model_from_memory_has_files_under_its_root(
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
    tensor = onnx.numpy_helper.from_array(array, name)
    set_external_data(tensor, location)
    tensor.ClearField("raw_data")
    return tensor


TENSOR, HEAD = "float[2, 3] {0, 0, 0, 0, 0, 0}", "g (float[2, 3] x) => (float[2, 3] y)"
CONSTANT = f"w = Constant<value = {TENSOR}>()"
INITIALIZER = "<float[2, 3] w = {0, 0, 0, 0, 0, 0}>"
BRANCHES = f"""then_branch = t () => (float[2, 3] b) {INITIALIZER} {{ b = Add(x, w) }},
else_branch = e () => (float[2, 3] b) {{ {CONSTANT} b = Add(x, w) }}"""
LOOP = f"""body = l (int64 i, bool c, float[2, 3] s) => (bool d, float[2, 3] b) {INITIALIZER}
{{ d = Identity(c) b = Add(x, w) }}"""
OWN = '<domain: "own", opset_import: ["" : 17]> added'
#: Where a tensor of 2 by 3 may be: each is added to x.
PLACES_IN_NODES = {
    "a node": f"{HEAD} {{ {CONSTANT} y = Add(x, w) }}",
    "a function": f"{HEAD} {{ y = own.added(x) }} {OWN} (a) => (b) {{ {CONSTANT} b = Add(a, w) }}",
    "a call": f"{HEAD} {{ y = own.added<v = {TENSOR}>(x) }}"
    f"{OWN}<v> (a) => (b) {{ w = Constant<value: tensor = @v>() b = Add(a, w) }}",
    "a branch": f"{HEAD} {{ c = Constant<value = bool {{1}}>() y = If(c)<{BRANCHES}> }}",
    "the other branch": f"{HEAD} {{ c = Constant<value = bool {{0}}>() y = If(c)<{BRANCHES}> }}",
    "a loop": f"{HEAD} {{ n = Constant<value = int64 {{1}}>() y = Loop(n, , x)<{LOOP}> }}",
}


def tensors(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.TensorProto]:
    """The tensors of 2 by 3 in attributes of nodes, and in graphs there."""
    for attribute in (attribute for node in nodes for attribute in node.attribute):
        if [*attribute.t.dims] == [2, 3]:
            yield attribute.t
        yield from attribute.g.initializer
        yield from tensors(attribute.g.node)


def in_nodes(place: str, location: str) -> onnx.ModelProto:
    """A model with a tensor at a place, whose data is in a file."""
    header = '<ir_version: 8, opset_import: ["" : 17, "own" : 1]>'
    proto = onnx.parser.parse_model(f"{header} {PLACES_IN_NODES[place]}")
    for nodes in (proto.graph.node, *(function.node for function in proto.functions)):
        for tensor in tensors(nodes):
            tensor.CopyFrom(outside(WEIGHTS, location, tensor.name))
    return proto


@pytest.mark.parametrize("place", PLACES_IN_NODES)
def test_data_of_nodes_in_files_is_read(
    folder: Path, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node's tensor has its data in the model's folder, as an initializer has."""
    path, x = folder / "net.onnx", {"x": f32(2, 3, seed=1)}
    onnx.save(in_nodes(place, "w.bin"), path)
    monkeypatch.chdir(folder.parent)  # ONNX's own checks look there
    for _ in range(3):  # the cache has it from the second on
        with Session(path, cache_dir=folder / "cache") as session:
            np.testing.assert_allclose(session.run(None, x)[0], x["x"] + WEIGHTS, rtol=1e-6)
    for other in (-WEIGHTS, 2 * WEIGHTS):
        (folder / "w.bin").write_bytes(other.tobytes())
        with Session(path, cache_dir=folder / "cache") as session:
            np.testing.assert_allclose(session.run(None, x)[0], x["x"] + other, rtol=1e-6)
    proto = in_nodes(place, "w.bin")
    with Session(proto, external_data_root=folder) as session:
        np.testing.assert_allclose(session.run(None, x)[0], x["x"] + other, rtol=1e-6)
    assert proto == in_nodes(place, "w.bin")  # the caller's own
    with pytest.raises(ModelError, match="came from memory"):
        Session(proto)


@pytest.mark.parametrize("place", PLACES_IN_NODES)
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
def test_forbidden_data_of_nodes_is_refused(
    folder: Path, place: str, location: str, why: str
) -> None:
    os.mkfifo(folder / "pipe")
    (folder / "link").symlink_to("../secret.bin")
    (folder / "short").write_bytes(b"123")
    onnx.save(in_nodes(place, location), folder / "net.onnx")
    with pytest.raises(ModelError, match=why):
        load_onnx(folder / "net.onnx")


def test_data_of_a_node_that_nothing_needs_is_not_read(folder: Path) -> None:
    proto = in_nodes("a node", "none")
    proto.graph.node[1].input[1] = "x"
    onnx.save(proto, folder / "net.onnx")
    load_onnx(folder / "net.onnx")
    onnx.save(in_nodes("a node", "none"), folder / "net.onnx")
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
def test_one_model_in_two_folders_has_the_data_of_each(tmp_path: Path, cache: bool) -> None:
    """Entries of the cache are named by a model's bytes, and its files are the folder's own."""
    folders = [tmp_path / "a", tmp_path / "b"]
    for folder in folders:
        folder.mkdir()
        growing(folder / "w.bin")
    (folders[1] / "w.bin").write_bytes((2 * MATRIX).tobytes())
    for _ in range(3):
        for weights, folder in zip((MATRIX, 2 * MATRIX), folders, strict=True):
            options: Any = {"cache_dir": tmp_path / "cache" if cache else None}
            with Session(folder / "w.onnx", **options) as session:
                right(session, f32(3, 64), weights)


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
