"""What is imported beside runs: nothing by the thread that runs, and nothing that a fork meets."""

from __future__ import annotations

import ast
from pathlib import Path

from tests.libraries.processes import run_python

ROOT = Path(__file__).parents[2]

#: A program that runs a session ten times, until what is made beside runs is done, and says which
#: modules were imported: by the thread that runs, behind the first run, and by others, while no
#: fork would have waited for them.
PROGRAM = """
import sys, threading, time
import numpy as np
from onnx.parser import parse_model
import vtensor
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

sys.meta_path.insert(0, Finder)
text = '''<ir_version: 8, opset_import: ["" : 17]>
g (float[n, 4, m, 8] x) => (float[n, 4, m, 8] y)
<float[4, 4, 3, 3] w, float[8, 8] v> {
    a = Conv <pads = [1, 1, 1, 1]> (x, w)
    b = Relu (a)
    c = MatMul (b, v)
    y = Add (c, x)
}'''.replace("float[4, 4, 3, 3] w", "float[4, 4, 3, 3] w = {" + ", ".join(["1"] * 144) + "}")
text = text.replace("float[8, 8] v", "float[8, 8] v = {" + ", ".join(["0.5"] * 64) + "}")
feeds = {"x": np.ones((2, 4, 6, 8), np.float32)}
model = parse_model(text).SerializeToString()

def idle():
    "Wait until nothing is done beside runs any more."
    for thread in threading.enumerate():
        if thread.name == "vtensor-background":
            thread.join(60)

with vtensor.Session(model, cache_dir=sys.argv[1]) as session:
    session.run(None, feeds)
    Finder.running = True
    for _ in range(9):

        session.run(None, feeds)
        time.sleep(0.05)
    Finder.running = False
    idle()
    for _ in range(200):
        session.run(None, feeds)
    idle()
print("by runs:", *by_runs)
print("unguarded:", *unguarded)
"""


def test_runs_import_nothing(tmp_path: Path) -> None:
    """Behind the first run, with an empty cache and with one that knows the model."""
    for _ in range(3):
        done = run_python("-W", "error", "-c", PROGRAM, tmp_path)
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.splitlines() == ["by runs:", "unguarded:"]


#: What is called with the lock of imports held; a registry is filled by imports.
IMPORTS = {"import_module", "self._import", "defer", "thread.start", "thread.join", "self._fill"}


def test_nothing_but_imports_happens_under_their_lock() -> None:
    """Else a fork, or another thread that imports, waits for what may take long."""
    called = set[str]()
    for folder in ("vtensor", "ptensor", "libdesc", "resolver", "optimizer", "ops"):
        for file in (ROOT / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
                if isinstance(node, ast.With) and "importing" in map(_context, node.items):
                    inner = [one for line in node.body for one in ast.walk(line)]
                    called |= {ast.unparse(one.func) for one in inner if isinstance(one, ast.Call)}
    assert called - {"threading.get_ident"} == IMPORTS


def _context(item: ast.withitem) -> str:
    return ast.unparse(item.context_expr)
