"""Each operator that a framework has words for, on the cases of the table, against NumPy."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from eval.peers import CannotBuild
from eval.peers.walk import Call, Placed
from eval.tests.peers.conftest import Emitting
from ops import AvgPool, Conv2D, DepthwiseConv2D, MaxPool, Pad, Relu
from tests.operators.harness import check_close, definition
from tests.operators.tables.cases import CASES, Case, bound
from vtensor import Graph
from vtensor.errors import PeerError
from vtensor.language.operators import info_of

#: How many cases there are no words for: windows over other dims than H and W, dilations of pools,
#: an even number of channels, pads that are no constant, several dims at once, strides that differ.
PYTORCH = {"AvgPool": 4, "LRN": 1, "MaxPool": 3, "Pad": 3, "Softmax": 1}
TENSORFLOW = PYTORCH | {"DepthwiseConv2D": 1, "LRN": 4, "MaxPool": 4}
REFUSED = {"pytorch": PYTORCH, "tensorflow": TENSORFLOW}
#: Pads that differ before and behind, with which TensorFlow's SAME is of no use.
LOPSIDED = [
    Case(Conv2D((2, 2), (0, 2, 1, 0)), ("N=2 C=5 H=9 W=8", "!O=4 I=5 h=3 w=3")),
    Case(DepthwiseConv2D(pads=(2, 0, 0, 1)), ("N=2 C=5 H=9 W=8", "!G=5 O=1 I=1 h=3 w=3")),
    Case(MaxPool((3, 3), (2, 2), (0, 2, 1, 0)), ("N=2 C=5 H=9 W=8",)),
    Case(AvgPool((3, 3), (2, 2), (0, 2, 1, 0)), ("N=2 C=5 H=9 W=8",)),
    Case(AvgPool((3, 3), (2, 2), (0, 2, 1, 0), count_include_pad=True), ("N=2 C=5 H=9 W=8",)),
    Case(Pad(("H", "C"), (1, 0, -2, 3)), ("N=2 C=5 H=9 W=8",)),
]


def check(emitting: Emitting, case: Case) -> None:
    """Check that a framework computes what NumPy does."""
    given, graph = case.given(), Graph("case")
    values = [
        graph.constant(x.array, x.dims) if x.constant else graph.input(f"x{index}", x.extents)
        for index, x in enumerate(given)
    ]
    graph.output(graph.add(case.op, *values))
    feeds = {f"x{index}": x.array for index, x in enumerate(given)}
    [theirs] = emitting.run(graph.seal(), feeds)
    [ours] = definition(case.op, given)
    check_close(theirs, ours, bound(info_of(case.op).name, "f32"))


def cases(emitting: Emitting) -> Iterator[tuple[str, Case]]:
    """Yield the cases of a framework's operators, without images of no elements."""
    for name in emitting.framework.emitters:
        for case in CASES[name]:
            if all(given.array.size for given in case.given()):
                yield name, case


def test_every_operator_says_what_numpy_does(emitting: Emitting) -> None:
    refused: Counter[str] = Counter()
    wrong = {}
    for name, case in cases(emitting):
        try:
            check(emitting, case)
        except CannotBuild:
            refused[name] += 1
        except AssertionError as error:
            wrong[str(case)] = str(error)
    assert wrong == {}
    assert refused == REFUSED[emitting.name]


@pytest.mark.parametrize("case", LOPSIDED, ids=str)
def test_lopsided_pads(emitting: Emitting, case: Case) -> None:
    check(emitting, case)


@pytest.mark.parametrize("case", LOPSIDED, ids=str)
def test_swapped_pads_are_found(
    emitting: Emitting, case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = info_of(case.op).name
    right = emitting.framework.emitters[name]

    def swapped(call: Call) -> Placed:
        half = len(call.op.pads) // 2
        op = replace(call.op, pads=call.op.pads[half:] + call.op.pads[:half])
        return right(replace(call, node=replace(call.node, op=op)))

    monkeypatch.setitem(emitting.framework.emitters, name, swapped)
    with pytest.raises(AssertionError, match="off by"):
        check(emitting, case)


def test_a_graph_that_cannot_be_said_is_refused_by_name(
    emitting: Emitting, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert issubclass(CannotBuild, PeerError), "a race skips the peer"
    window, typed = Graph("window"), Graph("typed")
    image = window.input("x", {"N": 1, "C": 3, "W": 9})
    window.output(window.add(MaxPool((3,)), image, name="pool"))
    with pytest.raises(CannotBuild, match=r"cannot say MaxPool 'pool': a window over W; H and W"):
        emitting.module.emit(window.seal())
    typed.output(typed.add(Relu(), typed.input("x", {"N": 1}, "f64"), name="relu"))
    with pytest.raises(CannotBuild, match=r"Relu 'relu': f64 among its operands"):
        emitting.module.emit(typed.seal())
    monkeypatch.delitem(emitting.framework.emitters, "Relu")
    with pytest.raises(CannotBuild, match=r"Relu 'relu': no function here says this operator"):
        emitting.module.emit(typed)


def test_outputs_may_be_inputs_and_constants(emitting: Emitting) -> None:
    graph = Graph("tiny")
    image = graph.input("x", {"N": 2, "C": 3, "H": 4, "W": 5})
    known = np.arange(60, dtype=np.float32).reshape(1, 4, 5, 3)
    graph.output(image)
    graph.output(graph.constant(known, "N H W C", "known"))
    given = np.random.default_rng(0).standard_normal((2, 3, 4, 5), np.float32)
    first, second = emitting.run(graph.seal(), {"x": given})
    np.testing.assert_array_equal(first, given)
    np.testing.assert_array_equal(second, known)
