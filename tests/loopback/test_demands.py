"""What loopback demands, and that it is seen where a demand is not made or not met."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import Any

import pytest

from libdesc.numpy.handlers import transform
from libdesc.registry import registry
from ops import Add, Conv2D, Reshape
from ptensor.evaluation import Call
from ptensor.layout import Layout
from ptensor.physical import pad_slabs
from ptensor.tensor import PTensor
from tests.loopback.bench import check_case
from tests.loopback.handlers import demanded, scrambles
from tests.operators.tables.cases import Case
from vtensor.errors import BudgetError, InvokerError
from vtensor.language.graph import Graph
from vtensor.runtime.recording.offsets import Piece
from vtensor.runtime.session import Session

SIZES = {"N": 1, "C": 8, "H": 5, "W": 6}
CONV = Case(Conv2D(pads=(1, 1, 1, 1)), ("N=2 C=5 H=6 W=7", "!O=3 I=5 h=3 w=3"))
ADD = Case(Add(), ("N=1 C=4", "N=1 C=4"))

Demands = dict[int, Layout]


def test_layouts_are_in_any_order_blocked_and_padded() -> None:
    drawn = list(islice(scrambles("any", SIZES), 200))
    assert drawn == list(islice(scrambles("any", SIZES), 200))
    assert len({layout.dims for layout in drawn}) == 24
    assert not any(layout.is_plain for layout in drawn)
    for dim, size in SIZES.items():
        blocked = [layout for layout in drawn if layout.blocks(dim)]
        assert all(layout.padded(SIZES)[dim] > size for layout in blocked)
        assert any(layout.axes.index((dim, 0)) > layout.dims.index(dim) for layout in blocked)


def test_small_tensors_have_layouts_enough() -> None:
    """Of one element, one can be elsewhere too."""
    check_case(Case(Add(), ("N=1", "N=1")))
    check_case(Case(Add(), ("C=840", "C=840")))  # whatever the blocks, there are no pads


@pytest.fixture
def demanding(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[Call, Demands], Any]], None]:
    """Makes the library change its demands before it answers."""

    def change(how: Callable[[Call, Demands], Any]) -> None:
        def guideline(call: Call) -> Demands:
            answers = demanded(call)
            how(call, answers)
            return answers

        code = registry().libraries["loopback"].code
        monkeypatch.setitem(code, "guideline_handler", guideline)

    return change


@pytest.mark.parametrize(
    ("index", "fault"),
    [(0, "x of Conv2D is taken"), (1, "w of Conv2D is taken"), (2, "output Conv2D:0 is delivered")],
)
def test_an_argument_without_a_transform_is_seen(
    index: int, fault: str, demanding: Callable[..., None]
) -> None:
    check_case(CONV)

    def as_produced(call: Call, answers: Demands) -> None:
        answers[index] = Layout.plain(call.operands[index].dims)

    demanding(as_produced)
    with pytest.raises(AssertionError, match=fault):
        check_case(CONV)


def test_two_arguments_in_one_layout_are_seen(demanding: Callable[..., None]) -> None:
    check_case(ADD)
    demanding(lambda call, answers: answers.update({1: answers[0]}))
    with pytest.raises(AssertionError, match="a and b of Add are both in"):
        check_case(ADD)


def twice(target: PTensor) -> None:
    """Every element is twice what it was."""
    target.data()[...] *= 2


def ones(target: PTensor) -> None:
    """Pads are 1."""
    for slab in pad_slabs(target.required_layout, target.dims):
        target.data()[slab] = 1


@pytest.mark.parametrize(
    ("spoil", "error", "fault"),
    [(twice, AssertionError, "not equal"), (ones, InvokerError, "pads of .* are not zero")],
)
def test_a_wrong_transform_is_seen(
    spoil: Callable[[PTensor], None],
    error: type[Exception],
    fault: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def wrong(source: PTensor, target: PTensor, permutation: tuple[int, ...]) -> None:
        transform(source, target, permutation)
        spoil(target)

    code = registry().libraries["numpy"].code
    monkeypatch.setitem(code, "transformer_handler", wrong)
    with pytest.raises(error, match=fault):
        check_case(CONV)


def test_a_view_that_is_a_copy_takes_memory() -> None:
    graph = Graph("view")
    made = graph.add(Reshape((("A", 5), ("B", 7))), graph.input("x", {"C": 35}))
    graph.output(made)
    with Session(graph.seal(), libraries=["loopback"], optimize="none") as session:
        plan = session.plan.graph
    ends = {*plan.inputs, *plan.outputs.values()}
    needed = sum(
        value.nbytes if value.name in ends else Piece(value.nbytes, 0, 0).room
        for value in plan.values.values()
    )
    Session(graph, libraries=["loopback"], optimize="none", max_bytes=needed).close()
    with pytest.raises(BudgetError, match=f"the plan needs {needed} bytes"):
        Session(graph, libraries=["loopback"], optimize="none", max_bytes=needed - 1)
