"""What inexact variants add to the errors of results, with the measurements that say so.

A node's error is the norm of its result's difference from the strict one, relative to the strict
one's norm. It arrives at the network's results multiplied by the node's gain: there the largest
difference counts, relative to the largest element. Errors of different nodes have nothing to do
with one another, so their squares add up.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import hypot

from vtensor.language.records import dataclass


@dataclass(frozen=True)
class Share:
    """What one node in an inexact variant adds.

    Attributes:
        node, kernel: of whom.
        error: of the node's own result.
        gain: how much of it arrives at the results, at most.
        trials: for the error: the norms of the difference, and of the result, of each result that
            was compared with the strict variant's.
        probes: for the gain: the error that a strict result was given, and what arrived.
    """

    node: str
    kernel: str
    error: float
    gain: float
    trials: tuple[tuple[float, float], ...] = ()
    probes: tuple[tuple[float, float], ...] = ()

    @property
    def added(self) -> float:
        """What it adds to the error of the results."""
        return self.gain * self.error


@dataclass(frozen=True)
class ErrorProof:
    """The errors for which a plan was chosen.

    Attributes:
        tolerance: the error that the results may have.
        budget: what the shares were allowed; below the tolerance where that was not enough.
        shares: of the nodes in inexact variants.
        direct: what exact kernels add that are others than those that it is compared with: their
            sums are in another order. Measured of a whole plan without inexact variants.
        measured: the largest error of the whole plan, on inputs that no share was measured on; None
            where it has not run yet.
    """

    tolerance: float
    budget: float
    shares: tuple[Share, ...] = ()
    measured: float | None = None
    direct: float = 0.0

    @property
    def expected(self) -> float:
        """The root of the sum of squares."""
        return hypot(self.direct, expected(self.shares))

    @property
    def plain_sum(self) -> float:
        """What it would be if all errors met with the same sign."""
        return self.direct + sum(one.added for one in self.shares)


def expected(shares: Iterable[Share]) -> float:
    """The error that several shares make together."""
    return hypot(*(one.added for one in shares))
