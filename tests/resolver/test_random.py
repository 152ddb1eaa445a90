"""Random networks of toy operators with random layouts: sound, and right."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from libdesc.numpy import handlers
from libdesc.registry import registry
from ptensor import PTensor
from ptensor.layout import Layout
from resolver.evaluate import resolve
from resolver.extend import extend
from tests.libraries import operators
from tests.libraries.bench import Bench
from tests.libraries.operators import mixed
from tests.libraries.scratch import scratch_registry
from tests.property.strategies import laws, layouts
from tests.resolver.networks import checked, mixes
from vtensor.language.graph import Graph
from vtensor.language.operators import OPERATORS
from vtensor.language.tensor import VTensor
from vtensor.runtime.session import Session

SIZES = {"N": 2, "C": 5, "W": 3}
DIMS = list(SIZES)
FEWER = laws(100)
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
    extended = checked(extend(resolve(graph, entry)), graph, entry)
    for node in extended.operators:
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


@pytest.mark.parametrize("any_too", [False, True])
@FEWER
@given(data=st.data())
def test_a_network_is_sound_and_right(any_too: bool, data: st.DataObject) -> None:
    with scratch_registry():
        Bench()
        graph = data.draw(networks(any_too=any_too))
        law(graph, {"x0": data.draw(layouts(DIMS))})


def test_the_law_sees_a_wrong_value(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """The twin: a transformer that reverses what it copies."""

    def wrong(source: Any, target: Any, permutation: tuple[int, ...]) -> None:
        handlers.transform(source, target, permutation)
        target.data()[...] = target.data()[::-1].copy()

    graph = mixes("n: x0 CNW CNW", x0=SIZES)
    law(graph, {})
    monkeypatch.setitem(registry().libraries["toy"].code, "transformer_handler", wrong)
    with pytest.raises(AssertionError):
        law(graph, {})


def test_the_law_sees_another_layout(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other twin: an invoker's operator says one thing, the variant another."""
    graph = mixes("n: x0 CNW CNW", x0=SIZES)
    op = graph.nodes["n"].op
    for asks in (("CNW", "CNW"), ("NCW|CNW", "CNW"), ("CNW", "CNW")):
        object.__setattr__(op, "asks", asks)
        law(graph, {})
    monkeypatch.setattr(operators, "ask", lambda tensor, text: PTensor(tensor))
    with pytest.raises(AssertionError):
        law(graph, {})
