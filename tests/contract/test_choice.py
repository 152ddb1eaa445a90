"""A session's libraries, in its order, and its pins: who takes a node, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from libdesc import Decline, register
from libdesc.registry import registry
from ptensor import PTensor, lib_tagger
from resolver.evaluate import resolve
from tests.contract.invokers import copying
from tests.libraries.bench import HERE, SIZES, Bench, message, unused
from vtensor.errors import InputError, NoInvokerError
from vtensor.language.graph import Graph
from vtensor.report import notes, plan_dict, plan_lines
from vtensor.runtime.planning.library_options import preferences_of
from vtensor.runtime.session import Session

ADDED = {"toy": 50, "other": 30, "numpy": 0}


@pytest.fixture
def three(bench: Bench) -> Bench:
    """``Toy`` on toy (50), other (30) and numpy (0); each adds its priority."""
    register(HERE / "other")
    for library, number in ADDED.items():
        bench.invoker(library=library)(copying(library, plus=number))
    return bench


def odd(ctx: Any, op: Any, x: Any, y: Any) -> None:
    raise Decline("C is odd")


def chain(bench: Bench) -> Graph:
    """first (Toy), then second (Toy)."""
    graph = Graph("chain")
    first = graph.add(bench.op("Toy"), graph.input("x", SIZES), name="first")
    graph.output(graph.add(bench.op("Toy"), first, name="second"), "y")
    return graph.seal()


def taken(graph: Graph, **options: Any) -> list[str]:
    """The library of each node; what the session computes is what these libraries add."""
    with Session(graph, **options) as session:
        libraries = [step.library for step in session.plan.steps if not step.is_transform]
        [y] = session.run(None, {"x": np.zeros(tuple(SIZES.values()), np.float32)})
    assert (y == sum(ADDED[library] for library in libraries)).all()
    return libraries


@pytest.mark.parametrize(
    ("libraries", "first"),
    [
        *((None, "toy"), (["other", "toy"], "other"), (["numpy", "toy"], "numpy")),
        *((["toy", "numpy"], "toy"), ("other", "other"), (["onednn", "other", "toy"], "other")),
    ],
)
def test_the_sessions_order_is_the_order_of_trial(three: Bench, libraries: Any, first: str) -> None:
    assert taken(chain(three), libraries=libraries) == [first, first]


def test_the_order_goes_before_an_invokers_own_priority(three: Bench) -> None:
    three.invoker("Pair", priority=99)(unused)

    @three.invoker("Pair", library="other")
    def pair(ctx: Any, op: Any, *operands: Any) -> None:
        a, b, y = map(PTensor, operands)
        lib_tagger("other", [a, b], [y])

    resolution = resolve(three.graph("Pair"), preferences=preferences_of(["other", "toy"]))
    [node] = resolution.operators
    assert (node.variant.library, node.variant.refused) == ("other", ())


def test_numpy_takes_what_no_listed_library_takes(bench: Bench) -> None:
    register(HERE / "other")
    bench.invoker()(odd)
    bench.invoker(library="other")(copying("other"))
    bench.invoker(library="numpy")(copying("numpy"))
    with Session(chain(bench), libraries=["toy"]) as session:
        steps = session.plan.steps
        assert [(step.library, step.unlisted) for step in steps] == [("numpy", True)] * 2
        refused = [(one.library, one.reason) for one in steps[0].node.variant.refused]  # type: ignore[union-attr]
    unlisted = "not among this session's libraries (toy)"
    assert refused == [("toy", "C is odd"), ("other", unlisted)]


def test_plans_mark_what_numpy_takes_unlisted(three: Bench) -> None:
    def shown(session: Session) -> tuple[list[bool], str, list[str]]:
        rows = [step["unlisted"] for step in plan_dict(session, "")["steps"]]
        return rows, "\n".join(line.text for line in plan_lines(session, "")), notes(session.plan)

    with Session(chain(three), libraries=["onednn"], pin={"second": "numpy"}) as session:
        marks, text, said = shown(session)
    assert marks == [True, False]  # what is pinned there is no surprise
    assert text.count("numpy (not listed)") == 1
    assert said == ["nodes on numpy, since no listed library takes them: 1 x Toy"]
    assert said[0] in text
    for libraries in (None, ["numpy"]):
        with Session(chain(three), libraries=libraries) as session:
            marks, text, said = shown(session)
        assert (any(marks), "not listed" in text, said) == (False, False, [])


@pytest.mark.parametrize(
    ("pin", "wanted"),
    [
        ({"Toy": "other"}, ["other", "other"]),
        ({"second": "numpy"}, ["toy", "numpy"]),
        ({"Toy": "other", "first": "toy"}, ["toy", "other"]),
        ({"first": "toy", "Toy": "other"}, ["toy", "other"]),
    ],
)
@pytest.mark.parametrize("libraries", [None, ["toy"]])
def test_pins(three: Bench, pin: dict[str, str], libraries: Any, wanted: list[str]) -> None:
    """Of a node before those of its operator, and also outside of what is listed."""
    assert taken(chain(three), libraries=libraries, pin=pin) == wanted


def test_a_key_that_is_an_operator_and_a_node_is_the_operator(three: Bench) -> None:
    graph = Graph("both")
    first = graph.add(three.op("Toy"), graph.input("x", SIZES), name="Mix")
    graph.output(graph.add(three.op("Mix", ("NC", "NC")), first, name="last"), "y")
    resolution = resolve(
        graph.seal(), preferences=preferences_of(pin={"Mix": "toy", "Toy": "other"})
    )
    assert [node.variant.library for node in resolution.operators] == ["other", "toy"]


def test_a_pinned_library_that_declines(bench: Bench) -> None:
    """Nobody else is tried."""
    bench.invoker()(odd)
    bench.invoker(library="numpy")(unused)
    assert message(NoInvokerError, lambda: Session(bench.graph(), pin={"Toy": "toy"})) == (
        "Toy 'toy': pinned to toy, which does not take this call on cpu\n"
        "  x : N=2 C=3   f32\n"
        "  y : N=2 C=3   f32\n"
        "  tried, by priority:\n"
        "     50 toy   : C is odd\n"
        "      0 numpy : pinned to toy\n"
        "  to fix: pin it to another library or to none, or cast the operands"
    )


NOT_REGISTERED = " is not registered; registered are "
EXCLUDED = "onnx_reference is excluded from this session (reference=False)"
PINS = "pin='Toy' is no {operator or node: library}"
ELSEWHERE = "onednn has no invoker of Toy on cpu; these have one: numpy, other, toy"
NOWHERE = """pin 'third': neither an operator nor a node of 'chain'
  operators there: Toy
  nodes there: first, second"""
IMPOSSIBLE: list[tuple[dict[str, Any], str]] = [
    ({"pin": {"Toy": "cudnn"}}, f"pin 'Toy': cudnn{NOT_REGISTERED}eigen, "),
    ({"pin": {"first": "cudnn"}}, f"pin 'first': cudnn{NOT_REGISTERED}"),
    ({"pin": {"first": 3}}, f"pin 'first': 3{NOT_REGISTERED}"),
    ({"pin": {"first": []}}, f"pin 'first': []{NOT_REGISTERED}"),
    ({"pin": {3: "toy"}}, "pin 3: no name of an operator or a node"),
    ({"pin": "Toy"}, PINS),
    ({"pin": [("Toy", "toy")]}, PINS.replace("'Toy'", "[('Toy', 'toy')]")),
    ({"pin": {"Toy": "onednn"}}, f"pin 'Toy': {ELSEWHERE}"),
    ({"pin": {"second": "onednn"}}, f"pin 'second': {ELSEWHERE}"),
    ({"pin": {"third": "toy"}}, NOWHERE),
    ({"pin": {"Toy": "onnx_reference"}, "reference": False}, f"pin 'Toy': {EXCLUDED}"),
    ({"libraries": ["toy", "onnx_reference"], "reference": False}, f"libraries: {EXCLUDED}"),
    ({"libraries": [[]]}, f"libraries: []{NOT_REGISTERED}"),
]


@pytest.mark.parametrize(("options", "text"), IMPOSSIBLE)
def test_impossible_choices(
    three: Bench, options: dict[str, Any], text: str, resolutions: list[str]
) -> None:
    """Said before anything is resolved."""
    graph, before = chain(three), len(resolutions)
    assert message(InputError, lambda: Session(graph, **options)).startswith(text)
    assert len(resolutions) == before


@pytest.mark.parametrize("options", [{"libraries": ["toy"]}, {"pin": {"Toy": "toy"}}])
def test_absent_libraries(
    three: Bench, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]
) -> None:
    monkeypatch.setattr(registry().libraries["toy"], "absent", "no such processor")
    text = message(InputError, lambda: Session(chain(three), **options))
    what = "libraries:" if "libraries" in options else "pin 'Toy':"
    assert text.startswith(f"{what} toy cannot be used here (no such processor); these can: ")
    assert "other" in text


def test_nodes_are_looked_for_when_their_graph_comes(three: Bench) -> None:
    graph = Graph("open")
    graph.output(graph.add(three.op("Toy"), graph.input("x", {"N": None}), name="only"), "y")
    with Session(graph.seal(), pin={"nobody": "toy"}) as session:
        text = message(InputError, lambda: session.run(None, {"x": np.zeros(3, np.float32)}))
    assert text.startswith("pin 'nobody': neither an operator nor a node of 'open'\n")
