"""An assertion about a session, for users' tests."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from vtensor.errors import ConversionsError, InputError
from vtensor.language.wording import counted
from vtensor.report import MEGABYTE, why

if TYPE_CHECKING:
    from vtensor.runtime.execution.plan import Conversion
    from vtensor.runtime.session import Session


def assert_conversions(session: Session, at_most: int) -> None:
    """Assert that a run of a session has at most ``at_most`` conversions.

    The conversions are those of ``session.conversions``: the Transforms of the last run's plan, or
    of the plan made at construction, and the inputs and outputs that the last run had to copy.

    Args:
        session: the session.
        at_most: the number of conversions that are allowed.

    Raises:
        ConversionsError: there are more; the message lists each with its cost and its cause. The
            class derives from ``AssertionError``.
        InputError: ``at_most`` is no number of conversions, or the network has symbolic sizes and
            nothing has run yet.

    >>> from ops import Relu
    >>> from vtensor import Graph, Session
    >>> g = Graph("tiny")
    >>> g.output(g.add(Relu(), g.input("x", {"N": 1, "C": 2, "H": 2, "W": 2}), name="relu"), "y")
    >>> assert_conversions(Session(g), at_most=0)
    >>> session = Session(g, output_layouts={"y": "NHWC"})
    >>> assert_conversions(session, at_most=0)
    Traceback (most recent call last):
        ...
    vtensor.errors.ConversionsError: a run has 1 conversion, at most 0 are allowed
      relu: NCHW -> NHWC, 0.00 MB on onednn
        output y is delivered in a layout that Relu relu does not have
    """
    if isinstance(at_most, bool) or not isinstance(at_most, int) or at_most < 0:
        raise InputError(f"at_most={at_most!r} is no number of conversions: 0 or more")
    conversions = session.conversions
    if len(conversions) > at_most:
        count = counted(len(conversions), "conversion")
        lines = [line for conversion in conversions for line in _lines(conversion)]
        text = f"a run has {count}, at most {at_most} are allowed"
        raise ConversionsError("\n".join([text, *lines]))


def _lines(row: Conversion) -> Iterator[str]:
    cost = f"{row.bytes / MEGABYTE:.2f} MB on {row.library}"
    if row.source is None:
        yield f"  {row.node}, to {row.target}, {cost}"
    else:
        yield f"  {row.value}: {row.source} -> {row.target}, {cost}"
    yield from (f"    {why(reason)}" for reason in row.reasons)
