"""Networks on layout-aware operators: their answers, their conversions, what is said of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from eval.compare import TOLERANCE, difference, photograph, reference
from eval.layout_aware import Network
from eval.layout_aware.context import CONVERSION, Context
from eval.mixes import BY_PRIORITY, mixes
from eval.networks import NAMES, SMALL, build
from eval.processes import CAPS, capable, measure
from eval.tests.counted import Row, aware
from ops.activations import Elu
from ops.binary import Add
from ops.concat import Pad
from ops.convolution import Conv2D
from ops.reshape import Reshape
from tests.libraries.slow import slow
from vtensor import Graph, Session, VTensor
from vtensor.commands.shared import Mix
from vtensor.errors import InputError, NoInvokerError, UnsupportedOperatorError
from vtensor.frontends.export import export

Array = NDArray[Any]
#: The mixes of the conversions table.
MIXES = ("onednn", "tensorflow", "elementwise")
IMAGE = {"N": 1, "C": 8, "H": 8, "W": 8}


def kernel(graph: Graph, name: str, filters: int = 16, channels: int = 8) -> VTensor:
    """Weights of a 3 by 3 convolution."""
    drawn = np.random.default_rng(filters).standard_normal((filters, channels, 3, 3), np.float32)
    return graph.constant(drawn, "O I h w", name)


def shifted() -> Graph:
    """A shift by a pixel, which oneDNN does not do, between two convolutions; then a reshape."""
    g = Graph("shifted")
    x = g.add(Conv2D(), g.input("x", IMAGE), kernel(g, "w1"), name="conv1")
    x = g.add(Pad(("H", "W"), (-1, -1, 1, 1)), x, name="shift")
    y = g.add(Conv2D(), x, kernel(g, "w2", 16, 16), name="conv2")
    y = g.add(Add(), y, y, name="twice")
    g.output(g.add(Reshape((("N", 1), ("F", 256))), y, name="flat"), "y")
    return g.seal()


def fed(graph: Graph) -> dict[str, Array]:
    """Noise for the one input."""
    [name] = graph.inputs
    return {name: photograph(tuple(graph.values[name].dims.values()))}


def check(graph: Graph, mix: Mix) -> None:
    """The answer of ONNX Runtime, and as many conversions as layout-aware operators need."""
    network, feeds = Network(graph, mix, threads=2), fed(graph)
    expected = reference(export(graph), feeds)
    for _ in range(2):
        [answer] = network.run(feeds)
        assert difference(answer, expected) <= TOLERANCE
    assert network.conversions == aware(graph, mix)


@pytest.mark.parametrize(
    ("name", "mix"),
    [("mobilenet_v1", "eigen"), ("googlenet", "elementwise"), ("resnet50", "tensorflow")],
)
def test_agrees_with_onnx_runtime(name: str, mix: str) -> None:
    check(build(name, size=SMALL[name]), mixes()[mix])


@slow
@pytest.mark.parametrize("mix", [*MIXES, "eigen"])
@pytest.mark.parametrize("name", NAMES)
def test_every_network_agrees(name: str, mix: str) -> None:
    check(build(name, 2, size=SMALL[name]), mixes()[mix])


@pytest.mark.parametrize("mix", ["onednn", "numpy", "tensorflow"])
def test_numpy_does_what_no_listed_library_does(mix: str) -> None:
    check(shifted(), mixes()[mix])
    network = Network(shifted(), mixes()[mix])
    runs = {one.step.node: one.step.library for one in network.steps if one.kind != CONVERSION}
    assert runs["shift"] == ("eigen" if mix == "tensorflow" else "numpy")


def test_a_conversion_left_out_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """The twin: one operator takes what comes for what it wants."""
    convert = Context.convert

    def forgetful(ctx: Context, x: Any, desc: Any) -> Any:
        return replace(x, desc=desc) if ctx.node == "shift" else convert(ctx, x, desc)

    monkeypatch.setattr(Context, "convert", forgetful)
    with pytest.raises(AssertionError):
        check(shifted(), mixes()["onednn"])


def counted(cap: str, networks: str, sharing: Sequence[str], size: str) -> list[Row]:
    """Return the rows of networks under a cap."""
    rows: list[Row] = []
    measure("eval.tests.counted", [cap, networks, ",".join(sharing), size], rows.append)
    return rows


def unlike(rows: list[Row]) -> list[Row]:
    """Return the rows in which the baseline and ``aware`` convert differently."""
    return [row for row in rows if row["baseline"] != row["aware"]]


def test_conversions_are_those_of_the_mode() -> None:
    rows = counted("sse41", "inception_v2,mobilenet_v2", MIXES, "small")
    assert unlike(rows) == []
    assert [row["mix"] for row in rows] == [*MIXES, *MIXES]
    rows[2]["aware"] = [1, 4]
    assert unlike(rows) == rows[2:3]  # the twin: what differs is seen


@slow
@pytest.mark.parametrize(("cap", "size"), [*product(CAPS, ["small"]), ("sse41", "whole")])
@pytest.mark.parametrize("name", NAMES)
def test_every_networks_conversions_are_those_of_the_mode(name: str, cap: str, size: str) -> None:
    if cap not in capable():
        pytest.skip(f"this processor has no {cap}")
    assert unlike(counted(cap, name, MIXES, size)) == []


def test_memory_and_kernels_are_those_of_a_session() -> None:
    """Beside the layouts nothing differs: the same steps, in as much memory, with the same bits."""
    graph, mix = build("mobilenet_v2", size=SMALL["mobilenet_v2"]), mixes()["onednn"]
    network = Network(graph, mix, threads=2)
    options: dict[str, Any] = mix._asdict()
    with Session(graph, optimize=["aware"], threads=2, **options) as session:
        expected = session.run(None, fed(graph))
        assert [(one.step.library, one.step.kernel) for one in network.steps] == [
            (step.library, kernel) for step in session.plan.steps for kernel in step.kernels
        ]
        assert network.planned_bytes == session.memory.planned
    np.testing.assert_array_equal(network.run(fed(graph)), expected)


def test_phases_and_times_are_told() -> None:
    network = Network(shifted(), BY_PRIORITY)
    assert network.phases.keys() == {"operators", "conversions", "constants", "recording"}
    assert all(seconds > 0 for seconds in network.phases.values())
    times = np.zeros((len(network.steps), 2), np.int64)
    network.run(fed(shifted()), times)
    assert {one.kind for one in network.steps} == {"Conv2D", "Pad", "Add", CONVERSION}
    assert (times[:, 1] > times[:, 0]).all()
    assert network.conversions.number == sum(one.kind == CONVERSION for one in network.steps)


def test_a_graph_that_cannot_be_run_is_refused() -> None:
    graph = shifted()
    with pytest.raises(NoInvokerError, match=r"Pad 'shift': .*onednn: takes no elements away"):
        Network(graph, Mix(["onednn"], {"Pad": "onednn"}))
    network = Network(graph, BY_PRIORITY)
    for feeds in ({}, {"x": photograph((1, 8, 8, 9))}):
        with pytest.raises(InputError, match=r"input 'x' is f32 \(1, 8, 8, 8\)"):
            network.run(feeds)
    other = Graph("elu")
    other.output(other.add(Elu(), other.input("x", IMAGE), name="elu"))
    with pytest.raises(UnsupportedOperatorError, match="Elu 'elu'"):
        Network(other.seal(), BY_PRIORITY)
