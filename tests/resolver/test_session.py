"""Sessions: planned once, given arrays as they lie; wrong use is a typed error, nothing runs."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

from ptensor import PTensor, lib_tagger
from ptensor.layout import Layout
from tests.contract.invokers import copying
from tests.libraries.bench import Bench, message
from vtensor.errors import GraphError, InputError, LayoutError, NoInvokerError, SessionClosedError
from vtensor.language.graph import Graph
from vtensor.runtime.execution.processors import available_threads
from vtensor.runtime.session import Session
from vtensor.storage.inputs import layout_of

SHAPE = (2, 3, 4, 5)
DIMS = dict(zip("NCHW", SHAPE, strict=True))
ARRAY = np.arange(120, dtype=np.float32).reshape(SHAPE)
X, Z = "x : f32 N=2 C=3 H=4 W=5", "z : s32 K=3"


def nhwc(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The same values, lying in NHWC."""
    return np.ascontiguousarray(array.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)


@pytest.fixture
def graph(bench: Bench) -> Graph:
    """y = x + 1 in any layout, and z as it is."""
    g = Graph("session")
    x, z = g.input("x", DIMS), g.input("z", {"K": 3}, "s32")
    g.output(g.add(bench.op("Mix", ("ANY", "ANY")), x, name="plus"), "y")
    g.output(z, "same")
    return g.seal()


@pytest.fixture
def feeds() -> dict[str, Any]:
    return {"x": ARRAY, "z": np.array([1, 2, 3], np.int32)}


def test_a_layout_is_planned_once_and_its_arrays_are_not_copied(
    graph: Graph, feeds: dict[str, Any], resolutions: list[str]
) -> None:
    seen: list[Any] = []
    with Session(graph) as session:
        assert len(resolutions) == 1  # all sizes are known: planned at once
        first = session.plan
        record_inputs(first, seen)
        for _ in range(3):
            session.run(None, feeds)
        assert (len(resolutions), session.plan) == (1, first)
        strided = nhwc(ARRAY)
        [y, _] = session.run(None, feeds | {"x": strided})
        second = session.plan
        assert (len(resolutions), second is first) == (2, False)
        assert second.graph.values["x"].layout == Layout("NHWC")
        np.testing.assert_array_equal(y, ARRAY + 1)
        record_inputs(second, seen)
        session.run(None, feeds | {"x": strided})
        assert seen[-1] == strided.ctypes.data  # taken where it lies
        assert (len(resolutions), session.plan) == (2, second)
        session.run(None, feeds)
        assert seen[-1] == ARRAY.ctypes.data
        assert (len(resolutions), session.plan) == (2, first)


def record_inputs(plan: Any, seen: list[Any]) -> None:
    """Note the address of the memory that is bound to x."""
    storage = plan.placement.bound[0]

    class Watching(type(storage)):  # type: ignore[misc]
        __slots__ = ()

        def bind(self, buffer: Any) -> None:
            seen.append(buffer.memory.ctypes.data)
            super().bind(buffer)

    storage.__class__ = Watching


def unaligned(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """A copy that begins between two elements."""
    bytes_of = np.frombuffer(bytearray(array.nbytes + 1), np.uint8)[1:]
    copy: np.ndarray[Any, Any] = bytes_of.view(array.dtype).reshape(array.shape)
    copy[...] = array
    assert not copy.flags.aligned
    return copy


class Lends:
    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return ARRAY


class Exports:
    def __dlpack__(self, **options: Any) -> Any:
        return ARRAY.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return ARRAY.__dlpack_device__()


class Odd(np.ndarray[Any, Any]):
    """A subclass with a mind of its own."""

    def reshape(self, *args: Any, **named: Any) -> Any:
        raise AssertionError("a run does not ask a subclass")

    transpose = copy = reshape


WIDE, FROZEN, NAN = np.zeros((2, 3, 4, 10), np.float32), ARRAY.copy(), ARRAY * np.float32(np.nan)
WIDE[..., ::2] = ARRAY
FROZEN.flags.writeable = False
ODD: dict[str, Any] = {
    "gaps": WIDE[..., ::2],
    "another direction": ARRAY[:, :, ::-1].copy()[:, :, ::-1],
    "another alignment": unaligned(ARRAY),
    "read-only": FROZEN,
    "big-endian": ARRAY.astype(">f4"),
    "overlaps": np.broadcast_to(np.float32(7), SHAPE),
    "a row again and again": np.broadcast_to(ARRAY[:1], SHAPE),
    "no numbers": NAN,
    "subclass": ARRAY.view(Odd),
    "recarray": ARRAY.view(np.recarray),
    "list": ARRAY.tolist(),
    "__array__": Lends(),
    "DLPack": Exports(),
}


@pytest.mark.parametrize("case", ODD)
def test_arrays_of_every_kind_are_taken(graph: Graph, feeds: dict[str, Any], case: str) -> None:
    values = ARRAY if case in ("__array__", "DLPack") else np.asarray(ODD[case])
    with Session(graph) as session:
        plans = session._runner.open()
        [y, _] = session.run(None, feeds | {"x": ODD[case]})
        assert type(y) is np.ndarray
        np.testing.assert_array_equal(y, values + 1)
        assert len(plans) == 1


@pytest.mark.parametrize(
    ("array", "layout"),
    [
        (np.zeros((2, 3)), "NC"),
        (np.zeros((3, 2)).T, "CN"),
        (np.zeros((2, 6))[:, ::2], None),
        (np.zeros((2, 3))[::-1], None),
        (np.broadcast_to(np.zeros(3), (2, 3)), None),
        (np.zeros((0, 3)), "NC"),
        (np.zeros((3, 1)).T, "NC"),
        (np.frombuffer(bytes(33), np.uint8)[1:].view(np.float64).reshape(2, 2), None),
        (np.zeros((4, 5, 3))[None].transpose(0, 3, 1, 2), "NHWC"),
        (np.zeros((1, 4, 5, 3)).transpose(0, 3, 1, 2), "NHWC"),  # the stride of N says nothing
    ],
)
def test_a_layout_is_found_by_strides(array: Any, layout: str | None) -> None:
    seen = layout_of(array, "NCHW"[: array.ndim])
    assert (None if seen is None else str(seen)) == layout


def test_outputs_are_fresh(graph: Graph, feeds: dict[str, Any]) -> None:
    with Session(graph) as session:
        y, same = session.run(None, feeds)
        first = y.copy()
        again, _ = session.run(None, feeds | {"x": ARRAY + 5})
        np.testing.assert_array_equal(y, first)
        np.testing.assert_array_equal(again, ARRAY + 6)
        same[0] = 99
        assert feeds["z"][0] == 1


def test_outputs_may_be_chosen(graph: Graph, feeds: dict[str, Any]) -> None:
    with Session(graph) as session:
        same, y, again = session.run(["same", "y", "y"], feeds)
        np.testing.assert_array_equal(same, feeds["z"])
        for value in (y, again):
            np.testing.assert_array_equal(value, ARRAY + 1)
        assert len(session.run([], feeds)) == 2
        assert [str(port) for port in session.inputs] == [X, Z]
        assert [port.name for port in session.outputs] == ["y", "same"]


def test_input_layouts_are_planned(
    graph: Graph, feeds: dict[str, Any], resolutions: list[str]
) -> None:
    with Session(graph, input_layouts={"x": "NHWC"}) as session:
        assert session.plan.graph.values["x"].layout == Layout("NHWC")
        session.run(None, feeds | {"x": nhwc(ARRAY)})
        assert len(resolutions) == 1
        session.run(None, feeds)  # lies otherwise than was said: another plan
        assert len(resolutions) == 2


def test_output_layouts_are_those_of_the_arrays(graph: Graph, feeds: dict[str, Any]) -> None:
    with Session(graph, output_layouts={"y": "WHCN"}) as session:
        [y] = session.run(["y"], feeds)
    np.testing.assert_array_equal(y, ARRAY + 1)
    assert y.T.flags.c_contiguous


class Broken:
    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        raise ValueError("empty inside")


class Raises:
    """Its protocol fails in a way of its own."""

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        raise KeyError("planted")


class Consumed:
    """A DLPack capsule that is taken already."""

    def __init__(self) -> None:
        self.capsule = ARRAY.__dlpack__()
        np.from_dlpack(self)

    def __dlpack__(self, **options: Any) -> Any:
        return self.capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0


ALL_INPUTS = f". This network's inputs are\n  {X}\n  {Z}"
TYPES = (
    "f64, f32, f16, s64, s32, s16, s8, u64, u32, u16, u8, bool, c64, c128, bf16, f8e4m3fn, "
    "f8e4m3fnuz, f8e5m2, f8e5m2fnuz, f8e8m0, f6e2m3, f6e3m2, f4e2m1, s4, u4, s2, u2"
)
WRONG: dict[str, tuple[Callable[[dict[str, Any]], Any], str]] = {
    "missing": (lambda f: {"z": f["z"]}, f"inputs missing: x{ALL_INPUTS}"),
    "unknown": (lambda f: f | {"w": 1}, f"inputs unknown: w{ALL_INPUTS}"),
    "misspelt": (
        lambda f: {"X": f["x"], "z": f["z"]},
        f"inputs missing: x; unknown: X{ALL_INPUTS}",
    ),
    "no mapping": (lambda f: [f["x"]], "inputs are given as {name: array}, not as list"),
    "nothing": (lambda f: None, "inputs "),
    "no name": (lambda f: f | {3: 3}, "inputs "),
    "no array": (
        lambda f: f | {"z": {1, 2, 3}},
        "input 'z': set is no array; give a NumPy array or an object with __dlpack__ or __array__",
    ),
}
#: Arrays that are refused for x, and the error without ``input 'x': ``, or how it begins.
REFUSED: list[tuple[Any, str]] = [
    (ARRAY[0], f"rank 3 was given (shape (3, 4, 5)), wanted is {X}"),
    (ARRAY[:, :2], f"shape (2, 2, 4, 5) was given, wanted is {X}"),
    (
        ARRAY.astype(np.float64),
        f"element type f64 was given, wanted is {X}; to fix: array.astype('float32')",
    ),
    (
        ARRAY.astype("m8[s]"),
        f"no element type for NumPy's 'timedelta64[s]'; one of {TYPES}; wanted is {X}",
    ),
    (Broken(), "Broken gives no array: empty inside"),
    *((ARRAY.astype(kind), "") for kind in (object, complex, str)),
    *((other, "") for other in (ARRAY[:0], ARRAY[None], np.float32(3), np.zeros(SHAPE, "f4, f4"))),
    *((other, "") for other in (ARRAY.tolist()[:1], ARRAY.tobytes(), memoryview(ARRAY), None)),  # type: ignore[arg-type]
    *((other, "") for other in (ARRAY.__dlpack__(), Consumed(), Raises())),
    (np.ma.masked_array(ARRAY, mask=ARRAY > 0), ""),
]
CASES = [
    *WRONG.values(),
    *((lambda f, array=array: f | {"x": array}, f"input 'x': {text}") for array, text in REFUSED),
]


@pytest.mark.parametrize(("change", "text"), CASES)
def test_wrong_inputs_are_refused_and_the_session_stays_usable(
    graph: Graph, feeds: dict[str, Any], change: Any, text: str, resolutions: list[str]
) -> None:
    with Session(graph) as session:
        if text.endswith(" "):
            with pytest.raises(InputError, match=f"^{text}"):
                session.run(None, change(feeds))
        else:
            assert message(InputError, lambda: session.run(None, change(feeds))) == text
        [y, _] = session.run(None, feeds)
    np.testing.assert_array_equal(y, ARRAY + 1)
    assert len(resolutions) == 1


NO_OUTPUT = "no output w; outputs are y, same, and session.values lists what else can be asked for"


@pytest.mark.parametrize(
    ("outputs", "text"),
    [
        (["w"], NO_OUTPUT),
        ("y", "outputs are given as a list of names: ['y']"),
        (3, "outputs=3 is no list of names; outputs are ['y', 'same']"),
        ([3], ""),
        ([[]], ""),
    ],
)
def test_wrong_outputs_fail(graph: Graph, feeds: dict[str, Any], outputs: Any, text: str) -> None:
    with Session(graph) as session:
        said = message(InputError, lambda: session.run(outputs, feeds))
    assert text in ("", said)
    assert "output" in said


def test_a_mask_is_not_written_through(graph: Graph, feeds: dict[str, Any]) -> None:
    masked = np.ma.masked_array(ARRAY.copy(), mask=True)
    with Session(graph) as session, pytest.raises(InputError, match="masked array"):
        session.run(None, feeds, out={"y": masked})


HOLD = "the layout of an input or output must be an order of exactly these dims, in its own element"
NO_LEVEL = "is no level; levels are none, lho, ewo, all"
OPTIONS: list[tuple[dict[str, Any], str]] = [
    *(
        ({"threads": count}, f"threads={count!r} must be an integer from 1 to 1024, or None")
        for count in (-3, 0, 1025, 10**9, 2.0, True, "2")
    ),
    ({"optimize": "most"}, f"optimize='most' (--optimize) {NO_LEVEL}"),
    ({"optimize": ["hoist!"]}, "optimize: no pass 'hoist!'; passes: "),
    ({"optimize": 3}, "optimize=3 is no level, and no list of passes"),
    ({"objective": "fast"}, "objective='fast' (--objective) is none; objectives are shared, paper"),
    ({"libraries": ["cudnn", "toy"]}, "libraries: cudnn is not registered; registered are "),
    ({"libraries": []}, "libraries= (--libraries on the command line) is empty; registered are "),
    ({"libraries": 3}, "libraries=3 is no list of names; registered are "),
    ({"input_layouts": {"q": "N"}}, "input_layouts: no 'q' here; there are x, z"),
    ({"input_layouts": "NCHW"}, "input_layouts='NCHW' is no {name: layout}; there are x, z"),
    ({"output_layouts": {"x": "N"}}, "output_layouts: no 'x' here; there are y, same"),
    (
        {"input_layouts": {"x": "NCHW:bf16"}},
        f"input_layouts: NCHW:bf16 cannot hold {X}; {HOLD} type",
    ),
    ({"input_layouts": {"z": "NK"}}, f"input_layouts: NK cannot hold {Z}; the layout "),
    ({"input_layouts": {"x": "ANY"}}, "input_layouts: ANY cannot hold x : f32 N=2 C=3 "),
    ({"progress": 3}, "progress=3 must take a node's name"),
]


@pytest.mark.parametrize(("options", "text"), OPTIONS)
def test_wrong_options_are_refused_before_anything_is_resolved(
    graph: Graph, options: dict[str, Any], text: str, resolutions: list[str]
) -> None:
    assert message(InputError, lambda: Session(graph, **options)).startswith(text)
    assert resolutions == []


def test_a_layout_that_does_not_parse_is_refused(graph: Graph) -> None:
    with pytest.raises(LayoutError):
        Session(graph, input_layouts={"x": "N?"})


@pytest.mark.parametrize("threads", [None, 2, 1024])
def test_threads_are_as_many_as_are_given(graph: Graph, threads: int | None) -> None:
    with Session(graph, threads=threads) as session:
        assert session.threads == (threads or available_threads())


def test_a_closed_session_refuses_every_use(graph: Graph, feeds: dict[str, Any]) -> None:
    session = Session(graph)
    session.close()
    session.close()
    for use in (
        lambda: session.run(None, feeds),
        lambda: session.plan,
        lambda: session.conversions,
        lambda: session.__enter__(),
    ):
        assert message(SessionClosedError, use) == "this session is closed: make a new one"


def test_an_invoker_may_run_a_session_of_its_own(bench: Bench) -> None:
    """On the same thread."""
    inner = Graph("inner")
    inner.output(inner.add(bench.op("Mix", ("ANY", "ANY")), inner.input("x", {"N": 2, "C": 3})))
    inner.seal()

    @bench.invoker()
    def nested(ctx: Any, op: Any, x: Any, y: Any) -> None:
        src, dst = PTensor(x).require("NC"), PTensor(y).require("NC")
        if lib_tagger("toy", [src], [dst]):
            return
        with Session(inner) as session:
            dst.data()[...] = session.run(None, {"x": src.data()})[0]

    six = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.testing.assert_array_equal(bench.run("Toy", six), six + 1)


def test_progress_is_told_each_node(graph: Graph) -> None:
    names: list[str] = []
    with Session(graph, progress=names.append) as session:
        assert names == [node.name for node in session.plan.graph.nodes]


def test_a_plan_that_fails_is_not_kept(bench: Bench) -> None:
    graph = bench.graph()
    message(NoInvokerError, lambda: Session(graph))
    bench.invoker()(copying())
    Session(graph).close()


def test_constants_may_have_another_byte_order(bench: Bench) -> None:
    g = Graph("bytes")
    g.output(g.constant(np.arange(3, dtype=">f4"), "K", "w"), "w")
    with Session(g) as session:
        np.testing.assert_array_equal(session.run(None, {})[0], [0, 1, 2])


def test_a_graph_takes_its_own_values_only_and_none_once_it_is_sealed(bench: Bench) -> None:
    g = Graph("own")
    x = g.input("x", DIMS)
    strangers: list[Any] = [Graph("other").input("x", DIMS), ARRAY, "x"]
    for stranger in strangers:
        text = message(GraphError, partial(g.add, bench.op("Toy"), stranger))
        assert text.endswith("is no value of graph 'own'")
        message(GraphError, partial(g.output, stranger))
    g.output(x)
    message(GraphError, lambda: g.output(x))
    g.seal()
    for change in (
        lambda: g.input("z", {}),
        lambda: g.output(x, "q"),
        lambda: g.constant(ARRAY, "N C H W"),
    ):
        assert message(GraphError, change) == "graph 'own' is sealed; build a new one"
    assert message(GraphError, lambda: Session(Graph("none"))).startswith("graph 'none' has no")
