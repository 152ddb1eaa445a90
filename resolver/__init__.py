"""The dynamic layout resolver: partial evaluation, Transform insertion, the soundness check."""

from resolver.check import check
from resolver.evaluate import Resolution, resolve
from resolver.extend import extend
from resolver.extended import ExtendedGraph, OpNode, Reason, TransformNode, Value

__all__ = [
    "ExtendedGraph",
    "OpNode",
    "Reason",
    "Resolution",
    "TransformNode",
    "Value",
    "check",
    "extend",
    "resolve",
]
