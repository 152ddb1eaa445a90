"""Model formats in and out: what a file says, turned into a ``Graph``."""
