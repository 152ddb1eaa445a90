"""Symbolic sizes, and traces of what Python computes on them."""
