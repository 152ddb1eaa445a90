"""The independent checker: for every fault that it names, a plan with that fault."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given

from optimizer import pipeline
from ptensor.convert import preserves
from ptensor.encoding import Encoding
from ptensor.layout import Layout
from resolver.addresses import addresses
from resolver.check import check
from resolver.evaluate import resolve
from resolver.exactness import holds
from resolver.extend import extend
from resolver.lowered import LoweredGraph
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
from tests.resolver.networks import chain, checked, declare_convolution
from vtensor.errors import UnsoundPlanError
from vtensor.language.dtype import ITEMSIZE
from vtensor.language.graph import Graph
from vtensor.runtime.session import Session

X4, W1 = "x@0", "w1@ahead:0"
TOLERANCE = "and the session's tolerance is 0"


class Draft:
    """A lowered graph that can be spoilt."""

    def __init__(self, graph: LoweredGraph) -> None:
        self.name, self.inputs = graph.name, graph.inputs
        self.values, self.nodes = dict(graph.values), list(graph.nodes)
        self.outputs = dict(graph.outputs)

    def made(self) -> LoweredGraph:
        return LoweredGraph(self.name, self.values, self.nodes, self.inputs, self.outputs)

    def place(self, name: str) -> int:
        return next(i for i, n in enumerate(self.nodes) if n.name == name)

    def node(self, name: str) -> Any:
        return self.nodes[self.place(name)]

    def change(self, name: str, **fields: Any) -> None:
        self.nodes[self.place(name)] = replace(self.node(name), **fields)

    def value(self, name: str, **fields: Any) -> None:
        self.values[name] = replace(self.values[name], **fields)

    def lies(self, name: str, text: str) -> None:
        self.value(name, layout=Layout(text))

    def decide(self, name: str, *texts: str) -> None:
        variant = self.node(name).variant.lying([Layout(text) for text in texts])
        self.change(name, variant=variant)


@pytest.fixture
def sound(bench: Bench) -> tuple[Draft, Graph]:
    """A network of two convolutions, resolved and extended."""
    declare_convolution()
    graph = chain(bench)
    return Draft(extend(resolve(graph))), graph


def swap(draft: Draft) -> None:
    """Put a Transform behind the node that reads it."""
    draft.nodes.append(draft.nodes.pop(draft.place("transform:0")))


def short_circuit(draft: Draft) -> None:
    """Leave a Transform out and let its reader read what it read."""
    del draft.nodes[draft.place("transform:1")]
    draft.change("conv2", inputs=("relu", draft.node("conv2").inputs[1]))


def stranger(draft: Draft) -> None:
    """Add a node that nobody asked for."""
    draft.values["ghost"] = replace(draft.values["relu"], name="ghost")
    draft.nodes.append(replace(draft.node("relu"), name="ghost", outputs=("ghost",)))


def other_operator(draft: Draft) -> None:
    """The same node with an operator of other parameters."""
    draft.change("relu", op=replace(draft.node("relu").op, asks=("NCHW", "NCHW")))


def rounding_transform(draft: Draft) -> None:
    """A Transform to bf16, and a reader that wants it so: all layouts agree."""
    draft.lies(X4, "NCHW4c:bf16")
    _, *others = (str(layout) for layout in draft.node("conv1").variant.layouts)
    draft.decide("conv1", "NCHW4c:bf16", *others)


def rounding_operator(draft: Draft) -> None:
    """An operator that stores its result in f16, and a Transform that reads it so."""
    draft.lies("relu", "NCHW8c:f16")
    draft.decide("relu", "NCHW8c", "NCHW8c:f16")


SMALLER, LONGER = {"N": 1, "C": 8, "H": 4, "W": 6}, {"N": 1, "C": 16, "H": 4, "W": 7}
CONSTANT = "a constant stays one, and nothing else becomes one"
BF16, F16 = "in NCHW4c:bf16, which rounds f32,", "in NCHW8c:f16, which rounds f32,"
ONLY = "only the network's constants are constant"
#: What is done to the plan, and the error.
FAULTS: list[tuple[Callable[[Draft], object], str]] = [
    (swap, f"conv1: uses '{X4}' before anything makes it"),
    (lambda d: d.nodes.append(d.node("relu")), "relu: makes ['relu'] a second time"),
    (short_circuit, "conv2: relu is in NCHW8c, NCHW4c is required"),
    (lambda d: d.lies("relu", "NHWC"), "relu: relu is in NHWC, NCHW8c is required"),
    (lambda d: d.lies(X4, "NCHW8c"), f"conv1: {X4} is in NCHW8c, NCHW4c is required"),
    (lambda d: d.decide("relu", "NCHW", "NCHW8c"), "relu: conv1 is in NCHW8c, NCHW is required"),
    (
        lambda d: d.decide("relu", "NCHW8c:bf16", "NCHW8c"),
        "relu: conv1 is in NCHW8c, NCHW8c:bf16 is required",
    ),
    (rounding_transform, f"transform:0: makes {X4} {BF16} {TOLERANCE}"),
    (rounding_operator, f"relu: makes relu {F16} {TOLERANCE}"),
    (lambda d: d.decide("relu", "NCHW8c"), "relu: 2 operands, other layouts decided"),
    (lambda d: d.lies(X4, "NHW"), "layout NHW does not hold dims N C H W"),
    (lambda d: d.value(X4, dims=SMALLER), "transform:0: changes more than the layout of x"),
    (lambda d: d.value(X4, dtype="bf16"), "transform:0: changes more than the layout of x"),
    (lambda d: d.change("transform:0", library="other"), "transform:0: other has no transformer"),
    (lambda d: d.value(X4, constant=True), f"transform:0: {CONSTANT}"),
    (lambda d: d.value(W1, constant=False), f"ahead:0: {CONSTANT}"),
    (lambda d: d.value("x", constant=True), f"'x': {ONLY}"),
    (lambda d: d.value("relu", constant=True), f"'relu': {ONLY}"),
    (lambda d: d.value("relu", dims=LONGER), "'relu' is not what the network says"),
    (lambda d: d.value("relu", dtype="bf16"), "'relu' is not what the network says"),
    (lambda d: d.values.pop("relu"), "'relu' has no value"),
    (lambda d: d.outputs.update(y="lost"), "'lost' has no value"),
    (  # the last convolution reads the first one's result; the layouts even agree
        lambda d: d.change("transform:1", input="conv1"),
        "conv2: reads ('conv1', 'w2'), the network says ('relu', 'w2')",
    ),
    (other_operator, "relu: no such node in the network"),
    (stranger, "'ghost' is not what the network says"),
    (
        lambda d: d.nodes.pop(d.place("relu")),
        "transform:1: uses 'relu' before anything makes it",
    ),
    (lambda d: setattr(d, "inputs", ()), "transform:0: uses 'x' before anything makes it"),
    (lambda d: setattr(d, "inputs", ("x", "x")), "the plan has other inputs than the network"),
    (lambda d: d.outputs.update(z="relu"), "the plan has other outputs than the network"),
    (lambda d: d.outputs.update(y="relu"), "output y: relu is not conv2"),
    (
        lambda d: d.outputs.update(y="conv2"),
        "output y: is in NCHW8c, promised is N/1 C/1 H/1 W/1",
    ),
]


@pytest.mark.parametrize(("corrupt", "text"), FAULTS, ids=[text for _, text in FAULTS])
def test_each_fault_is_found(sound: tuple[Draft, Graph], corrupt: Any, text: str) -> None:
    draft, graph = sound
    checked(draft.made(), graph)  # it is sound before
    corrupt(draft)
    assert message(UnsoundPlanError, lambda: checked(draft.made(), graph)) == text
    if corrupt in (rounding_transform, rounding_operator):
        check(draft.made(), graph, ["numpy", "toy"], tolerance=0.01)  # above 0 a plan may round


@pytest.mark.parametrize("round_it", [rounding_transform, rounding_operator])
def test_an_approximate_node_may_round_its_operands(
    sound: tuple[Draft, Graph], round_it: Any
) -> None:
    """The twin: its measured error has the rounding in it, which no other node's has."""
    draft, graph = sound
    round_it(draft)
    name = "conv1" if round_it is rounding_transform else "relu"
    variant = draft.node(name).variant
    draft.change(name, variant=replace(variant, inexact=True))
    checked(draft.made(), graph)
    draft.change(name, variant=variant)
    draft.change("conv2", variant=replace(draft.node("conv2").variant, inexact=True))
    message(UnsoundPlanError, lambda: checked(draft.made(), graph))


#: Integers that are moved by a zero point.
MOVED = [Encoding("u8", zero=128), Encoding("s8", zero=-128), Encoding("s16", zero=-300)]


@pytest.mark.parametrize("dtype", ITEMSIZE)
def test_an_encoding_holds_the_types_that_it_preserves(dtype: str) -> None:
    """The checker's trials, against the algebra of encodings."""
    for encoding in [*ENCODINGS, *PLANES, *MOVED]:
        held = holds(str(encoding), dtype)
        assert held == preserves(Encoding(dtype), encoding), (dtype, encoding)


def test_entry_and_output_layouts_are_promises(sound: tuple[Draft, Graph]) -> None:
    draft, graph = sound
    other = Layout("NHWC")
    for promised, text in (
        (({"x": other}, None), "input x: is in NCHW, promised is NHWC"),
        ((None, {"y": other}), "output y: is in NCHW, promised is NHWC"),
    ):
        said = message(UnsoundPlanError, lambda p=promised: checked(draft.made(), graph, *p))  # type: ignore[misc]
        assert said == text


def sabotage(graph: LoweredGraph, settings: object) -> LoweredGraph:
    """A pass that removes a Transform that the plan needs."""
    draft = Draft(graph)
    short_circuit(draft)
    return draft.made()


def test_a_session_checks_each_plan(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    declare_convolution()
    monkeypatch.setitem(pipeline.PASSES, "sabotage", f"{__name__}:sabotage")
    graph = chain(bench)
    assert message(UnsoundPlanError, lambda: Session(graph, optimize=["sabotage"])) == (
        "conv2: relu is in NCHW8c, NCHW4c is required"
    )
    Session(graph, optimize=[]).close()


@LAWS
@given(placed())
def test_addresses_are_offsets(given_: tuple[Layout, dict[str, int]]) -> None:
    """The checker's parser and arithmetic, against the layout algebra."""
    layout, sizes = given_
    if 0 in sizes.values():
        return
    _, count, table = addresses(str(layout), sizes)
    columns = dict(table)  # type: ignore[call-overload]
    for index in indices(sizes):
        address = sum(columns[dim][at] for dim, at in index.items())
        assert address == layout.offset(index, sizes)
    assert count == layout.num_elements(sizes)


@LAWS
@given(pairs())
def test_addresses_agree_with_same(given_: tuple[list[Layout], dict[str, int]]) -> None:
    [one, other], sizes = given_
    agree = addresses(str(one), sizes) == addresses(str(other), sizes)
    assert agree == one.same(other, sizes)


def test_addresses_tell_encodings_apart_and_take_long_dims() -> None:
    for sizes in ({"N": 2, "C": 3}, {"N": 2**40, "C": 4}):  # one by one it would take hours
        assert addresses("NC:bf16", sizes) != addresses("NC", sizes) != addresses("CN", sizes)
        assert addresses("NC", sizes) == addresses("N/1 C/1", sizes)
        assert addresses("NC:bf16", sizes) == addresses("N/1 C/1:bf16", sizes)


@pytest.mark.parametrize("text", ["NC!", "N", "NCC8q", "NCH"])
def test_texts_that_are_no_layout_are_refused(text: str) -> None:
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
