"""Runs inside of runs: call-back steps and callbacks that run sessions."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.libraries.processes import run_python

ROOT = Path(__file__).parents[2]

SETUP = """
import threading
import numpy as np
from concurrent.futures import ThreadPoolExecutor
from ops import Conv2D, Relu
from ptensor import Layout, PTensor, lib_tagger
from tests.libraries.bench import Bench
from vtensor import Graph, Session
from vtensor.errors import NestedRunError
from vtensor.runtime.execution import executor
executor.available_threads = lambda: 1  # all sessions of a budget have one executor

bench, does = Bench(), {}
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

def right(session, sign=1):
    np.testing.assert_array_equal(session.run(None, {"x": sign * x})[0], np.maximum(sign * x, 0))

def chain(*budgets):
    "Sessions, each of which runs the next."
    sessions = [calling(f"s{place}", threads) for place, threads in enumerate(budgets)]
    for place, inner in enumerate(sessions[1:]):
        does[f"s{place}"] = lambda inner=inner: ran.append(right(inner, -1))
    return sessions

ran = []
"""

CHAINS = {
    "budgets": """
for budgets in ((1, 2, 1), (2, 1, 2, 1, 2), (1, 2, 3, 1, 2, 3, 3, 1)):
    first, *_ = chain(*budgets)
    for _ in range(3):
        right(first)
    assert len(ran) == 3 * (len(budgets) - 1), len(ran)
    ran.clear()
""",
    "each other": """
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
    "its own session, further down": """
first, second = chain(1, 2)
does["s1"] = lambda: first.run(None, {"x": x})
for _ in range(2):
    try:
        first.run(None, {"x": x})
    except NestedRunError as error:
        assert "its own session" in str(error)
    else:
        raise AssertionError
does["s1"] = int
right(first)
""",
    "a new session, further down": """
first, second = chain(1, 2)
def fresh():
    with calling("fresh", 1) as session:
        right(session)
does["s1"] = fresh
right(first)
""",
    "others meanwhile": """
first, *others = chain(1, 2, 1, 2)
alone = [calling(f"alone{threads}", threads) for threads in (1, 2)]
with ThreadPoolExecutor(3) as pool:
    list(pool.map(right, [first, *alone] * 20))
""",
    "what is raised": """
first, second, third = chain(1, 2, 1)
does["s2"] = lambda: 1 / 0
for _ in range(2):
    try:
        first.run(None, {"x": x})
    except Exception as error:
        assert "division by zero" in str(error), error
    else:
        raise AssertionError
does["s2"] = int
right(first)
""",
}

# A call-back starts a thread that runs a session of the same budget, and waits for it.
THREADS = {
    "joined": """
inner = calling("inner", 1)
def joins():
    started = [threading.Thread(target=lambda: ran.append(right(inner, -1))) for _ in range(3)]
    for one in started: one.start()
    for one in started: one.join()
first = calling("first", 1, joins)
for _ in range(2):
    right(first)
assert len(ran) == 6
""",
    "a pool": """
inner = calling("inner", 1)
pool = ThreadPoolExecutor(2)
first = calling("first", 1, lambda: ran.extend(pool.map(right, [inner] * 3)))
right(first)
assert len(ran) == 3
""",
    "a session without call-backs": """
graph = Graph("plain")
graph.output(graph.add(Relu(), graph.input("x", {"N": 2, "C": 3})), "y")
inner = Session(graph, threads=1)
def joins():
    for _ in range(2):
        started = threading.Thread(target=lambda: ran.append(right(inner, -1)))
        started.start()
        started.join()
right(inner)
right(calling("first", 1, joins))
assert len(ran) == 2
""",
    "its own session": """
def again():
    try:
        first.run(None, {"x": x})
    except NestedRunError as error:
        ran.append(error)
def joins():
    started = threading.Thread(target=again)
    started.start()
    started.join()
first = calling("first", 1, joins)
right(first)
assert "its own session" in str(ran[0])
does["first"] = int
right(first)
""",
    "by way of another budget": """
first, second, third = chain(1, 2, 1)
def joins():
    started = threading.Thread(target=lambda: ran.append(right(second, -1)))
    started.start()
    started.join()
does["s0"] = joins
right(first)
assert len(ran) == 2
""",
    "for a plan that such a thread makes": """
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
    "while others run": """
inner = calling("inner", 1)
def joins():
    started = threading.Thread(target=lambda: ran.append(right(inner, -1)))
    started.start()
    started.join()
first, other = calling("first", 1, joins), calling("other", 1)
with ThreadPoolExecutor(3) as pool:
    list(pool.map(right, [first, inner, other] * 6))
assert len(ran) == 6
""",
    "progress": """
inner = calling("inner", 1)
def joins(name):
    started = threading.Thread(target=lambda: ran.append(right(inner, -1)))
    started.start()
    started.join()
graph = Graph("told")
graph.output(graph.add(Relu(), graph.input("x", {"N": 2, "C": 3})), "y")
right(Session(graph, threads=1, progress=joins))
assert len(ran) == 1
""",
}

PROGRESS = {
    "its own session": """
def again(name):
    session.run(None, {"x": x})
graph = Graph("open")
graph.output(graph.add(Relu(), graph.input("x", {"N": None, "C": 3})), "y")
session = Session(graph, progress=lambda name: hook(name))
for hook in (again, again):
    try:
        session.run(None, {"x": x})
    except NestedRunError as error:
        assert "progress" in str(error)
    else:
        raise AssertionError
hook = lambda name: None
right(session)
""",
    "its own session, on a thread that it joins": """
def again():
    try:
        session.run(None, {"x": x[:1]})
    except NestedRunError as error:
        ran.append(error)
def joins(name):
    started = threading.Thread(target=again)
    started.start()
    started.join()
graph = Graph("open")
graph.output(graph.add(Relu(), graph.input("x", {"N": None, "C": 3})), "y")
hook = joins
session = Session(graph, progress=lambda name: hook(name))
right(session)
assert "progress" in str(ran[0])
hook = lambda name: None
again()
assert len(ran) == 1
""",
    "its own session, by way of a run": """
graph = Graph("open")
graph.output(graph.add(Relu(), graph.input("x", {"N": None, "C": 3})), "y")
session = Session(graph, threads=1, progress=lambda name: hook(name))
def again():
    try:
        session.run(None, {"x": x[:1]})
    except NestedRunError as error:
        ran.append(error)
hook = int
inner = calling("inner", 1, again)
hook = lambda name: right(inner)
right(session)
assert "progress" in str(ran[0])
""",
    "a plan that is there": """
def other(name):
    ran.append(right(session, -1))
graph = Graph("open")
graph.output(graph.add(Relu(), graph.input("x", {"N": None, "C": 3})), "y")
hook = lambda name: None
session = Session(graph, deterministic=True, progress=lambda name: hook(name))
right(session)
hook = other
np.testing.assert_array_equal(session.run(None, {"x": x[:1]})[0], x[:1])
assert len(ran) == 1
""",
    "it raises": """
def fails(name):
    raise KeyError("of its own")
graph = Graph("open")
graph.output(graph.add(Relu(), graph.input("x", {"N": None, "C": 3})), "y")
hook = fails
session = Session(graph, progress=lambda name: hook(name))
for _ in range(2):
    try:
        session.run(None, {"x": x})
    except KeyError:
        pass
    else:
        raise AssertionError
hook = lambda name: None
right(session)
hook = fails
right(session, -1)
""",
}


CASES = {
    f"{kind}: {name}": code
    for kind, codes in [("chains", CHAINS), ("threads", THREADS), ("progress", PROGRESS)]
    for name, code in codes.items()
}


@pytest.mark.parametrize("code", CASES.values(), ids=CASES)
def test_runs_inside_of_runs(code: str) -> None:
    done = run_python("-W", "error", "-c", SETUP + code)
    assert (done.returncode, done.stderr) == (0, "")
