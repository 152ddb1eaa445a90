"""Models that were learned, in the domain ``ai.onnx.ml``, and models of texts and sequences."""
