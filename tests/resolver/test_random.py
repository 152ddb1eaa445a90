"""Random networks of toy operators with random layouts: sound, and right."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from libdesc.registry import registry
from ptensor import PTensor
from ptensor.layout import Layout
from resolver.check import check
from resolver.evaluate import resolve
from resolver.extend import extend
from resolver.lowered import OpNode
from tests.libraries.bench import Bench
from tests.libraries.operators import mixed
from tests.libraries.scratch import scratch_registry
from tests.property.strategies import LAWS, layouts
from vtensor.language.graph import Graph
from vtensor.language.operators import OPERATORS
from vtensor.language.tensor import VTensor
from vtensor.runtime.session import Session

SIZES = {"N": 2, "C": 5, "W": 3}
DIMS = list(SIZES)
FEWER = settings(LAWS, max_examples=100)
Array = np.ndarray[Any, Any]


@st.composite
def asks(draw: st.DrawFn, value: VTensor, any_too: bool) -> str:
    """What an invoker may ask for an operand of these dims."""
    fixed = str(draw(layouts(list(value.dims))))
    choices = ["ANY", "-", f"{fixed}|{draw(layouts(list(value.dims)))}"] if any_too else []
    return draw(st.sampled_from([fixed, fixed, *choices]))


@st.composite
def networks(draw: st.DrawFn, any_too: bool = False) -> Graph:
    """Up to six nodes on up to three inputs and constants, all connected somehow."""
    g = Graph("random")
    values: list[VTensor] = []
    for index in range(draw(st.integers(1, 2))):
        dims = draw(st.permutations(DIMS))
        values.append(g.input(f"x{index}", {dim: SIZES[dim] for dim in dims}))
    if draw(st.booleans()):
        dims = draw(st.permutations(DIMS))
        shape = [SIZES[dim] for dim in dims]
        values.append(g.constant(np.arange(30, dtype=np.float32).reshape(shape), dims, "w"))
    for index in range(draw(st.integers(1, 6))):
        inputs = draw(st.lists(st.sampled_from(values), min_size=1, max_size=3))
        output = VTensor("f32", inputs[0].dims)
        rows = [draw(asks(t, any_too)) for t in (*inputs, output)]
        values.append(g.add(OPERATORS["Mix"].cls(tuple(rows)), *inputs, name=f"n{index}"))
    for value in draw(st.lists(st.sampled_from(values), min_size=1, max_size=3, unique=True)):
        g.output(value)
    return g.seal()


def evaluated(graph: Graph, feeds: dict[str, Array]) -> list[Array]:
    """The network's outputs in NumPy alone: no layouts anywhere."""
    arrays = {**feeds, **graph.constants}
    for node in graph.nodes.values():
        operands = tuple(graph.values[name] for name in (*node.inputs, *node.outputs))
        arrays[node.outputs[0]] = mixed([arrays[name] for name in node.inputs], operands)
    return [arrays[name] for name in graph.outputs.values()]


def law(graph: Graph, entry: dict[str, Layout]) -> None:
    """Resolves, extends, is sound, gives NumPy's values, and keeps what was asked."""
    extended = extend(resolve(graph, entry))
    able = [library.name for library in registry().libraries.values() if library.transforms]
    check(extended, graph, able, entry)
    for node in extended.nodes:
        if isinstance(node, OpNode):
            for text, layout in zip(node.op.asks, node.variant.layouts, strict=True):  # type: ignore[attr-defined]
                assert text in ("ANY", "-") or str(layout) in text.split("|")
    rng = np.random.default_rng(11)
    feeds: dict[str, Array] = {}
    for name in graph.inputs:
        sizes = list(graph.values[name].dims.values())
        feeds[name] = rng.integers(-8, 9, sizes).astype(np.float32)
    plain = {name: layout for name, layout in entry.items() if layout.is_plain}
    with Session(graph, input_layouts=plain, threads=1) as session:
        results = session.run(None, feeds)
    for result, expected in zip(results, evaluated(graph, feeds), strict=True):
        np.testing.assert_array_equal(result, expected)


@FEWER
@given(st.data())
def test_fixed_layouts(data: st.DataObject) -> None:
    with scratch_registry():
        Bench()
        graph = data.draw(networks())
        law(graph, {"x0": data.draw(layouts(DIMS))})


@FEWER
@given(st.data())
def test_any_and_alternatives_too(data: st.DataObject) -> None:
    with scratch_registry():
        Bench()
        graph = data.draw(networks(any_too=True))
        law(graph, {"x0": data.draw(layouts(DIMS))})


def test_the_law_sees_a_wrong_value(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """The twin: a transformer that reverses what it copies."""

    def wrong(source: Any, target: Any, permutation: tuple[int, ...]) -> None:
        from libdesc.numpy.handlers import transform

        transform(source, target, permutation)
        target.data()[...] = target.data()[::-1].copy()

    g = Graph("wrong")
    g.output(g.add(bench.op("Mix", ("CNW", "CNW")), g.input("x0", SIZES)))
    law(g.seal(), {})
    monkeypatch.setitem(registry().libraries["toy"].code, "transformer_handler", wrong)
    with pytest.raises(AssertionError):
        law(g, {})


def test_the_law_sees_a_layout_that_nobody_asked_for(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other twin: an invoker's operator says one thing, the variant another."""
    g = Graph("wrong")
    g.output(g.add(bench.op("Mix", ("CNW", "CNW")), g.input("x0", SIZES)))
    graph = g.seal()
    node = next(iter(graph.nodes.values()))
    law(graph, {})
    object.__setattr__(node.op, "asks", ("NCW|CNW", "CNW"))
    law(graph, {})
    object.__setattr__(node.op, "asks", ("CNW", "CNW"))

    from tests.libraries import operators

    monkeypatch.setattr(operators, "ask", lambda tensor, text: PTensor(tensor))
    with pytest.raises(AssertionError):
        law(graph, {})
