"""PTensors: VTensors in a physical layout; layouts, memory, and the evaluation of invokers."""

from ptensor.evaluation import (
    Call,
    Decline,
    Evaluation,
    Mode,
    Refusal,
    Requirement,
    Variant,
    current_call,
    emit,
    lib_tagger,
    share,
)
from ptensor.layout import Layout
from ptensor.tensor import PTensor

__all__ = [
    "Call",
    "Decline",
    "Evaluation",
    "Layout",
    "Mode",
    "PTensor",
    "Refusal",
    "Requirement",
    "Variant",
    "current_call",
    "emit",
    "lib_tagger",
    "share",
]
