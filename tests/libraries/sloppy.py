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
        """Return one a kernel, with operands as they were decided."""
        assert call.variant is not None, "asked once it is decided"
        return [replace(call.variant, kernel=name) for name in KERNELS]

    def __call__(self, *tensors: PTensor) -> None:
        """Compute, and add noise; make NaN of everything if one number is not finite."""
        variant = tensors[0].call.variant
        off = KERNELS[(variant.kernel if variant else "") or "off 1e-6"]
        operands = tuple(tensor.tensor for tensor in tensors)
        exact = mixed([logical(tensor) for tensor in tensors[:-1]], operands)
        write(tensors[-1], spoilt(exact, off))


def spoilt(exact: Array, off: float) -> Array:
    """Add noise of this size to values; one that is not finite spreads to all."""
    if not np.isfinite(exact).all():
        return np.full_like(exact, np.nan)
    noise = np.random.default_rng(exact.size).uniform(-1, 1, exact.shape)
    return np.asarray(exact + off * np.abs(exact).max(initial=0) * noise, exact.dtype)


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
        """Return the time of a node as it is decided."""
        drawn = super().node(node, values)  # type: ignore[arg-type]
        if drawn is None or not node.variant.inexact or node.variant.library != "other":
            return drawn
        slowness = len(KERNELS) - [*KERNELS].index(node.variant.kernel or "off 1e-6")
        return 1 + round(drawn / 1000) + slowness
