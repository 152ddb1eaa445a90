"""Passes over the lowered graph: one file each, with the equation of its rule as docstring."""
