"""Registering and undoing; nothing is half registered after a failure."""

from __future__ import annotations

import linecache
import sys
from pathlib import Path
from typing import Any

import pytest

from libdesc import register
from libdesc.dispatcher import dispatcher_source
from libdesc.registry import Registration, registry
from libdesc.schema import Description
from ptensor.libraries import LIBRARIES, library
from tests.libraries.bench import HERE, Bench, message, unused
from tests.libraries.golden import Golden
from vtensor.errors import DescriptionError, LibraryError, NoInvokerError

OTHER = HERE / "other"
INVOKER = """
from libdesc import invoker
from ptensor import PTensor, lib_tagger

@invoker("Toy", library="mylib", python=True)
def mylib_toy(ctx, op, x, y):
    src, dst = PTensor(x).require("NC"), PTensor(y).require("NC")
    if lib_tagger("mylib", [src], [dst]):
        return
    dst.data()[...] = src.data() + 1
"""


def folder(at: Path, more: str = "", handlers: str | None = None) -> Path:
    """A folder ``mylib`` with a description and a module beside it."""
    made = at / "mylib"
    made.mkdir(exist_ok=True)
    head = '[library]\nname = "mylib"\npriority = 5\ndevices = ["cpu"]\n'
    (made / "mylib.toml").write_text(head + more, encoding="utf-8")
    if handlers is not None:
        (made / "handlers.py").write_text(handlers, encoding="utf-8")
    return made


@pytest.mark.parametrize(
    "source",
    [OTHER, str(OTHER), OTHER / "other.toml", Description.read(OTHER / "other.toml")],
    ids=["folder", "text", "file", "description"],
)
def test_from_anything(scratch: None, source: Any) -> None:
    registration = register(source)
    assert isinstance(registration, Registration)
    assert registry().libraries["other"] is registration.library
    assert library("other") is registration.library
    assert (registration.library.priority, registration.library.devices) == (30, ("cpu",))


def test_undo(scratch: None) -> None:
    registration = register(OTHER)
    registration.undo()
    assert "other" not in registry().libraries
    assert "other" not in LIBRARIES
    registration.undo()  # does nothing
    second = register(OTHER)
    registration.undo()  # is not the one that is registered now
    assert registry().libraries["other"] is second.library
    second.undo()
    message(LibraryError, lambda: library("other"))


def test_context_manager(scratch: None) -> None:
    with register(OTHER) as other:
        assert library("other") is other
    assert "other" not in LIBRARIES


def test_context_manager_when_the_body_raises(scratch: None) -> None:
    with pytest.raises(ArithmeticError), register(OTHER):
        raise ArithmeticError
    assert "other" not in registry().libraries
    assert "other" not in LIBRARIES


def test_a_name_is_taken_once(scratch: None) -> None:
    first = register(OTHER)
    text = message(LibraryError, lambda: register(OTHER))
    file = OTHER / "other.toml"
    assert text == f"{file}: library 'other' is already registered by {file}"
    assert registry().libraries["other"] is first.library


def test_unknown_libraries_are_named() -> None:
    text = message(LibraryError, lambda: library("nonsense"))
    assert text.startswith("no library 'nonsense' is registered; registered are ")
    assert "numpy" in text


def test_its_own_invokers(bench: Bench, tmp_path: Path) -> None:
    register(folder(tmp_path, 'invokers = [".handlers"]\n', INVOKER))
    assert bench.decide().library == "mylib"
    assert bench.run()[0, 0] == 1


def test_its_own_invokers_come_back(bench: Bench, tmp_path: Path) -> None:
    made = folder(tmp_path, 'invokers = [".handlers"]\n', INVOKER)
    with register(made):
        assert bench.decide().library == "mylib"
    message(NoInvokerError, bench.resolve)
    assert "mylib" not in dispatcher_source("Toy")
    with register(made):
        assert bench.decide().library == "mylib"


@pytest.mark.parametrize("kind", ["beside", "absolute"])
def test_invokers_that_fail_leave_nothing(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """The first module is good, the second fails: neither leaves anything, and a repair works."""
    name = ".handlers" if kind == "beside" else "vtensor_test_invokers"
    made = folder(tmp_path, f'invokers = ["{name}", ".broken"]\n', INVOKER)
    (made / "vtensor_test_invokers.py").write_text(INVOKER, encoding="utf-8")
    monkeypatch.syspath_prepend(str(made))
    broken = INVOKER.replace("Toy", "Pair").replace("op, x, y", "op, x, b, y") + "1 / 0\n"
    (made / "broken.py").write_text(broken, encoding="utf-8")
    invokers, modules = dict(registry().invokers), set(sys.modules)
    text = message(LibraryError, lambda: register(made))
    fault = "'.broken' does not import: ZeroDivisionError: division by zero"
    assert text == f"{made / 'mylib.toml'}: library.invokers: {fault}"
    assert "mylib" not in registry().libraries
    assert "mylib" not in LIBRARIES
    assert registry().invokers == invokers
    assert not {
        name for name in set(sys.modules) - modules if "mylib" in name or "test_inv" in name
    }
    (made / "broken.py").write_text("", encoding="utf-8")
    register(made)
    assert bench.decide().library == "mylib"
    sys.modules.pop("vtensor_test_invokers", None)


def test_a_missing_module_of_invokers(scratch: None, tmp_path: Path) -> None:
    made = folder(tmp_path, 'invokers = [".nothing"]\n')
    text = message(DescriptionError, lambda: register(made))
    assert ".nothing names no file next to it" in text
    assert "mylib" not in registry().libraries


@pytest.mark.parametrize(
    ("probe", "reason"),
    [
        ("def probe(): return 'needs a GPU'\n", "needs a GPU"),
        (
            "def probe(): raise OSError('no driver')\n",
            "its probe failed: OSError: no driver (at {}:1)",
        ),
    ],
)
def test_an_absent_library(bench: Bench, tmp_path: Path, probe: str, reason: str) -> None:
    made = folder(tmp_path, 'probe = ".handlers:probe"\ninvokers = [".mine"]\n', probe)
    (made / "mine.py").write_text(INVOKER, encoding="utf-8")
    absent = register(made).library
    assert absent.absent == reason.format(made / "handlers.py")
    text = message(NoInvokerError, bench.resolve)
    assert f"      5 mylib : {absent.absent}\n" in text


def test_a_present_library(bench: Bench, tmp_path: Path) -> None:
    made = folder(tmp_path, 'probe = ".handlers:probe"\n', "def probe(): return None\n")
    assert register(made).library.absent == ""


def test_ties_are_reported(scratch: None, tmp_path: Path) -> None:
    assert not [tie for tie in registry().ties() if "mylib" in tie]
    made = folder(tmp_path)
    (made / "mylib.toml").write_text(
        '[library]\nname = "mylib"\npriority = 0\ndevices = ["cpu"]\n', encoding="utf-8"
    )
    register(made)
    assert "mylib and numpy both have priority 0; the name decides" in registry().ties()


def test_a_description_made_by_hand(bench: Bench) -> None:
    register(Description("mylib", 60, ("cpu",)))
    bench.invoker(library="mylib", when=lambda op, x, y: "declines all")(unused)
    assert "60 mylib : declines all" in message(NoInvokerError, bench.resolve)


def test_the_generated_look_ups_are_what_runs(bench: Bench, golden: Golden) -> None:
    """Guideline, confirm, library_desc and the Transform's body: printed, compiled, shown."""
    toy = registry().libraries["toy"]
    golden.check(toy.text.rstrip())
    file = "<generated library toy>"
    assert "".join(linecache.getlines(file)) == toy.text
    for name in ("guideline", "confirm", "library_desc", "transform"):
        assert toy.code[name].__code__.co_filename == file
