"""What is noted while blueprints are drawn that are to be written down."""

from __future__ import annotations

from dataclasses import field

from libdesc.script import Script
from vtensor.language.records import dataclass
from vtensor.runtime.recipes import Recipes


@dataclass(eq=False)
class DrawingNotes:
    """Notes of some drawings.

    Attributes:
        script: says how their native steps are made.
        recipes: what their calls came to. Nothing is taken of what plans have recorded: nobody
            noted that.
    """

    script: Script = field(default_factory=Script)
    recipes: Recipes = field(default_factory=Recipes)

    def forget(self) -> None:
        """Let go of what was noted; what was drawn goes on to work."""
        self.recipes = Recipes()
        self.script.forget()
