"""One module an instruction set: which one is used, and that none holds another's code."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import sys

import pytest

from libdesc.eigen import native
from tests.libraries.processes import printed
from vtensor.errors import LibraryError
from vtensor.runtime.execution.processors import available_threads

MACHINE = native.load_baseline().machine_level()
#: Registers that a level's code must not name; its own are named.
REGISTERS = {"baseline": "xmm", "avx2": "ymm", "avx512": "zmm"}
BUILT = [
    level for level in native.LEVELS if importlib.util.find_spec(f"libdesc.eigen._eigen_{level}")
]

PROGRAM = """
import sys, numpy as np
import vtensor
from ops import Conv2D, Relu
from libdesc.registry import registry
vtensor.limit_isa(sys.argv[1])
g = vtensor.Graph("one")
x = g.input("x", {"N": 1, "C": 32, "H": 16, "W": 16})
w = g.constant(np.ones((32, 32, 3, 3), np.float32), "O I h w")
g.output(g.add(Relu(), g.add(Conv2D(), x, w)), "y")
session = vtensor.Session(g, libraries=["eigen"])
[y] = session.run(None, {"x": np.ones((1, 32, 16, 16), np.float32)})
assert (y == 32 * 9).all()
levels = {kernel.split(":")[1] for step in session.plan.steps for kernel in step.kernels}
print(*levels, registry().libraries["eigen"].version())
assert registry().libraries["winograd"].version().split()[-1] in levels
try:
    vtensor.limit_isa("avx2" if sys.argv[1] == "sse41" else "sse41")
except vtensor.errors.LibraryError as error:
    print(error)
"""


def python(program: str, *arguments: str) -> list[str]:
    """The lines that a fresh process prints.

    Threads spin for as long as is said, so that none come since others use the processors.
    """
    return printed("-c", program, *arguments, environment={"GOMP_SPINCOUNT": "1000"}).splitlines()


@pytest.mark.skipif(MACHINE == "baseline", reason="this machine has one level only")
@pytest.mark.parametrize("cap", native.CAPS)
def test_a_cap_decides_the_module_and_comes_too_late_afterwards(cap: str) -> None:
    level = min(native.CAPS[cap], MACHINE, key=native.LEVELS.index)
    first, late = python(PROGRAM, cap)
    used, version = first.split(maxsplit=1)
    assert used == level
    assert re.fullmatch(rf"3\.4\.\d+ on {level}", version)
    assert "too late" in late
    assert "call limit_isa before the first session" in late


def test_an_unknown_cap_is_an_error() -> None:
    with pytest.raises(LibraryError, match="no cap 'mmx'; one of sse41"):
        native.limit("mmx")


def test_a_cap_that_changes_nothing_is_never_too_late() -> None:
    used = native.load().level
    native.limit(next(cap for cap, level in native.CAPS.items() if level == used))
    assert native.load().level == used


def test_a_module_that_does_not_load_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "libdesc.eigen._eigen_baseline", None)
    with pytest.raises(LibraryError, match="does not load"):
        native.load_baseline()


def binary(level: str, library: str) -> str:
    """The module's file; it is not loaded."""
    spec = importlib.util.find_spec(f"libdesc.{library}._{library}_{level}")
    assert spec is not None
    assert spec.origin is not None
    return spec.origin


def output(*command: str) -> str:
    """What a program of binutils prints; skips where it is not there."""
    if shutil.which(command[0]) is None:
        pytest.skip(f"{command[0]} is not there: it comes with g++")
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=120).stdout


@pytest.mark.parametrize("library", ["eigen", "winograd"])
@pytest.mark.parametrize("level", BUILT)
def test_a_module_shows_its_init_function_alone(level: str, library: str) -> None:
    """What another module could take for its own would be code of another instruction set."""
    lines = output("nm", "-D", "--defined-only", binary(level, library)).splitlines()
    assert [line.split()[-1] for line in lines] == [f"PyInit__{library}_{level}"]


@pytest.mark.skipif(BUILT == ["baseline"], reason="the levels are those of x86-64")
@pytest.mark.parametrize("library", ["eigen", "winograd"])
@pytest.mark.parametrize("level", BUILT)
def test_no_instruction_of_a_higher_level(level: str, library: str) -> None:
    """Its own registers are there, as a twin: the text is searched as it is printed."""
    text = output("objdump", "-d", "--no-show-raw-insn", binary(level, library))
    named = {name for name, register in REGISTERS.items() if f"%{register}" in text}
    assert named == set(BUILT[: BUILT.index(level) + 1])
    assert ("vfmadd" in text) == (level != "baseline")


TEAM = """
import os, sys, time, numpy as np
import vtensor
from ops import Conv2D, Relu
from libdesc.onednn import native
native.load()
def tasks():  # one that has ended is listed for a moment more
    found = []
    for _ in range(10):
        found.append(len(os.listdir("/proc/self/task")))
        time.sleep(0.01)
    return min(found)
vtensor.Graph  # with a first name NumPy's threads end
before = tasks()
for libraries in sys.argv[2:]:
    g = vtensor.Graph("one")
    x = g.input("x", {"N": 1, "C": 64, "H": 32, "W": 32})
    w = g.constant(np.ones((64, 64, 3, 3), np.float32), "O I h w")
    g.output(g.add(Relu(), g.add(Conv2D(), x, w)), "y")
    with vtensor.Session(g, libraries=[libraries], threads=int(sys.argv[1])) as session:
        session.run(None, {"x": np.ones((1, 64, 32, 32), np.float32)})
    print(tasks() - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="threads are counted in /proc")
@pytest.mark.parametrize("threads", [1, 2, 3])
def test_teams_are_as_many_as_processors_allow_whatever_the_library(threads: int) -> None:
    """An executor's thread and its team; sessions have executors in turn, whose they are."""
    most = max(1, available_threads() // threads)
    expected = [str(threads * min(session, most)) for session in (1, 2, 3)]
    assert python(TEAM, str(threads), "eigen", "onednn", "eigen") == expected
