"""The runner of a session: finds or makes the plan of each run and executes it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Literal

from ptensor.background_work import in_front
from vtensor.errors import (
    DimError,
    InputError,
    LockError,
    ResolutionError,
    SegmentsNeededError,
    SessionClosedError,
)
from vtensor.language.process.forks import OwnLock
from vtensor.runtime.cache.plans import SavedPlans
from vtensor.runtime.execution.delivery import Result, handed_on
from vtensor.runtime.execution.executor import check_running
from vtensor.runtime.execution.origin import IN_MEMORY
from vtensor.runtime.execution.plan import Plan
from vtensor.runtime.execution.request import Copies, LastRun, Ran, Request, Requests, copies
from vtensor.runtime.execution.request_tree import RequestTrees, RunPath
from vtensor.runtime.execution.trim import trim_memory
from vtensor.runtime.planning.options import Options
from vtensor.runtime.planning.source import Source, no_output
from vtensor.runtime.planning.store import PlanStore
from vtensor.runtime.recording.workspace import Workspace
from vtensor.storage.budget import memory_errors, ran_out
from vtensor.storage.inputs import (
    Array,
    Feed,
    Port,
    check_names,
    check_out,
    feed_of,
    memory_of,
    values_of,
)

if TYPE_CHECKING:
    from ptensor.layout import Layout
    from vtensor.frontends.onnx import Model
    from vtensor.language.graph import Graph
    from vtensor.runtime.execution.binding import Binding
    from vtensor.runtime.execution.direct import DirectRequest
    from vtensor.runtime.execution.repeat import Repeated, Turns
    from vtensor.runtime.lock.lock_file import Lock
    from vtensor.runtime.planning.keys import PlanKey
    from vtensor.runtime.segments import Segments

#: The most plans in memory of a part of a model: data decide the sizes of its inputs, such as the
#: length of what a loop collects.
MOST_PART_PLANS = 512

#: Plans, each with a function that runs it and writes the begin and end of each step to an array.
TimedParts = list[tuple[Plan, Callable[[Array], object]]]

#: The errors of a run that may be due to wrong inputs in the model's cache entry.
WRONG_ENTRY_ERRORS = (InputError, DimError, ResolutionError)

#: The most sets of overridden initializers (constants given as inputs) for which a session keeps
#: plans: the last used ones.
MAX_OVERRIDDEN = 8


def _renamed(
    layouts: Mapping[str, Layout], ports: Sequence[Port], others: Sequence[Port]
) -> dict[str, Layout]:
    """Return layouts of ports, by name, in the dims of other ports of the same names.

    Args:
        layouts: layouts in the dims of ``ports``, by the port's name.
        ports, others: the ports; a name may be missing among either.
    """
    by_name = {port.name: port for port in ports}
    renamed = {}
    for other in others:
        layout, port = layouts.get(other.name), by_name.get(other.name)
        if layout is not None and layout.is_any:
            renamed[other.name] = layout
        elif layout is not None and port is not None:
            rank = len(layout.dims)
            dims = zip(port.of_rank(rank).dims, other.of_rank(rank).dims, strict=True)
            renamed[other.name] = layout.rename(dict(dims))
    return renamed


def timed_parts(run: Callable[[], object]) -> TimedParts:
    """Call ``run``, and return ``Runner.timed_parts`` of each part that runs meanwhile."""
    from vtensor.runtime.segments import feeds_of

    leaves = [(part, feed) for part, feed in feeds_of(run).items() if part._segments is None]
    return [row for part, (names, arrays) in leaves for row in part.timed_parts(arrays, names)]


class _ThreadState(threading.local):
    """A thread's last run in a session; None if it has run nothing."""

    last_run: LastRun | None = None


class Runner:
    """A runner of a network: it makes plans and executes runs until it is closed.

    Args:
        source: the model, from which graphs are made.
        options: the options of plans.
        workspace: the executor and memory that plans share.
        declared: True makes the plan for the declared sizes now if all of them are known.
        whole: the runner of the model of which the network is a segment; None for the model itself.
        name: the name of the segment; empty for the model itself.

    Attributes:
        inputs, outputs: the ports of a run.
        name: the name of the segment.
        plans: the store of plans; None after ``close``.
    """

    def __init__(
        self,
        source: Source,
        options: Options,
        workspace: Workspace,
        declared: bool = True,
        whole: Runner | None = None,
        name: str = "",
    ) -> None:
        self.inputs, self.outputs = source.inputs, source.outputs
        self._options, self._making = options, OwnLock()
        self.name, self._whole = name, whole or self
        self.executor, self.workspace = workspace.executor, workspace
        cache = SavedPlans.of(source, options, workspace)
        most = None if whole is None else MOST_PART_PLANS
        self.plans: PlanStore | None = PlanStore(source, options, workspace, cache, most)
        self._requests = Requests()
        self._recent: Request | None = None  # the one that ran last
        #: The last request as one native call, if its runs need no work of Python.
        self._direct: DirectRequest | None = None
        #: The last run of any thread, or the plan made at construction.
        self._last_run: LastRun | None = None
        self._thread = _ThreadState()
        #: Runners with overridden initializers, by the names of these, most recent last.
        self._overriding: dict[frozenset[str], Runner] = {}
        #: The parts of a model whose nodes need to know values that a run computes.
        self._segments: Segments | None = None
        #: The paths of runs in segments.
        self._trees = RequestTrees()
        if declared and source.static:
            try:
                self._last_run = self.plans.declared(), {}
            except WRONG_ENTRY_ERRORS:
                if not source.corrected():
                    raise
                self._last_run = (self.plans.declared(), {}) if source.static else None
        if declared and source.waiting is not None:
            self._cut(source.waiting)

    @property
    def last_run(self) -> LastRun | None:
        """The last run of the calling thread. If that thread has run nothing: the last run of any
        thread, or the plan made at construction; None if there is neither.
        """
        return self._thread.last_run or self._last_run

    @property
    def copied(self) -> Copies:
        """The copies of inputs and outputs that the last run made, by name of the input or
        output.
        """
        last = self.last_run
        return {} if last is None else last[1]

    @property
    def plan(self) -> Plan:
        """The plan of the last run, or the one made at construction.

        Raises:
            InputError: there is no plan yet: sizes are symbolic and nothing has run.
        """
        self.open()
        last = self.last_run
        if last is None:
            raise InputError(
                "there is no plan yet: sizes are symbolic, or values decide them, so the first run "
                "makes it; "
                "or give sizes with load_onnx(model, shapes={...}) (--shape on the command line)"
            )
        return last[0]

    def settled(self) -> Plan:
        """Return the plan of the last run; if it is provisional, replace it by a measured one.

        Raises:
            InputError: there is no plan yet.
        """
        self._check_whole()
        before = self.plan
        plan = self._store_of(before).settled(before)
        self._thread.last_run = self._last_run = plan, self.copied
        return plan

    def timed_parts(
        self, inputs: Mapping[str, object], outputs: Sequence[str] | None = None
    ) -> TimedParts:
        """Run once, and return the plan of each segment that has run, with a function that runs the
        segment on the same arrays again.

        The function's argument receives the begin and the end of each step, in nanoseconds. Plans
        are no longer provisional. The body of a loop runs once.

        Args:
            inputs: the arrays, by name.
            outputs: the names of the wanted outputs; None is all.
        """
        self.run(outputs, inputs)
        if (other := self._overridden(inputs)) is not None:
            return other.timed_parts(inputs, outputs)
        if self._segments is None:
            self.settled()
            self.run(outputs, inputs)
            return [(self.plan, lambda times: self.run(outputs, inputs, times=times))]
        return timed_parts(lambda: self.run(outputs, inputs))

    def made_of(self, plan: Plan) -> tuple[Graph, Options]:
        """Return the graph before any pass, and the options, that a plan was made of.

        Raises:
            InputError: the plan delivers values other than outputs, or was dropped.
        """
        self._check_whole()
        return self._store_of(plan).made_of(plan)

    def lock(self, threads: int) -> Lock:
        """Return the plans of the last run as a lock file; provisional ones are replaced first.

        Args:
            threads: the number of kernel threads that the plans run on.

        Raises:
            InputError: there is no plan yet, or the last run asked for values inside the network.
        """
        from vtensor.runtime.planning.locked_plan import lock_of, lock_of_segments

        if self._segments is None:
            plan = self.settled()
            return lock_of(plan, *self.made_of(plan), threads)
        segments = {part.name: part.lock(threads) for part in self.parts if part.last_run}
        if not segments:
            self.plan  # noqa: B018 - raises, since nothing has run
        content, ports = self.open().source.content(), (self.inputs, self.outputs)
        return lock_of_segments(segments, content, self._options, *ports)

    def _check_whole(self) -> None:
        """Raise InputError if the model runs in segments, which have no plan in common."""
        if self._segments is not None:
            raise InputError(
                "this model runs in segments, since nodes have to know values that a run computes; "
                "bind and frontier take models of one plan\n"
                "  to fix: call run; session.plans has the plans of all segments"
            )

    def _store_of(self, plan: Plan) -> PlanStore:
        """Return the store of plans that has ``plan``: that of this runner, or that of a runner for
        overridden initializers (constants given as inputs).
        """
        others = *self._overriding.values(), *self.parts
        plans = [self.open(), *(runner.plans for runner in others)]
        return next(
            (store for store in plans if store is not None and store.has(plan)), self.open()
        )

    def ports_of(self, inputs: object) -> list[Port]:
        """Return the ports of a run on ``inputs``: the network's inputs, and the initializers that
        the run overrides.
        """
        other = self._overridden(inputs)
        return self.inputs if other is None else other.inputs

    def _overridden(self, inputs: object) -> Runner | None:
        """Return the runner for a run that overrides initializers: it gives them other values than
        the model's.

        Returns None if ``inputs`` has only names of the network's inputs, or a wrong name. A run
        that overrides initializers has another graph, hence plans of its own. Plans without
        overridden initializers stay valid.

        Raises:
            LockError: the session has a lock file, which holds only for runs that override no
                initializers.
        """
        own_names = {port.name for port in self.inputs}
        if not isinstance(inputs, Mapping) or not (more := frozenset(inputs) - own_names):
            return None
        source, other = self.open().source, self._overriding.get(more)
        if other is None:
            if not more.issubset(source.overridable):
                return None
            if self._options.lock is not None:
                raise LockError(
                    f"the lock file is of runs without the inputs {', '.join(sorted(more))}, whose "
                    "own values count\n  to fix: give no others, or a lock file of a run with them"
                )
            other = Runner(source.overriding(more), self._options, self.workspace, declared=False)
        with self._making.here:
            other = self._overriding.pop(more, other)  # another thread may have made it first
            self._overriding[more] = other
            if len(self._overriding) > MAX_OVERRIDDEN:
                self._overriding.pop(next(iter(self._overriding))).forget()
        if self.plans is None:
            self.close()
        return other

    def _adopt_last_run(self, other: Runner) -> None:
        """Record the last run of ``other`` as the last run of this runner."""
        self._direct = None  # a run of the direct request does not set ``_last_run``
        if (last := other.last_run) is not None:
            self.note_run(*last)

    def run(
        self,
        outputs: Sequence[str] | None,
        inputs: Mapping[str, object],
        out: Mapping[str, object] | None = None,
        times: Array | None = None,
    ) -> list[Array]:
        """Run the network and return the outputs as arrays, in order.

        Errors are those of ``Session.run``.

        Args:
            outputs: the names of the wanted outputs; None or an empty list is all.
            inputs: the arrays, by name.
            out: the caller's arrays for outputs, by name.
            times: receives the begin and the end of each step, in nanoseconds; None measures
                nothing.
        """
        if type(outputs) is list and not outputs:
            outputs = None  # all outputs: the fast paths compare with None
        if self._segments is not None:
            return self._run_cut(outputs, inputs, out)
        answer, direct, plans = None, self._direct, self.plans
        if plans is not None and plans.prepared and out is None and times is None:
            # If ``plans`` are not prepared, ``_run_known`` prepares them.
            if direct is not None and isinstance(answer := direct.run(outputs, inputs), list):
                self._thread.last_run = direct.last_run
                return answer
            if answer is None:
                answer = self._run_directly(plans, outputs, inputs)
            if isinstance(answer, list):
                return answer
        strictly = answer is False
        if not strictly and (known := self._run_known(outputs, inputs, out, times)) is not None:
            request, ran = known
            if ran[2]:
                return request.arrays(ran, out)
            strictly = True
        if (other := self._overridden(inputs)) is not None:
            arrays = other.run(outputs, inputs, out, times)
            self._adopt_last_run(other)
            return arrays
        results = self._run_checked(outputs, inputs, out, times, strictly)
        return [result.array() for result in results]

    def _run_cut(
        self,
        outputs: Sequence[str] | None,
        inputs: Mapping[str, object],
        out: Mapping[str, object] | None,
    ) -> list[Array]:
        """Run a model in segments: natively along the path of an earlier run, then segment by
        segment.

        Args:
            outputs, inputs, out: the arguments of ``run``.
        """
        from vtensor.runtime.segments import feeds_are_noted

        path = None
        if self.workspace.full:
            self._trees = RequestTrees()  # they keep plans in memory
        elif not out and not feeds_are_noted():
            tree = self._trees.of(outputs, self.inputs, self.workspace.lanes)
            arrays, done = (None, None) if tree is None else tree.run(inputs)
            if arrays is not None and done:
                self.note_run(*done[-1][1].direct.last_run)
                return arrays
            path = None if tree is None or done is None else RunPath(tree, done)
        if (other := self._overridden(inputs)) is not None:
            arrays = other.run(outputs, inputs, out)
            self._adopt_last_run(other)
            return arrays
        results = self._run_checked(outputs, inputs, out, None, path=path)
        return [result.array() for result in results]

    def run_on(
        self, outputs: Sequence[str], inputs: Mapping[str, Array], path: RunPath
    ) -> list[Array]:
        """Run the network as a part of a model and add it to the path of the model's run.

        Args:
            outputs: the names of the wanted outputs.
            inputs: the arrays, by name.
            path: the path of the model's run.
        """
        segments = self._segments
        if segments is not None and {port.name for port in self.outputs}.issuperset(outputs):
            values = segments.run(outputs, inputs, self.inputs, path)
            return [values[name] for name in outputs]
        results = path.outputs_of(self, outputs)
        if results is None:
            results = self.run(outputs, inputs)
            path.add(self, self._direct, outputs, inputs, results)
        return results

    def _run_directly(
        self, plans: PlanStore, outputs: Sequence[str] | None, inputs: Mapping[str, object]
    ) -> list[Array] | Literal[False] | None:
        """Run a request of an earlier run than the last as one native call; later runs try it
        first.

        Returns None if no such request fits, False if the strict plan must repeat the run.

        Args:
            plans: the store of plans.
            outputs, inputs: the arguments of ``run``.
        """
        for request in self._requests.like(inputs):
            plan, direct = request.plan, request.direct
            if direct is None or direct is self._direct:
                continue
            if not plans.current(request.key, plan):
                return None
            begun = perf_counter()
            answer = direct.run(outputs, inputs)
            if answer is not None:
                if (refinement := plan.refinement) is not None:
                    refinement.ran(perf_counter() - begun)
                stays = refinement is None or refinement.stays
                self._direct, self._recent = direct if stays else None, request
                self._thread.last_run, plan.origin = direct.last_run, IN_MEMORY
                return answer
        return None

    def results(self, outputs: Sequence[str] | None, inputs: Mapping[str, object]) -> list[Result]:
        """Run the network and return the outputs in the plan's layouts, in order.

        Args:
            outputs: the names of the wanted outputs; None is all.
            inputs: the arrays, by name.
        """
        if (known := self._run_known(outputs, inputs, None, None)) is not None:
            request, ran = known
            if ran[2]:
                return request.results(ran)
        if (other := self._overridden(inputs)) is not None:
            results = other.results(outputs, inputs)
            self._adopt_last_run(other)
            return results
        return self._run_checked(outputs, inputs, None, None, strictly=known is not None)

    def _run_known(
        self,
        outputs: Sequence[str] | None,
        inputs: Mapping[str, object],
        out: Mapping[str, object] | None,
        times: Array | None,
    ) -> tuple[Request, Ran] | None:
        """Run a request of an earlier run again, and return it with the finished run.

        Returns None, and runs nothing, if no earlier request fits, an array must be converted or is
        wrong, another plan has replaced the request's, or the session is closed.

        Args:
            outputs, inputs, out, times: the arguments of ``run``.
        """
        plans, request = self.plans, self._recent
        fed = None if request is None else request.fed(outputs, inputs)
        if fed is None:
            rows = ((other, other.fed(outputs, inputs)) for other in self._requests.like(inputs))
            request, fed = next((row for row in rows if row[1] is not None), (None, None))
        if request is None or fed is None:
            return None
        output_memory = request.own(out, fed)
        if output_memory is None or plans is None:
            return None
        refinement = request.plan.refinement
        if refinement and not (refinement.stays or plans.current(request.key, request.plan)):
            return None
        if request is not self._recent:
            self._remember(inputs, request, plans)
        begun = perf_counter()
        try:
            ran = request.run(fed, None, times, own=output_memory)
        except MemoryError as error:
            raise ran_out(error) from error
        except SessionClosedError:
            self.open()  # raises if this session was closed
            raise
        if refinement:
            refinement.ran(perf_counter() - begun)
        if plans.prepared and (refinement is None or refinement.stays):
            self._direct = request.direct
        request.plan.origin = IN_MEMORY
        self.note_run(request.plan, {})
        if not plans.prepared:
            plans.prepare(request.key)
        return request, ran

    def _remember(self, inputs: object, request: Request, plans: PlanStore) -> None:
        """Make ``request`` the most recent one of those remembered for inputs of these shapes.

        Requests are forgotten if the store ``plans`` has dropped or replaced their plans.
        """
        plans.used(request.key)
        self._requests.put(inputs, request, len(plans), plans.holds)
        self._direct, self._recent = None, request

    @memory_errors()
    def _run_checked(
        self,
        outputs: Sequence[str] | None,
        inputs: Mapping[str, object],
        out: Mapping[str, object] | None,
        times: Array | None,
        strictly: bool = False,
        path: RunPath | None = None,
    ) -> list[Result]:
        """Check the arrays, find or make the plan, run it, and return the outputs.

        If a run with approximate variants meets a number that is not finite, the strict plan
        repeats the run.

        Args:
            outputs, inputs, out, times: the arguments of ``run``.
            strictly: True runs the strict plan at once.
            path: the path of a run in segments, to which its parts are added; None adds none.
        """
        if self._segments is None:
            try:
                results = in_front(
                    partial(self._plan_and_run, outputs, inputs, out, times, strictly)
                )
            except SegmentsNeededError as error:
                self._cut(error)
        if self._segments is not None:
            return self._run_segments(self._segments, outputs, inputs, out, path)
        return (
            self._run_checked(outputs, inputs, out, None, strictly=True)
            if results is None
            else results
        )

    def _cut(self, error: SegmentsNeededError) -> None:
        """Cut the model into segments, each of which knows the values that earlier ones compute.

        Raises:
            SegmentsNeededError: ``error`` itself, if values are not what its nodes need.
            LockError: the session has a lock file of another model, or of a model of one plan.
            InputError: a pinned node does not exist.
        """
        from vtensor.runtime.segments import Segments

        source, lock = self.open().source, self._options.lock
        if self._whole is self and lock is not None:
            lock.check_segments(source.content())
        if self._whole is self:
            source.check_names(self._options.preferences.nodes)
        parts = source.cut(error)
        with self._making.here:
            if self._segments is None:
                self._segments = Segments(parts, self._part, self.workspace.max_bytes)
        if self.plans is None:
            self.close()

    def _part(self, model: Model, name: str) -> Runner:
        """Return the runner of a part of the model, given the part's name."""
        source, whole = self.open().source.part(model), self._whole
        name = "/".join(filter(None, (self.name, name)))
        options, preferences = whole._options, whole._options.preferences
        given, lock = {port.name for port in whole.inputs}, options.lock
        if lock is not None:
            lock = lock.of_segment(name, {port.name for port in source.inputs} - given)
        options = replace(
            options,
            entry=_renamed(options.entry, whole.inputs, source.inputs),
            delivery=_renamed(options.delivery, whole.outputs, source.outputs),
            preferences=replace(preferences, partial=True),
            lock=lock,
        )
        return Runner(source, options, self.workspace, whole=whole, name=name)

    def _run_segments(
        self,
        segments: Segments,
        outputs: Sequence[str] | None,
        inputs: Mapping[str, object],
        out: Mapping[str, object] | None,
        path: RunPath | None,
    ) -> list[Result]:
        """Check the arrays, run the segments, and return the outputs.

        Args:
            segments: the model's parts.
            outputs, inputs, out: the arguments of ``run``.
            path: the path of the run, to which its parts are added; None adds none.
        """
        wanted = self.open().source.wanted(outputs)
        check_names(inputs, self.inputs)
        arrays = {port.name: values_of(inputs[port.name], port) for port in self.inputs}
        into = check_out(out, self.outputs, wanted)
        known = [port.name for port in self.outputs]
        with self._released_if_closed():
            inner = {*wanted}.difference(known)
            if inner and not inner.issubset(segments.values):
                path = None
                segments.run(known, arrays, self.inputs, None)  # then all values are known
                if unknown := inner.difference(segments.values):
                    raise no_output([name for name in wanted if name in unknown], known)
            if path is not None:
                path.begin(arrays)
            values = segments.run(wanted, arrays, self.inputs, path)
        ran = (runner for runner in reversed(self.parts) if runner.last_run is not None)
        if (last := next(ran, None)) is not None:
            self._adopt_last_run(last)
        held, results, ends = [*arrays.values()], list[Result](), list[tuple[Array, bool]]()
        for name in wanted:  # no output shares memory with an input or another output
            array = values[name]
            copied = any(array is other for other in held)
            ends.append((array, copied))
            if copied:
                array = array.copy()
            held.append(array)
            results.append(handed_on(name, array, into.get(name)))
        if path is not None:
            path.finish(ends)
        return results

    def repeat(self, turns: Turns) -> Repeated | None:
        """Run the network turn after turn, as the body of a loop, by a plan of an earlier run.

        Returns None, and runs nothing, if that plan does not fit, or another one has replaced it.
        """
        from vtensor.runtime.execution.repeat import repeated

        plans = self.plans
        requests = self._requests.like(turns.inputs) if plans is not None else ()
        if plans is None or not requests or not plans.current(requests[0].key, requests[0].plan):
            return None
        begun, refinement = perf_counter(), requests[0].plan.refinement
        done = repeated(requests[0], turns)
        if done is not None and refinement is not None:
            refinement.ran(perf_counter() - begun)
        return done

    @property
    def values(self) -> list[str]:
        """Names of all values that ``run`` may return, as far as they are known."""
        segments = self._segments
        return [*self.open().source.values] if segments is None else segments.values

    @property
    def parts(self) -> list[Runner]:
        """The runners of a model's parts in the order in which they run; only this one if the
        model is not cut.
        """
        segments = self._segments
        return [self] if segments is None else [p for r in segments.runners for p in r.parts]

    def _plan_and_run(
        self,
        outputs: Sequence[str] | None,
        inputs: Mapping[str, object],
        out: Mapping[str, object] | None,
        times: Array | None,
        strictly: bool,
    ) -> list[Result] | None:
        """Check the arrays, find or make the plan, run it, and return the outputs.

        Returns None if the strict plan must repeat the run. The arguments are those of
        ``_run_checked``.
        """
        plans = self.open()
        with self._released_if_closed():
            try:
                checked = self._plan_for(plans, outputs, inputs, out)
            except WRONG_ENTRY_ERRORS:
                if not plans.source.corrected():
                    raise
                checked = self._plan_for(plans, outputs, inputs, out)
            wanted, feeds, into, plan, key = checked
            self._direct = None
            if strictly:
                plan, times = plans.strict(plan), None  # its steps do not fit ``times``
            self._thread.last_run = self._last_run = plan, {}
            plan.check_out(into)
            plan.note_use()
            every = list(wanted) == [port.name for port in self.outputs]
            request = Request.of(plan, key, wanted, every)
            if not strictly:
                self._remember(inputs, request, plans)
            fed = [feeds[value.name].part.array for value in plan.inputs]
            begun = perf_counter()
            try:
                ran = request.run(fed, into, times)
            finally:
                plans.has_run()
            if (refinement := plan.refinement) is not None:
                refinement.ran(perf_counter() - begun)
            if not ran[2]:
                return None
            results = request.results(ran, into)
            self._thread.last_run = self._last_run = plan, copies(feeds, results)
            return results

    def _plan_for(
        self,
        plans: PlanStore,
        outputs: Sequence[str] | None,
        inputs: Mapping[str, object],
        out: Mapping[str, object] | None,
    ) -> tuple[Sequence[str], Mapping[str, Feed], Mapping[str, Array], Plan, PlanKey]:
        """Check the arguments of a run and find or make its plan.

        Args:
            plans: the store of plans.
            outputs, inputs, out: the arguments of ``run``.

        Returns:
            The names of the wanted outputs, the converted inputs and the arrays for outputs, both
            by name, the plan, and its key.
        """
        wanted = plans.source.wanted(outputs)
        check_names(inputs, self.inputs)
        feeds = {port.name: feed_of(inputs[port.name], port) for port in self.inputs}
        into = check_out(out, self.outputs, wanted)
        plan, key = plans.find(feeds, wanted)
        if not plan.deliveries.keys() >= {*wanted}:
            raise InputError(f"the plan delivers {', '.join(plan.deliveries)} alone")
        return wanted, feeds, into, plan, key

    @memory_errors()
    def bind(
        self, inputs: Mapping[str, object], outputs: Mapping[str, object] | None = None
    ) -> Binding:
        """Return a binding of a plan to the memory of inputs and outputs.

        Errors are those of ``Session.bind``.

        Args:
            inputs: the arrays to read, by name.
            outputs: the arrays to write outputs to, by name; other outputs get new arrays.
        """
        plans = self.open()
        if (other := self._overridden(inputs)) is not None:
            return other.bind(inputs, outputs)
        check_names(inputs, self.inputs)
        feeds = {port.name: memory_of(inputs[port.name], port) for port in self.inputs}
        wanted = [port.name for port in self.outputs]
        into = check_out(outputs, self.outputs, wanted)
        self._check_whole()
        with self._released_if_closed():
            try:
                plan, _ = plans.find(feeds, wanted)
            except SegmentsNeededError as error:
                self._cut(error)
                self._check_whole()
                raise
            plan = plans.settled(plan)  # the binding keeps this plan, so a better one is made first
            plans.has_run()  # runs of a binding do not queue the saving of choices
        plan.check_out(into)
        plan.note_use()

        from vtensor.runtime.execution.binding import bind

        def strictly(outputs: Mapping[str, Array]) -> Binding:
            return bind(plans.strict(plan), feeds, wanted, outputs, self._enter_binding)

        return bind(plan, feeds, wanted, into, self._enter_binding, strictly)

    def open(self) -> PlanStore:
        """Return the store of plans.

        Raises:
            SessionClosedError: the session was closed, or the interpreter is shutting down.
        """
        check_running()
        plans = self.plans
        if plans is None:
            raise SessionClosedError("this session is closed: make a new one")
        return plans

    def close(self) -> None:
        """Release plans, weights and memory, and the kernels that only these plans used."""
        closes = self.plans is not None
        self._close()
        if closes:
            trim_memory()

    def _close(self) -> None:
        plans, self.plans = self.plans, None
        lingering = [] if plans is None else plans.close()
        others, self._overriding = [*self._overriding.values()], {}
        segments, self._segments, self._trees = self._segments, None, RequestTrees()
        for other in [*others, *(segments.runners if segments is not None else ())]:
            other._close()
        self.workspace = self.workspace.closed()
        self._requests, self._direct, self._recent = Requests(), None, None
        self._last_run, self._thread = None, _ThreadState()  # for all threads
        del plans
        for work in lingering:
            work.finish()

    def forget(self) -> None:
        """Close the stores of plans without waiting; bindings keep their plans."""
        for runner in (*self.parts, *self._overriding.values()):
            if runner.plans is not None:
                runner.plans.close()

    @contextmanager
    def _released_if_closed(self) -> Iterator[None]:
        """Run the block. If the session was closed meanwhile, close it again at the end of the
        block.

        Closing releases the plans and memory that the block made.
        """
        try:
            yield
        except SessionClosedError:
            self.open()  # raises if this session was closed
            raise
        finally:
            if self.plans is None:
                self.close()

    def _enter_binding(self, binding: Binding) -> None:
        """Record a run of a binding, which is about to begin, as the last run."""
        self.open()
        self._direct = None  # a run of the direct request does not set ``_last_run``
        self.note_run(binding.plan, dict(binding.copies))

    def note_run(self, plan: Plan, copied: Copies) -> None:
        """Record a plan and the copies of its run as the last run. Nothing is recorded if the
        session was closed.
        """
        self._thread.last_run = self._last_run = plan, copied
        if self.plans is None:
            self.close()
