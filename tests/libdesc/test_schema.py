"""A description file that is wrong: the error names file, key and what is allowed."""

from __future__ import annotations

import re
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

LINES = {"name": '"mylib"', "priority": "5", "devices": '["cpu"]'}
GOOD = "".join(f"{key} = {value}\n" for key, value in LINES.items())
EXITS = "raise SystemExit('this ran')\n"


def written(folder: Path, library: str, handlers: str | None = None) -> Path:
    """Write a description with these lines in its table, and ``handlers.py`` next to it."""
    if handlers is not None:
        (folder / "handlers.py").write_text(handlers, encoding="utf-8")
    file = folder / "mylib.toml"
    file.write_text(f"[library]\n{library}", encoding="utf-8")
    return file


def refused(file: Path) -> str:
    """Return why a description is not registered."""
    before = (dict(registry().libraries), dict(LIBRARIES))
    text = message(DescriptionError, lambda: register(file))
    assert (registry().libraries, dict(LIBRARIES)) == before
    return text


def test_a_good_description_is_read(tmp_path: Path) -> None:
    read = Description.read(written(tmp_path, GOOD + '[layout_names]\nNCHW = "nchw"\n'))
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
    "computes": f"{NAMES}(dtype) -> whether the processor has it",
    "speeds": f"{NAMES} -> {{dtype: how fast it is beside f32}}",
    "peaks": f"{NAMES}(nbytes) -> steps that measure peak speed",
    "let_go": f"{NAMES} releases kernels that planning made in vain",
}
RULES = {
    **HANDLER_TEXTS,
    "name": "an identifier",
    "priority": "an integer; larger is tried first",
    "devices": 'a list of device names, such as ["cpu"]',
    "python": "true when the transformer computes in Python",
    "invokers": "modules that hold the library's own invokers",
}
NO_HANDLERS = ["3", "'nocolon'", "':function'", "'module:'", "'module:a b'", "'module:a:b'"]
#: Values in TOML that a key does not take.
BAD = {
    **dict.fromkeys(HANDLER_TEXTS, NO_HANDLERS),
    "name": ["3", "'my lib'"],
    "priority": ["'5'", "5.5", "true"],
    "devices": ["'cpu'", "[]", "[1]", "['']"],
    "invokers": ["'m'", "[3]"],
    "python": ["'yes'"],
}


def test_every_key_is_tried() -> None:
    assert set(HANDLER_TEXTS) == set(HANDLERS)
    assert set(KEYS) == set(RULES) == set(BAD)


@pytest.mark.parametrize(("key", "value"), [(key, value) for key in BAD for value in BAD[key]])
def test_a_value_of_another_kind_is_refused(tmp_path: Path, key: str, value: str) -> None:
    lines = "".join(f"{k} = {v}\n" for k, v in {**LINES, key: value}.items())
    file = written(tmp_path, lines)
    shown = value.replace("true", "True")
    assert refused(file) == f"{file}: library.{key} = {shown} must be {RULES[key]}"


@pytest.mark.parametrize("key", LINES)
def test_a_key_that_is_missing_is_named(tmp_path: Path, key: str) -> None:
    lines = "".join(f"{k} = {v}\n" for k, v in LINES.items() if k != key)
    file = written(tmp_path, lines)
    assert refused(file) == f"{file}: library.{key} is missing: {RULES[key]}"


KEYS_ALLOWED = (
    "computes, confirm, devices, guideline, invokers, layout_mapper, let_go, limit_isa, name, "
    "peaks, priority, probe, python, speeds, transformer, version"
)


@pytest.mark.parametrize(
    ("more", "fault"),
    [
        ("speed = 11", f"unknown key library.speed; allowed are {KEYS_ALLOWED}"),
        ("[speed]", "unknown key speed; allowed are layout_names, library, rates"),
        ("[rates]\nspeed = 1", "unknown key rates.speed; allowed are call_us, gbytes, gflops"),
        ("[rates]\ngflops = 0", "rates.gflops = 0 must be a number above 0"),
        ("[rates]\ngbytes = true", "rates.gbytes = True must be a number above 0"),
        ("[layout_names]\nNCHW = 3", "[layout_names] must map layouts to strings"),
        (
            'layout_mapper = "m:f"\n[layout_names]\nNCHW = "nchw"',
            "library.layout_mapper and [layout_names] say the same thing: keep one",
        ),
    ],
)
def test_lines_that_do_not_fit_are_refused(tmp_path: Path, more: str, fault: str) -> None:
    file = written(tmp_path, f"{GOOD}{more}\n")
    assert refused(file) == f"{file}: {fault}"


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
def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path, content: bytes, fault: str) -> None:
    file = tmp_path / "mylib.toml"
    file.write_bytes(content)
    assert refused(file).startswith(f"{file}: {fault}")


def test_a_file_that_is_missing_is_named_once(tmp_path: Path) -> None:
    for path in (tmp_path / "none.toml", tmp_path):
        assert refused(path) == f"{path}: no description there; a TOML file or a folder with one"
    text = message(DescriptionError, lambda: Description.read(tmp_path))
    assert text.startswith(f"{tmp_path}: cannot be read: ")
    assert text.count(str(tmp_path)) == 1


@pytest.mark.parametrize(
    ("source", "handler", "fault"),
    [
        (
            None,
            ".handlers:f",
            r"does not import: \.handlers names no file next to it, handlers\.py",
        ),
        ("", ".handlers:f", "does not import: AttributeError: "),
        ("def oops(:\n", ".handlers:f", "does not import: SyntaxError: "),
        ("raise OSError('no driver')\n", ".handlers:f", "does not import: OSError: no driver"),
        ("", "no_such_module_of_ours:f", "does not import: ModuleNotFoundError: "),
        ("f = 3\n", ".handlers:f", r"is no function\Z"),
    ],
)
def test_a_handler_that_does_not_import_is_refused(
    tmp_path: Path, source: str | None, handler: str, fault: str
) -> None:
    file = written(tmp_path, f'{GOOD}layout_mapper = "{handler}"\n', source)
    text = refused(file)
    head = f"{file}: library.layout_mapper = '{handler}' "
    assert re.match(re.escape(head) + fault, text)
    assert text.count(str(file)) == 1


OUTSIDE = ["./x/evil", "../evil", "..evil", "/tmp/evil", ".//evil", ".x/../evil", "x/evil"]
OUTSIDE += ["evil.", ".", ".x..evil", "x\\\\evil", "evil\\u0000"]


@pytest.mark.parametrize("module", OUTSIDE)
@pytest.mark.parametrize(("key", "form"), [("probe", '"{}:f"'), ("invokers", '["{}"]')])
def test_a_module_is_a_dotted_name(tmp_path: Path, key: str, form: str, module: str) -> None:
    """A path would leave the description's folder; nothing of it is looked for."""
    (tmp_path / "evil.py").write_text(EXITS, encoding="utf-8")
    (tmp_path / "inner").mkdir()
    file = written(tmp_path / "inner", f"{GOOD}{key} = {form.format(module)}\n")
    text = refused(file)
    assert text.startswith(f"{file}: library.{key} = ")
    assert "a dotted name, or a dot and the name of a file next to the description" in text


def test_a_link_does_not_lead_out_of_the_folder(tmp_path: Path) -> None:
    (tmp_path / "evil.py").write_text(EXITS, encoding="utf-8")
    inner = tmp_path / "inner"
    inner.mkdir()
    (inner / "linked.py").symlink_to(tmp_path / "evil.py")
    (inner / "folder").symlink_to(tmp_path)
    for module in (".linked", ".folder.evil"):
        file = written(inner, GOOD + f'probe = "{module}:f"\n')
        text = refused(file)
        assert text.startswith(f"{file}: library.probe = '{module}:f' does not import: ")
        assert f"{module} leads out of the description's folder, to {tmp_path / 'evil.py'}" in text


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
        ("computes", "()", "(dtype)"),
        ("peaks", "(*, nbytes)", "(nbytes)"),
        ("let_go", "(all)", "()"),
    ],
)
def test_a_handler_of_another_signature_is_refused(
    tmp_path: Path, key: str, takes: str, given: str
) -> None:
    file = written(tmp_path, f'{GOOD}{key} = ".handlers:f"\n', f"\ndef f{takes}: pass\n")
    assert refused(file).startswith(
        f"{file}: library.{key} = '.handlers:f' ({tmp_path / 'handlers.py'}:2) takes {takes}, "
        f"and is called with {given}: "
    )


@pytest.mark.parametrize(
    ("key", "arguments"),
    [
        ("version", ()),
        ("limit_isa", ("avx2",)),
        ("computes", ("f16",)),
        ("peaks", (4,)),
        ("let_go", ()),
    ],
)
def test_an_error_of_a_handler_is_the_librarys(
    scratch: None, tmp_path: Path, key: str, arguments: tuple[object, ...]
) -> None:
    handlers = "def f(*_):\n    return iter({}['it'])\n"
    file = written(tmp_path, f'{GOOD}{key} = ".handlers:f"\n', handlers)
    ask = getattr(register(file).library, key)
    text = message(LibraryError, lambda: [*(ask(*arguments) or ())])
    place = tmp_path / "handlers.py"
    assert text.startswith(f"{file}: library.{key} = '.handlers:f' ({place}:1), called with (")
    assert text.endswith(f"): KeyError: 'it' (at {place}:2)")


@pytest.mark.parametrize("answer", [True, False, 1])
def test_a_probe_that_answers_nonsense_makes_its_library_absent(
    tmp_path: Path, answer: object
) -> None:
    """True would have been the reason why it is absent, and False would have been no reason."""
    file = written(tmp_path, GOOD + 'probe = ".handlers:f"\n', f"def f(): return {answer}\n")
    assert build_library(Description.read(file)).absent == (
        f"its probe answers {answer}, which is neither None nor the reason why not "
        f"({tmp_path / 'handlers.py'}:1)"
    )


@pytest.mark.parametrize("key", ["N?C", "NCC", "N16"])
def test_a_layout_name_that_is_no_layout_is_refused(tmp_path: Path, key: str) -> None:
    file = written(tmp_path, f'{GOOD}[layout_names]\n"{key}" = "word"\n')
    text = message(DescriptionError, lambda: build_library(Description.read(file)))
    assert text.startswith(f"{file}: layout_names.{key}: ")


def test_a_layout_name_is_found_however_the_layout_is_spelled(bench: Bench, tmp_path: Path) -> None:
    register(written(tmp_path, GOOD + '[layout_names]\nNC = "nc"\n"N/1 C/8 C%8" = "nC8c"\n'))
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
    assert message(LayoutNotSupported, partial(ask, "CN")) == (
        "mylib has no word for layout CN; it knows NC, NC8c"
    )
