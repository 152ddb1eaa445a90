"""Priorities, ``first=``, declining, and a session's order and pins: which library has a call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from libdesc import Decline, guideline, register
from libdesc.preferences import EVERY, Preferences
from libdesc.registry import registry
from libdesc.schema import Description
from ptensor import Layout, PTensor, lib_tagger
from resolver.evaluate import resolve
from tests.contract.invokers import copying, tagging
from tests.libraries.bench import HERE, SIZES, Bench, message, unused, where
from tests.libraries.toy import handlers
from vtensor.errors import ContractError, InputError, InvokerError, NoInvokerError
from vtensor.language.graph import Graph
from vtensor.report import notes, plan_dict, plan_lines
from vtensor.runtime.planning.library_options import preferences_of
from vtensor.runtime.session import Session

CONDITION = "the condition of its invoker does not hold"
DTYPES = "dtype f32 of x is not among bf16, f16"


@pytest.fixture
def two(bench: Bench) -> Bench:
    """A second library, ``other``, of lower priority (30), that takes everything in CN."""
    register(HERE / "other")
    bench.invoker(library="other")(copying("other", "CN", "CN"))
    return bench


@pytest.mark.parametrize(
    ("options", "library"),
    [
        ({}, "toy"),
        ({"priority": 29}, "other"),  # an invoker's priority goes before its library's
        ({"priority": 30}, "other"),  # the name decides a tie
        ({"when": lambda op, x, y: True}, "toy"),
        ({"when": lambda op, x, y: np.True_}, "toy"),
        ({"dtypes": {"x": ["f32"], "y": ["f32"]}}, "toy"),
    ],
)
def test_the_larger_priority_is_first(two: Bench, options: dict[str, Any], library: str) -> None:
    two.invoker(library="missing")(unused)  # which is not registered, and so not tried
    two.invoker(**options)(copying())
    variant = two.decide()
    assert (variant.library, variant.refused) == (library, ())


def even(op: Any, x: Any, y: Any) -> str:
    assert (type(op).__name__, x.dims, y.dims) == ("Toy", SIZES, SIZES)
    return "N is even"


def picky(ctx: Any, op: Any, x: Any, y: Any) -> None:
    PTensor(x).require("NC")
    raise Decline("C is odd")


def asking(ctx: Any, op: Any, x: Any, y: Any) -> None:
    PTensor(x).require(guideline("toy", PTensor(y)))


#: Options of an invoker, the invoker, and why its call is declined.
DECLINED: dict[str, tuple[dict[str, Any], Callable[..., Any], str]] = {
    "a condition": ({"when": lambda op, x, y: False}, unused, CONDITION),
    "a condition of NumPy": ({"when": lambda op, x, y: np.False_}, unused, CONDITION),
    "a condition with a reason": ({"when": even}, unused, "N is even"),
    "a condition with an empty reason": ({"when": lambda op, x, y: ""}, unused, CONDITION),
    "element types": ({"dtypes": ["bf16", "f16"]}, unused, DTYPES),
    "element types of an operand": ({"dtypes": {"x": ["f16", "bf16"]}}, unused, DTYPES),
    "the invoker": ({}, picky, "C is odd"),
    "the guideline": ({}, asking, "no kernel for this size"),
    "the guideline of what is never required": ({}, tagging, "no kernel for this size"),
    "confirm": ({}, copying(), "NC NC: only on Sundays"),
}


@pytest.mark.parametrize("case", DECLINED)
def test_a_call_is_declined_with_its_reason(two: Bench, case: str) -> None:
    def answer(call: Any) -> Any:
        raise Decline("no kernel for this size")

    options, invoker, reason = DECLINED[case]
    handlers.answer, handlers.refusal = answer, lambda call, row: "only on Sundays"
    two.invoker(**options)(invoker)
    refused = [(r.priority, r.library, r.reason) for r in two.decide().refused]
    assert refused == [(50, "toy", reason)]


def test_an_attempt_that_declines_leaves_nothing_behind(bench: Bench) -> None:
    """The PTensors, requirements and guideline of one attempt are unknown to the next."""
    register(HERE / "other")
    handlers.answer = lambda call: {0: Layout("NC4c")}

    @bench.invoker()
    def fickle(ctx: Any, op: Any, x: Any, y: Any) -> None:
        src, dst = PTensor(x).require("NC8c"), PTensor(y).require("NC8c")
        assert guideline("toy", src) == Layout("NC4c")
        assert dst.required_layout == Layout("NC8c")
        raise Decline("changed its mind")

    @bench.invoker(library="other")
    def calm(ctx: Any, op: Any, x: Any, y: Any) -> None:
        src, dst = PTensor(x), PTensor(y)
        assert src.required_layout.is_any
        assert guideline("other", src).is_any  # type: ignore[union-attr]
        lib_tagger("other", [src], [dst.require("CN")])

    variant = bench.decide()
    assert [str(layout) for layout in variant.layouts] == ["NC", "CN"]
    assert [r.reason for r in variant.refused] == ["changed its mind"]


def test_a_call_that_no_library_takes_is_an_error_with_every_reason(two: Bench) -> None:
    """The whole text: operands a line each, attempts by priority, what to do."""
    two.invoker(dtypes=["bf16"])(unused)
    graph = Graph("bench")
    x = graph.input("x", {"N": 8, "C": 3, "H": 224, "W": 224})
    graph.output(graph.add(two.op("Toy"), x, name="conv1"))
    assert message(
        NoInvokerError, lambda: resolve(graph.seal(), preferences=preferences_of(["toy"]))
    ) == (
        "Toy 'conv1': no library can run this call on cpu\n"
        "  x : N=8 C=3 H=224 W=224   f32\n"
        "  y : N=8 C=3 H=224 W=224   f32\n"
        "  tried, in the session's order:\n"
        "     50 toy   : dtype f32 of x is not among bf16\n"
        "     30 other : not among this session's libraries (toy)\n"
        "  to fix: list more libraries, cast the operands, or register a library that takes them"
    )


def test_a_call_without_any_invoker_is_an_error(bench: Bench) -> None:
    assert message(NoInvokerError, bench.resolve) == (
        "Toy 'toy': no library can run this call on cpu\n"
        "  x : N=2 C=3   f32\n"
        "  y : N=2 C=3   f32\n"
        "  to fix: write an @invoker('Toy', library=..., device='cpu')"
    )


@pytest.mark.parametrize("python", [False, True])
def test_declining_during_a_run_is_an_error(two: Bench, python: bool) -> None:
    """The other library, which takes the call, is not tried."""
    evaluations: list[int] = []

    @two.invoker(python=python)
    def wavering(ctx: Any, op: Any, x: Any, y: Any) -> None:
        evaluations.append(1)
        if len(evaluations) > 1:
            raise Decline("not today")
        tagging(ctx, op, x, y)

    what = "declines during a run" if python else "declines what was decided"
    assert message(ContractError, two.run) == (
        f"Toy 'toy', toy invoker: {what}: not today ({where(wavering)})"
    )
    assert len(evaluations) == 2


# ``@invoker(first=..., before=...)``

WHY = "passed over: low says that it is faster here"


@pytest.fixture
def low(bench: Bench) -> Callable[..., None]:
    """Registers an invoker of ``low`` (1), with options, before that of ``toy``."""
    register(Description("low", 1, ("cpu",), python=True))
    bench.invoker()(copying())

    def register_low(**options: Any) -> None:
        bench.invoker(library="low", before=["toy"], **options)(copying("low"))

    return register_low


def decided(bench: Bench, preferences: Preferences = EVERY) -> tuple[str, list[tuple[str, str]]]:
    """Return the library of the call, and the others with the reason why not."""
    [node] = resolve(bench.graph(), preferences=preferences).operators
    refused = node.variant.refused
    return node.variant.library, [(refusal.library, refusal.reason) for refusal in refused]


def holds(op: Any, x: Any) -> Any:
    assert (type(op).__name__, x.dims) == ("Toy", SIZES)
    return True


def declines(op: Any, x: Any) -> bool:
    raise Decline("it has groups")


@pytest.mark.parametrize(
    ("options", "library"),
    [
        ({"first": holds}, "low"),
        ({"first": lambda op, x: np.True_}, "low"),
        ({"first": lambda op, x: False}, "toy"),
        ({"first": lambda op, x: np.False_}, "toy"),
        ({"first": declines}, "toy"),
        ({"first": holds, "dtypes": ["s32"]}, "toy"),  # it goes first only if it takes the call
    ],
)
def test_a_library_goes_first_where_its_condition_holds(
    bench: Bench, low: Any, options: dict[str, Any], library: str
) -> None:
    low(**options)
    assert decided(bench) == (library, [("toy", WHY)] if library == "low" else [])


@pytest.mark.parametrize(
    "preferences",
    [
        Preferences(order=("toy", "low")),
        Preferences(barred=("low",)),
        Preferences(operators={"Toy": "toy"}),
        Preferences(nodes={"toy": "toy"}),
    ],
)
def test_what_a_session_says_goes_before(bench: Bench, low: Any, preferences: Preferences) -> None:
    low(first=holds)
    assert decided(bench, preferences)[0] == "toy"


def test_an_absent_library_is_not_first(
    bench: Bench, low: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry().libraries["low"], "absent", "no such processor")
    low(first=unused)
    assert decided(bench) == ("toy", [])


def test_a_condition_of_going_first_that_raises_says_where(bench: Bench, low: Any) -> None:
    def first(op: Any, x: Any) -> bool:
        return bool(op.groups == 1)  # mark

    low(first=first)
    assert message(InvokerError, bench.resolve).splitlines() == [
        f"Toy 'toy', the condition ({where(first)}) under which low goes first: "
        f"AttributeError: 'Toy' object has no attribute 'groups' (at {where(first, 'mark')})",
        "  x : N=2 C=3   f32",
    ]


@pytest.mark.parametrize("answer", [None, "it has groups"])
def test_a_condition_of_first_answers_true_or_false(bench: Bench, low: Any, answer: Any) -> None:
    """A text declines elsewhere; here it would hold."""
    low(first=lambda op, x: answer)
    text = message(InvokerError, bench.resolve)
    assert f"under which low goes first: answers {answer!r}: it must return True or False" in text


@pytest.mark.parametrize("absent", [False, True])
def test_only_the_libraries_that_it_names_are_passed_over(
    bench: Bench, low: Any, absent: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another of higher priority that declines goes before them, unless it is absent."""
    register(Description("high", 90, ("cpu",), python=True))
    bench.invoker(library="high", when=lambda op, x, y: x.size("N") == 1)(copying("high"))
    if absent:
        monkeypatch.setattr(registry().libraries["high"], "absent", "no such processor")
    low(first=holds if absent else unused)
    expected = ("low", [("toy", WHY)]) if absent else ("toy", [("high", CONDITION)])
    assert decided(bench) == expected


# A session's libraries, in its order, and its pins

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
        refused = [(refusal.library, refusal.reason) for refusal in steps[0].node.variant.refused]  # type: ignore[union-attr]
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
def test_pins_bind(three: Bench, pin: dict[str, str], libraries: Any, wanted: list[str]) -> None:
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


def test_a_pinned_library_that_declines_is_an_error(bench: Bench) -> None:
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
def test_impossible_ones_are_refused(
    three: Bench, options: Any, text: str, resolutions: list[str]
) -> None:
    """Said before anything is resolved."""
    graph, before = chain(three), len(resolutions)
    assert message(InputError, lambda: Session(graph, **options)).startswith(text)
    assert len(resolutions) == before


@pytest.mark.parametrize("options", [{"libraries": ["toy"]}, {"pin": {"Toy": "toy"}}])
def test_absent_libraries_are_refused(
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
