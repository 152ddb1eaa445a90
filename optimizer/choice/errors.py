"""Approximate variants in a choice: which of them are admitted, and what each adds to the error of
the results.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from ptensor.encoding import Encoding
from ptensor.evaluation import Variant
from resolver.errors import Share, form_name
from resolver.lowered import OpNode
from vtensor.language.records import dataclass, replace

#: By node and index of a variant: what the variant adds to the error of the results.
Shares = dict[str, dict[int, Share]]


class ErrorMeter(Protocol):
    """The interface that measures what approximate variants add to the error of a network's
    results.
    """

    def shares(self, nodes: Sequence[OpNode]) -> Sequence[Share | None]:
        """Return, for each node in its variant, the share that it adds to the error of the results;
        None if it cannot be measured.
        """

    def gains(self, nodes: Sequence[OpNode]) -> Sequence[float | None]:
        """Return the error amplification of each node; None if it cannot be measured."""

    def holds(self, name: str, encoding: Encoding) -> bool:
        """Return whether an encoding holds each element of the constant ``name`` exactly."""


@dataclass(frozen=True)
class Allowed:
    """The error that a choice may have.

    Attributes:
        tolerance: the largest relative error of the results.
        budget: the largest allowed root of the sum of squares of what the variants add to the
            error, times ``scale``. It is at most the tolerance.
        meter: measures what a variant adds to the error.
        scale: the error of a whole plan divided by the root of the sum of squares of what its
            variants add, at most 1, as far as an earlier choice has shown.
        form: the only form that approximate variants may have, as ``form_name`` returns it; empty
            if they may have any.
    """

    tolerance: float
    budget: float
    meter: ErrorMeter
    scale: float = 1.0
    form: str = ""

    @property
    def limit(self) -> float:
        """The largest allowed root of the sum of squares of what the variants add to the error."""
        return self.budget / self.scale


def charged(
    nodes: Mapping[str, OpNode], variants: Mapping[str, Sequence[Variant]], allowed: Allowed
) -> tuple[dict[str, list[Variant]], Shares]:
    """Return the admitted variants of nodes, with their errors, and what each approximate one adds
    to the error of the results.

    An approximate variant is dropped if what it adds is unknown, or alone exceeds the limit. It is
    dropped, too, if another approximate variant of its node in the same layouts is as good in time
    and error and better in one of them.

    Args:
        nodes: the nodes by name.
        variants: the variants by name of node.
        allowed: the limits, and the meter.
    """
    asked = [
        (name, variant)
        for name, of_node in variants.items()
        for variant in of_node
        if variant.inexact and allowed.form in ("", form_name(variant))
    ]
    answers = allowed.meter.shares(
        [replace(nodes[name], variant=variant) for name, variant in asked]
    )
    known = {
        (name, id(variant)): share
        for (name, variant), share in zip(asked, answers, strict=True)
        if share is not None and share.added <= allowed.limit
    }
    kept: dict[str, list[Variant]] = {}
    shares: dict[str, dict[int, Share]] = {}
    for name, of_node in variants.items():
        kept[name], shares[name] = [], {}
        inexact = [variant for variant in of_node if (name, id(variant)) in known]
        for variant in of_node:
            if not variant.inexact:
                kept[name].append(variant)
            elif variant in inexact and not any(
                _dominates(other, variant, known[name, id(other)], known[name, id(variant)])
                for other in inexact
            ):
                share = known[name, id(variant)]
                shares[name][len(kept[name])] = share
                kept[name].append(_with_error(variant, share.error))
    return kept, {name: row for name, row in shares.items() if row}


def _dominates(other: Variant, variant: Variant, other_share: Share, share: Share) -> bool:
    """Return whether ``other`` has the same layouts as ``variant``, less time or error, and not
    more of either.
    """
    if other.layouts != variant.layouts or other.ns is None or variant.ns is None:
        return False
    no_worse = other.ns <= variant.ns and other_share.added <= share.added
    return no_worse and (other.ns, other_share.added) != (variant.ns, share.added)


def _with_error(variant: Variant, error: float) -> Variant:
    """Return a variant with its ``error`` set.

    If the variant consists of several pieces, the error of its approximate pieces is set.
    """
    pieces = tuple(_with_error(piece, error) for piece in variant.pieces)
    return replace(variant, error=error if variant.inexact else 0.0, pieces=pieces)
