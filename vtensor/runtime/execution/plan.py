"""A plan: what one session does for one set of shapes, element types and entry layouts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

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

#: Steps, with where each of their slots is: a region, and the byte at which it begins there.
Placed = Sequence[tuple[object, Sequence[tuple[int, int]]]]

#: Runs steps, from one on and up to another; None is the end.
RunSteps = Callable[[int, "int | None"], None]

#: Called with what runs steps, and with the memory between them.
Visitor = Callable[[RunSteps, Array], None]

NESTED = "a step of a run cannot run its own session\n  to fix: give it a Session of its own"


@dataclass(frozen=True)
class Conversion:
    """A Transform that runs each time, or a copy that a run needed at its entry or its end.

    Attributes:
        source, target: the layouts; no layout says where the elements of a copy's source lie.
        bytes: read plus written, pads included.
        library: who runs it.
        reasons: who asked for it, each of them, and who had something else; none for a copy.
        node: its name in the plan; that of a copy says which input or output.
        value: what is transformed.
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
        """A copy of an input (``"input x"``) to this part, or of an output from it."""
        moved = 2 * part.array.nbytes
        return cls(None, part.layout, moved, "numpy", (), f"copy of {name}", name.split()[-1])


@dataclass(frozen=True, eq=False)
class Nodes:
    """What a plan was made of, for those who look at its nodes.

    Attributes:
        graph: checked and optimised.
        recorded: the steps, in the order in which they run.
        placement: where everything lies that they touch.
        preferences: which libraries could take what.
        resolved: the graph before any pass, or what makes it; None where it is ``graph``.
    """

    graph: LoweredGraph
    recorded: tuple[RecordedStep, ...]
    placement: Placement
    preferences: Preferences
    resolved: LoweredGraph | Callable[[], LoweredGraph] | None


@dataclass(frozen=True)
class Ends:
    """The memory that runs bring, and what they deliver.

    Attributes:
        inputs: in order.
        outputs: each as it is recorded.
        own: as for ``Plan``.
        deliveries: of the outputs, by what they are delivered under.
    """

    inputs: Sequence[TensorStorage]
    outputs: Sequence[TensorStorage]
    own: Sequence[TensorStorage]
    deliveries: Mapping[str, Delivery]

    @classmethod
    def of(cls, graph: LoweredGraph, storages: Mapping[str, TensorStorage]) -> Ends:
        """Those of a graph, in the storages of its values."""
        inputs = [storages[name] for name in graph.inputs]
        outputs = [storages[name] for name in graph.outputs.values()]
        roots, given = dict.fromkeys(one.root for one in outputs), {*inputs}
        own = [root for root in roots if not root.bound and root not in given]
        bound = {storage: index for index, storage in enumerate([*inputs, *own])}
        deliveries = {
            alias: Delivery(alias, graph.values[name], one.root, bound.get(one.root))
            for (alias, name), one in zip(graph.outputs.items(), outputs, strict=True)
        }
        return cls(inputs, outputs, own, deliveries)


@dataclass(frozen=True)
class PlanPorts:
    """What runs of a plan bring and deliver.

    Attributes:
        inputs: what runs are given, in order.
        own: owners of the outputs' memory, where it is not an input's or a constant's.
        deliveries: the outputs, by what they are delivered under.
    """

    inputs: Sequence[Value]
    own: Sequence[TensorStorage]
    deliveries: Mapping[str, Delivery]


class Plan(OneProcess):
    """Steps, where their operands are, and on demand the nodes of the lowered graph they come from.

    Args:
        brought: what its runs bring and deliver.
        steps: native steps and call-backs, with where each of their slots is.
        nbytes: the size of the arena that they need.
        live: the bytes of the arena that are needed at once at most: no arena could be smaller.
        constants: the memory in the regions after those that a run brings.
        packed: keeps the constants.
        workspace: what the plan shares with others of its session.
        nodes: makes the nodes that the steps come from.
        calls_back: some steps are call-backs into Python, which look at memory through storages.
        strictly: makes the plan without inexact variants, which answers where numbers are not
            finite; None where nobody looks for those.

    Attributes:
        origin: which way the plan was found.
        taken_from: the shapes of inputs that its choice was made for, where those are others. A
            certificate is there only if it holds for the plan's own sizes, too.
        anew: names of the nodes that were chosen for the plan's own sizes, where others are hints.
        symbolic: makes the symbolic plan of a plan on numbers, given its open sizes; None of any
            other.
        refinement: the background task that may replace the plan in later runs, or None.
        replaces: the shapes that the plan was taken from whose place it took in the background.
        provisional: the choice was made by what libraries declare; ``refinement`` measures it on
            this machine.

    Raises:
        BudgetError: it needs more memory than the workspace may have.
    """

    provisional = False
    _was_used = False

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
        self.nbytes, self.live = nbytes, live
        self._workspace, self._make, self._held = workspace, nodes, constants
        workspace.grow(nbytes, packed.nbytes + sum(self.own_sizes))
        self._placed: Placed = steps
        self._programs = {workspace.lanes.every[0]: self._program(workspace.arena)}
        if len(workspace.lanes.every) == 1:
            self._placed = ()  # nobody asks for another program

    def note_use(self) -> None:
        """Note that a run or a binding uses this plan: later ones find it in memory."""
        if self._was_used:
            self.origin = IN_MEMORY
        self._was_used = True

    @property
    def better(self) -> BackgroundTask[Plan] | None:
        """The background task that may replace this plan in later runs, or None."""
        return self.refinement

    @cached_property
    def held_ranges(self) -> AddressRanges:
        """The memory of the plan's constants, to which no output may be written."""
        from vtensor.runtime.execution.address_ranges import AddressRanges

        return AddressRanges(self._held)

    @cached_property
    def nodes(self) -> Nodes:
        """The nodes of the lowered graph, their steps, and where these have their operands."""
        return self._workspace.executor.planning(self._make)

    @property
    def graph(self) -> LoweredGraph:
        """The lowered graph."""
        return self.nodes.graph

    @property
    def recorded(self) -> tuple[RecordedStep, ...]:
        """The steps, in the order in which they run."""
        return self.nodes.recorded

    @property
    def placement(self) -> Placement:
        """Where everything lies that the steps touch."""
        return self.nodes.placement

    @cached_property
    def resolved(self) -> LoweredGraph:
        """The graph before any pass."""
        made = self.nodes.resolved
        if not callable(made):
            return made or self.graph
        return self._workspace.executor.planning(made)

    @cached_property
    def strict(self) -> Plan:
        """The plan that answers where numbers are not finite; this one where nobody looks."""
        return self if self._strictly is None else self._strictly()

    @property
    def lanes(self) -> Lanes:
        """Where its runs go."""
        return self._workspace.lanes

    def program(self, lane: Lane) -> Program:
        """The steps on a lane's memory: each has addresses of its own."""
        program = self._programs.get(lane)
        if program is None:
            program = self._programs.setdefault(lane, self._program(lane.arena))
        return program

    @cached_property
    def exponents(self) -> Sequence[tuple[int, int]]:
        """Of the elements of inputs and outputs, where somebody looks whether they are finite."""
        if self._strictly is None:
            return ()
        dtypes = [*(one.dtype for one in self.inputs), *(one.dtype for one in self.own)]
        return [*map(exponent, dtypes)]

    @property
    def own_sizes(self) -> tuple[int, ...]:
        """What each run allocates for outputs, in bytes."""
        return tuple(root.nbytes for root in self.own)

    @property
    def passes(self) -> tuple[str, ...]:
        """The optimisations that ran."""
        return self.graph.passes

    @property
    def certificate(self) -> Certificate | None:
        """What the last pass with a solver proved about the Transforms left; None if none ran."""
        return self.graph.certificate

    @property
    def steps(self) -> list[PlanStep]:
        """The nodes that each run executes, in order."""
        from vtensor.runtime.execution.plan_steps import steps_of  # where somebody looks at it

        return steps_of(self.graph, self.recorded, self.nodes.preferences)

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
        return self.deliveries[output].value.dims

    def check_out(self, into: Mapping[str, Array]) -> None:
        """See that outputs may be written to arrays.

        Raises:
            InputError: one has another shape than the output, or is a constant's memory.
        """
        for name, array in into.items():
            check_fits(name, array, self.sizes(name))
            if any(np.may_share_memory(array, one) for one in self._held):
                raise InputError(f"out {name!r}: its memory is a constant's of the network")

    def replay(
        self, bindings: Sequence[Array], times: Array | None = None, one_by_one: bool = False
    ) -> bool:
        """Run the steps.

        Args:
            bindings: dense arrays: of the inputs, then of the outputs' own memory.
            times: gets the begin and the end of each step, in nanoseconds of the steady clock;
                int64, of two elements a step.
            one_by_one: run each step from Python, which gives the same results; to find out which
                step it is that goes wrong.

        Returns:
            False where inputs or outputs are not finite, and the strict plan is to answer.

        Raises:
            NativeError: a library failed.
            InputError: numbers that the run was given are at fault, such as an index.
        """
        lanes = self.lanes
        if one_by_one:
            from vtensor.runtime import _replay

            self.visit(bindings, lambda run, _: run(0, None))
            look = partial(_replay.finite, bindings, self.exponents)
            return lanes.every[0].executor.run(look)
        if self.calls_back:  # Python has one view of memory: one such run at a time
            lane = lanes.every[0]
            run = partial(self._native, bindings, times, lane)
            return lanes.run(lambda _: lane.executor.run(lambda: self._bound(bindings, run)))
        return lanes.run(partial(self._native, bindings, times))

    def _native(self, bindings: Sequence[Array], times: Array | None, lane: Lane) -> bool:
        try:
            return lane.executor.replay(
                self.program(lane), bindings, times, exponents=self.exponents
            )
        except RuntimeError as error:
            if (typed := self._typed(error)) is None:
                raise
            raise typed from error

    def _program(self, arena: Arena) -> Program:
        """Return the steps on an arena."""
        from vtensor.runtime import _replay

        inputs = [value.nbytes for value in self.inputs]
        regions = [arena, *inputs, *self.own_sizes, *self._held]
        return _replay.Program(regions, self._placed, repeatable=True)

    def _typed(self, error: RuntimeError) -> Exception | None:
        """The error of a step by the name of its node; None for what a call-back raised itself."""
        from vtensor.runtime import _replay

        if isinstance(error, _replay.Busy):
            return NestedRunError(NESTED)
        if isinstance(error, _replay.StepFailed):
            from vtensor.runtime.execution.evaluations import step_error

            step = self.recorded[error.index]
            return step_error(error, step.node, step.reword)
        return None

    def visit(self, bindings: Sequence[Array], visitor: Visitor) -> None:
        """Let somebody run steps, some of them at a time, from Python.

        Args:
            bindings: as for ``replay``.
            visitor: called with a function that runs the steps from one on and up to another, which
                is not run itself; and with the memory that they have between them. Storages are
                bound meanwhile. In the background only steps queue, each time that some are run:
                the workspace is then nobody else's.
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
        """Run with all storages bound, so that Python can look at them."""
        if any(one.bound for one in (*self.placement.bound, *self.placement.offsets)):
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
                storage.release()  # the caller's memory is the caller's again, the arena's may grow
