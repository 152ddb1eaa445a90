"""Passes over the extended graph; a pass a file, a rule its equation."""

from optimizer.pipeline import LEVELS, optimise, simplify

__all__ = ["LEVELS", "optimise", "simplify"]
