"""Recording: the steps of a plan and its packed constants, from a lowered graph."""
