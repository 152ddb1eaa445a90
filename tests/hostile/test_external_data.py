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
from vtensor.frontends.external import DataFiles

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


def test_a_second_name_of_a_file(folder: Path) -> None:
    (folder / "w.bin").unlink()
    os.link(folder.parent / "secret.bin", folder / "w.bin")
    with pytest.raises(ModelError, match=r"has 2 names \(hard links\)"):
        load_onnx(folder / "net.onnx")
    load_onnx(folder / "net.onnx", external_data_root=folder)


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


def test_a_hubs_links_need_its_root(hub: Path) -> None:
    path = hub / "snapshots" / "1a2b" / "net.onnx"
    with pytest.raises(ModelError, match="not inside the model's folder"):
        Session(path)
    with Session(path, external_data_root=hub) as session:
        [y] = session.run(None, {"x": np.zeros((2, 3), np.float32)})
    np.testing.assert_array_equal(y, WEIGHTS)
    arguments = ["plan", str(path), "--external-data-root"]
    assert CliRunner().invoke(app, [*arguments, str(hub)]).exit_code == 0
    assert CliRunner().invoke(app, [*arguments, str(hub / "snapshots")]).exit_code == 1


def test_a_root_is_a_path(folder: Path) -> None:
    with pytest.raises(InputError, match="external_data_root=3 is no path"):
        load_onnx(folder / "net.onnx", external_data_root=3)  # type: ignore[arg-type]
