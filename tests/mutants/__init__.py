"""Faults that are seeded in planning, recording, cache and symbols, and the tests that see them."""
