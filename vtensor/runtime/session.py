"""Session: a network that is ready to run."""

from __future__ import annotations

import logging
import os
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from libdesc.onnx_reference.node import LIBRARY as REFERENCE
from libdesc.preferences import Preferences
from libdesc.registry import registry
from optimizer.pipeline import MEASURED, optimise, pass_names, simplify
from optimizer.settings import Settings
from ptensor.buffer import ArrayStorage
from ptensor.layout import Layout
from resolver.check import check
from resolver.evaluate import resolve
from resolver.extend import extend
from vtensor.errors import (
    InputError,
    NestedRunError,
    SessionClosedError,
    ValuesNeededError,
    VTensorError,
)
from vtensor.frontends.values import LIMIT_ELEMENTS
from vtensor.language.dtype import numpy_dtype
from vtensor.language.graph import Graph
from vtensor.language.sizes import OpenSize, open_names
from vtensor.language.tensor import Option, VTensor
from vtensor.runtime.binding import Binding, bind
from vtensor.runtime.budget import check_plan, max_bytes_of, memory_errors, ran_out
from vtensor.runtime.delivery import Result
from vtensor.runtime.executor import Executor
from vtensor.runtime.feeds import (
    Array,
    Feed,
    Port,
    as_array,
    check_names,
    check_out,
    feed_of,
    noise,
    parse_layouts,
)
from vtensor.runtime.measure import fastest
from vtensor.runtime.plan import Conversion, Plan
from vtensor.runtime.profile import Profile, check_runs, profile_of
from vtensor.runtime.ready import Copies, Key, Ready, Row, copies
from vtensor.runtime.tuning import Tuner
from vtensor.runtime.workspace import Memory, Workspace

if TYPE_CHECKING:
    import onnx

    from vtensor.frontends.onnx import Model

NESTED = (
    "a session makes a plan, and its progress callback runs it with what needs another plan\n"
    "  to fix: give the callback a Session of its own, or run this one after the plan is made"
)

#: What is said where measuring has not helped.
KEPT = "%s: without measured times the plan takes %.2f ms, with them %.2f ms: it stays without"

_log = logging.getLogger(__name__)

#: Plans that a session keeps, the last used ones: each has its own copy of packed weights.
PLANS_KEPT = 8

T = TypeVar("T")
Names = tuple[str, ...]
Progress = Callable[[str], None]


class Session:
    """A network resolved, extended, checked, recorded and ready to run.

    Args:
        model: path of an ONNX file, its bytes, a ModelProto, or a Graph.
        threads: kernel threads; None is every processor that the process may use.
        optimize: a level (``"none"``, ``"lho"``, ``"ewo"``, ``"all"``) or a list of pass names.
        objective: what EWO minimises: ``"shared"``, the bytes that Transforms move, identical ones
            once, or ``"paper"``, the edges whose two ends differ in layout.
        tune: nodes and Transforms are measured, and EWO minimises their time, whatever layouts and
            kernels that takes; where the whole plan is no faster for it, it stays as it would be
            without. Times are kept in the user's cache (``VTENSOR_CACHE_DIR`` names another
            folder), so that nodes are measured once a machine; nothing else should run then.
        input_layouts: how inputs will lie in memory, by name; what the first plan is made for.
        output_layouts: how outputs are to lie, by name; None is C order of the model's dims.
        libraries: the libraries that may be used, in the order in which they are tried; None is
            all, by priority. Where none of them takes a node, NumPy does, and plans mark it.
        pin: the one library for an operator, or for a node, which goes before its operator:
            ``{"Relu": "eigen", "conv1": "numpy"}``. It may be one that is not in ``libraries``. An
            operator's name is always the operator, even if a node has it too.
        reference: nodes whose operators VTensor lacks run on ONNX's reference evaluator, the
            library ``onnx_reference``: slowly, and marked in plans. They are refused where it is
            False, or that library is not among ``libraries``.
        max_bytes: the most memory that a plan's values, packed weights included, and constants
            computed at load may take; None is three quarters of the machine's.
        external_data_root: a folder in which the model's files of external data may lie, links
            among them (a model hub's cache); None is the model's own, which no link may leave.
        progress: called with each node's name while the plan is made. It may not run this session
            with what needs another plan (NestedRunError).

    Raises:
        ModelError: the file is missing, no ONNX, or uses what VTensor does not have.
        NoInvokerError: no library takes a node, or not the one that it is pinned to.
        InputError: an option is wrong; a pin's key is neither an operator nor a node, or its
            library has no invoker of it. Nodes are looked for when the first plan is made.
        BudgetError: more memory would be needed than ``max_bytes``.

    A network whose shapes are all known is planned here, others at the first run. A run with other
    shapes or other entry layouts makes another plan; the last used ones are kept. So does one with
    another value of an input that decides shapes (a Reshape's shape fed as an input).

    >>> from ops import Relu
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
        objective: str = "shared",
        tune: bool = False,
        input_layouts: Mapping[str, Layout | str] | None = None,
        output_layouts: Mapping[str, Layout | str] | None = None,
        libraries: Sequence[str] | None = None,
        pin: Mapping[str, str] | None = None,
        reference: bool = True,
        max_bytes: int | None = None,
        external_data_root: str | os.PathLike[str] | None = None,
        progress: Progress | None = None,
    ) -> None:
        names = pass_names(optimize)  # a wrong level is an error before anything is loaded
        if tune and not (objective == "shared" and MEASURED in names):
            raise InputError(
                f"tune=True (--tune on the command line) needs the pass {MEASURED!r}, and sets the "
                "objective itself"
            )
        if not (progress is None or callable(progress)):
            raise InputError(f"progress={progress!r} must take a node's name, or be None")
        self._workspace = Workspace(Executor.of(threads), max_bytes_of(max_bytes))
        self._executor = self._workspace.executor
        self._optimize = optimize
        self._preferences = Preferences.of(libraries, pin, barred=() if reference else (REFERENCE,))
        self._settings = Settings(objective)
        if tune:
            self._settings = Settings(
                "time", clock=Tuner(self._executor, self._preferences, progress)
            )
        self._progress = progress
        self._closed = False
        self._making = 0  # the process in which a plan is being made
        self._plans: OrderedDict[tuple[Key, Names], Plan] = OrderedDict()
        self._last: Plan | None = None
        self._ready: Ready | None = None
        self._copied: Copies = {}
        self._model, self._graph = _load(
            model,
            self._preferences.allows(REFERENCE),
            self._workspace.max_bytes,
            external_data_root,
        )
        self._inputs, self._outputs = self._ports()
        self._values = tuple(self._graph.values) if self._graph else ()
        self._entry = parse_layouts(input_layouts, self._inputs, "input_layouts")
        self._delivery = parse_layouts(
            output_layouts, self._outputs, "output_layouts", any_too=True
        )
        if self._graph is not None and not self._graph.open_sizes:
            key = tuple(
                (p.name, tuple(s or 0 for s in p.shape), p.dtype, self._entry_layout(p), None)
                for p in self._inputs
            )
            self._here(lambda: self._plan_for(key))

    def _here(self, work: Callable[[], T]) -> T:
        """Run on the executor; a session that was closed meanwhile keeps nothing of it."""
        try:
            return self._executor.run(work)
        finally:
            if self._closed:
                self.close()

    @property
    def inputs(self) -> list[Port]:
        """What a run is given."""
        return list(self._inputs)

    @property
    def outputs(self) -> list[Port]:
        """What a run returns, in order."""
        return list(self._outputs)

    @property
    def values(self) -> list[str]:
        """Names of all values, which a run may be asked for: inputs, constants, what nodes make.

        Those of the graph; of a model whose sizes are symbolic none before its first run.
        """
        return list(self._values)

    @property
    def threads(self) -> int:
        """The budget of kernel threads."""
        return self._executor.threads

    @property
    def plan(self) -> Plan:
        """The plan of the last run, or the one made at construction.

        Raises:
            InputError: the network has symbolic sizes and nothing has run yet.
        """
        self._open()
        if self._last is None:
            raise InputError(
                "there is no plan yet: sizes are symbolic, or values decide them, so the first run "
                "makes it; "
                "or load the model with shapes= (--shape on the command line)"
            )
        return self._last

    @property
    def conversions(self) -> list[Conversion]:
        """What the last run converted, and why: the Transforms of its plan, and copies.

        An input or an output is copied as ``copied`` says.
        """
        return [*self.plan.conversions, *self._copied.values()]

    @property
    def copied(self) -> frozenset[str]:
        """The inputs and outputs that the last run had to copy; any other stayed where it was.

        An input is copied when its memory has gaps, runs backwards, or is not aligned to its
        elements; an output when the array in ``out`` lies otherwise than the plan delivers
        (``output_layouts``) or overlaps an input, or when it is an input's, a constant's or another
        output's memory.
        """
        return frozenset(self._copied)

    @property
    def memory(self) -> Memory:
        """What the session takes for the plan of its last run.

        Raises:
            InputError: there is no plan yet.
        """
        plan = self.plan
        return Memory(
            self._workspace.arena.nbytes,
            plan.placement.nbytes,
            plan.placement.live,
            self._workspace.weights.nbytes,
            sum(plan.own_sizes),
        )

    def run(
        self,
        outputs: Sequence[str] | None,
        inputs: Mapping[str, object],
        *,
        out: Mapping[str, object] | None = None,
    ) -> list[Array]:
        """Run the network.

        Args:
            outputs: names of the outputs wanted, in order; None is all. Any other of ``values`` may
                be asked for as well; each choice of those is planned by itself, so that they cost
                a run nothing that does not ask for them.
            inputs: arrays by name: NumPy's, or anything with ``__dlpack__`` or ``__array__``. A
                dense array is taken as it lies, whatever the order of its axes in memory; so is a
                VTensor, blocks and all, by its names where they are the network's.
            out: where to write outputs, by name: arrays, or VTensors and the like, of any strides.
                The network writes there at once where the array lies as the output is delivered
                and overlaps no input; else it is copied there (``copied`` says which).

        Returns:
            NumPy arrays, one an output: fresh ones, and those of ``out`` where it has one.

        Raises:
            InputError: a name, rank, size or element type is wrong, or ``out`` cannot be written
                to: it is read-only, or overlaps itself or another output; nothing has run.
            NativeError: a library failed.
            BudgetError: a plan for these shapes would need more memory than ``max_bytes``.
            SessionClosedError: after ``close()``.
        """
        ready = self._ready
        if ready is not None and out is None and not self._closed:
            try:
                results = ready.run(outputs, inputs)
            except MemoryError as error:
                raise ran_out(error) from error
            if results is not None:
                self._has_run(ready.plan, {})
                return results
        return [result.array() for result in self._results(outputs, inputs, out)]

    def run_tensors(
        self, outputs: Sequence[str] | None, inputs: Mapping[str, object]
    ) -> list[VTensor]:
        """Run the network on VTensors: none is unpacked on its way in or out.

        Args:
            outputs: as for ``run``.
            inputs: as for ``run``; a VTensor is taken as it lies, blocks and all.

        Returns:
            VTensors in the layouts of ``output_layouts``, where ANY is the producer's own.

        Raises:
            InputError, NativeError, SessionClosedError: as ``run``.
        """
        return [_tensor(result) for result in self._results(outputs, inputs, None)]

    @memory_errors()
    def bind(
        self, inputs: Mapping[str, object], outputs: Mapping[str, object] | None = None
    ) -> Binding:
        """Fix where inputs and outputs lie, so that each run is one replay on that memory.

        Args:
            inputs: arrays or VTensors by name, or what has ``__dlpack__``: each run reads what they
                hold then.
            outputs: where to write outputs, as ``out`` of ``run``; arrays are made for others.

        Returns:
            What runs: ``binding.run()``, then ``binding.outputs["y"]``. Copies that are needed show
            in its ``copies``, and after a run in ``conversions``.

        Raises:
            InputError: as ``run``; or an input has no memory to be read, or decides shapes.
            BudgetError, SessionClosedError: as ``run``.

        >>> from ops import Relu
        >>> g = Graph("tiny")
        >>> g.output(g.add(Relu(), g.input("x", {"N": 1, "C": 2})), "y")
        >>> x = np.array([[-1, 2]], np.float32)
        >>> with Session(g, libraries=["numpy"]) as session:
        ...     binding = session.bind({"x": x})
        ...     for value in (3, 4):
        ...         x[0, 1] = value
        ...         binding.run()
        ...         print(binding.outputs["y"])
        [[0. 3.]]
        [[0. 4.]]
        """
        self._open()
        check_names(inputs, self._inputs)
        feeds = {port.name: self._memory_of(inputs[port.name], port) for port in self._inputs}
        wanted = [port.name for port in self._outputs]
        into = check_out(outputs, self._outputs, wanted)
        plan, _ = self._here(lambda: self._plan_of(feeds, wanted))
        plan.check_out(into)
        return bind(plan, feeds, wanted, into, self._entered)

    def _memory_of(self, given: object, port: Port) -> Feed:
        """An input as ``bind`` takes it: what it is given is memory, or is refused."""
        if not isinstance(given, VTensor):
            given = as_array(f"input {port.name!r}", given, written=True)
        return feed_of(given, port)

    def _entered(self, binding: Binding) -> None:
        """A binding is about to run."""
        self._open()
        self._has_run(binding.plan, dict(binding.copies))

    def _has_run(self, plan: Plan, copied: Copies) -> None:
        """Keep what there is to say of a run; nothing if the session was closed meanwhile."""
        self._last, self._copied = plan, copied
        if self._closed:
            self.close()

    @memory_errors()
    def _results(
        self,
        outputs: Sequence[str] | None,
        inputs: Mapping[str, object],
        out: Mapping[str, object] | None,
        times: Array | None = None,
    ) -> list[Result]:
        self._open()
        wanted = self._wanted(outputs)
        check_names(inputs, self._inputs)
        feeds = {port.name: feed_of(inputs[port.name], port) for port in self._inputs}
        into = check_out(out, self._outputs, wanted)
        return self._here(lambda: self._run(feeds, wanted, into, times))

    @memory_errors()
    def profile(self, inputs: Mapping[str, object] | None = None, *, runs: int = 20) -> Profile:
        """Run the network some times and say where the time of a run goes.

        Args:
            inputs: as for ``run``; what is missing, or all, is seeded random numbers.
            runs: how often, after a first run that is not counted; at least 1.

        Raises:
            InputError: ``runs`` is no such number, an input is wrong, or one of open sizes missing.
            NativeError, BudgetError, SessionClosedError: as ``run``.
        """
        check_runs(runs)
        given = noise(self._inputs, inputs or {})
        self._results(None, given, None)

        def run(times: Array) -> None:
            if self._ready is None or self._ready.run(None, given, times) is None:
                self._results(None, given, None, times)

        return profile_of(self.plan, self.threads, run, runs)

    def close(self) -> None:
        """Let go of plans, weights and memory; a second call does nothing.

        A run that is under way ends, and then lets go of them; no other begins.
        """
        self._closed = True
        self._plans = OrderedDict()  # a plan may just be looked up in the old ones
        self._workspace = Workspace(self._executor, self._workspace.max_bytes)
        self._ready = None
        self._last = None
        self._model = None
        self._graph = None

    def __enter__(self) -> Session:
        self._open()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _run(
        self,
        feeds: Mapping[str, Feed],
        wanted: Sequence[str],
        into: Mapping[str, Array],
        times: Array | None = None,
    ) -> list[Result]:
        self._open()  # it may have been closed while this run was queued
        plan, key = self._plan_of(feeds, wanted)
        fed = {row[0]: feeds[row[0]].part for row in key if row[4] is None}
        plan.check_out(into)
        results = plan.run(fed, wanted, into, times=times)
        self._copied = copies(feeds, results)
        every = list(wanted) == [port.name for port in self._outputs]
        self._ready = Ready.of(plan, key, wanted, every)
        return results

    def _plan_of(self, feeds: Mapping[str, Feed], wanted: Sequence[str]) -> tuple[Plan, Key]:
        """The plan for what is given and wanted, and its key."""
        deciding: tuple[str, ...] = ()
        model, known = self._model, {port.name for port in self._outputs}
        inner = tuple(dict.fromkeys(name for name in wanted if name not in known))
        while True:
            key = tuple(self._row(port, feeds[port.name]) for port in self._inputs)
            try:
                return self._plan_for(key, inner), key
            except ValuesNeededError:
                if model is None or model.deciding == deciding:
                    raise
                deciding = model.deciding

    def _row(self, port: Port, feed: Feed) -> Row:
        """An input's part of the key: its bytes too, if its value decides shapes."""
        sizes, layout, expected = feed.part.extents, feed.part.layout, self._entry_layout(port)
        shape = tuple(sizes[dim] for dim in port.dims)
        model = self._model
        if model is None or port.name not in model.deciding:
            same = expected.same(layout, sizes)
            return port.name, shape, port.dtype, expected if same else layout, None
        values = feed.values(port.dims)
        if values.size > LIMIT_ELEMENTS:
            raise InputError(
                f"input {port.name!r}: its value decides shapes, and {values.size} "
                f"elements were given; {LIMIT_ELEMENTS} are the most"
            )
        return port.name, shape, port.dtype, Layout.plain(port.dims), values.tobytes()

    def _plan_for(self, key: Key, inner: Names = ()) -> Plan:
        plans = self._plans
        plan = plans.get((key, inner))
        if plan is not None:
            plans.move_to_end((key, inner))
        if plan is None:
            plan = plans[key, inner] = self._make(key, inner)
            if len(plans) > PLANS_KEPT:
                plans.popitem(last=False)
        self._last = plan
        return plan

    def _make(self, key: Key, inner: Names) -> Plan:
        """A plan, made once at a time: ``progress`` may not ask for another one."""
        if self._making == os.getpid():  # a forked child has none of its parent's threads
            raise NestedRunError(NESTED)
        self._making = os.getpid()
        try:
            return self._made(key, inner)
        finally:
            self._making = 0

    def _made(self, key: Key, inner: Names) -> Plan:
        graph, model = self._graph, self._model
        self._open()  # so that one of them is there
        if graph is None:
            assert model is not None, "an open session has a model or a graph"
            graph = model.graph({row[0]: row[1] for row in key}, _values(key))
        elif graph.open_sizes:
            graph = graph.with_sizes(_decided(graph, key))
        self._values = tuple(graph.values)
        if inner:
            self._check_values(inner)
            graph = graph.delivering(inner)
        graph = simplify(graph, self._optimize, self._preferences)
        entry = {name: layout for name, _, _, layout, value in key if value is None}
        resolved = extend(
            resolve(graph, entry, self._preferences), self._delivery, self._preferences
        )
        able = [library.name for library in registry().libraries.values() if library.transforms]

        def plan(settings: Settings) -> Plan:
            extended = optimise(resolved, self._optimize, settings)
            check(extended, graph, able, entry, self._delivery)
            check_plan(extended, self._workspace.max_bytes)
            return Plan(
                extended,
                graph.constants,
                self._workspace,
                self._progress,
                self._preferences,
                resolved,
            )

        made = plan(self._settings)
        if self._settings.clock is None:
            return made
        untuned = plan(Settings())
        try:
            best, (tuned, plain) = fastest([made, untuned])
        except VTensorError as error:
            _log.warning("%s: plans cannot be timed, so it stays without: %s", graph.name, error)
            return untuned
        if best is not made:
            _log.warning(KEPT, graph.name, plain / 1e6, tuned / 1e6)
        return best

    def _ports(self) -> tuple[list[Port], list[Port]]:
        if self._graph is None:
            assert self._model is not None
            return self._model.ports()
        values = self._graph.values
        return (
            [_port(name, values[name]) for name in self._graph.inputs],
            [_port(alias, values[name]) for alias, name in self._graph.outputs.items()],
        )

    def _entry_layout(self, port: Port) -> Layout:
        return self._entry.get(port.name, Layout.plain(port.dims))

    def _wanted(self, outputs: Sequence[str] | None) -> list[str]:
        known = [port.name for port in self._outputs]
        if outputs is None:
            return known
        if isinstance(outputs, str):
            raise InputError(f"outputs are given as a list of names: [{outputs!r}]")
        if not isinstance(outputs, Iterable):
            raise InputError(f"outputs={outputs!r} is no list of names; outputs are {known}")
        wanted = list(outputs)
        self._check_values(wanted)
        return wanted

    def _check_values(self, wanted: Sequence[object]) -> None:
        """See that there are values of these names; any may be where none are known yet.

        Raises:
            InputError: there is none of such a name.
        """
        known, values = [port.name for port in self._outputs], self._values
        have = {*known, *values}
        unknown = [str(n) for n in wanted if not isinstance(n, str) or (values and n not in have)]
        if unknown:
            text = f"no output {', '.join(unknown)}; outputs are {', '.join(known)}"
            raise InputError(f"{text}, and session.values lists what else can be asked for")

    def _open(self) -> None:
        if self._closed:
            raise SessionClosedError("this session is closed: make a new one")


def _values(key: Key) -> dict[str, Array]:
    """The values that a key holds, as arrays."""
    return {
        name: np.frombuffer(value, numpy_dtype(dtype)).reshape(shape)
        for name, shape, dtype, _, value in key
        if value is not None
    }


def _tensor(result: Result) -> VTensor:
    """An output as a VTensor on its memory."""
    part = result.part
    tensor = VTensor(result.dtype, part.extents, Option(name=result.name))
    tensor.storage = ArrayStorage(part.array, part.extents, part.layout)
    return tensor


def _port(name: str, value: Any) -> Port:
    sizes = (None if isinstance(size, OpenSize) else size for size in value.dims.values())
    return Port(name, value.dtype, tuple(sizes), tuple(value.dims))


def _decided(graph: Graph, key: Key) -> dict[str, int]:
    """The open sizes of a graph, from the shapes of its inputs.

    Raises:
        InputError: two inputs bring different sizes for one name; names both.
    """
    found: dict[str, tuple[int, str]] = {}
    for name, shape, *_ in key:
        for declared, size in zip(graph.values[name].dims.values(), shape, strict=True):
            for unknown in open_names([declared]):
                have, by = found.setdefault(unknown, (size, name))
                if have != size:
                    raise InputError(f"{unknown} is {have} in input {by!r} and {size} in {name!r}")
    return {unknown: size for unknown, (size, _) in found.items()}


def _load(
    model: str | os.PathLike[str] | bytes | onnx.ModelProto | Graph,
    reference: bool,
    max_bytes: int,
    external_data_root: str | os.PathLike[str] | None,
) -> tuple[Model | None, Graph | None]:
    """A model that is still to be given sizes, or a graph whose sizes are known."""
    if isinstance(model, Graph):
        return None, model if model.sealed else model.seal()
    from vtensor.frontends.onnx import Model

    loaded = Model(model, reference, max_bytes=max_bytes, external_data_root=external_data_root)
    if loaded.stored:
        return None, loaded.stored
    with suppress(ValuesNeededError):  # then plans are made by runs, which give the values
        return (None, loaded.graph({})) if loaded.static else (loaded, None)
    return loaded, None
