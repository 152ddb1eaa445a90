"""Which library runs a Transform, and why it exists."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from libdesc import register
from libdesc.numpy import handlers as numpy_handlers
from libdesc.registry import registry
from ptensor import Layout, PTensor, lib_tagger
from resolver.evaluate import resolve
from resolver.explain import explain_transforms
from resolver.extend import extend
from resolver.lowered import TransformNode
from tests.contract.invokers import copying
from tests.libraries.bench import Bench, message, where
from tests.libraries.toy import handlers
from vtensor.errors import NoInvokerError
from vtensor.language.graph import Graph
from vtensor.language.operators import Context, operator
from vtensor.language.tensor import VTensor
from vtensor.runtime.planning.library_options import preferences_of
from vtensor.runtime.session import Session

SIX = np.arange(6, dtype=np.float32).reshape(2, 3)


def library(at: Path, name: str, priority: int, *, able: bool = True, names: str = "NC CN") -> None:
    """Register a library that knows these layouts and, if it is able, transforms in Python."""
    words = "".join(f'{layout} = "{layout.lower()}"\n' for layout in names.split())
    (at / f"{name}.toml").write_text(
        f'[library]\nname = "{name}"\npriority = {priority}\ndevices = ["cpu"]\npython = true\n'
        + 'transformer = "libdesc.numpy.handlers:transform"\n' * able
        + f"[layout_names]\n{words}",
        encoding="utf-8",
    )
    register(at / f"{name}.toml")


def two_nodes(bench: Bench, toy: Any, after: Any) -> Graph:
    """Nodes ``toy`` and ``after``, each on a library in a layout, or on its own invoker."""

    @operator("After", dims={"x": "*", "y": "*"})
    class After:
        def compute(self, ctx: Context, x: VTensor) -> VTensor:
            y = VTensor(x.dtype, x.dims, ctx.output(0))
            ctx.dispatch(self, [x], [y])
            return y

    for op, (name, layout) in (("Toy", toy), ("After", after)):
        invoker = copying(name, layout, layout) if isinstance(layout, str) else layout
        bench.invoker(op, library=name)(invoker)
    g = Graph("two")
    value = g.add(bench.op("Toy"), g.input("x", {"N": 2, "C": 3}), name="toy")
    g.output(g.add(After(), value, name="after"), "y")
    return g.seal()


def between(graph: Graph, libraries: Sequence[str] | None = None) -> TransformNode:
    """The Transform between the two nodes."""
    extended = extend(resolve(graph, preferences=preferences_of(libraries)))
    [node] = [n for n in extended.transforms() if n.input == "toy"]
    return node


@pytest.mark.parametrize(
    ("first", "second", "names", "libraries", "runs_it"),
    [
        ((90, True), (10, True), "NC CN", None, "second"),  # the consumer's library
        ((10, True), (90, True), "NC", None, "first"),  # it has no word for one: the producer's
        ((10, True), (90, True), "CN", None, "first"),
        ((99, False), (98, False), "NC CN", None, "toy"),  # neither is able: by priority
        ((99, False), (98, False), "NC CN", ["first", "second", "low", "toy"], "low"),
        ((99, False), (98, True), "CN", ["first", "second"], "numpy"),  # the definition
    ],
)
def test_a_transform_is_run_by_its_consumers_library_or_the_next_that_can(
    bench: Bench,
    tmp_path: Path,
    first: tuple[int, bool],
    second: tuple[int, bool],
    names: str,
    libraries: list[str] | None,
    runs_it: str,
) -> None:
    """``toy`` has priority 50, ``low`` 40, numpy 0."""
    library(tmp_path, "first", first[0], able=first[1])
    library(tmp_path, "second", second[0], able=second[1], names=names)
    library(tmp_path, "low", 40)
    graph = two_nodes(bench, ("first", "CN"), ("second", "NC"))
    assert between(graph, libraries).library == runs_it
    if runs_it != "numpy":
        return
    with Session(graph, libraries=libraries) as session:
        np.testing.assert_array_equal(session.run(None, {"x": SIX})[0], SIX)
        [step] = [s for s in session.plan.steps if s.is_transform and s.node.inputs == ("toy",)]
        assert (step.library, step.python, step.op) == ("numpy", True, "Transform")
        assert step.unlisted


def test_equal_transforms_run_each_on_its_own_consumers_library(
    bench: Bench, tmp_path: Path
) -> None:
    rows = []
    for name in ("first", "second"):
        library(tmp_path, name, 60)
        rows.append((name, copying(name, "CN", "NC")))
    extended = extend(resolve(two_nodes(bench, *rows)))
    assert [node.library for node in extended.transforms()] == ["first", "second"]


def test_a_library_that_declines_or_is_absent_transforms_nothing(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library(tmp_path, "first", 99)
    graph = two_nodes(bench, ("toy", "CN"), ("toy", "NC"))
    handlers.refusal = lambda call, row: "tired" if call.op_name == "Transform" else None
    assert between(graph, ("toy",)).library == "numpy"
    assert between(graph).library == "first"
    monkeypatch.setattr(registry().libraries["first"], "absent", "gone")
    assert between(graph).library != "first"
    for name in registry().libraries.keys() - {"toy"}:
        monkeypatch.setattr(registry().libraries[name], "absent", "gone")
    assert message(NoInvokerError, lambda: extend(resolve(graph))) == (
        "no library transforms f32 N=2 C=3 from NC to CN: toy: NC CN: tired"
    )


def asking(name: str, layout: str) -> Any:
    """An invoker whose requirement of x has a place of its own."""

    def function(ctx: Any, op: Any, x: Any, y: Any) -> None:
        src = PTensor(x)
        src.require(layout)  # here
        lib_tagger(name, [src], [PTensor(y).require(layout)])

    return function


def test_a_reason_says_which_node_asked_where_and_what_had_another_layout(bench: Bench) -> None:
    toy, after = asking("toy", "CN"), asking("numpy", "NC")
    graph = two_nodes(bench, ("toy", toy), ("numpy", after))
    extended = extend(resolve(graph), {"y": Layout("CN")})
    assert [str(node.reason) for node in extended.transforms()] == [
        f"Toy toy (toy) requires this layout of x ({where(toy, 'here')}); x has another",
        f"After after (numpy) requires this layout of x ({where(after, 'here')}); "
        "Toy toy has another",
        "output y is delivered in a layout that After after does not have",
    ]


def test_what_nobody_required_is_not_said_to_be_required(bench: Bench) -> None:
    after = asking("toy", "ANY")
    resolution = resolve(two_nodes(bench, ("toy", asking("toy", "CN")), ("toy", after)))
    [first, second] = resolution.operators
    moved = replace(second, variant=second.variant.lying((Layout("NC"), Layout("NC"))))
    extended = extend(replace(resolution, nodes=[first, moved]))
    _, transform, _ = extended.transforms()
    assert str(transform.reason) == (
        "After after (toy) takes x in this layout, though any is allowed "
        f"({where(after, 'here')}); Toy toy has another"
    )
    rows = explain_transforms(extended)
    asked = {row["node"]: row["required_by"][0]["asked"] for row in rows}
    assert [asked[node.name] for node in extended.transforms()] == [["CN"], ["ANY"], []]


def test_conversions_say_what_each_transform_moves(bench: Bench) -> None:
    with Session(two_nodes(bench, ("toy", "C8cN"), ("toy", "NC"))) as session:
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
