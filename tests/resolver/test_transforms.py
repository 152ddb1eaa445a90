"""Who runs a Transform, and why it exists."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from libdesc import register
from libdesc.numpy import handlers as numpy_handlers
from ptensor import Layout, PTensor, lib_tagger
from resolver.evaluate import resolve
from resolver.explain import explain_transforms
from resolver.extend import extend
from resolver.lowered import TransformNode
from tests.libraries.bench import Bench, message, where
from vtensor.errors import NoInvokerError
from vtensor.language.graph import Graph
from vtensor.runtime.planning.library_options import preferences_of
from vtensor.runtime.session import Session

SIX = np.arange(6, dtype=np.float32).reshape(2, 3)


def library(at: Path, name: str, priority: int, names: str = "NC CN", how: str = "") -> None:
    """Register a library that knows these layouts and, with ``how``, transforms in Python."""
    words = "".join(f'{layout} = "{layout.lower()}"\n' for layout in names.split())
    (at / f"{name}.toml").write_text(
        f'[library]\nname = "{name}"\npriority = {priority}\ndevices = ["cpu"]\npython = true\n'
        + (f'transformer = "{how}"\n' if how else "")
        + f"[layout_names]\n{words}",
        encoding="utf-8",
    )
    register(at / f"{name}.toml")


HOW = "libdesc.numpy.handlers:transform"


def invoke(bench: Bench, op: str, name: str, layout: str) -> Any:
    """Let a library take an operator in one layout."""

    def function(ctx: Any, op: Any, x: Any, y: Any) -> None:
        src = PTensor(x)
        src.require(layout)  # here
        dst = PTensor(y).require(layout)
        if lib_tagger(name, [src], [dst]):
            return
        dst.data()[...] = src.data()

    bench.invoker(op, library=name)(function)
    return function


def two_nodes(bench: Bench) -> Graph:
    """Toy in CN made by ``first``, Scale in NC run by ``second``."""
    from vtensor.language.operators import Context, operator
    from vtensor.language.tensor import VTensor

    @operator("After", dims={"x": "*", "y": "*"})
    class After:
        def compute(self, ctx: Context, x: VTensor) -> VTensor:
            y = VTensor(x.dtype, x.dims, ctx.output(0))
            ctx.dispatch(self, [x], [y])
            return y

    g = Graph("two")
    toy = g.add(bench.op("Toy"), g.input("x", {"N": 2, "C": 3}), name="toy")
    g.output(g.add(After(), toy, name="after"), "y")
    return g.seal()


def between(graph: Graph, libraries: Sequence[str] | None = None) -> TransformNode:
    """The Transform between the two nodes."""
    extended = extend(resolve(graph, preferences=preferences_of(libraries)))
    [node] = [n for n in extended.transforms() if n.input == "toy"]
    return node


def test_the_consumers_library(bench: Bench, tmp_path: Path) -> None:
    library(tmp_path, "first", 90, how=HOW)
    library(tmp_path, "second", 10, how=HOW)
    graph = two_nodes(bench)
    invoke(bench, "Toy", "first", "CN")
    invoke(bench, "After", "second", "NC")
    assert between(graph).library == "second"


@pytest.mark.parametrize("names", ["NC", "CN"])
def test_else_the_producers(bench: Bench, tmp_path: Path, names: str) -> None:
    """The consumer's has no word for one of the two layouts."""
    library(tmp_path, "first", 10, how=HOW)
    library(tmp_path, "second", 90, names=names, how=HOW)
    graph = two_nodes(bench)
    invoke(bench, "Toy", "first", "CN")
    invoke(bench, "After", "second", "NC")
    assert between(graph).library == "first"


def test_else_by_priority(bench: Bench, tmp_path: Path) -> None:
    """Neither has a transformer; ``toy`` (50) goes before ``low`` (40) and numpy (0)."""
    library(tmp_path, "first", 99)
    library(tmp_path, "second", 98)
    library(tmp_path, "low", 40, how=HOW)
    graph = two_nodes(bench)
    invoke(bench, "Toy", "first", "CN")
    invoke(bench, "After", "second", "NC")
    assert between(graph).library == "toy"
    assert between(graph, ["first", "second", "low", "toy"]).library == "low"


def test_else_the_definition(bench: Bench, tmp_path: Path) -> None:
    library(tmp_path, "first", 99)
    library(tmp_path, "second", 98, names="CN", how=HOW)
    graph = two_nodes(bench)
    invoke(bench, "Toy", "first", "CN")
    invoke(bench, "After", "second", "NC")
    assert between(graph, ("first", "second")).library == "numpy"
    with Session(graph, libraries=("first", "second")) as session:
        np.testing.assert_array_equal(session.run(None, {"x": SIX})[0], SIX)
        [step] = [s for s in session.plan.steps if s.is_transform and s.node.inputs == ("toy",)]
        assert (step.library, step.python, step.op) == ("numpy", True, "Transform")
        assert step.unlisted


def test_a_library_that_declines_a_transform(bench: Bench, tmp_path: Path) -> None:
    """Its ``confirm`` says no: the next one runs it."""
    from tests.libraries.toy import handlers

    handlers.refusal = lambda call, row: "tired" if call.op_name == "Transform" else None
    graph = two_nodes(bench)
    invoke(bench, "Toy", "toy", "CN")
    invoke(bench, "After", "toy", "NC")
    node = between(graph, ("toy",))
    assert node.library == "numpy"


def test_an_absent_library_transforms_nothing(bench: Bench, tmp_path: Path) -> None:
    from libdesc.registry import registry

    graph = two_nodes(bench)
    invoke(bench, "Toy", "numpy", "CN")
    invoke(bench, "After", "numpy", "NC")
    assert between(graph, ("numpy",)).library == "numpy"
    library(tmp_path, "first", 99, how=HOW)
    bench.invoker("After", library="first")(
        invoke_as("first", "NC")  # now the consumer's library
    )
    assert between(graph).library == "first"
    registry().libraries["toy"].absent = registry().libraries["first"].absent = "gone"
    assert between(graph, ("numpy",)).library == "numpy"


def invoke_as(name: str, layout: str) -> Any:
    """An invoker in one layout."""

    def function(ctx: Any, op: Any, x: Any, y: Any) -> None:
        lib_tagger(name, [PTensor(x).require(layout)], [PTensor(y).require(layout)])

    return function


def test_nobody_can(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    from libdesc.registry import registry

    for name in registry().libraries:
        monkeypatch.setattr(registry().libraries[name], "absent", "gone")
    monkeypatch.setattr(registry().libraries["toy"], "absent", "")
    from tests.libraries.toy import handlers

    handlers.refusal = lambda call, row: "tired" if call.op_name == "Transform" else None
    graph = two_nodes(bench)
    invoke(bench, "Toy", "toy", "CN")
    invoke(bench, "After", "toy", "NC")
    assert message(NoInvokerError, lambda: extend(resolve(graph))) == (
        "no library transforms f32 N=2 C=3 from NC to CN: toy: NC CN: tired"
    )


def test_reasons(bench: Bench) -> None:
    """Who asked, at which line, and who had something else."""
    graph = two_nodes(bench)
    toy, after = invoke(bench, "Toy", "toy", "CN"), invoke(bench, "After", "numpy", "NC")
    extended = extend(resolve(graph), {"y": bench.decide().layouts[0]})
    assert [str(node.reason) for node in extended.transforms()] == [
        f"Toy toy (toy) requires it of x at {where(toy, 'here')}, x has another",
        f"After after (numpy) requires it of x at {where(after, 'here')}, Toy toy has another",
        "output y is delivered in a layout that After after does not have",
    ]


def test_what_nobody_required_is_not_said_to_be_required(bench: Bench) -> None:
    graph = two_nodes(bench)
    invoke(bench, "Toy", "toy", "CN")
    after = invoke(bench, "After", "toy", "ANY")
    resolution = resolve(graph)
    [first, second] = resolution.operators
    row = (Layout("NC"), Layout("NC"))
    moved = replace(second, variant=second.variant.lying(row))
    extended = extend(replace(resolution, nodes=[first, moved]))
    _, transform, _ = extended.transforms()
    assert str(transform.reason) == (
        f"After after (toy) takes it as x, for which ANY was asked at {where(after, 'here')}, "
        "Toy toy has another"
    )
    rows = explain_transforms(extended)
    asked = {row["node"]: row["required_by"][0]["asked"] for row in rows}
    assert [asked[node.name] for node in extended.transforms()] == [["CN"], ["ANY"], []]


def test_conversions(bench: Bench) -> None:
    graph = two_nodes(bench)
    invoke(bench, "Toy", "toy", "C8cN")
    invoke(bench, "After", "toy", "NC")
    with Session(graph) as session:
        rows = [
            (c.value, str(c.source), str(c.target), c.bytes, c.library) for c in session.conversions
        ]
        assert [c.reasons[0] for c in session.conversions] == [
            node.reason for node in session.plan.graph.transforms()
        ]
    padded = 8 * 2 * 4
    assert rows == [
        ("x", "NC", "C8cN", 24 + padded, "toy"),
        ("toy", "C8cN", "NC", padded + 24, "toy"),
    ]


def test_a_recorded_transform_runs_each_time(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """A constant's runs once, while the plan is made."""
    from libdesc.registry import registry

    runs: list[tuple[str, str]] = []

    def counting(source: PTensor, target: PTensor, permutation: tuple[int, ...]) -> None:
        runs.append((str(source.required_layout), str(target.required_layout)))
        assert permutation == (1, 0)
        numpy_handlers.transform(source, target, permutation)

    monkeypatch.setitem(registry().libraries["toy"].code, "transformer_handler", counting)

    @bench.invoker("Pair")
    def add(ctx: Any, op: Any, a: Any, b: Any, y: Any) -> None:
        left, right, dst = (PTensor(t).require("CN") for t in (a, b, y))
        if lib_tagger("toy", [left, right], [dst]):
            return
        np.add(left.data(), right.data(), out=dst.data())

    g = Graph("ahead")
    w = g.constant(10 * SIX, "N C", "w")
    g.output(g.add(bench.op("Pair"), g.input("x", {"N": 2, "C": 3}), w, name="p"), "y")
    with Session(g) as session:
        assert runs == [("NC", "CN")]
        for count in (1, 2):
            [y] = session.run(None, {"x": SIX})
            np.testing.assert_array_equal(y, 11 * SIX)
            assert runs == [("NC", "CN")] + count * [("NC", "CN"), ("CN", "NC")]
