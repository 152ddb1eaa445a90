"""A plan: the steps of a session for one set of shapes, element types and input layouts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import numpy as np

from libdesc.preferences import Preferences
from ptensor.background_work import checkpoint, nobody_waits
from ptensor.buffer import Buffer, TensorStorage
from ptensor.layout import Layout
from vtensor.errors import InputError, NestedRunError
from vtensor.language.cached import cached_property
from vtensor.language.dtype import exponent
from vtensor.language.records import dataclass
from vtensor.runtime.execution.delivery import Delivery
from vtensor.runtime.execution.lanes import Lane, Lanes
from vtensor.runtime.execution.one_process import OneProcess
from vtensor.runtime.execution.origin import IN_MEMORY, PLANNED, RECORDED_ON_SIZES
from vtensor.storage.inputs import check_fits

if TYPE_CHECKING:
    from ptensor.parts import Part
    from resolver.lowered import Certificate, LoweredGraph, Reason
    from resolver.values import Value
    from vtensor.runtime._replay import Arena, Program
    from vtensor.runtime.execution.address_ranges import AddressRanges
    from vtensor.runtime.execution.plan_steps import PlanStep
    from vtensor.runtime.execution.steps import RecordedStep
    from vtensor.runtime.planning.background import BackgroundTask
    from vtensor.runtime.recording.placement import Placement
    from vtensor.runtime.recording.workspace import Workspace

Array = np.ndarray[Any, Any]
T = TypeVar("T")

#: What a loop carries, by the indices of a plan's bindings: see ``_replay.Team.repeat``.
CarriedBindings = tuple[
    Sequence[tuple[int, int]],
    int | None,
    int | None,
    Sequence[tuple[int, object]],
    Sequence[tuple[int, object]],
]

#: Steps, each with (region, byte offset in the region) of each of its slots. Region 0 is the arena;
#: inputs, the memory allocated for outputs, and constants follow.
Placed = Sequence[tuple[object, Sequence[tuple[int, int]]]]

#: A function that runs the steps from a first index up to an end index (exclusive); None is the end
#: of the plan.
RunSteps = Callable[[int, "int | None"], None]

#: A function that is called with a RunSteps and with the bytes of the arena.
Visitor = Callable[[RunSteps, Array], None]

NESTED = "a step of a run cannot run its own session\n  to fix: give it a Session of its own"


@dataclass(frozen=True)
class Conversion:
    """A Transform that each run executes, or a run's copy of an input or output.

    Attributes:
        source, target: the layouts before and after; source is None for a copy.
        bytes: bytes read plus bytes written, padding included.
        library: the library that runs the conversion.
        reasons: the causes of the conversion: the consumers that take the value in the layout
            ``target``; empty for a copy.
        node: the name of the Transform's node; for a copy, ``copy of`` an input or output.
        value: the name of the converted value.
    """

    source: Layout | None
    target: Layout
    bytes: int
    library: str
    reasons: tuple[Reason, ...]
    node: str
    value: str

    @classmethod
    def of_copy(cls, name: str, part: Part) -> Conversion:
        """Return a run's copy of an input or output.

        Args:
            name: the kind and the name of the value, such as ``"input x"``.
            part: the memory in the plan's layout.
        """
        moved = 2 * part.array.nbytes
        return cls(None, part.layout, moved, "numpy", (), f"copy of {name}", name.split()[-1])


@dataclass(frozen=True, eq=False)
class Nodes:
    """The lowered graph of a plan, for tools that inspect its nodes.

    Attributes:
        graph: the checked and optimised graph.
        recorded: the steps in execution order.
        placement: where all memory that the steps touch is.
        preferences: the libraries that could run each node.
        resolved: the lowered graph before any pass, or a function that makes it; None if it is
            ``graph`` itself.
    """

    graph: LoweredGraph
    recorded: tuple[RecordedStep, ...]
    placement: Placement
    preferences: Preferences
    resolved: LoweredGraph | Callable[[], LoweredGraph] | None


@dataclass(frozen=True)
class Ends:
    """The storages of a recorded graph's inputs and outputs.

    Attributes:
        inputs: the storages of the inputs, in order.
        outputs: the storages of the outputs, in order, as recorded.
        own: the storages of outputs that a run allocates: each owns the memory of an output, and is
            no input's and no constant's.
        deliveries: where each output is after a run, by name of the output.
    """

    inputs: Sequence[TensorStorage]
    outputs: Sequence[TensorStorage]
    own: Sequence[TensorStorage]
    deliveries: Mapping[str, Delivery]

    @classmethod
    def of(cls, graph: LoweredGraph, storages: Mapping[str, TensorStorage]) -> Ends:
        """Return the storages of a graph's inputs and outputs.

        Args:
            graph: the recorded graph.
            storages: the storage of each value, by name.
        """
        inputs = [storages[name] for name in graph.inputs]
        outputs = [storages[name] for name in graph.outputs.values()]
        roots, input_set = dict.fromkeys(output.root for output in outputs), {*inputs}
        own_roots = [root for root in roots if not root.bound and root not in input_set]
        bound = {storage: index for index, storage in enumerate([*inputs, *own_roots])}
        deliveries = {
            alias: Delivery(alias, graph.values[name], output.root, bound.get(output.root))
            for (alias, name), output in zip(graph.outputs.items(), outputs, strict=True)
        }
        return cls(inputs, outputs, own_roots, deliveries)


@dataclass(frozen=True)
class PlanPorts:
    """The inputs that runs of a plan bind and the outputs that runs deliver.

    Attributes:
        inputs: the type, dims and layout of each input, in order.
        own: the storages of outputs that a run allocates: each owns the memory of an output, and is
            no input's and no constant's.
        deliveries: where each output is after a run, by name of the output.
    """

    inputs: Sequence[Value]
    own: Sequence[TensorStorage]
    deliveries: Mapping[str, Delivery]


class Plan(OneProcess):
    """Steps and the memory of their operands; on demand, the nodes of the lowered graph.

    Args:
        brought: the inputs and outputs of the plan's runs.
        steps: the native steps and call-backs; for each slot of a step (region, byte offset in the
            region). Region 0 is the arena.
        nbytes: the size of the arena, in bytes.
        live: the most bytes of the arena in use at one step. No arena can be smaller.
        constants: the memory of the constants. The regions of constants follow those of inputs and
            outputs.
        packed: the packed constants, kept alive by the plan.
        workspace: the memory and threads that the session's plans share.
        nodes: makes the lowered graph and its steps, for inspection.
        calls_back: True if some steps are call-backs into Python, which read memory through
            storages.
        strictly: makes the strict plan (without approximate variants), which repeats a run in which
            a number is not finite; None if runs do not check for that.

    Attributes:
        origin: the way in which the plan was found.
        taken_from: the input shapes for which the plan's choice was made; None if these are the
            plan's own shapes. The certificate is kept only if it holds for the plan's own sizes.
        anew: if the choice was made for other shapes, the names of the nodes that were chosen again
            for the plan's own shapes. All other nodes are as in the earlier choice.
        refinement: the background task that may replace the plan in later runs, or None.
        replaces: if this plan replaced another one in the background, the ``taken_from`` of that
            plan; else None.
        recording: the recording of a plan for fixed sizes, from which a symbolic plan can be made;
            None for any other plan.
        count: the number of steps.
        provisional: True if the choice is based on what libraries declare. ``refinement`` then
            measures on this machine.

    Raises:
        BudgetError: the plan needs more memory than the workspace allows.
    """

    provisional = False
    _was_used = False
    _outputs_only = False  # True if the elements of inputs may be infinite or NaN

    def __init__(
        self,
        brought: PlanPorts,
        steps: Placed,
        nbytes: int,
        live: int,
        constants: Sequence[Array],
        packed: Any,
        workspace: Workspace,
        nodes: Callable[[], Nodes],
        *,
        calls_back: bool = False,
        strictly: Callable[[], Plan] | None = None,
    ) -> None:
        self.inputs, self.own, self.deliveries = brought.inputs, brought.own, brought.deliveries
        self.packed, self.calls_back, self._strictly = packed, calls_back, strictly
        self.origin = RECORDED_ON_SIZES if calls_back else PLANNED
        self.taken_from: Mapping[str, tuple[int, ...]] | None = None
        self.replaces: Mapping[str, tuple[int, ...]] | None = None
        self.anew: tuple[str, ...] = ()
        self.refinement: BackgroundTask[Plan] | None = None
        self.recording: Any = None
        self.nbytes, self.live, self.count = nbytes, live, len(steps)
        self._workspace, self._make, self._held = workspace, nodes, constants
        workspace.grow(nbytes, packed.nbytes + sum(self.own_sizes))
        self._placed: Placed = steps
        self._programs = {workspace.lanes.every[0]: self._program(workspace.arena)}
        if len(workspace.lanes.every) == 1:
            self._placed = ()  # no other lane needs a program

    def note_use(self) -> None:
        """Note that a run or a binding uses the plan. From the second use on, ``origin`` is "in
        memory".
        """
        if self._was_used:
            self.origin = IN_MEMORY
        self._was_used = True

    @property
    def better(self) -> BackgroundTask[Plan] | None:
        """The background task that may replace this plan in later runs, or None."""
        return self.refinement

    @cached_property
    def held_ranges(self) -> AddressRanges:
        """The memory of the plan's constants, which no output may overwrite."""
        from vtensor.runtime.execution.address_ranges import AddressRanges

        return AddressRanges(self._held)

    @cached_property
    def nodes(self) -> Nodes:
        """The lowered graph, its steps and the placement of their memory; made when first read."""
        return self._workspace.executor.planning(self._make)

    @property
    def graph(self) -> LoweredGraph:
        """The lowered graph of the plan, checked and optimised."""
        return self.nodes.graph

    @property
    def recorded(self) -> tuple[RecordedStep, ...]:
        """The steps in execution order."""
        return self.nodes.recorded

    @property
    def placement(self) -> Placement:
        """The places of all memory that the steps touch: in the arena, in memory that a run binds,
        or in constants.
        """
        return self.nodes.placement

    @cached_property
    def resolved(self) -> LoweredGraph:
        """The lowered graph before any pass of the optimiser."""
        source = self.nodes.resolved
        if not callable(source):
            return source or self.graph
        return self._workspace.executor.planning(source)

    @cached_property
    def strict(self) -> Plan:
        """The plan that repeats runs with non-finite numbers; this plan if runs do not check."""
        return self if self._strictly is None else self._strictly()

    def repeat_wide(self, wide: Callable[[], Plan]) -> None:
        """Let ``wide`` make the plan that repeats a run in which an output is not finite.

        Does nothing if non-finite numbers are repeated by a strict plan already.
        """
        if self._strictly is None:
            self._strictly, self._outputs_only = wide, True

    @property
    def lanes(self) -> Lanes:
        """The lanes of the session, in which the plan runs."""
        return self._workspace.lanes

    def program(self, lane: Lane) -> Program:
        """Return the native program of the steps on a lane's arena, compiled at its first use."""
        program = self._programs.get(lane)
        if program is None:
            program = self._programs.setdefault(lane, self._program(lane.arena))
        return program

    @cached_property
    def exponents(self) -> Sequence[tuple[int, int]]:
        """The test for finite elements, for each input and then for each storage in ``own``.

        Each item is (bytes of an element, mask of its exponent bits). Empty if runs do not test
        that elements are finite.
        """
        if self._strictly is None:
            return ()
        inputs = [(1, 0) if self._outputs_only else exponent(each.dtype) for each in self.inputs]
        return [*inputs, *(exponent(value.dtype) for value in self.own)]

    @property
    def own_sizes(self) -> tuple[int, ...]:
        """The number of bytes that a run allocates for each storage in ``own``."""
        return tuple(root.nbytes for root in self.own)

    @property
    def passes(self) -> tuple[str, ...]:
        """The names of the passes that the plan's graph went through, in order."""
        return self.graph.passes

    @property
    def certificate(self) -> Certificate | None:
        """The proof of the last pass with a solver about the choice; None if no solver ran."""
        return self.graph.certificate

    @property
    def steps(self) -> list[PlanStep]:
        """The nodes that each run executes, in order."""
        from vtensor.runtime.execution.plan_steps import steps_of  # imported only when inspected

        return steps_of(self.graph, self.recorded, self.nodes.preferences)

    @property
    def conversions(self) -> list[Conversion]:
        """The Transforms that each run executes, in order."""
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
        """Return the number of steps for each (library, kernel)."""
        return Counter((step.library, step.kernel) for step in self.recorded)

    def sizes(self, output: str) -> Mapping[str, int]:
        """Return an output's sizes by dim."""
        return self.deliveries[output].value.dims

    def check_out(self, into: Mapping[str, Array]) -> None:
        """Check that outputs may be written to the arrays of ``into``, by name of the output.

        Raises:
            InputError: an array has another shape than its output, or is a constant's memory.
        """
        for name, array in into.items():
            check_fits(name, array, self.sizes(name))
            if any(np.may_share_memory(array, constant) for constant in self._held):
                raise InputError(f"out {name!r}: its memory is a constant's of the network")

    def replay(
        self, bindings: Sequence[Array], times: Array | None = None, one_by_one: bool = False
    ) -> bool:
        """Run the steps.

        Args:
            bindings: dense arrays: the inputs, then the memory of the outputs in ``own``.
            times: receives the begin and the end of each step, in nanoseconds of the steady clock:
                int64, two elements for each step; None measures nothing.
            one_by_one: True runs each step from Python, with the same results, to find a faulty
                step.

        Returns:
            False if an input or output is not finite, so that the strict plan must repeat the run.

        Raises:
            NativeError: a library failed.
            InputError: an input's numbers are at fault, such as an index out of range.
        """
        lanes = self.lanes
        if one_by_one:
            from vtensor.runtime import _replay

            self.visit(bindings, lambda run, _: run(0, None))
            look = partial(_replay.finite, bindings, self.exponents)
            return lanes.every[0].executor.run(look)
        arguments = bindings, times, (), None, self.exponents
        if self.calls_back:  # Python has one view of memory: one such run at a time
            lane = lanes.every[0]
            run = partial(self._native, "run", arguments, lane)
            return bool(lanes.run(lambda _: lane.executor.run(lambda: self._bound(bindings, run))))
        return bool(lanes.run(partial(self._native, "run", arguments)))

    def repeat(
        self, bindings: Sequence[Array], carried: CarriedBindings, first: int, most: int
    ) -> tuple[int, bool]:
        """Run the steps turn after turn, as the body of a loop.

        Returns the number of turns, and whether a further one follows. The arguments are those of
        ``_replay.Team.repeat``, the errors those of ``replay``.
        """
        arguments = bindings, carried, first, most
        turns: tuple[int, bool] = self.lanes.run(partial(self._native, "repeat", arguments))
        return turns

    def _native(
        self, method: Literal["run", "repeat"], arguments: tuple[Any, ...], lane: Lane
    ) -> Any:
        """Return the result of a method of a team; an error of it becomes a typed one."""
        try:
            return lane.executor.served(method, self.program(lane), *arguments)
        except RuntimeError as error:
            if (typed := self._typed(error)) is None:
                raise
            raise typed from error

    def _program(self, arena: Arena) -> Program:
        """Return the native program of the steps on an arena."""
        from vtensor.runtime import _replay

        inputs = [value.nbytes for value in self.inputs]
        regions = [arena, *inputs, *self.own_sizes, *self._held]
        return _replay.Program(regions, self._placed, repeatable=True)

    def _typed(self, error: RuntimeError) -> Exception | None:
        """Return the VTensorError for an error of a run; that of a failed step names its node.

        Returns None if a call-back itself raised the error.
        """
        from vtensor.runtime import _replay

        if isinstance(error, _replay.Busy):
            return NestedRunError(NESTED)
        if isinstance(error, _replay.StepFailed):
            from vtensor.runtime.execution.evaluations import step_error

            step = self.recorded[error.index]
            return step_error(error, step.node, step.reword)
        return None

    def visit(self, bindings: Sequence[Array], visitor: Visitor) -> None:
        """Call a visitor, which runs ranges of the plan's steps from Python.

        The visitor may read memory between two ranges. In background work each range queues for the
        executor by itself. Other plans could run in between: they must not share the workspace.

        Args:
            bindings: dense arrays: the inputs, then the memory of the outputs in ``own``.
            visitor: called with a function and the bytes of the arena. The function runs the steps
                from a first index up to an end index (exclusive). While the visitor runs, storages
                are bound to their memory.
        """
        executor = self._workspace.lanes.every[0].executor

        def queued(begin: int, end: int | None) -> None:
            executor.run(lambda: self._steps(begin, end))

        def visited(run: RunSteps) -> None:
            memory = self._workspace.arena.memory()[: self.nbytes]
            visitor(run, memory)

        if nobody_waits():
            self._bound(bindings, lambda: visited(queued))
        else:
            executor.run(lambda: self._bound(bindings, lambda: visited(self._steps)))

    def _steps(self, begin: int = 0, end: int | None = None) -> None:
        from vtensor.runtime.execution.evaluations import run_native

        arena = self._workspace.arena.memory()
        for index, step in [*enumerate(self.recorded)][begin:end]:
            checkpoint()
            if step.callback is not None:
                step.callback()
            elif step.native is not None:
                memory = self.placement.memory(index, arena)
                run_native(step.native, memory, step.node, step.reword)

    def _bound(self, bindings: Sequence[Array], run: Callable[[], T]) -> T:
        """Bind all storages to their memory, so that Python can read them, and call ``run``.

        Args:
            bindings: dense arrays: the inputs, then the memory of the outputs in ``own``.
            run: called while storages are bound.

        Returns:
            The result of ``run``.

        Raises:
            NestedRunError: the storages are bound already, because a step of this session runs the
                session again.
        """
        if any(
            tensor_storage.bound
            for tensor_storage in (*self.placement.bound, *self.placement.offsets)
        ):
            raise NestedRunError(NESTED)
        bound = dict(zip(self.placement.bound, map(Buffer.wrap, bindings), strict=True))
        bound |= {storage: bound[host] for storage, host in self.placement.hosts.items()}
        bound |= self.placement.buffers(self._workspace.arena)
        try:
            for storage, buffer in bound.items():
                storage.bind(buffer)
            return run()
        finally:
            for storage in bound:
                storage.release()  # so that the caller's memory is free and the arena may grow
