"""Experiments that repeat the paper's figures, and the check of its claims."""
