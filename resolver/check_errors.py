"""The independent check of a plan's errors: each approximate node has its measured share of the
error, and the shares together stay within the tolerance.

It shares no code with the program that chose the variants. It starts from the measurements again,
and computes in fractions.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

from resolver.errors import ErrorProof, Share
from resolver.lowered import LoweredGraph
from vtensor.errors import UnsoundPlanError

#: Relative difference that is allowed, since floats may have been written and read as decimal text.
SLACK = Fraction(1, 10**6)


def check_errors(graph: LoweredGraph, tolerance: float) -> None:
    """Prove that the errors of a lowered graph, as measured, are within a relative tolerance.

    Raises:
        UnsoundPlanError: an approximate node has no share. Or a share states a smaller error or
            error amplification than was measured. Or the squares of the errors add up to more than
            the square of the budget, or of the tolerance, or are scaled by a wrong factor. Or the
            whole plan was not compared with the strict plan, or differs from it by more than the
            tolerance.
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
    if not 0 < proof.scale <= 1:
        raise UnsoundPlanError(f"errors of nodes are scaled by {proof.scale:.3g}, not by 0 to 1")
    squares *= Fraction(proof.scale) ** 2
    direct, allowed = Fraction(proof.direct) ** 2, Fraction(proof.budget) ** 2
    if squares > allowed * (1 + SLACK) or squares + direct > Fraction(tolerance) ** 2 * (1 + SLACK):
        raise UnsoundPlanError(
            f"errors add up to {math.sqrt(squares):.3g}, and {proof.direct:.3g} of exact kernels; "
            f"allowed is {proof.budget:.3g}, and {tolerance:.3g} together"
        )
    _check_measured(proof, tolerance)


def _square(share: Share) -> Fraction:
    """Return the square of the error that the node of a share adds to the network's results, as
    measured.
    """
    error = _largest(share, "error", share.error, [(d, by) for d, by in share.trials])
    gain = _largest(share, "gain", share.gain, [(got, sent) for sent, got in share.probes])
    return (error * gain) ** 2


def _largest(
    share: Share, what: str, stated: float, pairs: Sequence[tuple[float, float]]
) -> Fraction:
    """Return the largest of the measured ratios, and check that the share states no less.

    Args:
        share: the share that is checked.
        what: the name of the measured quantity, for the message.
        stated: the value that the share states for it.
        pairs: the measurements, each as numerator and denominator of a ratio.

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
