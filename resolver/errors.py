"""Error shares of approximate variants, with the measurements behind them.

A node's error is the norm of its result's difference from the strict result, relative to the strict
result's norm. At the network's results it is multiplied by the node's error amplification; there
the largest difference counts, relative to the largest element. Errors of different nodes are taken
as independent: their squares add up.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import hypot

from vtensor.language.records import dataclass


@dataclass(frozen=True)
class Share:
    """The part of the results' error that one approximate node adds.

    Attributes:
        node, kernel: names of the node and of its variant's kernel.
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
    """The errors for which a plan was chosen.

    Attributes:
        tolerance: the error that the network's results may have.
        budget: the limit on the root of the shares' sum of squares; it is below the tolerance if an
            earlier choice exceeded the tolerance.
        shares: shares of the approximate nodes.
        direct: error that exact kernels add, since their sums are in another order than the strict
            plan's; measured on a whole plan without approximate variants.
        measured: the largest error of the whole plan, on inputs that no share was measured on; None
            if the plan was not run yet.
    """

    tolerance: float
    budget: float
    shares: tuple[Share, ...] = ()
    measured: float | None = None
    direct: float = 0.0

    @property
    def expected(self) -> float:
        """Expected error of the results: the root of the sum of the squares of all errors."""
        return hypot(self.direct, expected(self.shares))

    @property
    def plain_sum(self) -> float:
        """Error of the results if all errors had the same sign."""
        return self.direct + sum(share.added for share in self.shares)


def expected(shares: Iterable[Share]) -> float:
    """Return the error that several shares make together: the root of the sum of their squares."""
    return hypot(*(share.added for share in shares))
