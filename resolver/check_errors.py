"""The independent check of a plan's errors: every approximate node has a share, and shares add up.

It shares no code with the program that chose the variants: it goes back to what was measured, and
computes in fractions.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

from resolver.errors import ErrorProof, Share
from resolver.lowered import LoweredGraph
from vtensor.errors import UnsoundPlanError

#: Relative difference that is allowed for floats that went through decimal text.
SLACK = Fraction(1, 10**6)


def check_errors(graph: LoweredGraph, tolerance: float) -> None:
    """Prove that the errors of a lowered graph, as measured, are within a relative tolerance.

    Raises:
        UnsoundPlanError: an approximate node has no share; an error or an amplification is less
            than was measured; the squares add up to more than the tolerance's; or the whole plan
            was not compared with the strict one, or differs from it by more.
    """
    inexact = {node.name: node.variant for node in graph.operators if node.variant.inexact}
    if not inexact:
        return
    proof = graph.certificate.errors if graph.certificate is not None else None
    if proof is None or not proof.shares:
        raise UnsoundPlanError(f"{', '.join(inexact)}: inexact, but without a share of the error")
    rows = {share.node: share for share in proof.shares}
    if len(rows) < len(proof.shares) or rows.keys() != inexact.keys():
        differing = sorted(rows.keys() ^ inexact.keys()) or [share.node for share in proof.shares]
        raise UnsoundPlanError(f"{', '.join(differing)}: inexact nodes and error shares differ")
    squares = Fraction(0)
    for name, share in rows.items():
        variant = inexact[name]
        if (variant.kernel, variant.error) != (share.kernel, share.error):
            raise UnsoundPlanError(f"{name}: another variant was charged than the one that runs")
        squares += _square(share)
    direct, allowed = Fraction(proof.direct) ** 2, Fraction(proof.budget) ** 2
    if squares > allowed * (1 + SLACK) or squares + direct > Fraction(tolerance) ** 2 * (1 + SLACK):
        raise UnsoundPlanError(
            f"errors add up to {math.sqrt(squares):.3g}, and {proof.direct:.3g} of exact kernels; "
            f"allowed is {proof.budget:.3g}, and {tolerance:.3g} together"
        )
    _check_measured(proof, tolerance)


def _square(share: Share) -> Fraction:
    """Return the square of the error that a share's node adds to the results, as measured."""
    error = _largest(share, "error", share.error, [(d, by) for d, by in share.trials])
    gain = _largest(share, "gain", share.gain, [(got, sent) for sent, got in share.probes])
    return (error * gain) ** 2


def _largest(
    share: Share, what: str, stated: float, pairs: Sequence[tuple[float, float]]
) -> Fraction:
    """Return the largest ratio of measured pairs.

    Args:
        share: the share that is checked.
        what: the name of the quantity.
        stated: the value that the share states.
        pairs: measurements, each numerator and denominator.

    Raises:
        UnsoundPlanError: nothing was measured, or more than stated.
    """
    if not pairs or not all(map(math.isfinite, (stated, *(n for pair in pairs for n in pair)))):
        raise UnsoundPlanError(f"{share.node}: its {what} was not measured")
    if any(below <= 0 and above for above, below in pairs):
        raise UnsoundPlanError(f"{share.node}: its {what} was measured against nothing")
    largest = max(
        Fraction(above) / Fraction(below) if above else Fraction() for above, below in pairs
    )
    if largest > Fraction(stated) * (1 + SLACK):
        measured = f"measured was {float(largest):.3g}"
        raise UnsoundPlanError(f"{share.node}: its {what} is said to be {stated:.3g}, {measured}")
    return largest


def _check_measured(proof: ErrorProof, tolerance: float) -> None:
    """Check that the whole plan was compared with the strict one, and differed within tolerance."""
    if proof.measured is None or not proof.measured <= tolerance:
        measured = "nothing" if proof.measured is None else f"{proof.measured:.3g}"
        text = f"compared with the strict plan, {measured} was measured"
        raise UnsoundPlanError(f"{text}; the tolerance is {tolerance:.3g}")
