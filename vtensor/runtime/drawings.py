"""Blueprints that are still to be drawn, and which plans go before them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ptensor.stopping import Stopped
from vtensor.language.imported import logger
from vtensor.language.interrupts import MALFORMED, pass_signals

if TYPE_CHECKING:
    from vtensor.runtime.workspace import Workspace

_log = logger(__name__)


class Drawings:
    """What draws the blueprints of plans that have run. Only who makes plans uses it, but for
    ``add``.

    Args:
        workspace: whose recipes these are.
    """

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._left: list[Callable[[], None]] = []
        self._passed = False

    def __bool__(self) -> bool:
        return bool(self._left)

    def add(self, drawing: Callable[[], None]) -> None:
        """One more is to be drawn."""
        self._left.append(drawing)

    def before_a_plan(self) -> None:
        """One plan goes before what is to be drawn, on numbers: that takes less time. If nobody has
        drawn it when the next one is made, it is drawn now.
        """
        if self._passed:
            self.draw()
        elif self._left:
            self._passed, self._workspace.recipes.traces = True, False

    def draw(self) -> None:
        """Draw all that are left.

        Raises:
            Stopped: somebody wants a plan first; what was begun is left, too.
        """
        while self._left:
            drawing = self._left.pop(0)
            try:
                attempt(drawing)
            except Stopped:
                self._left.insert(0, drawing)
                raise
        self._passed, self._workspace.recipes.traces = False, True


def attempt(work: Callable[[], None]) -> None:
    """Do what is for sizes to come, if it can be done."""
    try:
        work()
    except MemoryError:
        raise
    except MALFORMED as why:  # of any kind: sizes are no numbers here, which few expect
        pass_signals(why)
        _log.debug("not ready for other sizes: %s", why)
