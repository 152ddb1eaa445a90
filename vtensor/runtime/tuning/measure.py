"""The time of a node or Transform on this machine, measured alone on memory of its own.

Operands are in the caches, as if the node before had just written them. So are constants, except
those larger than a core's own cache when a plan is tuned: in a run of the whole network, other
constants are read in between.

Plans are made on the calling thread; each measurement is short and queues like a run. In background
work each run of a measurement queues by itself.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from libdesc.preferences import Preferences
from libdesc.transforms import LayoutChange, choose_library
from ptensor.background_work import checkpoint, nobody_waits
from ptensor.buffer import TensorStorage, fresh_pages
from resolver.choice import ChoiceRefused
from resolver.evaluate import PartialEvaluation
from resolver.lowered import LoweredGraph, OpNode, Reason, TransformNode, Value
from vtensor.errors import ContractError
from vtensor.language.operators import info_of
from vtensor.language.process.interrupts import ignored
from vtensor.language.tensor import Storage, VTensor
from vtensor.runtime.execution.executor import Executor
from vtensor.runtime.execution.plan import Plan
from vtensor.runtime.recording.on_numbers import plan_on_numbers
from vtensor.runtime.recording.workspace import Workspace
from vtensor.runtime.tuning.peaks import copying
from vtensor.storage.budget import max_bytes_of
from vtensor.storage.inputs import Array

#: The generated name of a dim that the model does not name; it does not affect a node's time.
GENERATED_DIM = re.compile(r"\bD\d+\b")

#: Numbers of runs of a measurement: the least, the least by default, and the most. A long
#: measurement has many runs: while another process uses a core, most runs wait for it, but hardly
#: all of them.
MIN_RUNS, DEFAULT_RUNS, MAX_RUNS = 3, 5, 100

#: If the first run takes more than this many times ``most_seconds``, it is the only one. The first
#: run may take longer than later ones, since its memory is new.
FIRST_RUN_FACTOR = 4

#: The share by which a run must be faster than the fastest run before it to count as faster.
NO_GAIN = 0.01

#: A constant of at least this many bytes is taken to be read from memory, not from a cache, in each
#: run of a network. A measurement with ``cold`` displaces it from the caches before each run.
COLD_BYTES = 1 << 19

#: The bytes that a copy reads and writes to displace all other memory from the caches.
SWEEP_BYTES = 1 << 26

#: The share of a run for which its threads may have waited for processors. If they waited longer,
#: the run is repeated, at most ``RETRIES`` times.
MAX_WAIT_SHARE, RETRIES = 0.1, 6

#: Linux's folder of the process's threads, whose ``schedstat`` has the wait for processors.
TASKS_FOLDER = Path("/proc/self/task")

#: Turns of a comparison of whole plans: at least ``MIN_TURNS``, then more until ``TURN_SECONDS``
#: have passed, at most ``MOST_TURNS``. The first turn does not count. Many turns make it likely
#: that other processes leave one undisturbed.
MIN_TURNS, MOST_TURNS, TURN_SECONDS = 10, 30, 2.0

#: The largest difference of two plans that count as equally fast, as a share of a run.
ALIKE = 0.02


class Effort(NamedTuple):
    """The settings of a measurement, which runs a node several times.

    The fastest run counts, because other processes can only add time.

    Attributes:
        seconds: the measurement ends after this time, but not before ``least`` runs.
        least: the least number of runs.
        most_seconds: a run that takes longer than this ends the measurement.
        cold: True if large constants must not be in the caches at the begin of a run.
        steady: the measurement ends after this number of consecutive runs none of which was faster
            than the best before.
    """

    seconds: float = 0.02
    least: int = DEFAULT_RUNS
    most_seconds: float = math.inf
    cold: bool = False
    steady: int = MAX_RUNS


#: Settings of measurements: in warm caches; for tuning, with large constants not in the caches;
#: short ones for a plan that is made at once; and those between runs.
WARM, TUNING = Effort(), Effort(cold=True)
GLANCE, BETWEEN = Effort(0.001, MIN_RUNS, 0.02, steady=DEFAULT_RUNS), Effort(0.01, MIN_RUNS)


def _ignore(seconds: float) -> None:
    """Ignore the seconds that runs took."""


def node_ns(
    node: OpNode,
    values: Mapping[str, VTensor],
    executor: Executor,
    effort: Effort = WARM,
    spent: Callable[[float], None] = _ignore,
    between: Executor | None = None,
) -> int:
    """Return the time of a node in its variant, in nanoseconds.

    Its inputs hold ones; its constants have their own values.

    Args:
        node: the node in its variant.
        values: the values that the node reads and writes, by name.
        executor: the executor that runs the node.
        effort: the settings of the measurement.
        spent: called with the seconds that all runs took together. Packing constants is not
            counted.
        between: in background work, an executor: all runs of the measurement take one turn in its
            queue. None queues each run by itself on ``executor``.

    Raises:
        VTensorError: the node's library fails.
    """
    return run_ns(*alone([node], values), executor, effort, spent, between)


def transform_ns(
    value: VTensor, change: LayoutChange, preferences: Preferences, executor: Executor
) -> int:
    """Return the nanoseconds of a Transform on the first library that can run it.

    Args:
        value: the type and dims of the value.
        change: the layouts before and after the Transform.
        preferences: the libraries that may run the Transform.
        executor: the executor that measures.

    Raises:
        ContractError: no library can run it.
        VTensorError: the library fails.
    """
    library = choose_library(value, change, (), PartialEvaluation(), preferences)
    node = TransformNode("t", "x", "y", library, Reason("y", "x"))
    ends = {"x": change.source, "y": change.target}
    values = {name: Value(name, value.dtype, value.dims, at) for name, at in ends.items()}
    return run_ns(LoweredGraph("t", values, [node], ("x",), {"y": "y"}), {}, executor)


def signature(node: OpNode, values: Mapping[str, VTensor]) -> tuple[str, str]:
    """Return two texts on which the time of a node depends: its call and its way.

    The call names the library, the operators, sizes, element types, and operands that are the same
    value. The way names the layouts and the kernel; all layouts in which a node does the same work
    have the same way, so that noise of a measurement prefers none of them.

    Args:
        node: the node in its variant.
        values: the values that the node reads and writes, by name.
    """
    names = (*node.inputs, *node.outputs)
    operands = [values[name] for name in names]
    rows = (
        f"{t.summary()}{' constant' if t.constant else ''}{_as_before(place, names)}"
        for place, t in enumerate(operands)
    )
    ops = [node.op, *(follower.op for follower in node.followers)]
    call = f"{node.variant.library} {' '.join(map(repr, ops))}: {', '.join(rows)}"
    layouts = ["any order"] if _flat(node, operands) else map(str, node.variant.layouts)
    way = " ".join([*layouts, node.variant.kernel]).strip()
    first, _, second = numbered(f"{call}\n{way}").partition("\n")
    return first, second


def _as_before(place: int, names: Sequence[str]) -> str:
    """Return a text that says which operand before is the same value; empty if none is."""
    first = names.index(names[place])
    return f" as operand {first}" if first < place else ""


def _flat(node: OpNode, operands: Sequence[VTensor]) -> bool:
    """Return whether a node only goes over memory from its begin to its end: it is element-wise,
    and operands other than single elements have the same dims and one layout without pads.
    """
    ops = (node.op, *(follower.op for follower in node.followers))
    if not all(info_of(op).elementwise for op in ops):
        return False
    pairs = zip(operands, node.variant.layouts, strict=True)
    full = [(tensor, layout) for tensor, layout in pairs if tensor.num_elements > 1]
    return len({(layout, frozenset(tensor.dims.items())) for tensor, layout in full}) == 1 and all(
        layout.num_elements(tensor.dims) == tensor.num_elements for tensor, layout in full
    )


def numbered(text: str) -> str:
    """Return a text whose generated dim names are numbered from 0 on, in order of appearance.

    >>> numbered("MatMul(over='D12'): f32 N=1 D12=64, f32 D12=64 D7=9")
    "MatMul(over='D0'): f32 N=1 D0=64, f32 D0=64 D1=9"
    """
    new_names = {
        name: f"D{place}" for place, name in enumerate(dict.fromkeys(GENERATED_DIM.findall(text)))
    }
    return GENERATED_DIM.sub(lambda match: new_names[match[0]], text)


def alone(
    nodes: Iterable[OpNode], values: Mapping[str, VTensor]
) -> tuple[LoweredGraph, dict[str, Array]]:
    """Return a lowered graph in which no node reads the result of another, and its constants by
    name.

    Each node gets inputs of its own, in the layouts that its variant wants. A value that it reads
    twice in one layout is one input: a kernel may do less work then.

    Args:
        nodes: the nodes in their variants.
        values: the values that the nodes read and write, by name.
    """
    own_values, own_nodes, constants = dict[str, Value](), list[OpNode](), dict[str, Array]()
    names: list[str] = []
    for node in nodes:
        reads = [*zip(node.inputs, node.variant.layouts, strict=False)]
        inputs = tuple(f"{node.name}/{reads.index(read)}" for read in reads)
        node_names, graph_names = (*inputs, *node.outputs), (*node.inputs, *node.outputs)
        for name, source, layout in zip(node_names, graph_names, node.variant.layouts, strict=True):
            value = values[source]
            own_values[name] = Value(name, value.dtype, value.dims, layout, value.constant)
            if value.storage is not None and value.constant:
                constants[name] = _read(value.storage, value)
        own_nodes.append(replace(node, inputs=inputs))
        names += [name for name in dict.fromkeys(inputs) if name not in constants]
    outputs = {name: name for node in own_nodes for name in node.outputs}
    return LoweredGraph("alone", own_values, own_nodes, tuple(names), outputs), constants


def _read(storage: Storage, value: VTensor) -> Array:
    """Return the elements of the constant ``value``, which ``storage`` holds.

    If they were not read before, the array of ``storage`` is released again afterwards.
    """
    if isinstance(storage, TensorStorage) and storage.untouched:
        array = storage.logical(value)
        storage.root.release()
        return array
    return storage.logical(value)


def run_ns(
    graph: LoweredGraph,
    constants: Mapping[str, Array],
    executor: Executor,
    effort: Effort = WARM,
    spent: Callable[[float], None] = _ignore,
    between: Executor | None = None,
) -> int:
    """Return the nanoseconds of a run of a lowered graph whose inputs hold ones.

    Args:
        graph, constants: the graph, and its constants by name.
        executor, effort, spent, between: the arguments of ``node_ns``.

    Raises:
        ContractError: a library declines its variant.
    """

    def make() -> tuple[Plan, Sequence[Array], Callable[[], None] | None]:
        workspace = Workspace(executor, _budget())
        try:  # libraries may decline variants chosen for more threads
            plan = plan_on_numbers(graph, constants, workspace, confirming=True)
        except ChoiceRefused as why:
            raise ContractError(str(why)) from why
        memory = _memory(plan)
        packed = max((graph.values[name].nbytes for name in constants), default=0)
        cold = effort.cold and packed >= COLD_BYTES
        return plan, memory, _sweep(memory, executor.threads) if cold else None

    plan, memory, before = executor.planning(make)
    steps = len(plan.recorded)
    run, begin = partial(plan.replay, memory), time.monotonic()
    try:
        if between is not None and nobody_waits():
            look = partial(least_ns, run, steps, effort, before)
            return (
                executor.run(look)
                if between is executor
                else between.run(partial(executor.run, look))
            )
        if nobody_waits():
            sweep = before and partial(executor.run, before)
            return least_ns(lambda times: executor.run(partial(run, times)), steps, effort, sweep)
        return executor.run(lambda: least_ns(run, steps, effort, before))
    finally:
        spent(time.monotonic() - begin)


@cache
def _budget() -> int:
    """Return the memory limit of a measurement, in bytes.

    It is cached: computing it takes as long as a short measurement.
    """
    return max_bytes_of(None)


def _sweep(memory: Sequence[Array], threads: int) -> Callable[[], None]:
    """Return a function that displaces all memory except ``memory`` from the caches.

    The function must be called on the thread that runs steps. All threads of the team copy, because
    each has a cache of its own. Afterwards the threads stay awake, each on its own processor, until
    the step begins. Otherwise a sleeping thread may be woken on the processor of another one, and a
    step whose two threads share a processor takes twice its time.

    Args:
        memory: the arrays that are in the caches afterwards.
        threads: the number of kernel threads.
    """
    from vtensor.runtime import _replay

    copy = copying(SWEEP_BYTES // 2)

    def sweep() -> None:
        _replay.share_processors(False, threads)
        copy()
        for array in memory:
            array.max(initial=0)

    return sweep


def fastest(plans: Sequence[Plan], executor: Executor) -> tuple[Plan, list[int]]:
    """Return the fastest plan, and the time of a run of each plan in nanoseconds. The plans run in
    turns.

    Of plans that are equally fast, the first is returned. Whole plans are compared because the sum
    of the steps' times may mislead: a step that is measured alone has its operands in the caches,
    unlike in a run.
    """
    runs = [partial(plan.replay, _memory(plan)) for plan in plans]
    times_ns = in_turns(runs, executor, MIN_TURNS, TURN_SECONDS)
    # The time of a run above the least is due to other processes.
    least_ns_each = [min(times[1:]) for times in times_ns]
    least = min(least_ns_each)
    alike = least * (1 + ALIKE)
    best = next(plan for plan, ns in zip(plans, least_ns_each, strict=True) if ns <= alike)
    return best, least_ns_each


def in_turns(
    runs: Sequence[Callable[[], object]], executor: Executor, turns: int, seconds: float = 0.0
) -> list[list[int]]:
    """Run functions in turns, and return for each function the nanoseconds that it took in each
    turn.

    There are at least ``turns`` turns. Further turns begin until ``seconds`` have passed, up to
    ``MOST_TURNS`` in all. In a turn each function is called twice, and the second call counts,
    because the first finds the caches filled by another function.

    Args:
        runs: functions that run a plan.
        executor: calls the functions on its thread.
        turns: the least number of turns.
        seconds: the time during which further turns begin.
    """
    times_ns: list[list[int]] = [[] for _ in runs]
    end = time.monotonic() + seconds
    while len(times_ns[0]) < turns or (len(times_ns[0]) < MOST_TURNS and time.monotonic() < end):
        checkpoint()
        for run, times in zip(runs, times_ns, strict=True):
            executor.run(partial(_run_ns, run))
            times.append(executor.run(partial(_run_ns, run)))
    return times_ns


def _run_ns(run: Callable[[], object]) -> int:
    begin = time.perf_counter_ns()
    run()
    return time.perf_counter_ns() - begin


def _memory(plan: Plan) -> list[Array]:
    """Return the arrays that a run of a plan binds: inputs of ones, then memory for outputs."""
    values = plan.graph.values
    return [*(_ones(values[name]) for name in plan.graph.inputs), *map(fresh_pages, plan.own_sizes)]


def _ones(value: Value) -> Array:
    """Return memory for a value, filled with ones; with zeros if what it stores are integers, or
    several planes.
    """
    stored, memory = value.layout.stored(value.dtype), fresh_pages(value.nbytes)
    if stored.rest is not None:
        memory.fill(0)
    else:
        memory.view(stored.numpy).fill(stored.numpy.kind not in "iub")
    return memory


def least_ns(
    run: Callable[[Array], object],
    steps: int,
    effort: Effort = WARM,
    before: Callable[[], None] | None = None,
) -> int:
    """Run steps several times; return the least time in nanoseconds from the begin of the first
    step to the end of the last.

    Args:
        run: runs ``steps`` steps once and writes the begin and end of each, in nanoseconds, to its
            argument. Its first run does not count, except if it takes more than
            ``FIRST_RUN_FACTOR`` times ``effort.most_seconds``; it is then the only run.
        steps: the number of steps; 0 takes no time.
        effort: the settings of the measurement.
        before: called before each run but the first. None calls nothing, so that runs follow one
            another and threads stay on their processors.
    """
    if not steps:
        return 0
    times, runs_ns, retries = np.zeros((steps, 2), np.int64), list[int](), RETRIES
    run(times)
    first = int(times[-1, 1] - times[0, 0])
    if first > FIRST_RUN_FACTOR * effort.most_seconds * 1e9:
        return first
    end, alike = time.monotonic() + effort.seconds, 0
    while len(runs_ns) < effort.least or (
        len(runs_ns) < MAX_RUNS and alike < effort.steady and time.monotonic() < end
    ):
        waited = 0
        if before is not None:
            before()
            waited = _waited_ns()
        run(times)
        ns = int(times[-1, 1] - times[0, 0])
        if before is not None and retries and _waited_ns() - waited > ns * MAX_WAIT_SHARE:
            retries -= 1
            continue
        alike = alike + 1 if runs_ns and ns >= min(runs_ns) * (1 - NO_GAIN) else 0
        runs_ns.append(ns)
        if ns > effort.most_seconds * 1e9:
            break
    return min(runs_ns)


def _waited_ns() -> int:
    """Return the total time that this process's threads have waited for processors, in nanoseconds.

    It is 0 if the system does not tell.
    """
    total = 0
    for file in TASKS_FOLDER.glob("*/schedstat"):
        with ignored(OSError):  # a thread has ended meanwhile
            total += int(file.read_text().split()[1])
    return total
