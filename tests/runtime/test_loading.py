"""What is imported or loaded next to runs: nothing by the thread that runs, whole after a fork."""

from __future__ import annotations

import ast
import os
from pathlib import Path
from typing import Any

import pytest

from ops import Relu
from tests.libraries.processes import ROOT, printed, run_python
from vtensor import Graph, Session
from vtensor.runtime import session

proc = pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="the system has no /proc")

PRELOADS = """
import os, sys, time
from vtensor.runtime.execution.preload import load_ahead
"""
MAPPED = """
load_ahead()
def mapped():
    return "/_onednn." in open("/proc/self/maps").read()
end = time.monotonic() + {seconds}
while not mapped() and time.monotonic() < end:
    time.sleep(0.005)
print(mapped(), "libdesc.onednn._onednn" in sys.modules)
"""
VERSION = """
from libdesc.onednn.native import load
print(load().version()[:2])
"""


@proc
def test_a_library_is_loaded_before_it_is_imported() -> None:
    code = PRELOADS + MAPPED.format(seconds=30) + VERSION
    assert printed("-c", code).split() == ["True", "False", "3."]


@proc
def test_another_build_is_not_loaded_ahead() -> None:
    code = PRELOADS + "os.environ['VTENSOR_ONEDNN_DIR'] = '/nowhere'\n" + MAPPED.format(seconds=0.2)
    assert printed("-c", code).split() == ["False", "False"]


def test_a_file_that_is_no_library_is_ignored(tmp_path: Path) -> None:
    (tmp_path / "none.so").write_bytes(b"no library")
    paths = [str(tmp_path / name) for name in ("none.so", "absent.so")]
    code = f"""
import time
from vtensor.runtime import _replay
for path in {paths!r}:
    _replay.load_ahead(path)
time.sleep(0.05)
"""
    assert printed("-c", code + VERSION).split() == ["3."]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_fork_waits_for_a_library_that_is_loaded() -> None:
    """Otherwise the child would have a half of it."""
    code = """
load_ahead()
if (pid := os.fork()) == 0:
    from libdesc.onednn.native import load
    load().version()
    os._exit(0)
print(os.waitpid(pid, 0)[1])
"""
    for _ in range(5):
        assert printed("-c", PRELOADS + code).split() == ["0"]


@pytest.mark.parametrize(
    ("options", "count"),
    [({"threads": 2}, 1), ({"threads": 1}, 0), ({"threads": 2, "libraries": ["numpy"]}, 0)],
)
def test_a_session_loads_ahead_if_it_has_a_processor_for_it(
    options: dict[str, Any], count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = list[None]()
    monkeypatch.setattr(session, "load_ahead", lambda: calls.append(None))
    g = Graph("one")
    g.output(g.add(Relu(), g.input("x", {"N": 1, "C": 2})), "y")
    Session(g, **options).close()
    assert len(calls) == count


#: A program that runs a session until its background work is done, and prints which modules were
#: imported: by the thread that runs, after the first run, and by others, while no fork would have
#: waited for them.
RUNS = """
import sys, threading, time
import vtensor
from tests.runtime.exact_net import feeds, model
from vtensor.language.index import importing

by_runs, unguarded = [], []

class Finder:
    "Notes which modules are looked for; finds none."
    running = False

    @classmethod
    def find_spec(cls, name, path=None, target=None):
        if threading.current_thread() is threading.main_thread():
            if cls.running:
                by_runs.append(name)
        elif threading.current_thread().name == "vtensor-background" and not importing._is_owned():
            unguarded.append(name)

def settled():
    for thread in threading.enumerate():
        if thread.name == "vtensor-background":
            thread.join(60)

sys.meta_path.insert(0, Finder)
with vtensor.Session(model().SerializeToString(), cache_dir=sys.argv[1]) as session:
    session.run(None, feeds(2))
    Finder.running = True
    for _ in range(9):
        session.run(None, feeds(2))
        time.sleep(0.05)
    Finder.running = False
    settled()
    for _ in range(200):
        session.run(None, feeds(2))
    settled()
print("by runs:", *by_runs)
print("unguarded:", *unguarded)
"""


def test_runs_import_nothing(tmp_path: Path) -> None:
    """After the first run, with an empty cache and with one that knows the model."""
    for _ in range(3):
        done = run_python("-W", "error", "-c", RUNS, tmp_path)
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.splitlines() == ["by runs:", "unguarded:"]


#: What is called with the lock of imports held; a registry is filled by imports.
IMPORTS = {"import_module", "self._import", "defer", "thread.start", "thread.join", "self._fill"}


def test_nothing_but_imports_happens_under_their_lock() -> None:
    """Otherwise a fork, or another thread that imports, waits for what may take long."""
    called = set[str]()
    for folder in ("vtensor", "ptensor", "libdesc", "resolver", "optimizer", "ops"):
        for file in (ROOT / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
                if not isinstance(node, ast.With):
                    continue
                if "importing" in [ast.unparse(item.context_expr) for item in node.items]:
                    inner = [found for line in node.body for found in ast.walk(line)]
                    called |= {ast.unparse(c.func) for c in inner if isinstance(c, ast.Call)}
    assert called - {"threading.get_ident"} == IMPORTS
