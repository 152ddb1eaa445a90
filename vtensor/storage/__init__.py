"""What frontends and the runtime both need: ports, cache entries, open files, the memory budget."""
