"""Slices and concatenations whose parts are stretches of the whole copy nothing; values stay."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from ops import Concat, Neg, Relu, Reshape, Slice, Tanh
from ptensor import Layout
from ptensor.buffer import Buffer, TensorStorage
from tests.runtime.simulation import faults
from vtensor import Graph, Session
from vtensor.errors import LayoutError
from vtensor.language.tensor import VTensor
from vtensor.runtime.recording import recorder
from vtensor.runtime.recording.aliasing import division

Array = np.ndarray[Any, Any]


def cut(g: Graph, x: VTensor, dim: str, begin: int, end: int, step: int = 1) -> VTensor:
    made: VTensor = g.add(Slice((dim,), (begin,), (end,), (step,)), x)
    return made


def copies(graph: Graph, feeds: Mapping[str, Array], **options: Any) -> list[str]:
    """Which slices and concatenations run; values are those of a plan in which all of them do."""
    options = {"optimize": "ewo", "threads": 1, **options}
    with Session(graph, **options) as session:
        found = session.run(None, feeds)
        plan = session.plan
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recorder, "uncopied", lambda steps, *_: [*steps])
        with Session(graph, **options) as session:
            for value, expected in zip(found, session.run(None, feeds), strict=True):
                np.testing.assert_array_equal(value, expected)
    assert faults(plan.placement, len(plan.graph.inputs)) == []
    return [step.op for step in plan.steps if step.kernels and step.op in ("Slice", "Concat")]


def numbers(**shapes: Sequence[int]) -> dict[str, Array]:
    generator = np.random.default_rng(0)
    return {name: generator.standard_normal(shape, np.float32) for name, shape in shapes.items()}


@pytest.mark.parametrize(
    ("dims", "begin", "end", "step", "expected"),
    [
        ("A B C", 1, 3, 1, []),
        ("A B C", -2, 9, 1, []),
        ("B A C", 1, 3, 1, ["Slice"]),  # a piece of each row
        ("B=1 A C", 1, 3, 1, []),
        ("A B C", 0, 4, 2, ["Slice"]),
        ("A B C=3", 1, 3, 1, ["Slice"]),  # it begins within a cache line
    ],
)
def test_a_slice_that_is_a_stretch_is_read_where_it_lies(
    dims: str, begin: int, end: int, step: int, expected: list[str]
) -> None:
    known = {"A": 4, "B": 2, "C": 16}
    sizes = {
        name: int(size or known[name])
        for name, _, size in (one.partition("=") for one in dims.split())
    }
    g = Graph("slice")
    part = cut(g, g.input("x", sizes), "A", begin, end, step)
    g.output(g.add(Tanh(), part), "y")
    assert copies(g.seal(), numbers(x=[*sizes.values()])) == expected


def two(g: Graph, rows: Sequence[int] = (2, 3)) -> list[VTensor]:
    """Values that nobody else has a place for, and their inputs ``x0``, ``x1``, ..."""
    return [g.add(Tanh(), g.input(f"x{i}", {"A": n, "B": 16})) for i, n in enumerate(rows)]


GIVEN = numbers(x0=[2, 16], x1=[3, 16])


def test_what_is_concatenated_is_made_where_it_belongs() -> None:
    g = Graph("joined")
    g.output(g.add(Concat("A"), *two(g)), "y")
    assert copies(g.seal(), GIVEN) == []


def test_rows_side_by_side_are_copied() -> None:
    g = Graph("columns")
    x, y = two(g, (4, 4))
    g.output(g.add(Concat("B"), x, y), "y")
    assert copies(g.seal(), numbers(x0=[4, 16], x1=[4, 16])) == ["Concat"]


def test_concatenations_of_concatenations_and_views() -> None:
    g = Graph("nested")
    x, y = two(g)
    inner = g.add(Reshape((("A", 1), ("D", 5), ("B", 16))), g.add(Concat("A"), x, y))
    more = g.add(Neg(), g.add(Reshape((("A", 1), ("D", 5), ("B", 16))), g.input("z", {"E": 80})))
    whole = g.add(Concat("A"), inner, more)
    g.output(whole, "y")
    g.output(g.add(Relu(), x), "x")  # another reader
    assert copies(g.seal(), {**GIVEN, **numbers(z=[80])}) == []


def test_a_concatenation_at_the_head_of_a_later_one_is_a_part_of_it() -> None:
    g = Graph("dense")
    values = two(g)
    for i in range(3):
        whole = g.add(Concat("A"), *values)
        values.append(cut(g, g.add(Tanh(), whole), "A", i, i + 2))
    g.output(g.add(Neg(), g.add(Concat("A"), *values)), "y")
    assert copies(g.seal(), GIVEN) == ["Slice"] * 3  # to where they belong


@pytest.mark.parametrize("what", ["input", "output", "twice", "constant", "view of an output"])
def test_what_has_another_place_already_is_copied(what: str) -> None:
    g = Graph("placed")
    x, y = two(g)
    other = {
        "input": lambda: g.input("z", {"A": 3, "B": 16}),
        "constant": lambda: g.constant(np.ones((3, 16), "f4"), "A B"),
        "twice": lambda: x,
    }.get(what, lambda: y)()
    g.output(g.add(Neg(), g.add(Concat("A"), x, other)), "y")
    if what == "output":
        g.output(other, "z")
    if what == "view of an output":
        g.output(g.add(Reshape((("C", 48),)), other), "z")
    graph = g.seal()
    given = numbers(**{name: [*graph.values[name].dims.values()] for name in graph.inputs})
    assert copies(graph, given) == ["Concat"]


def test_a_slice_that_is_delivered_is_copied() -> None:
    g = Graph("delivered")
    part = cut(g, g.add(Tanh(), g.input("x", {"A": 4, "B": 16})), "A", 1, 3)
    g.output(part, "y")
    assert copies(g.seal(), numbers(x=[4, 16])) == ["Slice"]


@pytest.mark.parametrize(
    ("channels", "begin", "end", "expected"),
    [(32, 16, 32, 576), (32, 8, 32, None), (32, 16, 20, None), (20, 16, 20, 576)],
)
def test_blocks_are_not_cut(channels: int, begin: int, end: int, expected: int | None) -> None:
    whole, part = (
        TensorStorage("f32", {"N": 1, "C": size, "H": 3, "W": 3}, Layout("NCHW16c"))
        for size in (channels, end - begin)
    )
    found = division(Slice(("C",), (begin,), (end,), (1,)), [whole], part, [])
    assert (found and found.parts[0][1]) == expected


def past_and_new(layers: int, length: int) -> Graph:
    """A step of generation: keys and values so far and one more of each, read and delivered."""
    g = Graph("past")
    sizes = {"layer": layers, "kind": 2, "head": 3, "length": length, "size": 16}
    past = g.input("past", sizes)
    word = g.input("word", {"head": 3, "length": 1, "size": 16})
    rows = []
    for layer in range(layers):
        of_layer = cut(g, past, "layer", layer, layer + 1)
        both = []
        for kind in range(2):
            old = cut(g, of_layer, "kind", kind, kind + 1)
            flat = g.add(Reshape((("head", 3), ("length", length), ("size", 16))), old)
            now = g.add(Concat("length"), flat, g.add(Tanh(), word))
            word = g.add(Neg(), cut(g, now, "length", length, length + 1))
            both.append(g.add(Reshape((("kind", 1), *now.dims.items())), now))
        pair = g.add(Concat("kind"), *both)
        rows.append(g.add(Reshape((("layer", 1), *pair.dims.items())), pair))
    g.output(g.add(Concat("layer"), *rows), "present")
    g.output(word, "word")
    return g.seal()


def test_of_past_keys_and_values_only_the_new_length_is_a_copy() -> None:
    graph = past_and_new(3, 7)
    feeds = numbers(past=[3, 2, 3, 7, 16], word=[3, 1, 16])
    found = copies(graph, feeds)
    assert found.count("Concat") == 6  # once a key or value, right into what is delivered
    assert found.count("Slice") == 6  # the last word of each: rows of three heads


def drawn(seed: int) -> tuple[Graph, dict[str, Array]]:
    """A graph of slices, concatenations and functions over rows of 16, all values of it delivered
    or not as it comes.
    """
    pick = np.random.default_rng(seed)
    g = Graph("drawn")
    values = [g.input(f"x{i}", {"A": 4, "B": 16}) for i in range(2)]
    for _ in range(14):
        x = values[pick.integers(len(values))]
        kind = pick.integers(4)
        if kind == 0:
            begin = int(pick.integers(x.size("A")))
            values.append(cut(g, x, "A", begin, begin + 1 + int(pick.integers(3))))
        elif kind == 1:
            others = [values[pick.integers(len(values))] for _ in range(pick.integers(1, 3))]
            if sum(one.size("A") for one in (x, *others)) < 24:
                values.append(g.add(Concat("A"), x, *others))
        else:
            values.append(g.add((Tanh, Neg)[kind - 2](), x))
    for i, value in enumerate(values[2:]):
        if value is values[-1] or pick.random() < 0.2:
            g.output(value, f"y{i}")
    return g.seal(), numbers(x0=[4, 16], x1=[4, 16])


@pytest.mark.parametrize("seed", range(20))
def test_random_graphs(seed: int) -> None:
    for level in ("none", "all"):
        copies(*drawn(seed), optimize=level)


def test_a_stretch_is_inside_of_memory_and_moves_with_it() -> None:
    row, rows = {"B": 16}, {"A": 4, "B": 16}
    whole, outer = (TensorStorage("f32", sizes, Layout("AB")) for sizes in (rows, {**rows, "A": 6}))
    part, view = (TensorStorage("f32", row, Layout("B")) for _ in range(2))
    view.share(part)
    part.lie_in(whole, 64)
    whole.lie_in(outer, 128)
    assert view.root is outer
    assert view.begin == 192
    array = np.arange(96, dtype=np.float32)
    outer.bind(Buffer.wrap(array))
    np.testing.assert_array_equal(view.data(), array[48:64])
    for begin in (-4, 196, 256):
        with pytest.raises(LayoutError, match=f"256 bytes hold no 64 from {begin} on"):
            part.lie_in(whole, begin)
