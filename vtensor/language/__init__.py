"""The language: tensors, dims, graphs, operators. It imports nothing of ours but the errors."""
