"""What other people's tests may ask of a session."""

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
    """See that a run converts no more layouts than a test allows.

    Counted is what ``session.conversions`` lists: the Transforms of the last run's plan, or of the
    one that was made at construction, and the inputs and outputs that the last run had to copy.

    Args:
        session: whose.
        at_most: how many there may be.

    Raises:
        ConversionsError: there are more; lists each with what it costs and who asked for it. It is
            an ``AssertionError``.
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
    found = session.conversions
    if len(found) > at_most:
        count = counted(len(found), "conversion")
        lines = [line for one in found for line in _lines(one)]
        text = f"a run has {count}, at most {at_most} are allowed"
        raise ConversionsError("\n".join([text, *lines]))


def _lines(one: Conversion) -> Iterator[str]:
    cost = f"{one.bytes / MEGABYTE:.2f} MB on {one.library}"
    if one.source is None:
        yield f"  {one.node}, to {one.target}, {cost}"
    else:
        yield f"  {one.value}: {one.source} -> {one.target}, {cost}"
    yield from (f"    {why(reason)}" for reason in one.reasons)
