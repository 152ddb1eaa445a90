"""Files that a user names and that are none: errors of ours, at once and without memory."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from libdesc.schema import Description
from ops import Relu
from tests.libraries.processes import run_python
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


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A good model's file."""
    save_onnx(tiny(), tmp_path / "tiny.onnx")
    return tmp_path / "tiny.onnx"


def huge(file: Path) -> None:
    with file.open("wb") as stream:
        stream.truncate(1 << 40)


#: What is at a path where no plain file of a sensible size is.
MAKERS: dict[str, Callable[[Path], object]] = {
    "pipe": os.mkfifo,
    "device": lambda file: file.symlink_to("/dev/zero"),
    "folder": Path.mkdir,
    "huge": huge,
    "absent": lambda file: None,
    "loop": lambda file: file.symlink_to(file),
    "binary": lambda file: file.write_bytes(bytes(range(256))),
}
NAMES = {"nul": "a\0b", "long": "n" * 5000}
KINDS = (*MAKERS, *NAMES)


def hostile(kind: str, folder: Path, suffix: str = "") -> Path:
    """Return such a path."""
    file = folder / (NAMES.get(kind, "given") + suffix)
    if kind in MAKERS:
        MAKERS[kind](file)
    return file


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
def test_what_is_no_file_is_an_error_of_ours(reader: str, kind: str, tmp_path: Path) -> None:
    read, error = READERS[reader]
    with pytest.raises(error):
        read(hostile(kind, tmp_path, reader if reader.startswith(".") else ""))


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "huge"])
def test_a_model_that_is_none_is_refused(kind: str, tmp_path: Path) -> None:
    with pytest.raises(ModelError):
        Session(hostile(kind, tmp_path), cache_dir=None)


def test_a_model_in_a_pipe_that_is_written_to_is_read(model: Path) -> None:
    end, begin = os.pipe()
    os.write(begin, model.read_bytes())
    os.close(begin)
    try:
        with Session(f"/dev/fd/{end}", cache_dir=None) as session:
            [y] = session.run(None, {"x": np.array([[-1, 0, 2]], np.float32)})
    finally:
        os.close(end)
    np.testing.assert_array_equal(y, [[0, 0, 2]])


def ends(*words: object) -> None:
    """A command ends with an error, and with no traceback."""
    result = CliRunner().invoke(app, [str(word) for word in words])
    assert result.exit_code in (1, 2), words
    assert isinstance(result.exception, SystemExit), words


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in ("binary", "absent")])
def test_a_command_that_names_it_ends_with_an_error(kind: str, model: Path) -> None:
    file = hostile(kind, model.parent)
    ends("run", model, "--labels", file)
    ends("run", model, "--input", f"x={file}")
    if kind != "huge":  # a model may be large
        ends("plan", file)
    ends("diff", file, file)
    ends("libs", "--check", file)


@pytest.mark.parametrize("kind", ["nul", "binary", "loop", "long"])
def test_a_cache_folder_that_is_none_is_refused(kind: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be used"):
        Session(tiny(), cache_dir=hostile(kind, tmp_path))


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs /proc")
def test_a_folder_in_place_of_a_file_leaves_nothing_open(tmp_path: Path) -> None:
    before = len([*Path("/proc/self/fd").iterdir()])
    for _ in range(8):
        with pytest.raises(OSError, match="directory"):
            read_plain_file(tmp_path)
    assert len([*Path("/proc/self/fd").iterdir()]) == before


def test_names_with_a_nul_are_refused(model: Path) -> None:
    odd = model.with_name("a\0b")
    with pytest.raises(InputError, match="is no path"):
        Session(model, external_data_root="a\0b", cache_dir=None)
    with Session(tiny(), cache_dir=None) as session, pytest.raises(InputError, match="written"):
        session.lock().write(odd)
    with pytest.raises(InputError):
        save_onnx(tiny(), odd)
    for options in (["plan", "--html"], ["plan", "--svg"], ["run", "--save"]):
        ends(options[0], model, options[1], odd)


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
def test_hostile_toml_is_refused(text: str, tmp_path: Path) -> None:
    file = tmp_path / "given.toml"
    file.write_text(TEXTS[text], encoding="utf-8")
    with pytest.raises(LockError):
        Session(tiny(), plan=file)
    with pytest.raises(DescriptionError):
        Description.read(file)
    ends("libs", "--check", file)


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


def library_folder(at: Path, name: str, keys: str, module: str, text: str) -> Path:
    """Write a library with one module of its own; return its folder."""
    (at / name).mkdir()
    head = f'[library]\nname = "{name}"\npriority = 1\ndevices = ["cpu"]\n'
    (at / name / f"{name}.toml").write_text(head + keys, encoding="utf-8")
    (at / name / module).write_text(text, encoding="utf-8")
    return at / name


@pytest.mark.parametrize("text", DEEP_MODULES)
def test_a_module_that_is_nested_deeply_is_read(text: str, tmp_path: Path) -> None:
    """Its text is read without running it, and so without an error that is not ours."""
    keys = 'invokers = [".handlers"]\nprobe = ".handlers:f"\nguideline = ".handlers:f"\n'
    folder = library_folder(tmp_path, "deep", keys, "handlers.py", DEEP_MODULES[text])
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
def test_a_signal_handlers_exit_ends_the_process(
    handler: str, key: str, what: str, tmp_path: Path
) -> None:
    """That of a library's module does not: the library is skipped."""
    keys = 'invokers = [".own"]\n' if key == "invokers" else 'probe = ".own:f"\n'
    texts = {"signal": "import os, signal\nos.kill(os.getpid(), signal.SIGUSR1)\n"}
    text = texts.get(what, "import sys\nsys.exit(9)\n") + "def f(): return None\n"
    folder = library_folder(tmp_path, "goodlib", keys, "own.py", text)
    environment = {"VTENSOR_LIBRARIES": str(folder)}
    done = run_python("-c", EXITS.format(handler=handler), environment=environment)
    if what == "signal":
        assert (done.returncode, done.stdout) == (9, ""), done.stderr
    else:
        assert done.returncode == 0, done.stderr
        assert "SystemExit: 9" in done.stdout
