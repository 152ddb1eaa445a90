"""Error shares: what each approximate variant adds to the error of a plan's results, with the
measurements behind it.

The strict result of a node is the one that exact kernels compute. A node's error is the norm of the
difference between its result and the strict result, relative to the norm of the strict result. On
its way to the network's results it is multiplied by the node's error amplification. There an error
is the largest difference of an element, relative to the largest element. Errors of different nodes
are taken as independent, so that their squares add up.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import hypot

from ptensor.evaluation import Variant
from vtensor.language.records import dataclass


def form_name(variant: Variant) -> str:
    """Return the name of the form in which an approximate variant computes; empty if it is exact.

    The name is that of ``planes_form``, if there is one; else the narrower type of operands; the
    library if all operands have their own types.
    """
    if not variant.inexact:
        return ""
    return planes_form(variant) or next(_types(variant), variant.library)


def planes_form(variant: Variant) -> str:
    """Return the form of a variant whose step splits values into planes of a narrower type.

    It is the part before the colon of a kernel's name: ``bf16x3``, say. Returns an empty text for
    other variants.
    """
    parts = [part.kernel.rpartition(" ")[2].partition(":") for part in (variant, *variant.pieces)]
    types = tuple(f"{dtype}x" for dtype in _types(variant))
    return next((form for form, colon, _ in parts if colon and form.startswith(types)), "")


def _types(variant: Variant) -> Iterator[str]:
    for layout in variant.layouts:
        if layout.encoding is not None and not layout.encoding.tile:
            yield layout.encoding.dtype


@dataclass(frozen=True)
class Share:
    """The part of the results' error that one approximate node adds.

    Attributes:
        node, kernel: name of the node, and name of the kernel of its variant.
        error: error of the node's own result.
        gain: error amplification: the largest factor by which an error of the node's result was
            multiplied on its way to the network's results.
        trials: measurements of the error, a pair for each result that was compared with the strict
            variant's: the norm of the difference, and the norm of the strict result.
        probes: measurements of the amplification, as pairs: the error that was added to a strict
            result of the node, and the error that arrived at the network's results.
    """

    node: str
    kernel: str
    error: float
    gain: float
    trials: tuple[tuple[float, float], ...] = ()
    probes: tuple[tuple[float, float], ...] = ()

    @property
    def added(self) -> float:
        """The error that the node adds to the network's results."""
        return self.gain * self.error


@dataclass(frozen=True)
class ErrorProof:
    """The errors that were measured or computed for a plan when it was chosen.

    Attributes:
        tolerance: the error that the network's results may have.
        budget: the limit that the choice had for the root of the sum of the squares of the shares'
            errors. It is below ``tolerance`` if an earlier choice turned out to exceed the
            tolerance.
        scale: the factor by which that root is multiplied, at most 1. It is below 1 if the whole
            plan of an earlier choice had a much smaller error than its shares together, since
            errors of nodes partly cancel.
        shares: shares of the approximate nodes.
        direct: the error that exact kernels add, because they sum in another order than those of
            the strict plan. It is measured on a whole plan without approximate variants.
        measured: the largest error of the results of the whole plan, on inputs with which no share
            was measured; None if the plan was not run yet.
    """

    tolerance: float
    budget: float
    shares: tuple[Share, ...] = ()
    measured: float | None = None
    direct: float = 0.0
    scale: float = 1.0

    @property
    def expected(self) -> float:
        """Expected error of the network's results: the root of the sum of the squares of all
        errors, those of shares times ``scale``.
        """
        return hypot(self.direct, self.scale * expected(self.shares))

    @property
    def plain_sum(self) -> float:
        """Error of the network's results if all errors added up in the worst way: their sum."""
        return self.direct + sum(share.added for share in self.shares)


def expected(shares: Iterable[Share]) -> float:
    """Return the error that several shares make together: the root of the sum of their squares."""
    return hypot(*(share.added for share in shares))
