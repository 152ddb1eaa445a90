"""The inner modules of ONNX Runtime that programs import."""
