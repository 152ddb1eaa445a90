"""Registering and undoing: nothing is half registered, and a test may have its own registry."""

from __future__ import annotations

import linecache
import sys
from pathlib import Path
from typing import Any

import pytest

from libdesc import register
from libdesc.dispatcher import dispatcher, dispatcher_source
from libdesc.registry import Registration, Registry, installed, registry, without_invoker
from libdesc.schema import Description
from ptensor.libraries import LIBRARIES, library
from tests.libraries.bench import HERE, Bench, message, unused
from tests.libraries.golden import Golden
from vtensor.errors import DescriptionError, GraphError, LibraryError, NoInvokerError
from vtensor.language.operators import OPERATORS, operator
from vtensor.operators import Context
from vtensor.tensor import VTensor

OTHER = HERE / "other"
HEAD = '[library]\nname = "mylib"\npriority = 5\ndevices = ["cpu"]\n'
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


def folder(at: Path, more: str = "", **modules: str) -> Path:
    """Write a folder ``mylib`` with a description and modules next to it."""
    made = at / "mylib"
    made.mkdir(exist_ok=True)
    (made / "mylib.toml").write_text(HEAD + more, encoding="utf-8")
    for name, text in modules.items():
        (made / f"{name}.py").write_text(text, encoding="utf-8")
    return made


def check_absent(name: str) -> None:
    """Check that a library is not registered."""
    assert name not in registry().libraries
    assert name not in LIBRARIES


@pytest.mark.parametrize(
    "source",
    [OTHER, str(OTHER), OTHER / "other.toml", Description.read(OTHER / "other.toml")],
    ids=["folder", "text", "file", "description"],
)
def test_a_library_is_registered_from_any_source(scratch: None, source: Any) -> None:
    registration = register(source)
    assert isinstance(registration, Registration)
    assert registry().libraries["other"] is registration.library
    assert library("other") is registration.library
    assert (registration.library.priority, registration.library.devices) == (30, ("cpu",))


def test_a_registration_is_undone(scratch: None) -> None:
    registration = register(OTHER)
    registration.undo()
    check_absent("other")
    registration.undo()  # does nothing
    with register(OTHER) as other:
        registration.undo()  # is not the one that is registered now
        assert library("other") is registry().libraries["other"] is other
    check_absent("other")
    with pytest.raises(ArithmeticError), register(OTHER):
        raise ArithmeticError
    check_absent("other")
    message(LibraryError, lambda: library("other"))


def test_a_name_is_taken_once(scratch: None) -> None:
    first = register(OTHER)
    text = message(LibraryError, lambda: register(OTHER))
    file = OTHER / "other.toml"
    assert text == f"{file}: library 'other' is already registered by {file}"
    assert registry().libraries["other"] is first.library


def test_a_library_that_is_not_registered_is_named() -> None:
    text = message(LibraryError, lambda: library("nonsense"))
    assert text.startswith("no library 'nonsense' is registered; registered are ")
    assert "numpy" in text


def test_a_library_brings_its_own_invokers_as_often_as_it_is_registered(
    bench: Bench, tmp_path: Path
) -> None:
    made = folder(tmp_path, 'invokers = [".mine"]\n', mine=INVOKER)
    with register(made):
        assert bench.decide().library == "mylib"
        assert bench.run()[0, 0] == 1
    message(NoInvokerError, bench.resolve)
    assert "mylib" not in dispatcher_source("Toy")
    with register(made):
        assert bench.decide().library == "mylib"


@pytest.mark.parametrize("name", [".mine", "vtensor_test_invokers"])
def test_invokers_that_fail_leave_nothing(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """The first module is good, the second fails: neither leaves anything, and a repair works."""
    broken = INVOKER.replace("Toy", "Pair").replace("op, x, y", "op, x, b, y") + "1 / 0\n"
    modules = {"mine": INVOKER, "vtensor_test_invokers": INVOKER, "broken": broken}
    made = folder(tmp_path, f'invokers = ["{name}", ".broken"]\n', **modules)
    monkeypatch.syspath_prepend(str(made))
    invokers, before = dict(registry().invokers), set(sys.modules)
    text = message(LibraryError, lambda: register(made))
    fault = "'.broken' does not import: ZeroDivisionError: division by zero"
    assert text == f"{made / 'mylib.toml'}: library.invokers: {fault}"
    check_absent("mylib")
    assert registry().invokers == invokers
    new = set(sys.modules) - before
    assert not {module for module in new if "mylib" in module or "test_inv" in module}
    (made / "broken.py").write_text("", encoding="utf-8")
    register(made)
    assert bench.decide().library == "mylib"
    sys.modules.pop("vtensor_test_invokers", None)


def test_invokers_in_a_missing_module_are_refused(scratch: None, tmp_path: Path) -> None:
    made = folder(tmp_path, 'invokers = [".nothing"]\n')
    text = message(DescriptionError, lambda: register(made))
    assert ".nothing names no file next to it" in text
    check_absent("mylib")


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
def test_a_library_is_absent_for_the_reason_of_its_probe(
    bench: Bench, tmp_path: Path, probe: str, reason: str
) -> None:
    keys = 'probe = ".handlers:probe"\ninvokers = [".mine"]\n'
    made = folder(tmp_path, keys, handlers=probe, mine=INVOKER)
    absent = register(made).library
    assert absent.absent == reason.format(made / "handlers.py")
    text = message(NoInvokerError, bench.resolve)
    assert f"      5 mylib : {absent.absent}\n" in text


def test_ties_are_reported_of_a_library_that_is_present(scratch: None, tmp_path: Path) -> None:
    assert not [tie for tie in registry().ties() if "mylib" in tie]
    made = folder(tmp_path, handlers="def probe(): return None\n")
    text = HEAD.replace("5", "0") + 'probe = ".handlers:probe"\n'
    (made / "mylib.toml").write_text(text, encoding="utf-8")
    assert register(made).library.absent == ""
    assert "mylib and numpy both have priority 0; the name decides" in registry().ties()


def test_a_description_may_be_made_in_python(bench: Bench) -> None:
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


def declare() -> None:
    """Register the operator Lonely."""

    @operator("Lonely", dims={"x": "*", "y": "*"})
    class Lonely:
        def compute(self, ctx: Context, x: VTensor) -> VTensor:
            return x


def content(held: Registry) -> tuple[object, ...]:
    """Return all that a registry holds, to compare."""
    problems, tables = list(held.problems), (held.operators, held.libraries, held.invokers)
    return problems, held.version, *(dict(table) for table in tables)


def test_a_fresh_registry_is_empty_and_takes_everything() -> None:
    before = content(registry())
    with installed(Registry()) as fresh:
        assert (dict(OPERATORS), dict(LIBRARIES), fresh.invokers) == ({}, {}, {})
        with pytest.raises(LibraryError, match="registered are none"):
            library("numpy")
        declare()
        assert OPERATORS.keys() == fresh.operators.keys() == {"Lonely"}
        assert "no library" not in dispatcher_source("Lonely")
    assert "Lonely" not in OPERATORS
    with pytest.raises(GraphError, match="no operator 'Lonely'"):
        dispatcher_source("Lonely")
    assert content(registry()) == before


def test_a_copy_has_all_and_gives_nothing_back(tmp_path: Path) -> None:
    made = folder(tmp_path, 'invokers = [".mine"]\n', mine=INVOKER.replace('"Toy"', '"Relu"'))
    before = content(registry())
    for _ in range(2):  # the module is imported and registers in each round
        with installed(registry().copy()) as copied:
            register(made)
            declare()
            assert LIBRARIES["mylib"] is copied.libraries["mylib"]
            assert "mylib" in dispatcher_source("Relu")
            assert {"Lonely", "Relu"} <= OPERATORS.keys()
        assert content(registry()) == before
        assert not any(name.startswith("vtensor_library_mylib_") for name in sys.modules)
    assert "mylib" not in dispatcher_source("Relu")


def test_a_registry_has_its_own_dispatchers() -> None:
    ours = dispatcher("Relu")
    with installed(registry().copy()) as copied, without_invoker("Relu", "numpy"):
        assert dispatcher("Relu") is not ours
        assert copied.dispatchers.keys() == {("Relu", "cpu")}
        assert "numpy" not in dispatcher_source("Relu")
    assert dispatcher("Relu") is ours


def test_versions_are_never_shared() -> None:
    copied, fresh = registry().copy(), Registry()
    assert len({registry().version, copied.version, fresh.version}) == 3
    copied.change(lambda: None)
    assert copied.version not in (registry().version, fresh.version)


def test_an_error_leaves_the_registry_as_it_was() -> None:
    before = content(registry())

    def fail() -> None:
        declare()
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), installed(registry().copy()):
        fail()
    assert content(registry()) == before
    assert OPERATORS.data is registry().operators
