"""Session: a network that is ready to run."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, cast

from libdesc.onnx_reference import LIBRARY as REFERENCE
from ptensor.layout import Layout
from vtensor.errors import EdgesNeeded, InputError
from vtensor.runtime.execution.backlog import Backlog
from vtensor.runtime.execution.lanes import executors_of
from vtensor.runtime.execution.one_process import OneProcess
from vtensor.runtime.execution.plan import Conversion, Plan
from vtensor.runtime.execution.preload import load_ahead
from vtensor.runtime.planning.options import Options, Progress
from vtensor.runtime.planning.source import Source
from vtensor.runtime.planning.tolerance import DEFAULT_TOLERANCE, tolerance_of
from vtensor.runtime.recording.workspace import Memory, Workspace
from vtensor.runtime.runner import Runner, timed_parts
from vtensor.storage.budget import max_bytes_of, memory_errors
from vtensor.storage.entries import entries_of
from vtensor.storage.inputs import (
    Array,
    Port,
    calibration,
    feed_of,
    noise,
    parse_layouts,
)

if TYPE_CHECKING:
    import onnx

    from vtensor.frontends.edges.model import Edges
    from vtensor.language.graph import Graph
    from vtensor.language.tensor import VTensor
    from vtensor.runtime.execution.binding import Binding
    from vtensor.runtime.graphs import Graphs
    from vtensor.runtime.lock.lock_file import Lock
    from vtensor.runtime.planning.frontier import Frontier
    from vtensor.runtime.tuning.profile import Profile


class Session(OneProcess):
    """A network resolved, extended, checked, recorded and ready to run.

    Args:
        model: path of an ONNX file, its bytes, a ModelProto, or a Graph.
        threads: kernel threads; None is every processor that the process may use.
        optimize: a level (``"none"``, ``"lho"``, ``"ewo"``, ``"all"``) or a list of names of levels
            and passes; ``-fuse`` in it takes a pass away, ``-rewrite.gelu`` one rewrite rule.
        objective: the quantity that plans minimise. ``"shared"`` is the bytes that Transforms move,
            where identical Transforms count once; ``"paper"`` is the number of edges whose two
            ends differ in layout; empty is the level's own: the bytes for ``"ewo"``, the estimated
            time of kernels and Transforms for ``"all"``.
        tune: True measures nodes and Transforms, and chooses libraries, layouts and kernels for the
            least time. If the whole plan is not faster than a plan without measurements, the
            latter is used. Times are saved in the user's cache (``VTENSOR_CACHE_DIR`` names another
            folder), so each node is measured once on a machine; run nothing else meanwhile.
            ``"background"`` makes the first plan without measurements. Once it is used, another
            thread measures in small parts between runs, and the better plan replaces it in later
            runs (``plan.better``); with ``deterministic=True``, ``"background"`` is the same as
            True.
        tolerance: the largest error of any output, relative to its largest element, compared with
            exact kernels; before a closing Softmax or Sigmoid, the error of its input. With
            ``tune=True`` a tolerance above 0 allows faster, approximate kernels as far as their
            measured errors permit; 0 allows none. docs/guide.md says how.
        precision: ``"bf16"`` stores values of f32 in bf16, with 8 significant bits, where a product
            or the nodes around it are then faster; sums stay in f32, and so do inputs and outputs.
            ``"f32"`` does so nowhere. On a processor without instructions for bf16 there is a
            warning, and all is computed in f32.
        finite: True promises that inputs and results are finite numbers. If it is False, a plan
            with approximate kernels checks them, and the strict plan repeats a run with numbers
            that are not finite. If outputs of a plan in f16 are not finite, a plan in f32 repeats
            the run.
        calibrate: arrays for inputs, by name, on which errors are measured; missing inputs get
            seeded noise.
        input_layouts: the layouts of inputs that the first plan is made for, by name.
        output_layouts: the layouts in which outputs are delivered, by name; None is C order of the
            model's dims.
        libraries: the libraries that may be used, in the order in which they are tried; None is
            all, by priority. A node that all of them decline runs on NumPy, and plans mark it.
        pin: the only library for an operator, or for a node, which takes precedence:
            ``{"Relu": "eigen", "conv1": "numpy"}``. It may be missing in ``libraries``. A key that
            is an operator's name means the operator, even if a node has the same name.
        reference: True runs nodes whose operators VTensor lacks on ONNX's reference evaluator
            (the library ``onnx_reference``): slowly, and marked in plans. If it is False, or that
            library is not among ``libraries``, such a model is refused.
        max_bytes: the most memory for a plan's values, packed weights and constants computed at
            load; None is three quarters of the machine's memory.
        external_data_root: the folder that must contain the model's files of external data, after
            links are followed. None is the model's own folder; if the model's path is a link (as in
            a model hub's cache), the folder of its target. The files of a model from memory are
            looked up relative to this folder.
        progress: called with each node's name while a plan is made. It must not run this session
            in a way that needs another plan (NestedRunError).
        streams: the number of runs that may go on at once, each called from a thread of its own.
            ``threads`` are divided among them; weights are shared, memory for values is not. A plan
            with call-backs to Python has one run at a time all the same. None lets ``hint`` decide.
        hint: the number of streams if ``streams`` is None: ``"latency"`` is one stream on all
            threads, ``"throughput"`` one stream for each thread.
        max_queued: the most runs of ``run_async`` that may wait while all streams are busy.
        deterministic: True never replaces the plan of a shape by a better one, so that equal
            inputs give equal bits as long as the plan is in memory. All measuring takes
            place before the first run.
        cache_dir: the folder in which choices are cached for later processes. True is the user's
            own cache (``VTENSOR_CACHE_DIR`` names another one, ``VTENSOR_CACHE=off`` means none);
            None or False means no cache. An entry holds choices, symbolic plans and the positions
            of weights in the model's file; no large weights and no code. A damaged or foreign entry
            is replaced, and so is one for another network, other options, libraries or processors.
        plan: a lock file that ``vtensor lock`` or ``lock().write`` wrote: each run follows it. It
            fixes the level, libraries, pins and layouts, so these must not be given, and holds for
            its own model, weights and sizes alone. A lock file with approximate kernels is accepted
            if ``tolerance`` allows their measured errors.

    Raises:
        ModelError: the file is missing, is no ONNX, or uses what VTensor lacks.
        NoInvokerError: no library runs a node, or the pinned one declines it.
        InputError: an option is wrong; a pin's key is neither an operator nor a node, or its
            library has no invoker of it. Nodes are checked when the first plan is made.
        BudgetError: more memory than ``max_bytes`` would be needed.
        LockError: ``plan`` cannot be read, is another model's, exceeds ``tolerance``, or has lines
            that no longer hold, each of which the message names. A run of other sizes raises it,
            too.

    A network whose shapes are all known is planned now, any other at its first run. At the level
    ``"all"`` that plan is provisional (``plan.provisional``): nothing is measured for it. Once its
    runs have taken as long as planning did, a measured plan is made between runs and replaces it;
    ``lock``, ``profile`` and ``bind`` make it at once. A run makes a new plan if shapes or layouts
    of inputs are new, or the value of an input that decides shapes (a Reshape's shape, fed as an
    input). At the level ``"all"`` the new plan reuses the choice made for other shapes where it
    fits (``plan.taken_from``) and chooses the other nodes again (``plan.anew``). If such a plan is
    not proven within 2 % of the best, and its runs have taken as long as planning in full takes,
    without others planned between them, a better one is made in the background for later runs
    (``plan.better``). The most recently used plans stay in memory.

    >>> import numpy as np
    >>> from ops import Relu
    >>> from vtensor import Graph
    >>> g = Graph("tiny")
    >>> g.output(g.add(Relu(), g.input("x", {"N": 1, "C": 2})), "y")
    >>> with Session(g, libraries=["numpy"]) as session:
    ...     session.run(None, {"x": np.array([[-1, 2]], np.float32)})
    [array([[0., 2.]], dtype=float32)]
    """

    @memory_errors()
    def __init__(
        self,
        model: str | os.PathLike[str] | bytes | onnx.ModelProto | Graph,
        *,
        threads: int | None = None,
        optimize: str | Sequence[str] = "all",
        objective: str = "",
        tune: bool | str = False,
        tolerance: float = DEFAULT_TOLERANCE,
        precision: str = "f32",
        finite: bool = False,
        calibrate: Mapping[str, object] | None = None,
        input_layouts: Mapping[str, Layout | str] | None = None,
        output_layouts: Mapping[str, Layout | str] | None = None,
        libraries: Sequence[str] | None = None,
        pin: Mapping[str, str] | None = None,
        reference: bool = True,
        max_bytes: int | None = None,
        external_data_root: str | os.PathLike[str] | None = None,
        progress: Progress | None = None,
        streams: int | None = None,
        hint: str = "latency",
        max_queued: int = 1024,
        deterministic: bool = False,
        cache_dir: str | os.PathLike[str] | bool | None = True,
        plan: str | os.PathLike[str] | None = None,
    ) -> None:
        executor, *further = executors_of(threads, streams, hint)
        if libraries is None and executor.threads > 1:
            load_ahead()
        self._backlog = Backlog(1 + len(further), max_queued)
        workspace = Workspace(executor, max_bytes_of(max_bytes), further)
        settings: dict[str, Any] = {
            "optimize": optimize,
            "objective": objective,
            "tune": tune,
            "precision": precision,
            "libraries": libraries,
            "pin": pin,
            "reference": reference,
        }
        allowed: dict[str, Any] = {"tolerance": tolerance_of(tolerance), "finite": finite}
        if plan is None:
            options = Options.of(
                executor, progress=progress, deterministic=deterministic, **settings, **allowed
            )
        else:
            from vtensor.runtime.lock.lock_file import Lock
            from vtensor.runtime.lock.plan_options import check_alone
            from vtensor.runtime.planning.locked_plan import locked_options

            if not isinstance(plan, str | os.PathLike):
                raise InputError(f"plan={plan!r} is no path of a lock file")
            check_alone(**settings, input_layouts=input_layouts, output_layouts=output_layouts)
            options = locked_options(Lock.read(plan), executor, progress, **allowed)
        listed = options.preferences.allows(REFERENCE)
        entries = entries_of(cache_dir)
        self._edges: Edges | None = None
        self._graphs: Graphs | None = None
        limits = listed, workspace.max_bytes
        try:
            source = Source(model, *limits, external_data_root, entries, workspace.expect)
        except EdgesNeeded:
            from vtensor.frontends.edges.model import Edges
            from vtensor.runtime.graphs import Graphs

            self._graphs = Graphs(listed, external_data_root, entries, workspace)
            edges = Edges(cast(Any, model), self._graphs.opened, workspace.max_bytes)
            self._edges = None if edges.plain else edges
            root = external_data_root or edges.root
            source = Source(edges.core, *limits, root, entries, workspace.expect)
        if options.lock is not None:
            locked = {*source.overridable} & options.lock.choices.inputs.keys()
            source = source.overriding(locked) if locked else source
        if options.lock is None:
            entry = parse_layouts(input_layouts, source.inputs, "input_layouts")
            delivery = parse_layouts(output_layouts, source.outputs, "output_layouts", any_too=True)
        else:
            entry, delivery = options.lock.layouts(source)
        options = replace(options, entries=entries)
        if self._graphs is not None:
            preferences = replace(options.preferences, partial=True)
            self._graphs.options = replace(options, lock=None, preferences=preferences)
            if self._edges is not None and self._edges.parted:
                options = replace(options, preferences=preferences)
        options = replace(
            options,
            entry=entry,
            delivery=delivery,
            calibrate=calibration(calibrate, source.inputs),
        )
        self._runner = Runner(source, options, workspace)

    @property
    def inputs(self) -> list[Port]:
        """The inputs of a run, with element types and shapes, in order."""
        return list(self._runner.inputs if self._edges is None else self._edges.inputs)

    @property
    def overridable(self) -> list[str]:
        """Names of initializers that the model lists among its inputs as well.

        ``run`` and ``bind`` accept arrays for them; without one an initializer has its own value.
        """
        return [*self._runner.open().source.overridable]

    @property
    def outputs(self) -> list[Port]:
        """The outputs of a run, with element types and shapes, in order."""
        return list(self._runner.outputs if self._edges is None else self._edges.outputs)

    @property
    def values(self) -> list[str]:
        """Names of all values that ``run`` may return: inputs, constants and results of nodes.

        They are the names in the graph; the list is empty for a model of symbolic sizes before its
        first run.
        """
        return self._runner.values

    @property
    def threads(self) -> int:
        """The number of kernel threads of a run."""
        return self._runner.executor.threads

    @property
    def streams(self) -> int:
        """The number of runs that may go on at once."""
        return len(self._runner.workspace.lanes.every)

    @property
    def plan(self) -> Plan:
        """The plan of the last run, or the one made at construction.

        The last run is the calling thread's own, here as in ``lock``, ``conversions``, ``copied``
        and ``memory``; for a thread that has run nothing, it is the last run of any thread.

        Raises:
            InputError: the network has symbolic sizes and nothing has run yet.
        """
        return self._runner.plan

    @property
    def plans(self) -> list[Plan]:
        """The plans of the last run: one for each segment.

        A model runs in several segments if nodes have to know values that a run computes: sizes
        that data decide, or what control flow runs. They stand in the order in which they ran, and
        ``plan`` is the last one. The plans of parts after Python steps follow.

        Raises:
            InputError: the network has symbolic sizes and nothing has run yet.
        """
        later = [] if self._graphs is None else self._graphs.runners
        parts = [part for runner in (self._runner, *later) for part in runner.parts]
        return [part.plan for part in parts if part.last_run] or [self.plan]

    def lock(self) -> Lock:
        """Return the plan of the last run as a lock file: the choice for each node, with reasons.

        A model in segments has a part for each segment that has run.

        ``session.lock().write("plan.toml")`` writes the file, and ``Session(model,
        plan="plan.toml")`` follows it.

        Raises:
            InputError: there is no plan yet, or the last run asked for values inside the network.

        >>> from ops import Relu
        >>> from vtensor import Graph
        >>> g = Graph("tiny")
        >>> g.output(g.add(Relu(), g.input("x", {"N": 1, "C": 2}), name="relu"), "y")
        >>> with Session(g, libraries=["numpy"]) as session:
        ...     print(session.lock().text().partition("[[node]]")[2].partition("at =")[0].strip())
        name = "relu"
        operator = "Relu"
        library = "numpy"
        """
        return self._runner.lock(self.threads)

    @property
    def conversions(self) -> list[Conversion]:
        """The conversions of the last run with their reasons: the Transforms of its plan, and the
        inputs and outputs that were copied (``copied``).
        """
        of_plans = [row for plan in self.plans for row in plan.conversions]
        return [*of_plans, *self._runner.copied.values()]

    @property
    def copied(self) -> frozenset[str]:
        """The names of inputs and outputs that the last run had to copy; others stayed in place.

        An input is copied if its memory has gaps, runs backwards, or is not aligned to its
        elements; an output if the array in ``out`` has another layout than ``output_layouts`` or
        overlaps an input, or if its memory is an input's, a constant's or another output's.
        """
        return frozenset(self._runner.copied)

    @property
    def memory(self) -> Memory:
        """The memory that the session needs for the plan of its last run.

        Raises:
            InputError: there is no plan yet.
        """
        plans = self.plans
        nbytes, live = max(plan.nbytes for plan in plans), max(plan.live for plan in plans)
        own = sum(size for plan in plans for size in plan.own_sizes)
        return Memory.of(self._runner.workspace, nbytes, live, own)

    def run(
        self,
        outputs: Sequence[str] | None,
        inputs: Mapping[str, object],
        *,
        out: Mapping[str, object] | None = None,
    ) -> list[Array]:
        """Run the network.

        Args:
            outputs: names of the wanted outputs, in order; None or an empty list is all. Any other
                name in ``values`` is allowed as well; each such set of names has a plan of its own,
                so that runs without them cost no more.
            inputs: arrays by name: NumPy's, or anything with ``__dlpack__`` or ``__array__``. A
                dense array is used in place, whatever the order of its axes in memory; so is a
                VTensor, blocks included, whose dims are named as the network's. Nested lists and
                numbers of Python are converted to the element type of the input. An initializer
                that the model lists among its inputs (``overridable``) may be given as well; each
                set of overridden initializers has plans of its own, so that other runs keep theirs.
            out: arrays to write outputs to, by name: NumPy arrays, VTensors and the like, of any
                strides. The plan writes directly to an array that has the output's layout and
                overlaps no input; an output is copied to any other array (``copied`` tells which).

        Returns:
            A NumPy array for each output: the one in ``out``, else a new one.

        Raises:
            InputError: a name, rank, size or element type is wrong, or ``out`` cannot be written
                to: it is read-only, or overlaps itself or another output; nothing has run.
            NativeError: a library failed.
            BudgetError: a plan for these shapes would need more memory than ``max_bytes``.
            SessionClosedError: after ``close()``.
        """
        if self._edges is None:
            return self._runner.run(outputs, inputs, out)
        from vtensor.runtime.segments import run_part

        if out:
            raise InputError("out: outputs of a model with texts, sequences or maps are new values")
        self._runner.open()
        return self._edges.run(outputs, inputs, partial(run_part, self._runner))

    async def run_async(
        self,
        outputs: Sequence[str] | None,
        inputs: Mapping[str, object],
        *,
        out: Mapping[str, object] | None = None,
    ) -> list[Array]:
        """Run the network on another thread while the event loop goes on.

        At most as many runs as the session has streams go on at once; further ones queue. A run
        that is cancelled while it queues never begins.

        Args:
            outputs, inputs, out: as in ``run``; arrays must not be touched until the run has ended.

        Raises:
            QueueFullError: ``max_queued`` runs wait already, or the system refuses a thread;
                nothing has run.
            InputError, NativeError, BudgetError, SessionClosedError: as in ``run``.
        """
        self._runner.open()
        return await self._backlog.run(partial(self.run, outputs, inputs, out=out))

    def run_tensors(
        self, outputs: Sequence[str] | None, inputs: Mapping[str, object]
    ) -> list[VTensor]:
        """Run the network on VTensors in any layouts, without unpacking them.

        Args:
            outputs: as in ``run``.
            inputs: as in ``run``; a VTensor is used in place, blocks included.

        Returns:
            VTensors in the layouts of ``output_layouts``; ANY there means the layout that the
            producing library chose.

        Raises:
            InputError, NativeError, SessionClosedError: as in ``run``.
        """
        self._check_arrays("run_tensors")
        return [result.tensor() for result in self._runner.results(outputs, inputs)]

    def _check_arrays(self, what: str) -> None:
        """Raise InputError if inputs or outputs are texts, sequences or maps.

        ``what`` names the method that takes arrays only.
        """
        if self._edges is not None:
            raise InputError(f"{what} takes no texts, sequences or maps, which this model has: run")

    @memory_errors()
    def bind(
        self, inputs: Mapping[str, object], outputs: Mapping[str, object] | None = None
    ) -> Binding:
        """Fix the memory of inputs and outputs, so that each run only replays the plan on it.

        Args:
            inputs: arrays, VTensors or objects with ``__dlpack__``, by name; each run reads their
                current elements.
            outputs: arrays to write outputs to, as ``out`` of ``run``; other outputs get new
                arrays.

        Returns:
            A binding: call ``binding.run()``, then read ``binding.outputs["y"]``. Its ``copies``
            are the copies that each run has to make; after a run ``conversions`` has them, too.

        Raises:
            InputError: as in ``run``; or an input's memory cannot be read in place, or its value
                decides shapes.
            BudgetError, SessionClosedError: as in ``run``.
        """
        self._check_arrays("bind")
        return self._runner.bind(inputs, outputs)

    @memory_errors()
    def profile(self, inputs: Mapping[str, object] | None = None, *, runs: int = 20) -> Profile:
        """Run the network several times and report where the time of a run goes.

        Segments of a model run one after another on what they read in a first run; a loop's body
        runs once, and Python steps around numeric parts do not count.

        Args:
            inputs: as in ``run``; missing ones get seeded random numbers.
            runs: the number of timed runs, at least 1; untimed runs precede them.

        Raises:
            InputError: ``runs`` is less than 1, an input is wrong, or an input with open sizes is
                missing.
            NativeError, BudgetError, SessionClosedError: as in ``run``.
        """
        from vtensor.runtime.tuning.profile import check_runs, profile_of

        check_runs(runs)
        if self._edges is None:
            arrays = noise(self._runner.ports_of(inputs), inputs or {})
            parts = self._runner.timed_parts(arrays)
        else:
            arrays = noise(self.inputs, inputs or {})
            parts = timed_parts(lambda: self.run(None, arrays))
        return profile_of(parts, self.threads, runs)

    @memory_errors()
    def frontier(
        self,
        tolerances: Sequence[float] | None = None,
        inputs: Mapping[str, object] | None = None,
        *,
        runs: int = 20,
        progress: Progress | None = None,
        also: Mapping[str, Session] | None = None,
    ) -> Frontier:
        """Make a plan for each of several tolerances and return their times and errors.

        Args:
            tolerances: each as in ``Session``; None is 0, 1e-6, 3e-6, 1e-5, 1e-4 and 1e-3. The
                strict plan, of tolerance 0, is always made, and the other plans are compared with
                it.
            inputs: as in ``run``; missing ones get seeded random numbers.
            runs: the number of timed runs of each plan, at least 1; plans take turns, and one
                untimed run of each precedes.
            progress: called with a description of each stage.
            also: sessions of other models of the same network, such as quantised ones, by name.
                Each is one more point; its error is that of its outputs.

        Raises:
            InputError: the session was made without ``tune=True``; ``tolerances`` is empty or has a
                value that is no number of at least 0; ``runs`` is less than 1, an input is wrong,
                or a session of ``also`` has other inputs, outputs or threads, or runs in segments.
            NativeError, BudgetError, SessionClosedError: as in ``run``.
        """
        from vtensor.runtime.planning.frontier import (
            TOLERANCES,
            OtherModel,
            check_ports,
            frontier_of,
            tolerances_of,
        )
        from vtensor.runtime.tuning.profile import check_runs

        self._check_arrays("frontier")
        wanted = tolerances_of(TOLERANCES if tolerances is None else tolerances)
        check_runs(runs)
        ports = self._runner.ports_of(inputs)
        feeds = noise(ports, inputs or {})
        self._runner.run(None, feeds)
        plan = self.plan
        graph, options = self._runner.made_of(plan)
        if options.settings.clock is None:
            raise InputError("a frontier needs times\n  to fix: Session(..., tune=True)")
        given_ports = {port.name: port for port in ports if port.name in (inputs or {})}
        arrays = {
            name: feed_of(feeds[name], port).values(port.dims) for name, port in given_ports.items()
        }
        others = list[OtherModel]()
        for name, session in (also or {}).items():
            check_ports(name, "input", self.inputs, session.inputs)
            check_ports(name, "output", self.outputs, session.outputs)
            if session.threads != self.threads:
                raise InputError(
                    f"model {name!r}: its session has threads={session.threads}, the first one "
                    f"has {self.threads}"
                )
            session.run(None, feeds)
            lock = session.lock()
            if lock.segments:
                raise InputError(f"model {name!r} runs in segments; a point is of a single plan")
            others.append(OtherModel(name, session.plan, lock))
        workspace = self._runner.workspace
        return frontier_of(plan, graph, options, workspace, wanted, arrays, runs, progress, others)

    def close(self) -> None:
        """Free plans, weights and memory; a second call does nothing.

        Current runs end first, and no other begins. Unfinished cache entries of the model are
        written before this method returns, for at most three seconds; nothing is written
        afterwards. Once the interpreter shuts down, a call does nothing: the system frees memory.
        """
        if sys.is_finalizing():  # nothing can be imported any more
            return
        self._runner.close()
        for runner in self._graphs.runners if self._graphs is not None else ():
            runner.close()
        self._backlog.close()

    def __del__(self) -> None:
        """Release the plans of a session that was not closed. Background work would keep them
        alive.
        """
        runner = getattr(self, "_runner", None)
        if runner is not None and not sys.is_finalizing():
            for each in (runner, *(self._graphs.runners if self._graphs is not None else ())):
                each.forget()

    def __enter__(self) -> Session:
        self._runner.open()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
