"""Registration of rewrite rules. A rule is in the file of the operator that it puts into the
graph.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from functools import partial
from types import FrameType
from typing import Any

from libdesc.registry import registry
from vtensor.errors import GraphError
from vtensor.language.rules import Given, Match, Rule


def rewrite(
    name: str,
    equation: str,
    pattern: str,
    makes: str,
    *,
    given: Given | None = None,
    example: Mapping[str, Any] | None = None,
    holds: Callable[[Match], bool] | None = None,
    early: bool = False,
) -> Rule:
    """Register a rewrite rule and return it. A session may then replace ``pattern`` by ``makes`` in
    its graph.

    Args:
        name: the rule's name, by which a session can switch it off: ``optimize=["all",
            "-rewrite.NAME"]``.
        equation: the mathematical identity, for people.
        pattern, makes: expressions of registered operators, in the grammar of
            ``vtensor/language/rules.py``.
        given: called with the ``Match``, which has what the names in ``pattern`` stand for in the
            graph. Returns further parameters for ``makes``; None if the rule does not hold there.
        example: values for tests, by name. Of a hole, its dims, by default ``"N C H W"``: each has
            a random size, but ``I=C`` has that of C and ``h=2`` has 2; ``?`` in front makes truth
            values. Of a scalar, its number. Of a parameter, its value, or a function of the sizes.
        holds: a further condition, asked last, which may read large constants.
        early: True for a rule about integers that stand for numbers; see ``Rule``.

    Raises:
        GraphError: the name is taken, or a text is no expression.
    """
    optional = {key: each for key, each in (("given", given), ("holds", holds)) if each}
    example = dict(example or {})
    more = {"example": example, "module": _module(), "early": early, **optional}
    rule = Rule.of(name, equation, pattern, makes, **more)
    current = registry(fill=False)
    if current.rules.get(name, rule).pattern != rule.pattern:
        raise GraphError(f"a rule {name!r} is already registered")
    known = name not in current.index.pending_rules
    current.change(partial(current.rules.__setitem__, name, rule), known)
    return rule


def _module() -> str:
    """Return the name of the innermost module whose import is on the call stack; empty if none."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_name != "<module>":
        frame = frame.f_back
    return str(frame.f_globals["__name__"]) if frame else ""
