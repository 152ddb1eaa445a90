"""Graphs whose sizes are open until a run decides them."""

from __future__ import annotations

import copy
import math
import operator
import pickle

import numpy as np
import pytest

from ops import AvgPool, BiasAdd, Concat, Conv2D, MatMul, Relu, Reshape
from tests.frontends.support import f32
from vtensor import Graph, Session
from vtensor.errors import DimError, InputError
from vtensor.language.symbolic.sizes import OpenSize


def network() -> Graph:
    """Return a convolution, pool, Reshape and MatMul of any number of images."""
    g = Graph("open")
    x = g.input("x", {"N": None, "C": 3, "H": 8, "W": 8})
    y = g.add(Conv2D(pads=(1, 1, 1, 1)), x, g.constant(f32(16, 3, 3, 3), "O I h w"))
    y = g.add(BiasAdd(), g.add(Relu(), y), g.constant(f32(16), "C"))
    y = g.add(AvgPool((4, 4), strides=(4, 4)), y)
    flat = g.add(Reshape((("N", x.size("N")), ("F", 64))), y)
    g.output(g.add(MatMul("F"), flat, g.constant(f32(64, 10), "F K")), "y")
    return g.seal()


def test_run_may_have_another_size_each_time() -> None:
    g = network()
    assert g.open_sizes == ("N",)
    assert "input x : f32 N=N C=3 H=8 W=8" in str(g)
    with Session(g) as session:
        assert session.inputs[0].shape == (None, 3, 8, 8)
        assert session.outputs[0].shape == (None, 10)
        whole = f32(5, 3, 8, 8)
        [wanted] = session.run(None, {"x": whole})
        for size in (1, 2, 5):
            [y] = session.run(None, {"x": whole[:size]})
            np.testing.assert_allclose(y, wanted[:size], rtol=1e-5, atol=1e-6)
    with Session(g.with_sizes({"N": 5})) as session:
        np.testing.assert_array_equal(session.run(None, {"x": whole})[0], wanted)


def test_name_is_one_size_in_all_inputs() -> None:
    g = Graph()
    left, right = (g.input(name, {"N": None, "C": 2}) for name in "ab")
    g.output(g.add(Concat("C"), left, right), "y")
    with Session(g) as session:
        assert session.run(None, {"a": f32(3, 2), "b": f32(3, 2)})[0].shape == (3, 4)
        with pytest.raises(InputError, match="N is 3 in input 'a' and 4 in 'b'"):
            session.run(None, {"a": f32(3, 2), "b": f32(4, 2)})


def test_operator_that_needs_the_size_is_refused_and_not_added() -> None:
    g = Graph()
    x = g.input("x", {"N": None, "C": 2})
    with pytest.raises(DimError, match="the size N is open until a run decides it"):
        g.add(Concat("N"), x, x)
    with pytest.raises(DimError, match="do not fill"):
        g.add(Reshape((("F", 6),)), x)
    assert not g.nodes
    with pytest.raises(DimError, match="no size is given for N"):
        g.with_sizes({})


def test_size_that_no_operator_takes_is_checked_by_the_run() -> None:
    g = Graph()
    y = g.add(Reshape((("F", 2 * OpenSize.of("N")),)), g.input("x", {"N": None, "C": 2}))
    g.output(y, "y")
    with Session(g) as session:
        assert session.run(None, {"x": f32(3, 2)})[0].shape == (6,)
        assert session.run(None, {"x": f32(0, 2)})[0].shape == (0,)
        with pytest.raises(InputError, match="input 'x'"):
            session.run(None, {"x": f32(3, 4)})


#: Uses of a size ``n`` that need its value.
USES = (
    *("n + 1", "1 + n", "n // 2", "divmod(7, n)", "2**n", "n < 3", "max(3, n)", "1 | n", "1 & n"),
    *("1 ^ n", "1 << n", "n >> 1", "1 >> n", "~n", "+n", "-n", "2.5 * n", "n * 2.5", "[0] * n"),
    *("bool(n)", "int(n)", "float(n)", "complex(n)", "abs(n)", "round(n)", "hex(n)", "chr(n)"),
    *("bytes(n)", "math.trunc(n)", "math.floor(n)", "math.ceil(n)", "math.gcd(n, 4)"),
    *("math.sqrt(n)", "operator.index(n)", "n.bit_length()", "n.real", "n.to_bytes(2, 'big')"),
    *(
        "f'{n:04d}'",
        "'%d' % n",
        "range(n)",
        "[0, 1, 2][n]",
        "[0, 1, 2][:n]",
        "[*enumerate('ab', n)]",
    ),
    *("np.zeros(n)", "np.array([n, 2])", "np.zeros(6).reshape(n)", "np.int64(2) + n"),
    "np.arange(3) * n",
)


@pytest.mark.parametrize("use", USES)
def test_open_size_has_no_value(use: str) -> None:
    names = {"n": OpenSize.of("N", factor=2), "math": math, "np": np, "operator": operator}
    with pytest.raises(DimError, match=r"the size 2\*N is open .* give the input a size, not None"):
        eval(use, names)


def test_open_size_has_products_and_a_text() -> None:
    n = OpenSize.of("N", factor=2)
    assert math.prod([3, n, 1]) == np.int64(3) * n == n * np.int64(3) == n * 3
    assert n * 0 == 0
    assert f"{n} {n:>4}" == "2*N  2*N"
    assert copy.deepcopy(n) == pickle.loads(pickle.dumps(n)) == n
    assert {n: 1}[OpenSize.of("N", factor=2)] == 1
    assert n != 2
    assert 2 != n  # noqa: SIM300  # the other way round
    assert not hasattr(n, "nothing")
