"""ONNX's reference evaluator as a library: it runs operators that VTensor does not define."""

LIBRARY = "onnx_reference"
