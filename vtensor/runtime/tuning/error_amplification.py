"""Error amplification: the share of a node's error that reaches a network's outputs.

The strict plan runs step by step. After a node, seeded noise is added to its result, the later
steps run again, and the change at the plan's outputs is compared with the noise.

The change at the outputs depends on all elements of a node's error, not on the largest one, so
noise and errors of nodes are measured by their norms. At the outputs the largest difference counts.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ptensor.buffer import TensorStorage
from vtensor.runtime.execution.plan import Plan, RunSteps
from vtensor.runtime.execution.steps import RecordedStep
from vtensor.runtime.recording.live_steps import accesses

if TYPE_CHECKING:
    from vtensor.storage.inputs import Array

#: The largest element of the noise as a share of the largest element of the result. It is far above
#: the rounding of f32, and far below the scale on which functions are nonlinear.
NOISE_SHARE = 2.0**-10

#: The number of trials, each with other noise. There are ``TURNS_IF_FEW`` trials if an output has
#: fewer than ``FEW_ELEMENTS`` elements, since the largest change of few elements may be small by
#: chance.
TURNS, FEW_ELEMENTS, TURNS_IF_FEW = 2, 64, 8

#: The probes of a node: for each trial, the relative norm of the noise and the largest relative
#: change of an output.
Probes = tuple[tuple[float, float], ...]


def probed(plan: Plan, bindings: Sequence[Array], nodes: Collection[str]) -> dict[str, Probes]:
    """Return the probes of nodes by name: what noise on a node's result changes at the plan's
    outputs.

    Args:
        plan: the strict plan; its outputs are the network's.
        bindings: the arrays that a run binds: the inputs, then the memory for outputs.
        nodes: the names of the nodes to probe. A node is missing in the result if it does not have
            exactly one result of type f32.
    """
    probes = dict[str, Probes]()
    last = {step.node: index for index, step in enumerate(plan.recorded) if step.node in nodes}

    def visit(run: RunSteps, memory: Array) -> None:
        run(0, None)
        strict = results(plan, bindings)
        fewest = min((array.size for array in strict.values()), default=0)
        turns = TURNS if fewest >= FEW_ELEMENTS else TURNS_IF_FEW
        output_memory = bindings[len(plan.graph.inputs) :]
        next_step = 0
        for node, index in sorted(last.items(), key=lambda item: item[1]):
            run(next_step, index + 1)
            next_step = index + 1
            output = _output_of(plan.recorded[index])
            if output is None or output.data().dtype != np.float32:
                continue
            copies = [(part, part.copy()) for part in (memory, *output_memory)]
            pairs = list[tuple[float, float]]()
            for turn in range(turns):
                sent = _add_noise(output.data(), np.random.default_rng((index, turn)))
                run(next_step, None)
                pairs.append((sent, difference(strict, results(plan, bindings))))
                for part, before in copies:
                    np.copyto(part, before)
            probes[node] = tuple(pairs)

    plan.visit(bindings, visit)
    return probes


def results(plan: Plan, bindings: Sequence[Array]) -> dict[str, Array]:
    """Return copies of a plan's outputs after a run, by name.

    Args:
        plan: the plan.
        bindings: the arrays that the run has bound: the inputs, then the memory of outputs.
    """
    return {name: delivery.elements(bindings).copy() for name, delivery in plan.deliveries.items()}


def difference(strict: Mapping[str, Array], others: Mapping[str, Array]) -> float:
    """Return the largest difference of any output, relative to the output's largest element.

    The difference is infinite if an output is not finite.

    Args:
        strict: the outputs of the strict plan, by name.
        others: the outputs of another plan, by name.
    """
    return max(
        (relative(*trial(expected, others[name])) for name, expected in strict.items()), default=0.0
    )


def trial(strict: Array, other: Array) -> tuple[float, float]:
    """Return the largest absolute difference of two arrays, and the largest absolute value in
    ``strict``.

    Returns infinity and 0 if one of these two numbers is not finite.
    """
    if not strict.size:
        return 0.0, 0.0
    wide = np.complex128 if strict.dtype.kind == "c" else np.float64
    with np.errstate(all="ignore"):
        difference = np.abs(strict.astype(wide) - other.astype(wide)).max()
        largest = np.abs(strict.astype(wide)).max()
    return (
        (float(difference), float(largest)) if np.isfinite(difference + largest) else (np.inf, 0.0)
    )


def norms(strict: Array, other: Array) -> tuple[float, float]:
    """Return the Euclidean norm of the difference of two arrays, and the norm of ``strict``.

    Returns infinity and 0 if one of these two norms is not finite.
    """
    wide = np.complex128 if strict.dtype.kind == "c" else np.float64
    with np.errstate(all="ignore"):
        difference = _norm(strict.astype(wide) - other.astype(wide))
        whole = _norm(strict.astype(wide))
    return (difference, whole) if np.isfinite(difference + whole) else (np.inf, 0.0)


def relative(difference: float, whole: float) -> float:
    """Return ``difference / whole``; 0 for no difference, else infinity if ``whole`` is 0."""
    if not difference:
        return 0.0
    return difference / whole if whole else np.inf


def _output_of(step: RecordedStep) -> TensorStorage | None:
    """Return the storage that ``step``, the last step of a node, writes; None if it writes none or
    several.
    """
    if step.callback is not None:
        last = step.slots[-1] if step.slots else 0
        return None if isinstance(last, int) else last
    outputs = {storage for storage, access in accesses(step) if "write" in access}
    return outputs.pop() if len(outputs) == 1 else None


def _add_noise(data: Array, generator: np.random.Generator) -> float:
    """Add noise to the elements of an array that are not 0, in place.

    Zeros stay, because they are pads or were cut off by an activation. An array without negative
    elements gets none, because a later step may take roots.

    Returns:
        The norm of the noise relative to the array's; 0 if no noise was added.
    """
    largest = float(np.abs(data).max(initial=0.0))
    if not largest or not np.isfinite(largest):
        return 0.0
    noise = np.asarray(generator.standard_normal(data.shape, np.float32) * (data != 0))
    noise *= NOISE_SHARE * largest / float(np.abs(noise).max())
    changed = np.asarray(data + noise)
    if data.min() >= 0:
        np.maximum(changed, 0, out=changed)
    sent = relative(*norms(data, changed))
    data[...] = changed
    return sent


def _norm(array: Array) -> float:
    """Return the Euclidean norm of an array. BLAS is not used, because its threads would spin next
    to those of kernels.
    """
    return float(np.sqrt(np.square(np.abs(array)).sum()))
