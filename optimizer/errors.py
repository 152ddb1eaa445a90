"""Inexact variants: which are worth it, and what each adds to the error of the results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from ptensor.evaluation import Variant
from resolver.errors import Share
from resolver.lowered import OpNode
from vtensor.language.records import dataclass, replace

#: By node and number of a variant: what it adds.
Shares = dict[str, dict[int, Share]]


class ErrorMeter(Protocol):
    """What nodes in inexact variants add to the error of a network's results."""

    def shares(self, nodes: Sequence[OpNode]) -> Sequence[Share | None]:
        """By node in its variant; None where it cannot be told."""


@dataclass(frozen=True)
class Allowed:
    """The error that a choice may have.

    Attributes:
        tolerance: of the results.
        budget: what the root of the sum of squares may be, at most the tolerance.
        meter: what knows the errors.
    """

    tolerance: float
    budget: float
    meter: ErrorMeter


def charged(
    nodes: Mapping[str, OpNode], variants: Mapping[str, Sequence[Variant]], allowed: Allowed
) -> tuple[dict[str, list[Variant]], Shares]:
    """Variants with their errors, and their shares; without those that alone are over the budget,
    or of which nothing is known, or that another one of their node has no disadvantage to.
    """
    asked = [
        (name, variant) for name, found in variants.items() for variant in found if variant.inexact
    ]
    answers = allowed.meter.shares([replace(nodes[name], variant=one) for name, one in asked])
    known = {
        (name, id(variant)): share
        for (name, variant), share in zip(asked, answers, strict=True)
        if share is not None and share.added <= allowed.budget
    }
    kept: dict[str, list[Variant]] = {}
    shares: dict[str, dict[int, Share]] = {}
    for name, found in variants.items():
        kept[name], shares[name] = [], {}
        inexact = [one for one in found if (name, id(one)) in known]
        for one in found:
            if not one.inexact:
                kept[name].append(one)
            elif one in inexact and not any(
                _dominates(other, one, known[name, id(other)], known[name, id(one)])
                for other in inexact
            ):
                share = known[name, id(one)]
                shares[name][len(kept[name])] = share
                kept[name].append(_with_error(one, share.error))
    return kept, {name: row for name, row in shares.items() if row}


def _dominates(other: Variant, one: Variant, its: Share, own: Share) -> bool:
    """Another takes its operands just so, is as fast and errs as little, and one of both less."""
    if other.layouts != one.layouts or other.ns is None or one.ns is None:
        return False
    no_worse = other.ns <= one.ns and its.added <= own.added
    return no_worse and (other.ns, its.added) != (one.ns, own.added)


def _with_error(variant: Variant, error: float) -> Variant:
    """A variant with its error; where nodes run apart, that of those which are inexact."""
    pieces = tuple(_with_error(one, error) for one in variant.pieces)
    return replace(variant, error=error if variant.inexact else 0.0, pieces=pieces)
