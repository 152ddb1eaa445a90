"""What runs: memory and its plan, replay, bindings, and what goes wrong with them."""
