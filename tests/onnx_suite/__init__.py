"""ONNX's own backend suite: its cases, run through a Session, and what became of each.

``python -m tests.onnx_suite`` prints the figures; ``tests/test_onnx_suite.py`` runs the cases of
the operators that VTensor has.
"""
