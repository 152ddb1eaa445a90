"""How long a node or a Transform takes here: alone, on memory of its own.

What it reads is in the caches, as the node before has just written it there. Constants are too,
but for those that are larger than a core's own cache where a plan is tuned: in a run of the whole
network, all others are read in between.

Plans are made on the calling thread; each measurement queues as a run does, and is short. In the
background each run of it queues by itself.
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
from vtensor.language.dtype import numpy_dtype
from vtensor.language.interrupts import ignored
from vtensor.language.tensor import Storage, VTensor
from vtensor.runtime.execution.executor import Executor
from vtensor.runtime.execution.plan import Plan
from vtensor.runtime.recording.on_numbers import plan_on_numbers
from vtensor.runtime.recording.workspace import Workspace
from vtensor.runtime.tuning.peaks import copying
from vtensor.storage.budget import max_bytes_of
from vtensor.storage.inputs import Array

#: A name of a dim that nobody gave: it says nothing of what a node takes.
MADE_UP = re.compile(r"\bD\d+\b")

#: A measurement has at least so many runs, and at most so many. One that takes its time has more:
#: where another process takes a core, most runs wait for it, and all should not.
LEAST, OFTEN, MOST = 3, 5, 100

#: How much longer the first run may take than those behind it, for which its memory is new.
FIRST = 4

#: A run is no faster than another if it spares less than this part of it.
SAME = 0.01

#: Constants of so many bytes are read from memory at each run of a network, so they are here.
LARGE = 1 << 19

#: Bytes that are read and written so that nothing else is left in the caches.
SWEPT = 1 << 26

#: A run counts where threads waited for processors for less than this part of it; else it is taken
#: again, so often at most.
WAITED, RETRIES = 0.1, 6

#: Where Linux says how long each thread of this process has waited for a processor.
SCHEDULED = Path("/proc/self/task")

#: How often whole plans are run that are compared, the first not counting: so often at least, and
#: at most; and for how many seconds, once it was the least. What else runs on the machine takes its
#: time from one of them.
TURNS, MOST_TURNS, TURN_SECONDS = 10, 30, 2.0

#: Plans that differ by less than this part of a run count as alike.
ALIKE = 0.02


class Effort(NamedTuple):
    """How a measurement is taken.

    The least time of its runs counts: what else runs on the machine only adds to it.

    Attributes:
        seconds: after which it ends, once it has its least number of runs.
        least: this number.
        most_seconds: a run that takes longer is not repeated.
        cold: large constants are not in the caches.
        steady: after so many runs in a row of which none was faster, it ends.
    """

    seconds: float = 0.02
    least: int = OFTEN
    most_seconds: float = math.inf
    cold: bool = False
    steady: int = MOST


#: In warm caches; for what is to be chosen well, for what is looked at in passing, and for what is
#: measured between runs.
WARM, TUNING = Effort(), Effort(cold=True)
GLANCE, BETWEEN = Effort(0.001, LEAST, 0.02, steady=OFTEN), Effort(0.01, LEAST)


def _unheard(seconds: float) -> None:
    """Nobody wants to know."""


def node_ns(
    node: OpNode,
    values: Mapping[str, VTensor],
    executor: Executor,
    effort: Effort = WARM,
    spent: Callable[[float], None] = _unheard,
    between: Executor | None = None,
) -> int:
    """Nanoseconds of a node as it is decided; constants have their values, inputs hold ones.

    Args:
        node: in its variant.
        values: what it reads and makes.
        executor: where it runs.
        effort: how it is measured.
        spent: is told the seconds that all its runs took; packing constants is no run.
        between: where nobody waits for it, all its runs take place between two runs there; None is
            each of them between two runs of the executor.

    Raises:
        VTensorError: its library fails.
    """
    return run_ns(*alone([node], values), executor, effort, spent, between)


def transform_ns(
    value: VTensor, change: LayoutChange, preferences: Preferences, executor: Executor
) -> int:
    """Nanoseconds of a Transform, on the first library that is able to.

    Raises:
        ContractError: none is.
        VTensorError: the library fails.
    """
    library = choose_library(value, change, (), PartialEvaluation(), preferences)
    node = TransformNode("t", "x", "y", library, Reason("y", "x"))
    ends = {"x": change.source, "y": change.target}
    values = {name: Value(name, value.dtype, value.dims, at) for name, at in ends.items()}
    return run_ns(LoweredGraph("t", values, [node], ("x",), {"y": "y"}), {}, executor)


def signature(node: OpNode, values: Mapping[str, VTensor]) -> tuple[str, str]:
    """What nodes that take the same time have in common: the call, and the way it is made.

    The call is library, operators, sizes and element types; the way is layouts and kernel.
    """
    operands = (values[name] for name in (*node.inputs, *node.outputs))
    rows = (f"{t.summary()}{' constant' if t.constant else ''}" for t in operands)
    ops = [node.op, *(follower.op for follower in node.followers)]
    call = f"{node.variant.library} {' '.join(map(repr, ops))}: {', '.join(rows)}"
    way = " ".join([*map(str, node.variant.layouts), node.variant.kernel]).strip()
    first, _, second = numbered(f"{call}\n{way}").partition("\n")
    return first, second


def numbered(text: str) -> str:
    """A text whose made-up names of dims are numbered from 0 on, in the order in which they come.

    >>> numbered("MatMul(over='D12'): f32 N=1 D12=64, f32 D12=64 D7=9")
    "MatMul(over='D0'): f32 N=1 D0=64, f32 D0=64 D1=9"
    """
    found = {name: f"D{place}" for place, name in enumerate(dict.fromkeys(MADE_UP.findall(text)))}
    return MADE_UP.sub(lambda match: found[match[0]], text)


def alone(
    nodes: Iterable[OpNode], values: Mapping[str, VTensor]
) -> tuple[LoweredGraph, dict[str, Array]]:
    """A graph of nodes that have nothing to do with one another, and its constants.

    Each has inputs of its own, in the layouts in which it wants them.
    """
    own_values, own_nodes, constants = dict[str, Value](), list[OpNode](), dict[str, Array]()
    names: list[str] = []
    for node in nodes:
        inputs = tuple(f"{node.name}/{place}" for place in range(len(node.inputs)))
        own, given = (*inputs, *node.outputs), (*node.inputs, *node.outputs)
        for name, source, layout in zip(own, given, node.variant.layouts, strict=True):
            value = values[source]
            own_values[name] = Value(name, value.dtype, value.dims, layout, value.constant)
            if value.storage is not None and value.constant:
                constants[name] = _read(value.storage, value)
        own_nodes.append(replace(node, inputs=inputs))
        names += [name for name in inputs if name not in constants]
    outputs = {name: name for node in own_nodes for name in node.outputs}
    return LoweredGraph("alone", own_values, own_nodes, tuple(names), outputs), constants


def _read(storage: Storage, value: VTensor) -> Array:
    """A constant's values, which do not stay in memory for what is only measured."""
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
    spent: Callable[[float], None] = _unheard,
    between: Executor | None = None,
) -> int:
    """Nanoseconds of a run of a graph whose inputs hold ones; see ``node_ns``.

    Raises:
        ContractError: a library does not take what was chosen.
    """

    def make() -> tuple[Plan, Sequence[Array], Callable[[], None] | None]:
        workspace = Workspace(executor, _budget())
        try:  # chosen for other threads, it may run on reference code alone, or not at all
            plan = plan_on_numbers(graph, constants, workspace, confirming=True)
        except ChoiceRefused as why:
            raise ContractError(str(why)) from why
        memory = _memory(plan)
        packed = max((graph.values[name].nbytes for name in constants), default=0)
        cold = effort.cold and packed >= LARGE
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
    """What a measurement may take: looked up once, for it takes as long as a short measurement."""
    return max_bytes_of(None)


def _sweep(memory: Sequence[Array], threads: int) -> Callable[[], None]:
    """What leaves in the caches nothing but this memory; to be called where steps run.

    The team copies: each of its threads has a cache of its own. And each is awake then, on a
    processor of its own, and does not sleep until the step begins. One that has slept may be woken
    on the processor of another, and a step that both share there takes twice its time.
    """
    from vtensor.runtime import _replay

    copy = copying(SWEPT // 2)

    def sweep() -> None:
        _replay.share_processors(False, threads)
        copy()
        for one in memory:
            one.max(initial=0)

    return sweep


def fastest(plans: Sequence[Plan], executor: Executor) -> tuple[Plan, list[int]]:
    """The plan whose runs take the least, with all of them in turns; and what a run of each takes.

    Of plans that are alike it is the first: a step alone has a warm cache, which a run has not, so
    that steps that were chosen alone may not add up to the best plan.
    """
    runs = [partial(plan.replay, _memory(plan)) for plan in plans]
    found = in_turns(runs, executor, TURNS, TURN_SECONDS)
    took = [min(times[1:]) for times in found]  # as of steps: the rest is other processes' time
    least = min(took)
    alike = least * (1 + ALIKE)
    return next(plan for plan, ns in zip(plans, took, strict=True) if ns <= alike), took


def in_turns(
    runs: Sequence[Callable[[], object]], executor: Executor, turns: int, seconds: float = 0.0
) -> list[list[int]]:
    """Nanoseconds of each of several runs, in so many turns at least; for so many seconds there are
    more of them, up to ``MOST_TURNS``.

    In a turn each runs twice, and the second time counts: the first one finds the weights of
    another in the caches.
    """
    found: list[list[int]] = [[] for _ in runs]
    end = time.monotonic() + seconds
    while len(found[0]) < turns or (len(found[0]) < MOST_TURNS and time.monotonic() < end):
        checkpoint()
        for run, times in zip(runs, found, strict=True):
            executor.run(partial(_run_ns, run))
            times.append(executor.run(partial(_run_ns, run)))
    return found


def _run_ns(run: Callable[[], object]) -> int:
    begin = time.perf_counter_ns()
    run()
    return time.perf_counter_ns() - begin


def _memory(plan: Plan) -> list[Array]:
    """What a run of a plan binds: inputs of ones, and room for outputs."""
    values = plan.graph.values
    return [*(_ones(values[name]) for name in plan.graph.inputs), *map(fresh_pages, plan.own_sizes)]


def _ones(value: Value) -> Array:
    """Memory for a value: ones; zeros where it is whole numbers, which may be indices."""
    dtype = numpy_dtype(value.dtype)
    memory = fresh_pages(value.nbytes)
    memory.view(dtype).fill(dtype.kind not in "iub")
    return memory


def least_ns(
    run: Callable[[Array], object],
    steps: int,
    effort: Effort = WARM,
    before: Callable[[], None] | None = None,
) -> int:
    """The least nanoseconds from the begin of the first step to the end of the last one.

    Args:
        run: runs so many steps, and writes when each began and ended; its first run does not count,
            unless it takes ``FIRST`` times what is not repeated: then it is all there is.
        effort: how long it is run.
        before: is called before each run. Without it, runs follow one another, and threads stay
            where they are.
    """
    if not steps:
        return 0
    times, found, retries = np.zeros((steps, 2), np.int64), list[int](), RETRIES
    run(times)
    first = int(times[-1, 1] - times[0, 0])
    if first > FIRST * effort.most_seconds * 1e9:
        return first
    end, alike = time.monotonic() + effort.seconds, 0
    while len(found) < effort.least or (
        len(found) < MOST and alike < effort.steady and time.monotonic() < end
    ):
        waited = 0
        if before is not None:
            before()
            waited = _waited_ns()
        run(times)
        ns = int(times[-1, 1] - times[0, 0])
        if before is not None and retries and _waited_ns() - waited > ns * WAITED:
            retries -= 1
            continue
        alike = alike + 1 if found and ns >= min(found) * (1 - SAME) else 0
        found.append(ns)
        if ns > effort.most_seconds * 1e9:
            break
    return min(found)


def _waited_ns() -> int:
    """How long the threads of this process have waited for processors, together; 0 where the
    system does not tell.
    """
    total = 0
    for file in SCHEDULED.glob("*/schedstat"):
        with ignored(OSError):  # a thread has ended meanwhile
            total += int(file.read_text().split()[1])
    return total
