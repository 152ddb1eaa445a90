"""A description file that is wrong: the error names file, key and what is allowed."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from libdesc import register
from libdesc.library import build_library
from libdesc.registry import registry
from libdesc.schema import HANDLERS, KEYS, Description
from ptensor import PTensor, lib_tagger
from ptensor.libraries import LIBRARIES
from tests.libraries.bench import Bench, message
from vtensor.errors import DescriptionError, LayoutNotSupported, LibraryError

GOOD = 'name = "mylib"\npriority = 5\ndevices = ["cpu"]\n'


def written(folder: Path, library: str, rest: str = "") -> Path:
    """A description file with these lines in its table."""
    file = folder / "mylib.toml"
    file.write_text(f"[library]\n{library}{rest}", encoding="utf-8")
    return file


def without(key: str) -> str:
    """The good lines without one."""
    return "".join(f"{line}\n" for line in GOOD.splitlines() if not line.startswith(key))


def test_a_good_one(tmp_path: Path) -> None:
    read = Description.read(written(tmp_path, GOOD, '[layout_names]\nNCHW = "nchw"\n'))
    assert (read.name, read.priority, read.devices) == ("mylib", 5, ("cpu",))
    assert (read.layout_names, read.python, read.invokers) == ({"NCHW": "nchw"}, False, ())
    assert read.handlers == {}


NAMES = '"module:function"'
HANDLER_TEXTS = {
    "probe": f"{NAMES} -> None, or why the library is absent",
    "layout_mapper": f"{NAMES}(ptensor) -> the library's word",
    "transformer": f"{NAMES}(source, target, permutation)",
    "guideline": f"{NAMES}(call) -> layouts by operand index",
    "confirm": f"{NAMES}(call, row) -> None, or why not",
    "version": f"{NAMES} -> text: version, and where it was found",
    "limit_isa": f"{NAMES}(cap) caps the instruction set",
    "peaks": f"{NAMES}(nbytes) -> steps that measure peak speed",
    "let_go": f"{NAMES} releases kernels that planning made in vain",
}
PRIORITY = "an integer; larger is tried first"
DEVICES = 'a list of device names, such as ["cpu"]'
MODULES = "modules that hold the library's own invokers"


@pytest.mark.parametrize(
    ("library", "fault"),
    [
        (without("name"), "library.name is missing: an identifier"),
        (without("priority"), f"library.priority is missing: {PRIORITY}"),
        (without("devices"), f"library.devices is missing: {DEVICES}"),
        (without("name") + "name = 3\n", "library.name = 3 must be an identifier"),
        (without("name") + 'name = "my lib"\n', "library.name = 'my lib' must be an identifier"),
        (without("priority") + 'priority = "5"\n', f"library.priority = '5' must be {PRIORITY}"),
        (without("priority") + "priority = 5.5\n", f"library.priority = 5.5 must be {PRIORITY}"),
        (without("priority") + "priority = true\n", f"library.priority = True must be {PRIORITY}"),
        (without("devices") + 'devices = "cpu"\n', f"library.devices = 'cpu' must be {DEVICES}"),
        (without("devices") + "devices = []\n", f"library.devices = [] must be {DEVICES}"),
        (without("devices") + "devices = [1]\n", f"library.devices = [1] must be {DEVICES}"),
        (without("devices") + 'devices = [""]\n', f"library.devices = [''] must be {DEVICES}"),
        (GOOD + 'invokers = "m"\n', f"library.invokers = 'm' must be {MODULES}"),
        (GOOD + "invokers = [3]\n", f"library.invokers = [3] must be {MODULES}"),
        (
            GOOD + 'python = "yes"\n',
            "library.python = 'yes' must be true when the transformer computes in Python",
        ),
        (
            GOOD + "speed = 11\n",
            "unknown key library.speed; allowed are confirm, devices, guideline, invokers, "
            "layout_mapper, let_go, limit_isa, name, peaks, priority, probe, python, transformer, "
            "version",
        ),
        *(
            (GOOD + f"{key} = {text!r}\n", f"library.{key} = {text!r} must be {rule}")
            for key, rule in HANDLER_TEXTS.items()
            for text in ("nocolon", ":function", "module:", "module:a b", "module:a:b")
        ),
        (GOOD + "probe = 3\n", f"library.probe = 3 must be {HANDLER_TEXTS['probe']}"),
        (GOOD + "[speed]\n", "unknown key speed; allowed are layout_names, library, rates"),
        (
            GOOD + "[rates]\nspeed = 1\n",
            "unknown key rates.speed; allowed are call_us, gbytes, gflops",
        ),
        (GOOD + "[rates]\ngflops = 0\n", "rates.gflops = 0 must be a number above 0"),
        (GOOD + "[rates]\ngbytes = true\n", "rates.gbytes = True must be a number above 0"),
        (GOOD + "[layout_names]\nNCHW = 3\n", "[layout_names] must map layouts to strings"),
        (
            GOOD + 'layout_mapper = "m:f"\n[layout_names]\nNCHW = "nchw"\n',
            "library.layout_mapper and [layout_names] say the same thing: keep one",
        ),
    ],
)
def test_faults(tmp_path: Path, library: str, fault: str) -> None:
    file = written(tmp_path, library)
    before = (dict(registry().libraries), dict(LIBRARIES))
    assert message(DescriptionError, lambda: register(file)) == f"{file}: {fault}"
    assert (registry().libraries, dict(LIBRARIES)) == before


def test_every_key_was_tried() -> None:
    """The cases above name every key that there is."""
    assert set(HANDLER_TEXTS) == set(HANDLERS)
    assert set(KEYS) == {*HANDLERS, "name", "priority", "devices", "python", "invokers"}


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        (b"", "a table [library] is missing"),
        (b"library = 3\n", "a table [library] is missing"),
        (b"layout_names = 3\n[library]\n" + GOOD.encode(), "[layout_names] must map layouts to"),
        (b"[library\n", "is no TOML: "),
        (b'name = "a"\nname = "b"\n', "is no TOML: "),
        (b"\xff\xfe", "cannot be read: "),
    ],
)
def test_files_that_cannot_be_read(tmp_path: Path, content: bytes, fault: str) -> None:
    file = tmp_path / "mylib.toml"
    file.write_bytes(content)
    assert message(DescriptionError, lambda: register(file)).startswith(f"{file}: {fault}")


def test_missing_files(tmp_path: Path) -> None:
    for path in (tmp_path / "none.toml", tmp_path):
        assert message(DescriptionError, partial(register, path)) == (
            f"{path}: no description there; a TOML file or a folder with one"
        )
    assert message(DescriptionError, lambda: Description.read(tmp_path)).startswith(
        f"{tmp_path}: cannot be read: "
    )


@pytest.mark.parametrize(
    ("source", "handler", "fault"),
    [
        (None, ".handlers:map_it", ".handlers names no file next to it, handlers.py"),
        ("", ".handlers:map_it", "AttributeError: "),
        ("def oops(:\n", ".handlers:map_it", "SyntaxError: "),
        ("raise OSError('no driver')\n", ".handlers:map_it", "OSError: no driver"),
        ("", "no_such_module_of_ours:map_it", "ModuleNotFoundError: "),
    ],
)
def test_handlers_that_do_not_import(
    tmp_path: Path, source: str | None, handler: str, fault: str
) -> None:
    if source is not None:
        (tmp_path / "handlers.py").write_text(source, encoding="utf-8")
    file = written(tmp_path, GOOD + f'layout_mapper = "{handler}"\n')
    assert message(DescriptionError, lambda: register(file)).startswith(
        f"{file}: library.layout_mapper = '{handler}' does not import: {fault}"
    )
    assert "mylib" not in registry().libraries


OUTSIDE = [
    "./x/evil",
    "../evil",
    "..evil",
    "/tmp/evil",
    ".//evil",
    ".x/../evil",
    "x/evil",
    "evil.",
    ".",
    ".x..evil",
    "x\\\\evil",
    "evil\\u0000",
]


@pytest.mark.parametrize("module", OUTSIDE)
@pytest.mark.parametrize("key", ["probe", "invokers"])
def test_a_module_is_a_dotted_name(tmp_path: Path, key: str, module: str) -> None:
    """A path would leave the description's folder; nothing of it is looked for."""
    (tmp_path / "evil.py").write_text("raise SystemExit('this ran')\n", encoding="utf-8")
    text = f'probe = "{module}:f"' if key == "probe" else f'invokers = ["{module}"]'
    (tmp_path / "inner").mkdir()
    file = written(tmp_path / "inner", GOOD + f"{text}\n")
    fault = message(DescriptionError, lambda: register(file))
    assert fault.startswith(f"{file}: library.{key} = ")
    assert "a dotted name, or a dot and the name of a file next to the description" in fault


def test_a_link_does_not_lead_out_of_the_folder(tmp_path: Path) -> None:
    (tmp_path / "evil.py").write_text("raise SystemExit('this ran')\n", encoding="utf-8")
    inner = tmp_path / "inner"
    inner.mkdir()
    (inner / "linked.py").symlink_to(tmp_path / "evil.py")
    (inner / "folder").symlink_to(tmp_path)
    for module in (".linked", ".folder.evil"):
        file = written(inner, GOOD + f'probe = "{module}:f"\n')
        fault = message(DescriptionError, partial(register, file))
        assert fault.startswith(f"{file}: library.probe = '{module}:f' does not import: ")
        assert f"{module} leads out of the description's folder, to {tmp_path / 'evil.py'}" in fault


def test_a_link_inside_of_the_folder_is_followed(tmp_path: Path) -> None:
    """The twin; also where the folder itself is reached through a link."""
    inner = tmp_path / "inner"
    (inner / "more").mkdir(parents=True)
    (inner / "more" / "real.py").write_text("def f(): return 'is elsewhere'\n", encoding="utf-8")
    (inner / "linked.py").symlink_to(inner / "more" / "real.py")
    (tmp_path / "outer").symlink_to(inner)
    for module in (".linked", ".more.real"):
        file = written(tmp_path / "outer", GOOD + f'probe = "{module}:f"\n')
        assert build_library(Description.read(file)).absent == "is elsewhere"


def test_a_handler_that_is_no_function(tmp_path: Path) -> None:
    (tmp_path / "handlers.py").write_text("map_it = 3\n", encoding="utf-8")
    file = written(tmp_path, GOOD + 'layout_mapper = ".handlers:map_it"\n')
    assert message(DescriptionError, lambda: register(file)) == (
        f"{file}: library.layout_mapper = '.handlers:map_it' is no function"
    )


@pytest.mark.parametrize(
    ("key", "takes", "given"),
    [
        ("probe", "(strict)", "()"),
        ("layout_mapper", "()", "(ptensor)"),
        ("transformer", "(source, target)", "(source, target, permutation)"),
        ("guideline", "(op, x, y)", "(call)"),
        ("guideline", "()", "(call)"),
        ("confirm", "(call)", "(call, row)"),
        ("version", "(x)", "()"),
        ("limit_isa", "()", "(cap)"),
        ("peaks", "(*, nbytes)", "(nbytes)"),
        ("let_go", "(all)", "()"),
    ],
)
def test_handlers_of_another_signature(tmp_path: Path, key: str, takes: str, given: str) -> None:
    (tmp_path / "handlers.py").write_text(f"\ndef f{takes}:\n    return None\n", "utf-8")
    file = written(tmp_path, GOOD + f'{key} = ".handlers:f"\n')
    text = message(DescriptionError, lambda: register(file))
    place = tmp_path / "handlers.py"
    assert text.startswith(
        f"{file}: library.{key} = '.handlers:f' ({place}:2) takes {takes}, "
        f"and is called with {given}: "
    )
    assert "mylib" not in registry().libraries


@pytest.mark.parametrize("key", ["version", "limit_isa", "peaks", "let_go"])
def test_handlers_that_raise_outside_of_a_call(scratch: None, tmp_path: Path, key: str) -> None:
    (tmp_path / "handlers.py").write_text("def f(*_):\n    return iter({}['it'])\n", "utf-8")
    library = register(written(tmp_path, GOOD + f'{key} = ".handlers:f"\n')).library
    ask = {
        "version": library.version,
        "limit_isa": lambda: library.limit_isa("avx2"),
        "peaks": lambda: list(library.peaks(4)),
        "let_go": library.let_go,
    }
    text = message(LibraryError, ask[key])
    place = tmp_path / "handlers.py"
    head = f"{tmp_path / 'mylib.toml'}: library.{key} = '.handlers:f' ({place}:1), called with ("
    assert text.startswith(head)
    assert text.endswith(f"): KeyError: 'it' (at {place}:2)")


@pytest.mark.parametrize("answer", [True, False, 1])
def test_a_probe_that_answers_nonsense(tmp_path: Path, answer: object) -> None:
    """True would have been the reason why it is absent, and False would have been no reason."""
    (tmp_path / "handlers.py").write_text(f"def f():\n    return {answer}\n", "utf-8")
    file = written(tmp_path, GOOD + 'probe = ".handlers:f"\n')
    assert build_library(Description.read(file)).absent == (
        f"its probe answers {answer}, which is neither None nor the reason why not "
        f"({tmp_path / 'handlers.py'}:1)"
    )


@pytest.mark.parametrize("key", ["N?C", "NCC", "N16"])
def test_layout_names_that_are_no_layouts(tmp_path: Path, key: str) -> None:
    file = written(tmp_path, GOOD, f'[layout_names]\n"{key}" = "word"\n')
    text = message(DescriptionError, lambda: build_library(Description.read(file)))
    assert text.startswith(f"{file}: layout_names.{key}: ")


def test_layout_names(bench: Bench, tmp_path: Path) -> None:
    """The library's word, however the layout is spelled; a typed error for what is absent."""
    table = '[layout_names]\nNC = "nc"\n"N/1 C/8 C%8" = "nC8c"\n'
    register(written(tmp_path, GOOD, table))

    words = []

    def ask(layout: str) -> None:
        def invoke(ctx: object, op: object, x: object, y: object) -> None:
            src, dst = PTensor(x).require(layout), PTensor(y).require("NC")  # type: ignore[arg-type]
            words.append(src.library_desc("mylib"))
            lib_tagger("mylib", [src], [dst])

        bench.invoker(library="mylib")(invoke)
        bench.resolve()

    ask("NC")
    ask("NC8c")
    assert words == ["nc", "nC8c"]
    assert message(LayoutNotSupported, lambda: ask("CN")) == (
        "mylib has no word for layout CN; it knows NC, NC8c"
    )


def test_a_message_has_the_files_name_once(tmp_path: Path) -> None:
    file = tmp_path / "lib.toml"
    file.write_text("[library]\nname='x'\npriority=1\ndevices=['cpu']\nprobe='.no:f'\n")
    with pytest.raises(DescriptionError) as caught:
        register(file)
    assert str(caught.value).count(str(file)) == 1
    file.unlink()
    file.symlink_to(tmp_path)
    with pytest.raises(DescriptionError) as caught:
        Description.read(file)
    assert str(caught.value).count(str(file)) == 1
