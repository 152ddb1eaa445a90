"""f32 stays f32: oneDNN's own default, which a variable sets, reaches no primitive of ours."""

from __future__ import annotations

import os
import subprocess
import sys

PROGRAM = """
import sys
import numpy as np
from ops import Conv2D, Relu
from vtensor import Session
from vtensor.language.graph import Graph

random = np.random.default_rng(0)
g = Graph("net")
x = g.input("x", {"N": 1, "C": 64, "H": 14, "W": 14})
w = g.constant(random.normal(size=(64, 64, 3, 3)).astype(np.float32), "O I h w")
g.output(g.add(Relu(), g.add(Conv2D(pads=(1,) * 4), x, w)), "y")
feed = {"x": random.normal(size=(1, 64, 14, 14)).astype(np.float32)}
for level in ("none", "all"):
    with Session(g, threads=1, optimize=level, libraries=["onednn"]) as session:
        print([step.kernels for step in session.plan.steps])
        sys.stdout.flush()
        sys.stdout.buffer.write(session.run(None, feed)[0].tobytes())
"""


def said(mode: str) -> bytes:
    """Kernels and outputs of a process whose oneDNN may compute f32 like that."""
    environment = os.environ | {"ONEDNN_DEFAULT_FPMATH_MODE": mode}
    return subprocess.check_output([sys.executable, "-c", PROGRAM], env=environment, timeout=120)


def test_the_variable_changes_no_kernel_and_no_bit() -> None:
    assert said("ANY") == said("STRICT")
