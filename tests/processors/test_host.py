"""Sessions do not change the state of the process that all of its code shares."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import onnx

from tests.frontends.support import f32, model
from tests.libraries.processes import printed

#: A convolution, a function and a product, of images of any size.
TEXT = """g (float[n, 3, h, h] x) => (float[n, 4] y) {
    c = Conv<pads = [1, 1, 1, 1]>(x, k) r = Relu(c) p = GlobalAveragePool(r) f = Flatten(p)
    y = Gemm(f, w, b) }
"""

#: Use sessions of the model in ``sys.argv[1]`` in two threads: each reads the model, makes plans
#: for three shapes, and runs until the background work has replaced the plan.
USE = """
import sys, threading, time
import numpy as np
from vtensor import Session

def images(n, size):
    return {"x": np.ones((n, 3, size, size), np.float32)}

def use(cache):
    until = time.monotonic() + 60
    with Session(sys.argv[1], threads=2, cache_dir=cache, progress=looks) as session:
        for n, size in ((1, 8), (1, 8), (1, 8), (2, 8), (1, 9), (1, 9)):
            session.run(None, images(n, size))
            looks()
        while session.plan.provisional and time.monotonic() < until:
            session.run(None, images(1, 9))
        looks()
        assert not session.plan.provisional
    looks()

def use_all():
    threads = [threading.Thread(target=use, args=[cache]) for cache in (sys.argv[2], None)]
    for thread in threads: thread.start()
    use(None)
    for thread in threads: thread.join()
    use(sys.argv[2])  # once more, from the cache
"""


def ended(before: str, after: str, tmp_path: Path) -> Any:
    """Return the JSON that a fresh interpreter prints after ``before``, ``USE`` and ``after``."""
    weights = {"k": f32(8, 3, 3, 3), "w": f32(8, 4), "b": f32(4)}
    onnx.save(model(TEXT, 17, **weights), tmp_path / "model.onnx")
    environment = {
        "VTENSOR_COSTS": "calibrated",
        "VTENSOR_CACHE": "on",
        "VTENSOR_CACHE_DIR": str(tmp_path / "times"),
    }
    code = before + USE + after
    given = (tmp_path / "model.onnx", tmp_path / "cache")
    return json.loads(printed("-W", "error", "-c", code, *given, environment=environment))


def test_no_session_changes_the_garbage_collector(tmp_path: Path) -> None:
    """Neither while it is made, nor while it plans, nor in its background thread."""
    before = """
import gc, json, sys, threading
from vtensor.errors import InputError  # what this imports is no session's
called, states = set(), set()
def note(frame, event, function):
    if event == "c_call" and getattr(function, "__module__", "") == "gc":
        called.add(function.__name__)
def looks(*_):
    states.add((gc.isenabled(), gc.get_freeze_count(), gc.get_threshold()))
threading.setprofile(note)
sys.setprofile(note)
looks()
"""
    after = """
use_all()
sys.setprofile(None)
changing = {"collect", "disable", "enable", "freeze", "unfreeze", "set_threshold", "set_debug"}
print(json.dumps([sorted(called & changing), len(states)]))
"""
    assert ended(before, after, tmp_path) == [[], 1]


def test_no_session_changes_what_the_process_is_set_to(tmp_path: Path) -> None:
    """NumPy and ONNX are imported before: what their imports change is theirs."""
    before = """
import faulthandler, json, locale, logging, os, random, signal, sys, threading, warnings
import numpy as np, onnx, vtensor
looks = lambda *_: None
def state():
    loggers = [logging.root, *map(logging.getLogger, ("vtensor", "onnx", "numpy"))]
    mask = os.umask(0o22)
    os.umask(mask)
    tiny = np.full(64, 1e-40, np.float32)
    return {
        "signals": [str(signal.getsignal(one)) for one in sorted(signal.valid_signals())],
        "masked": sorted(map(int, signal.pthread_sigmask(signal.SIG_BLOCK, ()))),
        "wakeup": [signal.set_wakeup_fd(-1), signal.getitimer(signal.ITIMER_REAL)],
        "locale": [locale.setlocale(locale.LC_ALL), locale.localeconv()],
        "warnings": [str(warnings.filters), str(warnings.showwarning)],
        "environment": dict(os.environ),
        "switching": sys.getswitchinterval(),
        "processors": sorted(os.sched_getaffinity(0)),
        "scheduling": [os.sched_getscheduler(0), os.getpriority(os.PRIO_PROCESS, 0)],
        "files": [mask, os.getcwd()],
        "faults": faulthandler.is_enabled(),
        "logging": [(str(one.handlers), one.level, one.propagate) for one in loggers],
        "logging of all": [logging.lastResort.level, str(logging.getLoggerClass())],
        "NumPy": [np.geterr(), np.get_printoptions()],
        "denormals": bool((tiny * np.float32(1)).all()),
        "hooks": [str(h) for h in (sys.excepthook, sys.displayhook, sys.unraisablehook,
                                   threading.excepthook, sys.getprofile(), sys.gettrace())],
        "stack": [sys.getrecursionlimit(), threading.stack_size(), sys.get_int_max_str_digits()],
        "imports": [sys.path, str(sys.meta_path), str(sys.path_hooks), sys.dont_write_bytecode],
        "random": [hash(random.getstate()), str(np.random.get_state())],
        "errors": [getattr(sys, "last_value", None)],
    }
first = json.dumps(state(), default=str)
"""
    after = """
use_all()
first, last = json.loads(first), json.loads(json.dumps(state(), default=str))
print(json.dumps({name: [first[name], last[name]] for name in first if first[name] != last[name]}))
"""
    assert ended(before, after, tmp_path) == {}
