"""What is noted while blueprints are drawn that are to be written down."""

from __future__ import annotations

from dataclasses import field

from libdesc.native_trace import NativeTrace
from vtensor.language.records import dataclass
from vtensor.runtime.recipes import Recipes


@dataclass(eq=False)
class DrawingNotes:
    """Notes of some drawings.

    Attributes:
        trace: of the native calls that depend on no size.
        over: what was noted is released.
        recipes: what their calls came to. Nothing is taken of what plans have recorded: nobody
            noted that.
    """

    trace: NativeTrace = field(default_factory=NativeTrace)
    recipes: Recipes = field(default_factory=Recipes)
    over: bool = False

    def forget(self) -> None:
        """Let go of what was noted; what was drawn goes on to work."""
        self.recipes, self.over = Recipes(), True
        self.trace.forget()
