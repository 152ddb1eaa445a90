"""A description is checked by reading: nothing that it names is imported."""

from __future__ import annotations

import logging
import sys
from pathlib import Path

import pytest

from libdesc import register
from libdesc.registry import registry
from tests.libraries.bench import message
from vtensor.commands.check_library import Checked, validate
from vtensor.errors import DescriptionError

HEAD = 'name = "mylib"\npriority = 5\ndevices = ["cpu"]\n'
#: The first line of every module here: importing one fails the test.
BOOM = "raise SystemExit('this ran')\n"
INVOKERS, RIGHT = "from libdesc import invoker\n", "def f(ctx, op, x, y): pass\n"


def write(at: Path, more: str = "", **modules: str) -> Path:
    """Write a description, and modules next to it that must not be imported."""
    for name, text in modules.items():
        (at / f"{name}.py").write_text(BOOM + text, encoding="utf-8")
    file = at / "mylib.toml"
    file.write_text(f"[library]\n{HEAD}{more}", encoding="utf-8")
    return file


def handler(at: Path, text: str, key: str = "guideline") -> Checked:
    """Check a description that names ``.h:f`` for a key."""
    return validate(write(at, f'{key} = ".h:f"\n', h=text))


def invokers(at: Path, text: str) -> Checked:
    """Check a description with invokers in ``mine.py``."""
    return validate(write(at, 'invokers = [".mine"]\n', mine=INVOKERS + text))


GOOD = [
    "def f(call): pass\n",
    "def f(call, more=1): pass\n",
    "def f(*all): pass\n",
    "def f(call, *, strict=True): pass\n",
    "f = lambda call: {}\n",
    "try:\n    def f(call): pass\nexcept ImportError:\n    def f(call): return {}\n",
    "if True:\n    pass\nelse:\n    def f(call): pass\n",
    "def f(): pass\ndef f(call): pass\n",
    "from tests.libraries.toy.handlers import guideline as f\n",
]
PROBLEMS = [
    ("", ": {file} has no function 'f'"),
    ("def g(call): pass\n", ": {file} has no function 'f'"),
    ("class C:\n    def f(self, call): pass\n", ": {file} has no function 'f'"),
    ("f = 3\n", ": {file}:2 is no function"),
    ("f: int\n", ": {file} has no function 'f'"),
    ("import math as f\n", ": {file}:2 is a module, no function"),
    ("async def f(call): pass\n", ": {file}:2 is an async function, which is not awaited"),
    ("def f(:\n", ": SyntaxError: "),
    *(
        (f"def f{takes}: pass\n", f" ({{file}}:2) takes {takes}, and is called with (call)")
        for takes in ("()", "(op, x, y)", "(*, call)", "(call, *, strict)")
    ),
]
DOUBTS = [
    ("@wrapped\ndef f(call): pass\n", "{file}:3 is decorated"),
    ("f = make()\n", "{file}:2 makes it as it runs"),
    ("from numpy import *\n", "{file}:2 imports everything that there is elsewhere"),
    ("def __getattr__(name): pass\n", "{file}:2 makes names as they are asked for"),
    ("from math import sqrt as f\n", "{file}:2 imports it from elsewhere"),
    ("from .near import f\n", "{file}:2 imports it from elsewhere"),
]


@pytest.mark.parametrize(("text", "doubt"), [*((text, "") for text in GOOD), *DOUBTS])
def test_a_handler_is_found_or_only_running_would_show_it(
    tmp_path: Path, text: str, doubt: str
) -> None:
    checked = handler(tmp_path, text)
    doubts = [f"library.guideline = '.h:f': {doubt.format(file=tmp_path / 'h.py')}"]
    assert (checked.problems, checked.not_run) == ([], doubts if doubt else [])


@pytest.mark.parametrize(("text", "fault"), PROBLEMS)
def test_a_handler_that_cannot_be_called_is_a_problem(
    tmp_path: Path, text: str, fault: str
) -> None:
    [problem] = handler(tmp_path, text).problems
    begin = f"library.guideline = '.h:f'{fault.format(file=tmp_path / 'h.py')}"
    assert problem.startswith(begin)
    assert problem == begin or "takes" not in fault


@pytest.mark.parametrize(
    ("key", "takes", "given"),
    [("probe", "(strict)", "()"), ("transformer", "(src, dst)", "(source, target, permutation)")],
)
def test_each_handler_has_its_own_signature(
    tmp_path: Path, key: str, takes: str, given: str
) -> None:
    place, called = tmp_path / "h.py", f"takes {takes}, and is called with {given}"
    problem = f"library.{key} = '.h:f' ({place}:2) {called}"
    assert handler(tmp_path, f"def f{takes}: pass\n", key).problems == [problem]


def test_a_package_is_found_without_importing_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "vtensor_unimported" / "deep"
    package.mkdir(parents=True)
    for folder in (package.parent, package):
        (folder / "__init__.py").write_text(BOOM, encoding="utf-8")
    (package / "h.py").write_text(BOOM + "from .g import f\n", encoding="utf-8")
    (package / "g.py").write_text(BOOM + "def f(): pass\n", encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    checked = validate(write(tmp_path, 'guideline = "vtensor_unimported.deep.h:f"\n'))
    assert "g.py:2) takes (), and is called with (call)" in checked.problems[0]
    assert not any(name.startswith("vtensor_unimported") for name in sys.modules)
    checked = validate(write(tmp_path, 'guideline = "vtensor_unimported.deeper.h:f"\n'))
    assert checked.problems == [
        "library.guideline = 'vtensor_unimported.deeper.h:f': there is no module "
        "'vtensor_unimported.deeper.h' where Python looks"
    ]


def test_a_compiled_module_is_not_read(tmp_path: Path) -> None:
    checked = validate(write(tmp_path, 'layout_mapper = "math:sqrt"\n'))
    assert checked.not_run == ["library.layout_mapper = 'math:sqrt': the module is no Python text"]


@pytest.mark.parametrize(
    ("more", "problem"),
    [
        ("'ReLU', library='mylib'", "there is no operator 'ReLU'; did you mean 'Relu'?"),
        ("'Relu', library='mylib', dtypes=['float32']", "dtypes 'float32' are unknown"),
        ("'Relu', library='mylib', dtypes={'x': ['f3']}", "dtypes 'f3' are unknown"),
    ],
)
def test_invokers_are_read(tmp_path: Path, more: str, problem: str) -> None:
    checked = invokers(tmp_path, f"@invoker({more})\n{RIGHT}")
    assert checked.invokers == 1
    [fault] = checked.problems
    assert fault.startswith(f"{tmp_path / 'mine.py'}:3: {problem}")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            "@invoker('Relu', library='mylib')\ndef f(ctx, x, y): pass\n",
            "{file}:4 takes (ctx, x, y), and is called with (ctx, op, x, y)",
        ),
        (
            f"L = 'my_lib'\n@invoker('Relu', library=L)\n{RIGHT}",
            "no invoker names this library; invokers there name 'my_lib'",
        ),
    ],
)
def test_invokers_that_are_never_called_are_a_problem(
    tmp_path: Path, text: str, problem: str
) -> None:
    assert invokers(tmp_path, text).problems == [problem.format(file=tmp_path / "mine.py")]


def test_invokers_that_cannot_be_read_are_a_doubt(tmp_path: Path) -> None:
    """Then nothing is said of the library that they name."""
    loop = "for op in OPS:\n    invoker(op, library=name())(f)\n"
    modules = {"mine": INVOKERS + loop, "none": ""}
    checked = validate(write(tmp_path, 'invokers = [".mine", ".none"]\n', **modules))
    assert (checked.problems, checked.unused) == ([], [])
    assert checked.not_run == [
        "library.invokers: '.none': its own text has no invoker",
        f"{tmp_path / 'mine.py'}:4: what this invoker is registered for",
    ]


def test_a_name_that_is_taken_is_a_problem(tmp_path: Path) -> None:
    file = write(tmp_path)
    file.write_text(file.read_text().replace("mylib", "numpy"), encoding="utf-8")
    [problem] = validate(file).problems
    assert problem.startswith("name 'numpy' is taken by ")
    assert problem.endswith("numpy.toml")
    assert validate(registry().libraries["numpy"].description.file).problems == []


def test_layout_names_are_read(tmp_path: Path) -> None:
    file = write(tmp_path, '[layout_names]\nNCC = "x"\n')
    assert "layout_names.NCC: " in message(DescriptionError, lambda: validate(file))


@pytest.mark.parametrize("name", ["onednn", "eigen", "numpy", "onnx_reference"])
def test_our_own_are_well_described(name: str) -> None:
    checked = validate(registry().libraries[name].description.file)
    assert (checked.problems, checked.unused) == ([], [])
    assert all("what it answers here" in text for text in checked.not_run)


def test_registering_warns_of_a_library_that_is_never_used(
    scratch: None, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "mine.py").write_text(f"{INVOKERS}@invoker('Relu', library='other')\n{RIGHT}")
    file = write(tmp_path, 'invokers = [".mine"]\n')
    file.write_text(file.read_text().replace("cpu", "gpu"), encoding="utf-8")
    with caplog.at_level(logging.WARNING, "vtensor.libraries"):
        register(file)
    assert caplog.messages == [
        f"library mylib ({file}): no invoker names this library; invokers there name 'other'",
        f"library mylib ({file}): no device of kind gpu here: it will never be used",
    ]


def test_registering_warns_of_invokers_for_another_device(
    scratch: None, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    line = "@invoker('Relu', library='mylib', device='gpu')\n"
    (tmp_path / "mine.py").write_text(f"{INVOKERS}{line}{RIGHT}")
    with caplog.at_level(logging.WARNING, "vtensor.libraries"):
        register(write(tmp_path, 'invokers = [".mine"]\n'))
    [text] = caplog.messages
    assert text.endswith(": its invokers are for gpu, it says devices = ['cpu']")
