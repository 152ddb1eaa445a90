"""Sessions: planned once, given arrays as they lie; wrong use is a typed error, nothing runs."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

from ptensor import PTensor, lib_tagger
from ptensor.layout import Layout
from tests.libraries.bench import Bench, message
from vtensor.errors import InputError, LayoutError, SessionClosedError
from vtensor.language.graph import Graph
from vtensor.runtime.execution.processors import available_threads
from vtensor.runtime.session import Session
from vtensor.storage.inputs import layout_of

SHAPE = (2, 3, 4, 5)
DIMS = dict(zip("NCHW", SHAPE, strict=True))
ARRAY = np.arange(120, dtype=np.float32).reshape(SHAPE)
PORTS = "  x : f32 N=2 C=3 H=4 W=5\n  z : s32 K=3"


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
    """Good inputs."""
    return {"x": ARRAY, "z": np.array([1, 2, 3], np.int32)}


def test_one_resolution_a_plan(graph: Graph, feeds: dict[str, Any], resolutions: list[str]) -> None:
    before = len(resolutions)
    with Session(graph) as session:
        assert len(resolutions) == before + 1  # all sizes are known: planned at once
        first = session.plan
        for _ in range(3):
            session.run(None, feeds)
        assert len(resolutions) == before + 1
        assert session.plan is first


def test_another_layout_is_another_plan_without_a_copy(
    graph: Graph, feeds: dict[str, Any], bench: Bench, resolutions: list[str]
) -> None:
    seen: list[Any] = []
    with Session(graph) as session:
        first, before = session.plan, len(resolutions)
        record_inputs(session.plan, seen)
        strided = nhwc(ARRAY)
        [y, _] = session.run(None, feeds | {"x": strided})
        assert len(resolutions) == before + 1
        second = session.plan
        assert second is not first
        assert second.graph.values["x"].layout == Layout("NHWC")
        np.testing.assert_array_equal(y, ARRAY + 1)
        record_inputs(second, seen)
        session.run(None, feeds | {"x": strided})
        assert seen[-1] == strided.ctypes.data  # taken where it lies
        assert (len(resolutions), session.plan) == (before + 1, second)
        session.run(None, feeds)
        assert seen[-1] == ARRAY.ctypes.data
        assert (len(resolutions), session.plan) == (before + 1, first)


def record_inputs(plan: Any, seen: list[Any]) -> None:
    """Note the address of the memory that is bound to x."""
    storage = plan.placement.bound[0]

    class Watching(type(storage)):  # type: ignore[misc]
        __slots__ = ()

        def bind(self, buffer: Any) -> None:
            seen.append(buffer.memory.ctypes.data)
            super().bind(buffer)

    storage.__class__ = Watching


def test_arrays_that_lie_oddly(graph: Graph, feeds: dict[str, Any]) -> None:
    """Gaps, overlaps, other directions, other alignments, read-only, other byte order."""
    wide = np.zeros((2, 3, 4, 10), np.float32)
    wide[..., ::2] = ARRAY
    buffer = bytearray(ARRAY.nbytes + 1)
    unaligned = np.frombuffer(buffer, np.uint8)[1:].view(np.float32).reshape(SHAPE)
    unaligned[...] = ARRAY
    assert not unaligned.flags.aligned
    frozen = ARRAY.copy()
    frozen.flags.writeable = False
    plain = ARRAY[:, :, ::-1].copy()
    with Session(graph) as session:
        plans = session._runner.open()
        for odd in (wide[..., ::2], plain[:, :, ::-1], unaligned, frozen, ARRAY.astype(">f4")):
            [y, _] = session.run(None, feeds | {"x": odd})
            np.testing.assert_array_equal(y, ARRAY + 1)
        one = np.broadcast_to(np.float32(7), SHAPE)
        np.testing.assert_array_equal(session.run(["y"], feeds | {"x": one})[0], one + 1)
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
    ],
)
def test_layout_of(array: Any, layout: str | None) -> None:
    found = layout_of(array, "NC")
    assert (None if found is None else str(found)) == layout


def test_strides_of_size_one_make_no_plan(graph: Graph) -> None:
    """An axis that was added has any stride: it says nothing of the order."""
    image = np.zeros((4, 5, 3), np.float32)
    one = image[None].transpose(0, 3, 1, 2)
    two = np.zeros((1, 4, 5, 3), np.float32).transpose(0, 3, 1, 2)
    assert layout_of(one, "NCHW") == layout_of(two, "NCHW") == Layout("NHWC")


def test_outputs_are_fresh(graph: Graph, feeds: dict[str, Any]) -> None:
    with Session(graph) as session:
        one, same = session.run(None, feeds)
        kept = one.copy()
        two, _ = session.run(None, feeds | {"x": ARRAY + 5})
        np.testing.assert_array_equal(one, kept)
        np.testing.assert_array_equal(two, ARRAY + 6)
        same[0] = 99
        assert feeds["z"][0] == 1


def test_chosen_outputs(graph: Graph, feeds: dict[str, Any]) -> None:
    with Session(graph) as session:
        same, y = session.run(["same", "y"], feeds)
        np.testing.assert_array_equal(same, feeds["z"])
        np.testing.assert_array_equal(y, ARRAY + 1)
        assert len(session.run([], feeds)) == 2
        assert [str(port) for port in session.inputs] == [line[2:] for line in PORTS.splitlines()]
        assert [port.name for port in session.outputs] == ["y", "same"]


def test_input_layouts_make_the_first_plan(
    graph: Graph, feeds: dict[str, Any], resolutions: list[str]
) -> None:
    before = len(resolutions)
    with Session(graph, input_layouts={"x": "NHWC"}) as session:
        assert session.plan.graph.values["x"].layout == Layout("NHWC")
        session.run(None, feeds | {"x": nhwc(ARRAY)})
        assert len(resolutions) == before + 1
        session.run(None, feeds)  # lies otherwise than was said: another plan
        assert len(resolutions) == before + 2


def test_output_layouts(graph: Graph, feeds: dict[str, Any]) -> None:
    with Session(graph, output_layouts={"y": "WHCN"}) as session:
        [y] = session.run(["y"], feeds)
    np.testing.assert_array_equal(y, ARRAY + 1)
    assert y.T.flags.c_contiguous


def test_other_kinds_of_arrays(graph: Graph, feeds: dict[str, Any]) -> None:
    class Lends:
        def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
            return ARRAY

    class Exports:
        def __dlpack__(self, **options: Any) -> Any:
            return ARRAY.__dlpack__(**options)

        def __dlpack_device__(self) -> Any:
            return ARRAY.__dlpack_device__()

    class Broken:
        def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
            raise ValueError("empty inside")

    with Session(graph) as session:
        for given in (Lends(), Exports()):
            [y, _] = session.run(None, feeds | {"x": given})
            np.testing.assert_array_equal(y, ARRAY + 1)
        assert message(InputError, lambda: session.run(None, feeds | {"x": Broken()})) == (
            "input 'x': Broken gives no array: empty inside"
        )


WRONG: dict[str, tuple[Callable[[dict[str, Any]], Any], str]] = {
    "missing": (
        lambda f: {"z": f["z"]},
        f"inputs missing: x. This network's inputs are\n{PORTS}",
    ),
    "unknown": (
        lambda f: f | {"w": 1},
        f"inputs unknown: w. This network's inputs are\n{PORTS}",
    ),
    "misspelt": (
        lambda f: {"X": f["x"], "z": f["z"]},
        f"inputs missing: x; unknown: X. This network's inputs are\n{PORTS}",
    ),
    "no mapping": (lambda f: [f["x"]], "inputs are given as {name: array}, not as list"),
    "rank": (
        lambda f: f | {"x": ARRAY[0]},
        "input 'x': rank 3 was given (shape (3, 4, 5)), wanted is x : f32 N=2 C=3 H=4 W=5",
    ),
    "shape": (
        lambda f: f | {"x": ARRAY[:, :2]},
        "input 'x': shape (2, 2, 4, 5) was given, wanted is x : f32 N=2 C=3 H=4 W=5",
    ),
    "dtype": (
        lambda f: f | {"x": ARRAY.astype(np.float64)},
        "input 'x': element type f64 was given, wanted is x : f32 N=2 C=3 H=4 W=5; "
        "to fix: array.astype('float32')",
    ),
    "strange dtype": (
        lambda f: f | {"x": ARRAY.astype("m8[s]")},
        "input 'x': no element type for NumPy's 'timedelta64[s]'; one of f64, f32, f16, s64, s32, "
        "s16, s8, u64, u32, u16, u8, bool, c64, c128, bf16, f8e4m3fn, f8e4m3fnuz, f8e5m2, "
        "f8e5m2fnuz, f8e8m0, f6e2m3, f6e3m2, f4e2m1, s4, u4, s2, u2; wanted is x : f32 N=2 "
        "C=3 H=4 W=5",
    ),
    "no array": (
        lambda f: f | {"z": {1, 2, 3}},
        "input 'z': set is no array; give a NumPy array or an object with __dlpack__ or __array__",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_inputs(
    graph: Graph, feeds: dict[str, Any], case: str, resolutions: list[str]
) -> None:
    change, text = WRONG[case]
    before = len(resolutions)
    with Session(graph) as session:
        assert message(InputError, lambda: session.run(None, change(feeds))) == text
        session.run(None, feeds)  # the session is none the worse
    assert len(resolutions) == before + 1


def test_wrong_outputs(graph: Graph, feeds: dict[str, Any]) -> None:
    with Session(graph) as session:
        assert message(InputError, lambda: session.run(["w"], feeds)) == (
            "no output w; outputs are y, same, and session.values lists what else can be asked for"
        )
        assert message(InputError, lambda: session.run("y", feeds)) == (
            "outputs are given as a list of names: ['y']"
        )
        assert message(InputError, lambda: session.run(3, feeds)) == (  # type: ignore[arg-type]
            "outputs=3 is no list of names; outputs are ['y', 'same']"
        )


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"threads": -3}, "threads=-3 must be an integer from 1 to 1024, or None"),
        ({"threads": 0}, "threads=0 must be an integer from 1 to 1024, or None"),
        ({"threads": 1025}, "threads=1025 must be an integer from 1 to 1024, or None"),
        ({"threads": 2.0}, "threads=2.0 must be an integer from 1 to 1024, or None"),
        ({"threads": True}, "threads=True must be an integer from 1 to 1024, or None"),
        (
            {"optimize": "most"},
            "optimize='most' (--optimize) is no level; levels are none, lho, ewo, all",
        ),
        ({"optimize": ["hoist!"]}, "optimize: no pass 'hoist!'; passes: "),
        (
            {"objective": "fast"},
            "objective='fast' (--objective) is none; objectives are shared, paper",
        ),
        ({"optimize": 3}, "optimize=3 is no level, and no list of passes"),
        ({"libraries": ["cudnn", "toy"]}, "libraries: cudnn is not registered; registered are "),
        (
            {"libraries": []},
            "libraries= (--libraries on the command line) is empty; registered are ",
        ),
        ({"libraries": 3}, "libraries=3 is no list of names; registered are "),
        ({"input_layouts": {"q": "N"}}, "input_layouts: no 'q' here; there are x, z"),
        ({"input_layouts": "NCHW"}, "input_layouts='NCHW' is no {name: layout}; there are x, z"),
        ({"output_layouts": {"x": "N"}}, "output_layouts: no 'x' here; there are y, same"),
        (
            {"input_layouts": {"x": "NCHW:bf16"}},
            "input_layouts: NCHW:bf16 cannot hold x : f32 N=2 C=3 H=4 W=5; the layout of an input "
            "or output must be an order of exactly these dims, in its own element type",
        ),
        ({"input_layouts": {"z": "NK"}}, "input_layouts: NK cannot hold z : s32 K=3; the layout "),
        ({"input_layouts": {"x": "ANY"}}, "input_layouts: ANY cannot hold x : f32 N=2 C=3 "),
    ],
)
def test_wrong_options(
    graph: Graph, options: dict[str, Any], text: str, resolutions: list[str]
) -> None:
    before = len(resolutions)
    assert message(InputError, lambda: Session(graph, **options)).startswith(text)
    assert len(resolutions) == before


def test_a_layout_that_does_not_parse(graph: Graph) -> None:
    with pytest.raises(LayoutError):
        Session(graph, input_layouts={"x": "N?"})


def test_threads(graph: Graph) -> None:
    with Session(graph) as session:
        assert session.threads == available_threads()
    with Session(graph, threads=2) as session:
        assert session.threads == 2
    Session(graph, threads=1024).close()


def test_a_closed_session(graph: Graph, feeds: dict[str, Any]) -> None:
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


def test_a_session_in_a_call_back(bench: Bench) -> None:
    """An invoker may run a session of its own on the same thread."""
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


def test_progress(graph: Graph) -> None:
    names: list[str] = []
    with Session(graph, progress=names.append) as session:
        assert names == [node.name for node in session.plan.graph.nodes]


def test_progress_is_called(graph: Graph) -> None:
    with pytest.raises(InputError, match="progress=3 must take a node's name"):
        Session(graph, progress=3)  # type: ignore[arg-type]


def test_a_plan_that_fails_is_not_kept(bench: Bench, feeds: dict[str, Any]) -> None:
    from vtensor.errors import NoInvokerError

    g = Graph("fails")
    g.output(g.add(bench.op("Toy"), g.input("x", DIMS)))
    message(NoInvokerError, lambda: Session(g))

    @bench.invoker()
    def late(ctx: Any, op: Any, x: Any, y: Any) -> None:
        lib_tagger("toy", [PTensor(x)], [PTensor(y)])

    Session(g).close()


def test_constants_of_another_byte_order(bench: Bench) -> None:
    g = Graph("bytes")
    g.output(g.constant(np.arange(3, dtype=">f4"), "K", "w"), "w")
    with Session(g) as session:
        np.testing.assert_array_equal(session.run(None, {})[0], [0, 1, 2])


def test_graphs_take_their_own_values_only(bench: Bench) -> None:
    from vtensor.errors import GraphError

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
