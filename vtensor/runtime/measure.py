"""How long a node or a Transform takes here: alone, on memory of its own, in a warm cache.

To be called on the thread that runs plans: its budget of kernel threads is what counts.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from libdesc.choice import EVERY, Choice
from libdesc.transforms import LayoutChange, choose_library
from ptensor.buffer import Buffer
from ptensor.parts import Part
from resolver.evaluate import PartialEvaluation
from resolver.extended import ExtendedGraph, OpNode, Reason, TransformNode, Value
from vtensor.dtype import numpy_dtype
from vtensor.runtime.plan import Array, Plan
from vtensor.tensor import VTensor

#: A measurement is the median of at least so many runs, and of at most so many.
LEAST, MOST = 3, 100

#: Seconds after which a measurement ends, once it has its least number of runs.
SECONDS = 0.02


def node_ns(node: OpNode, values: Mapping[str, VTensor]) -> int:
    """Nanoseconds of a node as it is decided; constants have their values, inputs hold ones.

    Raises:
        VTensorError: its library fails.
    """
    return run_ns(*alone([node], values))


def transform_ns(value: VTensor, change: LayoutChange, choice: Choice = EVERY) -> int:
    """Nanoseconds of a Transform, on the first library that is able to.

    Raises:
        NoInvokerError: none is.
        VTensorError: the library fails.
    """
    library = choose_library(value, change, (), PartialEvaluation(), choice)
    node = TransformNode("t", "x", "y", library, Reason("y", "x"))
    ends = {"x": change.source, "y": change.target}
    graph = ExtendedGraph("t", inputs=("x",), outputs={"y": "y"}, nodes=[node])
    graph.values = {name: Value(name, value.dtype, value.dims, at) for name, at in ends.items()}
    return run_ns(graph, {})


def signature(node: OpNode, values: Mapping[str, VTensor]) -> str:
    """What nodes have in common that take the same time: operator, sizes, element types."""
    operands = (values[name] for name in (*node.inputs, *node.outputs))
    rows = (f"{t.summary()}{' constant' if t.constant else ''}" for t in operands)
    return f"{node.decision.library} {node.op!r}: {', '.join(rows)}"


def alone(
    nodes: Iterable[OpNode], values: Mapping[str, VTensor]
) -> tuple[ExtendedGraph, dict[str, Array]]:
    """A graph of nodes that have nothing to do with one another, and its constants.

    Each has inputs of its own, in the layouts in which it wants them.
    """
    graph, constants = ExtendedGraph("alone"), {}
    for node in nodes:
        inputs = tuple(f"{node.name}/{place}" for place in range(len(node.inputs)))
        own, given = (*inputs, *node.outputs), (*node.inputs, *node.outputs)
        for name, source, layout in zip(own, given, node.decision.layouts, strict=True):
            value = values[source]
            graph.values[name] = Value(name, value.dtype, value.dims, layout, value.constant)
            if value.storage is not None and value.constant:
                constants[name] = value.storage.logical(value)
        graph.nodes.append(replace(node, inputs=inputs))
        graph.inputs += tuple(name for name in inputs if name not in constants)
        graph.outputs |= {name: name for name in node.outputs}
    return graph, constants


def ones(value: Value) -> Part:
    """Memory for a value, in its layout: ones; zeros of whole numbers, which may be indices."""
    shape = value.layout.physical_shape(value.dims)
    dtype = numpy_dtype(value.dtype)
    array = Buffer.allocate(value.nbytes).memory.view(dtype).reshape(shape)
    array[...] = dtype.kind not in "iub"
    return Part(array, value.layout, value.dims)


def run_ns(graph: ExtendedGraph, constants: Mapping[str, Array]) -> int:
    """Nanoseconds of a run of a graph whose inputs hold ones."""
    plan = Plan(graph, constants)
    feeds = {name: ones(graph.values[name]) for name in graph.inputs}
    return median_ns(lambda: plan.run(feeds, []))


def median_ns(run: Callable[[], object]) -> int:
    """Nanoseconds of a call, the median of several; the first does not count."""
    run()
    times: list[int] = []
    end = time.monotonic() + SECONDS
    while len(times) < LEAST or (len(times) < MOST and time.monotonic() < end):
        begin = time.perf_counter_ns()
        run()
        times.append(time.perf_counter_ns() - begin)
    return round(statistics.median(times))
