"""Times and errors of this machine."""
