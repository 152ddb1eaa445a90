"""A plan: what one session does for one set of shapes, element types and entry layouts."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from libdesc.routine import reference_kernel
from ptensor.buffer import Buffer, TensorStorage
from ptensor.layout import Layout
from ptensor.transform import unpack
from resolver.extended import ExtendedGraph, ExtendedNode, OpNode, Reason, TransformNode
from vtensor.runtime.record import RecordedStep, Recorder, execute

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True)
class Conversion:
    """A Transform that runs each time.

    Attributes:
        source, target: the layouts.
        bytes: read plus written, pads included.
        library: who runs it.
        reason: who asked for it, and who had something else.
        node: its name in the plan.
        value: what is transformed.
    """

    source: Layout
    target: Layout
    bytes: int
    library: str
    reason: Reason
    node: str
    value: str


@dataclass(frozen=True)
class PlanStep:
    """A node of the extended graph as a plan shows it.

    ``kernels`` are the library's names for what runs; empty when nothing does, since the output is
    the input's memory under other dims.
    """

    node: ExtendedNode
    kernels: tuple[str, ...]
    library: str

    @property
    def is_transform(self) -> bool:
        """True for a change of layout."""
        return isinstance(self.node, TransformNode)

    @property
    def op(self) -> str:
        """The operator's name, ``Transform`` for a Transform."""
        return self.node.op_name if isinstance(self.node, OpNode) else "Transform"

    @property
    def is_reference(self) -> bool:
        """A kernel is the library's reference code."""
        return any(map(reference_kernel, self.kernels))

    @property
    def python(self) -> bool:
        """It calls back into Python."""
        return "python" in self.kernels


class Plan:
    """Recorded steps, their memory, and the extended graph that they come from.

    Args:
        graph: checked and optimised.
        constants: arrays of the graph's constants by name.
        progress: called with each node's name while it is recorded.
    """

    def __init__(
        self,
        graph: ExtendedGraph,
        constants: Mapping[str, np.ndarray[Any, Any]],
        progress: Callable[[str], None] | None = None,
    ) -> None:
        recorder = Recorder(graph, constants)
        recorder.record(progress)
        self.graph = graph
        self.recorded: tuple[RecordedStep, ...] = tuple(recorder.evaluation.steps)
        recorder.evaluation.steps.clear()  # steps refer to their evaluation: no circle of the two
        self._scratch = recorder.evaluation.scratch
        self._storages = recorder.storages
        self._lock = threading.Lock()

    @property
    def passes(self) -> tuple[str, ...]:
        """The optimisations that ran."""
        return self.graph.passes

    @property
    def steps(self) -> list[PlanStep]:
        """What runs each time, in order."""
        kernels: dict[str, list[str]] = {}
        for step in self.recorded:
            kernels.setdefault(step.node, []).append(step.kernel)
        ahead = {node.name for node in self.graph.ahead()}
        return [
            PlanStep(
                node,
                tuple(kernels.get(node.name, ())),
                node.decision.library if isinstance(node, OpNode) else node.library,
            )
            for node in self.graph.nodes
            if node.name not in ahead
        ]

    @property
    def conversions(self) -> list[Conversion]:
        """The Transforms that run each time."""
        values = self.graph.values
        rows = []
        for node in self.graph.transforms():
            source, target = values[node.input], values[node.output]
            rows.append(
                Conversion(
                    source.layout,
                    target.layout,
                    source.nbytes + target.nbytes,
                    node.library,
                    node.reason,
                    node.name,
                    source.name,
                )
            )
        return rows

    def kernels(self) -> Counter[tuple[str, str]]:
        """How many steps each (library, kernel) runs."""
        return Counter((step.library, step.kernel) for step in self.recorded)

    def sizes(self, output: str) -> Mapping[str, int]:
        """Sizes by dim of what is delivered under a name."""
        return self.graph.values[self.graph.outputs[output]].dims

    def run(
        self,
        inputs: Mapping[str, np.ndarray[Any, Any]],
        outputs: Sequence[str],
        into: Mapping[str, np.ndarray[Any, Any]] | None = None,
    ) -> list[np.ndarray[Any, Any]]:
        """Execute every step.

        Args:
            inputs: arrays in presentation order, lying in the plan's entry layouts.
            outputs: names to return, under which the plan delivers.
            into: arrays to write outputs to, by name; they fit, and overlap nothing.

        Returns:
            Arrays in presentation order, those of ``into`` or fresh ones.

        Raises:
            NativeError: a library failed.
        """
        with self._lock:
            bound = [self._storages[name] for name in inputs]
            try:
                for name, array in inputs.items():
                    self._storages[name].bind(Buffer.wrap(_as_it_lies(array, self._layout(name))))
                for step in self.recorded:
                    execute(step, self._scratch)
                return [self._deliver(name, (into or {}).get(name)) for name in outputs]
            finally:
                for storage in bound:
                    storage.release()  # the caller's memory is the caller's again

    def _layout(self, name: str) -> tuple[Layout, tuple[str, ...]]:
        value = self.graph.values[name]
        return value.layout, tuple(value.dims)

    def _deliver(self, name: str, into: np.ndarray[Any, Any] | None = None) -> np.ndarray[Any, Any]:
        value = self.graph.values[self.graph.outputs[name]]
        storage: TensorStorage = self._storages[value.name]
        physical = storage.data().copy() if into is None else storage.data()
        array = unpack(physical, value.layout, list(value.dims), value.dims)
        if into is None:
            return array
        np.copyto(into, array)
        return into


def _as_it_lies(
    array: np.ndarray[Any, Any], where: tuple[Layout, tuple[str, ...]]
) -> np.ndarray[Any, Any]:
    """An array seen in the order of its memory, which is contiguous."""
    layout, dims = where
    if layout.is_plain:
        return np.ascontiguousarray(array.transpose([dims.index(dim) for dim in layout.dims]))
    from ptensor.transform import pack

    return np.ascontiguousarray(pack(array, list(dims), layout))
