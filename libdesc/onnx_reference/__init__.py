"""ONNX's own evaluator as a library: it runs what nothing else has a definition of."""

LIBRARY = "onnx_reference"
