"""Kernels that a process keeps: a session changes nothing about those of the others."""

from __future__ import annotations

import json

import pytest

from tests.libraries.processes import printed

#: Sessions of convolutions of different channels, one for each size of an image, and how many
#: kernels oneDNN describes while a function is called.
SETUP = """
import json, sys
import numpy as np
from libdesc.onednn import _onednn as dnnl
from tests.frontends.support import f32, model
from vtensor import Session

def session(channels, layers, **options):
    lines, weights, before = [], {}, 3
    for place in range(layers):
        x = f"r{place - 1}" if place else "x"
        weights[f"w{place}"] = f32(channels + 8 * place, before, 3, 3) / 50
        before = channels + 8 * place
        lines.append(f"c{place} = Conv<pads = [1, 1, 1, 1]>({x}, w{place})")
        lines.append(f"r{place} = Tanh(c{place})")
    ports = f"(float[1, 3, h, h] x) => (float[1, {before}, h, h] r{layers - 1})"
    net = model(f"g {ports} {{ {' '.join(lines)} }}", 17, **weights)
    return Session(net, threads=1, cache_dir=None, **options)

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
others = []
def begins(_):
    if sys.argv[1] != "nothing" and not others:
        others.append(session(72, 1))
        others.append(described(lambda: run(others[0], 8)))
first = session(8, 40, deterministic=True, progress=begins)
print(json.dumps(described(lambda: run(first, 8)) - sum(others[1:])))
"""


@pytest.mark.parametrize(
    ("code", "other"), [(AGAIN, "runs"), (AGAIN, "closes"), (MEANWHILE, "runs")]
)
def test_a_session_leaves_the_kernels_of_others(code: str, other: str) -> None:
    counts = [
        json.loads(printed("-W", "error", "-c", SETUP + code, does)) for does in (other, "nothing")
    ]
    assert counts[0] == counts[1]
