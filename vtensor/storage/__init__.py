"""Ports, cache entries, open files and the memory budget: shared by frontends and the runtime."""
