"""Small networks of today's kinds whose sizes are open, and arrays of sizes drawn at random."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import ModelProto

from tests.frontends.support import f32, model

Array = NDArray[Any]


@dataclass(frozen=True)
class Network:
    """A model, and its inputs for a choice of its sizes.

    Attributes:
        choices: for each size, the values from which it is drawn; a single one is always taken.
    """

    proto: ModelProto
    choices: tuple[Sequence[int], ...]
    feeds: Callable[..., dict[str, Array]]

    def draw(self, random: Random) -> tuple[int, ...]:
        """Return a choice of sizes."""
        return tuple(random.choice(sizes) if sizes[1:] else sizes[0] for sizes in self.choices)

    def sizes(self, seed: int, count: int) -> Iterator[tuple[int, ...]]:
        """Yield choices of sizes."""
        random = Random(seed)
        return (self.draw(random) for _ in range(count))


#: Borders of blocks, and sizes in between.
EDGES = (1, 2, 7, 8, 9, 15, 16, 17, 24, 31, 32, 33)


def scaled(divisor: float, seed: int = 0, **shapes: tuple[int, ...]) -> dict[str, Array]:
    """Return seeded weights, divided by a number."""
    return {name: f32(*shape, seed=seed) / divisor for name, shape in shapes.items()}


def numbers(**values: float) -> dict[str, Array]:
    return {name: np.array(value, np.float32) for name, value in values.items()}


def integers(**values: int | list[int]) -> dict[str, Array]:
    return {name: np.array(value) for name, value in values.items()}


def floats(*more: int) -> Callable[..., dict[str, Array]]:
    """Return a function from the first size and those after ``more`` to the input ``x``."""
    return lambda n, *rest: {"x": f32(n, *more, *rest, seed=int(np.prod([n, *rest])))}


def mobile() -> Network:
    """Convolutions of all kinds, one around which there is a residual, a pool, a product."""
    text = """mobile (float[n, 3, h, w] x) => (float[n, 10] y) {
        a0 = Conv<strides = [2, 2], pads = [1, 1, 1, 1]>(x, k0)
        a1 = BatchNormalization(a0, s, s, t, u) a = Clip(a1, low, high)
        b0 = Conv<group = 16, pads = [1, 1, 1, 1]>(a, k1) b = Relu(b0)
        c = Conv(b, k2) d = Add(a, c)
        e0 = Conv(d, k3) e = Relu(e0) p = GlobalAveragePool(e) f = Flatten(p) y = Gemm(f, k4, t4)
    }"""
    weights = scaled(1, k0=(16, 3, 3, 3), k1=(16, 1, 3, 3), k4=(24, 10), t4=(10,))
    weights |= scaled(4, k2=(16, 16, 1, 1), k3=(24, 16, 1, 1)) | numbers(low=0, high=6)
    weights |= {name: abs(f32(16)) + 1 for name in "stu"}
    return Network(model(text, 17, **weights), (EDGES[:6], EDGES, EDGES), floats(3))


def transformer() -> Network:
    """One layer: attention of two heads, then two products with a GELU between them."""
    heads = "".join(
        f"""{name}0 = MatMul(n0, w{name}) {name}1 = Reshape({name}0, apart)
        {name} = Transpose<perm = [0, 2, {order}]>({name}1)
        """
        for name, order in (("q", "1, 3"), ("k", "3, 1"), ("v", "1, 3"))
    )
    text = f"""transformer (int64[n, s] ids) => (float[n, s, 16] y) {{
        e = Gather(table, ids) n0 = LayerNormalization(e, one, zero) {heads}
        r0 = MatMul(q, k) r1 = Mul(r0, scale) r = Softmax(r1) o0 = MatMul(r, v)
        o1 = Transpose<perm = [0, 2, 1, 3]>(o0) o2 = Reshape(o1, joined) o = MatMul(o2, wo)
        h = Add(e, o) n1 = LayerNormalization(h, one, zero) f0 = MatMul(n1, wi)
        g0 = Div(f0, root) g1 = Erf(g0) g2 = Add(g1, unit) g3 = Mul(f0, g2) f = Mul(g3, half)
        z = MatMul(f, wf) y = Add(h, z)
    }}"""
    weights = {f"w{name}": f32(16, 16, seed=i) / 4 for i, name in enumerate("qkvo")}
    weights |= scaled(1, table=(50, 16)) | scaled(4, wi=(16, 32), wf=(32, 16))
    weights |= {"one": np.ones(16, np.float32), "zero": np.zeros(16, np.float32)}
    weights |= numbers(scale=8**-0.5, root=2**0.5, unit=1, half=0.5)
    weights |= integers(apart=[0, 0, 2, 8], joined=[0, 0, 16])
    return Network(
        model(text, 17, **weights),
        (EDGES[:6], EDGES),
        lambda n, s: {"ids": np.random.default_rng(n * s).integers(0, 50, (n, s))},
    )


def detector() -> Network:
    """Two scales of a picture, the smaller one enlarged to the size that the larger one has."""
    text = """detector (float[1, 3, h, w] x) => (float[1, 6, m] y) {
        a0 = Conv<strides = [2, 2], pads = [1, 1, 1, 1]>(x, k0) a1 = Sigmoid(a0) a = Mul(a0, a1)
        b0 = Conv<strides = [2, 2], pads = [1, 1, 1, 1]>(a, k1) b = Relu(b0)
        p = MaxPool<kernel_shape = [5, 5], pads = [2, 2, 2, 2]>(b)
        s0 = Shape<start = 2>(a) s = Concat<axis = 0>(two, s0)
        u = Resize<mode = "nearest", coordinate_transformation_mode = "asymmetric",
                   nearest_mode = "floor">(p, , , s)
        c = Concat<axis = 1>(u, a) d0 = Conv(c, k2) d = Sigmoid(d0)
        y = Reshape(d, flat)
    }"""
    weights = scaled(4, k0=(8, 3, 3, 3), k2=(6, 24, 1, 1)) | scaled(8, k1=(16, 8, 3, 3))
    weights |= integers(two=[1, 16], flat=[1, 6, -1])
    return Network(model(text, 17, **weights), ([1], EDGES, EDGES), floats(3))


def reader() -> Network:
    """Text recognition: columns of a picture of any width, one after another."""
    text = """reader (float[n, 3, 8, w] x) => (float[m, n, 20] y) {
        a0 = Conv<strides = [2, 1], pads = [1, 1, 1, 1]>(x, k0) a = Relu(a0)
        b0 = Conv<strides = [4, 1]>(a, k1) b = Relu(b0)
        c = Squeeze(b, second) d = Transpose<perm = [2, 0, 1]>(c)
        e, last = GRU<hidden_size = 8>(d, gw, gr) f = Squeeze(e, first)
        g = MatMul(f, w) y = Softmax(g)
    }"""
    weights = scaled(4, k0=(16, 3, 3, 3), gw=(1, 24, 16), gr=(1, 24, 8))
    weights |= scaled(8, k1=(16, 16, 4, 1)) | scaled(1, w=(8, 20))
    weights |= integers(first=[1], second=[2])
    return Network(model(text, 17, **weights), (EDGES[:4], [8], EDGES), floats(3))


def attention() -> Network:
    """Two layers that cut queries, keys and values out of one product, as pictures' have it."""
    body, weights = "h0 = Identity(x)", integers(i0=0, i1=1, i2=2)
    for i in range(2):
        weights |= {f"w{i}": f32(16, 48, seed=i) / 4, f"o{i}": f32(16, 16, seed=i) / 4}
        weights |= {f"f{i}": f32(16, 32, seed=i) / 4, f"g{i}": f32(32, 16, seed=i) / 4}
        body += f"""
            n{i} = LayerNormalization(h{i}, one, zero) q{i} = MatMul(n{i}, w{i})
            r{i} = Reshape(q{i}, apart) t{i} = Transpose<perm = [2, 0, 3, 1, 4]>(r{i})
            a{i} = Gather(t{i}, i0) b{i} = Gather(t{i}, i1) c{i} = Gather(t{i}, i2)
            d{i} = Transpose<perm = [0, 1, 3, 2]>(b{i}) s{i} = MatMul(a{i}, d{i})
            m{i} = Mul(s{i}, scale) p{i} = Softmax(m{i}) v{i} = MatMul(p{i}, c{i})
            u{i} = Transpose<perm = [0, 2, 1, 3]>(v{i}) j{i} = Reshape(u{i}, joined)
            l{i} = MatMul(j{i}, o{i}) e{i} = Add(h{i}, l{i})
            k{i} = MatMul(e{i}, f{i}) y{i} = Relu(k{i}) z{i} = MatMul(y{i}, g{i})
            h{i + 1} = Add(e{i}, z{i})
        """
    weights |= integers(apart=[0, 0, 3, 2, 8], joined=[0, 0, 16]) | numbers(scale=8**-0.5)
    weights |= {"one": np.ones(16, np.float32), "zero": np.zeros(16, np.float32)}
    text = f"attention (float[n, s, 16] x) => (float[n, s, 16] y) {{ {body} y = Identity(h2) }}"
    return Network(
        model(text, 17, **weights),
        (EDGES[:6], EDGES),
        lambda n, s: {"x": f32(n, s, 16, seed=n * s)},
    )


def squeeze() -> Network:
    """Inverted bottlenecks whose channels are weighed by what the picture has of each."""
    body = "h0 = Conv<strides = [2, 2], pads = [1, 1, 1, 1]>(x, k)"
    weights = scaled(5, k=(16, 3, 3, 3))
    for i in range(3):
        weights |= {f"a{i}": f32(64, 16, 1, 1) / 4, f"d{i}": f32(64, 1, 3, 3) / 3}
        weights |= {f"s{i}": f32(4, 64, 1, 1) / 8, f"u{i}": f32(64, 4, 1, 1) / 4}
        weights |= {f"b{i}": f32(16, 64, 1, 1) / 8}
        body += f"""
            p{i} = Conv(h{i}, a{i}) q{i} = Sigmoid(p{i}) r{i} = Mul(p{i}, q{i})
            t{i} = Conv<group = 64, pads = [1, 1, 1, 1]>(r{i}, d{i})
            g{i} = GlobalAveragePool(t{i}) v{i} = Conv(g{i}, s{i}) w{i} = Relu(v{i})
            o{i} = Conv(w{i}, u{i}) z{i} = Sigmoid(o{i}) m{i} = Mul(t{i}, z{i})
            c{i} = Conv(m{i}, b{i}) h{i + 1} = Add(h{i}, c{i})
        """
    body += "e = GlobalAveragePool(h3) y = Flatten(e)"
    text = f"squeeze (float[n, 3, h, w] x) => (float[n, 16] y) {{ {body} }}"
    return Network(model(text, 17, **weights), (EDGES[:6], EDGES, EDGES), floats(3))


def places() -> Network:
    """Channels that say where a pixel is are put behind others, for each picture."""
    text = """places (float[n, 3, 8, 8] x) => (float[n, 32, 8, 8] y) {
        a0 = Conv<pads = [1, 1, 1, 1]>(x, k0) a1 = Relu(a0)
        s = Shape<start = 0, end = 1>(x) t = Concat<axis = 0>(s, rest) e = Expand(where, t)
        a2 = Concat<axis = 1>(a1, e) y = Conv<pads = [1, 1, 1, 1]>(a2, k1)
    }"""
    weights = scaled(5, k0=(16, 3, 3, 3)) | scaled(20, k1=(32, 32, 3, 3))
    weights |= scaled(1, where=(1, 16, 8, 8)) | integers(rest=[16, 8, 8])
    return Network(model(text, 17, **weights), (range(1, 300),), floats(3, 8, 8))


def queries() -> Network:
    """Queries attend to one another before they meet a text: constants for each batch."""
    text = """queries (float[n, 6, 16] x) => (float[n, 6, 16] y) {
        s = Shape<start = 0, end = 1>(x) t = Concat<axis = 0>(s, rest) q0 = Expand(query, t)
        q = MatMul(q0, w0) k0 = MatMul(q0, w1) k = Transpose<perm = [0, 2, 1]>(k0)
        c = MatMul(q, k) a = Softmax<axis = -1>(c) v = MatMul(a, q0) f = Reshape(v, flat)
        g = Gemm<transB = 1>(f, w2, bias) h = Reshape(g, t)
        n = LayerNormalization<axis = -1>(h, scale, bias)
        y0 = MatMul(x, w3) y1 = Add(y0, n) y = Relu(y1)
    }"""
    weights = {f"w{i}": f32(16, 16, seed=i) / 4 for i in range(4)}
    weights |= scaled(1, query=(1, 6, 16), scale=(16,)) | scaled(1, seed=1, bias=(16,))
    weights |= integers(rest=[6, 16], flat=[-1, 16])
    return Network(model(text, 17, **weights), (range(1, 300),), floats(6, 16))


_ALL = (mobile, transformer, detector, reader, attention, squeeze, places, queries)
NETWORKS = {network.__name__: network for network in _ALL}
