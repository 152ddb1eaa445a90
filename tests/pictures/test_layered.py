"""The arrangement of any graph: wires run down, nothing overlaps, each bend is there once."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.property.strategies import LAWS
from vtensor.pictures.layered import LONGEST, Arrangement, Bend, Item, Wire, arrange

NODE, BEND = 100.0, 10.0


@st.composite
def wirings(draw: st.DrawFn) -> tuple[int, list[Wire]]:
    """Draw up to twelve nodes and wires from earlier to later ones, several from a node."""
    count = draw(st.integers(1, 12))
    wires = []
    for source in draw(st.lists(st.integers(0, count - 1))):
        later = st.lists(st.integers(source + 1, count - 1), min_size=1, unique=True)
        if source < count - 1:
            wires.append(Wire(source, tuple(draw(later))))
    return count, wires


def faults(drawn: Arrangement, count: int, wires: list[Wire]) -> list[str]:
    """Return what is wrong with an arrangement."""
    found = []
    width = {item: NODE if isinstance(item, int) else BEND for item in drawn.x}
    for row in drawn.rows:
        for left, right in pairwise(row):
            if drawn.x[right] - drawn.x[left] < (width[left] + width[right]) / 2 - 1e-6:
                found.append(f"{left} and {right} overlap")
    rows = {item: index for index, row in enumerate(drawn.rows) for item in row}
    if sorted(item for item in rows if isinstance(item, int)) != [*range(count)]:
        found.append("a node is absent or there twice")
    for number, wire in enumerate(wires):
        for target in wire.targets:
            first, last = rows[wire.source], rows[target]
            if first >= last:
                found.append(f"{wire.source} is not above {target}")
            elif any(rows.get(Bend(number, row)) != row for row in range(first + 1, last)):
                found.append(f"the wire from {wire.source} to {target} has a gap")
    return found


@LAWS
@given(wirings())
def test_arrangement_has_no_faults(wiring: tuple[int, list[Wire]]) -> None:
    count, wires = wiring
    assert faults(arrange(count, wires, NODE, BEND), count, wires) == []


@pytest.mark.parametrize(
    ("rows", "x", "fault"),
    [
        ([[0], [1, 2]], {0: 0.0, 1: 0.0, 2: 99.0}, "overlap"),
        ([[0], [1, 2]], {0: 0.0, 1: 100.0, 2: 0.0}, "overlap"),
        ([[0, 1], [2]], {0: 0.0, 1: 100.0, 2: 0.0}, "not above"),
        ([[0], [], [1, 2]], {0: 0.0, 1: 0.0, 2: 100.0}, "a gap"),
        ([[0], [1]], {0: 0.0, 1: 0.0}, "absent"),
    ],
)
def test_fault_of_an_arrangement_is_found(
    rows: list[list[Item]], x: dict[Item, float], fault: str
) -> None:
    drawn = Arrangement(rows, x)
    wires = [Wire(0, (1,))]
    assert any(fault in text for text in faults(drawn, 3, wires))


def test_chain_and_a_wire_past_it_are_straight() -> None:
    drawn = arrange(5, [Wire(0, (1, 4)), Wire(1, (2,)), Wire(2, (3,)), Wire(3, (4,))], NODE, BEND)
    assert len({drawn.x[node] for node in range(5)}) == 1
    assert len(set(drawn.bends(0, 0, 4))) == 1


def test_wires_cross_only_when_they_must() -> None:
    drawn = arrange(4, [Wire(0, (3,)), Wire(1, (2,))], NODE, BEND)
    above, below = drawn.rows
    assert [{0: 3, 1: 2}[node] for node in above if isinstance(node, int)] == below


def test_input_is_above_its_user_and_a_long_wire_has_no_bends() -> None:
    last = LONGEST + 2
    chain = [Wire(node, (node + 1,)) for node in range(last)]
    drawn = arrange(last + 2, [*chain, Wire(0, (last,)), Wire(last + 1, (last,))], NODE, BEND)
    assert last + 1 in drawn.rows[last - 1]
    assert all(isinstance(item, int) for item in drawn.x)
    assert drawn.bends(last, 0, last) == []


def test_bends_of_many_wires_stay_few() -> None:
    count = 1000
    wires = [Wire(node, tuple({node + 1, count - 1})) for node in range(count - 1)]
    assert len(arrange(count, wires, NODE, BEND).x) < 4 * count
