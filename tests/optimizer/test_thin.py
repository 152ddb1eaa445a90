"""Values of which only a part is read have fewer elements; values stay."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import ops
from eval.networks import SMALL, build
from optimizer.pipeline import simplify
from optimizer.thin import thin
from resolver.lowered import OpNode
from tests.frontends.support import f32
from tests.libraries.processes import printed
from tests.optimizer.graphs import compared, operators, steps_of
from vtensor import Session
from vtensor.language.graph import Graph
from vtensor.language.tensor import VTensor
from vtensor.runtime.planning.library_options import preferences_of

LEVEL = ["thin"]


def image(graph: Graph, side: int = 8, name: str = "x", channels: int = 4) -> VTensor:
    return graph.input(name, {"N": 2, "C": channels, "H": side, "W": side})


def window(
    graph: Graph, x: VTensor, name: str, kernel: int = 1, step: int | tuple[int, int] = 1
) -> VTensor:
    """A convolution with pads that keep the size at step 1."""
    w = graph.constant(f32(4, 4, kernel, kernel) - 0.5, "O I h w", f"{name}/w")
    steps = (step, step) if isinstance(step, int) else step
    y: VTensor = graph.add(ops.Conv2D(strides=steps, pads=(kernel // 2,) * 4), x, w, name=name)
    return y


def residual(side: int = 8, step: int | tuple[int, int] = 2) -> Graph:
    """A block, and two convolutions, its only readers, that read every second element."""
    g = Graph("residual")
    x = g.add(ops.Relu(), image(g, side), name="first")
    y = window(g, g.add(ops.Relu(), window(g, x, "left"), name="relu"), "right", kernel=3)
    y = g.add(ops.Relu(), g.add(ops.Add(), y, x, name="sum"), name="last")
    for name in ("one", "two"):
        g.output(window(g, y, name, step=step), name)
    return g


def thinned(graph: Graph, **options: Any) -> Session:
    """A session on a thinned graph that says what it says without passes."""
    graph = graph if graph.sealed else graph.seal()
    return compared(graph, 1e-4, 1e-4, **{"threads": 1, "optimize": LEVEL, **options})


def ran(session: Session) -> dict[str, Any]:
    return {n.name: n.op for n in session.plan.graph.nodes if isinstance(n, OpNode)}


THINNED = """graph residual
input x : f32 N=2 C=4 H=8 W=8
first = Relu() x : f32 N=2 C=4 H=8 W=8
first:thin = Slice(axes=('H', 'W'), starts=(0, 0), ends=(8, 8), steps=(2, 2)) first \
: f32 N=2 C=4 H=4 W=4
left = Conv2D() first, left/w : f32 N=2 C=4 H=8 W=8
relu = Relu() left : f32 N=2 C=4 H=8 W=8
right = Conv2D(strides=(2, 2), pads=(1, 1, 1, 1)) relu, right/w : f32 N=2 C=4 H=4 W=4
sum = Add() right, first:thin : f32 N=2 C=4 H=4 W=4
last = Relu() sum : f32 N=2 C=4 H=4 W=4
one = Conv2D() last, one/w : f32 N=2 C=4 H=4 W=4
two = Conv2D() last, two/w : f32 N=2 C=4 H=4 W=4
output one
output two"""


def test_a_residual_block_makes_what_is_read() -> None:
    """A graph that is thin already, and the one that was given, stay."""
    graph = residual().seal()
    before, thinned = str(graph), thin(graph, preferences_of(None, None))
    lines = str(thinned).splitlines()
    assert "\n".join(line for line in lines if "constant" not in line) == THINNED
    assert str(graph) == before
    assert str(thin(thinned)) == str(thinned)


@pytest.mark.parametrize("step", [2, 3, 8, 9, (1, 2), (3, 2)])
@pytest.mark.parametrize("side", [7, 8])
@pytest.mark.parametrize("libraries", [None, ["eigen"], ["numpy"]])
def test_values_stay(side: int, step: int | tuple[int, int], libraries: list[str] | None) -> None:
    for optimize in (LEVEL, "all"):
        session = thinned(residual(side, step), libraries=libraries, optimize=optimize)
        cut = all(side % size == 0 for size in ((step,) if isinstance(step, int) else step))
        cut = cut and libraries != ["numpy"]  # which would call back into Python for it
        assert ("first:thin" in ran(session)) == cut  # else it stays as it is


@pytest.mark.parametrize("dims", ["W", "HW", "DHW"])
def test_any_number_of_spatial_dims_is_cut(dims: str) -> None:
    """A window of three, then one that picks; in one dim, or in three."""
    g, rank = Graph("ranked"), len(dims)
    op = getattr(ops, f"Conv{rank}D")
    names = f"O I {' '.join(dims.lower())}"
    x = g.input("x", {"N": 1, "C": 4, **dict.fromkeys(dims, 6)})
    wide, picks = (g.constant(f32(4, 4, *(side,) * rank), names) for side in (3, 1))
    y = g.add(op(pads=(1,) * 2 * rank), x, wide, name="wide")
    g.output(g.add(op(strides=(2,) * rank), y, picks), "y")
    assert ran(thinned(g))["wide"].strides == (2,) * rank


def test_a_depthwise_convolution_steps_further_too() -> None:
    g = Graph("depthwise")
    w = g.constant(f32(4, 1, 1, 3, 3), "G O I h w", "w")
    y = g.add(ops.DepthwiseConv2D(strides=(2, 1), pads=(1, 1, 1, 1)), image(g, 9), w, name="deep")
    g.output(window(g, y, "picks", step=2), "y")
    assert ran(thinned(g))["deep"].strides == (4, 2)


#: What else reads the value that a window picks from.
ALSO: dict[str, Callable[[Graph, VTensor], VTensor]] = {
    "a caller": lambda g, y: y,
    "all of it": lambda g, y: g.add(ops.Relu(), y),
    "in other steps": lambda g, y: window(g, y, "other", step=4),
    "in other dims": lambda g, y: window(g, y, "other", step=(2, 1)),
    "a wider window": lambda g, y: window(g, y, "other", kernel=3, step=2),
}


@pytest.mark.parametrize("also", ALSO)
def test_what_is_also_read_otherwise_stays_whole(also: str) -> None:
    g = Graph("shared")
    y = window(g, image(g), "maker")
    g.output(window(g, y, "picks", step=2), "y")
    g.output(ALSO[also](g, y), "other")
    assert str(thin(g.seal())) == str(g)
    thinned(g)


def long_chain(g: Graph) -> VTensor:
    y = window(g, image(g), "maker")
    for _ in range(2_000):
        y = g.add(ops.Relu(), y)
    return y


def sum_of_three(g: Graph, windows: int) -> VTensor:
    """A sum of so many windows, and of inputs."""
    x = [image(g, name=f"x{index}") for index in range(3)]
    y, *others = (window(g, v, f"w{i}") if i < windows else v for i, v in enumerate(x))
    for other in others:
        y = g.add(ops.Add(), y, other)
    return y


def read_twice(g: Graph) -> VTensor:
    x = g.add(ops.Relu(), image(g))
    y: VTensor = g.add(ops.Add(), g.add(ops.Add(), window(g, x, "maker"), x), x)
    return y


#: What a window picks from, and how many cuts come of it.
PICKED: dict[str, tuple[Callable[[Graph], VTensor], int]] = {
    "a pool": (lambda g: g.add(ops.Relu(), g.add(ops.MaxPool(kernel_shape=(1, 1)), image(g))), 0),
    "inputs": (lambda g: g.add(ops.Add(), g.add(ops.Relu(), image(g)), image(g, name="z")), 0),
    "a long chain, less of which takes a cut": (long_chain, 0),
    "one window of three, for two cuts": (lambda g: sum_of_three(g, 1), 0),
    "two windows of three, for one cut": (lambda g: sum_of_three(g, 2), 1),
    "an operand that is read twice": (read_twice, 1),
}


@pytest.mark.parametrize("kind", PICKED)
def test_cuts_are_no_more_than_windows(kind: str) -> None:
    make, cuts = PICKED[kind]
    g = Graph(kind)
    g.output(window(g, make(g), "picks", step=2), "y")
    thinner = thin(g.seal())
    assert operators(thinner).count("Slice") == cuts
    assert (str(thinner) == str(g)) == (cuts == 0)
    if cuts:
        thinned(g)


def test_what_broadcasts_along_the_steps_stays() -> None:
    g = Graph("broadcast")
    row = g.input("row", {"N": 2, "C": 4, "H": 1, "W": 8})
    y = g.add(ops.Add(), window(g, image(g), "maker"), row)
    y = g.add(ops.Add(), y, g.constant(f32(4), "C", "bias"))
    g.output(window(g, y, "picks", step=2), "y")
    assert ran(thinned(g))["row:thin"].axes == ("W",)


def test_a_value_that_is_asked_for_is_whole() -> None:
    graph = residual().seal()
    with Session(graph, threads=1) as session, Session(graph, threads=1, optimize="none") as plain:
        x = {"x": f32(2, 4, 8, 8)}
        for name in ("one", "last"):
            result, want = (each.run([name], x)[0] for each in (session, plain))
            np.testing.assert_allclose(result, want, rtol=1e-4)


#: A process that has imported a few operators, and not those that the pass adds.
ALONE = """
import sys
from eval.networks import build
from vtensor.runtime.session import Session
graph = build("resnet50", size=64)
assert "ops.slice" not in sys.modules
with Session(graph, threads=1) as session:
    print("ops.slice" in sys.modules, any("thin" in node.name for node in session.plan.graph.nodes))
"""


def test_operators_that_no_import_names_are_added_too() -> None:
    assert printed("-c", ALONE) == "True True\n"


@pytest.mark.parametrize("seed", range(30))
def test_values_of_random_chains_stay(seed: int) -> None:
    """Windows, picks and sums at random, on sizes that nothing divides."""
    rng, g = random.Random(seed), Graph(f"random{seed}")
    values = [image(g, rng.randint(5, 12))]
    for index in range(rng.randint(4, 12)):
        x = rng.choice(values[-3:])
        same = [v for v in values if v.dims == x.dims]
        kind = rng.choice(("window", "pick", "pick", "relu", "sum"))
        if kind == "window":
            x = window(g, x, f"n{index}", kernel=3, step=rng.choice((1, 1, 2)))
        elif kind == "pick":
            x = window(g, x, f"n{index}", step=rng.choice((1, 2, 2, 3)))
        elif kind == "relu":
            x = g.add(ops.Relu(), x, name=f"n{index}")
        else:
            x = g.add(ops.Add(), x, rng.choice(same), name=f"n{index}")
        values.append(x)
    used = {name for node in g.nodes.values() for name in node.inputs}
    for value in values[1:]:
        if value.name not in used:
            g.output(value, f"out/{value.name}")
    thinned(g)
    thinned(g, optimize="all")


def test_networks_are_cut_at_residual_blocks() -> None:
    """Between stages alone, once each; a network without such steps stays as it is."""
    graph = build("resnet50", size=SMALL["resnet50"])
    thinned = simplify(graph, ["fold", "thin"])
    assert Counter(node.op_name for node in thinned.nodes.values())["Slice"] == 3
    other = build("mobilenet_v2", size=SMALL["mobilenet_v2"])
    assert str(thin(other)) == str(other)


# Products of which only slices are read are computed in slices


def product(g: Graph, columns: int, dims: str = "N T") -> VTensor:
    x = g.input("x", {**dict.fromkeys(dims.split(), 3), "K": 20})
    weights = np.random.default_rng(0).standard_normal((20, columns)).astype("f4")
    y: VTensor = g.add(ops.MatMul("K"), x, g.constant(weights, "K M"), name="product")
    return y


def cut(g: Graph, x: VTensor, dim: str, begin: int, end: int) -> VTensor:
    part: VTensor = g.add(ops.Slice((dim,), (begin,), (end,), (1,)), x)
    return part


def heads(parts: int = 3, more: Sequence[object] = ()) -> Graph:
    """Queries, keys and values of two heads: a product, reshaped, turned and cut."""
    g = Graph("heads")
    y = product(g, parts * 2 * 32)
    for op in more:
        bias = np.linspace(-1, 1, parts * 64).astype("f4")
        y = g.add(op, y, g.constant(bias, "M")) if isinstance(op, ops.BiasAdd) else g.add(op, y)
    y = g.add(ops.Reshape((("N", 3), ("T", 3), ("P", parts), ("G", 2), ("D", 32))), y)
    y = g.add(ops.Rename((("P", "Q"), ("N", "N"), ("G", "G"), ("T", "T"), ("D", "D"))), y)
    for i in range(parts):
        g.output(cut(g, y, "Q", i - parts if i == parts - 1 else i, i + 1 if i else 1), f"y{i}")
    return g.seal()


def fitting(graph: Graph) -> list[str]:
    return [op for op in operators(simplify(graph, ["part"])) if op not in ("Reshape", "Rename")]


@pytest.mark.parametrize("parts", [2, 3, 5])
@pytest.mark.parametrize("more", [[], [ops.BiasAdd()], [ops.BiasAdd(), ops.Gelu()]])
def test_queries_keys_and_values_are_products_of_their_own(parts: int, more: list[Any]) -> None:
    graph = heads(parts, more)
    assert fitting(graph) == ["MatMul", *(type(op).__name__ for op in more)] * parts
    compared(graph)
    compared(graph, optimize=["part"])


def test_what_is_merged_has_an_order_in_every_process() -> None:
    graph = heads(8)
    merged = [*simplify(graph, ["part"]).merged]
    assert len(merged) > 6
    assert merged == [name for name in graph.nodes if name in merged]


@pytest.mark.parametrize(
    "cuts", [[(0, 64), (64, 192)], [(64, 128), (128, 192)], [(-64, 999), (0, 70)]]
)
def test_columns_need_not_be_reshaped_nor_all_be_read(cuts: list[tuple[int, int]]) -> None:
    g = Graph("columns")
    y = product(g, 192, "N")
    for begin, end in cuts:
        g.output(cut(g, y, "M", begin, end))
    graph = g.seal()
    assert fitting(graph) == ["MatMul", "MatMul"]
    compared(graph)


@pytest.mark.parametrize(("side", "libraries"), [(64, None), (512, ["eigen"])])
def test_several_plans_have_parts_in_memory_once(side: int, libraries: list[str] | None) -> None:
    """What parts are made of is known, so plans of other sizes find them packed, or cut already."""
    g = Graph("open")
    x = g.input("x", {"N": None, "K": side})
    weights = np.random.default_rng(0).standard_normal((side, side // 2)).astype("f4")
    y = g.add(ops.MatMul("K"), x, g.constant(weights, "K M"))
    g.output(cut(g, y, "M", 0, side // 4), "a")
    g.output(cut(g, y, "M", side // 4, side // 2), "b")
    with Session(g.seal(), threads=1, cache_dir=None, libraries=libraries) as session:
        for size in (2, 5, 9):
            parts = session.run(None, {"x": np.ones((size, side), "f4")})
            for part, columns in zip(parts, np.split(weights, 2, axis=1), strict=True):
                np.testing.assert_allclose(part[-1], columns.sum(0), atol=1e-3)
            if libraries:  # Eigen reads a matrix as it lies
                assert session.memory.weights == weights.nbytes


def refused(kind: str) -> Graph:
    """A product that cannot or should not be cut."""
    g = Graph(kind)
    y = product(g, 192 if kind != "thin" else 96)
    if kind == "inner":  # the heads come first: a slice of each
        y = g.add(ops.Reshape((("N", 3), ("T", 3), ("G", 2), ("M", 96))), y)
    if kind == "two values":
        y = g.add(ops.Add(), y, g.input("z", {"N": 3, "T": 3, "M": 192}))
    dim, half = ("N", 2) if kind == "rows" else ("M", y.size("M") // 2)
    g.output(cut(g, y, dim, 0, half + (kind == "overlap")), "a")
    g.output(cut(g, y, dim, half, y.size(dim)), "b")
    if kind == "read":
        g.output(y, "all")
    return g.seal()


@pytest.mark.parametrize("kind", ["inner", "rows", "two values", "thin", "overlap", "read"])
def test_what_cannot_or_should_not_be_cut_stays(kind: str) -> None:
    graph = refused(kind)
    assert str(simplify(graph, ["part"])) == str(graph)


def test_a_pinned_product_stays() -> None:
    with Session(heads(), pin={"product": "onednn"}) as session:
        assert steps_of(session).count("Slice") == 3
