"""Names for dims: classes, conflicts, hints, and the names that one node sees."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from vtensor.frontends.naming import Key, Names, NodeNaming, UnionFind, assign_names, local_names


def absent(_: str, default: Any) -> Any:
    """Return the default: no attribute is given."""
    return default


def node(ranks: dict[str, int], **keys: Key) -> NodeNaming:
    """Return a node with operands by role; ranks are by value."""
    return NodeNaming(17, keys, {role: ranks[str(key)] for role, key in keys.items()}, absent)


@given(st.lists(st.tuples(st.integers(0, 12), st.integers(0, 12))))
def test_union_find_is_reachability(pairs: list[tuple[int, int]]) -> None:
    sets = UnionFind()
    for member in range(13):
        sets.find(member)
    groups = [{member} for member in range(13)]
    for a, b in pairs:
        sets.join(a, b)
        [left] = [group for group in groups if a in group]
        [right] = [group for group in groups if b in group]
        if left is not right:
            groups = [g for g in groups if g is not left and g is not right] + [left | right]
    for group in groups:
        assert {sets.find(member) for member in group} == {min(group)}


def test_fixed_names_spread_over_a_class() -> None:
    ranks = {"x": 2, "y": 2, "z": 2}
    first, second = node(ranks, x0="x", y0="y"), node(ranks, x0="y", y0="z")
    first.same("x0", 0, "y0", 0)
    second.same("x0", 0, "y0", 0)
    second.same("x0", -1, "y0", -1)
    second.name("y0", "N C")
    names = assign_names(ranks, [first, second])
    assert names == {"x": ("N", "D0"), "y": ("N", "C"), "z": ("N", "C")}


def test_first_fixed_name_wins_and_beats_hints() -> None:
    ranks = {"x": 1, "y": 1, "z": 1}
    a, b = node(ranks, x0="x", y0="y"), node(ranks, x0="y", y0="z")
    a.hint("x0", "H")
    a.same("x0", 0, "y0", 0)
    b.name("x0", "K")
    b.name("y0", "L")
    b.same("x0", 0, "y0", 0)
    names = assign_names(ranks, [a, b])
    assert names == {"x": ("K",), "y": ("K",), "z": ("K",)}
    assert local_names(a, names) == {"x0": ("K",), "y0": ("K",)}
    assert local_names(b, names) == {"x0": ("K",), "y0": ("L",)}, "what it fixed, it sees"


def test_hints_are_unique_inside_each_value() -> None:
    ranks = {"x": 2, "y": 2, "z": 2}
    a, b = node(ranks, x0="x", y0="y"), node(ranks, x0="y", y0="z")
    for each in (a, b):
        each.same("x0", 0, "y0", 0)
        each.hint("x0", "N C")
        each.hint("y0", "N C")
    assert assign_names(ranks, [a, b]) == {"x": ("N", "C"), "y": ("N", "C"), "z": ("N", "C")}
    c = node({"w": 2}, x0="w")
    c.hint("x0", "C C")
    assert assign_names({"w": 2}, [c]) == {"w": ("C", "C1")}


def test_two_classes_of_one_value_with_one_fixed_name() -> None:
    ranks = {"x": 2, "p": 1, "q": 1}
    a, b = node(ranks, x0="x", y0="p"), node(ranks, x0="x", y0="q")
    for axis, each in enumerate((a, b)):
        each.same("x0", axis, "y0", 0)
        each.name("y0", "C")
    names = assign_names(ranks, [a, b])
    assert names == {"x": ("C", "C1"), "p": ("C",), "q": ("C1",)}
    assert local_names(b, names)["y0"] == ("C",)


def test_what_does_not_fit_the_rank_is_left_to_the_reader() -> None:
    ranks = {"x": 3, "y": 1}
    n = node(ranks, x0="x", y0="y")
    n.name("x0", "N C")
    n.hint("x0", "A B C D")
    for role, axis in (("x0", 3), ("x0", -4), ("x7", 0)):
        n.same(role, axis, "y0", 0)
    assert (n.pairs, n.fixed, n.hints) == ([], {}, {})
    assert (n.rank("x0"), n.rank("x1"), n.roles) == (3, 0, ["x0"])
    assert assign_names(ranks, [n]) == {"x": ("D0", "D1", "D2"), "y": ("D3",)}


def test_pinned_names_come_first_and_scalars_have_none() -> None:
    n = node({"x": 1}, x0="x")
    n.name("x0", "N")
    assert assign_names({"x": 1}, [n], {"x": ("D7",)}) == {"x": ("D7",)}
    for text in ("", "N"):
        scalar = node({"s": 0}, x0="s")
        scalar.name("x0", text)
        assert assign_names({"s": 0}, [scalar]) == {"s": ()}


def test_one_name_twice_in_a_value() -> None:
    """y = x + x^T: every position is one dim."""
    ranks = {"x": 2, "t": 2, "y": 2}
    swap, add = node(ranks, x0="x", y0="t"), node(ranks, x0="x", x1="t", y0="y")
    for position in range(2):
        swap.same("x0", 1 - position, "y0", position)
        add.same("x0", position, "y0", position)
        add.same("x1", position, "y0", position)
    names = assign_names(ranks, [swap, add])
    assert set(names.values()) == {("D0", "D01")}
    assert local_names(add, names) == dict.fromkeys(("x0", "x1", "y0"), ("D0", "D01"))
    # The transpose sees x so that names mean what they say.
    assert local_names(swap, names) == {"x0": ("D01", "D0"), "y0": ("D0", "D01")}


def test_square_of_a_matrix_keeps_what_is_summed_apart() -> None:
    ranks = {"x": 2, "y": 2}
    square = node(ranks, x0="x", x1="x", y0="y")
    square.same("x0", 0, "y0", 0)
    square.same("x1", 1, "y0", 1)
    square.same("x0", 1, "x1", 0)
    seen = local_names(square, assign_names(ranks, [square]))
    (row, summed), (summed_too, column) = seen["x0"], seen["x1"]
    assert summed == summed_too
    assert (row, column) == seen["y0"]
    assert len({row, summed, column}) == 3


@st.composite
def networks(draw: st.DrawFn) -> tuple[dict[str, int], list[NodeNaming]]:
    """Draw values, and nodes that say something of them."""
    count = draw(st.integers(1, 5))
    ranks: dict[str, int] = {f"v{i}": draw(st.integers(0, 3)) for i in range(count)}
    nodes = []
    for _ in range(draw(st.integers(0, 4))):
        values = st.sampled_from(sorted(ranks))
        keys = {role: draw(values) for role in ("x0", "x1", "y0")}
        each = node(ranks, **keys)
        for _ in range(draw(st.integers(0, 4))):
            a, b = draw(st.sampled_from(sorted(keys))), draw(st.sampled_from(sorted(keys)))
            each.same(a, draw(st.integers(-3, 2)), b, draw(st.integers(-3, 2)))
        names = draw(st.permutations(["N", "C", "H"]))
        say = draw(st.sampled_from([each.name, each.hint]))
        say("x0", " ".join(names[: each.rank("x0")]))
        nodes.append(each)
    return ranks, nodes


@given(networks())
def test_no_value_has_a_name_twice(network: tuple[dict[str, int], list[NodeNaming]]) -> None:
    ranks, nodes = network
    names = assign_names(ranks, nodes)
    assert {key: len(row) for key, row in names.items()} == ranks
    rows: list[Names] = list(names.values())
    for each in nodes:
        seen = local_names(each, names)
        assert {role: len(row) for role, row in seen.items()} == each.ranks
        assert all(seen[role] == fixed for role, fixed in each.fixed.items())
        rows += seen.values()
    assert all(len(set(row)) == len(row) for row in rows)
