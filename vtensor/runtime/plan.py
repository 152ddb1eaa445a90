"""A plan: what one session does for one set of shapes, element types and entry layouts."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from libdesc.choice import EVERY, Choice
from libdesc.routine import reference_kernel
from ptensor.buffer import Buffer, TensorStorage
from ptensor.layout import Layout
from ptensor.parts import Part
from resolver.extended import (
    Certificate,
    ExtendedGraph,
    ExtendedNode,
    OpNode,
    Reason,
    TransformNode,
    Value,
)
from vtensor.operators import info_of
from vtensor.runtime.record import RecordedStep, Recorder, execute

if TYPE_CHECKING:
    from collections.abc import Callable

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Conversion:
    """A Transform that runs each time.

    Attributes:
        source, target: the layouts.
        bytes: read plus written, pads included.
        library: who runs it.
        reasons: who asked for it, each of them, and who had something else.
        node: its name in the plan.
        value: what is transformed.
    """

    source: Layout
    target: Layout
    bytes: int
    library: str
    reasons: tuple[Reason, ...]
    node: str
    value: str


@dataclass(frozen=True)
class PlanStep:
    """A node of the extended graph as a plan shows it.

    ``kernels`` are the library's names for what runs; empty when nothing does, since the output is
    the input's memory under other dims, or has no elements. ``unlisted``: the definition runs it
    since none of the session's libraries does.
    """

    node: ExtendedNode
    kernels: tuple[str, ...]
    library: str
    unlisted: bool = False

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


@dataclass(frozen=True)
class Result:
    """An output of a run.

    Attributes:
        name: what it is delivered under.
        dtype: element type.
        part: its memory, which nothing else uses.
        into: the caller's array that has it; None if none was given.
        copied: it was written elsewhere first: the caller's array lies otherwise, or the memory
            is an input's, a constant's or another output's too.
    """

    name: str
    dtype: str
    part: Part
    into: Array | None
    copied: bool

    def array(self) -> Array:
        """The elements in presentation order."""
        if self.into is not None:
            return self.into
        return self.part.logical(list(self.part.extents), self.dtype)


class Plan:
    """Recorded steps, their memory, and the extended graph that they come from.

    Args:
        graph: checked and optimised.
        constants: arrays of the graph's constants by name.
        progress: called with each node's name while it is recorded.
        choice: which libraries could take what.
        resolved: the graph before any pass, for those who compare; None where it is ``graph``.
    """

    def __init__(
        self,
        graph: ExtendedGraph,
        constants: Mapping[str, np.ndarray[Any, Any]],
        progress: Callable[[str], None] | None = None,
        choice: Choice = EVERY,
        resolved: ExtendedGraph | None = None,
    ) -> None:
        recorder = Recorder(graph, constants)
        recorder.record(progress)
        self.graph = graph
        self._choice = choice
        self.resolved = resolved or graph
        self.recorded: tuple[RecordedStep, ...] = tuple(recorder.evaluation.steps)
        recorder.evaluation.steps.clear()  # steps refer to their evaluation: no circle of the two
        self._scratch = recorder.evaluation.scratch
        self._storages = recorder.storages
        roots = {self._storages[name].root for name in graph.outputs.values()}
        #: The outputs' own memory, where it is not an input's or a constant's.
        self._own = {root: root.buffer for root in roots if root.bound and not root.constant}
        self._lock = threading.Lock()

    @property
    def passes(self) -> tuple[str, ...]:
        """The optimisations that ran."""
        return self.graph.passes

    @property
    def certificate(self) -> Certificate | None:
        """What the last optimisation proved of the Transforms that are left; None if none tried."""
        return self.graph.certificate

    @property
    def steps(self) -> list[PlanStep]:
        """What runs each time, in order."""
        kernels: dict[str, list[str]] = {}
        for step in self.recorded:
            kernels.setdefault(step.node, []).append(step.kernel)
        ahead = {node.name for node in self.graph.ahead()}
        return [
            self._step(node, tuple(kernels.get(node.name, ())))
            for node in self.graph.nodes
            if node.name not in ahead
        ]

    def _step(self, node: ExtendedNode, kernels: tuple[str, ...]) -> PlanStep:
        op = info_of(node.op).name if isinstance(node, OpNode) else ""
        library = node.decision.library if isinstance(node, OpNode) else node.library
        unlisted = bool(kernels) and self._choice.unlisted(node.name, op, library)
        return PlanStep(node, kernels, library, unlisted)

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
                    node.reasons,
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
        inputs: Mapping[str, Part],
        outputs: Sequence[str],
        into: Mapping[str, Array] | None = None,
    ) -> list[Result]:
        """Execute every step.

        Args:
            inputs: dense, in the plan's entry layouts.
            outputs: names to return, under which the plan delivers.
            into: arrays to write outputs to, by name; they fit, and overlap nothing. The last step
                writes there where the array lies as the plan delivers, else a copy does.

        Raises:
            NativeError: a library failed; what ``into`` holds then is unspecified.
        """
        given = into or {}
        with self._lock:
            try:
                for name, part in inputs.items():
                    self._storages[name].bind(Buffer.wrap(part.array))
                placed = self._place(outputs, given)
                for step in self.recorded:
                    execute(step, self._scratch)
                return [self._result(name, given.get(name), name in placed) for name in outputs]
            finally:
                for name in inputs:
                    self._storages[name].release()  # the caller's memory is the caller's again
                for root, buffer in self._own.items():
                    root.bind(buffer)

    def _place(self, outputs: Sequence[str], into: Mapping[str, Array]) -> set[str]:
        """Bind the memory that is to be delivered, so that steps write there; names of which."""
        placed: dict[TensorStorage, str] = {}
        for name in outputs:
            root = self._storages[self.graph.outputs[name]].root
            if root not in self._own or root in placed:
                continue  # an input's memory, a constant's, or another output's
            buffer = (
                self._fitting(name, into[name]) if name in into else Buffer.allocate(root.nbytes)
            )
            if buffer is not None:
                root.bind(buffer)
                placed[root] = name
        return set(placed.values())

    def _fitting(self, name: str, array: Array) -> Buffer | None:
        """The memory of an array that lies exactly as an output is delivered; else None."""
        part, dims = self._delivered(name), list(self._value(name).dims)
        lying = part.logical(dims)
        if lying.nbytes != part.array.nbytes or not np.may_share_memory(lying, part.array):
            return None
        seen = array.transpose(sorted(range(array.ndim), key=lambda axis: -lying.strides[axis]))
        return Buffer.wrap(seen) if seen.flags.c_contiguous and array.flags.aligned else None

    def _value(self, name: str) -> Value:
        return self.graph.values[self.graph.outputs[name]]

    def _delivered(self, name: str) -> Part:
        value = self._value(name)
        return Part(self._storages[value.name].data(), value.layout, value.dims)

    def _result(self, name: str, into: Array | None, placed: bool) -> Result:
        value, part = self._value(name), self._delivered(name)
        if into is not None and not placed:
            np.copyto(into, part.logical(list(value.dims), value.dtype))
        elif not placed:
            part = replace(part, array=part.array.copy())
        return Result(name, value.dtype, part, into, copied=not placed)
