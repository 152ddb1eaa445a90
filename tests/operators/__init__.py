"""Every operator on every library."""
