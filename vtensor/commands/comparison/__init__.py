"""The search for the first value of a model on which VTensor and ONNX Runtime disagree."""
