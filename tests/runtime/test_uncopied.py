"""Slices and concatenations whose parts are stretches of the whole copy nothing; values stay."""

from __future__ import annotations

from collections.abc import Callable, Sequence
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


def cut(g: Graph, x: VTensor, dim: str, begin: int, end: int, step: int = 1) -> VTensor:
    part: VTensor = g.add(Slice((dim,), (begin,), (end,), (step,)), x)
    return part


def join(g: Graph, dim: str, *parts: VTensor) -> VTensor:
    whole: VTensor = g.add(Concat(dim), *parts)
    return whole


def shaped(g: Graph, x: VTensor, **sizes: int) -> VTensor:
    value: VTensor = g.add(Reshape(tuple(sizes.items())), x)
    return value


def two(g: Graph, rows: Sequence[int] = (2, 3)) -> list[VTensor]:
    """Return values that have no place yet, of the inputs ``x0``, ``x1``, ..."""
    return [g.add(Tanh(), g.input(f"x{i}", {"A": n, "B": 16})) for i, n in enumerate(rows)]


def copies(graph: Graph, **options: Any) -> list[str]:
    """Return which slices and concatenations run; values are those of a plan in which all do."""
    generator, options = np.random.default_rng(0), {"optimize": "ewo", "threads": 1, **options}
    shapes = {name: [*graph.values[name].dims.values()] for name in graph.inputs}
    feeds = {name: generator.standard_normal(shape, "f4") for name, shape in shapes.items()}
    with Session(graph, **options) as session:
        outputs, plan = session.run(None, feeds), session.plan
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recorder, "uncopied", lambda steps, *_: [*steps])
        with Session(graph, **options) as session:
            for y, expected in zip(outputs, session.run(None, feeds), strict=True):
                np.testing.assert_array_equal(y, expected)
    assert faults(plan.placement, len(plan.graph.inputs)) == []
    return [step.op for step in plan.steps if step.kernels and step.op in ("Slice", "Concat")]


@pytest.mark.parametrize(
    ("dims", "begin", "end", "step", "expected"),
    [
        ({"A": 4, "B": 2, "C": 16}, 1, 3, 1, []),
        ({"A": 4, "B": 2, "C": 16}, -2, 9, 1, []),
        ({"B": 2, "A": 4, "C": 16}, 1, 3, 1, ["Slice"]),  # a piece of each row
        ({"B": 1, "A": 4, "C": 16}, 1, 3, 1, []),
        ({"A": 4, "B": 2, "C": 16}, 0, 4, 2, ["Slice"]),
        ({"A": 4, "B": 2, "C": 3}, 1, 3, 1, ["Slice"]),  # it begins within a cache line
    ],
)
def test_a_slice_that_is_a_stretch_is_read_in_place(
    dims: dict[str, int], begin: int, end: int, step: int, expected: list[str]
) -> None:
    g = Graph("slice")
    g.output(g.add(Tanh(), cut(g, g.input("x", dims), "A", begin, end, step)), "y")
    assert copies(g.seal()) == expected


def nested(g: Graph) -> None:
    """Add a concatenation of a concatenation and views, with another reader."""
    x, y = two(g)
    inner = shaped(g, join(g, "A", x, y), A=1, D=5, B=16)
    more = g.add(Neg(), shaped(g, g.input("z", {"E": 80}), A=1, D=5, B=16))
    g.output(join(g, "A", inner, more), "y")
    g.output(g.add(Relu(), x), "x")


def dense(g: Graph) -> None:
    """Add concatenations, each of which is the head of a later one."""
    values = two(g)
    for i in range(3):
        values.append(cut(g, g.add(Tanh(), join(g, "A", *values)), "A", i, i + 2))
    g.output(g.add(Neg(), join(g, "A", *values)), "y")


GRAPHS: dict[str, tuple[Callable[[Graph], object], list[str]]] = {
    "parts": (lambda g: g.output(join(g, "A", *two(g)), "y"), []),
    "rows side by side": (lambda g: g.output(join(g, "B", *two(g, (4, 4))), "y"), ["Concat"]),
    "a slice that is delivered": (
        lambda g: g.output(cut(g, two(g, (4,))[0], "A", 1, 3), "y"),
        ["Slice"],
    ),
    "nested": (nested, []),
    "dense": (dense, ["Slice"] * 3),  # to where they belong
}


@pytest.mark.parametrize(("build", "expected"), GRAPHS.values(), ids=GRAPHS)
def test_a_part_is_written_to_its_place_in_the_whole(
    build: Callable[[Graph], object], expected: list[str]
) -> None:
    g = Graph("joined")
    build(g)
    assert copies(g.seal()) == expected


@pytest.mark.parametrize("what", ["input", "output", "twice", "constant", "view of an output"])
def test_a_part_that_has_another_place_already_is_copied(what: str) -> None:
    g = Graph("placed")
    x, y = two(g)
    other = {
        "input": lambda: g.input("z", {"A": 3, "B": 16}),
        "constant": lambda: g.constant(np.ones((3, 16), "f4"), "A B"),
        "twice": lambda: x,
    }.get(what, lambda: y)()
    g.output(g.add(Neg(), join(g, "A", x, other)), "y")
    if what == "output":
        g.output(other, "z")
    if what == "view of an output":
        g.output(shaped(g, other, C=48), "z")
    assert copies(g.seal()) == ["Concat"]


@pytest.mark.parametrize(
    ("channels", "begin", "end", "expected"),
    [(32, 16, 32, 576), (32, 8, 32, None), (32, 16, 20, None), (20, 16, 20, 576)],
)
def test_blocks_are_not_cut(channels: int, begin: int, end: int, expected: int | None) -> None:
    whole, part = (
        TensorStorage("f32", {"N": 1, "C": size, "H": 3, "W": 3}, Layout("NCHW16c"))
        for size in (channels, end - begin)
    )
    place = division(Slice(("C",), (begin,), (end,), (1,)), [whole], part, [])
    assert (place and place.parts[0][1]) == expected


def test_of_past_keys_and_values_only_the_new_length_is_copied() -> None:
    """A step of generation: keys and values so far and one more of each, read and delivered."""
    g, layers, length = Graph("past"), 3, 7
    sizes = {"layer": layers, "kind": 2, "head": 3, "length": length, "size": 16}
    past = g.input("past", sizes)
    word = g.input("word", {"head": 3, "length": 1, "size": 16})
    rows = []
    for layer in range(layers):
        of_layer, both = cut(g, past, "layer", layer, layer + 1), []
        for kind in range(2):
            old = shaped(
                g, cut(g, of_layer, "kind", kind, kind + 1), head=3, length=length, size=16
            )
            now = join(g, "length", old, g.add(Tanh(), word))
            word = g.add(Neg(), cut(g, now, "length", length, length + 1))
            both.append(shaped(g, now, kind=1, **now.dims))
        pair = join(g, "kind", *both)
        rows.append(shaped(g, pair, layer=1, **pair.dims))
    g.output(join(g, "layer", *rows), "present")
    g.output(word, "word")
    ran = copies(g.seal())
    assert ran.count("Concat") == 6  # once a key or value, right into what is delivered
    assert ran.count("Slice") == 6  # the last word of each: rows of three heads


def drawn(seed: int) -> Graph:
    """Return a graph of slices, concatenations and functions; any of its values is delivered."""
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
            if sum(part.size("A") for part in (x, *others)) < 24:
                values.append(join(g, "A", x, *others))
        else:
            values.append(g.add((Tanh, Neg)[kind - 2](), x))
    for i, value in enumerate(values[2:]):
        if value is values[-1] or pick.random() < 0.2:
            g.output(value, f"y{i}")
    return g.seal()


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("level", ["none", "all"])
def test_a_random_graph_answers_as_with_all_copies(seed: int, level: str) -> None:
    copies(drawn(seed), optimize=level)


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
