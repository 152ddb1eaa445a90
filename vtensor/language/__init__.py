"""The language: tensors, dims, graphs, operators. Of VTensor it imports only the errors."""
