"""Session: a network that is ready to run."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any

from libdesc.onnx_reference import LIBRARY as REFERENCE
from ptensor.layout import Layout
from vtensor.errors import InputError
from vtensor.runtime.execution.backlog import Backlog
from vtensor.runtime.execution.lanes import executors_of
from vtensor.runtime.execution.one_process import OneProcess
from vtensor.runtime.execution.plan import Conversion, Plan
from vtensor.runtime.execution.preload import load_ahead
from vtensor.runtime.planning.options import Options, Progress
from vtensor.runtime.planning.source import Source
from vtensor.runtime.planning.tolerance import DEFAULT_TOLERANCE, tolerance_of
from vtensor.runtime.recording.workspace import Memory, Workspace
from vtensor.runtime.runner import Runner
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

    from vtensor.language.graph import Graph
    from vtensor.language.tensor import VTensor
    from vtensor.runtime.execution.binding import Binding
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
        objective: what is minimised. ``"shared"`` is the bytes that Transforms move, where
            identical Transforms count once; ``"paper"`` is the number of edges whose two ends
            differ in layout; empty is the level's own: the bytes for ``"ewo"``, the estimated
            time of kernels and Transforms for ``"all"``.
        tune: measure nodes and Transforms, and choose libraries, layouts and kernels for the
            least time. If the whole plan is not faster than the one without measurements, that
            one is used. Times are kept in the user's cache (``VTENSOR_CACHE_DIR`` names another
            folder), so each node is measured once a machine; run nothing else meanwhile.
            ``"background"`` makes the first plan without measurements. Once that is used, another
            thread measures in small parts between runs, and the better plan takes its place in
            later runs (``plan.better``); with ``deterministic=True`` it is as True.
        tolerance: the largest difference of any output, relative to its largest element, to the
            same model in kernels that are off by the order of sums alone; in front of a closing
            Softmax or Sigmoid, of what that reads. Above 0, ``tune=True`` takes faster, inexact
            kernels as well, as far as errors that are measured allow; 0 takes none. docs/guide.md
            says how.
        finite: True promises that inputs and results are finite numbers. Otherwise a plan with
            inexact kernels looks, and where one is not finite, the strict plan answers.
        calibrate: arrays for inputs, by name, on which errors are measured; seeded noise where
            there is none.
        input_layouts: how inputs will lie in memory, by name; what the first plan is made for.
        output_layouts: how outputs are to lie, by name; None is C order of the model's dims.
        libraries: the libraries that may be used, in the order in which they are tried; None is
            all, by priority. Where none of them takes a node, NumPy does, and plans mark it.
        pin: the one library for an operator, or for a node, which goes before its operator:
            ``{"Relu": "eigen", "conv1": "numpy"}``. It may be one that is not in ``libraries``. An
            operator's name is always the operator, even if a node has it too.
        reference: True runs nodes whose operators VTensor lacks on ONNX's reference evaluator
            (the library ``onnx_reference``): slowly, and marked in plans. If it is False, or that
            library is not among ``libraries``, such a model is refused.
        max_bytes: the most memory that a plan's values, packed weights included, and constants
            computed at load may take; None is three quarters of the machine's.
        external_data_root: the folder in which the model's files of external data must lie, once
            links are followed. None is the model's own folder, and where its path is a link (as in
            a model hub's cache), the folder that it leads to. The files of a model from memory are
            named relative to this folder.
        progress: called with each node's name while the plan is made. It must not run this session
            in a way that needs another plan (NestedRunError).
        streams: how many runs there may be side by side, from as many threads; ``threads`` are
            shared out among them, weights are shared, and each has memory of its own for values.
            A plan with call-backs to Python has one run at a time all the same.
        hint: where ``streams`` is None: ``"latency"`` is one run at a time, on all threads,
            ``"throughput"`` one on each thread.
        max_queued: how many runs of ``run_async`` may wait beside those that run.
        deterministic: True never exchanges the plan of a shape for a better one, so that equal
            inputs give equal bits as long as the plan is kept. What is to be measured is measured
            before the first run.
        cache_dir: the folder in which what is chosen is kept for later processes. True is the
            user's own cache (``VTENSOR_CACHE_DIR`` names another one, ``VTENSOR_CACHE=off`` means
            none), None or False means no cache. An entry holds choices, how a plan runs, or where a
            model's file has what; no large weights and no code. It is made anew where it is damaged
            or somebody else's, or was for another network, other options, libraries or processors.
        plan: a file that ``vtensor lock`` or ``lock().write`` wrote: each run is as it says. It
            says the level, libraries, pins and layouts, too, so that these are not given beside it,
            and holds for its own model, weights and sizes alone. One with inexact kernels is taken
            where ``tolerance`` allows the errors that were measured of it.

    Raises:
        ModelError: the file is missing, no ONNX, or uses what VTensor does not have.
        NoInvokerError: no library takes a node, or not the one that it is pinned to.
        InputError: an option is wrong; a pin's key is neither an operator nor a node, or its
            library has no invoker of it. Nodes are looked for when the first plan is made.
        BudgetError: more memory would be needed than ``max_bytes``.
        LockError: ``plan`` cannot be read, is another model's, is off by more than ``tolerance``,
            or has lines that no longer hold; names each of them. Also of a run, where its sizes are
            others.

    A network whose shapes are all known is planned here, any other at its first run. That plan is
    provisional (``plan.provisional``) at the level ``"all"``: nothing is measured for it. Once its
    runs have taken as long as it took to make, the plan by times of this machine is made between
    runs, and takes its place; ``lock``, ``profile`` and ``bind`` make it at once. A run makes a
    new plan if shapes or layouts of inputs are new, or the value of an input that decides shapes (a
    Reshape's shape, fed as an input). At the level ``"all"`` it takes over what was chosen for
    other shapes, where that fits (``plan.taken_from``), and chooses anew what does not
    (``plan.anew``). Where such a plan is not proven within 2 % of the best, and its runs have taken
    as long as planning in full takes, without others planned between them, a better one is made in
    the background for later runs (``plan.better``). The plans used last are kept.

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
        source = Source(
            model, listed, workspace.max_bytes, external_data_root, entries, workspace.expect
        )
        if options.lock is not None:
            locked = {*source.overridable} & options.lock.choices.inputs.keys()
            source = source.overriding(locked) if locked else source
        if options.lock is None:
            entry = parse_layouts(input_layouts, source.inputs, "input_layouts")
            delivery = parse_layouts(output_layouts, source.outputs, "output_layouts", any_too=True)
        else:
            entry, delivery = options.lock.layouts(source)
        options = replace(
            options,
            entry=entry,
            delivery=delivery,
            entries=entries,
            calibrate=calibration(calibrate, source.inputs),
        )
        self._runner = Runner(source, options, workspace)

    @property
    def inputs(self) -> list[Port]:
        """The inputs of a run."""
        return list(self._runner.inputs)

    @property
    def overridable(self) -> list[str]:
        """Names of initializers that the model lists among its inputs as well.

        ``run`` and ``bind`` take arrays for them, too; they have their own value otherwise.
        """
        return [*self._runner.open().source.overridable]

    @property
    def outputs(self) -> list[Port]:
        """The outputs of a run, in order."""
        return list(self._runner.outputs)

    @property
    def values(self) -> list[str]:
        """Names of all values that ``run`` may return: inputs, constants, and what nodes make.

        Those of the graph; of a model whose sizes are symbolic none before its first run.
        """
        return list(self._runner.open().source.values)

    @property
    def threads(self) -> int:
        """How many threads the kernels of a run may use."""
        return self._runner.executor.threads

    @property
    def streams(self) -> int:
        """How many runs there may be side by side."""
        return len(self._runner.workspace.lanes.every)

    @property
    def plan(self) -> Plan:
        """The plan of the last run, or the one made at construction.

        The last run is the calling thread's own, here as in ``lock``, ``conversions``, ``copied``
        and ``memory``; in a thread that has run nothing it is the last one of any thread.

        Raises:
            InputError: the network has symbolic sizes and nothing has run yet.
        """
        return self._runner.plan

    def lock(self) -> Lock:
        """The plan of the last run as it is written down: what was chosen for each node, and why.

        ``session.lock().write("plan.toml")`` writes it, ``Session(model, plan="plan.toml")`` runs
        it.

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
        from vtensor.runtime.planning.locked_plan import lock_of

        plan = self._runner.settled()
        return lock_of(plan, *self._runner.made_of(plan), self.threads)

    @property
    def conversions(self) -> list[Conversion]:
        """What the last run converted, and why: the Transforms of its plan, and copies.

        An input or an output is copied as ``copied`` says.
        """
        return [*self.plan.conversions, *self._runner.copied.values()]

    @property
    def copied(self) -> frozenset[str]:
        """The inputs and outputs that the last run had to copy; any other stayed where it was.

        An input is copied when its memory has gaps, runs backwards, or is not aligned to its
        elements; an output when the array in ``out`` lies otherwise than the plan delivers
        (``output_layouts``) or overlaps an input, or when it is an input's, a constant's or another
        output's memory.
        """
        return frozenset(self._runner.copied)

    @property
    def memory(self) -> Memory:
        """The memory that the session takes for the plan of its last run.

        Raises:
            InputError: there is no plan yet.
        """
        plan = self.plan
        return Memory.of(self._runner.workspace, plan.nbytes, plan.live, sum(plan.own_sizes))

    def run(
        self,
        outputs: Sequence[str] | None,
        inputs: Mapping[str, object],
        *,
        out: Mapping[str, object] | None = None,
    ) -> list[Array]:
        """Run the network.

        Args:
            outputs: names of the outputs wanted, in order; None or an empty list is all. Any other
                of ``values`` may be asked for as well; each such choice has a plan of its own, so
                that they cost nothing to runs that do not ask for them.
            inputs: arrays by name: NumPy's, or anything with ``__dlpack__`` or ``__array__``. A
                dense array is taken as it lies, whatever the order of its axes in memory; so is a
                VTensor, blocks and all, by its names where they are the network's. Nested lists and
                numbers of Python are converted to the element type of the input. An initializer
                that the model lists among its inputs (``overridable``) may be given as well; each
                set of those has plans of its own, so that other runs keep theirs.
            out: where to write outputs, by name: arrays, or VTensors and the like, of any strides.
                An array in the layout in which the output is delivered, that overlaps no input,
                is written by the network itself; into any other the output is copied
                (``copied`` says which).

        Returns:
            A NumPy array for each output: the one in ``out``, else a new one.

        Raises:
            InputError: a name, rank, size or element type is wrong, or ``out`` cannot be written
                to: it is read-only, or overlaps itself or another output; nothing has run.
            NativeError: a library failed.
            BudgetError: a plan for these shapes would need more memory than ``max_bytes``.
            SessionClosedError: after ``close()``.
        """
        return self._runner.run(outputs, inputs, out)

    async def run_async(
        self,
        outputs: Sequence[str] | None,
        inputs: Mapping[str, object],
        *,
        out: Mapping[str, object] | None = None,
    ) -> list[Array]:
        """Run the network on another thread, and let the event loop go on meanwhile.

        As many run side by side as the session has streams; others queue. A run that is cancelled
        while it queues never begins.

        Args:
            outputs, inputs, out: as for ``run``; arrays are the run's until it is done.

        Raises:
            QueueFullError: ``max_queued`` runs wait already, or the system lets no thread start;
                nothing has run.
            InputError, NativeError, BudgetError, SessionClosedError: as ``run``.
        """
        self._runner.open()
        return await self._backlog.run(partial(self.run, outputs, inputs, out=out))

    def run_tensors(
        self, outputs: Sequence[str] | None, inputs: Mapping[str, object]
    ) -> list[VTensor]:
        """Run the network on VTensors, in whatever layouts they are; none is unpacked.

        Args:
            outputs: as for ``run``.
            inputs: as for ``run``; a VTensor is taken as it lies, blocks and all.

        Returns:
            VTensors in the layouts of ``output_layouts``; ANY there means the layout that the
            producing library chose.

        Raises:
            InputError, NativeError, SessionClosedError: as ``run``.
        """
        return [result.tensor() for result in self._runner.results(outputs, inputs)]

    @memory_errors()
    def bind(
        self, inputs: Mapping[str, object], outputs: Mapping[str, object] | None = None
    ) -> Binding:
        """Fix the memory of inputs and outputs, so that each run only replays the plan on it.

        Args:
            inputs: arrays or VTensors by name, or what has ``__dlpack__``: each run reads what they
                hold then.
            outputs: where to write outputs, as ``out`` of ``run``; for outputs that are not named,
                arrays are made.

        Returns:
            A binding: call ``binding.run()``, then read ``binding.outputs["y"]``. Its ``copies``
            are those that each run has to make; ``conversions`` has them too, after a run.

        Raises:
            InputError: as ``run``; or an input has no memory to be read, or decides shapes.
            BudgetError, SessionClosedError: as ``run``.
        """
        return self._runner.bind(inputs, outputs)

    @memory_errors()
    def profile(self, inputs: Mapping[str, object] | None = None, *, runs: int = 20) -> Profile:
        """Run the network several times and report where the time of a run goes.

        Args:
            inputs: as for ``run``; for those that are missing, seeded random numbers.
            runs: how often, after a first run that is not counted; at least 1.

        Raises:
            InputError: ``runs`` is less than 1, an input is wrong, or an input with open sizes is
                missing.
            NativeError, BudgetError, SessionClosedError: as ``run``.
        """
        from vtensor.runtime.tuning.profile import check_runs, profile_of

        check_runs(runs)
        given = noise(self._runner.ports_of(inputs), inputs or {})
        self._runner.run(None, given)
        self._runner.settled()
        self._runner.run(None, given)
        return profile_of(
            self.plan, self.threads, lambda times: self._runner.run(None, given, times=times), runs
        )

    @memory_errors()
    def frontier(
        self,
        tolerances: Sequence[float] | None = None,
        inputs: Mapping[str, object] | None = None,
        *,
        runs: int = 20,
        progress: Progress | None = None,
    ) -> Frontier:
        """Make a plan for each of several tolerances: what it takes, and how far it is off.

        Args:
            tolerances: each as of ``Session``; None is 0, 1e-6, 3e-6, 1e-5, 1e-4 and 1e-3. The
                strict plan, that of 0, is always made: others are compared with it.
            inputs: as for ``run``; for those that are missing, seeded random numbers.
            runs: how often each plan runs, in turns with the others, after a first run that is not
                counted; at least 1.
            progress: told what is being done.

        Raises:
            InputError: the session was made without ``tune=True``; there is no tolerance, or one is
                no number of at least 0; ``runs`` is less than 1, or an input is wrong.
            NativeError, BudgetError, SessionClosedError: as ``run``.
        """
        from vtensor.runtime.planning.frontier import TOLERANCES, frontier_of, tolerances_of
        from vtensor.runtime.tuning.profile import check_runs

        wanted = tolerances_of(TOLERANCES if tolerances is None else tolerances)
        check_runs(runs)
        ports = self._runner.ports_of(inputs)
        given = noise(ports, inputs or {})
        self._runner.run(None, given)
        plan = self.plan
        graph, options = self._runner.made_of(plan)
        if options.settings.clock is None:
            raise InputError("a frontier needs times\n  to fix: Session(..., tune=True)")
        own = {port.name: port for port in ports if port.name in (inputs or {})}
        arrays = {name: feed_of(given[name], port).values(port.dims) for name, port in own.items()}
        workspace = self._runner.workspace
        return frontier_of(plan, graph, options, workspace, wanted, arrays, runs, progress)

    def close(self) -> None:
        """Free plans, weights and memory; a second call does nothing.

        A run that is under way ends first; no other begins. What the cache is still to get of the
        model is written before this returns, and nothing afterwards: three seconds at most, once
        for a model. Once the interpreter shuts down, the system frees the memory.
        """
        if sys.is_finalizing():  # nothing can be imported any more
            return
        self._runner.close()
        self._backlog.close()

    def __del__(self) -> None:
        """What makes plans and better ones has plans: they go with a session that nobody closes."""
        runner = getattr(self, "_runner", None)
        if runner is not None and not sys.is_finalizing():
            runner.forget()

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
