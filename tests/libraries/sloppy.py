"""An inexact library for ``Mix``: each of its kernels is off by what its name says."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from libdesc import invoker, register
from libdesc.routine import Routine
from optimizer.choice.problem import Clock
from ptensor import PTensor
from ptensor.evaluation import Call, Variant
from resolver.lowered import OpNode
from tests.libraries.bench import HERE
from tests.libraries.operators import Array, logical, mixed, write
from tests.optimizer.clocks import Drawn
from vtensor.language.operators import Context
from vtensor.language.tensor import VTensor

#: By kernel: the largest error of a result, relative to its largest element.
KERNELS = {"off 1e-6": 1e-6, "off 1e-4": 1e-4, "off 1e-2": 1e-2}


class SloppyMix(Routine):
    """``Mix`` in a kernel of the library ``other``; where none is chosen, in the first."""

    inexact = True

    def variants(self, call: Call) -> Iterable[Variant]:
        """One a kernel, with operands as they were decided."""
        assert call.variant is not None, "asked once it is decided"
        return [replace(call.variant, kernel=name) for name in KERNELS]

    def __call__(self, *tensors: PTensor) -> None:
        """Compute, and add noise; not where one number is not finite: then nothing is."""
        variant = tensors[0].call.variant
        off = KERNELS[(variant.kernel if variant else "") or "off 1e-6"]
        operands = tuple(one.tensor for one in tensors)
        exact = mixed([logical(one) for one in tensors[:-1]], operands)
        write(tensors[-1], spoilt(exact, off))


def spoilt(exact: Array, off: float) -> Array:
    """Values with noise of this size; one that is not finite spreads to all."""
    if not np.isfinite(exact).all():
        return np.full_like(exact, np.nan)
    noise = np.random.default_rng(exact.size).uniform(-1, 1, exact.shape)
    spoiling = off * np.abs(exact).max(initial=0) * noise
    return np.asarray(exact + spoiling, exact.dtype)


def declare_sloppy() -> None:
    """Register the library and its invoker."""
    register(HERE / "other")

    @invoker("Mix", library="other", python=True)
    def other_mix(ctx: Context, op: object, *operands: VTensor) -> Routine:
        return SloppyMix(operands, [text.split("|") for text in op.asks])  # type: ignore[attr-defined]


@dataclass(frozen=True)
class Hasty(Drawn, Clock):
    """Drawn times; the more a kernel is off, the less it takes."""

    def node(self, node: OpNode, values: object) -> int | None:
        """Of a node as it is decided."""
        found = super().node(node, values)  # type: ignore[arg-type]
        if found is None or not node.variant.inexact:
            return found
        return (
            1
            + round(found / 1000)
            + len(KERNELS)
            - [*KERNELS].index(node.variant.kernel or "off 1e-6")
        )
