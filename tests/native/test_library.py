"""The libraries themselves: which build is loaded, from where, and for which instruction sets."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from libdesc.eigen import native as eigen
from libdesc.onednn import _onednn as dnn
from libdesc.onednn import native
from tests.libraries.processes import printed
from tests.libraries.slow import slow_but
from vtensor.errors import LibraryError

MACHINE = eigen.load_baseline().machine_level()
#: Registers that a level's code must not name; its own are named.
REGISTERS = {"baseline": "xmm", "avx2": "ymm", "avx512": "zmm"}
BUILT = [
    level for level in eigen.LEVELS if importlib.util.find_spec(f"libdesc.eigen._eigen_{level}")
]


def onednn(code: str, **environment: str) -> str:
    """Return what a fresh process prints."""
    preamble = "from libdesc.onednn import native; dnn = native.load()\n"
    return printed("-c", preamble + code, environment=environment).strip()


def test_onednn_says_its_version_and_path() -> None:
    assert dnn.version().startswith("3.")
    for path in (Path(dnn.library_path()), native.find_in_distribution()):
        assert path.is_file()
        assert path.name.startswith("libdnnl.so")
    assert native.load() is dnn


@pytest.mark.parametrize("name", ["sse41", "avx2", "max"])
def test_a_limit_holds(name: str) -> None:
    isa = onednn(f"dnn.limit_isa({name!r}); dnn.limit_isa({name!r}); print(dnn.isa())")
    assert isa == (name if name != "max" else onednn("print(dnn.isa())"))


def test_a_limit_reaches_the_kernels_and_comes_too_late_after_the_first_use() -> None:
    code = """
dnn.limit_isa("sse41")
desc = dnn.Desc.tag((2, 3), "f32", "ab")
print(dnn.eltwise("relu", desc, desc).kernel)
dnn.limit_isa("sse41")  # as it is: no change
try:
    dnn.limit_isa("avx")
except RuntimeError as error:
    print(error)
"""
    kernel, late = onednn(code).splitlines()
    assert kernel == "jit:sse41"
    assert "before its first use" in late


def test_an_unknown_limit_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"avx1024.*one of sse41"):
        dnn.limit_isa("avx1024")
    with pytest.raises(LibraryError, match="no cap 'mmx'; one of sse41"):
        eigen.limit("mmx")


@pytest.fixture
def other_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Name a build of oneDNN in the environment; return the path at which it would be."""
    (tmp_path / "lib").mkdir()
    monkeypatch.setenv("VTENSOR_ONEDNN_DIR", str(tmp_path))
    native.load.cache_clear()
    return tmp_path / "lib" / "libdnnl.so.3"


def test_the_environment_names_another_build(other_build: Path) -> None:
    other_build.write_bytes(Path(dnn.library_path()).resolve().read_bytes())
    assert onednn("print(dnn.library_path())") == str(other_build)


def test_a_build_that_is_not_there_or_comes_too_late_is_an_error(other_build: Path) -> None:
    with pytest.raises(LibraryError, match=r"has no lib/libdnnl\.so\.3"):
        native.load()
    other_build.write_text("no library")
    with pytest.raises(LibraryError, match="does not load"):
        native.load()
    other_build.unlink()
    other_build.symlink_to(Path(dnn.library_path()).resolve())  # this process has the usual one
    with pytest.raises(LibraryError, match="already loaded"):
        native.load()


def test_a_missing_distribution_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "_DISTRIBUTION", "vtensor-no-such-distribution")
    with pytest.raises(LibraryError, match="install vtensor-no-such-distribution"):
        native.find_in_distribution()


def test_onednn_loads_where_the_run_path_finds_nothing(tmp_path: Path) -> None:
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


#: A convolution of 64 channels, as a graph.
NETWORK = """
import sys, numpy as np
import vtensor
from ops import Conv2D, Relu
from libdesc.registry import registry
random = np.random.default_rng(0)
weights = WEIGHTS
g = vtensor.Graph("one")
x = g.input("x", {"N": 1, "C": 64, "H": 16, "W": 16})
w = g.constant(weights.astype(np.float32), "O I h w")
g.output(g.add(Relu(), g.add(Conv2D(), x, w)), "y")
"""

CAPPED = """
vtensor.limit_isa(sys.argv[1])
session = vtensor.Session(g, libraries=["eigen"])
[y] = session.run(None, {"x": np.ones((1, 64, 16, 16), np.float32)})
assert (y == 64 * 9).all()
levels = {kernel.split(":")[1] for step in session.plan.steps for kernel in step.kernels}
print(*levels, registry().libraries["eigen"].version().partition(",")[0])
level = registry().libraries["winograd"].version().partition(", built ")[0].split()[-1]
assert level in levels
try:
    vtensor.limit_isa("avx2" if sys.argv[1] == "sse41" else "sse41")
except vtensor.errors.LibraryError as error:
    print(error)
"""

STRICT = """
feed = {"x": random.normal(size=(1, 64, 16, 16)).astype(np.float32)}
for level in ("none", "all"):
    with vtensor.Session(g, threads=1, optimize=level, libraries=["onednn"]) as session:
        print([step.kernels for step in session.plan.steps])
        print(session.run(None, feed)[0].tobytes().hex())
"""


@pytest.mark.skipif(MACHINE == "baseline", reason="this machine has one level only")
@pytest.mark.parametrize("cap", slow_but(["sse41", "avx2", "max"], eigen.CAPS))
def test_a_cap_decides_the_module_and_comes_too_late_afterwards(cap: str) -> None:
    level = min(eigen.CAPS[cap], MACHINE, key=eigen.LEVELS.index)
    code = NETWORK.replace("WEIGHTS", "np.ones((64, 64, 3, 3))") + CAPPED
    first, late = printed("-c", code, cap).splitlines()
    used, version = first.split(maxsplit=1)
    assert used == level
    assert re.fullmatch(rf"3\.4\.\d+ on {level}", version)
    assert "too late" in late
    assert "call limit_isa before the first session" in late


def test_onednns_default_arithmetic_reaches_no_kernel_and_no_bit() -> None:
    """f32 stays f32, whatever oneDNN's own variable says."""
    code = NETWORK.replace("WEIGHTS", "random.normal(size=(64, 64, 3, 3))") + STRICT
    loose, strict = (
        printed("-c", code, environment={"ONEDNN_DEFAULT_FPMATH_MODE": mode})
        for mode in ("ANY", "STRICT")
    )
    assert loose == strict


def test_a_cap_that_changes_nothing_is_never_too_late() -> None:
    used = eigen.load().level
    eigen.limit(next(cap for cap, level in eigen.CAPS.items() if level == used))
    assert eigen.load().level == used


def test_a_module_that_does_not_load_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "libdesc.eigen._eigen_baseline", None)
    with pytest.raises(LibraryError, match="does not load"):
        eigen.load_baseline()


def read(level: str, library: str, *command: str) -> str:
    """Return what a program of binutils prints of a module, which is not loaded."""
    spec = importlib.util.find_spec(f"libdesc.{library}._{library}_{level}")
    assert spec is not None
    assert spec.origin is not None
    if shutil.which(command[0]) is None:
        pytest.skip(f"{command[0]} is not there: it comes with g++")
    done = subprocess.run([*command, spec.origin], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("library", ["eigen", "winograd", "narrow"])
@pytest.mark.parametrize("level", BUILT)
def test_a_module_shows_its_init_function_alone(level: str, library: str) -> None:
    """What another module could take for its own would be code of another instruction set."""
    lines = read(level, library, "nm", "-D", "--defined-only").splitlines()
    assert [line.split()[-1] for line in lines] == [f"PyInit__{library}_{level}"]


@pytest.mark.skipif(BUILT == ["baseline"], reason="the levels are those of x86-64")
@pytest.mark.parametrize("library", ["eigen", "winograd", "narrow"])
@pytest.mark.parametrize("level", BUILT)
def test_a_module_has_no_instruction_of_a_higher_level(level: str, library: str) -> None:
    """Its own registers are there, as a twin: the text is searched as it is printed."""
    text = read(level, library, "objdump", "-d", "--no-show-raw-insn")
    named = {name for name, register in REGISTERS.items() if f"%{register}" in text}
    assert named == set(BUILT[: BUILT.index(level) + 1])
    assert ("vfmadd" in text) == (level != "baseline")
