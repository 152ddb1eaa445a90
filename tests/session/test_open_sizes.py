"""Graphs whose sizes are open until a run decides them."""

from __future__ import annotations

import copy
import math
import operator
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from ops import AvgPool, BiasAdd, Concat, Conv2D, MatMul, Relu, Reshape
from tests.frontends.support import f32
from vtensor import Graph, Session
from vtensor.errors import DimError, InputError
from vtensor.language.symbolic.sizes import OpenSize


def network() -> Graph:
    """Convolution, pool, Reshape and MatMul of any number of images."""
    g = Graph("open")
    x = g.input("x", {"N": None, "C": 3, "H": 8, "W": 8})
    y = g.add(Conv2D(pads=(1, 1, 1, 1)), x, g.constant(f32(16, 3, 3, 3), "O I h w"))
    y = g.add(BiasAdd(), g.add(Relu(), y), g.constant(f32(16), "C"))
    y = g.add(AvgPool((4, 4), strides=(4, 4)), y)
    flat = g.add(Reshape((("N", x.size("N")), ("F", 64))), y)
    g.output(g.add(MatMul("F"), flat, g.constant(f32(64, 10), "F K")), "y")
    return g.seal()


def test_every_run_may_bring_another_size() -> None:
    g = network()
    assert g.open_sizes == ("N",)
    assert "input x : f32 N=N C=3 H=8 W=8" in str(g)
    with Session(g) as session:
        assert session.inputs[0].shape == (None, 3, 8, 8)
        assert session.outputs[0].shape == (None, 10)
        whole = f32(5, 3, 8, 8)
        [wanted] = session.run(None, {"x": whole})
        for size in (1, 2, 5):
            [found] = session.run(None, {"x": whole[:size]})
            np.testing.assert_allclose(found, wanted[:size], rtol=1e-5, atol=1e-6)
    with Session(g.with_sizes({"N": 5})) as session:
        np.testing.assert_array_equal(session.run(None, {"x": whole})[0], wanted)


def test_one_name_is_one_size() -> None:
    g = Graph()
    left, right = (g.input(name, {"N": None, "C": 2}) for name in "ab")
    g.output(g.add(Concat("C"), left, right), "y")
    with Session(g) as session:
        assert session.run(None, {"a": f32(3, 2), "b": f32(3, 2)})[0].shape == (3, 4)
        with pytest.raises(InputError, match="N is 3 in input 'a' and 4 in 'b'"):
            session.run(None, {"a": f32(3, 2), "b": f32(4, 2)})


def test_what_needs_the_size_says_so_and_leaves_nothing() -> None:
    g = Graph()
    x = g.input("x", {"N": None, "C": 2})
    with pytest.raises(DimError, match="the size N is open until a run decides it"):
        g.add(Concat("N"), x, x)
    with pytest.raises(DimError, match="do not fill"):
        g.add(Reshape((("F", 6),)), x)
    assert not g.nodes
    with pytest.raises(DimError, match="no size is given for N"):
        g.with_sizes({})


def test_a_size_that_no_operator_takes_is_met_at_the_run() -> None:
    g = Graph()
    y = g.add(Reshape((("F", 2 * OpenSize.of("N")),)), g.input("x", {"N": None, "C": 2}))
    g.output(y, "y")
    with Session(g) as session:
        assert session.run(None, {"x": f32(3, 2)})[0].shape == (6,)
        assert session.run(None, {"x": f32(0, 2)})[0].shape == (0,)
        with pytest.raises(InputError, match="input 'x'"):
            session.run(None, {"x": f32(3, 4)})


USES: dict[str, Callable[[Any], object]] = {
    "n + 1": lambda n: n + 1,
    "1 + n": lambda n: 1 + n,
    "n // 2": lambda n: n // 2,
    "divmod(7, n)": lambda n: divmod(7, n),
    "2 ** n": lambda n: 2**n,
    "n < 3": lambda n: n < 3,
    "max(3, n)": lambda n: max(3, n),
    "1 | n": lambda n: 1 | n,
    "1 & n": lambda n: 1 & n,
    "1 ^ n": lambda n: 1 ^ n,
    "1 << n": lambda n: 1 << n,
    "n >> 1": lambda n: n >> 1,
    "1 >> n": lambda n: 1 >> n,
    "~n": lambda n: ~n,
    "+n": lambda n: +n,
    "-n": lambda n: -n,
    "2.5 * n": lambda n: 2.5 * n,
    "n * 2.5": lambda n: n * 2.5,
    "[0] * n": lambda n: [0] * n,
    "bool": bool,
    "int": int,
    "float": float,
    "complex": complex,
    "abs": abs,
    "round": round,
    "hex": hex,
    "chr": chr,
    "bytes": bytes,
    "math.trunc": math.trunc,
    "math.floor": math.floor,
    "math.ceil": math.ceil,
    "math.gcd": lambda n: math.gcd(n, 4),
    "math.sqrt": math.sqrt,
    "operator.index": operator.index,
    "n.bit_length()": lambda n: n.bit_length(),
    "n.real": lambda n: n.real,
    "n.to_bytes": lambda n: n.to_bytes(2, "big"),
    "format": lambda n: f"{n:04d}",
    "%d": lambda n: "%d" % n,  # noqa: UP031  # what is tested
    "range": range,
    "row[n]": lambda n: [0, 1, 2][n],
    "row[:n]": lambda n: [0, 1, 2][:n],
    "enumerate": lambda n: list(enumerate("ab", n)),
    "np.zeros": np.zeros,
    "np.array": lambda n: np.array([n, 2]),
    "reshape": lambda n: np.zeros(6).reshape(n),
    "np.int64 + n": lambda n: np.int64(2) + n,
    "array * n": lambda n: np.arange(3) * n,
}


@pytest.mark.parametrize("use", USES)
def test_an_open_size_has_no_value(use: str) -> None:
    with pytest.raises(DimError, match=r"the size 2\*N is open .* give the input a size, not None"):
        USES[use](OpenSize.of("N", factor=2))


def test_what_an_open_size_can_do() -> None:
    n = OpenSize.of("N", factor=2)
    assert math.prod([3, n, 1]) == np.int64(3) * n == n * np.int64(3) == n * 3
    assert n * 0 == 0
    assert f"{n} {n:>4}" == "2*N  2*N"
    assert copy.deepcopy(n) == pickle.loads(pickle.dumps(n)) == n
    assert {n: 1}[OpenSize.of("N", factor=2)] == 1
    assert n != 2
    assert n != 2
    assert not hasattr(n, "nothing")
