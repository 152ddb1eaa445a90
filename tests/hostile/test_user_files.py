"""Files that a user names and that are none: errors of ours, at once and without memory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from libdesc.schema import Description
from ops import Relu
from vtensor import Graph, Session, save_onnx
from vtensor.cli import app
from vtensor.commands.given import read_arrays
from vtensor.errors import DescriptionError, InputError, LockError, ModelError, VTensorError
from vtensor.image import load_image
from vtensor.language.user_files import MAX_TEXT_BYTES, parse_toml, read_plain_file, read_text

DEEP = 20_000


def tiny() -> Graph:
    g = Graph("tiny")
    g.output(g.add(Relu(), g.input("x", {"N": 1, "C": 3}), name="relu"), "y")
    return g.seal()


def hostile(kind: str, folder: Path, suffix: str = "") -> Path:
    """A path at which no plain file of a sensible size is."""
    file = folder / f"given{suffix}"
    match kind:
        case "pipe":
            os.mkfifo(file)
        case "device":
            file.symlink_to("/dev/zero")
        case "folder":
            file.mkdir()
        case "huge":
            with file.open("wb") as stream:
                stream.truncate(1 << 40)
        case "absent":
            pass
        case "loop":
            file.symlink_to(file)
        case "nul":
            return folder / f"a\0b{suffix}"
        case "long":
            return folder / ("n" * 5000 + suffix)
        case "binary":
            file.write_bytes(bytes(range(256)))
    return file


KINDS = ("pipe", "device", "folder", "huge", "absent", "loop", "nul", "long", "binary")


def read_array(file: Path) -> object:
    return read_arrays({"x": ("f32", (3,))}, [f"x={file}"], None)


READERS: dict[str, tuple[Callable[[Path], object], type[VTensorError]]] = {
    "lock file": (lambda file: Session(tiny(), plan=file), LockError),
    "description": (Description.read, DescriptionError),
    "picture": (lambda file: load_image(file, 8, 8), InputError),
    ".npy": (read_array, InputError),
    ".npz": (read_array, InputError),
    ".pb": (read_array, InputError),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("reader", READERS)
def test_it_is_an_error_of_ours(reader: str, kind: str, tmp_path: Path) -> None:
    read, error = READERS[reader]
    with pytest.raises(error):
        read(hostile(kind, tmp_path, reader if reader.startswith(".") else ""))


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "huge"])
def test_a_model_that_is_none(kind: str, tmp_path: Path) -> None:
    with pytest.raises(ModelError):
        Session(hostile(kind, tmp_path), cache_dir=None)


def test_a_model_in_a_pipe_that_is_written_to(tmp_path: Path) -> None:
    save_onnx(tiny(), tmp_path / "tiny.onnx")
    data = (tmp_path / "tiny.onnx").read_bytes()
    end, begin = os.pipe()
    os.write(begin, data)
    os.close(begin)
    try:
        with Session(f"/dev/fd/{end}", cache_dir=None) as session:
            [y] = session.run(None, {"x": np.array([[-1, 0, 2]], np.float32)})
    finally:
        os.close(end)
    np.testing.assert_array_equal(y, [[0, 0, 2]])


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in ("binary", "absent")])
def test_options_of_the_command_line(kind: str, tmp_path: Path) -> None:
    save_onnx(tiny(), tmp_path / "tiny.onnx")
    file, model = str(hostile(kind, tmp_path)), str(tmp_path / "tiny.onnx")
    lines = (
        ["run", model, "--labels", file],
        ["run", model, "--input", f"x={file}"],
        ["plan", file],
        ["diff", file, file],
        ["libs", "--check", file],
    )
    for line in lines:
        if kind == "huge" and line[0] == "plan":
            continue  # a model may be large
        result = CliRunner().invoke(app, line)
        assert result.exit_code in (1, 2), line
        assert isinstance(result.exception, SystemExit), line


@pytest.mark.parametrize("kind", ["nul", "file", "link to itself", "long"])
def test_a_cache_folder_that_is_none(kind: str, tmp_path: Path) -> None:
    folder = hostile({"file": "binary", "link to itself": "loop"}.get(kind, kind), tmp_path)
    with pytest.raises(InputError, match="cannot be used"):
        Session(tiny(), cache_dir=folder)


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs /proc")
def test_a_folder_in_place_of_a_file_leaves_nothing_open(tmp_path: Path) -> None:
    before = len([*Path("/proc/self/fd").iterdir()])
    for _ in range(8):
        with pytest.raises(OSError, match="directory"):
            read_plain_file(tmp_path)
    assert len([*Path("/proc/self/fd").iterdir()]) == before


def test_a_root_of_external_data_with_a_nul(tmp_path: Path) -> None:
    save_onnx(tiny(), tmp_path / "tiny.onnx")
    with pytest.raises(InputError, match="is no path"):
        Session(tmp_path / "tiny.onnx", external_data_root="a\0b", cache_dir=None)


def test_outputs_whose_names_have_a_nul(tmp_path: Path) -> None:
    with Session(tiny(), cache_dir=None) as session, pytest.raises(InputError, match="written"):
        session.lock().write(tmp_path / "a\0b")
    with pytest.raises(InputError):
        save_onnx(tiny(), tmp_path / "a\0b")
    save_onnx(tiny(), tmp_path / "tiny.onnx")
    for option in ("--html", "--svg"):
        told = ["plan", str(tmp_path / "tiny.onnx"), option, str(tmp_path / "a\0b")]
        assert isinstance(CliRunner().invoke(app, told).exception, SystemExit)
    told = ["run", str(tmp_path / "tiny.onnx"), "--save", str(tmp_path / "a\0b")]
    assert isinstance(CliRunner().invoke(app, told).exception, SystemExit)


#: Texts of TOML that its parser meets with other errors than its own, or takes.
TEXTS = {
    "many digits": f"format = {'9' * 5000}",
    "hexadecimal": f"format = 0x{'f' * 5000}",
    "just too large": f"format = {1 << 63}",
    "deep lists": f"format = {'[' * DEEP}{']' * DEEP}",
    "deep tables": f"format = {'{a=' * DEEP}1{'}' * DEEP}",
    "deep names": f"[{'.'.join('a' * DEEP)}]",
    "far": f"library = {{ priority = {'9' * 5000} }}",
    "nothing": "",
    "a mark": "\ufeff",
}


@pytest.mark.parametrize("text", TEXTS)
def test_hostile_toml(text: str, tmp_path: Path) -> None:
    file = tmp_path / "given.toml"
    file.write_text(TEXTS[text], encoding="utf-8")
    with pytest.raises(LockError):
        Session(tiny(), plan=file)
    with pytest.raises(DescriptionError):
        Description.read(file)
    result = CliRunner().invoke(app, ["libs", "--check", str(file)])
    assert isinstance(result.exception, SystemExit)


def test_integers_that_toml_knows_are_taken() -> None:
    assert parse_toml(f"a = {(1 << 63) - 1}\nb = [0x7f, {{ c = 1 }}]")["a"] == (1 << 63) - 1
    assert parse_toml(f"a = {-(1 << 63)}")["a"] == -(1 << 63)
    for text in ("a = -9223372036854775809", "a = [[{ b = 0x8000000000000000 }]]"):
        with pytest.raises(ValueError, match="64 bits"):
            parse_toml(text)


def test_a_text_of_the_most_bytes_is_read(tmp_path: Path) -> None:
    file = tmp_path / "text"
    file.write_bytes(b"a\r\nb\rc\n" + b"d" * (MAX_TEXT_BYTES - 7))
    assert read_text(file)[:7] == "a\nb\nc\nd"
    with file.open("ab") as stream:
        stream.write(b"d")
    with pytest.raises(OSError, match="more than"):
        read_text(file)


DEEP_MODULES = {
    "minuses": f"x = {'-' * 200_000}1\n",
    "parentheses": f"x = {'(' * DEEP}1{')' * DEEP}\n",
    "attributes": f"x = a{'.b' * DEEP}\n",
    "calls": f"x = a{'()' * DEEP}\n",
    "default": f"def f(a={'-' * 900}1): pass\n",
    "branches": "if a: pass\n" + "elif a: pass\n" * 2000,
}


@pytest.mark.parametrize("text", DEEP_MODULES)
def test_a_module_that_is_nested_deeply(text: str, tmp_path: Path) -> None:
    """Its text is read without running it, and so without an error that is not ours."""
    folder = tmp_path / "deep"
    folder.mkdir()
    (folder / "deep.toml").write_text(
        '[library]\nname = "deep"\npriority = 1\ndevices = ["cpu"]\ninvokers = [".handlers"]\n'
        'probe = ".handlers:f"\nguideline = ".handlers:f"\n',
        encoding="utf-8",
    )
    (folder / "handlers.py").write_text(DEEP_MODULES[text], encoding="utf-8")
    exception = CliRunner().invoke(app, ["libs", "--check", str(folder)]).exception
    assert exception is None or isinstance(exception, SystemExit)


EXITS = """
import os, signal, sys
def stop(*_): sys.exit(9)
class Stop:
    def __call__(self, *_): sys.exit(9)
    def stop(self, *_): sys.exit(9)
signal.signal(signal.SIGUSR1, {handler})
from libdesc.registry import ready
print([text for _, text in ready().problems])
"""


@pytest.mark.parametrize("handler", ["stop", "Stop()", "Stop().stop", "lambda *_: sys.exit(9)"])
@pytest.mark.parametrize("key", ["invokers", "probe"])
@pytest.mark.parametrize("what", ["signal", "own"])
def test_the_exit_of_a_signal_handler_ends_the_process(
    handler: str, key: str, what: str, tmp_path: Path
) -> None:
    """That of a library's module does not: the library is skipped."""
    folder = tmp_path / "goodlib"
    folder.mkdir()
    named = '[".own"]' if key == "invokers" else '".own:f"'
    (folder / "goodlib.toml").write_text(
        f'[library]\nname = "goodlib"\npriority = 1\ndevices = ["cpu"]\n{key} = {named}\n',
        encoding="utf-8",
    )
    own = {"signal": "import os, signal\nos.kill(os.getpid(), signal.SIGUSR1)\n"}
    text = own.get(what, "import sys\nsys.exit(9)\n")
    (folder / "own.py").write_text(text + "def f(): return None\n", encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-c", EXITS.format(handler=handler)],
        env={**os.environ, "VTENSOR_LIBRARIES": str(folder)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    if what == "signal":
        assert (done.returncode, done.stdout) == (9, ""), done.stderr
    else:
        assert done.returncode == 0, done.stderr
        assert "SystemExit: 9" in done.stdout


def test_json_of_a_command_is_whole(tmp_path: Path) -> None:
    save_onnx(tiny(), tmp_path / "tiny.onnx")
    result = CliRunner().invoke(app, ["plan", str(tmp_path / "tiny.onnx"), "--json"])
    assert json.loads(result.stdout)
