"""Approximate variants: which take part in a choice, and what each adds to the results' error."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from ptensor.evaluation import Variant
from resolver.errors import Share
from resolver.lowered import OpNode
from vtensor.language.records import dataclass, replace

#: By node and index of a variant: what the variant adds to the error of the results.
Shares = dict[str, dict[int, Share]]


class ErrorMeter(Protocol):
    """The interface that measures what approximate variants add to the error of a network's
    results.
    """

    def shares(self, nodes: Sequence[OpNode]) -> Sequence[Share | None]:
        """Return what each node in its variant adds to the error; None if it cannot be measured."""


@dataclass(frozen=True)
class Allowed:
    """The error that a choice may have.

    Attributes:
        tolerance: the largest relative error of the results.
        budget: the limit of the root of the sum of the squares of what variants add, at most the
            tolerance.
        meter: measures what variants add.
    """

    tolerance: float
    budget: float
    meter: ErrorMeter


def charged(
    nodes: Mapping[str, OpNode], variants: Mapping[str, Sequence[Variant]], allowed: Allowed
) -> tuple[dict[str, list[Variant]], Shares]:
    """Return the variants with their errors, and what each approximate one adds to the results'
    error.

    An approximate variant is dropped if what it adds is unknown or alone exceeds the budget, or if
    another variant of its node dominates it.

    Args:
        nodes: the nodes by name.
        variants: the variants by name of node.
        allowed: the limits, and the meter.
    """
    asked = [
        (name, variant)
        for name, of_node in variants.items()
        for variant in of_node
        if variant.inexact
    ]
    answers = allowed.meter.shares(
        [replace(nodes[name], variant=variant) for name, variant in asked]
    )
    known = {
        (name, id(variant)): share
        for (name, variant), share in zip(asked, answers, strict=True)
        if share is not None and share.added <= allowed.budget
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
    """Return whether ``other`` has equal layouts, less time or error, and more of neither."""
    if other.layouts != variant.layouts or other.ns is None or variant.ns is None:
        return False
    no_worse = other.ns <= variant.ns and other_share.added <= share.added
    return no_worse and (other.ns, other_share.added) != (variant.ns, share.added)


def _with_error(variant: Variant, error: float) -> Variant:
    """Return a variant with ``error`` set; in a variant of several pieces, the approximate pieces
    get it.
    """
    pieces = tuple(_with_error(piece, error) for piece in variant.pieces)
    return replace(variant, error=error if variant.inexact else 0.0, pieces=pieces)
