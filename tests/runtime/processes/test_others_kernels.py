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

#: How many kernels a session describes for sizes that it had long ago, after another one's run and
#: after its end. ``sys.argv[1]`` says whether there is another.
AGAIN = """
first = session(8, 6, deterministic=True)
for size in range(4, 54):
    run(first, size)
if sys.argv[1] == "another":
    other = session(72, 1, deterministic=True)
    run(other, 8)
counts = [described(lambda: run(first, size)) for size in range(4, 16)]
if sys.argv[1] == "another":
    other.close()
print(json.dumps([*counts, *(described(lambda: run(first, size)) for size in range(16, 28))]))
"""

#: How many kernels a session describes for its first plan, while another makes its own.
MEANWHILE = """
others = []
def begins(_):
    if sys.argv[1] == "another" and not others:
        others.append(session(72, 1))
        others.append(described(lambda: run(others[0], 8)))
first = session(8, 40, deterministic=True, progress=begins)
print(json.dumps(described(lambda: run(first, 8)) - sum(others[1:])))
"""


@pytest.mark.parametrize("code", [AGAIN, MEANWHILE], ids=["again", "meanwhile"])
def test_a_session_leaves_the_kernels_of_others(code: str) -> None:
    with_another, alone = (
        json.loads(printed("-W", "error", "-c", SETUP + code, others))
        for others in ("another", "none")
    )
    assert with_another == alone
