"""The library itself: which one is loaded, from where, and for which instruction sets."""

from __future__ import annotations

from pathlib import Path

import pytest

from libdesc.onednn import _onednn as dnn
from libdesc.onednn import native
from tests.libraries.processes import printed
from vtensor.errors import LibraryError

PREAMBLE = "from libdesc.onednn import native; dnn = native.load()\n"


def python(code: str, **environment: str) -> str:
    """What a fresh process prints."""
    return printed("-c", PREAMBLE + code, environment=environment).strip()


def test_version_and_path() -> None:
    assert dnn.version().startswith("3.")
    path = Path(dnn.library_path())
    assert path.is_file()
    assert path.name.startswith("libdnnl.so")
    assert native.load() is dnn


@pytest.mark.parametrize("name", ["sse41", "avx2", "max"])
def test_a_limit_holds(name: str) -> None:
    code = f"dnn.limit_isa({name!r}); dnn.limit_isa({name!r}); print(dnn.isa())"
    answer = python(code)
    assert answer == (name if name != "max" else python("print(dnn.isa())"))


def test_a_limit_reaches_the_kernels() -> None:
    code = """
dnn.limit_isa("sse41")
desc = dnn.Desc.tag((2, 3), "f32", "ab")
print(dnn.eltwise("relu", desc, desc).kernel)
"""
    assert python(code) == "jit:sse41"


def test_a_limit_after_first_use_is_an_error() -> None:
    code = """
before = dnn.isa()
dnn.limit_isa(before)  # as it is: no change
try:
    dnn.limit_isa("sse41" if before != "sse41" else "avx")
except RuntimeError as error:
    print(error)
"""
    assert "before its first use" in python(code)


def test_an_unknown_limit_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"avx1024.*one of sse41"):
        dnn.limit_isa("avx1024")


def test_another_build_by_environment(tmp_path: Path) -> None:
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "libdnnl.so.3").write_bytes(Path(dnn.library_path()).resolve().read_bytes())
    answer = python("print(dnn.library_path())", VTENSOR_ONEDNN_DIR=str(tmp_path))
    assert answer == str(tmp_path / "lib" / "libdnnl.so.3")


def test_an_environment_that_names_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VTENSOR_ONEDNN_DIR", str(tmp_path))
    native.load.cache_clear()
    with pytest.raises(LibraryError, match=r"has no lib/libdnnl\.so\.3"):
        native.load()
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "libdnnl.so.3").write_text("no library")
    with pytest.raises(LibraryError, match="does not load"):
        native.load()


def test_a_build_named_too_late(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """This process has loaded the usual one."""
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "libdnnl.so.3").symlink_to(Path(dnn.library_path()).resolve())
    monkeypatch.setenv("VTENSOR_ONEDNN_DIR", str(tmp_path))
    native.load.cache_clear()
    with pytest.raises(LibraryError, match="already loaded"):
        native.load()


def test_found_through_the_distribution() -> None:
    found = native.find_in_distribution()
    assert found.name.startswith("libdnnl.so")
    assert found.is_file()


def test_a_missing_distribution_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "_DISTRIBUTION", "vtensor-no-such-distribution")
    with pytest.raises(LibraryError, match="install vtensor-no-such-distribution"):
        native.find_in_distribution()


def test_loads_where_the_run_path_finds_nothing(tmp_path: Path) -> None:
    """A copy of the extension outside of the prefix needs the library loaded for it."""
    extension = Path(str(dnn.__file__))
    copy = tmp_path / extension.name
    copy.write_bytes(extension.read_bytes())
    code = f"""
import importlib.util, sys
def load_copy():
    spec = importlib.util.spec_from_file_location("_onednn", {str(copy)!r})
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
try:
    load_copy()
except ImportError as error:
    print("libdnnl.so.3" in str(error))
from libdesc.onednn import native
native.preload(native.find_in_distribution())
print(load_copy().version()[:2])
"""
    assert printed("-c", code).split() == ["True", "3."]
