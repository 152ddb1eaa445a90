"""The choice of variants: candidates, costs, the integer program, what a result says of it."""
