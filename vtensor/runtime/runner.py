"""What runs: the plans of one session, and the requests that it had last."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING

from ptensor.background_work import in_front
from vtensor.errors import DimError, InputError, LockError, ResolutionError, SessionClosedError
from vtensor.language.forks import OwnLock
from vtensor.runtime.cache.plans import SavedPlans
from vtensor.runtime.execution.delivery import Result
from vtensor.runtime.execution.executor import check_running
from vtensor.runtime.execution.origin import IN_MEMORY
from vtensor.runtime.execution.plan import Plan
from vtensor.runtime.execution.request import Copies, LastRun, Ran, Request, copies
from vtensor.runtime.execution.trim import trim_memory
from vtensor.runtime.planning.options import Options
from vtensor.runtime.planning.source import Source
from vtensor.runtime.planning.store import PlanStore
from vtensor.runtime.recording.workspace import Workspace
from vtensor.storage.budget import memory_errors, ran_out
from vtensor.storage.inputs import Array, Feed, Port, check_names, check_out, feed_of, memory_of

if TYPE_CHECKING:
    from vtensor.language.graph import Graph
    from vtensor.runtime.execution.binding import Binding
    from vtensor.runtime.execution.direct import Direct
    from vtensor.runtime.planning.keys import PlanKey

#: Requests that a session remembers: those that are none of them take the long way.
MOST_REQUESTS = 8

#: The errors of a run whose inputs are not those that an entry of the cache says.
MISTAKEN = (InputError, DimError, ResolutionError)

#: The most sets of overridden initializers for which a session keeps plans, the last used ones.
MOST_OVERRIDDEN = 8


class _Own(threading.local):
    """What a thread ran last in a session; None where it has run nothing."""

    last_run: LastRun | None = None


class Runner:
    """Runs a network until it is closed.

    Args:
        source: what graphs are made from.
        options: how plans are made.
        workspace: the thread that plans run on, and what they share.
        declared: make the plan for the declared sizes now, if all of them are known.

    Attributes:
        plans: those that are kept; None once it is closed.
    """

    def __init__(
        self, source: Source, options: Options, workspace: Workspace, declared: bool = True
    ) -> None:
        self.inputs, self.outputs = source.inputs, source.outputs
        self._options, self._making = options, OwnLock()
        self.executor, self.workspace = workspace.executor, workspace
        cache = SavedPlans.of(source, options, workspace)
        self.plans: PlanStore | None = PlanStore(source, options, workspace, cache)
        self._requests: list[Request] = []  # the last one first
        #: The last one in one call, once nothing is to be done beside its runs.
        self._direct: Direct | None = None
        #: The last run of any thread, or the plan that was made at construction.
        self._last_run: LastRun | None = None
        self._own = _Own()
        #: Runners with overridden initializers, by the names of these; the last used one is last.
        self._overriding: dict[frozenset[str], Runner] = {}
        if declared and source.static:
            try:
                self._last_run = self.plans.declared(), {}
            except MISTAKEN:
                if not source.corrected():
                    raise
                self._last_run = (self.plans.declared(), {}) if source.static else None

    @property
    def last_run(self) -> LastRun | None:
        """The calling thread's last run, or any thread's where it has run nothing."""
        return self._own.last_run or self._last_run

    @property
    def copied(self) -> Copies:
        """What the last run had to copy."""
        last = self.last_run
        return {} if last is None else last[1]

    @property
    def plan(self) -> Plan:
        """The plan of the last run, or the one made at construction.

        Raises:
            InputError: sizes are open and nothing has run yet.
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
        """The same; where it is provisional, what takes its place, made now.

        Raises:
            InputError: as ``plan``.
        """
        before = self.plan
        plan = self._owner(before).settled(before)
        self._own.last_run = self._last_run = plan, self.copied
        return plan

    def made_of(self, plan: Plan) -> tuple[Graph, Options]:
        """Return the graph and the options that a plan was made of.

        Raises:
            InputError: as ``PlanStore.made_of``.
        """
        return self._owner(plan).made_of(plan)

    def _owner(self, plan: Plan) -> PlanStore:
        """Return the plans that a plan is one of: these, or those with overridden initializers."""
        plans = [self.open(), *(one.plans for one in [*self._overriding.values()])]
        return next((one for one in plans if one is not None and one.has(plan)), self.open())

    def ports_of(self, inputs: object) -> list[Port]:
        """Return the inputs of a run that is given these by name: all, and overridden defaults."""
        other = self._overridden(inputs)
        return self.inputs if other is None else other.inputs

    def _overridden(self, inputs: object) -> Runner | None:
        """Return what runs with the initializers overridden for which values are given.

        None if there are none: the inputs are then the network's own, or wrong. A run with other
        inputs has another graph, hence plans of its own; plans for defaults stay as they are.
        """
        own = {port.name for port in self.inputs}
        if not isinstance(inputs, Mapping) or not (more := frozenset(inputs) - own):
            return None
        source, found = self.open().source, self._overriding.get(more)
        if found is None:
            if not more.issubset(source.overridable):
                return None
            if self._options.lock is not None:
                raise LockError(
                    f"the lock file is of runs without the inputs {', '.join(sorted(more))}, whose "
                    "own values count\n  to fix: give no others, or a lock file of a run with them"
                )
            found = Runner(source.overriding(more), self._options, self.workspace, declared=False)
        with self._making.here:
            found = self._overriding.pop(more, found)  # another thread may have been first
            self._overriding[more] = found
            if len(self._overriding) > MOST_OVERRIDDEN:
                self._overriding.pop(next(iter(self._overriding))).forget()
        if self.plans is None:
            self.close()
        return found

    def _ran_as(self, other: Runner) -> None:
        """Note what another runner's last run was."""
        self._direct = None  # else its runs would not be noted
        if (last := other.last_run) is not None:
            self._has_run(*last)

    def run(
        self,
        outputs: Sequence[str] | None,
        inputs: Mapping[str, object],
        out: Mapping[str, object] | None = None,
        times: Array | None = None,
    ) -> list[Array]:
        """The outputs as arrays."""
        if type(outputs) is list and not outputs:
            outputs = None  # all; what follows knows them at once
        answer, direct, plans = None, self._direct, self.plans
        if direct is not None and plans is not None and out is None and times is None:
            if plans.prepared:  # else the short way sees to that
                answer = direct.run(outputs, inputs)
            if isinstance(answer, list):
                self._own.last_run = direct.last_run
                return answer
        strictly = answer is False
        if not strictly and (found := self._short(outputs, inputs, out, times)) is not None:
            request, ran = found
            if ran[2]:
                return request.arrays(ran, out)
            strictly = True
        if (other := self._overridden(inputs)) is not None:
            arrays = other.run(outputs, inputs, out, times)
            self._ran_as(other)
            return arrays
        return [result.array() for result in self._long(outputs, inputs, out, times, strictly)]

    def results(self, outputs: Sequence[str] | None, inputs: Mapping[str, object]) -> list[Result]:
        """The outputs as they lie."""
        if (found := self._short(outputs, inputs, None, None)) is not None:
            request, ran = found
            if ran[2]:
                return request.results(ran)
        if (other := self._overridden(inputs)) is not None:
            results = other.results(outputs, inputs)
            self._ran_as(other)
            return results
        return self._long(outputs, inputs, None, None, strictly=found is not None)

    def _short(
        self,
        outputs: Sequence[str] | None,
        inputs: Mapping[str, object],
        out: Mapping[str, object] | None,
        times: Array | None,
    ) -> tuple[Request, Ran] | None:
        """Run one of the last requests once more, on other arrays; None if it is none of them."""
        plans, requests = self.plans, self._requests
        for request in requests:
            fed = request.fed(outputs, inputs)
            if fed is None:
                continue
            own = request.own(out, fed)
            if own is None or plans is None:
                return None
            refinement = request.plan.refinement
            if refinement and not (refinement.stays or plans.current(request.key, request.plan)):
                return None
            if request is not requests[0]:
                self._remember(request, plans)
            begun = perf_counter()
            try:
                ran = request.run(fed, None, times, own=own)
            except MemoryError as error:
                raise ran_out(error) from error
            except SessionClosedError:
                self.open()  # it is this one that was closed
                raise
            if refinement:
                refinement.ran(perf_counter() - begun)
            if plans.prepared and (refinement is None or refinement.stays):
                self._direct = request.direct
            request.plan.origin = IN_MEMORY
            self._has_run(request.plan, {})
            if not plans.prepared:
                plans.prepare(request.key)
            return request, ran
        return None

    def _remember(self, request: Request, plans: PlanStore) -> None:
        """It is the last one; those whose plans are not kept are forgotten."""
        plans.used(request.key)
        others = (
            one
            for one in self._requests
            if not one.like(request) and plans.holds(one.key, one.plan)
        )
        self._requests, self._direct = [request, *others][:MOST_REQUESTS], None

    @memory_errors()
    def _long(
        self,
        outputs: Sequence[str] | None,
        inputs: Mapping[str, object],
        out: Mapping[str, object] | None,
        times: Array | None,
        strictly: bool = False,
    ) -> list[Result]:
        """Find the plan for these inputs, and run it.

        If outputs are not finite, an approximate plan's are dropped, and the strict plan runs.
        """
        results = in_front(partial(self._planned, outputs, inputs, out, times, strictly))
        return self._long(outputs, inputs, out, None, strictly=True) if results is None else results

    def _planned(
        self,
        outputs: Sequence[str] | None,
        inputs: Mapping[str, object],
        out: Mapping[str, object] | None,
        times: Array | None,
        strictly: bool,
    ) -> list[Result] | None:
        """Find the plan for these inputs, and run it; None if outputs are not finite."""
        plans = self.open()
        with self._closing():
            try:
                found = self._plan_for(plans, outputs, inputs, out)
            except MISTAKEN:
                if not plans.source.corrected():
                    raise
                found = self._plan_for(plans, outputs, inputs, out)
            wanted, feeds, into, plan, key = found
            self._direct = None
            if strictly:
                plan, times = plans.strict(plan), None  # whose steps are others
            self._own.last_run = self._last_run = plan, {}
            plan.check_out(into)
            plan.note_use()
            every = list(wanted) == [port.name for port in self.outputs]
            request = Request.of(plan, key, wanted, every)
            if request.inputs is not None and not strictly:
                self._remember(request, plans)
            fed = [feeds[one.name].part.array for one in plan.inputs]
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
            self._own.last_run = self._last_run = plan, copies(feeds, results)
            return results

    def _plan_for(
        self,
        plans: PlanStore,
        outputs: Sequence[str] | None,
        inputs: Mapping[str, object],
        out: Mapping[str, object] | None,
    ) -> tuple[Sequence[str], Mapping[str, Feed], Mapping[str, Array], Plan, PlanKey]:
        """Check names, inputs and ``out``; return them as they run, the plan and its key."""
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
        """Fix where inputs and outputs lie."""
        plans = self.open()
        if (other := self._overridden(inputs)) is not None:
            return other.bind(inputs, outputs)
        check_names(inputs, self.inputs)
        feeds = {port.name: memory_of(inputs[port.name], port) for port in self.inputs}
        wanted = [port.name for port in self.outputs]
        into = check_out(outputs, self.outputs, wanted)
        with self._closing():
            plan, _ = plans.find(feeds, wanted)
            plan = plans.settled(plan)  # it stays the binding's
            plans.has_run()  # nobody tells when a binding does
        plan.check_out(into)
        plan.note_use()

        from vtensor.runtime.execution.binding import bind

        def strictly(outputs: Mapping[str, Array]) -> Binding:
            return bind(plans.strict(plan), feeds, wanted, outputs, self._entered)

        return bind(plan, feeds, wanted, into, self._entered, strictly)

    def open(self) -> PlanStore:
        """The plans.

        Raises:
            SessionClosedError: after ``close``, or the interpreter is shutting down.
        """
        check_running()
        plans = self.plans
        if plans is None:
            raise SessionClosedError("this session is closed: make a new one")
        return plans

    def close(self) -> None:
        """Let go of plans, weights and memory, and of the kernels that only they had."""
        closes = self.plans is not None
        self._close()
        if closes:
            trim_memory()

    def _close(self) -> None:
        plans, self.plans = self.plans, None
        lingering = [] if plans is None else plans.close()
        others, self._overriding = self._overriding, {}
        for other in others.values():
            other._close()
        self.workspace = self.workspace.closed()
        self._requests, self._direct = [], None
        self._last_run, self._own = None, _Own()  # of all threads
        del plans
        for work in lingering:
            work.finish()

    def forget(self) -> None:
        """Nobody asks for plans any more; bindings have theirs."""
        for one in (self, *self._overriding.values()):
            if one.plans is not None:
                one.plans.close()

    @contextmanager
    def _closing(self) -> Iterator[None]:
        """Where it was closed meanwhile, nothing is kept of what is made here."""
        try:
            yield
        except SessionClosedError:
            self.open()  # it is this one that was closed
            raise
        finally:
            if self.plans is None:
                self.close()

    def _entered(self, binding: Binding) -> None:
        """A binding is about to run."""
        self.open()
        self._direct = None  # which leaves what is known of the last run as it is
        self._has_run(binding.plan, dict(binding.copies))

    def _has_run(self, plan: Plan, copied: Copies) -> None:
        """Keep the plan and the copies of a run, unless the session was closed meanwhile."""
        self._own.last_run = self._last_run = plan, copied
        if self.plans is None:
            self.close()
