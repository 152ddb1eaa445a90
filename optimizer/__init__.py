"""Passes over the lowered graph: one file each, with the equation of its rule as docstring."""

from optimizer.pipeline import LEVELS, optimise, simplify

__all__ = ["LEVELS", "optimise", "simplify"]
