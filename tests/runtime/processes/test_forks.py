"""Forks while other threads hold locks or make plans: the child works."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.libraries.processes import ROOT, run_python
from tests.libraries.slow import ALL

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")

SETUP = """
import os, signal, sys, threading, time, warnings
warnings.filterwarnings("ignore", "This process .* is multi-threaded", DeprecationWarning)
import numpy as np

def child(check):
    "Fork; the child checks, and is ended where it hangs."
    pid = os.fork()
    if pid == 0:
        signal.alarm(20)
        check()
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0

def started(work, *given):
    thread = threading.Thread(target=work, args=given, daemon=True)
    thread.start()
    return thread

def uses():
    from ops import Relu
    from vtensor import call
    np.testing.assert_array_equal(call(Relu(), np.float32([-1, 2])), [0, 2])
"""

FORKS = {
    "a thread waits for a plan": """
from ptensor.background_work import checkpoint, stopping
from vtensor.runtime.planning.planning_lock import PlanningLock
turn, done, held = PlanningLock(), threading.Event(), threading.Event()
makes = started(turn.take, lambda: (held.set(), done.wait()))
held.wait()
waits = started(turn.take, lambda: None)
while not turn.waiting: time.sleep(0.01)
def ahead():
    made = []
    with stopping(lambda: False):
        turn.run_background(lambda: (checkpoint(), made.append(1)))
    assert made == [1]
child(ahead)
done.set()
makes.join()
waits.join()
""",
    "the first name of the package is imported": """
import vtensor
thread = threading.Thread(target=lambda: vtensor.Session)
thread.start()
time.sleep(0.005)
child(lambda: vtensor.Session)
thread.join()
""",
    "a thread reads plans from the cache": """
import tempfile
from tests.runtime.exact_net import answer, feeds, model
from vtensor import Session
from vtensor.storage.entries import Entries
folder, model, read = tempfile.mkdtemp(), model().SerializeToString(), Entries.read
with Session(model, cache_dir=folder) as session:
    session.run(None, feeds(2))
reading, go = threading.Event(), threading.Event()
plans = []
def slow(self, name):
    plans.extend([name] * name.startswith("plan-"))
    if len(plans) == 2:  # the first is for these sizes alone
        reading.set()
        go.wait()
    return read(self, name)
Entries.read = slow
session = Session(model, cache_dir=folder)
def runs(size):
    [y] = session.run(None, feeds(size))
    assert np.array_equal(y, answer(size))
thread = threading.Thread(target=runs, args=(3,))
thread.start()
reading.wait()
child(lambda: (go.set(), runs(2), runs(4)))
go.set()
thread.join()
runs(5)
""",
    "logging was imported before the package": """
import logging
import vtensor
child(lambda: logging.getLogger("in the child"))
thread = threading.Thread(target=lambda: logging.getLogger("in a thread"), daemon=True)
thread.start()
thread.join(10)
assert not thread.is_alive()
""",
    "logging is imported while the fork waits": """
import importlib
from vtensor.language.process import forks
assert "logging" not in sys.modules
class Slow:
    "A module that imports logging in the middle of a long import."
    def find_spec(self, name, path, target=None):
        return importlib.machinery.ModuleSpec(name, self) if name == "ops.slow" else None
    def create_module(self, spec): return None
    def exec_module(self, module):
        began.set()
        time.sleep(0.1)
        import logging
        time.sleep(0.1)
sys.meta_path.insert(0, Slow())
began = threading.Event()
thread = threading.Thread(target=lambda: importlib.import_module("ops.slow"))
thread.start()
began.wait()
def logs():
    import logging
    logging.getLogger("x").debug("in the child")
child(logs)
thread.join()
""",
    "an import needs the lock of logging": """
from optimizer.detached_import import import_on_thread
from vtensor.language.process import forks
from vtensor.language.index import importing
forks.PATIENCE_S = 3.0
held, done = threading.Event(), threading.Event()
def imports():
    with importing:
        import_on_thread("colorsys")
        held.set()
        time.sleep(0.3)  # the fork has begun
        import logging
        logging.getLogger("another")
        done.set()
thread = started(imports)
held.wait()
child(lambda: os._exit(not done.is_set()))
thread.join()
""",
    "the registry is filled": """
import libdesc.registry as registries
begun, fill = threading.Event(), registries.Registry._fill
def slow(self):
    begun.set()
    time.sleep(0.2)
    fill(self)
registries.Registry._fill = slow
filling = started(registries.registry)
begun.wait()
child(uses)
filling.join()
uses()
""",
    "modules are imported": """
from libdesc.registry import registry
filling = started(registry)
for _ in range(3):
    time.sleep(0.02)
    child(uses)
filling.join()
""",
    "the thread that forks fills the registry": """
import libdesc.registry as registries
fill = registries.Registry._fill
def forks(self):
    registries.Registry._fill = fill
    fill(self)
    child(lambda: registries.registry().candidates("Relu", "cpu"))
registries.Registry._fill = forks
uses()
child(uses)
""",
    "another thread imports a module slowly": """
import vtensor.language.process.forks
class Slow:
    "Finds modules no sooner than the fork has begun."
    def find_spec(self, name, path=None, target=None):
        if name == "colorsys":
            begun.set()
            time.sleep(0.3)
begun = threading.Event()
sys.meta_path.insert(0, Slow())
thread = started(__import__, "colorsys")
begun.wait()
child(lambda: __import__("colorsys"))
thread.join()
""",
    "the program is one long import": """
import importlib.util
from vtensor.language.process import forks
forks.PATIENCE_S = 60.0
spec = importlib.util.spec_from_loader("program", loader=None)
class Program:
    def find_spec(self, name, path=None, target=None):
        return importlib.util.spec_from_loader(name, self) if name == "program" else None
    def create_module(self, spec): return None
    def exec_module(self, module):
        begun.set()
        over.wait(30)
begun, over = threading.Event(), threading.Event()
sys.meta_path.insert(0, Program())
thread = started(__import__, "program")
begun.wait()
before = time.monotonic()
child(uses)
over.set()
thread.join()
assert time.monotonic() - before < 25
""",
    "a signal arrives as the process forks": """
from vtensor.language.process import forks
class Late(Exception): pass
def handle(number, frame): raise Late
signal.signal(signal.SIGUSR1, handle)
sys.unraisablehook = lambda about: None  # what is raised in the hooks of a fork

def raised(frame, event, about):
    global left
    if frame.f_code.co_filename == forks.__file__:
        left -= 1
        if not left: signal.raise_signal(signal.SIGUSR1)

def locks():
    "On another thread, since this one may hold a lock and have it again."
    thread = threading.Thread(target=uses, daemon=True)
    thread.start()
    thread.join(15)
    assert not thread.is_alive()

uses()
event, left = 0, 0
while left <= 0:
    event = left = event + 1
    sys.setprofile(raised)
    try:
        pid = os.fork()
    except Late:
        pid = -1
    sys.setprofile(None)
    if pid == 0:
        signal.alarm(20)
        locks()
        os._exit(0)
    assert pid == -1 or os.waitpid(pid, 0)[1] == 0, event
    locks()
assert event > 10
""",
    **{
        f"every lock is {how}": f"""
from vtensor.language.process import forks
from vtensor.runtime import call
from vtensor.runtime.execution import executor
{patience}
uses()
done, held = threading.Event(), threading.Barrier(len(forks._locks) + 1)
def hold(lock):
    with lock:
        held.wait()
        done.wait({seconds})
holders = [started(hold, lock) for _, lock in forks._locks]
held.wait()
child(uses)
done.set()
for thread in holders: thread.join()
uses()
"""
        for how, patience, seconds in (
            ("taken", "", 0.2),
            ("never free", "forks.PATIENCE_S = 0.1", None),
        )
    },
    "runs wait under a quota": """
from vtensor.runtime import _replay
from ops import Relu
from vtensor import Graph, Session
g = Graph("one")
g.output(g.add(Relu(), g.input("x", {"N": 4})), "y")
feeds, done = {"x": np.ones(4, np.float32)}, threading.Event()
session = Session(g, threads=1)
_replay.limit_processors(0.9, 10_000_000)
def runs():
    while not done.is_set():
        session.run(None, feeds)
def limited():
    _replay.limit_processors(0.5, 10_000_000)
    Session(g, threads=1).run(None, feeds)
thread = started(runs)
for _ in range(20):
    child(limited)
done.set()
thread.join()
""",
    "kernels are made and run": """
import itertools
from ops import Conv2D, Relu
from vtensor import Session
from vtensor.language.graph import Graph
from libdesc.onednn.native import dnnl

def network(channels):
    g = Graph("small")
    x = g.input("x", {"N": 1, "C": 3, "H": 9, "W": 9})
    w = g.constant(np.ones((channels, 3, 3, 3), np.float32), "O I h w")
    g.output(g.add(Relu(), g.add(Conv2D(), x, w)), "y")
    return Session(g.seal(), threads=1)

def runs(session):
    [y] = session.run(None, {"x": np.ones((1, 3, 9, 9), np.float32)})
    assert (y == 27).all()

def makes(depth):
    left, square = (dnnl.Desc.strided((16, size), "f32", (size, 1)) for size in (depth, 16))
    dnnl.matmul(left, dnnl.Desc.any((depth, 16), "f32"), None, square).__vtensor_step__()

def half_made():
    info = dnnl.cache_info()
    return info["misses"] - info["size"]

dnnl.set_cache_capacity(1 << 20)
ready, done, depths = network(4), threading.Event(), itertools.count(16)
runs(ready)
before = half_made()
def often(work):
    while not done.is_set(): work()

def works():
    assert half_made() == before
    runs(ready)
    makes(next(depths))
    if number % 10 == 0: runs(network(5 + number))

works_of = [lambda: makes(next(depths)), lambda: makes(next(depths)), lambda: runs(ready)]
threads = [started(often, work) for work in works_of]
for number in range(20):
    child(works)
done.set()
for thread in threads: thread.join()
runs(network(60))
""",
}


@pytest.mark.parametrize("code", FORKS.values(), ids=FORKS)
def test_a_child_works_whatever_other_threads_hold(code: str) -> None:
    done = run_python("-c", SETUP + code)
    assert (done.returncode, done.stderr) == (0, "")


def test_no_lock_is_made_but_those_that_forks_wait_for() -> None:
    folders = ("vtensor", "ptensor", "libdesc", "resolver", "optimizer", "ops")
    files = [file for folder in folders for file in (ROOT / folder).rglob("*.py")]
    made = {
        file.name
        for file in files
        if any(f"threading.{kind}(" in file.read_text("utf-8") for kind in ("Lock", "RLock"))
    }
    assert made == {"forks.py"}


#: Processes, each of which forks a few times from its very beginning on.
RANDOM_PROCESSES = 67 if ALL else 3

RANDOM = """
import faulthandler, random
import vtensor
from tests.runtime.exact_net import answer, feeds, model

seed, folder, FORKS = int(sys.argv[1]), sys.argv[2], 3
moments, over = random.Random(seed), threading.Event()
model = model().SerializeToString()
expected = {size: answer(size) for size in range(1, 8)}
shared = []

def check(session, size):
    [found] = session.run(None, feeds(size))
    assert np.array_equal(found, expected[size])

def opens():
    while not over.is_set():
        session = vtensor.Session(model, threads=2, cache_dir=folder if seed % 2 else None)
        shared.append(session)
        for size in random.sample(range(1, 8), 4):
            check(session, size)

def works(session):
    "What a child does: runs a session of its parent, in an old and a new size, and its own."
    faulthandler.dump_traceback_later(30, exit=True)
    if session is not None:
        check(session, 2)
        check(session, 5)
    with vtensor.Session(model, threads=1, cache_dir=None) as own:
        check(own, 3)
        check(own, 4)
    os._exit(0)

threads = [started(opens) for _ in range(2)]
failed = 0
for _ in range(FORKS):
    time.sleep(moments.uniform(0, 0.4))
    session = shared[-1] if shared else None
    child = os.fork()
    if child == 0:
        works(session)
    failed += os.waitpid(child, 0)[1] != 0
over.set()
for thread in threads: thread.join()
print("failed", failed)
"""


@pytest.mark.parametrize("seed", range(RANDOM_PROCESSES))
def test_children_of_random_moments_answer(seed: int, tmp_path: Path) -> None:
    done = run_python("-c", SETUP + RANDOM, seed, tmp_path)
    assert (done.returncode, done.stderr, done.stdout) == (0, "", "failed 0\n")
