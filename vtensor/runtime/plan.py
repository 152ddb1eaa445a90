"""A plan: what one session does for one set of shapes, element types and entry layouts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from libdesc.preferences import EVERY, Preferences
from ptensor.buffer import Buffer, TensorStorage
from ptensor.layout import Layout
from ptensor.stopping import go_on, nobody_waits
from vtensor.errors import InputError, NestedRunError
from vtensor.language.cached import cached_property
from vtensor.language.dtype import exponent
from vtensor.language.records import dataclass
from vtensor.runtime.better import Better
from vtensor.runtime.delivery import Delivery
from vtensor.runtime.feeds import check_fits
from vtensor.runtime.lanes import Lane, Lanes
from vtensor.runtime.one_process import OneProcess
from vtensor.runtime.origin import IN_MEMORY, PLANNED, RECORDED_ON_SIZES, Origin
from vtensor.runtime.workspace import Workspace

if TYPE_CHECKING:
    from ptensor.parts import Part
    from resolver.lowered import Certificate, LoweredGraph, Reason
    from resolver.values import Value
    from vtensor.runtime._replay import Arena, Program
    from vtensor.runtime.drawing_notes import DrawingNotes
    from vtensor.runtime.packed import PackedWeights
    from vtensor.runtime.placement import Placement
    from vtensor.runtime.plan_steps import PlanStep
    from vtensor.runtime.steps import RecordedStep
    from vtensor.runtime.stretches import Stretches
    from vtensor.runtime.weights import Packed

Array = np.ndarray[Any, Any]
T = TypeVar("T")

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


class Plan(OneProcess):
    """Recorded steps, where their memory lies, and the lowered graph that they come from.

    Args:
        graph: checked and optimised.
        constants: arrays of the graph's constants by name.
        workspace: what it shares with the other plans of its session.
        progress: called with each node's name while it is recorded.
        preferences: which libraries could take what.
        resolved: the graph before any pass, for those who compare, or what makes it; None where it
            is ``graph``.
        confirming: what was chosen was chosen for another plan; libraries are asked again.
        taken_from: the shapes of inputs that it was chosen for, where those are others.
        anew: names of the nodes that were chosen for its own sizes all the same.
        strictly: makes the plan without inexact variants, which answers where numbers are not
            finite; None where nobody looks for those.

    Attributes:
        taken_from: the same; None where what was chosen was chosen for this plan's own sizes. Else
            a certificate is there only if it holds for them, too.
        anew: names of the nodes that were chosen for its own sizes: all of them, or, where it is
            taken from others, those that did not fit there and those around them.
        better: the plan that may take its place in later runs; None where none is looked for.
        drawing: draws the blueprint of such plans, where there is none yet.
        writing: writes down what was chosen, where nobody has done so yet.
        replaces: the shapes that the plan was taken from whose place it took in the background.
        provisional: it was chosen by what libraries declare, or taken from such a plan; ``better``
            is the plan by times of this machine.
        origin: the way in which the session came to this plan for its last run.

    Raises:
        BudgetError: it needs more memory than the workspace may have.
    """

    provisional = False
    origin: Origin = PLANNED
    _was_used = False

    def __init__(
        self,
        graph: LoweredGraph,
        constants: Mapping[str, np.ndarray[Any, Any]],
        workspace: Workspace,
        progress: Callable[[str], None] | None = None,
        preferences: Preferences = EVERY,
        resolved: LoweredGraph | Callable[[], LoweredGraph] | None = None,
        confirming: bool = False,
        taken_from: Mapping[str, tuple[int, ...]] | None = None,
        anew: Sequence[str] = (),
        strictly: Callable[[], Plan] | None = None,
    ) -> None:
        from vtensor.runtime.needed import needed  # a plan that was kept is not recorded
        from vtensor.runtime.placement import place
        from vtensor.runtime.record import Recorder

        recorder = Recorder(graph, constants, workspace, confirming)
        with recorder.recording():
            recorder.record(progress)
            steps = recorder.evaluation.compiled(workspace.lanes.threads)
            ends = Ends.of(graph, recorder.storages)
            recorded = needed(steps, ends.outputs)
            recorder.evaluation.steps.clear()  # they refer to it: no circle of the two
            placement = place(recorded, ends.inputs, ends.own)
            outputs = sum(root.nbytes for root in ends.own)
            workspace.grow(placement.nbytes, recorder.packed.nbytes + outputs)
        self.taken_from = taken_from
        everything = tuple(node.name for node in graph.operators)
        self.anew: tuple[str, ...] = everything if taken_from is None else tuple(anew)
        self.better: Better[Plan] | None = None
        self.drawing: Callable[[DrawingNotes | None], None] | None = None
        self.writing: Callable[[], None] | None = None
        self.replaces: Mapping[str, tuple[int, ...]] | None = None
        self._strictly = strictly
        self.packed: PackedWeights | Packed = recorder.packed
        #: What runs are given, in order.
        self.inputs: Sequence[Value] = [graph.values[name] for name in graph.inputs]
        #: Owners of the outputs' memory, where it is not an input's or a constant's.
        self.own = ends.own
        self.deliveries = ends.deliveries
        self.nodes = Nodes(graph, recorded, placement, preferences, resolved)
        self._held: Sequence[Array] = [one.buffer.memory for one in placement.constants()]
        self._workspace = workspace
        self._programs = {workspace.lanes.every[0]: self._program(workspace.arena)}
        #: Python looks at memory through storages: they are bound for each run.
        self.calls_back = any(step.callback is not None for step in recorded)
        if self.calls_back:
            self.origin = RECORDED_ON_SIZES

    def note_use(self) -> None:
        """Note that a run or a binding uses this plan: later ones find it in memory."""
        if self._was_used:
            self.origin = IN_MEMORY
        self._was_used = True

    def written(self) -> None:
        """See that what was chosen is written down."""
        if (writing := self.taken_writing()) is not None:
            writing()

    def taken_writing(self) -> Callable[[], None] | None:
        """What writes it down, which the caller is to see to."""
        writing, self.writing = self.writing, None
        return writing

    @cached_property
    def kept(self) -> Stretches:
        """What no output may be written to."""
        from vtensor.runtime.stretches import Stretches

        return Stretches(self._held)

    @cached_property
    def nodes(self) -> Nodes:
        """What it was made of."""
        raise NotImplementedError

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
        from vtensor.runtime.plan_steps import steps_of  # where somebody looks at it

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
        """The steps on an arena."""
        return self.placement.program(arena)

    def _typed(self, error: RuntimeError) -> Exception | None:
        """The error of a step by the name of its node; None for what a call-back raised itself."""
        from vtensor.runtime import _replay

        if isinstance(error, _replay.Busy):
            return NestedRunError(NESTED)
        if isinstance(error, _replay.StepFailed):
            from vtensor.runtime.evaluations import step_error

            step = self.recorded[error.index]
            return step_error(error, step.node, step.told)
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

        def apart(begin: int, end: int | None) -> None:
            executor.run(lambda: self._steps(begin, end))

        def visited(run: RunSteps) -> None:
            memory = self._workspace.arena.memory()[: self.placement.nbytes]
            visitor(run, memory)

        if nobody_waits():
            self._bound(bindings, lambda: visited(apart))
        else:
            executor.run(lambda: self._bound(bindings, lambda: visited(self._steps)))

    def _steps(self, begin: int = 0, end: int | None = None) -> None:
        from vtensor.runtime.evaluations import run_native

        arena = self._workspace.arena.memory()
        for index, step in [*enumerate(self.recorded)][begin:end]:
            go_on()
            if step.callback is not None:
                step.callback()
            elif step.native is not None:
                memory = self.placement.memory(index, arena)
                run_native(step.native, memory, step.node, step.told)

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
