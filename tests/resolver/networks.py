"""Small networks of toy operators, and the check of their plans."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from libdesc import invoker
from libdesc.registry import registry
from ptensor import Layout, PTensor, lib_tagger
from resolver.check import check
from resolver.lowered import LoweredGraph
from tests.libraries.bench import Bench
from vtensor.language.graph import Graph
from vtensor.language.operators import OPERATORS, Context, operator
from vtensor.language.tensor import VTensor

IMAGE = {"N": 1, "C": 16, "H": 4, "W": 6}


def checked(
    lowered: LoweredGraph,
    graph: Graph,
    entry: Mapping[str, Layout] | None = None,
    outputs: Mapping[str, Layout] | None = None,
) -> LoweredGraph:
    """Prove a plan sound, with the transformers that there are, and return it."""
    able = [library.name for library in registry().libraries.values() if library.transforms]
    check(lowered, graph, able, entry, outputs)
    return lowered


def mix(bench: Bench, asks: str, *inputs: VTensor, graph: Graph, name: str) -> VTensor:
    """Add a Mix whose operands ask for these layouts, words in a row, the output last."""
    value: VTensor = graph.add(bench.op("Mix", tuple(asks.split())), *inputs, name=name)
    return value


def mixes(*lines: str, name: str = "mixes", outputs: str = "", **sizes: Any) -> Graph:
    """Return a sealed graph of Mix nodes; those that no node reads are its outputs.

    Args:
        lines: for each node its name, its operands, and the layouts that it asks for, the output
            last, as in ``join: a b ANY ANY NHWC = y``. An operand without a node is an input; an
            output may have a name of its own, here ``y``.
        name: the graph's name.
        outputs: names of more values that are outputs.
        sizes: the dims of inputs by name, if they are not ``IMAGE``.
    """
    graph, values, read, aliases = Graph(name), dict[str, VTensor](), set[str](), {}
    for line in lines:
        head, _, alias = line.partition(" = ")
        node, _, words = head.partition(": ")
        row = words.split()
        operands, asks = row[: len(row) // 2], row[len(row) // 2 :]
        for operand in operands:
            if operand not in values:
                values[operand] = graph.input(operand, sizes.get(operand, IMAGE))
        op = OPERATORS["Mix"].cls(tuple(asks))
        values[node] = graph.add(op, *(values[operand] for operand in operands), name=node)
        read |= {*operands}
        aliases[node] = alias
    for value in [*(node for node in graph.nodes if node not in read), *outputs.split()]:
        graph.output(values[value], aliases.get(value, ""))
    return graph.seal()


def diamond() -> Graph:
    """Two inputs, a fork and a join::

    x -> stem (NCHW -> NCHW4c) -> left (NHWC) --> join (ANY) -> y
                               -> right (ANY) -/
    z ----------------------------------------/
    """
    return mixes(
        "stem: x NCHW NCHW4c",
        "left: stem NHWC NHWC",
        "right: stem ANY ANY",
        "join: left right z ANY ANY ANY ANY = y",
        name="diamond",
        z={"C": 16},
    )


def chain(bench: Bench) -> Graph:
    """Two convolutions with a Relu between them and constant weights: Fig. 7 of the paper."""
    g = Graph("chain")
    x = g.input("x", IMAGE)
    for index in (1, 2):
        w = g.constant(np.ones((16, 16, 3, 3), np.float32), "O I h w", f"w{index}")
        x = g.add(bench.op("Conv"), x, w, name=f"conv{index}")
        if index == 1:
            x = mix(bench, "ANY ANY", x, graph=g, name="relu")
    g.output(x, "y")
    return g.seal()


def inception(bench: Bench) -> Graph:
    """Fig. 4 of the paper: a Concat in NCHW feeds three convolutions in another layout."""
    g = Graph("inception")
    a, b = g.input("a", IMAGE), g.input("b", IMAGE)
    both = g.add(bench.op("Join"), a, b, name="concat")
    for index in (1, 2, 3):
        w = g.constant(np.ones((8, 32, 1, 1), np.float32), "O I h w", f"w{index}")
        g.output(g.add(bench.op("Conv"), both, w, name=f"conv{index}"))
    return g.seal()


def declare_convolution() -> None:
    """A convolution that takes blocked operands only, and a Concat that takes plain ones only."""

    @operator("Conv", dims={"x": "N C H W", "w": "O I h w", "y": "N C H W"}, equal=[("x.C", "w.I")])
    class Conv:
        """Sums over channels and window, so that a wrong layout gives wrong values."""

        def compute(self, ctx: Context, x: VTensor, w: VTensor) -> VTensor:
            y = VTensor(x.dtype, {**x.dims, "C": w.size("O")}, ctx.output(0))
            ctx.dispatch(self, [x, w], [y])
            return y

    @operator("Join", dims={"x": "N C H W", "y": "N C H W"})
    class Join:
        """One behind the other along C."""

        def compute(self, ctx: Context, *x: VTensor) -> VTensor:
            y = VTensor(x[0].dtype, {**x[0].dims, "C": sum(t.size("C") for t in x)}, ctx.output(0))
            ctx.dispatch(self, list(x), [y])
            return y

    @invoker("Conv", library="toy", python=True)
    def toy_conv(ctx: Context, op: Any, x: VTensor, w: VTensor, y: VTensor) -> None:
        src, weights = PTensor(x).require("NCHW4c"), PTensor(w).require("hwIO4o")
        dst = PTensor(y).require("NCHW8c")
        if lib_tagger("toy", [src, weights], [dst]):
            return
        total = np.einsum("nchwb->nhw", src.data())  # all weights are equal in these networks
        dst.data()[...] = total[:, None, :, :, None] * weights.data().flat[0]

    @invoker("Join", library="numpy", python=True)
    def numpy_join(ctx: Context, op: Any, *operands: VTensor) -> None:
        tensors = [PTensor(t).require("NCHW") for t in operands]
        if lib_tagger("numpy", tensors[:-1], tensors[-1:]):
            return
        np.concatenate([t.data() for t in tensors[:-1]], axis=1, out=tensors[-1].data())
