"""Kernels beside others, and what an allowed error gains."""
