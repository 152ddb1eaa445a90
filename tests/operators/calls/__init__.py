"""Calls of operators on libraries that are compared with the definitions."""
