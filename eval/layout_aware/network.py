"""Whole networks on layout-aware operators: planned once, then replayed without Python.

VTensor's own code plans the memory and runs the steps, so that only the layouts differ.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from time import perf_counter
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from eval.layout_aware.base import LIBRARIES
from eval.layout_aware.context import CONVERSION, Array, Context, Recorded, slots_of
from eval.layout_aware.reading import aligned, operator_of
from eval.layout_aware.tensor import Sizes, Tensor, memory_of, plain
from libdesc.onednn.native import dnnl
from ptensor.buffer import Buffer, fresh
from vtensor.commands.shared import Mix
from vtensor.errors import InputError, VTensorError
from vtensor.language.graph import Graph
from vtensor.language.operators import info_of
from vtensor.runtime.execution.executor import Executor
from vtensor.runtime.recording.placement import place

if TYPE_CHECKING:
    from vtensor.language.node import Node


class Conversions(NamedTuple):
    """The number of conversions in a run, and the bytes that they read and write."""

    number: int
    bytes: int


class Network:
    """A graph on layout-aware operators: each compares its inputs' layouts and converts by itself.

    Args:
        graph: a sealed graph of the paper's sixteen operators on f32, with known sizes.
        libraries: a mix: names of libraries, the preferred one first (None means all), and by name
            of an operator or node the library on which it must run.
        threads: the number of threads of kernels; None means one for each processor.

    Attributes:
        phases: the seconds of each phase of planning: ``operators`` (sizes, kernels, layouts),
            ``conversions`` (comparing layouts, inserting conversions), ``constants`` (converting
            constants), ``recording`` (memory and the program).

    Raises:
        UnsupportedOperatorError: the graph has another operator.
        NoInvokerError: no library takes a node.
        DimError: the inputs of a node do not fit.
    """

    def __init__(self, graph: Graph, libraries: Mix, threads: int | None = None) -> None:
        self.graph, self.mix = graph, libraries
        self.phases: dict[str, float] = {}
        self._context = Context()
        self._values: dict[str, Tensor] = {}
        self._executor = Executor.of(threads)
        self._executor.run(self._plan)

    @property
    def steps(self) -> Sequence[Recorded]:
        """The steps of a run, in order."""
        return self._context.steps

    @property
    def planned_bytes(self) -> int:
        """The bytes of the memory that a run needs for values between steps and for scratch."""
        return self._placement.nbytes

    @property
    def conversions(self) -> Conversions:
        """The number and the bytes of the conversions in each run.

        Conversions of constants, which run while planning, do not count.
        """
        sizes = [step.nbytes for step in self.steps if step.kind == CONVERSION]
        return Conversions(len(sizes), sum(sizes))

    def run(self, feeds: Mapping[str, Array], times: Array | None = None) -> list[Array]:
        """Run on inputs by name, and return the outputs, in the graph's order.

        Args:
            feeds: the inputs.
            times: receives the begin and the end of each of ``steps``, in nanoseconds: int64,
                steps x 2; None measures nothing.

        Raises:
            InputError: an input is missing, or has another shape.
        """
        inputs = [
            _fed(feeds, name, x.dims)
            for name, x in zip(self.graph.inputs, self._inputs, strict=True)
        ]
        outputs = [fresh(x.desc.nbytes) for x in self._outputs]
        bindings = [*inputs, *outputs]
        if self._calls_back:
            for memory, array in zip(self._placement.bound, bindings, strict=True):
                memory.bind(Buffer.wrap(array))
            for memory, host in self._placement.hosts.items():
                memory.bind(host.buffer)
        self._executor.replay(self._program, bindings, times)
        rows = zip(outputs, self._outputs, strict=True)
        return [array.view(np.float32).reshape(x.dims) for array, x in rows]

    def converted(self) -> dict[int, str]:
        """Return the name of the value that each conversion changes, by the index in ``steps``.

        A conversion inside of a node, between its own steps, has the node's name.
        """
        names = {tensor.memory: name for name, tensor in self._values.items()}
        return {
            index: next((names[slot] for slot in step.slots if slot in names), step.node)
            for index, (kind, step) in enumerate((each.kind, each.step) for each in self.steps)
            if kind == CONVERSION
        }

    def _plan(self) -> None:
        with self._phase("operators"):
            self._enter()
            for node in self._needed():
                self._operator(node)
            self._outputs = [self._delivered(name) for name in self.graph.outputs.values()]
        self.phases["conversions"] = self._context.converting
        self.phases["operators"] -= self._context.converting
        with self._phase("constants"):
            for source, target in self._context.loads:
                _load(source, target)
        with self._phase("recording"):
            self._record()

    @contextmanager
    def _phase(self, name: str) -> Iterator[None]:
        begin = perf_counter()
        yield
        self.phases[name] = perf_counter() - begin

    def _enter(self) -> None:
        """Make the tensors of the graph's inputs and constants, in plain layouts."""
        for name in self.graph.inputs:
            dims = tuple(self.graph.values[name].dims.values())
            desc = plain(dims)
            self._values[name] = Tensor(desc, memory_of(desc.nbytes))
        self._inputs = [self._values[name] for name in self.graph.inputs]
        for name, array in self.graph.constants.items():
            flat = np.ascontiguousarray(array, np.float32)
            memory = memory_of(flat.nbytes)
            memory.bind(Buffer.wrap(flat))
            self._values[name] = Tensor(plain(array.shape or (1,)), memory, constant=True)

    def _needed(self) -> list[Node]:
        """Return the nodes on which the graph's outputs depend, in order."""
        needed, order = set(self.graph.outputs.values()), []
        for node in reversed(self.graph.nodes.values()):
            if not needed.isdisjoint(node.outputs):
                needed.update(node.inputs)
                order.append(node)
        return order[::-1]

    def _operator(self, node: Node) -> None:
        ctx = self._context
        ctx.node, ctx.kind = node.name, info_of(node.op).name
        listed = [*(self.mix.libraries or LIBRARIES)]
        pinned = self.mix.pin.get(node.name, self.mix.pin.get(ctx.kind))
        libraries = [pinned] if pinned else dict.fromkeys([*listed, LIBRARIES[-1]])
        inputs = aligned(self.graph, node, [self._values[name] for name in node.inputs])
        try:
            result = operator_of(self.graph, node).run(ctx, libraries, *inputs)
        except VTensorError as error:
            raise type(error)(f"{ctx.kind} {node.name!r}: {error}") from error
        self._values[node.outputs[0]] = result

    def _delivered(self, name: str) -> Tensor:
        """Return an output of the graph, converted to the plain layout."""
        x = self._values[name]
        return self._context.convert(x, plain(x.dims))

    def _record(self) -> None:
        from vtensor.runtime import _replay

        inputs, outputs = ([x.memory for x in row] for row in (self._inputs, self._outputs))
        steps = [recorded.step for recorded in self.steps]
        self._placement = place(steps, inputs, outputs)
        self._arena = _replay.Arena(self._placement.nbytes)
        self._program = self._placement.program(self._arena)
        self._calls_back = any(step.callback for step in steps)
        for memory, buffer in self._placement.buffers(self._arena).items():
            memory.bind(buffer)  # bound once, as the arena is this network's; Python steps read it


def _fed(feeds: Mapping[str, Array], name: str, dims: Sizes) -> Array:
    array = feeds.get(name)
    if array is None or array.shape != dims or array.dtype != np.float32:
        text = "nothing" if array is None else f"{array.dtype} {array.shape}"
        raise InputError(f"input {name!r} is f32 {dims}; given is {text}")
    return np.ascontiguousarray(array)


def _load(source: Tensor, target: Tensor) -> None:
    """Allocate the memory of ``target``, and convert the constant ``source`` into it at once."""
    from vtensor.runtime import _replay

    target.memory.bind(Buffer.allocate(target.desc.nbytes))
    primitive = dnnl.reorder(source.desc, target.desc)
    slots = slots_of(primitive, {"src": source, "dst": target})
    memory = [fresh(slot) if isinstance(slot, int) else slot.buffer.memory for slot in slots]
    _replay.execute(primitive, memory)
