"""Kernels that a process keeps: a session changes nothing about those of the others."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

#: Sessions ``first`` and ``other`` of convolutions of different channels, one for each size of an
#: image, and how many kernels oneDNN describes while a function is called.
SETUP = """
import json, sys, threading
import numpy as np
from libdesc.onednn import _onednn as dnnl
from tests.frontends.support import f32, model
from vtensor import Session

def network(channels, layers):
    lines, weights, before = [], {}, 3
    for place in range(layers):
        given = f"r{place - 1}" if place else "x"
        weights[f"w{place}"] = f32(channels + 8 * place, before, 3, 3) / 50
        before = channels + 8 * place
        lines.append(f"c{place} = Conv<pads = [1, 1, 1, 1]>({given}, w{place})")
        lines.append(f"r{place} = Tanh(c{place})")
    ports = f"(float[1, 3, h, h] x) => (float[1, {before}, h, h] r{layers - 1})"
    return model(f"g {ports} {{ {' '.join(lines)} }}", 17, **weights)

def session(channels, layers, **options):
    return Session(network(channels, layers), threads=1, cache_dir=None, **options)

def run(session, size):
    session.run(None, {"x": np.ones((1, 3, size, size), np.float32)})

def described(work):
    before = dnnl.cache_info()["misses"]
    work()
    return dnnl.cache_info()["misses"] - before
"""

#: How many kernels a session describes for sizes that it had long ago. ``sys.argv[1]`` says what
#: another session does in between.
AGAIN = """
first = session(8, 6, deterministic=True)
for size in range(4, 54):
    run(first, size)
if sys.argv[1] != "nothing":
    other = session(72, 1, deterministic=True)
    run(other, 8)
    if sys.argv[1] == "closes":
        other.close()
print(json.dumps([described(lambda: run(first, size)) for size in range(4, 16)]))
"""

#: How many kernels a session describes for its first plan, while another makes its own.
MEANWHILE = """
started = []
def begins(_):
    if sys.argv[1] != "nothing" and not started:
        started.append(session(72, 1))
        before = dnnl.cache_info()["misses"]
        run(started[0], 8)
        started.append(dnnl.cache_info()["misses"] - before)
first = session(8, 40, deterministic=True, progress=begins)
print(json.dumps(described(lambda: run(first, 8)) - sum(started[1:])))
"""


def printed(code: str, *given: str) -> object:
    """Return what a fresh interpreter prints as JSON."""
    command = [sys.executable, "-W", "error", "-c", SETUP + code, *given]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("does", ["runs", "closes"])
def test_a_session_leaves_the_kernels_of_others(does: str) -> None:
    assert printed(AGAIN, does) == printed(AGAIN, "nothing")


def test_a_plan_leaves_the_kernels_that_another_plan_looks_at() -> None:
    assert printed(MEANWHILE, "runs") == printed(MEANWHILE, "nothing")
