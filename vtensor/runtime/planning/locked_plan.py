"""Plans from lock files, and lock files from plans."""

from __future__ import annotations

from collections.abc import Iterator
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
    from vtensor.language.graph import Graph
    from vtensor.runtime.execution.executor import Executor
    from vtensor.runtime.recording.workspace import Workspace


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
        options.lock.options if options.lock else _plan_options(options),
        plan.passes,
        Choices.of(plan.graph),
        cost_rows(plan.graph, Estimate(options.preferences, options.settings.speeds)),
        plan.certificate,
    )


def _plan_options(options: Options) -> PlanOptions:
    """Return the options of a session that its plans depend on."""
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
    saved, proof = lock.options, lock.proof
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
    if faults := [*_sizes(lock, graph, options)]:
        raise lock.refused([(None, text) for text in faults])
    if content(graph) != lock.content:
        raise lock.other("nodes, parameters or constants differ")
    try:
        lowered = lock.choices.on(simple, options.preferences, options.delivery)
        lowered = replace(lowered, passes=lock.passes, certificate=lock.certificate)
        sound(lowered, simple, options, workspace)
        if lowered.inexact:
            from resolver.check_errors import check_errors  # loads fractions, which few plans need

            check_errors(lowered, lock.proof.tolerance if lock.proof is not None else 0.0)
        strictly = partial(plan_in_full, simple, replace(options, lock=None), workspace)
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
    except LockChoiceRefused as why:
        raise lock.refused(why.faults) from None
    except BudgetError:
        raise
    except VTensorError as why:
        raise lock.refused([(None, str(why))]) from why


def _sizes(lock: Lock, graph: Graph, options: Options) -> Iterator[str]:
    """Yield a message for each input that differs between the run and the lock file, and one if
    their outputs differ.
    """
    for name in graph.inputs:
        value, locked = graph.values[name], lock.choices.inputs.get(name)
        if locked is None or dict(locked.dims) != dict(value.dims):
            have = "no such input" if locked is None else locked.tensor().summary()
            yield f"input {name!r} is {value.summary()}; the lock file has {have}"
        elif options.entry[name] != locked.layout:
            layouts = f"has layout {options.entry[name]}; the lock file has {locked.layout}"
            yield f"input {name!r} {layouts}"
    if list(graph.outputs) != list(lock.choices.outputs):
        asked = ", ".join(name for name in graph.outputs if name not in lock.choices.outputs)
        yield f"{asked} is wanted, which is no output of the lock file"
