"""Runs inside of runs: call-back steps and callbacks that run sessions."""

from __future__ import annotations

import pytest

from tests.libraries.processes import run_python

SETUP = """
import threading
import numpy as np
import pytest
from concurrent.futures import ThreadPoolExecutor
from ops import Conv2D, Relu
from ptensor import Layout, PTensor, lib_tagger
from tests.libraries.bench import Bench
from vtensor import Graph, Session
from vtensor.errors import NestedRunError
from vtensor.runtime.execution import executor
executor.available_threads = lambda: 1  # all sessions of a budget have one executor

bench, does, ran = Bench(), {}, []
x = np.arange(6, dtype=np.float32).reshape(2, 3)

@bench.invoker(python=True)
def toy(ctx, op, x, y):
    src, dst = PTensor(x).require(Layout.ANY), PTensor(y).require(Layout.ANY)
    if lib_tagger("toy", [src], [dst]):
        return
    does.get(ctx.node, int)()
    np.copyto(dst.data(), src.data())

def calling(name, threads, function=None):
    "A session of oneDNN's Relu and a node that calls a function."
    does[name] = function or int
    graph = Graph(name)
    value = graph.add(Relu(), graph.input("x", {"N": 2, "C": 3}))
    graph.output(graph.add(bench.op("Toy"), value, name=name), "y")
    return Session(graph, threads=threads)

def plain(rows, **options):
    "A session of a Relu alone."
    graph = Graph("plain")
    graph.output(graph.add(Relu(), graph.input("x", {"N": rows, "C": 3})), "y")
    return Session(graph, **options)

def right(session, sign=1):
    np.testing.assert_array_equal(session.run(None, {"x": sign * x})[0], np.maximum(sign * x, 0))

def runs(session):
    return lambda *_: ran.append(right(session, -1))

def chain(*budgets):
    "Sessions, each of which runs the next."
    sessions = [calling(f"s{place}", threads) for place, threads in enumerate(budgets)]
    for place, inner in enumerate(sessions[1:]):
        does[f"s{place}"] = runs(inner)
    return sessions

def joined(*works):
    "Run functions on threads of their own, and wait for them."
    started = [threading.Thread(target=work) for work in works]
    for thread in started: thread.start()
    for thread in started: thread.join()

hook = lambda name: None
def progress(name): hook(name)
"""

CASES = {
    "chains: budgets": """
for budgets in ((1, 2, 1), (2, 1, 2, 1, 2), (1, 2, 3, 1, 2, 3, 3, 1)):
    first, *_ = chain(*budgets)
    for _ in range(3):
        right(first)
    assert len(ran) == 3 * (len(budgets) - 1), len(ran)
    ran.clear()
""",
    "chains: each other": """
# Two threads, each of which has the thread of a budget, and runs a session of the other.
both = threading.Barrier(2)
def meet(inner):
    both.wait()
    right(inner, -1)
inner = {threads: calling(f"inner{threads}", threads) for threads in (1, 2)}
outer = [calling(f"outer{a}", a, lambda b=b: meet(inner[b])) for a, b in ((1, 2), (2, 1))]
with ThreadPoolExecutor(2) as pool:
    for _ in range(20):
        list(pool.map(right, outer))
""",
    "chains: its own session, further down": """
first, second = chain(1, 2)
does["s1"] = lambda: right(first)
for _ in range(2):
    with pytest.raises(NestedRunError, match="its own session"):
        right(first)
does["s1"] = int
right(first)
""",
    "chains: new sessions, further down": """
first, second = chain(1, 2)
def fresh():
    for session in (calling("fresh", 1), plain(2, threads=1)):
        with session:
            right(session)
does["s1"] = fresh
right(first)
""",
    "chains: others meanwhile": """
first, *others = chain(1, 2, 1, 2)
alone = [calling(f"alone{threads}", threads) for threads in (1, 2)]
with ThreadPoolExecutor(3) as pool:
    list(pool.map(right, [first, *alone] * 20))
""",
    "chains: what is raised": """
first, second, third = chain(1, 2, 1)
does["s2"] = lambda: 1 / 0
for _ in range(2):
    with pytest.raises(Exception, match="division by zero"):
        right(first)
does["s2"] = int
right(first)
""",
    # A call-back starts threads that run a session of the same budget, and waits for them.
    "threads: joined": """
inner = calling("inner", 1)
first = calling("first", 1, lambda: joined(*[runs(inner)] * 3))
for _ in range(2):
    right(first)
assert len(ran) == 6
""",
    "threads: a pool": """
inner = calling("inner", 1)
pool = ThreadPoolExecutor(2)
right(calling("first", 1, lambda: ran.extend(pool.map(right, [inner] * 3))))
assert len(ran) == 3
""",
    "threads: a session without call-backs": """
inner = plain(2, threads=1)
right(inner)
right(calling("first", 1, lambda: [joined(runs(inner)) for _ in range(2)]))
assert len(ran) == 2
""",
    "threads: its own session": """
def again():
    with pytest.raises(NestedRunError, match="its own session"):
        right(first)
    ran.append("refused")
first = calling("first", 1, lambda: joined(again))
right(first)
assert ran == ["refused"]
does["first"] = int
right(first)
""",
    "threads: by way of another budget": """
first, second, third = chain(1, 2, 1)
does["s0"] = lambda: joined(runs(second))
right(first)
assert len(ran) == 2
""",
    "threads: for a plan that such a thread makes": """
graph = Graph("open")
w = graph.constant(np.ones((16, 16, 3, 3), np.float32), "O I h w")
graph.output(graph.add(Conv2D(), graph.input("x", {"N": None, "C": 16, "H": 6, "W": 6}), w), "y")
begun = threading.Event()
# Nothing is measured before the first node is recorded.
session = Session(graph, threads=1, optimize="none", progress=lambda name: begun.set())
def batch(size):
    [y] = session.run(None, {"x": np.ones((size, 16, 6, 6), np.float32)})
    assert y.shape[0] == size and (y == 144).all()
    ran.append(size)
def meets():
    # What it waits for needs the thread that it is on.
    started.start()
    begun.wait()
    batch(3)
started = threading.Thread(target=batch, args=[2])
right(calling("first", 1, meets))
started.join()
assert sorted(ran) == [2, 3]
""",
    "threads: while others run": """
inner, other = calling("inner", 1), calling("other", 1)
first = calling("first", 1, lambda: joined(runs(inner)))
with ThreadPoolExecutor(3) as pool:
    list(pool.map(right, [first, inner, other] * 6))
assert len(ran) == 6
""",
    "threads: progress": """
inner = calling("inner", 1)
right(plain(2, threads=1, progress=lambda name: joined(runs(inner))))
assert len(ran) == 1
""",
    "progress: its own session": """
session, hook = plain(None, progress=progress), lambda name: right(session)
for _ in range(2):
    with pytest.raises(NestedRunError, match="progress"):
        right(session)
hook = lambda name: None
right(session)
""",
    **{
        f"progress: its own session, {how}": f"""
def again():
    session.run(None, {{"x": x[:1]}})
def refused():
    with pytest.raises(NestedRunError, match="progress"):
        again()
    ran.append("refused")
session = plain(None, threads={threads}, progress=progress)
inner = calling("inner", 1, refused)
hook = lambda name: {runs}
right(session)
assert ran == ["refused"]
hook = lambda name: None
again()
"""
        for how, threads, runs in (
            ("on a thread that it joins", None, "joined(refused)"),
            ("by way of a run", 1, "right(inner)"),
        )
    },
    "progress: a plan that is there": """
session = plain(None, deterministic=True, progress=progress)
right(session)
hook = runs(session)
np.testing.assert_array_equal(session.run(None, {"x": x[:1]})[0], x[:1])
assert len(ran) == 1
""",
    "progress: it raises": """
def fails(name):
    raise KeyError("of its own")
session, hook = plain(None, progress=progress), fails
for _ in range(2):
    with pytest.raises(KeyError):
        right(session)
hook = lambda name: None
right(session)
hook = fails
right(session, -1)
""",
}


#: Comes before each case: the last name that is printed is the one that failed.
BEFORE = """
print({name!r}, flush=True)
does.clear(), ran.clear()
hook = lambda name: None
"""


@pytest.mark.parametrize("kind", sorted({name.partition(":")[0] for name in CASES}))
def test_a_run_inside_of_a_run_ends(kind: str) -> None:
    """One process goes from case to case."""
    cases = {name: code for name, code in CASES.items() if name.startswith(kind)}
    codes = (BEFORE.format(name=name) + code for name, code in cases.items())
    done = run_python("-W", "error", "-c", "".join([SETUP, *codes]))
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    assert done.stdout.splitlines() == [*cases]
