"""A library that demands another scrambled layout at every argument, inputs and outputs."""
