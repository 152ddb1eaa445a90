"""Redirects ``import onnxruntime`` to ``vtensor.onnxruntime``."""

from vtensor.onnxruntime import install

install()
