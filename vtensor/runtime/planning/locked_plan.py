"""Plans from lock files, and lock files from plans."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from libdesc.onnx_reference import LIBRARY as REFERENCE
from libdesc.registry import ready
from optimizer.choice.estimate import Estimate
from resolver.lock_choice import Choices, LockChoiceRefused
from vtensor import __version__
from vtensor.errors import BudgetError, LockError, VTensorError
from vtensor.runtime.execution.origin import LOCKED
from vtensor.runtime.execution.plan import Plan
from vtensor.runtime.execution.processors import processor
from vtensor.runtime.lock.lock_file import Lock, content
from vtensor.runtime.lock.plan_options import PlanOptions
from vtensor.runtime.lock.rows import cost_rows
from vtensor.runtime.planning.choosing import plan_in_full, resolved_of, sound
from vtensor.runtime.planning.options import Options, Progress
from vtensor.runtime.recording.on_numbers import plan_on_numbers

if TYPE_CHECKING:
    from resolver.lowered import LoweredGraph
    from vtensor.language.graph import Graph
    from vtensor.runtime.execution.executor import Executor
    from vtensor.runtime.recording.workspace import Workspace
    from vtensor.storage.inputs import Port


def lock_of(plan: Plan, graph: Graph, options: Options, threads: int) -> Lock:
    """Return the lock file of a plan.

    Args:
        plan: the plan.
        graph: the graph that the plan was made of, before any pass.
        options: the options that the plan was made with.
        threads: the number of kernel threads that the plan runs on.
    """
    libraries = sorted(ready().libraries.values(), key=lambda library: library.name)
    versions = {  # the text after a comma is where the library was found
        library.name: library.version().partition(", ")[0]
        for library in libraries
        if not library.absent
    }
    return Lock(
        graph.name,
        content(graph),
        {"vtensor": __version__, **versions},
        processor(),
        threads,
        _plan_options(options),
        plan.passes,
        Choices.of(plan.graph),
        cost_rows(plan.graph, Estimate(options.preferences, options.settings.speeds)),
        plan.certificate,
    )


def _plan_options(options: Options) -> PlanOptions:
    """Return the options of a session that its plans depend on; those of its lock file, if it has
    one.
    """
    if options.lock is not None:
        return options.lock.options
    mix, settings = options.preferences, options.settings
    tune = settings.clock is not None or options.later is not None
    return PlanOptions(
        options.passes,
        "" if tune else settings.objective,
        tune,
        mix.order,
        {**mix.operators, **mix.nodes},
        REFERENCE not in mix.barred,
        {name: str(layout) for name, layout in options.delivery.items()},
        options.tolerance if tune else None,
        options.precision,
    )


def locked_options(
    lock: Lock, executor: Executor, progress: Progress | None, tolerance: float, finite: bool
) -> Options:
    """Return the options for a lock file's plan.

    Args:
        lock: the lock file.
        executor, progress: the session's executor and progress callback.
        tolerance, finite: the session's options of these names.

    Raises:
        LockError: libraries or passes of the file do not exist here, or the error of its plan's
            results exceeds the tolerance.
    """
    saved = lock.options
    for proof in [plan.proof for plan in (lock, *lock.segments.values())]:
        error = max(proof.expected, proof.measured or 0.0) if proof is not None else 0.0
        if proof is not None and error > tolerance:
            raise LockError(
                f"{lock.file}: its results are off by {error:.1e}, the tolerance is {tolerance:g}\n"
                f"  to fix: Session(..., tolerance={proof.tolerance:g}), for which it was made, or "
                "write it again for another one"
            )
    try:
        options = Options.of(
            executor,
            optimize=saved.optimize,
            objective="",
            tune=False,  # the choice is made already
            precision=saved.precision,
            libraries=saved.libraries,
            pin=saved.pin,
            reference=saved.reference,
            progress=progress,
            deterministic=True,
            tolerance=tolerance,
            finite=finite,
        )
    except VTensorError as error:
        raise LockError(f"{lock.file}, options: {error}") from error
    return replace(options, lock=lock)


def lock_of_segments(
    segments: Mapping[str, Lock],
    model_content: str,
    options: Options,
    inputs: Sequence[Port],
    outputs: Sequence[Port],
) -> Lock:
    """Return the lock file of a model in segments.

    Args:
        segments: the plan of each segment, by the segment's name.
        model_content: the digest of the model.
        options: the options that the plans were made with.
        inputs, outputs: the ports of the model.
    """
    first = next(iter(segments.values()))
    values = {
        name: value for plan in segments.values() for name, value in plan.choices.inputs.items()
    }
    rows = {}
    for port in inputs:
        if (value := values.get(port.name)) is not None:
            dims = dict(zip(port.of_rank(len(value.dims)).dims, value.dims.values(), strict=True))
            layout = value.layout.rename(dict(zip(value.dims, dims, strict=True)))
            rows[port.name] = replace(value, dims=dims, layout=layout)
    return replace(
        first,
        content=model_content,
        options=_plan_options(options),
        passes=(),
        choices=Choices(rows, {port.name: port.name for port in outputs}, (), {}),
        costs={},
        certificate=None,
        segments=segments,
    )


def locked_plan(
    lock: Lock, graph: Graph, simple: Graph, options: Options, workspace: Workspace
) -> Plan:
    """Return the plan of a lock file.

    Args:
        lock: the lock file.
        graph: the graph that is run, before any pass.
        simple: that graph after the simplifications.
        options: the options of plans.
        workspace: the arena, weights and executors that plans share.

    Raises:
        LockError: the file is another model's or no longer holds (the message lists each line that
            does not), or the errors of approximate nodes are not proven to be within the tolerance
            that the file was made for.
        BudgetError: the plan needs more memory than the workspace allows.
    """
    check_given(lock, graph, options)
    if not is_own(lock, graph):
        raise lock.other("nodes, parameters or constants differ")
    lowered = locked_graph(lock, simple, options, workspace)
    strictly = partial(plan_in_full, simple, replace(options, lock=None), workspace)
    with _refusals(lock):
        plan = plan_on_numbers(
            lowered,
            simple.constants,
            workspace,
            options.progress,
            options.preferences,
            partial(resolved_of, simple, options),
            strictly=strictly if lowered.inexact and not options.finite else None,
        )
    plan.origin = LOCKED
    return plan


def is_own(lock: Lock, graph: Graph) -> bool:
    """Return whether a lock file is of exactly this graph, sizes included."""
    return content(graph) == lock.content


def locked_graph(lock: Lock, simple: Graph, options: Options, workspace: Workspace) -> LoweredGraph:
    """Return the lowered graph of a lock file, checked.

    The arguments and errors are those of ``locked_plan``; the sizes of ``simple`` may differ from
    the file's.
    """
    with _refusals(lock):
        lowered = lock.choices.on(simple, options.preferences, options.delivery)
        lowered = replace(lowered, passes=lock.passes, certificate=lock.certificate)
        sound(lowered, simple, options, workspace)
        if lowered.inexact:
            from resolver.check_errors import check_errors  # loads fractions, which few plans need

            check_errors(lowered, lock.proof.tolerance if lock.proof is not None else 0.0)
        return lowered


@contextmanager
def _refusals(lock: Lock) -> Iterator[None]:
    """Raise errors of the block, except BudgetError, as the lock file's LockError."""
    try:
        yield
    except LockChoiceRefused as why:
        raise lock.refused(why.faults) from None
    except BudgetError:
        raise
    except VTensorError as why:
        raise lock.refused([(None, str(why))]) from why


def check_given(lock: Lock, graph: Graph, options: Options) -> None:
    """Check that a graph has the inputs and outputs of a lock file.

    Sizes of inputs that other segments compute may differ.

    Raises:
        LockError: an input or output differs; the message lists all that do.
    """
    if lock.segments:
        raise lock.other("it is in segments, and the model runs in one plan")
    if faults := [*_sizes(lock, graph, options)]:
        raise lock.refused([(None, text) for text in faults])


def _sizes(lock: Lock, graph: Graph, options: Options) -> Iterator[str]:
    """Yield a message for each input that differs between the run and the lock file, and one if
    their outputs differ.
    """
    for name in graph.inputs:
        value, locked = graph.values[name], lock.choices.inputs.get(name)
        computed = name in lock.computed
        if locked is None or not (computed or dict(locked.dims) == dict(value.dims)):
            have = "no such input" if locked is None else locked.tensor().summary()
            yield f"input {name!r} is {value.summary()}; the lock file has {have}"
        elif options.entry[name] != locked.layout and not computed:
            layouts = f"has layout {options.entry[name]}; the lock file has {locked.layout}"
            yield f"input {name!r} {layouts}"
    if list(graph.outputs) != list(lock.choices.outputs):
        asked = ", ".join(name for name in graph.outputs if name not in lock.choices.outputs)
        yield f"{asked} is wanted, which is no output of the lock file"
