"""Registers rewrite rules: each stands in the file of the operator that it makes."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from functools import partial
from types import FrameType
from typing import Any

from libdesc.registry import registry
from vtensor.errors import GraphError
from vtensor.language.rules import Given, Rule


def rewrite(
    name: str,
    equation: str,
    pattern: str,
    makes: str,
    *,
    given: Given | None = None,
    example: Mapping[str, Any] | None = None,
) -> Rule:
    """Register a rule: where a graph holds the pattern, the session may run what it makes.

    Args:
        name: what switches it off: ``optimize=["all", "-rewrite.NAME"]``.
        equation: what both sides compute.
        pattern, makes: expressions of registered operators; ``vtensor/language/rules.py`` says how
            they are written.
        given: called with what was met (``Match``); returns further parameters for ``makes``, or
            None where the rule does not hold.
        example: for tests. The dims of holes, ``"N C H W"`` where nothing is said: each of a size
            that is drawn, ``I=C`` of the size of C, ``h=2`` of 2; truth values behind ``?``. The
            numbers of scalars, and parameters; those that go by the sizes are functions of them.

    Raises:
        GraphError: the name is taken, or a text is no expression.
    """
    more = {"given": given} if given else {}
    example = dict(example or {})
    rule = Rule.of(name, equation, pattern, makes, example=example, module=_module(), **more)
    found = registry(fill=False)
    if found.rules.get(name, rule).pattern != rule.pattern:
        raise GraphError(f"a rule {name!r} is already registered")
    known = name not in found.index.pending_rules
    found.change(partial(found.rules.__setitem__, name, rule), known)
    return rule


def _module() -> str:
    """The module that is being imported, whose line called for this one."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_name != "<module>":
        frame = frame.f_back
    return str(frame.f_globals["__name__"]) if frame else ""
