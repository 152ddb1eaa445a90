"""Recording: what a plan does, written down while it is made, and its constants, packed."""
