"""How much of a node's error arrives at a network's results: by trying.

The strict plan is run step by step. Behind a node, its result is given seeded noise, the steps
after it are run again, and what changed at the plan's outputs is compared with what was given.

What arrives of an error depends on all of it and not on its largest element, so noise and errors of
nodes are measured by their norms. At the outputs the largest difference counts.
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

#: The largest element of noise, relative to the result's largest: far above the rounding of f32,
#: and far below what functions bend by.
NOISE = 2.0**-10

#: How often noise is tried. Of few outputs the largest may be small by chance: then more often.
TURNS, FEW, TURNS_OF_FEW = 2, 64, 8

#: By norm what was given, and by its largest element what arrived; each relative to the values.
Probes = tuple[tuple[float, float], ...]


def probed(plan: Plan, bindings: Sequence[Array], nodes: Collection[str]) -> dict[str, Probes]:
    """By node: what arrives at the plan's outputs of noise on the node's result.

    Args:
        plan: its outputs are the results.
        bindings: of a run, as for ``Plan.replay``.
        nodes: those that are not among the answers have no result that could be changed.
    """
    found = dict[str, Probes]()
    last = {step.node: index for index, step in enumerate(plan.recorded) if step.node in nodes}

    def visit(run: RunSteps, memory: Array) -> None:
        run(0, None)
        strict = results(plan, bindings)
        fewest = min((array.size for array in strict.values()), default=0)
        turns = TURNS if fewest >= FEW else TURNS_OF_FEW
        own = bindings[len(plan.graph.inputs) :]
        at = 0
        for node, index in sorted(last.items(), key=lambda item: item[1]):
            run(at, index + 1)
            at = index + 1
            made = _output_of(plan.recorded[index])
            if made is None or made.data().dtype != np.float32:
                continue
            copies = [(part, part.copy()) for part in (memory, *own)]
            pairs = list[tuple[float, float]]()
            for turn in range(turns):
                sent = _add_noise(made.data(), np.random.default_rng((index, turn)))
                run(at, None)
                pairs.append((sent, difference(strict, results(plan, bindings))))
                for part, before in copies:
                    np.copyto(part, before)
            found[node] = tuple(pairs)

    plan.visit(bindings, visit)
    return found


def results(plan: Plan, bindings: Sequence[Array]) -> dict[str, Array]:
    """A plan's outputs in the memory of a run, as arrays of their own."""
    return {name: one.elements(bindings).copy() for name, one in plan.deliveries.items()}


def difference(strict: Mapping[str, Array], others: Mapping[str, Array]) -> float:
    """The largest difference of any result, relative to its largest element; infinite where one of
    both is not finite.
    """
    return max((relative(*trial(one, others[name])) for name, one in strict.items()), default=0.0)


def trial(strict: Array, other: Array) -> tuple[float, float]:
    """The largest difference of two arrays, and the largest element of the first."""
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
    """The norm of the difference of two arrays, and that of the first."""
    wide = np.complex128 if strict.dtype.kind == "c" else np.float64
    with np.errstate(all="ignore"):
        difference = _norm(strict.astype(wide) - other.astype(wide))
        own = _norm(strict.astype(wide))
    return (difference, own) if np.isfinite(difference + own) else (np.inf, 0.0)


def relative(difference: float, whole: float) -> float:
    """A difference as a part of the values."""
    if not difference:
        return 0.0
    return difference / whole if whole else np.inf


def _output_of(step: RecordedStep) -> TensorStorage | None:
    """What the last step of a node makes."""
    if step.callback is not None:
        last = step.slots[-1] if step.slots else 0
        return None if isinstance(last, int) else last
    outputs = {storage for storage, access in accesses(step) if "write" in access}
    return outputs.pop() if len(outputs) == 1 else None


def _add_noise(data: Array, generator: np.random.Generator) -> float:
    """Add noise to what is not 0, as pads and what an activation cut off are; its norm, relative to
    the data's.

    What is nowhere negative stays so, for who takes roots of it.
    """
    largest = float(np.abs(data).max(initial=0.0))
    if not largest or not np.isfinite(largest):
        return 0.0
    noise = generator.standard_normal(data.shape, np.float32) * (data != 0)
    noise *= NOISE * largest / float(np.abs(noise).max())
    changed = data + noise
    if data.min() >= 0:
        np.maximum(changed, 0, out=changed)
    sent = relative(*norms(data, changed))
    data[...] = changed
    return sent


def _norm(array: Array) -> float:
    """The root of the sum of squares; without BLAS, whose threads would spin where kernels run."""
    return float(np.sqrt(np.square(np.abs(array)).sum()))
