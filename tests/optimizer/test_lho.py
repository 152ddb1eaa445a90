"""Layout hoisting: what the paper's rule takes, and each thing that it does not."""

from __future__ import annotations

from collections import Counter

import pytest

from libdesc.registry import registry
from optimizer.pipeline import optimise
from resolver.check import check
from resolver.lowered import LoweredGraph
from tests.libraries.bench import Bench
from tests.libraries.golden import Golden
from tests.optimizer.graphs import extended_of, moved
from tests.resolver.networks import IMAGE, declare_convolution, inception, mix
from vtensor.language.graph import Graph


def hoisted(graph: Graph) -> LoweredGraph:
    """After LHO alone, checked."""
    found = optimise(extended_of(graph), "lho")
    able = [library.name for library in registry().libraries.values() if library.transforms]
    check(found, graph, able)
    return found


def sources(extended: LoweredGraph) -> Counter[str]:
    """How many Transforms each value has."""
    return Counter(node.input for node in extended.transforms())


def fork(bench: Bench, *asked: str, deliver: bool = False) -> Graph:
    """A node, and behind it one for each text, which is the layout that it wants."""
    g = Graph("fork")
    stem = mix(bench, "NCHW NCHW", g.input("x", IMAGE), graph=g, name="stem")
    for index, text in enumerate(asked):
        g.output(mix(bench, f"{text} NCHW", stem, graph=g, name=f"n{index}"))
    if deliver:
        g.output(stem, "stem")
    return g.seal()


def test_fig_4b(bench: Bench, golden: Golden) -> None:
    """Three Transforms behind a Concat become one directly after it, with all three reasons."""
    declare_convolution()
    found = hoisted(inception(bench))
    [first, *_] = found.transforms()
    assert [reason.consumer for reason in first.reasons] == ["conv1", "conv2", "conv3"]
    places = [node.name for node in found.nodes]
    assert places.index(first.name) == places.index("concat") + 1
    golden.check(str(found))


def test_a_branch_of_equal_transforms(bench: Bench) -> None:
    assert sources(hoisted(fork(bench, "NHWC", "NHWC", "NHWC"))) == {"stem": 1}


@pytest.mark.parametrize(
    ("graph", "left"),
    [
        (("NHWC", "NHWC", "NCHW"), 2),  # (1) one successor is no Transform
        (("NHWC", "NHWC", "NCHW4c"), 3),  # (3) another layout is required
        (("NHWC",), 1),  # no branch
    ],
)
def test_what_breaks_a_condition_stays(bench: Bench, graph: tuple[str, ...], left: int) -> None:
    assert sources(hoisted(fork(bench, *graph))) == {"stem": left}


def test_an_output_is_a_successor_too(bench: Bench) -> None:
    assert sources(hoisted(fork(bench, "NHWC", "NHWC", deliver=True))) == {"stem": 2}


def test_an_input_is_a_branch_node_too(bench: Bench) -> None:
    g = Graph("entry")
    x = g.input("x", IMAGE)
    for name in "ab":
        g.output(mix(bench, "NHWC NCHW", x, graph=g, name=name))
    found = hoisted(g.seal())
    assert sources(found) == {"x": 1}
    assert found.nodes[0].name == "transform:0"


def test_share_takes_what_hoisting_leaves(bench: Bench) -> None:
    """Equal ones, whoever else uses the value."""
    resolved = extended_of(fork(bench, "NHWC", "NHWC", "NCHW", "NCHW4c", "NCHW4c"))
    assert sources(resolved) == {"stem": 4}
    assert sources(optimise(resolved, ["share"])) == {"stem": 2}
    assert moved(optimise(resolved, ["share"])) < moved(resolved)


def test_layouts_that_agree_on_the_sizes_are_one(bench: Bench) -> None:
    """N is 1: it may lie anywhere."""
    assert sources(hoisted(fork(bench, "NHWC", "HNWC", "HWNC"))) == {"stem": 1}
