"""Experiments on kernels: other engines' for comparison, and what an allowed error gains."""
