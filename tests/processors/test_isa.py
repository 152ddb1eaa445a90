"""The cap on instruction sets, each in a process of its own: oneDNN fixes it at its first use."""

from __future__ import annotations

import pytest

from tests.libraries.processes import printed
from vtensor.errors import InputError
from vtensor.isa import CAPS, limit_isa

PROGRAM = """
import sys, numpy as np
import vtensor
from ops import Conv2D
if sys.argv[1]:
    vtensor.limit_isa(sys.argv[1])
g = vtensor.Graph("one")
x = g.input("x", {"N": 1, "C": 32, "H": 16, "W": 16})
w = g.constant(np.ones((32, 32, 3, 3), np.float32), "O I h w")
g.output(g.add(Conv2D(), x, w), "y")
session = vtensor.Session(g)
[y] = session.run(None, {"x": np.ones((1, 32, 16, 16), np.float32)})
assert (y == 32 * 9).all()
print([step.kernels[0] for step in session.plan.steps if step.op == "Conv2D"][0])
try:
    vtensor.limit_isa("avx2" if sys.argv[1] == "sse41" else "sse41")
except vtensor.errors.LibraryError as error:
    print("late:", error)
"""


def run(cap: str) -> str:
    """Run the program under a cap; "" is none."""
    return printed("-c", PROGRAM, cap)


@pytest.mark.parametrize(("cap", "kernel"), [("sse41", "sse41"), ("avx2", "avx2")])
def test_a_cap_decides_the_kernel_and_comes_too_late_afterwards(cap: str, kernel: str) -> None:
    first, late = run(cap).splitlines()
    assert kernel in first
    assert "call limit_isa before the first session" in late


def test_without_a_cap_another_kernel_runs() -> None:
    assert "sse41" not in run("").splitlines()[0]


def test_an_unknown_cap_is_refused() -> None:
    with pytest.raises(InputError, match=", ".join(CAPS)):
        limit_isa("mmx")
