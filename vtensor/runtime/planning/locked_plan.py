"""Plans of lock files: how a session takes one, and how its plan becomes one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from libdesc.onnx_reference import LIBRARY as REFERENCE
from libdesc.registry import ready
from optimizer.estimate import Estimate
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
    """A plan as it is written down.

    Args:
        plan: what is to be written down.
        graph: what it was made of, before any pass.
        options: how it was made.
        threads: how many it runs on.
    """
    libraries = sorted(ready().libraries.values(), key=lambda one: one.name)
    versions = {  # what stands behind a comma is where it was found
        one.name: one.version().partition(", ")[0] for one in libraries if not one.absent
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
    )


def locked_options(
    lock: Lock, executor: Executor, progress: Progress | None, tolerance: float, finite: bool
) -> Options:
    """How a session's plans are made as the one was that is written down.

    Args:
        lock: the file.
        executor, progress, tolerance, finite: the session's own.

    Raises:
        LockError: what it says of libraries or passes does not hold here, or its results are off by
            more than the tolerance.
    """
    saved, proof = lock.options, lock.proof
    error = max(proof.expected, proof.measured or 0.0) if proof is not None else 0.0
    if proof is not None and error > tolerance:
        raise LockError(
            f"{lock.file}: its results are off by {error:.1e}, the tolerance is {tolerance:g}\n"
            f"  to fix: Session(..., tolerance={proof.tolerance:g}), for which it was made, or "
            "write it anew for another one"
        )
    try:
        options = Options.of(
            executor,
            optimize=saved.optimize,
            objective="",
            tune=False,  # what was measured is chosen already
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
    """The plan that is written down.

    Args:
        lock: the file.
        graph: what it is to be made of, before any pass.
        simple: the same, simplified.
        options, workspace: as for ``plan_of``.

    Raises:
        LockError: it is of another model, or does not hold; lists every line that does not. Also
            where errors of inexact nodes are not those that were measured.
        BudgetError: it needs more memory than the workspace may have.
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
            from resolver.check_errors import check_errors  # with fractions, which few need

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
    """What is said of inputs that does not hold."""
    for name in graph.inputs:
        value, one = graph.values[name], lock.choices.inputs.get(name)
        if one is None or dict(one.dims) != dict(value.dims):
            have = "no such input" if one is None else one.tensor().summary()
            yield f"input {name!r} is {value.summary()}; written down is {have}"
        elif options.entry[name] != one.layout:
            lies = f"lies in {options.entry[name]}; written down is {one.layout}"
            yield f"input {name!r} {lies}"
    if list(graph.outputs) != list(lock.choices.outputs):
        asked = ", ".join(name for name in graph.outputs if name not in lock.choices.outputs)
        yield f"{asked} is asked for, which is no output"
