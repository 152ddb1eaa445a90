"""Malicious and broken input: a right answer, or a typed error before memory is taken."""
