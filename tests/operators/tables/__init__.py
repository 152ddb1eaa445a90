"""Tables of cases and of ONNX nodes, by family of operators."""
