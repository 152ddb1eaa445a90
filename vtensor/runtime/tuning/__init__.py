"""Measured times and errors of this machine."""
