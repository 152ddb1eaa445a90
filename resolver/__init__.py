"""The dynamic layout resolver: partial evaluation, Transform insertion, the soundness check."""

from resolver.check import check
from resolver.evaluate import resolve
from resolver.extend import extend
from resolver.lowered import LoweredGraph, OpNode, Reason, TransformNode, Value

__all__ = [
    "LoweredGraph",
    "OpNode",
    "Reason",
    "TransformNode",
    "Value",
    "check",
    "extend",
    "resolve",
]
