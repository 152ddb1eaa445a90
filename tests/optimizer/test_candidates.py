"""Which variants nodes have: what their library takes, and nothing else."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import pytest

from libdesc.onednn.routines_window import Convolution
from ops import Conv2D, Rename
from optimizer.choice.candidates import paper_variants, shared_variants
from optimizer.pipeline import simplify
from ptensor.evaluation import Call, Variant
from ptensor.layout import Layout
from resolver.evaluate import resolve
from resolver.extend import extend
from resolver.probe import Prober
from tests.libraries.bench import Bench
from tests.libraries.toy import handlers
from tests.resolver.networks import IMAGE, mix, mixes
from vtensor.language.graph import Graph
from vtensor.language.operators import Context, run_compute
from vtensor.language.tensor import VTensor


def texts(variants: object) -> dict[str, list[str]]:
    """Variants by node, as words."""
    return {
        name: [" ".join(str(layout) for layout in variant.layouts) for variant in found]
        for name, found in variants.items()  # type: ignore[attr-defined]
    }


def branch(bench: Bench) -> Graph:
    """A fixed node, an open one, and behind a Rename one that wants a layout of its own."""
    g = Graph("branch")
    stem = mix(bench, "NCHW NCHW", g.input("x", IMAGE), graph=g, name="stem")
    free = mix(bench, "ANY ANY", stem, graph=g, name="free")
    named = g.add(Rename((("C", "K"),)), free, name="renamed")
    g.output(mix(bench, "NKHW4k NKHW", named, graph=g, name="end"))
    return g.seal()


def test_a_layout_from_behind_a_rename_is_tried_before_it(bench: Bench) -> None:
    found = texts(shared_variants(resolve(branch(bench))))
    assert found["stem"] == ["NCHW NCHW"]
    assert set(found["free"]) == {"NCHW NCHW", "NHWC NHWC", "NCHW4c NCHW4c"}
    assert "NCHW4c NKHW4k" in found["renamed"]


def test_what_the_library_declines_is_no_row(bench: Bench) -> None:
    handlers.refusal = lambda call, row: "no" if "4c" in str(row[0]) else None
    found = texts(shared_variants(resolve(branch(bench))))
    assert set(found["free"]) == {"NCHW NCHW", "NHWC NHWC"}


@pytest.mark.parametrize(("channels", "blocked"), [(6, False), (8, True)])
def test_the_papers_candidates_of_a_broadcast(bench: Bench, channels: int, blocked: bool) -> None:
    """A row of 6 channels has no form in blocks of 4; 8 channels have."""
    sizes = {"x": {"N": 2, "C": channels, "H": 3, "W": 3}, "row": {"C": channels}}
    nodes = ("plain: x NCHW NCHW", "blocks: x NCHW NCHW4c", "sum: plain blocks row ANY ANY ANY ANY")
    found = texts(paper_variants(resolve(mixes(*nodes, **sizes))))
    assert ("NCHW4c NCHW4c C4c NCHW4c" in found["sum"]) is blocked
    assert {variant.split()[0] for variant in found["sum"]} >= {"NCHW", "NHWC"}


def test_only_who_wants_variants_has_them_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A library has them looked through for that, which takes longer than all else it says."""
    g = Graph("one")
    x = g.input("x", {"N": 1, "C": 16, "H": 14, "W": 14})
    w = g.constant(np.ones((32, 16, 3, 3), np.float32), "O I h w")
    g.output(g.add(Conv2D(), x, w), "y")
    resolved = extend(resolve(simplify(g.seal())))
    [node] = resolved.bare.operators
    listed, real = list[str](), Convolution.variants

    def seen(routine: Convolution, call: Call) -> Iterable[Variant]:
        listed.append(call.node)
        return real(routine, call)

    monkeypatch.setattr(Convolution, "variants", seen)
    prober = Prober(resolved)
    prober.takes(node, node.variant)
    assert prober.heavy(node)
    assert listed == []
    assert prober.variants(node)
    assert listed == [node.name]


def test_a_prober_lends_its_answers_to_the_next(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = resolve(branch(bench))
    free = next(node for node in graph.operators if node.name == "free")
    asked, real = list[str](), run_compute

    def counted(ctx: Context, op: object, inputs: Sequence[VTensor]) -> tuple[VTensor, ...]:
        asked.append(ctx.node)
        return real(ctx, op, inputs)

    monkeypatch.setattr("resolver.probe.run_compute", counted)
    first = Prober(graph)
    said = first.decide(free, [Layout("NHWC")]), first.takes(free, free.variant)
    assert asked
    asked.clear()
    second = Prober(graph, first)
    assert said == (second.decide(free, [Layout("NHWC")]), second.takes(free, free.variant))
    assert asked == []
    assert Prober(graph).takes(free, free.variant) == said[1]
    assert asked
