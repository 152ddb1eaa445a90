"""The rows of the matrix: networks, and what they are fed one after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import onnx
from onnx import ModelProto, TensorProto, helper

from ops import Neg, Relu
from tests.frontends.support import f32, model
from tests.runtime import packed_net, packed_nets
from tests.runtime.opened import NETWORKS
from vtensor import Graph, save_onnx

Array = np.ndarray[Any, Any]
Feeds = dict[str, Array]
GivenModel = Path | bytes | ModelProto


@dataclass(frozen=True)
class Row:
    """A network and its inputs.

    Attributes:
        write: writes the model file, with weights by a seed; returns what a session is given.
        feeds: inputs in several sizes, in order; the number is how many are drawn at random.
        options: of each session.
        outputs: what runs ask for.
        specialises: from the third start on, a session on this file has a cached symbolic plan.
        caches: what is chosen is written to the cache.
        ways: how a plan may come that is made from nothing.
    """

    write: Callable[[Path, int], Path]
    feeds: Callable[[int], list[Feeds]]
    options: Mapping[str, Any] = field(default_factory=dict)
    outputs: list[str] | None = None
    specialises: bool = True
    caches: bool = True
    ways: tuple[str, ...] = ("planned",)


#: Sizes that are tried first, in this order: where a dim of one gets two, where a library takes
#: other sizes otherwise, where half of the nodes do not fit.
FIRST: Mapping[str, list[tuple[int, ...]]] = {
    "attention": [(1, 1), (2, 1), (3, 1), (2, 9)],
    "squeeze": [(1, 32, 32), (1, 2, 2), (2, 2, 2)],
    "detector": [(1, 32, 32), (1, 1, 1)],
    "mobile": [(1, 31, 1), (2, 31, 2)],
    "transformer": [(2, 9), (1, 9), (3, 5)],
}


def saved(proto: ModelProto, path: Path, beside: bool = False) -> Path:
    """Write a model, with its large weights in another file if ``beside``."""
    if beside:
        data = f"{path.name}.data"
        path.with_name(data).unlink(missing_ok=True)
        onnx.save(proto, path, save_as_external_data=True, location=data, size_threshold=1 << 10)
    else:
        onnx.save(proto, path)
    return path


def of_network(name: str, **about: Any) -> Row:
    """Return a network of open sizes; its weights have no seed."""
    network = NETWORKS[name]()

    def feeds(count: int) -> list[Feeds]:
        return [network.feeds(*sizes) for sizes in (*FIRST.get(name, ()), *network.sizes(5, count))]

    return Row(lambda path, _: saved(network.proto, path), feeds, **about)


def fixed(name: str, how: str) -> Row:
    """Return a network of fixed sizes; its weights are inside, in nodes, or beside it."""

    def write(path: Path, seed: int) -> Path:
        packed_nets.written(name, path, seed)
        proto = onnx.load(path)
        if how == "in nodes":
            weights = [*proto.graph.initializer]
            del proto.graph.initializer[:], proto.metadata_props[:]
            for weight in reversed(weights):
                node = helper.make_node("Constant", [], [weight.name], value=weight)
                proto.graph.node.insert(0, node)
        return saved(proto, path, how == "beside")

    def feeds(_: int) -> list[Feeds]:
        g = packed_nets.Net()
        packed_nets.NETS[name](g)
        ports = [g.values[port] for port in g.inputs]
        return [
            {
                port.name: np.arange(port.num_elements).reshape([*port.dims.values()]) % 7
                if port.dtype == "s64"
                else f32(*port.dims.values(), seed=seed)
                for port in ports
            }
            for seed in (0, 1)
        ]

    return Row(write, feeds)


def packed(beside: bool) -> Row:
    """Return weights that are packed whole, in parts, and with factors."""

    def write(path: Path, _: int) -> Path:
        return packed_net.network(path.parent, beside)

    return Row(write, lambda _: [packed_net.feeds(n, h) for n, h in ((2, 9), (1, 12), (3, 9))])


#: Constants of models in text form: all integers but those with a fraction.
NUMBERS = """<int64 zero = {0}, int64 one0 = {1}, int64 minus = {-1}, int64[1] zero1 = {0},
    int64[1] one = {1}, int64[1] two = {2}, int64[2] pair = {1, -1}, int64[2] ones = {1, 1},
    float half = {0.5}, float low = {-9}, float none = {0}, float two_f = {2}>"""


def text(
    body: str,
    sizes: Iterable[tuple[int, ...]],
    given: Callable[..., Feeds] | None = None,
    weights: Callable[[int], Mapping[str, Array]] = lambda _: {},
    beside: bool = False,
    **about: Any,
) -> Row:
    """Return a model in ONNX's text form, whose sizes are drawn in the order that is said."""

    def write(path: Path, seed: int) -> Path:
        return saved(model(body, **weights(seed)), path, beside)

    take = given or (lambda *shape: {"x": f32(*shape, seed=sum(shape))})
    return Row(write, lambda _: [take(*shape) for shape in sizes], **about)


def graph(build: Callable[[Graph], None], feeds: list[Feeds], **about: Any) -> Row:
    """Return a graph of ours, written as a model."""

    def write(path: Path, _: int) -> Path:
        g = Graph("net")
        build(g)
        save_onnx(g, path)
        return path

    return Row(write, lambda _: feeds, **about)


def two_orders(g: Graph) -> None:
    """Add two inputs, whose nodes are equal but for the order in memory and the library."""
    for name in "ab":
        x = g.input(name, {"N": None, "C": 4, "H": 4})
        g.output(g.add(Relu(), g.add(Neg(), x, name=f"n{name}"), name=f"r{name}"), f"y{name}")


#: What models compute of sizes before a run: positions, masks, shapes, of each operator.
COMPUTED: Mapping[str, str] = {
    "moved": """s = Shape(x) n = Slice(s, one, two) m = Gather(s, zero)
        e = Unsqueeze(m, zero1) i = Concat<axis = 0>(e, n) j = Identity(i) k = Cast<to = 7>(j)
        t = Reshape(k, pair) r = Squeeze(t) z = Reshape(x, r) y = Relu(z)""",
    "computed": """s = Shape(x) m = Gather(s, zero) n = Gather(s, one0) t = Mul(m, n)
        u = Add(t, n) v = Sub(u, n) e = Unsqueeze(v, zero1) z = Reshape(x, e) y = Relu(z)""",
    "positions": """s = Shape(x) n = Gather(s, one0) r = Range(zero, n, one0)
        e = Unsqueeze(r, zero1) f = Cast<to = 1>(e) z = Add(x, f) y = Relu(z)""",
    "backwards": """s = Shape(x) n = Gather(s, one0) h = Sub(n, one0) r = Range(h, minus, minus)
        g = Gather<axis = 1>(x, r) y = Relu(g)""",
    "masked": """s = Shape(x) n = Gather(s, one0) m = Gather(s, zero) r = Range(zero, n, one0)
        q = Range(zero, m, one0) c = Unsqueeze(q, one)
        a = LessOrEqual(r, c) b = Less(c, r) d = Greater(c, r) e = GreaterOrEqual(r, c)
        f = Equal(c, r) g = And(a, e) h = Or(g, f) i = Or(b, d) k = Not(i) l = And(h, k)
        w = Where(l, half, low) z = Add(x, w) y = Relu(z)""",
    "spread": """s = Shape(x) w = Expand(row, s) u = Unsqueeze(s, zero1) v = Squeeze(u, zero1)
        r = Reshape(w, v) z = Add(x, r) y = Relu(z)""",
    "picked": """s = Shape(x) n = Slice(s, one, two) c = Slice(table, zero1, n, one)
        m = Max(c, half) o = Min(m, two_f) z = Add(x, o) y = Relu(z)""",
    "rows": """s = Shape(x) n = Gather(s, one0) r = Range(zero, n, one0) p = Cast<to = 1>(r)
        e = Unsqueeze(p, zero1) t = Concat<axis = 0>(e, e) u = Transpose(t)
        v = Tile(u, ones) w = Transpose<perm = [1, 0]>(v) k = CumSum(w, one0)
        i = Unsqueeze(zero1, zero1) d = GatherND(k, i) h = Trilu(k, one0) o = Trilu<upper = 0>(h)
        g = Gather<axis = 0>(o, zero1) a = Add(d, g) z = Add(x, a) y = Relu(z)""",
    "narrow": """s = Shape(x) i = Cast<to = 6>(s) m = Gather(i, zero) n = Gather(i, one0)
        t = Mul(n, m) e = Unsqueeze(t, zero1) l = Cast<to = 7>(e) z = Reshape(x, l) y = Relu(z)""",
    "batches": """s = Shape(x) n = Gather(s, one0) r = Range(zero, n, one0) e = Unsqueeze(r, one)
        u = Unsqueeze(e, zero1) g = GatherND<batch_dims = 1>(table, u) z = Add(x, g) y = Relu(z)""",
    "elements": """s = Shape(x) n = Gather(s, one0) r = Range(zero, n, one0) e = Unsqueeze(r, zero1)
        g = GatherElements<axis = 1>(table, e) z = Add(x, g) y = Relu(z)""",
}


def computed(kind: str) -> Row:
    """Return a model that computes something of its sizes."""
    rank = "float[p] y" if kind in ("computed", "narrow") else "float[p, q] y"
    sizes = ((3, 4), (5, 7), (2, 9), (1, 1), (6, 40), (31, 3), (17, 17))
    body = f"g (float[a, b] x) => ({rank}) {NUMBERS} {{ {COMPUTED[kind]} }}"
    return text(body, sizes, weights=lambda _: {"row": f32(1, 1), "table": f32(1, 64)})


#: Two layers have masks that they compute alike; each is laid out for what reads it.
MASKS = f"""g (float[h, L, 8] x) => (float[h, L, L] y) {NUMBERS} {{
    s = Shape(x) n = Gather(s, one0) r = Range(zero, n, one0) c = Unsqueeze(r, one)
    l = LessOrEqual(r, c) m = Where(l, none, low)
    t = Transpose<perm = [0, 2, 1]>(x) a = MatMul(x, t) p = Add(a, m) o = Softmax(p)
    l2 = LessOrEqual(r, c) m2 = Where(l2, none, low)
    q = MatMul(o, o) e = Add(q, m2) y = Softmax(e) }}"""


#: Pairs of calls that are equal but for one thing: weights, a parameter, what is fused, the
#: dim that is reduced, the element type; and slices, concatenations and views of each.
PAIRS = """pairs (float[n, 8, 8] x, float[m, 8, 8] p) => (float[n, 8, 8] y, float[k, 8, 8] z,
                        int32[n, 8, 8] i, float[n, 8, 4] c, float[n, 8, 8] v)
    <int64[2] halves = {4, 4}, int64 one = {1}, int64 two = {2}> {
    a0 = MatMul(x, w0) a = Relu(a0) b0 = MatMul(a, w1) b = Tanh(b0)
    s = Softmax(b) e = LeakyRelu<alpha = 0.1>(s) e1 = Softmax(e) f = LeakyRelu<alpha = 0.2>(e1)
    g = ReduceMax<axes = [1]>(f) h = ReduceMax<axes = [2]>(f) y0 = Add(g, h) y = Add(y0, f)
    z0 = Concat<axis = 0>(p, f) z1 = Concat<axis = 0>(z0, e) z = Neg(z1)
    j = Cast<to = 6>(x) i = Neg(j) u = CumSum(s, one) v0 = CumSum(u, two) v = Neg(v0)
    l, r = Split<axis = 2>(f, halves) k0 = Exp(r) c = Add(l, k0) }"""

#: Weights that are packed, cut into three, turned, folded.
WEIGHTS = """net (float[n, 64, h, 8] x) => (float[m, 96] y)
    <int64[3] parts = {-1, 3, 192}, int64 at1 = {1}, int64 at2 = {2}> {
    c = Conv<pads = [1, 1, 1, 1]>(x, k) r = Relu(c)
    f0 = Transpose<perm = [0, 2, 3, 1]>(r) p0 = MatMul(f0, w) p1 = Flatten<axis = 3>(p0)
    turned = Transpose<perm = [1, 0]>(t) p = Reshape(p1, parts)
    q = Gather<axis = 1>(p, at0) k0 = Gather<axis = 1>(p, at1) v = Gather<axis = 1>(p, at2)
    s0 = Mul(q, k0) s1 = Tanh(s0) s = Add(s1, v) z = MatMul(s, turned)
    twice = Add(f, f) y = MatMul(z, twice) }"""


def weights(seed: int) -> dict[str, Array]:
    """Return weights of which each has another value where its bit of the seed is set."""
    bits = [seed >> bit & 1 for bit in range(5)]
    return {
        "k": f32(64, 64, 3, 3, seed=bits[0]) / 24,
        "w": f32(64, 576, seed=bits[1]) / 8,
        "t": f32(256, 192, seed=bits[2]) / 8,
        "f": f32(256, 96, seed=bits[3]) / 8,
        "at0": np.array(bits[4]),
    }


#: Weights that are packed, folded and read in place, a position for each row, and a constant that
#: is spread over the batch.
SPREAD = """net (float[n, 64, h, 8] x) => (float[n, h, 8, 320] y)
    <int64[1] one = {1}, float half = {0.5}, int64[1] many = {64}> {
    c = Conv<pads = [1, 1, 1, 1]>(x, k) r = Relu(c) f0 = Transpose<perm = [0, 2, 3, 1]>(r)
    rows = Shape<start = 1, end = 2>(f0) wide = Concat<axis = 0>(one, rows, one, many)
    at = Expand(position, wide) f = Add(f0, at) p = MatMul(f, w) y = Mul(p, half) }"""


def spread(seed: int) -> dict[str, Array]:
    return {
        "k": f32(64, 64, 3, 3, seed=seed) / 24,
        "w": f32(64, 320, seed=seed) / 8,
        "position": f32(1, 1, 1, 64),
    }


IMAGES = [(2, 64, 8, 8), (3, 64, 6, 8), (2, 64, 9, 8), (1, 64, 1, 8)]

#: What is done with a weight before it is read: axes are moved, parts are cut out.
TURNED: Mapping[str, str] = {
    "twice": "a = Transpose<perm = [2, 0, 1]>(w) b = Transpose<perm = [1, 2, 0]>(a)",
    "once each": "a = Transpose(w) b = Transpose<perm = [0, 2, 1]>(a)",
    "reshaped": "a = Transpose(w) c = Reshape(a, sizes) b = Transpose<perm = [1, 0, 2]>(c)",
    "reshaped first": "c = Reshape(w, sizes) a = Transpose<perm = [2, 0, 1]>(c) b = Identity(a)",
    "cut": "a = Transpose(w) c = Slice(a, at, end) b = Concat<axis = 0>(c, c)",
    "picked": """a = Transpose(w) c = Gather<axis = 0>(a, at) d = Gather<axis = 0>(a, end)
        b = Add(c, d)""",
}


def turned(kind: str, beside: bool) -> Row:
    net = f"""net (float[n, 1] x) => (float[i, j, k] y) <int64[1] at = {{0}}, int64[1] end = {{2}},
        int64[2] all = {{1, 2}}, int64[3] sizes = {{24, 16, 64}}> {{
        {TURNED[kind]} s = ReduceSum(b, all) y = Mul(x, s) }}"""
    return text(
        net,
        [(3, 1), (5, 1)],
        weights=lambda seed: {"w": f32(48, 32, 16, seed=seed)},
        beside=beside,
    )


def dequantized(kind: int) -> Row:
    """Return weights of an element type that NumPy does not have."""

    def write(path: Path, seed: int) -> Path:
        random, bits = np.random.default_rng(seed), 4 if kind == TensorProto.INT4 else 8
        raw = random.integers(0, 0x70, 512 * 512 * bits // 8, dtype=np.uint8).tobytes()
        proto = model(
            """<ir_version: 10, opset_import: ["" : 21]>
            g (float[n, 512] x) => (float[n, 512] y) <float s = {0.01}> {
            v = DequantizeLinear(w, s) y = MatMul(x, v) }"""
        )
        proto.graph.initializer.add(name="w", data_type=kind, dims=(512, 512), raw_data=raw)
        return saved(proto, path)

    return Row(write, lambda _: [{"x": f32(8, 512)}, {"x": f32(5, 512)}])


def overridden() -> Row:
    """Return an initializer that is an input as well: some runs give another value."""
    net = "net (float[n, 64] x, float[64] b) => (float[n, 64] y) { p = MatMul(x, w) y = Add(p, b) }"
    few, many, more = {"x": f32(3, 64)}, {"x": f32(5, 64)}, {"b": f32(64, seed=7)}

    def write(path: Path, seed: int) -> Path:
        return saved(model(net, w=f32(64, 64, seed=seed), b=f32(64)), path)

    return Row(write, lambda _: [few, few | more, many, many | more, few])


ROWS: Mapping[str, Callable[[], Row]] = {
    **{name: partial(of_network, name) for name in NETWORKS},
    "detector": lambda: of_network("detector", ways=("planned", "recorded on sizes")),
    **{
        f"fixed {name} {how}": partial(fixed, name, how)
        for name in packed_nets.NETS
        for how in ("inside", "beside", "in nodes")
    },
    **{f"computed {kind}": partial(computed, kind) for kind in COMPUTED},
    **{f"turned {kind}": partial(turned, kind, False) for kind in TURNED},
    **{f"turned {kind} beside": partial(turned, kind, True) for kind in TURNED},
    "packed": partial(packed, False),
    "packed beside": partial(packed, True),
    "weights": lambda: text(WEIGHTS, IMAGES, weights=weights),
    "weights beside": lambda: text(WEIGHTS, IMAGES, weights=weights, beside=True),
    "spread": lambda: text(SPREAD, IMAGES, weights=spread),
    "masks": lambda: text(MASKS, [(2, 5, 8), (2, 7, 8), (3, 16, 8), (2, 33, 8), (1, 1, 8)]),
    "pairs": lambda: text(
        PAIRS,
        [(Random(i).randint(1, 9), Random(-i).randint(1, 9)) for i in range(6)],
        lambda n, m: {"x": 9 * f32(n, 8, 8, seed=n), "p": f32(m, 8, 8, seed=m)},
        lambda seed: {f"w{i}": f32(8, 8, seed=seed + i) for i in range(2)},
    ),
    "resized": lambda: text(
        """resized (float[1, 2, h, 8] x) => (float[1, 2, 8, 8] y) <int64[4] to = {1, 2, 8, 8}> {
        y = Resize<mode = "nearest", coordinate_transformation_mode = "asymmetric",
                   nearest_mode = "floor">(x, , , to) }""",
        [(1, 2, rows, 8) for rows in (4, 2, 5, 7, 8)],
        ways=("planned", "recorded on sizes"),
    ),
    "heads": lambda: text(
        """heads (float[n, 5, 1, 3, 4] x) => (float[n, 3, 4, 5] y)
        <int64[3] counted = {-1, 5, 4}, int64[4] shape = {-1, 3, 4, 5}> {
        apart = Transpose<perm = [2, 0, 3, 1, 4]>(x)  all = Reshape(apart, counted)
        turned = Transpose<perm = [0, 2, 1]>(all)  back = Reshape(turned, shape)
        y = Relu(back) }""",
        [(n, 5, 1, 3, 4) for n in (1, 2, 3, 1)],
    ),
    "turning": lambda: text(
        "g (float[a, b] x) => (float[b, a] y) { r = Relu(x) y = Transpose<perm = [1, 0]>(r) }",
        [(1, 64), (64, 64), (2, 3)],
    ),
    "broadcast": lambda: text(
        "g (float[n, c] x, float[m, c] w) => (float[k, c] z) { a = Add(x, w) z = Relu(a) }",
        [(1, 1, 1), (4, 1, 1), (4, 4, 1), (1, 4, 8), (4, 1, 8), (4, 4, 8), (2, 3, 4), (1, 1, 3)],
        lambda n, m, c: {"x": f32(n, c), "w": f32(m, c, seed=1)},
    ),
    "border of a block": lambda: graph(
        lambda g: g.output(
            g.add(Relu(), g.input("x", {"N": 2, "C": None, "H": None, "W": None}), name="y"), "y"
        ),
        [{"x": f32(2, c, h, h)} for h in (1, 2) for c in (1, 7, 8, 9)],
        options={"output_layouts": {"y": "NCHW8c"}},
    ),
    "orders": lambda: graph(
        two_orders,
        [
            {"a": f32(4, n, 4).transpose(1, 0, 2), "b": f32(4, 4, n).transpose(2, 1, 0)}
            for n in range(2, 5)
        ]
        + [{"a": f32(n, 4, 4), "b": f32(n, 4, 4)} for n in range(2, 5)],
        options={"pin": {"na": "eigen", "nb": "numpy"}, "optimize": "none"},
        specialises=False,
        caches=False,
        ways=("recorded on sizes",),
    ),
    "sizes that cannot be": lambda: text(
        "g (float[n, 3, h, w] x) => (float[n, 4, a, b] y) { c = Conv(x, k) y = Relu(c) }",
        [
            *((1, 3, 9, 9), (1, 3, 4, 9), (1, 3, 400, 400), (2, 3, 7, 9), (1, 3, 0, 9)),
            *((2, 3, 4, 9), (3, 3, 8, 8), (2, 4, 8, 8)),
        ],
        weights=lambda seed: {"k": f32(4, 3, 5, 5, seed=seed)},
        options={"max_bytes": 1 << 20},
    ),
    "a batch that must be one": lambda: text(
        """g (float[n, 8] x) => (float[n, 8] y) <int64[2] eight = {1, 8}> {
        s = Reshape(x, eight) t = Transpose<perm = [1, 0]>(s) y = Add(x, s) }""",
        [(1, 8), (2, 8), (1, 8)],
    ),
    "wrong index": lambda: text(
        """picked (float[n, m] x, int64[k] i, int64[k] j) => (float[k, m] y, float[k, m] z) {
        y = Gather<axis = 0>(x, i) r = Relu(x) z = Gather<axis = 0>(r, j) }""",
        [(3, 0), (4, 3), (5, 2), (3, 3), (3, 1)],
        lambda n, j: {"x": f32(n, 2), "i": np.zeros(1, np.int64), "j": np.array([j])},
    ),
    "values decide": lambda: text(
        "g (float[a, b] x, int64[2] s) => (float[c, d] y) { z = Reshape(x, s) y = Relu(z) }",
        [(2, 4, 3), (4, 4, 6), (6, 4, 9), (6, 3, 12), (8, 3, 16), (2, 4, 3)],
        lambda a, *shape: {"x": f32(a, 6), "s": np.array(shape)},
    ),
    "values decide behind weights": lambda: text(
        """net (float[n, 64, 8, 8] x, int64[r] sizes) => (float[a, b] y) {
        c = Conv<pads = [1, 1, 1, 1]>(x, k) y = Reshape(c, sizes) }""",
        [(2,), (4,), (2,), (1,)],
        lambda rows: {"x": f32(2, 64, 8, 8), "sizes": np.array([rows, -1])},
        lambda seed: {"k": f32(64, 64, 3, 3, seed=seed) / 24},
    ),
    "no library but the reference": lambda: text(
        """net (float[n, 2] x) => (float[n, 2] y) <bool[3] often = {1, 0, 1}> {
        f = Compress(t, often) b = Cast<to = 1>(f) y = Add(x, b) }""",
        [(2, 2), (3, 2)],
        weights=lambda seed: {"t": f32(3, seed=seed)},
    ),
    "one row of a large table": lambda: text(
        """net (float[n, 2048] x) => (float[n, 2048] y) <int64[1] i = {3}> {
        t = Gather<axis = 0>(w, i) y = Add(x, t) }""",
        [(2, 2048), (3, 2048)],
        weights=lambda seed: {"w": f32(256, 2048, seed=seed)},
        beside=True,
        options={"max_bytes": 12_000_000},
    ),
    "must not be folded": lambda: text(
        """net (float[n, 64, 4, 4] x) => (float[n, 64, h, w] y) {
        c = Conv(x, k) y = Mul(c, large) }""",
        [(1, 64, 4, 4), (2, 64, 4, 4)],
        weights=lambda seed: {
            "k": np.full((64, 64, 3, 3), 1e10 if seed else 1e-3, np.float32),
            "large": np.full((64, 1, 1), 1e30, np.float32),
        },
    ),
    "int4": lambda: dequantized(TensorProto.INT4),
    "f8": lambda: dequantized(TensorProto.FLOAT8E4M3FN),
    "call-back": lambda: of_network(
        "mobile",
        options={"pin": {"Add": "numpy"}},
        specialises=False,
        ways=("recorded on sizes",),
    ),
    "call-backs alone": lambda: of_network(
        "attention",
        options={"libraries": ["numpy"]},
        specialises=False,
        ways=("recorded on sizes",),
    ),
    "inner values": lambda: of_network("transformer", outputs=["y", "h", "r"], specialises=False),
    "overridden": overridden,
    "any rank": lambda: text(
        "net (float[] x) => (float[] y) { r = Relu(x) y = Add(r, r) }",
        [(3,), (2, 3), (4, 3), (2, 1, 3), (5,), ()],
        specialises=False,
    ),
    "no pass": lambda: of_network(
        "attention", options={"optimize": "none"}, specialises=False, caches=False
    ),
    "without fusion": lambda: of_network("squeeze", options={"optimize": ["all", "-fuse"]}),
    "one library": lambda: of_network("mobile", options={"libraries": ["eigen"]}),
    "an input in another order": lambda: of_network(
        "squeeze", options={"input_layouts": {"x": "NHWC"}}
    ),
    "two threads": lambda: of_network("attention", options={"threads": 2}),
    "two streams": lambda: of_network("mobile", options={"threads": 2, "streams": 2}),
    "deterministic": lambda: of_network(
        "detector", options={"deterministic": True}, ways=("planned", "recorded on sizes")
    ),
}
