"""The independent checker: for every fault that it names, a plan with that fault."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given

from libdesc.registry import registry
from ptensor.convert import preserves
from ptensor.encoding import Encoding
from ptensor.layout import Layout
from resolver.addresses import addresses
from resolver.check import check
from resolver.evaluate import resolve
from resolver.exactness import holds
from resolver.extend import extend
from resolver.lowered import LoweredGraph, OpNode, TransformNode
from tests.libraries.bench import Bench, message
from tests.property.strategies import (
    ENCODINGS,
    LAWS,
    PLANES,
    extents,
    indices,
    layouts,
    pairs,
    placed,
)
from tests.resolver.networks import chain, declare_convolution
from vtensor.errors import UnsoundPlanError
from vtensor.language.dtype import ITEMSIZE
from vtensor.language.graph import Graph


class Draft:
    """A lowered graph that can be spoilt."""

    def __init__(self, graph: LoweredGraph) -> None:
        self.name, self.inputs = graph.name, graph.inputs
        self.values, self.nodes = dict(graph.values), list(graph.nodes)
        self.outputs = dict(graph.outputs)

    def made(self) -> LoweredGraph:
        """As it is now."""
        return LoweredGraph(self.name, self.values, self.nodes, self.inputs, self.outputs)


Corrupt = Callable[[Draft], object]


@pytest.fixture
def sound(bench: Bench) -> tuple[Draft, Graph]:
    """A network of two convolutions, resolved and extended."""
    declare_convolution()
    graph = chain(bench)
    return Draft(extend(resolve(graph))), graph


def proven(extended: Draft, graph: Graph, entry: Any = None, outputs: Any = None) -> None:
    """Check, with the transformers that there are."""
    able = [library.name for library in registry().libraries.values() if library.transforms]
    check(extended.made(), graph, able, entry, outputs)


def node(extended: Draft, name: str) -> int:
    """A node's place."""
    return next(i for i, n in enumerate(extended.nodes) if n.name == name)


def change(extended: Draft, name: str, **fields: Any) -> None:
    """Change fields of a node."""
    place = node(extended, name)
    extended.nodes[place] = replace(extended.nodes[place], **fields)


def value(extended: Draft, name: str, **fields: Any) -> None:
    """Change fields of a value."""
    extended.values[name] = replace(extended.values[name], **fields)


def decide(extended: Draft, name: str, *texts: str) -> None:
    """Change what was decided for a node."""
    op = extended.nodes[node(extended, name)]
    assert isinstance(op, OpNode)
    variant = op.variant.lying([Layout(text) for text in texts])
    change(extended, name, variant=variant)


def swap(extended: Draft) -> None:
    """Put a Transform behind the node that reads it."""
    place = node(extended, "transform:0")
    extended.nodes.append(extended.nodes.pop(place))


def twice(extended: Draft) -> None:
    """Run a node a second time."""
    extended.nodes.append(extended.nodes[node(extended, "relu")])


def short_circuit(extended: Draft) -> None:
    """Leave a Transform out and let its reader read what it read."""
    reader = extended.nodes[node(extended, "conv2")]
    del extended.nodes[node(extended, "transform:1")]
    assert isinstance(reader, OpNode)
    change(extended, "conv2", inputs=("relu", reader.inputs[1]))


def other_source(extended: Draft) -> None:
    """Let the last convolution read the first one's result; the layouts even agree."""
    change(extended, "transform:1", input="conv1")


def stranger(extended: Draft) -> None:
    """Add a node that nobody asked for."""
    relu = extended.nodes[node(extended, "relu")]
    extended.values["ghost"] = replace(extended.values["relu"], name="ghost")
    assert isinstance(relu, OpNode)
    extended.nodes.append(replace(relu, name="ghost", outputs=("ghost",)))


def other_operator(extended: Draft) -> None:
    """The same node with an operator of other parameters."""
    relu = extended.nodes[node(extended, "relu")]
    assert isinstance(relu, OpNode)
    change(extended, "relu", op=replace(relu.op, asks=("NCHW", "NCHW")))  # type: ignore[type-var]


def rounding_transform(extended: Draft) -> None:
    """A Transform to bf16, and a reader that wants it so: all layouts agree."""
    value(extended, X4, layout=Layout("NCHW4c:bf16"))
    conv1 = extended.nodes[node(extended, "conv1")]
    assert isinstance(conv1, OpNode)
    _, *others = (str(layout) for layout in conv1.variant.layouts)
    decide(extended, "conv1", "NCHW4c:bf16", *others)


def rounding_operator(extended: Draft) -> None:
    """An operator that stores its result in f16, and a Transform that reads it so."""
    value(extended, "relu", layout=Layout("NCHW8c:f16"))
    decide(extended, "relu", "NCHW8c", "NCHW8c:f16")


X4, W1 = "x@0", "w1@ahead:0"
FAULTS: dict[str, tuple[Corrupt, str]] = {
    "used before it is made": (swap, f"conv1: uses '{X4}' before anything makes it"),
    "made twice": (twice, "relu: makes ['relu'] a second time"),
    "a transform left out": (short_circuit, "conv2: relu is in NCHW8c, NCHW4c is required"),
    "a producer's layout": (
        lambda e: value(e, "relu", layout=Layout("NHWC")),
        "relu: relu is in NHWC, NCHW8c is required",
    ),
    "a transform's layout": (
        lambda e: value(e, X4, layout=Layout("NCHW8c")),
        f"conv1: {X4} is in NCHW8c, NCHW4c is required",
    ),
    "a required layout": (
        lambda e: decide(e, "relu", "NCHW", "NCHW8c"),
        "relu: conv1 is in NCHW8c, NCHW is required",
    ),
    "an encoding": (
        lambda e: decide(e, "relu", "NCHW8c:bf16", "NCHW8c"),
        "relu: conv1 is in NCHW8c, NCHW8c:bf16 is required",
    ),
    "a transform that rounds": (
        rounding_transform,
        f"transform:0: makes {X4} in NCHW4c:bf16, which rounds f32, and the session's tolerance "
        "is 0",
    ),
    "an operator that rounds": (
        rounding_operator,
        "relu: makes relu in NCHW8c:f16, which rounds f32, and the session's tolerance is 0",
    ),
    "too few layouts": (
        lambda e: decide(e, "relu", "NCHW8c"),
        "relu: 2 operands, other layouts decided",
    ),
    "a layout of other dims": (
        lambda e: value(e, X4, layout=Layout("NHW")),
        "layout NHW does not hold dims N C H W",
    ),
    "a transform that changes sizes": (
        lambda e: value(e, X4, dims={"N": 1, "C": 8, "H": 4, "W": 6}),
        "transform:0: changes more than the layout of x",
    ),
    "a transform that changes the type": (
        lambda e: value(e, X4, dtype="bf16"),
        "transform:0: changes more than the layout of x",
    ),
    "a transform without library": (
        lambda e: change(e, "transform:0", library="other"),
        "transform:0: other has no transformer",
    ),
    "a transform that makes a constant": (
        lambda e: value(e, X4, constant=True),
        "transform:0: a constant stays one, and nothing else becomes one",
    ),
    "a constant that becomes none": (
        lambda e: value(e, W1, constant=False),
        "ahead:0: a constant stays one, and nothing else becomes one",
    ),
    "an input that is constant": (
        lambda e: value(e, "x", constant=True),
        "'x': only the network's constants are constant",
    ),
    "an operator's output that is constant": (
        lambda e: value(e, "relu", constant=True),
        "'relu': only the network's constants are constant",
    ),
    "other sizes": (
        lambda e: value(e, "relu", dims={"N": 1, "C": 16, "H": 4, "W": 7}),
        "'relu' is not what the network says",
    ),
    "another type": (
        lambda e: value(e, "relu", dtype="bf16"),
        "'relu' is not what the network says",
    ),
    "no value": (lambda e: e.values.pop("relu"), "'relu' has no value"),
    "no value of an output": (lambda e: e.outputs.update(y="lost"), "'lost' has no value"),
    "another source": (
        other_source,
        "conv2: reads ('conv1', 'w2'), the network says ('relu', 'w2')",
    ),
    "another operator": (other_operator, "relu: no such node in the network"),
    "a node of nowhere": (stranger, "'ghost' is not what the network says"),
    "a node that is left out": (
        lambda e: e.nodes.pop(node(e, "relu")),
        "transform:1: uses 'relu' before anything makes it",
    ),
    "other inputs": (
        lambda e: setattr(e, "inputs", ()),
        "transform:0: uses 'x' before anything makes it",
    ),
    "inputs of another number": (
        lambda e: setattr(e, "inputs", ("x", "x")),
        "the plan has other inputs than the network",
    ),
    "other outputs": (
        lambda e: e.outputs.update(z="relu"),
        "the plan has other outputs than the network",
    ),
    "an output of something else": (
        lambda e: e.outputs.update(y="relu"),
        "output y: relu is not conv2",
    ),
    "an output in another layout": (
        lambda e: e.outputs.update(y="conv2"),
        "output y: is in NCHW8c, promised is N/1 C/1 H/1 W/1",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_faults(sound: tuple[Draft, Graph], fault: str) -> None:
    extended, graph = sound
    proven(extended, graph)  # it is sound before
    corrupt, text = FAULTS[fault]
    corrupt(extended)
    assert message(UnsoundPlanError, lambda: proven(extended, graph)) == text


@pytest.mark.parametrize("corrupt", [rounding_transform, rounding_operator])
def test_above_tolerance_0_a_plan_may_round(sound: tuple[Draft, Graph], corrupt: Corrupt) -> None:
    extended, graph = sound
    corrupt(extended)
    check(extended.made(), graph, ["numpy", "toy"], tolerance=0.01)


@pytest.mark.parametrize("dtype", ITEMSIZE)
def test_which_encoding_holds_a_type(dtype: str) -> None:
    """The checker's trials, against the algebra of encodings."""
    for encoding in [*ENCODINGS, *PLANES]:
        found = holds(str(encoding), dtype)
        assert found == preserves(Encoding(dtype), encoding), (dtype, encoding)


def test_entry_and_output_layouts_are_promises(sound: tuple[Draft, Graph]) -> None:
    extended, graph = sound
    wrong = {"x": Layout("NHWC")}
    assert message(UnsoundPlanError, lambda: proven(extended, graph, wrong)) == (
        "input x: is in NCHW, promised is NHWC"
    )
    wrong = {"y": Layout("NHWC")}
    assert message(UnsoundPlanError, lambda: proven(extended, graph, None, wrong)) == (
        "output y: is in NCHW, promised is NHWC"
    )


def sabotage(graph: LoweredGraph, settings: object) -> LoweredGraph:
    """A pass that removes a Transform that the plan needs."""
    draft = Draft(graph)
    short_circuit(draft)
    return draft.made()


def test_the_session_checks_every_plan(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pass that breaks a plan is found before anything runs."""
    from optimizer import pipeline
    from vtensor.runtime.session import Session

    declare_convolution()

    monkeypatch.setitem(pipeline.PASSES, "sabotage", f"{__name__}:sabotage")
    graph = chain(bench)
    assert message(UnsoundPlanError, lambda: Session(graph, optimize=["sabotage"])) == (
        "conv2: relu is in NCHW8c, NCHW4c is required"
    )
    Session(graph, optimize=[]).close()


def linear(layout: Layout, sizes: dict[str, int]) -> list[int]:
    """Every element's address by the checker's own table: a sum over dims."""
    _, _, table = addresses(str(layout), sizes)
    columns = dict(table)  # type: ignore[call-overload]
    return [sum(columns[dim][at] for dim, at in index.items()) for index in indices(sizes)]


@LAWS
@given(placed())
def test_addresses_are_offsets(given_: tuple[Layout, dict[str, int]]) -> None:
    """The checker's parser and arithmetic, against the layout algebra."""
    layout, sizes = given_
    if 0 in sizes.values():
        return
    assert linear(layout, sizes) == [layout.offset(index, sizes) for index in indices(sizes)]
    assert addresses(str(layout), sizes)[1] == layout.num_elements(sizes)


@LAWS
@given(pairs())
def test_addresses_agree_with_same(given_: tuple[list[Layout], dict[str, int]]) -> None:
    [one, other], sizes = given_
    agree = addresses(str(one), sizes) == addresses(str(other), sizes)
    assert agree == one.same(other, sizes)


def test_addresses_see_the_encoding() -> None:
    sizes = {"N": 2, "C": 3}
    assert addresses("NC:bf16", sizes) != addresses("NC", sizes)
    assert addresses("NC:bf16", sizes) == addresses("N/1 C/1:bf16", sizes)


@pytest.mark.parametrize("text", ["NC!", "N", "NCC8q", "NCH"])
def test_texts_that_the_checker_refuses(text: str) -> None:
    with pytest.raises(UnsoundPlanError):
        addresses(text, {"N": 2, "C": 16})


def test_strategies_reach_blocks_and_spaces() -> None:
    """The twin of the laws: what they are tried on is not all plain."""
    seen: set[str] = set()

    @LAWS
    @given(layouts(["batch", "c", "C"]), extents(["batch", "c", "C"]))
    def collect(layout: Layout, sizes: dict[str, int]) -> None:
        seen.add("blocked" if not layout.is_plain else "plain")
        seen.add("spaced" if " " in str(layout) else "compact")
        seen.add("empty" if 0 in sizes.values() else "full")

    collect()
    assert seen >= {"blocked", "plain", "spaced", "empty", "full"}
    assert isinstance(TransformNode, type)


def test_long_dims_cost_nothing() -> None:
    # Address by address this would take hours.
    sizes = {"N": 2**40, "C": 4}
    assert addresses("NC", sizes) == addresses("N/1 C/1", sizes)
    assert addresses("NC", sizes) != addresses("CN", sizes)
